/*
 * Cache: a layout committed over the user's buffers or the library's memory.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

PyTypeObject *kvpy_cache_type;

/* Hold n writable buffers of at least need bytes each, all of one kind. */
static int take_bases(PyObject *list, size_t n, size_t need, kvpy_buf_t *bufs, void **bases,
                      size_t *lengths)
{
    size_t i;

    if ((size_t)PyTuple_Size(list) != n) {
        PyErr_Format(PyExc_ValueError, "the layout has %zu base%s, %zd buffer%s given", n, (n > 1) ? "s" : "",
                     PyTuple_Size(list), (PyTuple_Size(list) == 1) ? " is" : "s are");
        return -1;
    }
    for (i = 0; i < n; ++i) {
        if (kvpy_buf_take(PyTuple_GetItem(list, (Py_ssize_t)i), KVPY_WRITE | KVPY_SPAN | KVPY_CUDA, &bufs[i]) != 0) {
            return -1;
        }
        if (bufs[i].len < need) {
            PyErr_Format(PyExc_ValueError, "buffer %zu has %zu bytes, the layout covers %zu", i, bufs[i].len, need);
            return -1;
        }
        if (bufs[i].kind != bufs[0].kind) {
            PyErr_SetString(PyExc_ValueError, "the buffers are of several kinds: all host memory or all a device's");
            return -1;
        }
        bases[i]   = bufs[i].ptr;
        lengths[i] = bufs[i].len;
    }
    return 0;
}

static void drop_bases(kvpy_buf_t *bufs, size_t n, void **bases, size_t *lengths)
{
    size_t i;

    for (i = 0; (bufs != NULL) && (i < n); ++i) {
        kvpy_buf_drop(&bufs[i]);
    }
    free(bufs);
    free(bases);
    free(lengths);
}

static PyObject *make(PyTypeObject *cls, kvpy_ctx_t *ctx, const char *name, const kvcl_layout_t *layout,
                      PyObject *buffers, bool writable)
{
    kvpy_buf_t    *bufs  = NULL;
    void          **bases = NULL;
    kvcl_cache_h  cache  = NULL;
    size_t         *lengths = NULL, n, need;
    kvcl_cache_params_t params = KVCL_CACHE_PARAMS_INIT;
    kvcl_status_t status;
    kvpy_obj_t    *obj;

    params.flags = writable ? KVCL_CACHE_WRITABLE : 0;
    status = kvcl_layout_extent(layout, &n, &need);
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    if (buffers != Py_None) {
        bufs  = calloc(n, sizeof(*bufs));
        bases = calloc(n, sizeof(*bases));
        lengths = calloc(n, sizeof(*lengths));
        if ((bufs == NULL) || (bases == NULL) || (lengths == NULL) ||
            (take_bases(buffers, n, need, bufs, bases, lengths) != 0) || (kvpy_ctx_check(ctx) != 0)) {
            drop_bases(bufs, n, bases, lengths);
            return PyErr_Occurred() ? NULL : PyErr_NoMemory();
        }
        params.kind       = bufs[0].kind;
        params.n_bases    = (uint32_t)n;
        params.bases      = bases;
        params.base_bytes = lengths;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_cache_create(ctx->handle, name, layout, &params, &cache));
    if (status != KVCL_OK) {
        (void)kvpy_raise(status, NULL);
        drop_bases(bufs, n, bases, lengths);
        return NULL;
    }
    free(bases);
    free(lengths);
    obj = (kvpy_obj_t *)kvpy_obj_new(cls, KVPY_CACHE, ctx, cache);
    if (obj == NULL) {
        drop_bases(bufs, n, NULL, NULL);
        return NULL;
    }
    obj->bufs   = bufs;
    obj->n_bufs = (bufs != NULL) ? n : 0;
    (void)PyOS_snprintf(obj->name, sizeof(obj->name), "%.63s", name);
    return (PyObject *)obj;
}

static PyObject *cache_create(PyObject *cls, PyObject *args)
{
    PyObject      *arg, *shape, *buffers, *made;
    const char    *name;
    kvcl_layout_t layout;
    kvpy_ctx_t    *ctx;
    int           writable;

    if (!PyArg_ParseTuple(args, "O!sOOp:_create", kvpy_context_type, &arg, &name, &shape, &buffers, &writable) ||
        (kvpy_layout(shape, &layout) != 0)) {
        return NULL;
    }
    ctx = (kvpy_ctx_t *)arg;
    if ((buffers != Py_None) && !PyTuple_Check(buffers)) {
        PyErr_SetString(PyExc_TypeError, "a tuple of buffers is needed");
        return NULL;
    }
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    made = make((PyTypeObject *)cls, ctx, name, &layout, buffers, writable != 0);
    return made;
}

