/*
 * Store: the block directory and the blocks it lists. Queries that the library can post are in store_post.c,
 * administration in store_admin.c, values of any length in store_value.c.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

PyTypeObject *kvpy_store_type;

/* An int, or a sequence of ints: the sizes of a pool's blocks, each once. @return 0, -1: exception. */
static int sizes_of(PyObject *arg, uint64_t sizes[KVCL_STORE_SIZES_MAX], size_t *n_p)
{
    bool       many = PySequence_Check(arg) && !PyUnicode_Check(arg) && !PyBytes_Check(arg);
    PyObject   *seq = many ? PySequence_Tuple(arg) : PyTuple_Pack(1, arg);
    Py_ssize_t n    = (seq != NULL) ? PyTuple_Size(seq) : -1, i, j;
    int        rc   = 0;

    if (n < 0) {
        return -1;
    }
    if ((n == 0) || (n > KVCL_STORE_SIZES_MAX)) {
        PyErr_Format(PyExc_ValueError, "block_bytes: 1 to %d sizes are possible, not %zd", KVCL_STORE_SIZES_MAX, n);
        rc = -1;
    }
    for (i = 0; (i < n) && (rc == 0); ++i) {
        rc = kvpy_u64(PyTuple_GetItem(seq, i), "block_bytes", UINT64_MAX, &sizes[i]);
        if ((rc == 0) && many && (sizes[i] == 0)) {
            PyErr_Format(PyExc_ValueError, "block_bytes[%zd] is 0", i);
            rc = -1;
        }
        for (j = 0; (j < i) && (rc == 0); ++j) {
            if (sizes[j] == sizes[i]) {
                PyErr_Format(PyExc_ValueError, "block_bytes: %llu is there twice", (unsigned long long)sizes[i]);
                rc = -1;
            }
        }
    }
    Py_DECREF(seq);
    *n_p = (size_t)n;
    return rc;
}

/* _open(comm, cache or None, dir_entries, dram_bytes, block_bytes, checksum, replicas, events or None, nvme or None,
 * join) */
static PyObject *store_open(PyObject *cls, PyObject *args)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    PyObject            *comm_arg, *cache_arg, *entries, *dram, *block, *replicas, *events;
    kvpy_obj_t          *comm, *cache = NULL, *obj;
    kvcl_store_h        store = NULL;
    uint64_t            sizes[KVCL_STORE_SIZES_MAX];
    kvcl_status_t       status;
    size_t              n_sizes;
    int                 checksum, join;

    if (!PyArg_ParseTuple(args, "OOOOOpOOzp:_open", &comm_arg, &cache_arg, &entries, &dram, &block, &checksum,
                          &replicas, &events, &params.nvme, &join) ||
        (kvpy_u64(replicas, "replicas", UINT64_MAX, &params.replicas) != 0) ||
        ((events != Py_None) && (kvpy_u64(events, "events", UINT64_MAX, &params.events) != 0)) ||
        (kvpy_u64(entries, "dir_entries", UINT64_MAX, &params.dir_entries) != 0) ||
        (kvpy_u64(dram, "dram_bytes", UINT64_MAX, &params.dram_bytes) != 0) ||
        (sizes_of(block, sizes, &n_sizes) != 0) ||
        ((comm = kvpy_obj_arg(comm_arg, kvpy_comm_type, NULL)) == NULL) ||
        ((cache_arg != Py_None) && ((cache = kvpy_obj_arg(cache_arg, kvpy_cache_type, comm->ctx)) == NULL))) {
        return NULL;
    }
    params.flags = (checksum ? 0 : KVCL_STORE_NO_CHECKSUM) | (join ? KVCL_STORE_JOIN : 0) |
                   (((events != Py_None) && (params.events == 0)) ? KVCL_STORE_NO_EVENTS : 0);
    params.cache         = (cache != NULL) ? cache->handle : NULL;
    params.block_bytes   = sizes[0];
    params.block_sizes   = &sizes[1];
    params.n_block_sizes = n_sizes - 1;
    if (cache != NULL) {
        ++cache->users;
    }
    KVPY_CALL(comm, status, kvcl_store_open(comm->handle, &params, &store));
    if (cache != NULL) {
        --cache->users;
    }
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    obj = (kvpy_obj_t *)kvpy_obj_new((PyTypeObject *)cls, KVPY_STORE, comm->ctx, store);
    if ((obj != NULL) &&
        ((kvpy_obj_keep(obj, comm) != 0) || ((cache != NULL) && (kvpy_obj_keep(obj, cache) != 0)))) {
        Py_CLEAR(obj);
    }
    return (PyObject *)obj;
}

