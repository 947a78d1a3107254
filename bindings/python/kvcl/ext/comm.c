/*
 * Comm: the construction of communicators, and their properties. Transfers over a communicator are in remote/xfer.c.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

PyTypeObject *kvpy_comm_type;

static PyObject *comm_world(PyObject *cls, PyObject *arg)
{
    kvpy_ctx_t    *ctx = (kvpy_ctx_t *)arg;
    kvcl_comm_h   comm = NULL;
    kvcl_status_t status;

    if (!PyObject_TypeCheck(arg, kvpy_context_type)) {
        PyErr_SetString(PyExc_TypeError, "a Context is needed");
        return NULL;
    }
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    status = kvcl_comm_world(ctx->handle, &comm);
    return (status == KVCL_OK) ? kvpy_obj_new((PyTypeObject *)cls, KVPY_COMM, ctx, comm) : kvpy_raise(status, NULL);
}

static PyObject *comm_create(PyObject *cls, PyObject *args)
{
    PyObject      *arg, *list;
    kvpy_obj_t    *parent;
    kvcl_comm_h   comm = NULL;
    kvcl_status_t status;
    Py_ssize_t    i, n;
    int           *ranks;

    if (!PyArg_ParseTuple(args, "OO:_create", &arg, &list) ||
        ((parent = kvpy_obj_arg(arg, kvpy_comm_type, NULL)) == NULL) || ((list = PySequence_Tuple(list)) == NULL)) {
        return NULL;
    }
    n     = PyTuple_Size(list);
    ranks = calloc((size_t)n + 1, sizeof(*ranks));
    for (i = 0; (ranks != NULL) && (i < n); ++i) {
        if (kvpy_int(PyTuple_GetItem(list, i), "a rank", &ranks[i]) != 0) {
            break;
        }
    }
    Py_DECREF(list);
    if ((ranks == NULL) || (i < n) || (n > INT32_MAX) || (kvpy_obj_check(parent) != 0)) {
        free(ranks);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    KVPY_CALL(parent, status, kvcl_comm_create(parent->handle, ranks, (int)n, &comm));
    free(ranks);
    return (status == KVCL_OK) ? kvpy_obj_new((PyTypeObject *)cls, KVPY_COMM, parent->ctx, comm)
                               : kvpy_raise(status, NULL);
}

/* _join(comm, address or None, accept, timeout) */
static PyObject *comm_join(PyObject *cls, PyObject *args)
{
    PyObject      *arg, *timeout;
    kvpy_obj_t    *comm;
    const char    *address;
    kvcl_comm_h   inter = NULL;
    kvcl_status_t status;
    uint64_t      ns;
    int           accept;

    if (!PyArg_ParseTuple(args, "OzpO:_join", &arg, &address, &accept, &timeout) ||
        (kvpy_call_timeout(timeout, &ns) != 0) || ((comm = kvpy_obj_arg(arg, kvpy_comm_type, NULL)) == NULL)) {
        return NULL;
    }
    KVPY_CALL(comm, status, accept ? kvcl_comm_accept(comm->handle, ns, &inter)
                                   : kvcl_comm_connect(comm->handle, address, ns, &inter));
    return (status == KVCL_OK) ? kvpy_obj_new((PyTypeObject *)cls, KVPY_COMM, comm->ctx, inter)
                               : kvpy_raise(status, NULL);
}

static PyObject *comm_path(PyObject *self, PyObject *arg)
{
    kvpy_obj_t    *comm = (kvpy_obj_t *)self;
    kvcl_status_t status;
    char          buf[256] = "";
    int           rank;

    if ((kvpy_int(arg, "rank", &rank) != 0) || (kvpy_obj_check(comm) != 0)) {
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_query_path(comm->handle, rank, buf, sizeof(buf)));
    return (status == KVCL_OK) ? PyUnicode_FromString(buf) : kvpy_raise(status, NULL);
}

/* Called inside kvcl_query_memory, without the GIL. arg: the list, NULL after an error. */
static void add_memory(void *arg, const kvcl_memory_info_t *info)
{
    PyGILState_STATE gil    = PyGILState_Ensure();
    PyObject         **list = arg, *row;

    if (*list != NULL) {
        row = Py_BuildValue("(ssKssss)", info->what, info->name, (unsigned long long)info->bytes, info->get_path,
                            info->put_path, info->why, info->put_why);
        if ((row == NULL) || (PyList_Append(*list, row) != 0)) {
            Py_CLEAR(*list);
        }
        Py_XDECREF(row);
    }
    PyGILState_Release(gil);
}

