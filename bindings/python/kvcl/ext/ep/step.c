/*
 * Steps of experts (kvcl_ep_step.h): the class Experts, over buffers.
 */
#include "kvcl/ext/query/ep.h"

PyTypeObject *kvpy_experts_type;

static int counts_of(PyObject *const *args, const char *const *names, uint32_t *const *to, size_t n)
{
    uint64_t value;
    size_t   i;

    for (i = 0; i < n; ++i) {
        if (kvpy_u64(args[i], names[i], UINT32_MAX, &value) != 0) {
            return -1;
        }
        *to[i] = (uint32_t)value;
    }
    return 0;
}

/* _open(comm, slots, max_tokens, top_k, hidden, dtype, first_steps, timeout, first_timeout) */
static PyObject *e_open(PyObject *cls, PyObject *args)
{
    static const char *const names[] = {"slots", "max_tokens", "top_k", "hidden", "first_steps"};
    kvcl_ep_open_params_t    p       = KVCL_EP_OPEN_PARAMS_INIT;
    uint32_t *const          to[]    = {&p.slots, &p.max_tokens, &p.top_k, &p.hidden, &p.first_steps};
    PyObject                 *comm_arg, *numbers[5], *timeout, *first;
    kvcl_ep_h                ep = NULL;
    kvcl_status_t            status;
    kvpy_obj_t               *comm;
    int                      dtype;

    if (!PyArg_ParseTuple(args, "OOOOOiOOO:_open", &comm_arg, &numbers[0], &numbers[1], &numbers[2], &numbers[3],
                          &dtype, &numbers[4], &timeout, &first) ||
        ((comm = kvpy_obj_arg(comm_arg, kvpy_comm_type, NULL)) == NULL) || (counts_of(numbers, names, to, 5) != 0) ||
        (kvpy_timeout(timeout, &p.timeout_ns) != 0) || (kvpy_timeout(first, &p.first_timeout_ns) != 0)) {
        return NULL;
    }
    p.dtype = (kvcl_dtype_t)dtype;
    KVPY_CALL(comm, status, kvcl_ep_open(comm->handle, &p, &ep));
    return (status == KVCL_OK) ? kvpy_obj_new((PyTypeObject *)cls, KVPY_EXPERTS, comm->ctx, ep)
                               : kvpy_raise(status, NULL);
}

/* What a dispatch gives: (step, experts, rows, x, y, counts, ranges), the arrays as bytes. */
static PyObject *batch_of(kvpy_obj_t *obj, const kvcl_ep_batch_t *batch, uint32_t ranks, size_t row)
{
    const size_t bytes = (size_t)batch->experts * batch->rows * row;
    PyObject     *x    = kvpy_obj_view(obj, (void *)(uintptr_t)batch->x, bytes);
    PyObject     *y    = (x != NULL) ? kvpy_obj_view(obj, batch->y, bytes) : NULL;
    PyObject     *counts = (y != NULL) ? PyBytes_FromStringAndSize((const char *)batch->counts,
                                                                  (Py_ssize_t)(batch->experts * sizeof(uint32_t)))
                                       : NULL;
    PyObject     *ranges = (counts != NULL)
                               ? PyBytes_FromStringAndSize((const char *)batch->ranges,
                                                           (Py_ssize_t)((size_t)batch->experts * ranks *
                                                                        sizeof(int64_t)))
                               : NULL;
    PyObject     *value  = (ranges != NULL)
                               ? Py_BuildValue("(KIIOOOO)", (unsigned long long)batch->step, (unsigned)batch->experts,
                                               (unsigned)batch->rows, x, y, counts, ranges)
                               : NULL;

    Py_XDECREF(x);
    Py_XDECREF(y);
    Py_XDECREF(counts);
    Py_XDECREF(ranges);
    return value;
}

/* _dispatch(x, ids, tokens, top_k, ranks, row bytes) */
static PyObject *e_dispatch(PyObject *self, PyObject *args)
{
    kvpy_obj_t      *obj = (kvpy_obj_t *)self;
    kvcl_ep_batch_t batch = KVCL_EP_BATCH_INIT;
    PyObject        *x_arg, *ids_arg, *value = NULL;
    unsigned        tokens, top_k, ranks;
    Py_ssize_t      row;
    kvpy_buf_t      x = {0}, ids = {0};
    kvcl_status_t   status;

    if (!PyArg_ParseTuple(args, "OOIIIn:_dispatch", &x_arg, &ids_arg, &tokens, &top_k, &ranks, &row) ||
        (kvpy_obj_check(obj) != 0)) {
        return NULL;
    }
    if ((kvpy_ep_array(x_arg, "x", 0, tokens, (size_t)row, &x) == 0) &&
        (kvpy_ep_array(ids_arg, "ids", 0, (uint64_t)tokens * top_k, sizeof(int64_t), &ids) == 0)) {
        KVPY_CALL(obj, status, kvcl_ep_dispatch(obj->handle, x.ptr, ids.ptr, tokens, top_k, &batch));
        value = (status == KVCL_OK) ? batch_of(obj, &batch, ranks, (size_t)row) : kvpy_raise(status, NULL);
    }
    kvpy_buf_drop(&x);
    kvpy_buf_drop(&ids);
    return value;
}

