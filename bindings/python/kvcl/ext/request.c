/*
 * Operations in flight and the Requests that stand for them.
 *
 * A kvcl_req_h is collected once, by one thread at a time: op->busy says that a thread is inside the library with it;
 * others sleep until it is back. Waiting goes in slices, between which signals are handled (Ctrl-C) and a cancel from
 * another thread is passed on.
 *
 * A Request dropped while in flight is detached: its operation goes on, to its own deadline at most; its objects and
 * buffers are held until then (ctx->dropped), and collected by a later call on the context.
 */
#include "kvcl/ext/ext.h"

#include <string.h>
#include <time.h>

enum {
    SLICE_NS   = 50000000, /* of a wait */
    NAP_NS     = 1000000,  /* while another thread waits for the same request */
    STOP_SLICE = 100000000
};

PyTypeObject *kvpy_request_type;

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void nap(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    Py_BEGIN_ALLOW_THREADS
    nanosleep(&ts, NULL);
    Py_END_ALLOW_THREADS
}

/* ---- making one ---- */

kvpy_op_t *kvpy_op_new(PyObject *request, const char *what, kvpy_obj_t *owner, PyObject *timeout,
                       kvcl_xfer_params_t *params)
{
    kvpy_request_t *self = (kvpy_request_t *)request;
    kvpy_op_t      *op;
    uint64_t       ns;

    if (!PyObject_TypeCheck(request, kvpy_request_type)) {
        PyErr_SetString(PyExc_TypeError, "a Request is needed");
        return NULL;
    }
    if ((kvpy_obj_check(owner) != 0) || (kvpy_timeout(timeout, &ns) != 0)) {
        return NULL;
    }
    kvpy_ops_reap(owner->ctx);
    if (self->op != NULL) {
        PyErr_SetString(PyExc_ValueError, "the Request carries an operation already");
        return NULL;
    }
    op = PyMem_RawCalloc(1, sizeof(*op));
    if (op == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    kvpy_link_init(&op->link);
    op->what   = what;
    op->status = KVCL_INPROGRESS;
    op->busy   = true; /* until posted */
    op->ctx    = owner->ctx;
    Py_INCREF(op->ctx);
    ++op->ctx->users;
    op->self = self;
    self->op = op; /* a second post on it is refused from here on */
    kvpy_op_keep(op, owner);
    *params            = (kvcl_xfer_params_t)KVCL_XFER_PARAMS_INIT;
    params->timeout_ns = ns;
    return op;
}

void kvpy_op_keep(kvpy_op_t *op, kvpy_obj_t *obj)
{
    Py_INCREF(obj);
    ++obj->users;
    op->keeps[(op->keeps[0] == NULL) ? 0 : 1] = obj;
}

int kvpy_op_statuses(kvpy_op_t *op, size_t n, kvcl_xfer_params_t *params)
{
    size_t i;

    op->blocks = PyMem_RawMalloc((n + 1) * sizeof(*op->blocks));
    if (op->blocks == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (i = 0; i < n; ++i) {
        op->blocks[i] = KVCL_INPROGRESS;
    }
    op->n_blocks   = n;
    params->status = op->blocks;
    return 0;
}

/* Let go of what the operation used. May run any Python code. */
static void release(kvpy_op_t *op)
{
    kvpy_obj_t *keeps[2] = {op->keeps[0], op->keeps[1]};
    kvpy_ctx_t *ctx      = op->ctx;
    unsigned   i;

    op->keeps[0] = op->keeps[1] = NULL;
    op->ctx      = NULL;
    for (i = 0; i < 2; ++i) {
        kvpy_buf_drop(&op->bufs[i]);
    }
    for (i = 0; i < 2; ++i) {
        if (keeps[i] != NULL) {
            --keeps[i]->users;
        }
    }
    if (ctx != NULL) {
        --ctx->users;
    }
    for (i = 0; i < 2; ++i) {
        Py_XDECREF(keeps[i]);
    }
    Py_XDECREF(ctx);
}

void kvpy_op_free(kvpy_op_t *op)
{
    if (op->self != NULL) {
        op->self->op = NULL;
    }
    release(op);
    Py_XDECREF(op->result);
    PyMem_RawFree(op->blocks);
    PyMem_RawFree(op);
}

/* ---- the end of one ---- */

static void run_callbacks(kvpy_request_t *self)
{
    PyObject   *list = self->callbacks;
    Py_ssize_t i;

    self->callbacks = NULL;
    for (i = 0; (list != NULL) && (i < PyList_Size(list)); ++i) {
        PyObject *fn     = PyList_GetItem(list, i);
        PyObject *result = PyObject_CallFunctionObjArgs(fn, (PyObject *)self, NULL);
        if (result == NULL) {
            PyErr_WriteUnraisable(fn);
        }
        Py_XDECREF(result);
    }
    Py_XDECREF(list);
}

/* The library has freed op->req. Frees op if its Request is gone. */
static void finish(kvpy_op_t *op, kvcl_status_t status)
{
    kvpy_request_t *self = op->self;

    op->req    = NULL;
    op->status = status;
    kvpy_link_del(&op->link);
    if (self == NULL) {
        kvpy_op_free(op);
        return;
    }
    Py_INCREF(self);
    release(op);
    run_callbacks(self);
    Py_DECREF(self);
}

/* Ask once. Not busy. @return whether it has finished; op may be gone then. */
static bool poll_op(kvpy_op_t *op)
{
    kvcl_req_h    req = op->req;
    kvcl_status_t status;

    if (op->ctx->oob.set != NULL) { /* a step of progress may need the store's Python code, and another thread's GIL */
        op->busy = true;
        Py_BEGIN_ALLOW_THREADS
        status = kvcl_req_test(req);
        Py_END_ALLOW_THREADS
        op->busy = false;
    } else {
        status = kvcl_req_test(req);
    }
    if (status == KVCL_INPROGRESS) {
        return false;
    }
    finish(op, status);
    return true;
}

static void cancel_op(kvpy_op_t *op)
{
    kvcl_req_h req = op->req;

    if (op->busy) {
        op->cancel = true;
        return;
    }
    op->busy = true;
    Py_BEGIN_ALLOW_THREADS
    kvcl_req_cancel(req);
    Py_END_ALLOW_THREADS
    op->busy = false;
}

PyObject *kvpy_op_posted(kvpy_op_t *op, kvcl_status_t status)
{
    PyObject *self = (PyObject *)op->self;

    if (status < 0) {
        (void)kvpy_raise(status, NULL);
        kvpy_op_free(op);
        return NULL;
    }
    Py_INCREF(self);
    op->busy = false;
    kvpy_link_add(&op->ctx->ops, &op->link);
    if (op->cancel) {
        op->cancel = false;
        cancel_op(op);
    }
    return self;
}

/* A slice of waiting. Not busy. @return whether it has finished; op may be gone then. */
static bool wait_slice(kvpy_op_t *op, uint64_t ns)
{
    kvcl_req_h    req = op->req;
    kvcl_status_t status;

    op->busy = true;
    Py_BEGIN_ALLOW_THREADS
    status = kvcl_req_wait(req, ns);
    Py_END_ALLOW_THREADS
    op->busy = false;
    if (status != KVCL_INPROGRESS) {
        finish(op, status);
        return true;
    }
    if (op->cancel) {
        op->cancel = false;
        cancel_op(op);
    }
    /* Somebody who is told of completions may have looked in vain while we held the request. */
    return (op->self != NULL) && (op->self->callbacks != NULL) && !op->busy && poll_op(op);
}

bool kvpy_ops_reap(kvpy_ctx_t *ctx)
{
    unsigned left = 16;

    while ((left-- > 0) && (ctx->dropped.next != &ctx->dropped)) {
        kvpy_op_t *op = KVPY_OF(ctx->dropped.next, kvpy_op_t, link);
        kvpy_link_del(&op->link); /* to the end: the others' turn */
        kvpy_link_add(&ctx->dropped, &op->link);
        if (!op->busy && poll_op(op)) {
            return true;
        }
    }
    return false;
}

unsigned kvpy_ops_stop(kvpy_ctx_t *ctx)
{
    uint64_t    until = now_ns() + 5000000000u;
    unsigned    left;
    kvpy_link_t *link;
    kvpy_op_t   *op;

    for (;;) {
        left = 0;
        op   = NULL;
        while (ctx->dropped.next != &ctx->dropped) {
            link = ctx->dropped.next;
            kvpy_link_del(link);
            kvpy_link_add(&ctx->ops, link);
        }
        for (link = ctx->ops.next; link != &ctx->ops; link = link->next) {
            kvpy_op_t *at = KVPY_OF(link, kvpy_op_t, link);
            ++left;
            op = ((op == NULL) && !at->busy) ? at : op;
            at->cancel = true;
        }
        if ((left == 0) || (now_ns() > until)) {
            return left;
        }
        if (op == NULL) {
            nap(NAP_NS); /* all are in the hands of other threads, who will see op->cancel */
            continue;
        }
        op->cancel = false;
        cancel_op(op);
        if (!wait_slice(op, STOP_SLICE)) {
            kvpy_link_del(&op->link);
            kvpy_link_add(&ctx->ops, &op->link);
        }
    }
}

/* ---- Request ---- */

static bool is_final(const kvpy_op_t *op)
{
    return (op == NULL) || (op->status != KVCL_INPROGRESS);
}

/* @return 1 done, 0 not yet, -1 exception. */
static int wait_for(kvpy_request_t *self, uint64_t timeout_ns)
{
    uint64_t now = now_ns(), until = now + timeout_ns, left;

    while (!is_final(self->op)) {
        left = (until > now) ? until - now : 1;
        left = (left > SLICE_NS) ? SLICE_NS : left;
        if (self->op->busy) {
            nap((left < NAP_NS) ? left : NAP_NS);
        } else if (wait_slice(self->op, left)) {
            break;
        }
        if (PyErr_CheckSignals() != 0) {
            return -1;
        }
        now = now_ns();
        if (now >= until) {
            break;
        }
    }
    return is_final(self->op) ? 1 : 0;
}

/* ---- several ---- */

typedef struct set {
    size_t     n;
    kvpy_op_t  **ops;  /* those we hold (busy), else NULL */
    kvcl_req_h *reqs;
} set_t;

/* The index of a finished one, else n; and check that all are Requests of one context. -1 with an exception. */
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

/* Wait a slice for any of those that no other thread holds. */
static void any_slice(PyObject *tuple, set_t *set, uint64_t ns)
{
    size_t        index = set->n, held = 0, i;
    kvcl_status_t status = KVCL_INPROGRESS;

    for (i = 0; i < set->n; ++i) {
        kvpy_op_t *op = ((kvpy_request_t *)PyTuple_GetItem(tuple, (Py_ssize_t)i))->op;
        set->ops[i]   = op->busy ? NULL : op;
        set->reqs[i]  = op->busy ? NULL : op->req;
        if (set->ops[i] != NULL) {
            op->busy = true;
            ++held;
        }
    }
    if (held == 0) {
        nap((ns < NAP_NS) ? ns : NAP_NS);
        return;
    }
    ns = (held < set->n) ? NAP_NS : ns;
    Py_BEGIN_ALLOW_THREADS
    status = kvcl_req_wait_any(set->reqs, set->n, ns, &index);
    Py_END_ALLOW_THREADS
    for (i = 0; i < set->n; ++i) {
        if (set->ops[i] != NULL) {
            set->ops[i]->busy = false;
        }
    }
    if ((status != KVCL_INPROGRESS) && (index < set->n)) {
        finish(set->ops[index], status);
    }
    for (i = 0; i < set->n; ++i) { /* what wait_slice() does at its end; their Requests are alive */
        if ((set->ops[i] != NULL) && !is_final(set->ops[i]) && !set->ops[i]->busy) {
            if (set->ops[i]->cancel) {
                set->ops[i]->cancel = false;
                cancel_op(set->ops[i]);
            } else if (set->ops[i]->self->callbacks != NULL) {
                (void)poll_op(set->ops[i]);
            }
        }
    }
}

PyObject *kvpy_wait_any(PyObject *module, PyObject *args)
{
    uint64_t   now = now_ns(), until, left, ns;
    PyObject   *tuple, *timeout;
    Py_ssize_t found;
    set_t      set;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!O:wait_any", &PyTuple_Type, &tuple, &timeout) || (kvpy_timeout(timeout, &ns) != 0)) {
        return NULL;
    }
    until    = now + ((timeout == Py_None) ? UINT64_MAX / 2 : ns);
    set.n    = (size_t)PyTuple_Size(tuple);
    set.ops  = PyMem_RawCalloc(set.n + 1, sizeof(*set.ops));
    set.reqs = PyMem_RawCalloc(set.n + 1, sizeof(*set.reqs));
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
        now   = now_ns();
    }
    PyMem_RawFree(set.ops);
    PyMem_RawFree(set.reqs);
    if (found == (Py_ssize_t)set.n) {
        return kvpy_raise(KVCL_INPROGRESS, "none of the requests has completed; they go on");
    }
    return (found < 0) ? NULL : PyLong_FromSsize_t(found);
}