/* _tenant(number, secret of a file if it is left out) */
static PyObject *store_tenant(PyObject *self, PyObject *args)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self, *obj = NULL;
    PyObject      *arg;
    const char    *secret = NULL;
    Py_ssize_t    len     = 0;
    uint64_t      number;
    kvcl_store_h  handle;
    kvcl_status_t status;

    if (PyArg_ParseTuple(args, "O|y#:_tenant", &arg, &secret, &len) && (kvpy_obj_check(store) == 0) &&
        (kvpy_u64(arg, "tenant", UINT64_MAX, &number) == 0)) {
        KVPY_CALL(store, status, kvcl_store_tenant(store->handle, number, secret, (size_t)len, &handle));
        obj = (kvpy_obj_t *)((status != KVCL_OK) ? kvpy_raise(status, NULL)
                                                 : kvpy_obj_new(Py_TYPE(self), KVPY_STORE, store->ctx, handle));
    }
    if ((obj != NULL) && (kvpy_obj_keep(obj, store) != 0)) {
        Py_CLEAR(obj);
    }
    return (PyObject *)obj;
}

/* _match(keys) */
static PyObject *store_match(PyObject *self, PyObject *arg)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self;
    kvcl_key_t    *keys;
    size_t        n, hit = 0;
    kvcl_status_t status;

    if (kvpy_store_keys(store, arg, &keys, &n) != 0) {
        return NULL;
    }
    KVPY_CALL(store, status, kvcl_store_match(store->handle, keys, n, &hit, NULL));
    free(keys);
    return (status == KVCL_OK) ? PyLong_FromSize_t(hit) : kvpy_raise(status, NULL);
}

static PyObject *store_exists(PyObject *self, PyObject *arg)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self;
    PyObject      *list;
    uint8_t       *present;
    kvcl_key_t    *keys;
    size_t        n;
    kvcl_status_t status;

    if (kvpy_store_keys(store, arg, &keys, &n) != 0) {
        return NULL;
    }
    present = calloc(n + 1, 1);
    if (present == NULL) {
        free(keys);
        return PyErr_NoMemory();
    }
    KVPY_CALL(store, status, kvcl_store_exists(store->handle, keys, n, present, NULL));
    list = (status == KVCL_OK) ? kvpy_bools(present, n) : kvpy_raise(status, NULL);
    free(keys);
    free(present);
    return list;
}

typedef struct moved {
    kvcl_key_t         *keys;
    uint32_t           *ids;
    size_t             n;
    kvpy_obj_t         *cache;
    kvcl_xfer_params_t params;
} moved_t;

/* Keys, cache and ids of a call. */
static int moved_args(kvpy_op_t *op, PyObject *keys, PyObject *cache, PyObject *ids, moved_t *m)
{
    size_t n;

    if ((kvpy_keys(keys, &m->keys, &m->n) != 0) || ((cache != NULL) && (kvpy_u32s(ids, "blocks", &m->ids, &n) != 0))) {
        return -1;
    }
    if (cache == NULL) {
        return kvpy_op_statuses(op, m->n, &m->params);
    }
    if (n != m->n) {
        PyErr_Format(PyExc_ValueError, "%zu keys and %zu blocks: they must be as many", m->n, n);
        return -1;
    }
    m->cache = kvpy_obj_arg(cache, kvpy_cache_type, op->ctx);
    if (m->cache == NULL) {
        return -1;
    }
    kvpy_op_keep(op, m->cache);
    return kvpy_op_statuses(op, m->n, &m->params);
}

