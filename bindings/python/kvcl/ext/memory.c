/*
 * Mem: plain registered bytes of this rank. RemoteMem: imported bytes of a peer.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

PyTypeObject *kvpy_mem_type, *kvpy_rmem_type;

static kvpy_ctx_t *ctx_arg(PyObject *arg)
{
    if (!PyObject_TypeCheck(arg, kvpy_context_type)) {
        PyErr_SetString(PyExc_TypeError, "a Context is needed");
        return NULL;
    }
    return (kvpy_ctx_check((kvpy_ctx_t *)arg) == 0) ? (kvpy_ctx_t *)arg : NULL;
}

/* _register(context, buffer) */
static PyObject *mem_register(PyObject *cls, PyObject *args)
{
    PyObject      *arg, *buffer;
    kvcl_mem_h    mem = NULL;
    kvpy_buf_t    *buf;
    kvpy_ctx_t    *ctx;
    kvpy_obj_t    *obj;
    kvcl_status_t status;

    if (!PyArg_ParseTuple(args, "OO:_register", &arg, &buffer)) {
        return NULL;
    }
    buf = calloc(1, sizeof(*buf));
    if (buf == NULL) {
        return PyErr_NoMemory();
    }
    if ((kvpy_buf_take(buffer, KVPY_WRITE | KVPY_CUDA, buf) != 0) || ((ctx = ctx_arg(arg)) == NULL)) {
        kvpy_buf_drop(buf);
        free(buf);
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_mem_register(ctx->handle, buf->ptr, buf->len, buf->kind, NULL, &mem));
    obj = (status == KVCL_OK) ? (kvpy_obj_t *)kvpy_obj_new((PyTypeObject *)cls, KVPY_MEM, ctx, mem)
                              : kvpy_raise(status, NULL);
    if (obj == NULL) {
        kvpy_buf_drop(buf);
        free(buf);
        return NULL;
    }
    obj->bufs   = buf;
    obj->n_bufs = 1;
    return (PyObject *)obj;
}

/* _alloc(context, len, huge, numa node or None) */
static PyObject *mem_alloc(PyObject *cls, PyObject *args)
{
    kvcl_mem_params_t params = {.size = sizeof(params)};
    PyObject          *arg, *size, *numa;
    kvcl_mem_h        mem = NULL;
    kvcl_status_t     status;
    kvpy_ctx_t        *ctx;
    uint64_t          len;
    int               huge;

    if (!PyArg_ParseTuple(args, "OOpO:_alloc", &arg, &size, &huge, &numa) ||
        (kvpy_u64(size, "size", PY_SSIZE_T_MAX, &len) != 0)) {
        return NULL;
    }
    params.flags = huge ? KVCL_MEM_HUGE : 0;
    if (numa != Py_None) {
        params.flags |= KVCL_MEM_NUMA;
        if (kvpy_int(numa, "numa_node", &params.numa_node) != 0) {
            return NULL;
        }
    }
    ctx = ctx_arg(arg);
    if (ctx == NULL) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_mem_alloc(ctx->handle, (size_t)len, &params, &mem));
    return (status == KVCL_OK) ? kvpy_obj_new((PyTypeObject *)cls, KVPY_MEM, ctx, mem) : kvpy_raise(status, NULL);
}

/* _file(context, path as bytes, offset, len) */
static PyObject *mem_file(PyObject *cls, PyObject *args)
{
    PyObject      *arg, *path, *off_arg, *len_arg;
    kvcl_mem_h    mem = NULL;
    uint64_t      offset, len;
    kvcl_status_t status;
    kvpy_ctx_t    *ctx;

    if (!PyArg_ParseTuple(args, "OO&OO:_file", &arg, PyUnicode_FSConverter, &path, &off_arg, &len_arg)) {
        return NULL;
    }
    if ((kvpy_u64(off_arg, "offset", INT64_MAX, &offset) != 0) ||
        (kvpy_u64(len_arg, "length", PY_SSIZE_T_MAX, &len) != 0) || ((ctx = ctx_arg(arg)) == NULL)) {
        Py_DECREF(path);
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_mem_file(ctx->handle, PyBytes_AsString(path), offset, (size_t)len, &mem));
    Py_DECREF(path);
    return (status == KVCL_OK) ? kvpy_obj_new((PyTypeObject *)cls, KVPY_MEM, ctx, mem) : kvpy_raise(status, NULL);
}

