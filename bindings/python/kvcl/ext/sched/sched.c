/*
 * Decisions (kvcl_sched.h) in Python: kvcl.sched.Scheduler is a subclass. A scheduler is for one thread at a time, so
 * its calls keep the GIL: they take microseconds, and do not block.
 */
#include "kvcl/ext/sched/sched.h"

#include <string.h>

enum { MODELS_MAX = 64, DECISION_TEXT = 4096 };

typedef struct kvpy_sched {
    PyObject_HEAD
    kvcl_sched_h       handle; /* NULL: closed */
    kvcl_sched_model_h models[MODELS_MAX];
    size_t             n_models;
} kvpy_sched_t;

#define INST(_member, _type)    KVPY_FIELD(kvcl_sched_inst_t, _member, _type)
#define REQ(_member, _type)     KVPY_FIELD(kvcl_sched_req_t, _member, _type)
#define DECIDED(_member, _type) KVPY_FIELD(kvcl_sched_decision_t, _member, _type)
#define TIMES(_member, _type)   KVPY_FIELD(kvcl_sched_times_t, _member, _type)
#define WAIT(_member, _type)    KVPY_FIELD(kvcl_sched_waiting_t, _member, _type)
#define MEASURED(_member, _type) KVPY_FIELD(kvcl_sched_measured_t, _member, _type)
#define N(_fields)              (sizeof(_fields) / sizeof((_fields)[0]))

/* In the order of the named tuples of sched.py. */
static const kvpy_field_t inst_fields[] = {
    INST(id, KVPY_U32), INST(role, KVPY_U32), INST(flags, KVPY_U32), INST(model, KVPY_U32), INST(age_s, KVPY_DOUBLE),
    INST(queue_s, KVPY_DOUBLE), INST(prefills, KVPY_U32), INST(waiting, KVPY_U32), INST(queued_tokens, KVPY_U64),
    INST(running, KVPY_U32), INST(pending, KVPY_U32), INST(context_tokens, KVPY_U64), INST(pending_tokens, KVPY_U64),
    INST(kv_free, KVPY_U64), INST(kv_total, KVPY_U64), INST(host, KVPY_U32), INST(rack, KVPY_U32), INST(net, KVPY_U32),
    INST(nic_bytes_s, KVPY_DOUBLE), INST(sends, KVPY_U32), INST(recvs, KVPY_U32), INST(send_bytes, KVPY_DOUBLE),
    INST(recv_bytes, KVPY_DOUBLE), INST(past_s, KVPY_DOUBLE)};
static const kvpy_field_t req_fields[] = { /* without keys */
    REQ(tokens, KVPY_U64), REQ(block_tokens, KVPY_U32), REQ(id, KVPY_U64), REQ(flags, KVPY_U32), REQ(klass, KVPY_U32),
    REQ(tries, KVPY_U32), REQ(output_tokens, KVPY_U64), REQ(output_max, KVPY_U64), REQ(weight, KVPY_DOUBLE),
    REQ(ttft_s, KVPY_DOUBLE), REQ(tbt_s, KVPY_DOUBLE), REQ(arrival_s, KVPY_DOUBLE), REQ(session, KVPY_U64),
    REQ(kv_bytes, KVPY_DOUBLE)};
static const kvpy_field_t decision_fields[] = {
    DECIDED(verdict, KVPY_U32), DECIDED(reason, KVPY_U32), DECIDED(retry_s, KVPY_DOUBLE), DECIDED(prefill, KVPY_U32),
    DECIDED(decode, KVPY_U32), DECIDED(tbt_s, KVPY_DOUBLE), DECIDED(tbt_error, KVPY_DOUBLE),
    DECIDED(busy_s, KVPY_DOUBLE), DECIDED(score, KVPY_DOUBLE), DECIDED(runner_up, KVPY_U32),
    DECIDED(left_out, KVPY_U32), DECIDED(runner_score, KVPY_DOUBLE), DECIDED(there_tokens, KVPY_U64),
    DECIDED(fetch_tokens, KVPY_U64), DECIDED(compute_tokens, KVPY_U64), DECIDED(output_tokens, KVPY_U64),
    DECIDED(stale, KVPY_U32)};
static const kvpy_field_t times_fields[] = {
    TIMES(waited_s, KVPY_DOUBLE), TIMES(queue_s, KVPY_DOUBLE), TIMES(fetch_s, KVPY_DOUBLE),
    TIMES(prefill_s, KVPY_DOUBLE), TIMES(handover_s, KVPY_DOUBLE), TIMES(load_s, KVPY_DOUBLE),
    TIMES(ttft_s, KVPY_DOUBLE), TIMES(error, KVPY_DOUBLE)};
