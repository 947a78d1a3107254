/*
 * Comm's operations: send and recv, get and put of blocks, and broadcasts of blocks. Each fills a fresh Request.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

/* The cache and the selection of an operation; frees op on failure. */
static int blocks_of(kvpy_op_t *op, PyObject *cache_arg, PyObject *tuple, kvcl_sel_t *sel, kvpy_obj_t **cache_p)
{
    PyObject *blocks, *layers, *heads, *tokens;

    if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "OOOO:selection", &blocks, &layers, &heads, &tokens) ||
        (kvpy_sel(blocks, layers, heads, tokens, sel) != 0)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a selection is needed");
        }
        kvpy_op_free(op);
        return -1;
    }
    if (cache_p != NULL) {
        *cache_p = kvpy_obj_arg(cache_arg, kvpy_cache_type, op->ctx);
        if (*cache_p == NULL) {
            kvpy_sel_free(sel);
            kvpy_op_free(op);
            return -1;
        }
        kvpy_op_keep(op, *cache_p);
    }
    return 0;
}

/* _pass(request, recv, rank, tag, cache, selection, layerwise, timeout, stream): send or recv of blocks */
static PyObject *comm_pass(PyObject *self, PyObject *args)
{
    PyObject           *request, *rank_arg, *tag_arg, *cache_arg, *sel_arg, *timeout;
    kvpy_obj_t         *comm = (kvpy_obj_t *)self, *cache;
    kvcl_xfer_params_t params;
    kvcl_sel_t         sel;
    uint64_t           tag;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    unsigned long long stream;
    int                recv, rank, layerwise;

    if (!PyArg_ParseTuple(args, "OpOOOOpOK:_pass", &request, &recv, &rank_arg, &tag_arg, &cache_arg, &sel_arg,
                          &layerwise, &timeout, &stream) ||
        (kvpy_int(rank_arg, "rank", &rank) != 0) || (kvpy_u64(tag_arg, "tag", UINT64_MAX, &tag) != 0) ||
        ((op = kvpy_op_new(request, recv ? "recv" : "send", comm, timeout, &params)) == NULL) ||
        (blocks_of(op, cache_arg, sel_arg, &sel, &cache) != 0)) {
        return NULL;
    }
    if (recv) {
        op->has_info = true;
        op->info.size = sizeof(op->info);
        params.info  = &op->info;
    }
    op->layerwise = (layerwise != 0);
    params.flags  = layerwise ? KVCL_LAYERWISE : 0;
    params.stream = (void *)(uintptr_t)stream;
    KVPY_POST(op, status,
              recv ? kvcl_recv(comm->handle, rank, tag, cache->handle, &sel, &params, &op->req)
                   : kvcl_send(comm->handle, rank, tag, cache->handle, &sel, &params, &op->req));
    kvpy_sel_free(&sel);
    return kvpy_op_posted(op, status);
}

/* _pass_bytes(request, recv, rank, tag, buffer, timeout) */
static PyObject *comm_pass_bytes(PyObject *self, PyObject *args)
{
    PyObject           *request, *rank_arg, *tag_arg, *buffer, *timeout;
    kvpy_obj_t         *comm = (kvpy_obj_t *)self;
    kvcl_xfer_params_t params;
    uint64_t           tag;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    int                recv, rank;

    if (!PyArg_ParseTuple(args, "OpOOOO:_pass_bytes", &request, &recv, &rank_arg, &tag_arg, &buffer, &timeout) ||
        (kvpy_int(rank_arg, "rank", &rank) != 0) || (kvpy_u64(tag_arg, "tag", UINT64_MAX, &tag) != 0) ||
        ((op = kvpy_op_new(request, recv ? "recv_bytes" : "send_bytes", comm, timeout, &params)) == NULL)) {
        return NULL;
    }
    if (kvpy_buf_take(buffer, recv ? KVPY_WRITE : 0, &op->bufs[0]) != 0) {
        kvpy_op_free(op);
        return NULL;
    }
    if (recv) {
        op->has_info = true;
        op->info.size = sizeof(op->info);
        params.info  = &op->info;
    }
    KVPY_POST(op, status,
              recv ? kvcl_recv_bytes(comm->handle, rank, tag, op->bufs[0].ptr, op->bufs[0].len, &params, &op->req)
                   : kvcl_send_bytes(comm->handle, rank, tag, op->bufs[0].ptr, op->bufs[0].len, &params, &op->req));
    return kvpy_op_posted(op, status);
}