enum { GET, PUT, UPSERT, PUBLISH, BCAST, REMOVE };

static kvcl_status_t post(int what, kvcl_store_h store, moved_t *m, kvpy_op_t *op)
{
    kvcl_cache_h cache = (m->cache != NULL) ? m->cache->handle : NULL;

    switch (what) {
    case GET:
        m->params.status = NULL;
        return kvcl_store_get(store, m->keys, m->n, cache, m->ids, op->blocks, &m->params, &op->req);
    case PUT:
        return kvcl_store_put(store, m->keys, m->n, cache, m->ids, &m->params, &op->req);
    case UPSERT:
        return kvcl_store_upsert(store, m->keys, m->n, cache, m->ids, &m->params, &op->req);
    case PUBLISH:
        return kvcl_store_publish(store, m->keys, m->n, cache, m->ids, &m->params, &op->req);
    case BCAST:
        return kvcl_store_bcast(store, m->keys, m->n, cache, m->ids, &m->params, &op->req);
    default:
        return kvcl_store_remove(store, m->keys, m->n, &m->params, &op->req);
    }
}

/* to: None, or the rank whose pool receives the blocks. */
static int to_rank(PyObject *to, kvcl_xfer_params_t *params)
{
    if (to == Py_None) {
        return 0;
    }
    params->flags |= KVCL_PUT_TO;
    return kvpy_u64(to, "to", INT32_MAX, &params->to_rank);
}

static PyObject *move(PyObject *self, PyObject *args, int what, const char *name)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self;
    PyObject      *request, *keys, *cache = NULL, *ids = NULL, *timeout, *replicas = NULL, *tenant = NULL;
    PyObject      *to  = Py_None;
    moved_t       m    = {0};
    bool          puts = (what == PUT) || (what == UPSERT);
    int           wait = 0, stays = 0;
    kvcl_status_t status;
    kvpy_op_t     *op;

    if (!((what == REMOVE) ? PyArg_ParseTuple(args, "OOO", &request, &keys, &timeout)
          : puts           ? PyArg_ParseTuple(args, "OOOOOOpOpO", &request, &keys, &cache, &ids, &replicas, &tenant,
                                              &wait, &to, &stays, &timeout)
                           : PyArg_ParseTuple(args, "OOOOO", &request, &keys, &cache, &ids, &timeout)) ||
        ((op = kvpy_op_new(request, name, store, timeout, &m.params)) == NULL)) {
        return NULL;
    }
    m.params.flags |= stays ? KVCL_PUT_STAYS : 0;
    if ((moved_args(op, keys, cache, ids, &m) != 0) ||
        (puts && (kvpy_op_put(op, m.n, replicas, tenant, wait, &m.params) != 0)) || (to_rank(to, &m.params) != 0) ||
        (((what == PUBLISH) || (what == BCAST)) && (kvpy_obj_keep(store, m.cache) != 0))) {
        kvpy_op_free(op);
        request = NULL;
    } else {
        KVPY_POST(op, status, post(what, store->handle, &m, op));
        request = kvpy_op_posted(op, status);
    }
    free(m.keys);
    free(m.ids);
    return request;
}

static PyObject *store_get(PyObject *self, PyObject *args)
{
    return move(self, args, GET, "store get");
}

static PyObject *store_put(PyObject *self, PyObject *args)
{
    return move(self, args, PUT, "store put");
}

static PyObject *store_upsert(PyObject *self, PyObject *args)
{
    return move(self, args, UPSERT, "store upsert");
}

static PyObject *store_publish(PyObject *self, PyObject *args)
{
    return move(self, args, PUBLISH, "store publish");
}