static const kvpy_field_t run_fields[] = {
    KVPY_FIELD(kvcl_sched_run_t, first, KVPY_U32), KVPY_FIELD(kvcl_sched_run_t, blocks, KVPY_U32),
    KVPY_FIELD(kvcl_sched_run_t, plan, KVPY_U16), KVPY_FIELD(kvcl_sched_run_t, tier, KVPY_U16),
    KVPY_FIELD(kvcl_sched_run_t, flags, KVPY_U16), KVPY_FIELD(kvcl_sched_run_t, from, KVPY_U32)};
static const kvpy_field_t waiting_fields[] = {
    WAIT(id, KVPY_U64), WAIT(arrival_s, KVPY_DOUBLE), WAIT(deadline_s, KVPY_DOUBLE), WAIT(prefill_s, KVPY_DOUBLE),
    WAIT(error, KVPY_DOUBLE), WAIT(ready_s, KVPY_DOUBLE), WAIT(weight, KVPY_DOUBLE), WAIT(tokens, KVPY_U64)};
static const kvpy_field_t measured_fields[] = {
    MEASURED(id, KVPY_U64), MEASURED(prefill, KVPY_U32), MEASURED(decode, KVPY_U32), MEASURED(klass, KVPY_U32),
    MEASURED(tokens, KVPY_U64), MEASURED(cached_tokens, KVPY_U64), MEASURED(output_tokens, KVPY_U64),
    MEASURED(prefill_s, KVPY_DOUBLE), MEASURED(fetch_s, KVPY_DOUBLE), MEASURED(fetch_bytes, KVPY_DOUBLE),
    MEASURED(ttft_s, KVPY_DOUBLE), MEASURED(ttft_guess_s, KVPY_DOUBLE), MEASURED(tbt_s, KVPY_DOUBLE),
    MEASURED(batch, KVPY_DOUBLE), MEASURED(context, KVPY_DOUBLE)};

static kvpy_sched_t *open_sched(PyObject *self)
{
    kvpy_sched_t *sched = (kvpy_sched_t *)self;

    return (sched->handle != NULL) ? sched : kvpy_raise(KVCL_ERR_SHUTDOWN, "the scheduler is closed");
}

static void sched_free(kvpy_sched_t *sched)
{
    size_t i;

    kvcl_sched_destroy(sched->handle);
    sched->handle = NULL;
    for (i = 0; i < sched->n_models; ++i) {
        kvcl_sched_model_free(sched->models[i]);
    }
    sched->n_models = 0;
}

/* A model is (path or name of a shipped one,), or (name, text). */
static kvcl_status_t model_in(PyObject *item, kvcl_sched_model_h *model)
{
    const char *name, *text = NULL;
    Py_ssize_t len = 0;

    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "s|s#", &name, &text, &len)) {
        return KVCL_ERR_INVALID_PARAM;
    }
    return (text != NULL) ? kvcl_sched_model_parse(name, text, (size_t)len, model) : kvcl_sched_model_load(name, model);
}

static kvcl_status_t models_in(PyObject *seq, kvpy_sched_t *sched)
{
    Py_ssize_t    n = PyTuple_Size(seq), i;
    kvcl_status_t status = KVCL_OK;

    if (n > MODELS_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd models: at most %d", n, MODELS_MAX);
        return KVCL_ERR_INVALID_PARAM;
    }
    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        status = model_in(PyTuple_GetItem(seq, i), &sched->models[sched->n_models]);
        sched->n_models += (status == KVCL_OK);
    }
    return status;
}

/* (policy, models, (seed, max_insts, max_requests, max_blocks, max_holds)) */
static PyObject *sched_new(PyTypeObject *cls, PyObject *args, PyObject *kwargs)
{
    static const kvpy_field_t fields[] = {
        KVPY_FIELD(kvcl_sched_params_t, seed, KVPY_U64), KVPY_FIELD(kvcl_sched_params_t, max_insts, KVPY_U32),
        KVPY_FIELD(kvcl_sched_params_t, max_requests, KVPY_U32), KVPY_FIELD(kvcl_sched_params_t, max_blocks, KVPY_U32),
        KVPY_FIELD(kvcl_sched_params_t, max_holds, KVPY_U32)};
    kvcl_sched_params_t params = KVCL_SCHED_PARAMS_INIT;
    allocfunc           alloc  = (allocfunc)PyType_GetSlot(cls, Py_tp_alloc);
    PyObject            *models, *numbers;
    const char          *policy;
    kvpy_sched_t        *sched;
    kvcl_status_t       status;

    (void)kwargs;
    if (!PyArg_ParseTuple(args, "sOO:Sched", &policy, &models, &numbers) || !PyTuple_Check(models) ||
        (kvpy_fields_in(numbers, fields, N(fields), &params) != 0)) {
        return PyErr_Occurred() ? NULL : kvpy_raise(KVCL_ERR_INVALID_PARAM, "a tuple of models is needed");
    }
    sched = (kvpy_sched_t *)alloc(cls, 0);
    if (sched == NULL) {
        return NULL;
    }
    status = models_in(models, sched);
    if (status == KVCL_OK) {
        status = kvcl_sched_create(policy, sched->models, sched->n_models, &params, &sched->handle);
    }
    if (status != KVCL_OK) {
        if (!PyErr_Occurred()) {
            (void)kvpy_raise(status, NULL);
        }
        Py_DECREF(sched);
        return NULL;
    }
    return (PyObject *)sched;
}