/* _copy(request, put, rank, cache, local, remote, remote cache's name or None, timeout, stream, notify, background,
 * signal or None): blocks */
static PyObject *comm_copy(PyObject *self, PyObject *args)
{
    PyObject           *request, *rank_arg, *cache_arg, *local_arg, *remote_arg, *timeout, *notify, *signal;
    kvpy_obj_t         *comm = (kvpy_obj_t *)self, *cache;
    kvcl_xfer_params_t params;
    kvcl_sel_t         local, remote;
    const char         *name;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    unsigned long long stream;
    int                put, rank, background;

    if (!PyArg_ParseTuple(args, "OpOOOOzOKOpO:_copy", &request, &put, &rank_arg, &cache_arg, &local_arg, &remote_arg,
                          &name, &timeout, &stream, &notify, &background, &signal) ||
        (kvpy_int(rank_arg, "rank", &rank) != 0) ||
        ((op = kvpy_op_new(request, put ? "put" : "get", comm, timeout, &params)) == NULL) ||
        (blocks_of(op, cache_arg, local_arg, &local, &cache) != 0)) {
        return NULL;
    }
    if (blocks_of(op, NULL, remote_arg, &remote, NULL) != 0) {
        kvpy_sel_free(&local);
        return NULL;
    }
    status = ((kvpy_op_statuses(op, remote.n_blocks, &params) == 0) && (kvpy_op_notify(op, notify, &params) == 0) &&
              (kvpy_op_signal(op, signal, &params) == 0)) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
    if (status == KVCL_OK) {
        params.remote_cache = name;
        params.flags        = background ? KVCL_BACKGROUND : 0;
        params.stream       = (void *)(uintptr_t)stream;
        KVPY_POST(op, status,
                  put ? kvcl_put(comm->handle, rank, cache->handle, &local, &remote, &params, &op->req)
                      : kvcl_get(comm->handle, rank, cache->handle, &remote, &local, &params, &op->req));
        request = kvpy_op_posted(op, status);
    } else {
        kvpy_op_free(op);
        request = NULL;
    }
    kvpy_sel_free(&local);
    kvpy_sel_free(&remote);
    return request;
}

/* _bcast(request, root, cache, selection, timeout) */
static PyObject *comm_bcast(PyObject *self, PyObject *args)
{
    PyObject           *request, *rank_arg, *cache_arg, *sel_arg, *timeout;
    kvpy_obj_t         *comm = (kvpy_obj_t *)self, *cache;
    kvcl_xfer_params_t params;
    kvcl_sel_t         sel;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    int                root;

    if (!PyArg_ParseTuple(args, "OOOOO:_bcast", &request, &rank_arg, &cache_arg, &sel_arg, &timeout) ||
        (kvpy_int(rank_arg, "root", &root) != 0) ||
        ((op = kvpy_op_new(request, "bcast", comm, timeout, &params)) == NULL) ||
        (blocks_of(op, cache_arg, sel_arg, &sel, &cache) != 0)) {
        return NULL;
    }
    KVPY_POST(op, status, kvcl_bcast(comm->handle, root, cache->handle, &sel, &params, &op->req));
    kvpy_sel_free(&sel);
    return kvpy_op_posted(op, status);
}

PyMethodDef kvpy_xfer_methods[] = {
    {"_pass", comm_pass, METH_VARARGS, "_pass(request, recv, rank, tag, cache, selection, layerwise, timeout, stream)"},
    {"_pass_bytes", comm_pass_bytes, METH_VARARGS, "_pass_bytes(request, recv, rank, tag, buffer, timeout)"},
    {"_copy", comm_copy, METH_VARARGS,
     "_copy(request, put, rank, cache, local, remote, remote_cache, timeout, stream, notify, background, signal)"},
    {"_bcast", comm_bcast, METH_VARARGS, "_bcast(request, root, cache, selection, timeout)"},
    {"_exchange", kvpy_comm_exchange, METH_VARARGS, "_exchange(request, in, in_lens, out, out_lens, timeout)"},
    {"_exchange_parts", kvpy_comm_exchange_parts, METH_VARARGS, "_exchange_parts(request, given, taken, timeout)"},
    {"_collective", kvpy_comm_collective, METH_VARARGS,
     "_collective(request, kind, root, in, out, dtype, reduce, timeout)"},
    {NULL, NULL, 0, NULL}};
