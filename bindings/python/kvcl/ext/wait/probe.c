/*
 * Comm.probe and Comm.split, Context.listen and Context.connect: calls that wait for other ranks.
 */
#include "kvcl/ext/ext.h"

enum { SLICE_NS = 50000000 }; /* slice of a wait, between checks for signals */

/* _probe(rank, tag, timeout or None): (source, tag, bytes), or None once the time is over */
static PyObject *comm_probe(PyObject *self, PyObject *args)
{
    kvpy_obj_t       *comm = (kvpy_obj_t *)self;
    kvcl_recv_info_t info  = KVCL_RECV_INFO_INIT;
    PyObject         *rank_arg, *tag_arg, *timeout;
    kvcl_status_t    status;
    uint64_t         tag, ns, until, left;
    int              rank;

    if (!PyArg_ParseTuple(args, "OOO:_probe", &rank_arg, &tag_arg, &timeout) ||
        (kvpy_int(rank_arg, "rank", &rank) != 0) || (kvpy_u64(tag_arg, "tag", UINT64_MAX, &tag) != 0) ||
        (kvpy_timeout(timeout, &ns) != 0)) {
        return NULL;
    }
    until = kvpy_now_ns() + ((timeout == Py_None) ? UINT64_MAX / 2 : ns);
    do {
        if (kvpy_obj_check(comm) != 0) {
            return NULL;
        }
        left = kvpy_now_ns();
        left = (until > left) ? until - left : 0;
        left = (left > SLICE_NS) ? SLICE_NS : left;
        KVPY_CALL(comm, status, kvcl_probe(comm->handle, rank, tag, left, &info));
        if (status == KVCL_OK) {
            return Py_BuildValue("(iKK)", info.source, (unsigned long long)info.tag, (unsigned long long)info.bytes);
        }
        if ((status != KVCL_INPROGRESS) && (status != KVCL_ERR_WAIT_TIMEOUT)) {
            return kvpy_raise(status, NULL);
        }
        if (PyErr_CheckSignals() != 0) {
            return NULL;
        }
    } while (kvpy_now_ns() < until);
    Py_RETURN_NONE;
}

/* _split(parent, color or None, key, timeout): the communicator, or None without a color */
static PyObject *comm_split(PyObject *cls, PyObject *args)
{
    PyObject      *arg, *color, *timeout;
    kvpy_obj_t    *parent;
    kvcl_comm_h   comm = NULL;
    kvcl_status_t status;
    long long     number = KVCL_COLOR_NONE, key;
    uint64_t      ns;

    if (!PyArg_ParseTuple(args, "OOLO:_split", &arg, &color, &key, &timeout) ||
        (kvpy_call_timeout(timeout, &ns) != 0) || ((parent = kvpy_obj_arg(arg, kvpy_comm_type, NULL)) == NULL)) {
        return NULL;
    }
    if (color != Py_None) {
        number = PyLong_AsLongLong(color);
        if (PyErr_Occurred()) {
            return NULL;
        }
        if (number == KVCL_COLOR_NONE) {
            PyErr_SetString(PyExc_ValueError, "color is too small: None is for no communicator");
            return NULL;
        }
    }
    KVPY_CALL(parent, status, kvcl_comm_split(parent->handle, number, key, ns, &comm));
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    return (comm != NULL) ? kvpy_obj_new((PyTypeObject *)cls, KVPY_COMM, parent->ctx, comm) : kvpy_none();
}

/* _listen(context, at or None): (door, what others connect to) */
static PyObject *comm_listen(PyObject *cls, PyObject *args)
{
    char          text[16384];
    PyObject      *arg, *made;
    kvpy_ctx_t    *ctx;
    const char    *at;
    kvcl_comm_h   door = NULL;
    kvcl_status_t status;
    size_t        len;

    if (!PyArg_ParseTuple(args, "O!z:_listen", kvpy_context_type, &arg, &at) ||
        (kvpy_ctx_check(ctx = (kvpy_ctx_t *)arg) != 0)) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_context_listen(ctx->handle, at, text, sizeof(text), &len, &door));
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    made = kvpy_obj_new((PyTypeObject *)cls, KVPY_COMM, ctx, door);
    return (made != NULL) ? Py_BuildValue("(Ns)", made, text) : NULL;
}

