/*
 * Queue: many completions at once (kvcl_queue_create, kvcl_req_drain).
 *
 * A Request that is made in a queue's posting() block belongs to it: its operation is posted with the queue, and
 * cb_arg is the operation. A call that drains the queue, also a wait for one of its Requests, finishes the operations
 * and keeps their records in `ready`, from which drain() takes them. The queue holds a Request until then.
 * Nothing is drained while a thread uses a library's request of the queue without the GIL (held).
 */
#include "kvcl/ext/ext.h"

#include <poll.h>
#include <string.h>

typedef struct kvpy_queue {
    PyObject_HEAD
    kvcl_queue_h handle;    /* NULL: closed */
    unsigned     in_flight; /* operations that joined and were not collected */
    unsigned     held;
    int          fd;
    PyObject     *ready;    /* list of records */
} kvpy_queue_t;

enum { BATCH = 32 };

PyTypeObject *kvpy_queue_type;

/* The posting() block that this thread is in; references. */
static _Thread_local PyObject *current, *current_tag;

void kvpy_queue_note(kvpy_request_t *self)
{
    self->queue = current;
    self->tag   = current_tag;
    Py_XINCREF(self->queue);
    Py_XINCREF(self->tag);
}

int kvpy_queue_join(kvpy_op_t *op, kvcl_xfer_params_t *params)
{
    kvpy_queue_t *queue = (kvpy_queue_t *)op->self->queue;

    if (queue == NULL) {
        return 0;
    }
    if (queue->handle == NULL) {
        (void)kvpy_raise(KVCL_ERR_SHUTDOWN, "the Queue is closed");
        return -1;
    }
    op->queue       = queue; /* takes the reference */
    op->self->queue = NULL;
    params->queue   = queue->handle;
    params->cb_arg  = op;
    ++queue->in_flight;
    return 0;
}

void kvpy_queue_leave(kvpy_op_t *op)
{
    kvpy_queue_t *queue = op->queue;

    op->queue = NULL;
    if (queue != NULL) {
        --queue->in_flight;
        Py_DECREF(queue);
    }
}

void kvpy_queue_hold(kvpy_op_t *op, int by)
{
    if (op->queue != NULL) {
        op->queue->held += (unsigned)by;
    }
}

/* ---- collecting ---- */

static void keep_error(kvpy_op_t *op, const char *error)
{
    size_t len = strlen(error);

    op->why = malloc(len + 1);
    if (op->why != NULL) {
        snprintf(op->why, len + 1, "%s", error);
    }
}

/* Ends the operation. @return 0, or -1 with an exception set. */
static int take_one(kvpy_queue_t *queue, const kvcl_done_t *done)
{
    kvpy_op_t      *op   = done->arg;
    kvpy_request_t *self = op->self; /* with the queue's reference */
    PyObject       *tag  = self->tag, *record;
    int            failed;

    self->tag = NULL;
    kvpy_queue_leave(op);
    kvpy_op_finish(op, done->status);
    record = Py_BuildValue("(NNiKKz)", tag, (PyObject *)self, (int)done->status, (unsigned long long)done->bytes,
                           (unsigned long long)done->ns, op->why);
    if (record == NULL) {
        return -1;
    }
    failed = PyList_Append(queue->ready, record);
    Py_DECREF(record);
    return failed;
}

/* Move all completions to ready. The queue is referenced. @return 0, or -1 with an exception set. */
static int collect(kvpy_queue_t *queue)
{
    kvcl_done_t done[BATCH];
    size_t      n = BATCH, i;
    int         failed = 0;

    while ((queue->handle != NULL) && (queue->held == 0) && (n == BATCH)) {
        if (kvcl_req_drain(queue->handle, done, sizeof(done[0]), BATCH, &n) != KVCL_OK) {
            return 0;
        }
        for (i = 0; i < n; ++i) { /* before any Python code runs, which may drain again */
            if (done[i].error != NULL) {
                keep_error(done[i].arg, done[i].error);
            }
        }
        for (i = 0; i < n; ++i) {
            failed |= take_one(queue, &done[i]);
        }
    }
    return failed;
}

bool kvpy_queue_wait(kvpy_op_t *op, uint64_t ns)
{
    kvpy_queue_t   *queue = op->queue;
    kvpy_request_t *self  = op->self;
    struct pollfd  pfd    = {.fd = -1, .events = POLLIN};
    kvpy_ctx_t     *ctx   = op->ctx;
    bool           done;

    Py_INCREF(queue);
    Py_INCREF(self);
    Py_INCREF(ctx);
    if (ctx->threadless) {
        ++ctx->users;
        Py_BEGIN_ALLOW_THREADS
        (void)kvcl_progress(ctx->handle);
        Py_END_ALLOW_THREADS
        --ctx->users;
    }
    if ((ns != 0) && !ctx->threadless && (kvcl_queue_fd(queue->handle, &pfd.fd) == KVCL_OK)) {
        Py_BEGIN_ALLOW_THREADS
        (void)poll(&pfd, 1, (int)(ns / 1000000u) + 1);
        Py_END_ALLOW_THREADS
    } else if (ns != 0) {
        kvpy_nap((ns < KVPY_NAP_NS) ? ns : KVPY_NAP_NS);
    }
    if (collect(queue) != 0) {
        PyErr_WriteUnraisable((PyObject *)queue);
    }
    done = (self->op == NULL) || (self->op->status != KVCL_INPROGRESS);
    Py_DECREF(ctx);
    Py_DECREF(self);
    Py_DECREF(queue);
    return done;
}

