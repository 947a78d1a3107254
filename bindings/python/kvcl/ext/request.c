/*
 * Request: waits for operations (op.c), and the Python view of them.
 */
#include "kvcl/ext/ext.h"

enum { SLICE_NS = 50000000 }; /* slice of a wait, between checks for signals */

PyTypeObject *kvpy_request_type;

static bool is_final(const kvpy_op_t *op)
{
    return (op == NULL) || (op->status != KVCL_INPROGRESS);
}

/* @return 1 done, 0 not yet, -1 exception. */
static int wait_for(kvpy_request_t *self, uint64_t timeout_ns)
{
    uint64_t now = kvpy_now_ns(), until = now + timeout_ns, left;

    while (!is_final(self->op)) {
        left = (until > now) ? until - now : 1;
        left = (left > SLICE_NS) ? SLICE_NS : left;
        if (self->op->busy) {
            kvpy_nap((left < KVPY_NAP_NS) ? left : KVPY_NAP_NS);
        } else if (kvpy_op_wait(self->op, left)) {
            break;
        } else if (self->op->wanted) {
            self->op->wanted = false;
            kvpy_nap(2 * KVPY_NAP_NS);
        }
        if (PyErr_CheckSignals() != 0) {
            return -1;
        }
        now = kvpy_now_ns();
        if (now >= until) {
            break;
        }
    }
    return is_final(self->op) ? 1 : 0;
}

/* ---- several ---- */

typedef struct set {
    size_t     n;
    kvpy_op_t  **ops;  /* the requests this thread holds (busy), else NULL */
    kvcl_req_h *reqs;
} set_t;

/* Check that all are Requests of one context. @return the index of a finished one, else n; -1 with an exception. */
static Py_ssize_t find_final(PyObject *tuple)
{
    Py_ssize_t n = PyTuple_Size(tuple), i;
    kvpy_ctx_t *ctx = NULL;

    for (i = 0; i < n; ++i) {
        PyObject  *item = PyTuple_GetItem(tuple, i);
        kvpy_op_t *op   = PyObject_TypeCheck(item, kvpy_request_type) ? ((kvpy_request_t *)item)->op : NULL;
        if (!PyObject_TypeCheck(item, kvpy_request_type)) {
            PyErr_SetString(PyExc_TypeError, "Requests are needed");
            return -1;
        }
        if (is_final(op)) {
            return i;
        }
        if ((ctx != NULL) && (op->ctx != ctx)) {
            PyErr_SetString(PyExc_ValueError, "the requests belong to different contexts");
            return -1;
        }
        ctx = op->ctx;
    }
    return n;
}

/* Wait a slice for any request that no other thread holds. */
static void any_slice(PyObject *tuple, set_t *set, uint64_t ns)
{
    size_t        index = set->n, held = 0, i;
    kvcl_status_t status;

    for (i = 0; i < set->n; ++i) {
        kvpy_op_t *op = ((kvpy_request_t *)PyTuple_GetItem(tuple, (Py_ssize_t)i))->op;
        bool      polled = op->layerwise || (op->queue != NULL);
        bool      out = op->busy || polled;
        set->ops[i]   = out ? NULL : op;
        set->reqs[i]  = out ? NULL : op->req;
        if (polled && !op->busy && kvpy_op_poll(op)) {
            ns = 0; /* one has finished */
        }
        if (set->ops[i] != NULL) {
            op->busy = true;
            ++held;
        }
    }
    if ((held == 0) || (ns == 0)) {
        for (i = 0; i < set->n; ++i) {
            if (set->ops[i] != NULL) {
                set->ops[i]->busy = false;
            }
        }
        kvpy_nap((ns < KVPY_NAP_NS) ? ns : KVPY_NAP_NS);
        return;
    }
    ns = (held < set->n) ? KVPY_NAP_NS : ns;
    Py_BEGIN_ALLOW_THREADS
    status = kvcl_req_wait_any(set->reqs, set->n, ns, &index);
    Py_END_ALLOW_THREADS
    for (i = 0; i < set->n; ++i) {
        if (set->ops[i] != NULL) {
            set->ops[i]->busy = false;
        }
    }
    if ((status != KVCL_ERR_WAIT_TIMEOUT) && (index < set->n)) {
        kvpy_op_finish(set->ops[index], status);
    }
    for (i = 0; i < set->n; ++i) { /* as kvpy_op_wait() does at its end; their Requests are alive */
        if ((set->ops[i] != NULL) && !is_final(set->ops[i]) && !set->ops[i]->busy) {
            if (set->ops[i]->cancel) {
                set->ops[i]->cancel = false;
                kvpy_op_cancel(set->ops[i]);
            } else if (set->ops[i]->self->callbacks != NULL) {
                (void)kvpy_op_poll(set->ops[i]);
            }
        }
    }
}

