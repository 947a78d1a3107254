/*
 * Values of a store: bytes of any length from and to Python's buffers. The memory of a get is held until its request
 * has completed. The memory of a put may change when the call returns, so it is released then.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

typedef struct values {
    kvcl_key_t    *keys;
    kvcl_value_t  *values;
    kvcl_extent_t *extents;
    size_t        n;
} values_t;

static void values_free(values_t *v)
{
    free(v->keys);
    free(v->values);
    free(v->extents);
}

/* The number of buffers in a tuple of tuples; -1 with an exception set. */
static Py_ssize_t count(PyObject *arg, size_t n_keys)
{
    Py_ssize_t n = PyTuple_Check(arg) ? PyTuple_Size(arg) : -1, sum = 0, i;

    if (n != (Py_ssize_t)n_keys) {
        PyErr_Format(PyExc_ValueError, "%zu keys and %zd values: they must be as many", n_keys, n);
        return -1;
    }
    for (i = 0; i < n; ++i) {
        PyObject *extents = PyTuple_GetItem(arg, i);
        if (!PyTuple_Check(extents)) {
            PyErr_SetString(PyExc_TypeError, "a value is a buffer, or several");
            return -1;
        }
        sum += PyTuple_Size(extents);
    }
    return sum;
}

/* Read keys and a tuple of tuples of buffers. References that op takes are released with it. */
static int values_args(kvpy_op_t *op, PyObject *keys, PyObject *arg, bool write, values_t *v)
{
    Py_ssize_t sum, i, j;
    size_t     at = 0;

    if ((kvpy_keys(keys, &v->keys, &v->n) != 0) || ((sum = count(arg, v->n)) < 0)) {
        return -1;
    }
    v->values  = calloc(v->n + 1, sizeof(*v->values));
    v->extents = calloc((size_t)sum + 1, sizeof(*v->extents));
    op->values = calloc((size_t)sum + 1, sizeof(*op->values));
    if ((v->values == NULL) || (v->extents == NULL) || (op->values == NULL)) {
        PyErr_NoMemory();
        return -1;
    }
    for (i = 0; i < (Py_ssize_t)v->n; ++i) {
        PyObject *extents = PyTuple_GetItem(arg, i);
        v->values[i] = (kvcl_value_t){&v->extents[at], (size_t)PyTuple_Size(extents)};
        for (j = 0; j < PyTuple_Size(extents); ++j, ++at) {
            if (kvpy_buf_take(PyTuple_GetItem(extents, j), write ? KVPY_WRITE : 0, &op->values[at]) != 0) {
                return -1;
            }
            op->n_values   = at + 1;
            v->extents[at] = (kvcl_extent_t){op->values[at].ptr, op->values[at].len};
        }
    }
    return 0;
}

enum { GET, PUT, UPSERT };

static kvcl_status_t post(int what, kvcl_store_h store, const values_t *v, const kvcl_xfer_params_t *params,
                          kvpy_op_t *op)
{
    switch (what) {
    case GET:
        return kvcl_store_get_values(store, v->keys, v->n, v->values, op->blocks, params, &op->req);
    case PUT:
        return kvcl_store_put_values(store, v->keys, v->n, v->values, params, &op->req);
    default:
        return kvcl_store_upsert_values(store, v->keys, v->n, v->values, params, &op->req);
    }
}

static PyObject *move(PyObject *self, PyObject *args, int what, const char *name)
{
    kvpy_obj_t         *store = (kvpy_obj_t *)self;
    PyObject           *request, *keys, *arg, *replicas = NULL, *tenant = NULL, *timeout;
    values_t           v = {0};
    kvcl_xfer_params_t params;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    int                wait = 0;

    if (!((what == GET) ? PyArg_ParseTuple(args, "OOOO", &request, &keys, &arg, &timeout)
                        : PyArg_ParseTuple(args, "OOOOOpO", &request, &keys, &arg, &replicas, &tenant, &wait,
                                           &timeout)) ||
        ((op = kvpy_op_new(request, name, store, timeout, &params)) == NULL)) {
        return NULL;
    }
    if ((values_args(op, keys, arg, what == GET, &v) != 0) ||
        ((what == GET) ? kvpy_op_statuses(op, v.n, &params)
                       : kvpy_op_put(op, v.n, replicas, tenant, wait, &params)) != 0) {
        kvpy_op_free(op);
        request = NULL;
    } else {
        params.status = NULL; /* a get has statuses of its own */
        KVPY_POST(op, status, post(what, store->handle, &v, &params, op));
        if (what != GET) {
            kvpy_op_drop_values(op);
        }
        request = kvpy_op_posted(op, status);
    }
    values_free(&v);
    return request;
}

static PyObject *store_get_values(PyObject *self, PyObject *args)
{
    return move(self, args, GET, "store get_values");
}

static PyObject *store_put_values(PyObject *self, PyObject *args)
{
    return move(self, args, PUT, "store put_values");
}

static PyObject *store_upsert_values(PyObject *self, PyObject *args)
{
    return move(self, args, UPSERT, "store upsert_values");
}

PyMethodDef kvpy_store_value_methods[] = {
    {"_get_values", store_get_values, METH_VARARGS, "_get_values(request, keys, values, timeout)"},
    {"_put_values", store_put_values, METH_VARARGS,
     "_put_values(request, keys, values, replicas, tenant, wait, timeout)"},
    {"_upsert_values", store_upsert_values, METH_VARARGS,
     "_upsert_values(request, keys, values, replicas, tenant, wait, timeout)"},
    {NULL, NULL, 0, NULL}};