static PyObject *sched_close(PyObject *self, PyObject *none)
{
    (void)none;
    sched_free((kvpy_sched_t *)self);
    Py_RETURN_NONE;
}

static void sched_dealloc(PyObject *self)
{
    sched_free((kvpy_sched_t *)self);
    kvpy_instance_free(self);
}

/* ---- decisions ---- */

static PyObject *run_out(const kvcl_sched_run_t *run)
{
    PyObject *numbers = kvpy_fields_out(run, run_fields, N(run_fields)), *others = PyTuple_New(run->n), *pair = NULL;
    uint16_t i;

    for (i = 0; (others != NULL) && (i < run->n) && (i < KVCL_SCHED_OTHERS); ++i) {
        PyTuple_SetItem(others, i, PyLong_FromUnsignedLong(run->inst[i]));
    }
    if ((numbers != NULL) && (others != NULL) && !PyErr_Occurred()) {
        pair = PyTuple_Pack(2, numbers, others);
    }
    Py_XDECREF(numbers);
    Py_XDECREF(others);
    return pair;
}

/* (numbers, times, runner's times, runs, text) */
static PyObject *decision_out(const kvcl_sched_decision_t *d)
{
    char     text[DECISION_TEXT];
    PyObject *runs = PyList_New((Py_ssize_t)d->n_runs), *run;
    uint32_t i;

    for (i = 0; (runs != NULL) && (i < d->n_runs); ++i) {
        run = run_out(&d->runs[i]);
        if (run == NULL) {
            Py_CLEAR(runs);
        } else {
            PyList_SetItem(runs, (Py_ssize_t)i, run);
        }
    }
    return (runs == NULL) ? NULL
                          : Py_BuildValue("(NNNNs)", kvpy_fields_out(d, decision_fields, N(decision_fields)),
                                          kvpy_fields_out(&d->times, times_fields, N(times_fields)),
                                          kvpy_fields_out(&d->runner_times, times_fields, N(times_fields)), runs,
                                          kvcl_sched_describe(d, text, sizeof(text)));
}

/* What both decisions are made of. */
typedef struct asked {
    kvcl_sched_req_t  req;
    kvcl_key_t        *keys;
    kvcl_sched_inst_t *insts;
    size_t            n_insts;
    kvcl_sched_hold_t *holds;
    size_t            n_holds;
} asked_t;

static void asked_free(asked_t *a)
{
    free(a->keys);
    free(a->insts);
    free(a->holds);
}

/* keys: keys, or a number of blocks. */
static int asked_in(asked_t *a, PyObject *req, PyObject *keys, PyObject *insts)
{
    static const kvcl_sched_inst_t inst = KVCL_SCHED_INST_INIT;
    void                           *array = NULL;
    uint64_t                       blocks;
    int                            rc;

    a->req = (kvcl_sched_req_t)KVCL_SCHED_REQ_INIT;
    if (kvpy_fields_in(req, req_fields, N(req_fields), &a->req) != 0) {
        return -1;
    }
    if (PyLong_Check(keys)) {
        if (kvpy_u64(keys, "keys", SIZE_MAX, &blocks) != 0) {
            return -1;
        }
        a->req.n_keys = (size_t)blocks;
    } else if (kvpy_keys(keys, &a->keys, &a->req.n_keys) != 0) {
        return -1;
    }
    a->req.keys = a->keys;
    rc          = kvpy_structs_in(insts, inst_fields, N(inst_fields), sizeof(inst), &inst, &array, &a->n_insts);
    a->insts    = array;
    return rc;
}