PyObject *kvpy_wait_any(PyObject *module, PyObject *args)
{
    uint64_t   now = kvpy_now_ns(), until, left, ns;
    PyObject   *tuple, *timeout;
    Py_ssize_t found;
    set_t      set;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!O:wait_any", &PyTuple_Type, &tuple, &timeout) || (kvpy_timeout(timeout, &ns) != 0)) {
        return NULL;
    }
    until    = now + ((timeout == Py_None) ? UINT64_MAX / 2 : ns);
    set.n    = (size_t)PyTuple_Size(tuple);
    set.ops  = calloc(set.n + 1, sizeof(*set.ops));
    set.reqs = calloc(set.n + 1, sizeof(*set.reqs));
    if (set.n == 0) {
        PyErr_SetString(PyExc_ValueError, "wait_any of no requests");
    } else if ((set.ops == NULL) || (set.reqs == NULL)) {
        PyErr_NoMemory();
    }
    found = PyErr_Occurred() ? -1 : find_final(tuple);
    while ((found == (Py_ssize_t)set.n) && (now < until)) {
        left = until - now;
        any_slice(tuple, &set, (left > SLICE_NS) ? SLICE_NS : left);
        found = (PyErr_CheckSignals() != 0) ? -1 : find_final(tuple);
        now   = kvpy_now_ns();
    }
    free(set.ops);
    free(set.reqs);
    if (found == (Py_ssize_t)set.n) {
        return kvpy_raise(KVCL_ERR_WAIT_TIMEOUT, "none of the requests has completed; they go on");
    }
    return (found < 0) ? NULL : PyLong_FromSsize_t(found);
}

/* ---- the type ---- */

static PyObject *raise_failed(kvpy_op_t *op)
{
    char text[256];

    if (op->why != NULL) { /* it names the call, and what to do */
        return kvpy_raise(op->status, op->why);
    }
    (void)PyOS_snprintf(text, sizeof(text), "%s: %s", op->what, kvcl_status_text(op->status));
    return kvpy_raise(op->status, text);
}

/* The result of a finished request. */
static PyObject *outcome(kvpy_request_t *self)
{
    kvpy_op_t *op = self->op;
    PyObject  *given;

    if (op == NULL) {
        Py_RETURN_NONE;
    }
    if (op->status == KVCL_INPROGRESS) {
        return kvpy_raise(KVCL_INPROGRESS, "the request is still in flight; it goes on");
    }
    given = (op->give != NULL) ? op->give(op) : NULL;
    if ((given != NULL) || PyErr_Occurred()) {
        return given;
    }
    if (op->status < 0) {
        return raise_failed(op);
    }
    if (op->result != NULL) {
        Py_INCREF(op->result);
        return op->result;
    }
    if (op->has_info) {
        return Py_BuildValue("(iKK)", op->info.source, (unsigned long long)op->info.tag,
                             (unsigned long long)op->info.bytes);
    }
    Py_RETURN_NONE;
}

static PyObject *request_wait(PyObject *self, PyObject *args)
{
    PyObject *timeout = Py_None;
    uint64_t ns;
    int      done;

    if (!PyArg_ParseTuple(args, "|O:_wait", &timeout) || (kvpy_timeout(timeout, &ns) != 0)) {
        return NULL;
    }
    done = wait_for((kvpy_request_t *)self, (timeout == Py_None) ? UINT64_MAX / 2 : ns);
    if (done == 0) {
        return kvpy_raise(KVCL_ERR_WAIT_TIMEOUT, "the request is still in flight; it goes on");
    }
    return (done < 0) ? NULL : outcome((kvpy_request_t *)self);
}

static PyObject *request_result(PyObject *self, PyObject *none)
{
    (void)none;
    return outcome((kvpy_request_t *)self);
}

static PyObject *request_done(PyObject *self, PyObject *none)
{
    kvpy_op_t *op = ((kvpy_request_t *)self)->op;

    (void)none;
    return PyBool_FromLong(is_final(op) || (!op->busy && kvpy_op_poll(op)));
}

static int layer_arg(PyObject *arg, uint32_t *layer_p)
{
    uint64_t value;

    if (kvpy_u64(arg, "layer", UINT32_MAX, &value) != 0) {
        return -1;
    }
    *layer_p = (uint32_t)value;
    return 0;
}

static PyObject *request_layer_ready(PyObject *self, PyObject *arg)
{
    kvpy_op_t     *op = ((kvpy_request_t *)self)->op;
    kvcl_status_t status;
    uint32_t      layer;

    if (layer_arg(arg, &layer) != 0) {
        return NULL;
    }
    if ((op == NULL) || !op->layerwise) {
        PyErr_SetString(PyExc_ValueError, "the request is no send with layerwise=True");
        return NULL;
    }
    if (is_final(op)) {
        return outcome((kvpy_request_t *)self);
    }
    status = kvcl_req_layer_ready(op->req, layer); /* no thread collects it without the GIL */
    if (status < 0) {
        return kvpy_raise(status, NULL);
    }
    Py_RETURN_NONE;
}