static PyObject *cache_view(PyObject *self, PyObject *args)
{
    kvpy_obj_t         *cache = (kvpy_obj_t *)self;
    unsigned long long len;
    unsigned int       base;
    void               *ptr;

    if (!PyArg_ParseTuple(args, "IK:_view", &base, &len) || (kvpy_obj_check(cache) != 0)) {
        return NULL;
    }
    ptr = kvcl_cache_base(cache->handle, base);
    if (ptr == NULL) {
        return kvpy_raise(KVCL_ERR_OUT_OF_RANGE, "the cache has no such base");
    }
    if (kvcl_cache_kind(cache->handle) != KVCL_MEM_HOST) {
        PyErr_SetString(PyExc_BufferError, "the cache is in a device's memory, which the host cannot view: use "
                        "read(), which copies");
        return NULL;
    }
    return kvpy_obj_view(cache, ptr, (size_t)len);
}

/* One block, into or out of a buffer of its size. */
static PyObject *move_block(kvpy_obj_t *cache, PyObject *block, PyObject *arg, bool write)
{
    kvcl_status_t status;
    kvpy_buf_t    buf;
    uint64_t      id;

    if ((kvpy_u64(block, "block", UINT32_MAX, &id) != 0) || (kvpy_buf_take(arg, write ? 0 : KVPY_WRITE, &buf) != 0)) {
        return NULL;
    }
    if (kvpy_obj_check(cache) != 0) {
        kvpy_buf_drop(&buf);
        return NULL;
    }
    KVPY_CALL(cache, status,
              write ? kvcl_cache_write_block(cache->handle, (uint32_t)id, buf.ptr, buf.len)
                    : kvcl_cache_read_block(cache->handle, (uint32_t)id, buf.ptr, buf.len));
    if (status != KVCL_OK) {
        (void)kvpy_raise(status, NULL);
    }
    kvpy_buf_drop(&buf);
    if (status != KVCL_OK) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *cache_write(PyObject *self, PyObject *args)
{
    PyObject *block, *data;

    if (!PyArg_ParseTuple(args, "OO:write", &block, &data)) {
        return NULL;
    }
    return move_block((kvpy_obj_t *)self, block, data, true);
}

static PyObject *cache_read_into(PyObject *self, PyObject *args)
{
    PyObject *block, *buf;

    if (!PyArg_ParseTuple(args, "OO:read_into", &block, &buf)) {
        return NULL;
    }
    return move_block((kvpy_obj_t *)self, block, buf, false);
}

static PyObject *cache_block_bytes(PyObject *self, void *closure)
{
    kvpy_obj_t *cache = (kvpy_obj_t *)self;

    (void)closure;
    return (kvpy_obj_check(cache) == 0) ? PyLong_FromSize_t(kvcl_cache_block_bytes(cache->handle)) : NULL;
}

static PyObject *cache_blocks(PyObject *self, void *closure)
{
    kvpy_obj_t *cache = (kvpy_obj_t *)self;

    (void)closure;
    return (kvpy_obj_check(cache) == 0) ? PyLong_FromUnsignedLongLong(kvcl_cache_blocks(cache->handle)) : NULL;
}

static PyObject *cache_on_device(PyObject *self, void *closure)
{
    kvpy_obj_t *cache = (kvpy_obj_t *)self;

    (void)closure;
    return (kvpy_obj_check(cache) == 0) ? PyBool_FromLong(kvcl_cache_kind(cache->handle) == KVCL_MEM_CUDA) : NULL;
}

static PyObject *cache_name(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_DecodeUTF8(((kvpy_obj_t *)self)->name, (Py_ssize_t)strlen(((kvpy_obj_t *)self)->name), "replace");
}

PyTypeObject *kvpy_make_cache(void)
{
    static PyMethodDef methods[] = {
        {"_create", cache_create, METH_VARARGS | METH_CLASS, "_create(context, name, layout tuple, buffers or None)"},
        {"_view", cache_view, METH_VARARGS, "_view(base, len)"},
        {"write", cache_write, METH_VARARGS,
         "write(block, data): copy a block's bytes, in canonical order, into the cache."},
        {"read_into", cache_read_into, METH_VARARGS,
         "read_into(block, buffer): copy a block's bytes, in canonical order, out of the cache."},
        {"close", kvpy_obj_close_py, METH_NOARGS,
         "Destroy it. Busy while an operation or store uses it, BufferError while memory of it is seen by something."},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getset[] = {
        {"block_bytes", cache_block_bytes, NULL, "Bytes of one block over all layers.", NULL},
        {"blocks", cache_blocks, NULL, "How many blocks it has.", NULL},
        {"name", cache_name, NULL, "The name by which peers find it.", NULL},
        {"on_device", cache_on_device, NULL, "Whether its memory is a CUDA device's.", NULL},
        {"closed", kvpy_obj_closed_py, NULL, "Whether it was closed.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};

    return kvpy_obj_type("kvcl._kvcl.Cache", "A paged KV cache.", methods, getset);
}