static PyObject *mem_view(PyObject *self, PyObject *none)
{
    kvpy_obj_t *mem = (kvpy_obj_t *)self;

    (void)none;
    if ((kvpy_obj_check(mem) == 0) && (kvcl_mem_kind_of(mem->handle) != KVCL_MEM_HOST)) {
        PyErr_SetString(PyExc_BufferError, "it is a device's memory: the host cannot view it");
        return NULL;
    }
    return (kvpy_obj_check(mem) == 0) ? kvpy_obj_view(mem, kvcl_mem_addr(mem->handle), kvcl_mem_len(mem->handle))
                                      : NULL;
}

static PyObject *mem_len(PyObject *self, void *closure)
{
    kvpy_obj_t *mem = (kvpy_obj_t *)self;

    (void)closure;
    return (kvpy_obj_check(mem) == 0) ? PyLong_FromSize_t(kvcl_mem_len(mem->handle)) : NULL;
}

static PyObject *mem_export(PyObject *self, PyObject *args)
{
    kvpy_obj_t    *mem = (kvpy_obj_t *)self;
    char          buf[1024];
    size_t        len = sizeof(buf);
    kvcl_status_t status;
    unsigned      rights;

    if (!PyArg_ParseTuple(args, "I:_export", &rights) || (kvpy_obj_check(mem) != 0)) {
        return NULL;
    }
    KVPY_CALL(mem, status, kvcl_mem_export(mem->handle, rights, buf, &len));
    return (status == KVCL_OK) ? PyBytes_FromStringAndSize(buf, (Py_ssize_t)len) : kvpy_raise(status, NULL);
}

static PyObject *mem_revoke(PyObject *self, PyObject *none)
{
    kvpy_obj_t    *mem = (kvpy_obj_t *)self;
    kvcl_status_t status;

    (void)none;
    if (kvpy_obj_check(mem) != 0) {
        return NULL;
    }
    KVPY_CALL(mem, status, kvcl_mem_revoke(mem->handle));
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    Py_RETURN_NONE;
}

/* _signal_wait(offset, value, seconds in slices): the Python side loops, so that Ctrl-C works. Whether it arrived. */
static PyObject *mem_signal_wait(PyObject *self, PyObject *args)
{
    kvpy_obj_t    *mem = (kvpy_obj_t *)self;
    PyObject      *off_arg, *value_arg, *timeout;
    uint64_t      offset, value, ns;
    kvcl_status_t status;

    if (!PyArg_ParseTuple(args, "OOO:_signal_wait", &off_arg, &value_arg, &timeout) ||
        (kvpy_u64(off_arg, "offset", UINT64_MAX, &offset) != 0) ||
        (kvpy_u64(value_arg, "value", UINT64_MAX, &value) != 0) || (kvpy_timeout(timeout, &ns) != 0) ||
        (kvpy_obj_check(mem) != 0)) {
        return NULL;
    }
    KVPY_CALL(mem, status, kvcl_signal_wait(mem->handle, offset, value, ns));
    if ((status == KVCL_OK) || (status == KVCL_ERR_WAIT_TIMEOUT)) {
        return PyBool_FromLong(status == KVCL_OK);
    }
    return kvpy_raise(status, NULL);
}

PyTypeObject *kvpy_make_mem(void)
{
    static PyMethodDef methods[] = {
        {"_register", mem_register, METH_VARARGS | METH_CLASS, "_register(context, buffer)"},
        {"_alloc", mem_alloc, METH_VARARGS | METH_CLASS, "_alloc(context, size, huge, numa_node)"},
        {"_file", mem_file, METH_VARARGS | METH_CLASS, "_file(context, path, offset, length)"},
        {"view", mem_view, METH_NOARGS, "A writable memoryview of its bytes."},
        {"_export", mem_export, METH_VARARGS, "_export(rights)"},
        {"revoke", mem_revoke, METH_NOARGS, "Take all exports back."},
        {"_signal_wait", mem_signal_wait, METH_VARARGS, "_signal_wait(offset, value, timeout): whether it came."},
        {"close", kvpy_obj_close_py, METH_NOARGS, "Revoke, then unregister and free it."},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getset[] = {
        {"nbytes", mem_len, NULL, "Its length.", NULL},
        {"closed", kvpy_obj_closed_py, NULL, "Whether it was closed.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};

    return kvpy_obj_type("kvcl._kvcl.Mem", "Plain registered memory.", methods, getset);
}
