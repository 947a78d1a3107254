/*
 * Gets of parts of a store's blocks.
 */
#include "kvcl/ext/ext.h"

/* The selection (blocks, layers, heads, tokens) of a tuple; free it with kvpy_sel_free. */
static int selection(PyObject *tuple, kvcl_sel_t *sel)
{
    PyObject *blocks, *layers, *heads, *tokens;

    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a selection is needed");
        return -1;
    }
    return PyArg_ParseTuple(tuple, "OOOO:selection", &blocks, &layers, &heads, &tokens)
               ? kvpy_sel(blocks, layers, heads, tokens, sel) : -1;
}

/* _get_part(request, keys, stored or None, part, cache, local, layerwise, timeout) */
static PyObject *store_get_part(PyObject *self, PyObject *args)
{
    kvpy_obj_t         *store = (kvpy_obj_t *)self, *cache;
    PyObject           *request, *keys_arg, *stored_arg, *part_arg, *cache_arg, *local_arg, *timeout;
    kvcl_sel_t         part = {0}, local = {0};
    kvcl_layout_t      stored;
    kvcl_xfer_params_t params;
    kvcl_key_t         *keys = NULL;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    size_t             n;
    int                layerwise;

    if (!PyArg_ParseTuple(args, "OOOOOOpO:_get_part", &request, &keys_arg, &stored_arg, &part_arg, &cache_arg,
                          &local_arg, &layerwise, &timeout) ||
        ((op = kvpy_op_new(request, "store get_part", store, timeout, &params)) == NULL)) {
        return NULL;
    }
    params.flags = layerwise ? KVCL_LAYERWISE : 0;
    if (((stored_arg != Py_None) && (kvpy_layout(stored_arg, &stored) != 0)) || (selection(part_arg, &part) != 0) ||
        (selection(local_arg, &local) != 0) || (kvpy_keys(keys_arg, &keys, &n) != 0) ||
        ((cache = kvpy_obj_arg(cache_arg, kvpy_cache_type, op->ctx)) == NULL) ||
        (kvpy_op_statuses(op, n, &params) != 0)) {
        kvpy_op_free(op);
        request = NULL;
    } else {
        kvpy_op_keep(op, cache);
        KVPY_POST(op, status,
                  kvcl_store_get_part(store->handle, keys, n, (stored_arg != Py_None) ? &stored : NULL, &part,
                                      cache->handle, &local, NULL, &params, &op->req));
        request = kvpy_op_posted(op, status);
    }
    free(keys);
    kvpy_sel_free(&part);
    kvpy_sel_free(&local);
    return request;
}

PyMethodDef kvpy_store_part_methods[] = {
    {"_get_part", store_get_part, METH_VARARGS,
     "_get_part(request, keys, stored, part, cache, local, layerwise, timeout)"},
    {NULL, NULL, 0, NULL}};