static PyObject *store_bcast(PyObject *self, PyObject *args)
{
    return move(self, args, BCAST, "store bcast");
}

static PyObject *store_remove(PyObject *self, PyObject *args)
{
    return move(self, args, REMOVE, "store remove");
}

static PyObject *done(kvcl_status_t status)
{
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    Py_RETURN_NONE;
}

static PyObject *store_withdraw(PyObject *self, PyObject *args)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self, *cache;
    PyObject      *cache_arg, *ids_arg;
    kvcl_status_t status;
    uint32_t      *ids;
    size_t        n;

    if (!PyArg_ParseTuple(args, "OO:withdraw", &cache_arg, &ids_arg) || (kvpy_u32s(ids_arg, "blocks", &ids, &n) != 0)) {
        return NULL;
    }
    if ((kvpy_obj_check(store) != 0) || ((cache = kvpy_obj_arg(cache_arg, kvpy_cache_type, store->ctx)) == NULL)) {
        free(ids);
        return NULL;
    }
    ++cache->users;
    KVPY_CALL(store, status, kvcl_store_withdraw(store->handle, cache->handle, ids, n));
    --cache->users;
    free(ids);
    return done(status);
}

static PyObject *store_alloc(PyObject *self, PyObject *arg)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self;
    PyObject      *list  = NULL;
    kvcl_status_t status;
    uint32_t      *ids;
    uint64_t      n, i;

    if ((kvpy_u64(arg, "n", UINT32_MAX, &n) != 0) || (kvpy_obj_check(store) != 0)) {
        return NULL;
    }
    ids = calloc((size_t)n + 1, sizeof(*ids));
    if (ids == NULL) {
        return PyErr_NoMemory();
    }
    KVPY_CALL(store, status, kvcl_store_alloc(store->handle, (size_t)n, ids));
    if (status != KVCL_OK) {
        (void)kvpy_raise(status, NULL);
    } else {
        list = PyList_New((Py_ssize_t)n);
    }
    for (i = 0; (list != NULL) && (i < n); ++i) {
        PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromUnsignedLong(ids[i]));
    }
    free(ids);
    return list;
}

static PyObject *store_free(PyObject *self, PyObject *arg)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self;
    kvcl_status_t status;
    uint32_t      *ids;
    size_t        n;

    if (kvpy_u32s(arg, "blocks", &ids, &n) != 0) {
        return NULL;
    }
    if (kvpy_obj_check(store) != 0) {
        free(ids);
        return NULL;
    }
    KVPY_CALL(store, status, kvcl_store_free(store->handle, ids, n));
    free(ids);
    return done(status);
}

/* pin_local(key): the block id, or None */
static PyObject *store_pin_local(PyObject *self, PyObject *arg)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self;
    kvcl_status_t status;
    kvcl_key_t    *keys;
    uint32_t      id = 0;
    size_t        n;

    if (kvpy_store_keys(store, arg, &keys, &n) != 0) {
        return NULL;
    }
    if (n != 1) {
        free(keys);
        PyErr_SetString(PyExc_ValueError, "one key is needed");
        return NULL;
    }
    KVPY_CALL(store, status, kvcl_store_pin_local(store->handle, keys, &id));
    free(keys);
    if (status == KVCL_ERR_NOT_FOUND) {
        Py_RETURN_NONE;
    }
    return (status == KVCL_OK) ? PyLong_FromUnsignedLong(id) : kvpy_raise(status, NULL);
}

static PyObject *store_unpin_local(PyObject *self, PyObject *arg)
{
    kvpy_obj_t *store = (kvpy_obj_t *)self;
    uint64_t   id;

    if ((kvpy_u64(arg, "block", UINT32_MAX, &id) != 0) || (kvpy_obj_check(store) != 0)) {
        return NULL;
    }
    kvpy_enter(store);
    Py_BEGIN_ALLOW_THREADS
    kvcl_store_unpin_local(store->handle, (uint32_t)id);
    Py_END_ALLOW_THREADS
    kvpy_leave(store);
    Py_RETURN_NONE;
}

