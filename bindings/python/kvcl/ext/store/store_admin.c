/*
 * Administration of a store: placement, and statistics as dicts. The calls block, without the GIL; those that the
 * library can post are in store_post.c.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

int kvpy_store_keys(kvpy_obj_t *store, PyObject *arg, kvcl_key_t **keys_p, size_t *n_p)
{
    if (kvpy_keys(arg, keys_p, n_p) != 0) {
        return -1;
    }
    if (kvpy_obj_check(store) != 0) {
        free(*keys_p);
        return -1;
    }
    return 0;
}

PyObject *kvpy_bools(const uint8_t *bytes, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    size_t   i;

    for (i = 0; (list != NULL) && (i < n); ++i) {
        PyList_SetItem(list, (Py_ssize_t)i, PyBool_FromLong(bytes[i]));
    }
    return list;
}

/* Keys that could not be served are reported in the list, so they raise nothing. */
static bool is_notified(kvcl_status_t status)
{
    return (status == KVCL_OK) || (status == KVCL_ERR_NOT_FOUND) || (status == KVCL_ERR_NO_SPACE);
}

static PyObject *nothing(kvcl_status_t status)
{
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    Py_RETURN_NONE;
}

/* _copy(keys, rank, move): whether it has each key now */
static PyObject *admin_copy(PyObject *self, PyObject *args)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self;
    PyObject      *keys_arg, *rank_arg, *list;
    kvcl_status_t status;
    kvcl_key_t    *keys;
    uint8_t       *made;
    int           rank, move;
    size_t        n;

    if (!PyArg_ParseTuple(args, "OOp:_copy", &keys_arg, &rank_arg, &move) || (kvpy_int(rank_arg, "rank", &rank) != 0) ||
        (kvpy_store_keys(store, keys_arg, &keys, &n) != 0)) {
        return NULL;
    }
    made = calloc(n + 1, 1);
    if (made == NULL) {
        free(keys);
        return PyErr_NoMemory();
    }
    KVPY_CALL(store, status, kvcl_store_copy(store->handle, keys, n, rank, move ? KVCL_STORE_MOVE : 0, made, NULL));
    list = is_notified(status) ? kvpy_bools(made, n) : kvpy_raise(status, NULL);
    free(keys);
    free(made);
    return list;
}

static PyObject *admin_drain(PyObject *self, PyObject *arg)
{
    kvpy_obj_t         *store = (kvpy_obj_t *)self;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           moved  = 0;
    kvcl_status_t      status;

    if ((kvpy_timeout(arg, &params.timeout_ns) != 0) || (kvpy_obj_check(store) != 0)) {
        return NULL;
    }
    KVPY_CALL(store, status, kvcl_store_drain(store->handle, &moved, &params));
    return (status == KVCL_OK) ? PyLong_FromUnsignedLongLong(moved) : kvpy_raise(status, NULL);
}

/* _exclude(rank, on) */
static PyObject *admin_exclude(PyObject *self, PyObject *args)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self;
    PyObject      *rank_arg;
    kvcl_status_t status;
    int           rank, on;

    if (!PyArg_ParseTuple(args, "Op:_exclude", &rank_arg, &on) || (kvpy_int(rank_arg, "rank", &rank) != 0) ||
        (kvpy_obj_check(store) != 0)) {
        return NULL;
    }
    KVPY_CALL(store, status, kvcl_store_exclude(store->handle, rank, on));
    return nothing(status);
}

/* ---- statistics ---- */

#define STAT(_name) {#_name, offsetof(kvcl_store_stats_t, _name)}