/* ---- the type ---- */

static PyObject *raise_failed(kvpy_op_t *op)
{
    char text[160];

    (void)PyOS_snprintf(text, sizeof(text), "%s: %s", op->what, kvcl_status_text(op->status));
    return kvpy_raise(op->status, text);
}

/* What a finished one gives. */
static PyObject *outcome(kvpy_request_t *self)
{
    kvpy_op_t *op = self->op;

    if (op == NULL) {
        Py_RETURN_NONE;
    }
    if (op->status == KVCL_INPROGRESS) {
        return kvpy_raise(KVCL_INPROGRESS, "the request is still in flight; it goes on");
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
    return PyBool_FromLong(is_final(op) || (!op->busy && poll_op(op)));
}

static PyObject *request_cancel(PyObject *self, PyObject *none)
{
    kvpy_op_t *op = ((kvpy_request_t *)self)->op;

    (void)none;
    if (!is_final(op)) {
        cancel_op(op);
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
        run_callbacks(request);
    }
    Py_RETURN_NONE;
}

static PyObject *request_statuses(PyObject *self, PyObject *none)
{
    kvpy_op_t *op = ((kvpy_request_t *)self)->op;
    PyObject  *tuple;
    size_t    i;

    (void)none;
    if ((op == NULL) || (op->blocks == NULL) || !is_final(op)) {
        Py_RETURN_NONE;
    }
    tuple = PyTuple_New((Py_ssize_t)op->n_blocks);
    for (i = 0; (tuple != NULL) && (i < op->n_blocks); ++i) {
        PyObject *number = PyLong_FromLong((long)op->blocks[i]);
        if (number == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SetItem(tuple, (Py_ssize_t)i, number);
        }
    }
    return tuple;
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
    PyTypeObject   *type    = Py_TYPE(self);

    Py_CLEAR(request->callbacks);
    if (op != NULL) {
        op->self = NULL;
        if (is_final(op)) {
            kvpy_op_free(op);
        } else {
            kvpy_link_del(&op->link);
            kvpy_link_add(&op->ctx->dropped, &op->link);
        }
    }
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef kvpy_request_methods[] = {
    {"_wait", request_wait, METH_VARARGS, "_wait(timeout=None): wait, then the result; InProgress if it goes on."},
    {"_result", request_result, METH_NOARGS, "The result of a finished request, or its exception."},
    {"done", request_done, METH_NOARGS, "Whether it has completed, well or not. Never blocks, never raises its error."},
    {"cancel", request_cancel, METH_NOARGS,
     "Ask the operation to stop. Completion still comes, usually with Canceled; after it nothing touches the buffers."},
    {"_when_done", request_when_done, METH_O, "Call a function with the request once it has completed."},
    {"_statuses", request_statuses, METH_NOARGS, "A status for each block, or None."},
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
        {Py_tp_new, (void *)PyType_GenericNew},
        {Py_tp_methods, kvpy_request_methods},
        {Py_tp_getset, getset},
        {0, NULL}};
    static PyType_Spec spec = {"kvcl._kvcl.Request", sizeof(kvpy_request_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

    return (PyTypeObject *)PyType_FromSpec(&spec);
}
