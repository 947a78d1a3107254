/*
 * Comm: its members, and going on without those that are none (kvcl_view.h, kvcl_recover.h).
 */
#include "kvcl/ext/ext.h"

#include <stdlib.h>

/* _active(): bytes, one for each rank, and the number of the view. */
static PyObject *comm_active(PyObject *self, PyObject *unused)
{
    kvpy_obj_t    *comm = (kvpy_obj_t *)self;
    kvcl_status_t status;
    unsigned char *active;
    PyObject      *result;
    uint64_t      view = 0;
    int           n;

    (void)unused;
    if (kvpy_obj_check(comm) != 0) {
        return NULL;
    }
    n      = kvcl_comm_size(comm->handle);
    active = calloc((size_t)n + 1, 1);
    if (active == NULL) {
        return PyErr_NoMemory();
    }
    KVPY_CALL(comm, status, kvcl_comm_active(comm->handle, active, n, &view));
    result = (status == KVCL_OK) ? Py_BuildValue("y#K", (const char *)active, (Py_ssize_t)n, (unsigned long long)view)
                                 : kvpy_raise(status, NULL);
    free(active);
    return result;
}

/* _waiting(): bytes, one for each rank. */
static PyObject *comm_waiting(PyObject *self, PyObject *unused)
{
    kvpy_obj_t    *comm = (kvpy_obj_t *)self;
    kvcl_status_t status;
    unsigned char *waiting;
    PyObject      *result;
    int           n;

    (void)unused;
    if (kvpy_obj_check(comm) != 0) {
        return NULL;
    }
    n       = kvcl_comm_size(comm->handle);
    waiting = calloc((size_t)n + 1, 1);
    if (waiting == NULL) {
        return PyErr_NoMemory();
    }
    KVPY_CALL(comm, status, kvcl_comm_waiting(comm->handle, waiting, n));
    result = (status == KVCL_OK) ? PyBytes_FromStringAndSize((const char *)waiting, (Py_ssize_t)n)
                                 : kvpy_raise(status, NULL);
    free(waiting);
    return result;
}

