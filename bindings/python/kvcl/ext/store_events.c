/*
 * Following a store: the events of a rank, and the blocks that it holds.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

enum { MOST = 65536 }; /* of a call */

static PyObject *event_tuple(const kvcl_store_event_t *e)
{
    return Py_BuildValue("(KIIy#KIi)", (unsigned long long)e->seq, (unsigned)e->kind, (unsigned)e->tier,
                         (const char *)e->key.bytes, (Py_ssize_t)sizeof(e->key.bytes), (unsigned long long)e->tenant,
                         (unsigned)e->bytes, (int)e->to_rank);
}

static PyObject *item_tuple(const kvcl_store_item_t *item)
{
    return Py_BuildValue("(y#KIIII)", (const char *)item->key.bytes, (Py_ssize_t)sizeof(item->key.bytes),
                         (unsigned long long)item->tenant, (unsigned)item->bytes, (unsigned)item->tier,
                         (unsigned)item->cache, (unsigned)item->slot);
}

/* _events(rank, since, wait, most) */
static PyObject *store_events(PyObject *self, PyObject *args)
{
    kvpy_obj_t         *store = (kvpy_obj_t *)self;
    PyObject           *rank_arg, *since_arg, *wait_arg, *most_arg, *list, *one;
    uint64_t           since, wait, most;
    kvcl_store_event_t *events;
    kvcl_status_t      status;
    size_t             n = 0, i;
    int                rank;

    if (!PyArg_ParseTuple(args, "OOOO:_events", &rank_arg, &since_arg, &wait_arg, &most_arg) ||
        (kvpy_int(rank_arg, "rank", &rank) != 0) || (kvpy_u64(since_arg, "since", UINT64_MAX, &since) != 0) ||
        (kvpy_timeout(wait_arg, &wait) != 0) || (kvpy_u64(most_arg, "most", MOST, &most) != 0) ||
        (kvpy_obj_check(store) != 0)) {
        return NULL;
    }
    events = PyMem_RawMalloc(((size_t)most + 1) * sizeof(*events));
    if (events == NULL) {
        return PyErr_NoMemory();
    }
    KVPY_CALL(store, status, kvcl_store_events(store->handle, rank, since, wait, events, sizeof(*events),
                                              (size_t)most, &n, NULL));
    list = (status == KVCL_OK) ? PyList_New((Py_ssize_t)n) : kvpy_raise(status, NULL);
    for (i = 0; (list != NULL) && (i < n); ++i) {
        one = event_tuple(&events[i]);
        if (one == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, one);
        }
    }
    PyMem_RawFree(events);
    return list;
}

/* _list(rank, cursor, most): (items, cursor, number of the newest event) */
static PyObject *store_list(PyObject *self, PyObject *args)
{
    kvpy_obj_t        *store = (kvpy_obj_t *)self;
    PyObject          *rank_arg, *cursor_arg, *most_arg, *list, *one;
    uint64_t          cursor, most, seq = 0;
    kvcl_store_item_t *items;
    kvcl_status_t     status;
    size_t            n = 0, i;
    int               rank;

    if (!PyArg_ParseTuple(args, "OOO:_list", &rank_arg, &cursor_arg, &most_arg) ||
        (kvpy_int(rank_arg, "rank", &rank) != 0) || (kvpy_u64(cursor_arg, "cursor", UINT64_MAX, &cursor) != 0) ||
        (kvpy_u64(most_arg, "most", MOST, &most) != 0) || (kvpy_obj_check(store) != 0)) {
        return NULL;
    }
    items = PyMem_RawMalloc(((size_t)most + 1) * sizeof(*items));
    if (items == NULL) {
        return PyErr_NoMemory();
    }
    KVPY_CALL(store, status, kvcl_store_list(store->handle, rank, &cursor, items, sizeof(*items),
                                            (size_t)most, &n, &seq, NULL));
    list = (status == KVCL_OK) ? PyList_New((Py_ssize_t)n) : kvpy_raise(status, NULL);
    for (i = 0; (list != NULL) && (i < n); ++i) {
        one = item_tuple(&items[i]);
        if (one == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, one);
        }
    }
    PyMem_RawFree(items);
    return (list != NULL) ? Py_BuildValue("(NKK)", list, (unsigned long long)cursor, (unsigned long long)seq) : NULL;
}

PyMethodDef kvpy_store_events_methods[] = {
    {"_events", store_events, METH_VARARGS, "_events(rank, since, wait, most)"},
    {"_list", store_list, METH_VARARGS, "_list(rank, cursor, most)"},
    {NULL, NULL, 0, NULL}};