/* _combine(y or None, y bytes, weights, out, lost, tokens, top_k, row bytes): (step, tokens lost, all lost, active) */
static PyObject *e_combine(PyObject *self, PyObject *args)
{
    kvpy_obj_t       *obj   = (kvpy_obj_t *)self;
    kvcl_ep_result_t result = KVCL_EP_RESULT_INIT;
    PyObject         *y_arg, *weights_arg, *out_arg, *lost_arg, *value = NULL;
    kvpy_buf_t       y = {0}, weights = {0}, out = {0}, lost = {0};
    unsigned         tokens, top_k;
    Py_ssize_t       row, y_bytes;
    kvcl_status_t    status;

    if (!PyArg_ParseTuple(args, "OnOOOIIn:_combine", &y_arg, &y_bytes, &weights_arg, &out_arg, &lost_arg, &tokens,
                          &top_k, &row) || (kvpy_obj_check(obj) != 0)) {
        return NULL;
    }
    if (((y_arg == Py_None) || (kvpy_ep_array(y_arg, "y", 0, (uint64_t)y_bytes, 1, &y) == 0)) &&
        (kvpy_ep_array(weights_arg, "weights", 0, (uint64_t)tokens * top_k, sizeof(float), &weights) == 0) &&
        (kvpy_ep_array(out_arg, "out", KVPY_WRITE, tokens, (size_t)row, &out) == 0) &&
        (kvpy_ep_array(lost_arg, "lost", KVPY_WRITE, tokens, sizeof(float), &lost) == 0)) {
        KVPY_CALL(obj, status,
                  kvcl_ep_combine(obj->handle, y.ptr, weights.ptr, out.ptr, lost.ptr, &result));
        value = (status == KVCL_OK) ? Py_BuildValue("(KIII)", (unsigned long long)result.step,
                                                    (unsigned)result.tokens_lost, (unsigned)result.tokens_all,
                                                    (unsigned)result.active)
                                    : kvpy_raise(status, NULL);
    }
    kvpy_buf_drop(&y);
    kvpy_buf_drop(&weights);
    kvpy_buf_drop(&out);
    kvpy_buf_drop(&lost);
    return value;
}

/* _state(): (changes, number, step, [active], [status]) */
static PyObject *e_state(PyObject *self, PyObject *none)
{
    kvpy_obj_t      *obj  = (kvpy_obj_t *)self;
    kvcl_ep_state_t state = KVCL_EP_STATE_INIT;
    int32_t         active[KVCL_EP_MAX_RANKS];
    kvcl_status_t   why[KVCL_EP_MAX_RANKS], status;
    PyObject        *actives, *whys;
    uint32_t        r;

    (void)none;
    if (kvpy_obj_check(obj) != 0) {
        return NULL;
    }
    status = kvcl_ep_query(obj->handle, &state, active, why);
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    actives = PyList_New((Py_ssize_t)state.ranks);
    whys    = PyList_New((Py_ssize_t)state.ranks);
    for (r = 0; (actives != NULL) && (whys != NULL) && (r < state.ranks); ++r) {
        PyList_SetItem(actives, (Py_ssize_t)r, PyBool_FromLong(active[r]));
        PyList_SetItem(whys, (Py_ssize_t)r, PyLong_FromLong((long)why[r]));
    }
    if ((actives == NULL) || (whys == NULL)) {
        Py_XDECREF(actives);
        Py_XDECREF(whys);
        return NULL;
    }
    return Py_BuildValue("(KKKNN)", (unsigned long long)state.changes, (unsigned long long)state.number,
                         (unsigned long long)state.step, actives, whys);
}

/* mask(): its memory. */
static PyObject *e_mask(PyObject *self, PyObject *none)
{
    kvpy_obj_t           *obj = (kvpy_obj_t *)self;
    const kvcl_ep_mask_t *mask;

    (void)none;
    if (kvpy_obj_check(obj) != 0) {
        return NULL;
    }
    mask = kvcl_ep_mask(obj->handle);
    return kvpy_obj_view(obj, (void *)(uintptr_t)mask->active, mask->ranks * sizeof(mask->active[0]));
}

/* _activate(number, params, placement or None) */
static PyObject *e_activate(PyObject *self, PyObject *args)
{
    kvpy_obj_t     *obj = (kvpy_obj_t *)self;
    PyObject       *number_arg, *params, *placement, *value = NULL;
    kvpy_ep_args_t a;
    kvcl_status_t  status;
    uint64_t       number;

    if (!PyArg_ParseTuple(args, "OOO:_activate", &number_arg, &params, &placement) || (kvpy_obj_check(obj) != 0) ||
        (kvpy_u64(number_arg, "number", UINT64_MAX, &number) != 0)) {
        return NULL;
    }
    if ((kvpy_ep_params(params, &a) == 0) &&
        ((placement == Py_None) ||
         (kvpy_ep_array(placement, "placement", 0, kvpy_ep_layers(&a) * a.params.slots, 4, &a.bufs[0]) == 0))) {
        KVPY_CALL(obj, status, kvcl_ep_activate(obj->handle, number, &a.params, a.bufs[0].ptr));
        value = (status == KVCL_OK) ? kvpy_none() : kvpy_raise(status, NULL);
    }
    kvpy_ep_drop(&a);
    return value;
}

