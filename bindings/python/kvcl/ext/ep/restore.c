/*
 * Restoring experts (kvcl_ep_restore.h): the moves come as an array of the C struct.
 */
#include "kvcl/ext/query/ep.h"

/* ep_weights_sum(cache, block) */
PyObject *kvpy_ep_weights_sum(PyObject *module, PyObject *args)
{
    PyObject      *cache_arg;
    kvpy_obj_t    *cache;
    kvcl_status_t status;
    uint64_t      sum = 0;
    unsigned      block;

    (void)module;
    if (!PyArg_ParseTuple(args, "OI:ep_weights_sum", &cache_arg, &block) ||
        ((cache = kvpy_obj_arg(cache_arg, kvpy_cache_type, NULL)) == NULL)) {
        return NULL;
    }
    KVPY_CALL(cache, status, kvcl_ep_weights_sum(cache->handle, block, &sum));
    return (status == KVCL_OK) ? PyLong_FromUnsignedLongLong(sum) : kvpy_raise(status, NULL);
}

/* What both calls take. */
typedef struct restore_args {
    kvpy_ep_args_t    a; /* bufs: old, moves, blocks, sums */
    kvcl_ep_weights_t w;
    kvpy_obj_t        *cache, *comm, *store;
    kvcl_key_t        *keys;
} restore_args_t;

/* (comm, cache, store or None, keys or None, sums, timeout, try) */
static int weights_of(PyObject *arg, restore_args_t *r)
{
    const uint64_t entries = kvpy_ep_layers(&r->a) * r->a.params.experts;
    PyObject       *comm, *cache, *store, *keys, *sums, *timeout, *try;
    size_t         n = 0;

    r->w = (kvcl_ep_weights_t)KVCL_EP_WEIGHTS_INIT;
    if (!PyArg_ParseTuple(arg, "OOOOOOO", &comm, &cache, &store, &keys, &sums, &timeout, &try) ||
        ((r->comm = kvpy_obj_arg(comm, kvpy_comm_type, NULL)) == NULL) ||
        ((r->cache = kvpy_obj_arg(cache, kvpy_cache_type, r->comm->ctx)) == NULL) ||
        ((store != Py_None) && ((r->store = kvpy_obj_arg(store, kvpy_store_type, r->comm->ctx)) == NULL)) ||
        (kvpy_timeout(timeout, &r->w.timeout_ns) != 0) || (kvpy_timeout(try, &r->w.try_ns) != 0) ||
        (kvpy_ep_array(sums, "sums", 0, entries, sizeof(uint64_t), &r->a.bufs[3]) != 0) ||
        ((keys != Py_None) && (kvpy_keys(keys, &r->keys, &n) != 0))) {
        return -1;
    }
    if ((keys != Py_None) && (n != entries)) {
        PyErr_Format(PyExc_ValueError, "keys: %zu, %llu are needed", n, (unsigned long long)entries);
        return -1;
    }
    r->w.comm  = r->comm->handle;
    r->w.cache = r->cache->handle;
    r->w.store = (r->store != NULL) ? r->store->handle : NULL;
    r->w.sums  = r->a.bufs[3].ptr;
    r->w.keys  = r->keys;
    return 0;
}

static void drop(restore_args_t *r)
{
    kvpy_ep_drop(&r->a);
    free(r->keys);
}

/* No object may be closed while a call uses it. */
static void hold(const restore_args_t *r, int by)
{
    kvpy_obj_t *const objects[] = {r->comm, r->cache, r->store};
    size_t            i;

    for (i = 0; i < 3; ++i) {
        if (objects[i] == NULL) {
            continue;
        }
        if (by > 0) {
            kvpy_enter(objects[i]);
        } else {
            kvpy_leave(objects[i]);
        }
    }
}

/* ep_restore(params, weights, old, moves, n, blocks) */
PyObject *kvpy_ep_restore(PyObject *module, PyObject *args)
{
    PyObject       *params, *weights, *old, *moves, *blocks, *value = NULL;
    restore_args_t r       = {.comm = NULL};
    size_t         missing = 0;
    kvcl_status_t  status;
    unsigned       n;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOIO:ep_restore", &params, &weights, &old, &moves, &n, &blocks)) {
        return NULL;
    }
    if ((kvpy_ep_params(params, &r.a) == 0) && (weights_of(weights, &r) == 0) &&
        (kvpy_ep_array(old, "old", 0, kvpy_ep_layers(&r.a) * r.a.params.slots, 4, &r.a.bufs[0]) == 0) &&
        (kvpy_ep_array(moves, "moves", 0, n, sizeof(kvcl_ep_move_t), &r.a.bufs[1]) == 0) &&
        (kvpy_ep_array(blocks, "blocks", KVPY_WRITE, n, sizeof(uint32_t), &r.a.bufs[2]) == 0)) {
        hold(&r, 1);
        Py_BEGIN_ALLOW_THREADS
        status = kvcl_ep_restore(&r.a.params, &r.w, r.a.bufs[0].ptr, r.a.bufs[1].ptr, sizeof(kvcl_ep_move_t), n,
                                 r.a.bufs[2].ptr, &missing);
        Py_END_ALLOW_THREADS
        hold(&r, -1);
        value = ((status == KVCL_OK) || (status == KVCL_ERR_NOT_FOUND)) ? PyLong_FromSize_t(missing)
                                                                        : kvpy_raise(status, NULL);
    }
    drop(&r);
    return value;
}

/* ep_settle(params, weights, moves, n, blocks) */
PyObject *kvpy_ep_settle(PyObject *module, PyObject *args)
{
    PyObject       *params, *weights, *moves, *blocks, *value = NULL;
    restore_args_t r = {.comm = NULL};
    kvcl_status_t  status;
    unsigned       n;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOOIO:ep_settle", &params, &weights, &moves, &n, &blocks)) {
        return NULL;
    }
    if ((kvpy_ep_params(params, &r.a) == 0) && (weights_of(weights, &r) == 0) &&
        (kvpy_ep_array(moves, "moves", 0, n, sizeof(kvcl_ep_move_t), &r.a.bufs[1]) == 0) &&
        (kvpy_ep_array(blocks, "blocks", 0, n, sizeof(uint32_t), &r.a.bufs[2]) == 0)) {
        hold(&r, 1);
        Py_BEGIN_ALLOW_THREADS
        status = kvcl_ep_settle(&r.a.params, &r.w, r.a.bufs[1].ptr, sizeof(kvcl_ep_move_t), n, r.a.bufs[2].ptr);
        Py_END_ALLOW_THREADS
        hold(&r, -1);
        value = (status == KVCL_OK) ? kvpy_none() : kvpy_raise(status, NULL);
    }
    drop(&r);
    return value;
}
