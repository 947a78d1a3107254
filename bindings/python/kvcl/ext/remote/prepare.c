/*
 * Prepared transfers: a get or put that is checked once and posted many times; and requests for streams.
 */
#include "kvcl/ext/ext.h"

PyTypeObject *kvpy_xfer_type;

/* (layers, heads, tokens), each None or (first, end) */
static int ranges(PyObject *tuple, kvcl_sel_t *sel)
{
    PyObject *layers, *heads, *tokens, *none = PyTuple_New(0);
    int      rc = -1;

    if ((none != NULL) && PyArg_ParseTuple(tuple, "OOO:ranges", &layers, &heads, &tokens)) {
        rc = kvpy_sel(none, layers, heads, tokens, sel);
    }
    Py_XDECREF(none);
    return rc;
}

/* The handle, made with the arguments checked; they stay open while it is. */
static PyObject *make(PyTypeObject *cls, kvpy_obj_t *comm, kvpy_obj_t *cache, kvpy_obj_t *counter, kvcl_xfer_h xfer)
{
    kvpy_obj_t *obj = (kvpy_obj_t *)kvpy_obj_new(cls, KVPY_XFER, comm->ctx, xfer);

    if ((obj != NULL) && ((kvpy_obj_keep(obj, comm) != 0) || (kvpy_obj_keep(obj, cache) != 0) ||
                          ((counter != NULL) && (kvpy_obj_keep(obj, counter) != 0)))) {
        Py_CLEAR(obj);
    }
    return (PyObject *)obj;
}

/* _prepare(comm, put, rank, cache, local ranges, remote ranges, remote cache's name or None, timeout, background,
 * signal or None) */
static PyObject *xfer_prepare(PyObject *cls, PyObject *args)
{
    PyObject           *comm_arg, *rank_arg, *cache_arg, *local_arg, *remote_arg, *timeout, *signal, *made = NULL;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvpy_obj_t         *comm, *cache, *counter;
    kvcl_sel_t         local = {0}, remote = {0};
    kvcl_xfer_h        xfer = NULL;
    kvcl_status_t      status;
    int                put, rank, background;

    if (!PyArg_ParseTuple(args, "OpOOO!O!zOpO:_prepare", &comm_arg, &put, &rank_arg, &cache_arg, &PyTuple_Type,
                          &local_arg, &PyTuple_Type, &remote_arg, &params.remote_cache, &timeout, &background,
                          &signal) ||
        (kvpy_int(rank_arg, "rank", &rank) != 0) || (kvpy_timeout(timeout, &params.timeout_ns) != 0) ||
        ((comm = kvpy_obj_arg(comm_arg, kvpy_comm_type, NULL)) == NULL) ||
        ((cache = kvpy_obj_arg(cache_arg, kvpy_cache_type, comm->ctx)) == NULL) ||
        (kvpy_signal(signal, comm->ctx, &params, &counter) != 0)) {
        return NULL;
    }
    params.flags = background ? KVCL_BACKGROUND : 0;
    if ((ranges(local_arg, &local) == 0) && (ranges(remote_arg, &remote) == 0) && (kvpy_obj_check(comm) == 0) &&
        (kvpy_obj_check(cache) == 0)) {
        KVPY_CALL(comm, status, kvcl_xfer_prepare(comm->handle, rank, put ? KVCL_XFER_PUT : KVCL_XFER_GET,
                                                  cache->handle, &local, &remote, &params, &xfer));
        made = (status == KVCL_OK) ? make((PyTypeObject *)cls, comm, cache, counter, xfer) : kvpy_raise(status, NULL);
    }
    kvpy_sel_free(&local);
    kvpy_sel_free(&remote);
    return made;
}

/* _post(request, local blocks, remote blocks, timeout, stream, notify or None) */
static PyObject *xfer_post(PyObject *self, PyObject *args)
{
    PyObject           *request, *local_arg, *remote_arg, *timeout, *notify;
    kvpy_obj_t         *xfer = (kvpy_obj_t *)self;
    uint32_t           *local = NULL, *remote = NULL;
    size_t             n_local, n_remote;
    kvcl_xfer_params_t params;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    unsigned long long stream;

    if (!PyArg_ParseTuple(args, "OOOOKO:_post", &request, &local_arg, &remote_arg, &timeout, &stream, &notify) ||
        (kvpy_u32s(local_arg, "blocks", &local, &n_local) != 0)) {
        return NULL;
    }
    if ((kvpy_u32s(remote_arg, "blocks", &remote, &n_remote) != 0) ||
        ((op = kvpy_op_new(request, "prepared transfer", xfer, timeout, &params)) == NULL)) {
        free(local);
        free(remote);
        return NULL;
    }
    if ((kvpy_op_statuses(op, n_remote, &params) != 0) || (kvpy_op_notify(op, notify, &params) != 0)) {
        kvpy_op_free(op);
        request = NULL;
    } else {
        params.stream = (void *)(uintptr_t)stream;
        KVPY_POST(op, status, kvcl_xfer_post(xfer->handle, local, n_local, remote, n_remote, &params, &op->req));
        request = kvpy_op_posted(op, status);
    }
    free(local);
    free(remote);
    return request;
}

/* _stream_done(request, stream, timeout): of a Comm, which is the context's */
PyObject *kvpy_comm_stream_done(PyObject *self, PyObject *args)
{
    PyObject           *request, *timeout;
    kvpy_obj_t         *comm = (kvpy_obj_t *)self;
    kvcl_xfer_params_t params;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    unsigned long long stream;

    if (!PyArg_ParseTuple(args, "OKO:_stream_done", &request, &stream, &timeout) ||
        ((op = kvpy_op_new(request, "stream_done", comm, timeout, &params)) == NULL)) {
        return NULL;
    }
    KVPY_POST(op, status, kvcl_stream_done(op->ctx->handle, (void *)(uintptr_t)stream, &params, &op->req));
    return kvpy_op_posted(op, status);
}

PyTypeObject *kvpy_make_xfer(void)
{
    static PyMethodDef methods[] = {
        {"_prepare", xfer_prepare, METH_VARARGS | METH_CLASS,
         "_prepare(comm, put, rank, cache, local, remote, remote_cache, timeout, background, signal)"},
        {"_post", xfer_post, METH_VARARGS, "_post(request, local, remote, timeout, stream, notify)"},
        {"close", kvpy_obj_close_py, METH_NOARGS, "Free it. Busy while a transfer that it has posted is in flight."},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getset[] = {
        {"closed", kvpy_obj_closed_py, NULL, "Whether it was closed.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};

    return kvpy_obj_type("kvcl._kvcl.Transfer", "A prepared get or put.", methods, getset);
}
