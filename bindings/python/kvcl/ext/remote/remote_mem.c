/*
 * A peer's memory, as Python sees it: gets and puts of one piece or of many.
 */
#include "kvcl/ext/ext.h"

#include <stddef.h>
#include <string.h>


/* _import(comm, rank, description) */
static PyObject *rmem_import(PyObject *cls, PyObject *args)
{
    PyObject      *arg, *rank_arg, *data;
    kvcl_rmem_h   rmem = NULL;
    kvpy_obj_t    *comm, *obj;
    kvcl_status_t status;
    kvpy_buf_t    buf;
    int           rank;

    if (!PyArg_ParseTuple(args, "OOO:_import", &arg, &rank_arg, &data) || (kvpy_int(rank_arg, "rank", &rank) != 0) ||
        (kvpy_buf_take(data, 0, &buf) != 0)) {
        return NULL;
    }
    comm = kvpy_obj_arg(arg, kvpy_comm_type, NULL);
    if (comm == NULL) {
        kvpy_buf_drop(&buf);
        return NULL;
    }
    KVPY_CALL(comm, status, kvcl_rmem_import(comm->handle, rank, buf.ptr, buf.len, &rmem));
    if (status != KVCL_OK) {
        (void)kvpy_raise(status, NULL);
        kvpy_buf_drop(&buf);
        return NULL;
    }
    kvpy_buf_drop(&buf);
    obj = (kvpy_obj_t *)kvpy_obj_new((PyTypeObject *)cls, KVPY_RMEM, comm->ctx, rmem);
    if ((obj != NULL) && (kvpy_obj_keep(obj, comm) != 0)) {
        Py_CLEAR(obj);
    }
    return (PyObject *)obj;
}

static PyObject *rmem_len(PyObject *self, void *closure)
{
    kvpy_obj_t *rmem = (kvpy_obj_t *)self;

    (void)closure;
    return (kvpy_obj_check(rmem) == 0) ? PyLong_FromSize_t(kvcl_rmem_len(rmem->handle)) : NULL;
}

int kvpy_signal(PyObject *signal, kvpy_ctx_t *ctx, kvcl_xfer_params_t *params, kvpy_obj_t **counter_p)
{
    PyObject   *memory, *at_arg, *add_arg;
    kvpy_obj_t *counter;

    *counter_p = NULL;
    if (signal == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(signal)) {
        PyErr_SetString(PyExc_TypeError, "signal: (RemoteMem, offset, n) is needed");
        return -1;
    }
    if (!PyArg_ParseTuple(signal, "OOO:signal", &memory, &at_arg, &add_arg) ||
        ((counter = kvpy_obj_arg(memory, kvpy_rmem_type, ctx)) == NULL) ||
        (kvpy_u64(at_arg, "signal offset", UINT64_MAX, &params->signal_offset) != 0) ||
        (kvpy_u64(add_arg, "signal value", UINT64_MAX, &params->signal_add) != 0)) {
        return -1;
    }
    params->signal_mem = counter->handle;
    *counter_p         = counter;
    return 0;
}

int kvpy_op_signal(kvpy_op_t *op, PyObject *signal, kvcl_xfer_params_t *params)
{
    kvpy_obj_t *counter;

    if (kvpy_signal(signal, op->ctx, params, &counter) != 0) {
        return -1;
    }
    if (counter != NULL) {
        kvpy_op_keep(op, counter);
    }
    return 0;
}

/* _move(request, put, offset, buffer, signal or None, timeout, notify or None, background) */
static PyObject *rmem_move(PyObject *self, PyObject *args)
{
    PyObject           *request, *off_arg, *buffer, *signal, *timeout, *notify;
    kvpy_obj_t         *rmem = (kvpy_obj_t *)self;
    kvcl_xfer_params_t params;
    uint64_t           offset;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    int                put, background = 0;

    if (!PyArg_ParseTuple(args, "OpOOOOO|p:_move", &request, &put, &off_arg, &buffer, &signal, &timeout, &notify,
                          &background) ||
        (kvpy_u64(off_arg, "offset", UINT64_MAX, &offset) != 0) ||
        ((op = kvpy_op_new(request, put ? "put" : "get", rmem, timeout, &params)) == NULL)) {
        return NULL;
    }
    params.flags = background ? KVCL_BACKGROUND : 0;
    if ((kvpy_op_signal(op, signal, &params) != 0) || (kvpy_op_notify(op, notify, &params) != 0) ||
        (kvpy_buf_take(buffer, put ? 0 : KVPY_WRITE, &op->bufs[0]) != 0)) {
        kvpy_op_free(op);
        return NULL;
    }
    KVPY_POST(op, status,
              put ? kvcl_put_bytes(rmem->handle, offset, op->bufs[0].ptr, op->bufs[0].len, &params, &op->req)
                  : kvcl_get_bytes(rmem->handle, offset, op->bufs[0].ptr, op->bufs[0].len, &params, &op->req));
    return kvpy_op_posted(op, status);
}

