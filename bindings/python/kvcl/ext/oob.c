/*
 * The caller's key-value store (a dict, torch.distributed's Store) as kvcl_oob_t: three Python functions. The library
 * calls them during kvcl_init and on the first message to a peer, on any thread. This is the only place where the
 * library calls into Python. Every library call on such a context is made without the GIL, so no call waits for
 * another.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

/* Keep the first exception for kvcl_init's caller; print later ones. */
static kvcl_status_t failed(kvpy_ctx_t *ctx, PyObject *fn)
{
    kvcl_status_t status = PyErr_ExceptionMatches(PyExc_TimeoutError) ? KVCL_ERR_TIMED_OUT : KVCL_ERR_UNREACHABLE;
    PyObject      *type, *value, *tb;

    if ((ctx->handle != NULL) || (ctx->oob_error != NULL)) {
        PyErr_WriteUnraisable(fn);
        return status;
    }
    PyErr_Fetch(&type, &value, &tb);
    PyErr_NormalizeException(&type, &value, &tb);
    if ((value != NULL) && (tb != NULL)) {
        (void)PyException_SetTraceback(value, tb);
    }
    ctx->oob_error = value;
    Py_XDECREF(type);
    Py_XDECREF(tb);
    return status;
}

static kvcl_status_t oob_set(void *arg, const char *key, const void *val, size_t len)
{
    PyGILState_STATE gil    = PyGILState_Ensure();
    kvpy_ctx_t       *ctx   = arg;
    PyObject         *ret   = PyObject_CallFunction(ctx->oob_set, "sy#", key, (const char *)val, (Py_ssize_t)len);
    kvcl_status_t    status = (ret != NULL) ? KVCL_OK : failed(ctx, ctx->oob_set);

    Py_XDECREF(ret);
    PyGILState_Release(gil);
    return status;
}

static kvcl_status_t oob_get(void *arg, const char *key, void *buf, size_t cap, size_t *len_p)
{
    PyGILState_STATE gil    = PyGILState_Ensure();
    kvpy_ctx_t       *ctx   = arg;
    PyObject         *ret   = PyObject_CallFunction(ctx->oob_get, "s", key);
    kvcl_status_t    status = KVCL_OK;
    kvpy_buf_t       value;

    if ((ret == NULL) || (kvpy_buf_take(ret, 0, &value) != 0)) {
        status = failed(ctx, ctx->oob_get);
    } else {
        *len_p = value.len;
        if (value.len > cap) {
            status = KVCL_ERR_TRUNCATED;
        } else if (value.len > 0) {
            memcpy(buf, value.ptr, value.len);
        }
        kvpy_buf_drop(&value);
    }
    Py_XDECREF(ret);
    PyGILState_Release(gil);
    return status;
}

static kvcl_status_t oob_fence(void *arg)
{
    PyGILState_STATE gil    = PyGILState_Ensure();
    kvpy_ctx_t       *ctx   = arg;
    PyObject         *ret   = PyObject_CallObject(ctx->oob_fence, NULL);
    kvcl_status_t    status = (ret != NULL) ? KVCL_OK : failed(ctx, ctx->oob_fence);

    Py_XDECREF(ret);
    PyGILState_Release(gil);
    return status;
}

int kvpy_oob_set(kvpy_ctx_t *ctx, PyObject *oob, int rank, int size)
{
    PyObject *set, *get, *fence;

    if (!PyTuple_Check(oob)) {
        PyErr_SetString(PyExc_TypeError, "oob: a tuple of three functions is needed");
        return -1;
    }
    if (!PyArg_ParseTuple(oob, "OOO:oob", &set, &get, &fence)) {
        return -1;
    }
    if (!PyCallable_Check(set) || !PyCallable_Check(get) || !PyCallable_Check(fence)) {
        PyErr_SetString(PyExc_TypeError, "set, get and fence must be functions");
        return -1;
    }
    Py_INCREF(set);
    Py_INCREF(get);
    Py_INCREF(fence);
    ctx->oob_set   = set;
    ctx->oob_get   = get;
    ctx->oob_fence = fence;
    ctx->oob       = (kvcl_oob_t){.size = sizeof(ctx->oob), .rank = rank, .nranks = size, .set = oob_set,
                                  .get = oob_get, .fence = oob_fence, .arg = ctx};
    return 0;
}

void kvpy_oob_clear(kvpy_ctx_t *ctx)
{
    Py_CLEAR(ctx->oob_set);
    Py_CLEAR(ctx->oob_get);
    Py_CLEAR(ctx->oob_fence);
    Py_CLEAR(ctx->oob_error);
}