static const struct {
    const char *name;
    size_t     at;
} stats_rows[] = {
    STAT(blocks), STAT(published), STAT(evicted), STAT(gets), STAT(hits), STAT(stale), STAT(corrupt), STAT(entries),
    STAT(lookups), STAT(hits_cache), STAT(hits_dram), STAT(hits_nvme), STAT(demoted), STAT(promoted), STAT(dropped),
    STAT(nvme_blocks), STAT(nvme_bytes), STAT(nvme_bad), STAT(nvme_state), STAT(block_bytes), STAT(pool_blocks),
    STAT(pool_free), STAT(pool_published), STAT(pinned), STAT(copied), STAT(moved), STAT(events), STAT(draining),
    STAT(bytes_in), STAT(bytes_out), STAT(hits_local), STAT(pool_bytes), STAT(pool_free_bytes), STAT(pool_taken),
    STAT(n_sizes), STAT(get_p50_ns), STAT(get_p99_ns), STAT(put_p50_ns), STAT(put_p99_ns), STAT(match_p50_ns),
    STAT(match_p99_ns), STAT(bytes_served), STAT(bytes_native),
};
_Static_assert(sizeof(stats_rows) / sizeof(stats_rows[0]) ==
                   (sizeof(kvcl_store_stats_t) - sizeof(((kvcl_store_stats_t *)0)->sizes) - sizeof(size_t)) /
                       sizeof(uint64_t),
               "each number of the struct but those of each size is a row");

/* Blocks of each size of the pool: a list of dicts. */
static PyObject *sizes_list(const kvcl_store_stats_t *stats)
{
    uint64_t n     = (stats->n_sizes < KVCL_STORE_SIZES_MAX) ? stats->n_sizes : KVCL_STORE_SIZES_MAX, i;
    PyObject *list = PyList_New((Py_ssize_t)n), *each;

    for (i = 0; (list != NULL) && (i < n); ++i) {
        const kvcl_store_size_stats_t *size = &stats->sizes[i];
        each = Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K}", "block_bytes", (unsigned long long)size->block_bytes,
                             "blocks", (unsigned long long)size->blocks, "free", (unsigned long long)size->free,
                             "published", (unsigned long long)size->published, "pinned",
                             (unsigned long long)size->pinned, "takes", (unsigned long long)size->takes);
        if ((each == NULL) || (PyList_SetItem(list, (Py_ssize_t)i, each) != 0)) { /* takes each, always */
            Py_CLEAR(list);
        }
    }
    return list;
}
_Static_assert(offsetof(kvcl_store_size_stats_t, reserved) == 6 * sizeof(uint64_t), "each number is in sizes_list()");

PyObject *kvpy_store_stats_dict(const kvcl_store_stats_t *stats)
{
    PyObject *dict = PyDict_New(), *value;
    uint64_t number;
    size_t   i;

    for (i = 0; (dict != NULL) && (i < sizeof(stats_rows) / sizeof(stats_rows[0])); ++i) {
        memcpy(&number, (const char *)stats + stats_rows[i].at, sizeof(number));
        value = PyLong_FromUnsignedLongLong(number);
        if ((value == NULL) || (PyDict_SetItemString(dict, stats_rows[i].name, value) != 0)) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    if (dict != NULL) {
        value = sizes_list(stats);
        if ((value == NULL) || (PyDict_SetItemString(dict, "sizes", value) != 0)) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    return dict;
}

/* _match_all(keys, comm or None) */
static PyObject *admin_match_all(PyObject *self, PyObject *args)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self, *comm = NULL;
    PyObject      *arg, *comm_arg;
    kvcl_status_t status;
    kvcl_key_t    *keys;
    size_t        n, hit = 0;

    if (!PyArg_ParseTuple(args, "OO:_match_all", &arg, &comm_arg) || (kvpy_store_keys(store, arg, &keys, &n) != 0)) {
        return NULL;
    }
    if ((comm_arg != Py_None) && ((comm = kvpy_obj_arg(comm_arg, kvpy_comm_type, store->ctx)) == NULL)) {
        free(keys);
        return NULL;
    }
    if (comm != NULL) {
        ++comm->users;
    }
    KVPY_CALL(store, status, kvcl_store_match_all(store->handle, (comm != NULL) ? comm->handle : NULL, keys, n, &hit,
                                                  NULL));
    if (comm != NULL) {
        --comm->users;
    }
    free(keys);
    return (status == KVCL_OK) ? PyLong_FromSize_t(hit) : kvpy_raise(status, NULL);
}

PyMethodDef kvpy_store_admin_methods[] = {
    {"_copy", admin_copy, METH_VARARGS, "_copy(keys, rank, move)"},
    {"_exclude", admin_exclude, METH_VARARGS, "_exclude(rank, on)"},
    {"_drain", admin_drain, METH_O, "_drain(timeout)"},
    {"_match_all", admin_match_all, METH_VARARGS, "_match_all(keys, comm)"},
    {NULL, NULL, 0, NULL}};