/* _failed(): a list of ranks. */
static PyObject *comm_failed(PyObject *self, PyObject *unused)
{
    kvpy_obj_t    *comm = (kvpy_obj_t *)self;
    kvcl_status_t status;
    PyObject      *list, *rank;
    int           *ranks, n = 0, cap, i;

    (void)unused;
    if (kvpy_obj_check(comm) != 0) {
        return NULL;
    }
    cap   = kvcl_comm_size(comm->handle);
    ranks = calloc((size_t)cap + 1, sizeof(*ranks));
    if (ranks == NULL) {
        return PyErr_NoMemory();
    }
    KVPY_CALL(comm, status, kvcl_comm_get_failed(comm->handle, ranks, cap, &n));
    list = (status == KVCL_OK) ? PyList_New(0) : kvpy_raise(status, NULL);
    for (i = 0; (list != NULL) && (i < n) && (i < cap); ++i) {
        rank = PyLong_FromLong(ranks[i]);
        if ((rank == NULL) || (PyList_Append(list, rank) != 0)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(rank);
    }
    free(ranks);
    return list;
}

/* _ack_failed(n): how many are acknowledged. */
static PyObject *comm_ack_failed(PyObject *self, PyObject *arg)
{
    kvpy_obj_t    *comm = (kvpy_obj_t *)self;
    kvcl_status_t status;
    int           n, acked = 0;

    if ((kvpy_int(arg, "n", &n) != 0) || (kvpy_obj_check(comm) != 0)) {
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_comm_ack_failed(comm->handle, n, &acked));
    return (status == KVCL_OK) ? PyLong_FromLong(acked) : kvpy_raise(status, NULL);
}

/* _agree(flags, timeout): the flags of all, and whether all failures are acknowledged. */
static PyObject *comm_agree(PyObject *self, PyObject *args)
{
    kvpy_obj_t    *comm = (kvpy_obj_t *)self;
    kvcl_status_t status;
    PyObject      *given, *timeout;
    uint64_t      flags, ns;

    if (!PyArg_ParseTuple(args, "OO:_agree", &given, &timeout) ||
        (kvpy_u64(given, "flags", UINT64_MAX, &flags) != 0) || (kvpy_call_timeout(timeout, &ns) != 0) ||
        (kvpy_obj_check(comm) != 0)) {
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_comm_agree(comm->handle, &flags, ns));
    if ((status != KVCL_OK) && (status != KVCL_ERR_RANK_FAILED)) {
        return kvpy_raise(status, NULL);
    }
    return Py_BuildValue("KN", (unsigned long long)flags, PyBool_FromLong(status == KVCL_OK));
}

/* _shrink(comm, timeout) */
static PyObject *comm_shrink(PyObject *cls, PyObject *args)
{
    PyObject      *arg, *timeout;
    kvpy_obj_t    *comm;
    kvcl_comm_h   shrunk = NULL;
    kvcl_status_t status;
    uint64_t      ns;

    if (!PyArg_ParseTuple(args, "OO:_shrink", &arg, &timeout) || (kvpy_call_timeout(timeout, &ns) != 0) ||
        ((comm = kvpy_obj_arg(arg, kvpy_comm_type, NULL)) == NULL)) {
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_comm_shrink(comm->handle, ns, &shrunk));
    return (status == KVCL_OK) ? kvpy_obj_new((PyTypeObject *)cls, KVPY_COMM, comm->ctx, shrunk)
                               : kvpy_raise(status, NULL);
}

static PyObject *comm_revoke(PyObject *self, PyObject *unused)
{
    kvpy_obj_t    *comm = (kvpy_obj_t *)self;
    kvcl_status_t status;

    (void)unused;
    if (kvpy_obj_check(comm) != 0) {
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_comm_revoke(comm->handle));
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    Py_RETURN_NONE;
}

static PyObject *comm_is_revoked(PyObject *self, PyObject *unused)
{
    kvpy_obj_t    *comm = (kvpy_obj_t *)self;
    kvcl_status_t status;
    int           revoked = 0;

    (void)unused;
    if (kvpy_obj_check(comm) != 0) {
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_comm_is_revoked(comm->handle, &revoked));
    return (status == KVCL_OK) ? PyBool_FromLong(revoked) : kvpy_raise(status, NULL);
}

/* (the number of the view, the dropped ranks); sets an exception unless status is KVCL_OK */
static PyObject *change_result(kvcl_status_t status, const kvcl_view_change_result_t *result)
{
    PyObject   *dropped = (status == KVCL_OK) ? PyList_New(0) : kvpy_raise(status, NULL), *rank;
    Py_ssize_t i;

    for (i = 0; (dropped != NULL) && (i < KVCL_EVENT_RANKS); ++i) {
        if (((result->dropped[i / 64] >> (i % 64)) & 1) == 0) {
            continue;
        }
        rank = PyLong_FromSsize_t(i);
        if ((rank == NULL) || (PyList_Append(dropped, rank) != 0)) {
            Py_CLEAR(dropped);
        }
        Py_XDECREF(rank);
    }
    return (dropped != NULL) ? Py_BuildValue("KN", (unsigned long long)result->view, dropped) : NULL;
}

typedef kvcl_status_t (*change_t)(kvcl_comm_h comm, const int *ranks, int n, uint64_t timeout_ns,
                                  kvcl_view_change_result_t *result);

/* args: ranks, timeout */
static PyObject *change(PyObject *self, PyObject *args, change_t call)
{
    kvpy_obj_t                *comm  = (kvpy_obj_t *)self;
    kvcl_view_change_result_t result = KVCL_VIEW_CHANGE_RESULT_INIT;
    PyObject                  *list, *timeout;
    kvcl_status_t             status;
    Py_ssize_t                n, i;
    uint64_t                  ns;
    int                       *ranks;

    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &list, &timeout) || (kvpy_call_timeout(timeout, &ns) != 0) ||
        (kvpy_obj_check(comm) != 0)) {
        return NULL;
    }
    n     = PyList_Size(list);
    ranks = calloc((size_t)n + 1, sizeof(*ranks));
    if (ranks == NULL) {
        return PyErr_NoMemory();
    }
    for (i = 0; i < n; ++i) {
        if (kvpy_int(PyList_GetItem(list, i), "ranks", &ranks[i]) != 0) {
            free(ranks);
            return NULL;
        }
    }
    KVPY_CALL(comm, status, call(comm->handle, ranks, (int)n, ns, &result));
    free(ranks);
    return change_result(status, &result);
}

