/*
 * Experts on ranks (kvcl_ep.h): buffers in, buffers filled. The Python half (ep.py) makes the buffers; their lengths
 * are compared here with the counts.
 */
#include "kvcl/ext/query/ep.h"

#include <string.h>

void kvpy_ep_drop(kvpy_ep_args_t *a)
{
    size_t i;

    kvpy_buf_drop(&a->active);
    for (i = 0; i < sizeof(a->bufs) / sizeof(a->bufs[0]); ++i) {
        kvpy_buf_drop(&a->bufs[i]);
    }
}

int kvpy_ep_array(PyObject *obj, const char *what, unsigned how, uint64_t entries, size_t bytes, kvpy_buf_t *buf)
{
    if (kvpy_buf_take(obj, how, buf) != 0) {
        return -1;
    }
    if (buf->len != entries * bytes) {
        PyErr_Format(PyExc_ValueError, "%s: %zu bytes, %llu entries of %zu bytes are needed", what, buf->len,
                     (unsigned long long)entries, bytes);
        return -1;
    }
    return 0;
}

int kvpy_ep_params(PyObject *arg, kvpy_ep_args_t *a)
{
    static const char *const names[] = {"layers", "experts", "slots", "ranks", "hosts", "groups", "min_ranks",
                                        "min_hosts"};
    kvcl_ep_params_t         *p = &a->params;
    uint32_t *const          fields[] = {&p->layers, &p->experts, &p->slots, &p->ranks, &p->hosts, &p->groups,
                                         &p->min_ranks, &p->min_hosts};
    uint64_t                 value;
    size_t                   i;

    *a = (kvpy_ep_args_t){.params = KVCL_EP_PARAMS_INIT};
    if (!PyTuple_Check(arg) || (PyTuple_Size(arg) != 10)) {
        PyErr_SetString(PyExc_TypeError, "a tuple of ten is needed");
        return -1;
    }
    if (kvpy_u64(PyTuple_GetItem(arg, 0), "flags", UINT64_MAX, &p->flags) != 0) {
        return -1;
    }
    for (i = 0; i < sizeof(fields) / sizeof(fields[0]); ++i) {
        if (kvpy_u64(PyTuple_GetItem(arg, (Py_ssize_t)i + 1), names[i], UINT32_MAX, &value) != 0) {
            return -1;
        }
        *fields[i] = (uint32_t)value;
    }
    if (PyTuple_GetItem(arg, 9) != Py_None) {
        if (kvpy_ep_array(PyTuple_GetItem(arg, 9), "active", 0, p->ranks, 1, &a->active) != 0) {
            return -1;
        }
        p->active = a->active.ptr;
    }
    return 0;
}

static PyObject *none_or_raise(kvcl_status_t status)
{
    return (status == KVCL_OK) ? kvpy_none() : kvpy_raise(status, NULL);
}

/* ep_place(params, loads, placement) */
PyObject *kvpy_ep_place(PyObject *module, PyObject *args)
{
    PyObject      *params, *loads, *placement, *value = NULL;
    kvcl_status_t status;
    kvpy_ep_args_t     a;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:ep_place", &params, &loads, &placement)) {
        return NULL;
    }
    if ((kvpy_ep_params(params, &a) == 0) &&
        (kvpy_ep_array(loads, "loads", 0, kvpy_ep_layers(&a) * a.params.experts, 8, &a.bufs[0]) == 0) &&
        (kvpy_ep_array(placement, "placement", KVPY_WRITE, kvpy_ep_layers(&a) * a.params.slots, 4, &a.bufs[1]) == 0)) {
        Py_BEGIN_ALLOW_THREADS
        status = kvcl_ep_place(&a.params, a.bufs[0].ptr, a.bufs[1].ptr);
        Py_END_ALLOW_THREADS
        value = none_or_raise(status);
    }
    kvpy_ep_drop(&a);
    return value;
}