/* @return 1: the layer has arrived, 0: not yet, -1: exception. */
static int wait_for_layer(kvpy_request_t *self, uint32_t layer, uint64_t timeout_ns)
{
    uint64_t      now = kvpy_now_ns(), until = now + timeout_ns, left;
    kvcl_status_t status = KVCL_INPROGRESS;

    while (!is_final(self->op)) {
        kvpy_op_t *op = self->op;

        left = (until > now) ? until - now : 1;
        left = (left > SLICE_NS) ? SLICE_NS : left;
        if (op->busy) {
            op->wanted = true;
            kvpy_nap((left < KVPY_NAP_NS) ? left : KVPY_NAP_NS);
        } else {
            op->busy = true;
            Py_BEGIN_ALLOW_THREADS
            status = kvcl_req_layer_wait(op->req, layer, left);
            Py_END_ALLOW_THREADS
            op->busy = false;
            if (op->cancel) {
                op->cancel = false;
                kvpy_op_cancel(op);
            }
            if (status == KVCL_OK) {
                return 1;
            }
            if (status == KVCL_ERR_OUT_OF_RANGE) {
                (void)kvpy_raise(status, NULL);
                return -1;
            }
            if ((status < 0) && (status != KVCL_ERR_WAIT_TIMEOUT)) {
                (void)kvpy_op_poll(op);
            }
        }
        if (PyErr_CheckSignals() != 0) {
            return -1;
        }
        now = kvpy_now_ns();
        if (now >= until) {
            break;
        }
    }
    return is_final(self->op) ? 1 : 0;
}

/* Of a finished request. @return 0, or -1 with its exception set. */
static int how_it_ended(kvpy_request_t *self)
{
    PyObject *end = outcome(self);

    Py_XDECREF(end);
    return (end != NULL) ? 0 : -1;
}

/* _layer_test(layer): whether it has arrived; None: another thread is inside the library with the request. */
static PyObject *request_layer_test(PyObject *self, PyObject *arg)
{
    kvpy_op_t     *op = ((kvpy_request_t *)self)->op;
    kvcl_status_t status;
    uint32_t      layer;

    if (layer_arg(arg, &layer) != 0) {
        return NULL;
    }
    if ((op != NULL) && (op->queue != NULL) && !is_final(op)) {
        PyErr_SetString(PyExc_ValueError, "the request was posted with a Queue: wait for all of it");
        return NULL;
    }
    if (!is_final(op) && op->busy) {
        op->wanted = true;
        Py_RETURN_NONE;
    }
    if (!is_final(op)) {
        status = kvpy_op_layer(op, layer);
        if ((status == KVCL_OK) || (status == KVCL_INPROGRESS)) {
            return PyBool_FromLong(status == KVCL_OK);
        }
        if ((status == KVCL_ERR_OUT_OF_RANGE) || !kvpy_op_poll(op)) {
            return kvpy_raise(status, NULL);
        }
    }
    return (how_it_ended((kvpy_request_t *)self) == 0) ? PyBool_FromLong(1) : NULL;
}