/* ---- the type ---- */

static int check_open(kvpy_queue_t *queue)
{
    if (queue->handle != NULL) {
        return 0;
    }
    (void)kvpy_raise(KVCL_ERR_SHUTDOWN, "the Queue is closed");
    return -1;
}

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    kvpy_queue_t  *self = (kvpy_queue_t *)PyType_GenericNew(type, args, kwargs);
    kvcl_status_t status;

    if (self == NULL) {
        return NULL;
    }
    self->ready = PyList_New(0);
    status      = (self->ready != NULL) ? kvcl_queue_create(&self->handle) : KVCL_ERR_NO_MEMORY;
    if (status != KVCL_OK) {
        Py_DECREF(self);
        return kvpy_raise(status, NULL);
    }
    return (PyObject *)self;
}

/* _drain(limit): at most so many records. */
static PyObject *queue_drain(PyObject *self, PyObject *arg)
{
    kvpy_queue_t *queue = (kvpy_queue_t *)self;
    uint64_t     limit;
    PyObject     *taken;

    if ((kvpy_u64(arg, "limit", PY_SSIZE_T_MAX, &limit) != 0) || (check_open(queue) != 0) || (collect(queue) != 0)) {
        return NULL;
    }
    taken = PyList_GetSlice(queue->ready, 0, (Py_ssize_t)limit);
    if ((taken != NULL) && (PyList_SetSlice(queue->ready, 0, (Py_ssize_t)limit, NULL) != 0)) {
        Py_CLEAR(taken);
    }
    return taken;
}

static PyObject *queue_fileno(PyObject *self, PyObject *none)
{
    kvcl_status_t status;
    int           fd = -1;

    (void)none;
    if (check_open((kvpy_queue_t *)self) != 0) {
        return NULL;
    }
    status = kvcl_queue_fd(((kvpy_queue_t *)self)->handle, &fd);
    return (status == KVCL_OK) ? PyLong_FromLong(fd) : kvpy_raise(status, NULL);
}

/* _swap(queue or None, tag): this thread posts with that queue. Returns what it posted with before. */
static PyObject *queue_swap(PyObject *none, PyObject *args)
{
    PyObject *queue, *tag, *before;

    (void)none;
    if (!PyArg_ParseTuple(args, "OO:_swap", &queue, &tag)) {
        return NULL;
    }
    if ((queue != Py_None) && (!PyObject_TypeCheck(queue, kvpy_queue_type))) {
        PyErr_SetString(PyExc_TypeError, "a Queue is needed");
        return NULL;
    }
    if ((queue != Py_None) && (check_open((kvpy_queue_t *)queue) != 0)) {
        return NULL;
    }
    before = PyTuple_Pack(2, (current != NULL) ? current : Py_None, (current_tag != NULL) ? current_tag : Py_None);
    if (before == NULL) {
        return NULL;
    }
    Py_CLEAR(current);
    Py_CLEAR(current_tag);
    if (queue != Py_None) {
        Py_INCREF(queue);
        Py_INCREF(tag);
        current     = queue;
        current_tag = tag;
    }
    return before;
}

static PyObject *queue_close(PyObject *self, PyObject *none)
{
    kvpy_queue_t *queue = (kvpy_queue_t *)self;
    kvcl_queue_h handle = queue->handle;
    char         text[96];

    (void)none;
    if ((handle != NULL) && (collect(queue) != 0)) {
        return NULL;
    }
    if ((handle != NULL) && (queue->in_flight != 0)) {
        (void)PyOS_snprintf(text, sizeof(text), "%u operations of the Queue are in flight: wait for them, or cancel "
                            "them", queue->in_flight);
        return kvpy_raise(KVCL_ERR_BUSY, text);
    }
    queue->handle = NULL;
    kvcl_queue_destroy(handle);
    Py_RETURN_NONE;
}

static PyObject *queue_closed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((kvpy_queue_t *)self)->handle == NULL);
}

static PyObject *queue_in_flight(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(((kvpy_queue_t *)self)->in_flight);
}

static void queue_dealloc(PyObject *self)
{
    kvpy_queue_t *queue = (kvpy_queue_t *)self;

    kvcl_queue_destroy(queue->handle); /* operations in flight hold references: there are none */
    Py_CLEAR(queue->ready);
    kvpy_instance_free(self);
}

PyTypeObject *kvpy_make_queue(void)
{
    static PyMethodDef methods[] = {
        {"_drain", queue_drain, METH_O, "_drain(limit)"},
        {"_swap", queue_swap, METH_VARARGS | METH_STATIC, "_swap(queue, tag)"},
        {"fileno", queue_fileno, METH_NOARGS,
         "A descriptor that is readable while completions wait to be collected. Do not read from it."},
        {"close", queue_close, METH_NOARGS, "Free it. Busy while operations are in flight."},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getset[] = {
        {"closed", queue_closed, NULL, "Whether it was closed.", NULL},
        {"in_flight", queue_in_flight, NULL, "How many of its operations have not been collected.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)(uintptr_t)"Completions of many operations."},
        {Py_tp_dealloc, (void *)queue_dealloc},
        {Py_tp_new, (void *)queue_new},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {0, NULL}};
    static PyType_Spec spec = {"kvcl._kvcl.Queue", sizeof(kvpy_queue_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               slots};

    return (PyTypeObject *)PyType_FromSpec(&spec);
}