static PyObject *comm_deactivate(PyObject *self, PyObject *args)
{
    return change(self, args, kvcl_comm_deactivate);
}

static PyObject *comm_activate(PyObject *self, PyObject *args)
{
    return change(self, args, kvcl_comm_activate);
}

static PyObject *comm_sync(PyObject *self, PyObject *timeout)
{
    kvpy_obj_t                *comm  = (kvpy_obj_t *)self;
    kvcl_view_change_result_t result = KVCL_VIEW_CHANGE_RESULT_INIT;
    kvcl_status_t             status;
    uint64_t                  ns;

    if ((kvpy_call_timeout(timeout, &ns) != 0) || (kvpy_obj_check(comm) != 0)) {
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_comm_sync(comm->handle, ns, &result));
    return change_result(status, &result);
}

/* Context: _leave(timeout) */
PyObject *kvpy_context_leave(PyObject *self, PyObject *timeout)
{
    kvpy_ctx_t    *ctx = (kvpy_ctx_t *)self;
    kvcl_status_t status;
    uint64_t      ns;

    if ((kvpy_call_timeout(timeout, &ns) != 0) || (kvpy_ctx_check(ctx) != 0)) {
        return NULL;
    }
    ++ctx->users;
    Py_BEGIN_ALLOW_THREADS
    status = kvcl_leave(ctx->handle, ns);
    Py_END_ALLOW_THREADS
    --ctx->users;
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    Py_RETURN_NONE;
}

/* Context: _join_address(): None: nobody can join through this rank */
PyObject *kvpy_context_join_address(PyObject *self, PyObject *none)
{
    kvpy_ctx_t    *ctx = (kvpy_ctx_t *)self;
    kvcl_status_t status;
    char          at[512];
    size_t        len = 0;

    (void)none;
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_join_address(ctx->handle, at, sizeof(at), &len));
    if (status == KVCL_ERR_NOT_FOUND) {
        return kvpy_none();
    }
    return (status == KVCL_OK) ? PyUnicode_FromString(at) : kvpy_raise(status, NULL);
}

PyMethodDef kvpy_recover_methods[] = {
    {"_deactivate", comm_deactivate, METH_VARARGS, "_deactivate(ranks, timeout): (view, dropped)"},
    {"_activate", comm_activate, METH_VARARGS, "_activate(ranks, timeout): (view, dropped)"},
    {"_sync", comm_sync, METH_O, "_sync(timeout): (view, ranks that are no members)"},
    {"_revoke", comm_revoke, METH_NOARGS, "_revoke()"},
    {"_is_revoked", comm_is_revoked, METH_NOARGS, "_is_revoked()"},
    {"_active", comm_active, METH_NOARGS, "_active()"},
    {"_waiting", comm_waiting, METH_NOARGS, "_waiting()"},
    {"_failed", comm_failed, METH_NOARGS, "_failed()"},
    {"_ack_failed", comm_ack_failed, METH_O, "_ack_failed(n)"},
    {"_agree", comm_agree, METH_VARARGS, "_agree(flags, timeout)"},
    {"_shrink", comm_shrink, METH_VARARGS | METH_CLASS, "_shrink(comm, timeout)"},
    {NULL, NULL, 0, NULL}};