/* (now, request, keys, instances, holds) */
static PyObject *sched_decide(PyObject *self, PyObject *args)
{
    kvpy_sched_t          *sched   = open_sched(self);
    kvcl_sched_decision_t decision = {.size = sizeof(decision)};
    PyObject              *req, *keys, *insts, *holds, *value = NULL;
    asked_t               a        = {.keys = NULL};
    double                now;
    kvcl_status_t         status;

    if ((sched == NULL) || !PyArg_ParseTuple(args, "dOOOO:_decide", &now, &req, &keys, &insts, &holds)) {
        return NULL;
    }
    if ((asked_in(&a, req, keys, insts) == 0) && (kvpy_holds_in(holds, &a.holds, &a.n_holds) == 0)) {
        status = kvcl_sched_decide(sched->handle, now, &a.req, a.insts, sizeof(*a.insts), a.n_insts, a.holds, a.n_holds,
                                   &decision);
        value  = (status == KVCL_OK) ? decision_out(&decision) : kvpy_raise(status, NULL);
    }
    asked_free(&a);
    return value;
}

/* (now, request, keys, prefill, decode, instances) */
static PyObject *sched_decode(PyObject *self, PyObject *args)
{
    kvpy_sched_t          *sched   = open_sched(self);
    kvcl_sched_decision_t decision = {.size = sizeof(decision)};
    PyObject              *req, *keys, *insts, *value = NULL;
    asked_t               a        = {.keys = NULL};
    unsigned              prefill, decode;
    double                now;
    kvcl_status_t         status;

    if ((sched == NULL) || !PyArg_ParseTuple(args, "dOOIIO:_decode", &now, &req, &keys, &prefill, &decode, &insts)) {
        return NULL;
    }
    if (asked_in(&a, req, keys, insts) == 0) {
        status = kvcl_sched_decode(sched->handle, now, &a.req, prefill, decode, a.insts, sizeof(*a.insts), a.n_insts,
                                   &decision);
        value  = (status == KVCL_OK) ? decision_out(&decision) : kvpy_raise(status, NULL);
    }
    asked_free(&a);
    return value;
}

/* (now, waiting): (next or None, [late]) */
static PyObject *sched_order(PyObject *self, PyObject *args)
{
    static const kvcl_sched_waiting_t init = KVCL_SCHED_WAITING_INIT;
    kvpy_sched_t                      *sched = open_sched(self);
    PyObject                          *list, *late_list = NULL;
    void                              *waiting = NULL;
    size_t                            n, next = 0, n_late = 0, i, *late;
    double                            now;
    kvcl_status_t                     status;

    if ((sched == NULL) || !PyArg_ParseTuple(args, "dO:_order", &now, &list) ||
        (kvpy_structs_in(list, waiting_fields, N(waiting_fields), sizeof(init), &init, &waiting, &n) != 0)) {
        return NULL;
    }
    late = malloc((n + 1) * sizeof(*late));
    if (late == NULL) {
        free(waiting);
        return PyErr_NoMemory();
    }
    status = kvcl_sched_order(sched->handle, now, waiting, sizeof(init), n, &next, late, n, &n_late);
    if (status == KVCL_OK) {
        late_list = PyList_New((Py_ssize_t)n_late);
        for (i = 0; (late_list != NULL) && (i < n_late); ++i) {
            PyList_SetItem(late_list, (Py_ssize_t)i, PyLong_FromSize_t(late[i]));
        }
    } else {
        (void)kvpy_raise(status, NULL);
    }
    free(late);
    free(waiting);
    if (late_list == NULL) {
        return NULL;
    }
    return (next < n) ? Py_BuildValue("(nN)", (Py_ssize_t)next, late_list) : Py_BuildValue("(ON)", Py_None, late_list);
}

typedef kvcl_status_t (*measured_call_t)(kvcl_sched_h sched, double now_s, const kvcl_sched_measured_t *measured);

/* (what, now, measured): what 0: a prefill has ended, 1: the first token, 2: the request has ended */
static PyObject *sched_measured(PyObject *self, PyObject *args)
{
    static const measured_call_t calls[] = {kvcl_sched_prefill_done, kvcl_sched_first_token, kvcl_sched_finished};
    kvcl_sched_measured_t        measured = KVCL_SCHED_MEASURED_INIT;
    kvpy_sched_t                 *sched   = open_sched(self);
    PyObject                     *tuple;
    unsigned                     what;
    double                       now;
    kvcl_status_t                status;

    if ((sched == NULL) || !PyArg_ParseTuple(args, "IdO:_measured", &what, &now, &tuple) ||
        (kvpy_fields_in(tuple, measured_fields, N(measured_fields), &measured) != 0)) {
        return NULL;
    }
    status = (what < N(calls)) ? calls[what](sched->handle, now, &measured) : KVCL_ERR_INVALID_PARAM;
    return (status == KVCL_OK) ? kvpy_none() : kvpy_raise(status, NULL);
}