/* ep_index(params, placement, copies or None, copies_max, counts) */
PyObject *kvpy_ep_index(PyObject *module, PyObject *args)
{
    PyObject      *params, *placement, *copies, *copies_max, *counts, *value = NULL;
    uint64_t      most;
    kvcl_status_t status;
    kvpy_ep_args_t     a;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOO:ep_index", &params, &placement, &copies, &copies_max, &counts) ||
        (kvpy_u64(copies_max, "copies_max", KVCL_EP_MAX_SLOTS, &most) != 0)) {
        return NULL;
    }
    if ((kvpy_ep_params(params, &a) == 0) &&
        (kvpy_ep_array(placement, "placement", 0, kvpy_ep_layers(&a) * a.params.slots, 4, &a.bufs[0]) == 0) &&
        ((copies == Py_None) ||
         (kvpy_ep_array(copies, "copies", KVPY_WRITE, kvpy_ep_layers(&a) * a.params.experts * most, 4,
                        &a.bufs[1]) == 0)) &&
        (kvpy_ep_array(counts, "counts", KVPY_WRITE, kvpy_ep_layers(&a) * a.params.experts, 4, &a.bufs[2]) == 0)) {
        Py_BEGIN_ALLOW_THREADS
        status = kvcl_ep_index(&a.params, a.bufs[0].ptr, a.bufs[1].ptr, most, a.bufs[2].ptr);
        Py_END_ALLOW_THREADS
        value = none_or_raise(status);
    }
    kvpy_ep_drop(&a);
    return value;
}

/* ep_repair(params, old, placement): (restored, missing) */
PyObject *kvpy_ep_repair(PyObject *module, PyObject *args)
{
    PyObject      *params, *old, *placement, *value = NULL;
    size_t        restored = 0, missing = 0;
    kvcl_status_t status;
    kvpy_ep_args_t     a;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:ep_repair", &params, &old, &placement)) {
        return NULL;
    }
    if ((kvpy_ep_params(params, &a) == 0) &&
        (kvpy_ep_array(old, "placement", 0, kvpy_ep_layers(&a) * a.params.slots, 4, &a.bufs[0]) == 0) &&
        (kvpy_ep_array(placement, "placement", KVPY_WRITE, kvpy_ep_layers(&a) * a.params.slots, 4, &a.bufs[1]) == 0)) {
        Py_BEGIN_ALLOW_THREADS
        status = kvcl_ep_repair(&a.params, a.bufs[0].ptr, a.bufs[1].ptr, &restored, &missing);
        Py_END_ALLOW_THREADS
        value = (status == KVCL_OK) ? Py_BuildValue("(nn)", (Py_ssize_t)restored, (Py_ssize_t)missing)
                                    : kvpy_raise(status, NULL);
    }
    kvpy_ep_drop(&a);
    return value;
}

static PyObject *move_list(const kvcl_ep_move_t *moves, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n), *move;
    size_t   i;

    for (i = 0; (list != NULL) && (i < n); ++i) {
        move = Py_BuildValue("(IIiIII)", (unsigned)moves[i].layer, (unsigned)moves[i].expert, (int)moves[i].source,
                             (unsigned)moves[i].destination, (unsigned)moves[i].kind, (unsigned)moves[i].round);
        if (move == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, move);
        }
    }
    return list;
}

/* The list of moves; a first call with KVCL_ERR_TRUNCATED returns their number. */
static PyObject *moves_of(const kvpy_ep_args_t *a, const int32_t *old, const int32_t *placement)
{
    kvcl_ep_move_t *moves = NULL;
    size_t         n      = 0;
    PyObject       *list;
    kvcl_status_t  status = kvcl_ep_moves(&a->params, old, placement, NULL, sizeof(*moves), 0, &n, NULL);

    if (status == KVCL_ERR_TRUNCATED) {
        moves = malloc(n * sizeof(*moves));
        if (moves == NULL) {
            return PyErr_NoMemory();
        }
        Py_BEGIN_ALLOW_THREADS
        status = kvcl_ep_moves(&a->params, old, placement, moves, sizeof(*moves), n, &n, NULL);
        Py_END_ALLOW_THREADS
    }
    list = (status == KVCL_OK) ? move_list(moves, n) : kvpy_raise(status, NULL);
    free(moves);
    return list;
}

/* ep_moves(params, old, placement): [(layer, expert, source, destination, kind, round)] */
PyObject *kvpy_ep_moves(PyObject *module, PyObject *args)
{
    PyObject  *params, *old, *placement, *value = NULL;
    kvpy_ep_args_t a;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:ep_moves", &params, &old, &placement)) {
        return NULL;
    }
    if ((kvpy_ep_params(params, &a) == 0) &&
        (kvpy_ep_array(old, "old", 0, kvpy_ep_layers(&a) * a.params.slots, 4, &a.bufs[0]) == 0) &&
        (kvpy_ep_array(placement, "placement", 0, kvpy_ep_layers(&a) * a.params.slots, 4, &a.bufs[1]) == 0)) {
        value = moves_of(&a, a.bufs[0].ptr, a.bufs[1].ptr);
    }
    kvpy_ep_drop(&a);
    return value;
}