static PyObject *comm_memory(PyObject *self, PyObject *arg)
{
    kvpy_obj_t    *comm = (kvpy_obj_t *)self;
    kvcl_status_t status;
    PyObject      *list;
    int           rank;

    if ((kvpy_int(arg, "rank", &rank) != 0) || (kvpy_obj_check(comm) != 0) || ((list = PyList_New(0)) == NULL)) {
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_query_memory(comm->handle, rank, add_memory, &list));
    if (status != KVCL_OK) {
        Py_XDECREF(list);
        return kvpy_raise(status, NULL);
    }
    return list; /* NULL: the exception is set */
}

static PyObject *comm_rank_state(PyObject *self, PyObject *arg)
{
    kvpy_obj_t        *comm = (kvpy_obj_t *)self;
    kvcl_rank_state_t state = KVCL_RANK_UNKNOWN;
    kvcl_status_t     status;
    int               rank;

    if ((kvpy_int(arg, "rank", &rank) != 0) || (kvpy_obj_check(comm) != 0)) {
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_rank_state(comm->handle, rank, &state));
    return (status == KVCL_OK) ? PyLong_FromLong((long)state) : kvpy_raise(status, NULL);
}

static PyObject *comm_rank(PyObject *self, void *closure)
{
    kvpy_obj_t *comm = (kvpy_obj_t *)self;

    (void)closure;
    return (kvpy_obj_check(comm) == 0) ? PyLong_FromLong(kvcl_comm_rank(comm->handle)) : NULL;
}

static PyObject *comm_size(PyObject *self, void *closure)
{
    kvpy_obj_t *comm = (kvpy_obj_t *)self;

    (void)closure;
    return (kvpy_obj_check(comm) == 0) ? PyLong_FromLong(kvcl_comm_size(comm->handle)) : NULL;
}

static PyObject *comm_view(PyObject *self, void *closure)
{
    kvpy_obj_t *comm = (kvpy_obj_t *)self;

    (void)closure;
    return (kvpy_obj_check(comm) == 0) ? PyLong_FromUnsignedLongLong(kvcl_comm_view(comm->handle)) : NULL;
}

static PyObject *comm_is_inter(PyObject *self, void *closure)
{
    kvpy_obj_t *comm = (kvpy_obj_t *)self;

    (void)closure;
    return (kvpy_obj_check(comm) == 0) ? PyBool_FromLong(kvcl_comm_is_inter(comm->handle)) : NULL;
}

static PyMethodDef make_methods[] = {
    {"_world", comm_world, METH_O | METH_CLASS, "_world(context)"},
    {"_create", comm_create, METH_VARARGS | METH_CLASS, "_create(parent, ranks)"},
    {"_join", comm_join, METH_VARARGS | METH_CLASS, "_join(comm, address, accept, timeout)"},
    {"path", comm_path, METH_O,
     "How this rank reaches another: 'mapped (posix)', 'served (tcp/lo plain)', ... Connects if it is not connected."},
    {"_memory", comm_memory, METH_O, "_memory(rank)"},
    {"_rank_state", comm_rank_state, METH_O, "_rank_state(rank)"},
    {"_notify", kvpy_comm_notify, METH_VARARGS, "_notify(request, rank, bytes, timeout)"},
    {"_notify_recv", kvpy_comm_notify_recv, METH_O, "_notify_recv(timeout)"},
    {"_stream_done", kvpy_comm_stream_done, METH_VARARGS, "_stream_done(request, stream, timeout)"},
    {"close", kvpy_obj_close_py, METH_NOARGS, "Free it. Busy while something uses it."},
    {NULL, NULL, 0, NULL}};

PyTypeObject *kvpy_make_comm(void)
{
    static PyGetSetDef getset[] = {
        {"rank", comm_rank, NULL, "My rank, in my own side.", NULL},
        {"size", comm_size, NULL, "How many ranks can be addressed; the other side's of an inter-communicator.", NULL},
        {"view", comm_view, NULL, "The number of the job's view; without KVCL_VIEWS always 1.", NULL},
        {"is_inter", comm_is_inter, NULL, "Whether its ranks are another job's.", NULL},
        {"closed", kvpy_obj_closed_py, NULL, "Whether it was closed.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyMethodDef methods[48];
    size_t             n = 0, i;

    for (i = 0; make_methods[i].ml_name != NULL; ++i) {
        methods[n++] = make_methods[i];
    }
    for (i = 0; kvpy_probe_methods[i].ml_name != NULL; ++i) {
        methods[n++] = kvpy_probe_methods[i];
    }
    for (i = 0; kvpy_recover_methods[i].ml_name != NULL; ++i) {
        methods[n++] = kvpy_recover_methods[i];
    }
    for (i = 0; kvpy_xfer_methods[i].ml_name != NULL; ++i) {
        methods[n++] = kvpy_xfer_methods[i];
    }
    return kvpy_obj_type("kvcl._kvcl.Comm", "Ranks in order.", methods, getset);
}