/* Packed pieces (offset there, offset here, length; 8 bytes each) with addresses in the local bytes. */
static kvcl_vec_t *take_pieces(PyObject *packed, char *base, size_t room, size_t *n_p)
{
    kvcl_vec_t *vec;
    kvpy_buf_t buf;
    uint64_t   at;
    size_t     i;

    _Static_assert((sizeof(kvcl_vec_t) == 24) && (offsetof(kvcl_vec_t, len) == 16), "three 64-bit numbers");
    if (kvpy_buf_take(packed, 0, &buf) != 0) {
        return NULL;
    }
    *n_p = buf.len / sizeof(*vec);
    vec  = malloc(buf.len + 1);
    if (vec == NULL) {
        PyErr_NoMemory();
    } else if (buf.len > 0) {
        memcpy(vec, buf.ptr, *n_p * sizeof(*vec));
    }
    kvpy_buf_drop(&buf);
    for (i = 0; (vec != NULL) && (i < *n_p); ++i) {
        at = (uintptr_t)vec[i].addr;
        if ((at > room) || (vec[i].len > room - at)) {
            PyErr_Format(PyExc_ValueError, "piece %zu: bytes %llu + %zu of %zu here", i, (unsigned long long)at,
                         vec[i].len, room);
            free(vec);
            return NULL;
        }
        vec[i].addr = base + at;
    }
    return vec;
}

/* _move_vec(request, put, packed pieces, Mem or buffer, signal or None, timeout, notify or None, background) */
static PyObject *rmem_move_vec(PyObject *self, PyObject *args)
{
    PyObject           *request, *packed, *local, *signal, *timeout, *notify;
    kvpy_obj_t         *rmem = (kvpy_obj_t *)self, *mem = NULL;
    kvcl_mem_h         handle = NULL;
    kvcl_vec_t         *vec;
    kvcl_xfer_params_t params;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    size_t             n;
    int                put, background = 0;

    if (!PyArg_ParseTuple(args, "OpOOOOO|p:_move_vec", &request, &put, &packed, &local, &signal, &timeout, &notify,
                          &background) ||
        ((op = kvpy_op_new(request, put ? "put_vec" : "get_vec", rmem, timeout, &params)) == NULL)) {
        return NULL;
    }
    params.flags = background ? KVCL_BACKGROUND : 0;
    if (PyObject_TypeCheck(local, kvpy_mem_type)) {
        mem = kvpy_obj_arg(local, kvpy_mem_type, rmem->ctx);
        if (mem != NULL) {
            handle           = mem->handle;
            op->bufs[0].ptr  = kvcl_mem_addr(handle);
            op->bufs[0].len  = kvcl_mem_len(handle);
        }
    }
    if (((mem == NULL) && (PyErr_Occurred() ||
                           (kvpy_buf_take(local, put ? 0 : KVPY_WRITE, &op->bufs[0]) != 0))) ||
        (kvpy_op_signal(op, signal, &params) != 0) || (kvpy_op_notify(op, notify, &params) != 0) ||
        ((vec = take_pieces(packed, op->bufs[0].ptr, op->bufs[0].len, &n)) == NULL)) {
        kvpy_op_free(op);
        return NULL;
    }
    if (mem != NULL) {
        kvpy_op_keep(op, mem);
    }
    KVPY_POST(op, status, put ? kvcl_put_vec(rmem->handle, vec, n, handle, &params, &op->req)
                              : kvcl_get_vec(rmem->handle, vec, n, handle, &params, &op->req));
    free(vec);
    return kvpy_op_posted(op, status);
}

PyTypeObject *kvpy_make_rmem(void)
{
    static PyMethodDef methods[] = {
        {"_import", rmem_import, METH_VARARGS | METH_CLASS, "_import(comm, rank, description)"},
        {"_move", rmem_move, METH_VARARGS, "_move(request, put, offset, buffer, signal, timeout, notify, background)"},
        {"_move_vec", rmem_move_vec, METH_VARARGS,
         "_move_vec(request, put, pieces, local, signal, timeout, notify, background)"},
        {"close", kvpy_obj_close_py, METH_NOARGS, "Forget it. Busy while an operation uses it."},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getset[] = {
        {"nbytes", rmem_len, NULL, "Its length.", NULL},
        {"closed", kvpy_obj_closed_py, NULL, "Whether it was closed.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};

    return kvpy_obj_type("kvcl._kvcl.RemoteMem", "A peer's memory, imported.", methods, getset);
}