static PyObject *store_stats(PyObject *self, PyObject *none)
{
    kvpy_obj_t         *store = (kvpy_obj_t *)self;
    kvcl_store_stats_t s      = KVCL_STORE_STATS_INIT;
    kvcl_status_t      status;

    (void)none;
    if (kvpy_obj_check(store) != 0) {
        return NULL;
    }
    kvpy_enter(store);
    Py_BEGIN_ALLOW_THREADS
    status = kvcl_store_stats(store->handle, &s);
    Py_END_ALLOW_THREADS
    kvpy_leave(store);
    return (status == KVCL_OK) ? kvpy_store_stats_dict(&s) : kvpy_raise(status, NULL);
}

static size_t append(PyMethodDef *methods, size_t n, const PyMethodDef *more)
{
    for (; more->ml_name != NULL; ++more) {
        methods[n++] = *more;
    }
    return n;
}

PyTypeObject *kvpy_make_store(void)
{
    static PyMethodDef methods[64] = {
        {"_open", store_open, METH_VARARGS | METH_CLASS,
         "_open(comm, cache, dir_entries, dram_bytes, block_bytes, checksum, replicas, events, nvme, join)"},
        {"_tenant", store_tenant, METH_VARARGS, "_tenant(number[, secret])"},
        {"match", store_match, METH_O, "match(keys): the number of leading keys that somebody has. Blocks."},
        {"exists", store_exists, METH_O, "exists(keys): a list, whether somebody has each key. Blocks."},
        {"_get", store_get, METH_VARARGS, "_get(request, keys, cache, blocks, timeout)"},
        {"_put", store_put, METH_VARARGS, "_put(request, keys, cache, blocks, replicas, tenant, wait, to, timeout)"},
        {"_upsert", store_upsert, METH_VARARGS,
         "_upsert(request, keys, cache, blocks, replicas, tenant, wait, to, timeout)"},
        {"_publish", store_publish, METH_VARARGS, "_publish(request, keys, cache, blocks, timeout)"},
        {"_bcast", store_bcast, METH_VARARGS, "_bcast(request, keys, cache, blocks, timeout)"},
        {"_remove", store_remove, METH_VARARGS, "_remove(request, keys, timeout)"},
        {"withdraw", store_withdraw, METH_VARARGS,
         "withdraw(cache, blocks): take published blocks back; then their bytes may change."},
        {"alloc", store_alloc, METH_O,
         "alloc(n): take n blocks of the store's cache for filling, evicting published ones as needed; NoSpace if all "
         "are in the callers' hands."},
        {"free", store_free, METH_O, "free(blocks): give back blocks of alloc() that were not published."},
        {"pin_local", store_pin_local, METH_O,
         "pin_local(key): where one of this rank's caches holds the key, and in the store's own cache safe from "
         "eviction until unpin_local(); None if none does. Copies in the pool do not count."},
        {"unpin_local", store_unpin_local, METH_O, "unpin_local(block)"},
        {"stats", store_stats, METH_NOARGS, "Counters of this rank, a dict."},
        {"close", kvpy_obj_close_py, METH_NOARGS, "Withdraw this rank's blocks and leave. Blocks."},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getset[] = {
        {"closed", kvpy_obj_closed_py, NULL, "Whether it was closed.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    size_t n;

    for (n = 0; methods[n].ml_name != NULL; ++n) {
    }
    n = append(methods, n, kvpy_store_admin_methods);
    n = append(methods, n, kvpy_store_value_methods);
    n = append(methods, n, kvpy_store_post_methods);
    n = append(methods, n, kvpy_store_part_methods);
    methods[n] = (PyMethodDef){NULL, NULL, 0, NULL};
    return kvpy_obj_type("kvcl._kvcl.Store", "The distributed block directory.", methods, getset);
}