/* _reach(context, address, timeout) */
static PyObject *comm_reach(PyObject *cls, PyObject *args)
{
    PyObject      *arg, *timeout;
    kvpy_ctx_t    *ctx;
    const char    *address;
    kvcl_comm_h   comm = NULL;
    kvcl_status_t status;
    uint64_t      ns;

    if (!PyArg_ParseTuple(args, "O!sO:_reach", kvpy_context_type, &arg, &address, &timeout) ||
        (kvpy_call_timeout(timeout, &ns) != 0) || (kvpy_ctx_check(ctx = (kvpy_ctx_t *)arg) != 0)) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_context_connect(ctx->handle, address, ns, &comm));
    return (status == KVCL_OK) ? kvpy_obj_new((PyTypeObject *)cls, KVPY_COMM, ctx, comm) : kvpy_raise(status, NULL);
}

/* _reach_post(request, world, address, timeout): the Request, whose result is the communicator */
static PyObject *comm_reach_post(PyObject *cls, PyObject *args)
{
    kvcl_xfer_params_t params;
    PyObject           *request, *arg, *timeout;
    const char         *address;
    kvpy_obj_t         *world;
    kvpy_op_t          *op;
    kvpy_ctx_t         *ctx;
    kvcl_comm_h        comm = NULL;
    kvcl_status_t      status;

    if (!PyArg_ParseTuple(args, "OOsO:_reach_post", &request, &arg, &address, &timeout) ||
        ((world = kvpy_obj_arg(arg, kvpy_comm_type, NULL)) == NULL) ||
        ((op = kvpy_op_new(request, "kvcl_context_connect", world, timeout, &params)) == NULL)) {
        return NULL;
    }
    ctx = op->ctx;
    KVPY_POST(op, status, kvcl_context_connect_post(ctx->handle, address, &params, &comm, &op->req));
    if (status == KVCL_OK) {
        op->result = kvpy_obj_new((PyTypeObject *)cls, KVPY_COMM, ctx, comm); /* NULL: comm is freed, which cancels */
    }
    if ((status == KVCL_OK) && (op->result == NULL)) {
        PyErr_Clear();
        Py_XDECREF(kvpy_op_posted(op, status));
        return PyErr_NoMemory();
    }
    return kvpy_op_posted(op, status);
}

static PyObject *comm_disconnect(PyObject *self, PyObject *arg)
{
    kvpy_obj_t    *comm = (kvpy_obj_t *)self;
    kvcl_status_t status;
    int           rank;

    if ((kvpy_int(arg, "rank", &rank) != 0) || (kvpy_obj_check(comm) != 0)) {
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_context_disconnect(comm->handle, rank));
    return (status == KVCL_OK) ? kvpy_none() : kvpy_raise(status, NULL);
}

PyMethodDef kvpy_probe_methods[] = {
    {"_listen", comm_listen, METH_VARARGS | METH_CLASS, "_listen(context, at)"},
    {"_reach", comm_reach, METH_VARARGS | METH_CLASS, "_reach(context, address, timeout)"},
    {"_reach_post", comm_reach_post, METH_VARARGS | METH_CLASS, "_reach_post(request, world, address, timeout)"},
    {"_disconnect", comm_disconnect, METH_O, "_disconnect(rank)"},
    {"_probe", comm_probe, METH_VARARGS, "_probe(rank, tag, timeout)"},
    {"_split", comm_split, METH_VARARGS | METH_CLASS, "_split(parent, color, key, timeout)"},
    {NULL, NULL, 0, NULL}};