static PyObject *request_layer_wait(PyObject *self, PyObject *args)
{
    PyObject *layer_obj, *timeout = Py_None;
    uint64_t ns;
    uint32_t layer;
    int      here;

    if (!PyArg_ParseTuple(args, "O|O:_layer_wait", &layer_obj, &timeout) || (kvpy_timeout(timeout, &ns) != 0) ||
        (layer_arg(layer_obj, &layer) != 0)) {
        return NULL;
    }
    if ((((kvpy_request_t *)self)->op != NULL) && (((kvpy_request_t *)self)->op->queue != NULL)) {
        PyErr_SetString(PyExc_ValueError, "the request was posted with a Queue: wait for all of it");
        return NULL;
    }
    here = wait_for_layer((kvpy_request_t *)self, layer, (timeout == Py_None) ? UINT64_MAX / 2 : ns);
    if (here == 0) {
        return kvpy_raise(KVCL_ERR_WAIT_TIMEOUT, "the layer has not come yet; the request goes on");
    }
    if ((here < 0) || (is_final(((kvpy_request_t *)self)->op) && (how_it_ended((kvpy_request_t *)self) != 0))) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *request_cancel(PyObject *self, PyObject *none)
{
    kvpy_op_t *op = ((kvpy_request_t *)self)->op;

    (void)none;
    if (!is_final(op)) {
        kvpy_op_cancel(op);
    }
    Py_RETURN_NONE;
}

static PyObject *request_when_done(PyObject *self, PyObject *fn)
{
    kvpy_request_t *request = (kvpy_request_t *)self;

    if (!PyCallable_Check(fn)) {
        PyErr_SetString(PyExc_TypeError, "a function is needed");
        return NULL;
    }
    if (request->callbacks == NULL) {
        request->callbacks = PyList_New(0);
    }
    if ((request->callbacks == NULL) || (PyList_Append(request->callbacks, fn) != 0)) {
        return NULL;
    }
    if (is_final(request->op)) {
        kvpy_request_report(request);
    }
    Py_RETURN_NONE;
}

static PyObject *request_copies(PyObject *self, PyObject *none)
{
    kvpy_op_t *op = ((kvpy_request_t *)self)->op;

    (void)none;
    if ((op == NULL) || (op->copies == NULL) || !is_final(op)) {
        Py_RETURN_NONE;
    }
    return PyBytes_FromStringAndSize((const char *)op->copies, (Py_ssize_t)op->n_copies);
}

static PyObject *request_statuses(PyObject *self, PyObject *none)
{
    kvpy_op_t *op = ((kvpy_request_t *)self)->op;

    (void)none;
    if ((op == NULL) || (op->blocks == NULL) || !is_final(op)) {
        Py_RETURN_NONE;
    }
    return PyBytes_FromStringAndSize((const char *)op->blocks, (Py_ssize_t)(op->n_blocks * sizeof(*op->blocks)));
}

static PyObject *request_status(PyObject *self, void *closure)
{
    kvpy_op_t *op = ((kvpy_request_t *)self)->op;

    (void)closure;
    return PyLong_FromLong((op == NULL) ? KVCL_OK : (long)op->status);
}

static PyObject *request_context(PyObject *self, void *closure)
{
    kvpy_op_t *op  = ((kvpy_request_t *)self)->op;
    PyObject  *ctx = ((op == NULL) || (op->ctx == NULL)) ? Py_None : (PyObject *)op->ctx;

    (void)closure;
    Py_INCREF(ctx);
    return ctx;
}

static void request_dealloc(PyObject *self)
{
    kvpy_request_t *request = (kvpy_request_t *)self;
    kvpy_op_t      *op      = request->op;

    Py_CLEAR(request->callbacks);
    Py_CLEAR(request->queue);
    Py_CLEAR(request->tag);
    if (op != NULL) {
        op->self = NULL;
        if (is_final(op)) {
            kvpy_op_free(op);
        } else {
            kvpy_link_del(&op->link);
            kvpy_link_add(&op->ctx->dropped, &op->link);
        }
    }
    kvpy_instance_free(self);
}

static PyObject *request_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *self = PyType_GenericNew(type, args, kwargs);

    if (self != NULL) {
        kvpy_queue_note((kvpy_request_t *)self);
    }
    return self;
}

PyMethodDef kvpy_request_methods[] = {
    {"_wait", request_wait, METH_VARARGS, "_wait(timeout=None): wait, then the result; WaitTimeout if it goes on."},
    {"_result", request_result, METH_NOARGS, "The result of a finished request, or its exception."},
    {"done", request_done, METH_NOARGS, "Whether it has completed, well or not. Never blocks, never raises its error."},
    {"layer_ready", request_layer_ready, METH_O,
     "Of a send with layerwise=True: this layer's bytes are in place. Any order, any thread; costs next to nothing."},
    {"_layer_test", request_layer_test, METH_O, "_layer_test(layer): whether it has arrived; None: ask again."},
    {"_layer_wait", request_layer_wait, METH_VARARGS, "_layer_wait(layer, timeout=None): until that layer is here."},
    {"cancel", request_cancel, METH_NOARGS,
     "Ask the operation to stop. Completion still comes, usually with Canceled; after it nothing touches the buffers."},
    {"_when_done", request_when_done, METH_O, "Call a function with the request once it has completed."},
    {"_copies", request_copies, METH_NOARGS, "Of a put into a store, the copies of each, a byte each, or None."},
    {"_statuses", request_statuses, METH_NOARGS, "A status for each block, a C int each, or None."},
    {NULL, NULL, 0, NULL}};

PyTypeObject *kvpy_make_request(void)
{
    static PyGetSetDef getset[] = {
        {"_status", request_status, NULL, "The status as a number.", NULL},
        {"_context", request_context, NULL, "The context while in flight, else None.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)(uintptr_t)"Something in flight."},
        {Py_tp_dealloc, (void *)request_dealloc},
        {Py_tp_new, (void *)request_new},
        {Py_tp_methods, kvpy_request_methods},
        {Py_tp_getset, getset},
        {0, NULL}};
    static PyType_Spec spec = {"kvcl._kvcl.Request", sizeof(kvpy_request_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

    return (PyTypeObject *)PyType_FromSpec(&spec);
}