/* _choose(layer, experts, tokens, top_k, ids) */
static PyObject *e_choose(PyObject *self, PyObject *args)
{
    kvpy_obj_t    *obj = (kvpy_obj_t *)self;
    PyObject      *experts_arg, *ids_arg, *value = NULL;
    unsigned      layer, tokens, top_k;
    kvpy_buf_t    experts = {0}, ids = {0};
    kvcl_status_t status;

    if (!PyArg_ParseTuple(args, "IOIIO:_choose", &layer, &experts_arg, &tokens, &top_k, &ids_arg) ||
        (kvpy_obj_check(obj) != 0)) {
        return NULL;
    }
    if ((kvpy_ep_array(experts_arg, "experts", 0, (uint64_t)tokens * top_k, sizeof(int64_t), &experts) == 0) &&
        (kvpy_ep_array(ids_arg, "ids", KVPY_WRITE, (uint64_t)tokens * top_k, sizeof(int64_t), &ids) == 0)) {
        KVPY_CALL(obj, status, kvcl_ep_choose(obj->handle, layer, experts.ptr, tokens, top_k, ids.ptr));
        value = (status == KVCL_OK) ? kvpy_none() : kvpy_raise(status, NULL);
    }
    kvpy_buf_drop(&experts);
    kvpy_buf_drop(&ids);
    return value;
}

/* ep_renormalise(out, dtype, tokens, hidden, ids, weights, top_k, lost, hopeless) */
PyObject *kvpy_ep_renormalise(PyObject *module, PyObject *args)
{
    PyObject      *out_arg, *ids_arg, *weights_arg, *lost_arg, *hopeless_arg, *value = NULL;
    kvpy_buf_t    out = {0}, ids = {0}, weights = {0}, lost = {0}, hopeless = {0};
    unsigned      tokens, hidden, top_k;
    uint32_t      n = 0;
    kvcl_status_t status;
    int           dtype;

    (void)module;
    if (!PyArg_ParseTuple(args, "OiIIOOIOO:ep_renormalise", &out_arg, &dtype, &tokens, &hidden, &ids_arg, &weights_arg,
                          &top_k, &lost_arg, &hopeless_arg)) {
        return NULL;
    }
    if ((kvpy_ep_array(out_arg, "out", KVPY_WRITE, (uint64_t)tokens * hidden, (dtype == KVCL_DTYPE_F32) ? 4 : 2,
                       &out) == 0) &&
        (kvpy_ep_array(ids_arg, "ids", 0, (uint64_t)tokens * top_k, sizeof(int64_t), &ids) == 0) &&
        (kvpy_ep_array(weights_arg, "weights", 0, (uint64_t)tokens * top_k, sizeof(float), &weights) == 0) &&
        (kvpy_ep_array(lost_arg, "lost", 0, tokens, sizeof(float), &lost) == 0) &&
        (kvpy_ep_array(hopeless_arg, "hopeless", KVPY_WRITE, tokens, 1, &hopeless) == 0)) {
        Py_BEGIN_ALLOW_THREADS
        status = kvcl_ep_renormalise(out.ptr, (kvcl_dtype_t)dtype, tokens, hidden, ids.ptr, weights.ptr, top_k,
                                     lost.ptr, hopeless.ptr, &n);
        Py_END_ALLOW_THREADS
        value = (status == KVCL_OK) ? PyLong_FromUnsignedLong(n) : kvpy_raise(status, NULL);
    }
    kvpy_buf_drop(&out);
    kvpy_buf_drop(&ids);
    kvpy_buf_drop(&weights);
    kvpy_buf_drop(&lost);
    kvpy_buf_drop(&hopeless);
    return value;
}

PyTypeObject *kvpy_make_experts(void)
{
    static PyMethodDef methods[] = {
        {"_open", e_open, METH_VARARGS | METH_CLASS, NULL},
        {"_dispatch", e_dispatch, METH_VARARGS, NULL},
        {"_combine", e_combine, METH_VARARGS, NULL},
        {"_state", e_state, METH_NOARGS, NULL},
        {"_mask", e_mask, METH_NOARGS, NULL},
        {"_activate", e_activate, METH_VARARGS, NULL},
        {"_choose", e_choose, METH_VARARGS, NULL},
        {"close", kvpy_obj_close_py, METH_NOARGS, "close()\n\nRanks that go on without this one skip it at once."},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getset[] = {{"closed", kvpy_obj_closed_py, NULL, "Whether it was closed.", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

    return kvpy_obj_type("kvcl._kvcl.Experts", "Steps of experts.", methods, getset);
}