/* (now, instance) */
static PyObject *sched_gone(PyObject *self, PyObject *args)
{
    kvpy_sched_t  *sched = open_sched(self);
    unsigned      inst;
    double        now;
    kvcl_status_t status;

    if ((sched == NULL) || !PyArg_ParseTuple(args, "dI:_gone", &now, &inst)) {
        return NULL;
    }
    status = kvcl_sched_gone(sched->handle, now, inst);
    return (status == KVCL_OK) ? kvpy_none() : kvpy_raise(status, NULL);
}

static PyObject *sched_closed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((kvpy_sched_t *)self)->handle == NULL);
}

/* sched_policies(): [(name, kind, desc, source)] */
PyObject *kvpy_sched_policies(PyObject *module, PyObject *none)
{
    PyObject   *list = PyList_New(0), *row;
    const char *name, *kind, *desc, *source;
    size_t     i;

    (void)module;
    (void)none;
    for (i = 0; (list != NULL) && (kvcl_sched_policies(i, &name, &kind, &desc, &source) == KVCL_OK); ++i) {
        row = Py_BuildValue("(ssss)", name, kind, desc, source);
        if ((row == NULL) || (PyList_Append(list, row) != 0)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    return list;
}

/* sched_model(model): (name, source, prefill error, decode error, transfer error, kv_bytes) */
PyObject *kvpy_sched_model(PyObject *module, PyObject *arg)
{
    kvcl_sched_model_info_t info = KVCL_SCHED_MODEL_INFO_INIT;
    kvcl_sched_model_h      model;
    PyObject                *value;
    kvcl_status_t           status = model_in(arg, &model);

    (void)module;
    if (status != KVCL_OK) {
        return PyErr_Occurred() ? NULL : kvpy_raise(status, NULL);
    }
    status = kvcl_sched_model_info(model, &info);
    value  = (status == KVCL_OK)
                 ? Py_BuildValue("(ssdddd)", kvcl_sched_model_name(model), kvcl_sched_model_source(model),
                                 info.prefill_error, info.decode_error, info.transfer_error, info.kv_bytes)
                 : kvpy_raise(status, NULL);
    kvcl_sched_model_free(model);
    return value;
}

/* sched_times(model, n, cached, batch, context): ((prefill seconds, error), (decode seconds, error)) */
PyObject *kvpy_sched_times(PyObject *module, PyObject *args)
{
    kvcl_sched_guess_t prefill, decode;
    kvcl_sched_model_h model;
    PyObject           *arg;
    double             n, cached, batch, context;
    kvcl_status_t      status;

    (void)module;
    if (!PyArg_ParseTuple(args, "Odddd:sched_times", &arg, &n, &cached, &batch, &context)) {
        return NULL;
    }
    status = model_in(arg, &model);
    if (status != KVCL_OK) {
        return PyErr_Occurred() ? NULL : kvpy_raise(status, NULL);
    }
    prefill = kvcl_sched_model_prefill(model, n, cached);
    decode  = kvcl_sched_model_decode(model, batch, context);
    kvcl_sched_model_free(model);
    return Py_BuildValue("((dd)(dd))", prefill.seconds, prefill.error, decode.seconds, decode.error);
}

PyTypeObject *kvpy_make_sched(void)
{
    static PyMethodDef methods[] = {
        {"_decide", sched_decide, METH_VARARGS, "_decide(now, request, keys, instances, holds)"},
        {"_decode", sched_decode, METH_VARARGS, "_decode(now, request, keys, prefill, decode, instances)"},
        {"_order", sched_order, METH_VARARGS, "_order(now, waiting)"},
        {"_measured", sched_measured, METH_VARARGS, "_measured(what, now, measured)"},
        {"_gone", sched_gone, METH_VARARGS, "_gone(now, instance)"},
        {"close", sched_close, METH_NOARGS, "Free it."},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getset[] = {
        {"closed", sched_closed, NULL, "Whether it was closed.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)(uintptr_t)"Where requests run."},
        {Py_tp_dealloc, (void *)sched_dealloc},
        {Py_tp_new, (void *)sched_new},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {0, NULL}};
    static PyType_Spec spec = {"kvcl._kvcl.Sched", sizeof(kvpy_sched_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               slots};

    return (PyTypeObject *)PyType_FromSpec(&spec);
}
