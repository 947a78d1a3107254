/*
 * Operations in flight: from the post to the collection of their kvcl_req_h. The Requests that represent them are in
 * request.c.
 *
 * A kvcl_req_h is collected once, by one thread at a time. op->busy: a thread is inside the library with it, and other
 * threads sleep until it returns. A wait is cut into slices; between them signals are handled (Ctrl-C) and a cancel
 * from another thread is passed on.
 *
 * A Request dropped in flight is detached: its operation continues, at most to its own deadline. Its objects and
 * buffers are held until then (ctx->dropped), and a later call on the context collects it.
 */
#include "kvcl/ext/ext.h"

#include <string.h>
#include <time.h>

enum { STOP_SLICE_NS = 100000000 };

uint64_t kvpy_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void kvpy_nap(uint64_t ns)
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
    op = calloc(1, sizeof(*op));
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
    self->op = op; /* a second post on it is refused from this point on */
    kvpy_op_keep(op, owner);
    *params            = (kvcl_xfer_params_t)KVCL_XFER_PARAMS_INIT;
    params->timeout_ns = ns;
    if (kvpy_queue_join(op, params) != 0) {
        kvpy_op_free(op);
        return NULL;
    }
    return op;
}

void kvpy_op_keep(kvpy_op_t *op, kvpy_obj_t *obj)
{
    Py_INCREF(obj);
    ++obj->users;
    op->keeps[(op->keeps[0] == NULL) ? 0 : (op->keeps[1] == NULL) ? 1 : 2] = obj;
}

int kvpy_op_statuses(kvpy_op_t *op, size_t n, kvcl_xfer_params_t *params)
{
    size_t i;

    op->blocks = malloc((n + 1) * sizeof(*op->blocks));
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

int kvpy_op_put(kvpy_op_t *op, size_t n, PyObject *replicas, PyObject *tenant, int wait, kvcl_xfer_params_t *params)
{
    if ((kvpy_u64(replicas, "replicas", UINT32_MAX, &params->replicas) != 0) ||
        (kvpy_u64(tenant, "tenant", UINT64_MAX, &params->tenant) != 0)) {
        return -1;
    }
    op->copies = calloc(n + 1, 1);
    if (op->copies == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    op->n_copies   = n;
    params->copies = op->copies;
    params->flags |= wait ? KVCL_PUT_WAIT : 0;
    return 0;
}

void kvpy_op_drop_values(kvpy_op_t *op)
{
    kvpy_buf_t *values = op->values;
    size_t     n       = op->n_values, i;

    op->values   = NULL;
    op->n_values = 0;
    for (i = 0; i < n; ++i) {
        kvpy_buf_drop(&values[i]);
    }
    free(values);
}

/* Release everything the operation used. May run any Python code. */
static void release(kvpy_op_t *op)
{
    kvpy_obj_t *keeps[3] = {op->keeps[0], op->keeps[1], op->keeps[2]};
    kvpy_ctx_t *ctx      = op->ctx;
    unsigned   i;

    op->keeps[0] = op->keeps[1] = op->keeps[2] = NULL;
    op->ctx      = NULL;
    for (i = 0; i < 2; ++i) {
        kvpy_buf_drop(&op->bufs[i]);
    }
    kvpy_op_drop_values(op);
    for (i = 0; i < 3; ++i) {
        if (keeps[i] != NULL) {
            --keeps[i]->users;
        }
    }
    if (ctx != NULL) {
        --ctx->users;
    }
    for (i = 0; i < 3; ++i) {
        Py_XDECREF(keeps[i]);
    }
    Py_XDECREF(ctx);
}

void kvpy_op_free(kvpy_op_t *op)
{
    if (op->self != NULL) {
        op->self->op = NULL;
    }
    kvpy_queue_leave(op);
    release(op);
    Py_XDECREF(op->result);
    free(op->blocks);
    free(op->copies);
    free(op->out);
    free(op->why);
    free(op);
}

/* ---- the end of one ---- */

void kvpy_request_report(kvpy_request_t *self)
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

/* The library's sentence of this thread's last failure. */
static char *last_error(void)
{
    const char *sentence = kvcl_last_error();
    size_t     room      = strlen(sentence) + 1;
    char       *copy     = (room > 1) ? malloc(room) : NULL;

    if (copy != NULL) {
        (void)snprintf(copy, room, "%s", sentence);
    }
    return copy;
}

/* Called after this thread has collected op->req, which the library has freed. Frees op if its Request is gone. */
void kvpy_op_finish(kvpy_op_t *op, kvcl_status_t status)
{
    kvpy_request_t *self = op->self;

    op->req    = NULL;
    op->status = status;
    op->why    = ((status < 0) && (op->why == NULL)) ? last_error() : op->why;
    kvpy_link_del(&op->link);
    if (self == NULL) {
        kvpy_op_free(op);
        return;
    }
    Py_INCREF(self);
    release(op);
    kvpy_request_report(self);
    Py_DECREF(self);
}

/* Without the GIL: the request's status, or its end after a wait of at most ns (0: no wait). A layer-wise send is not
 * collected here, since another thread may be marking a layer. */
static kvcl_status_t look(const kvpy_op_t *op, kvcl_req_h req, uint64_t ns)
{
    kvcl_status_t status;

    if (ns == 0) {
        return op->layerwise ? kvcl_req_layer_test(req, 0) : kvcl_req_test(req);
    }
    status = op->layerwise ? kvcl_req_layer_wait(req, 0, ns) : kvcl_req_wait(req, ns);
    return (status == KVCL_ERR_WAIT_TIMEOUT) ? KVCL_INPROGRESS : status;
}

static kvcl_status_t collect(const kvpy_op_t *op, kvcl_status_t status)
{
    return (op->layerwise && (status != KVCL_INPROGRESS)) ? kvcl_req_test(op->req) : status;
}

/* Test once. op must not be busy. @return whether it has finished; op may be freed then. */
bool kvpy_op_poll(kvpy_op_t *op)
{
    kvcl_req_h    req = op->req;
    kvcl_status_t status;

    if (op->queue != NULL) {
        return kvpy_queue_wait(op, 0);
    }
    if (op->ctx->oob.set != NULL) { /* a progress step may need the store's Python code and another thread's GIL */
        op->busy = true;
        Py_BEGIN_ALLOW_THREADS
        status = look(op, req, 0);
        Py_END_ALLOW_THREADS
        op->busy = false;
    } else {
        status = look(op, req, 0);
    }
    status = collect(op, status);
    if (status == KVCL_INPROGRESS) {
        return false;
    }
    kvpy_op_finish(op, status);
    return true;
}

kvcl_status_t kvpy_op_layer(kvpy_op_t *op, uint32_t layer)
{
    kvcl_status_t status;

    if (op->ctx->oob.set == NULL) {
        return kvcl_req_layer_test(op->req, layer);
    }
    op->busy = true; /* as kvpy_op_poll */
    Py_BEGIN_ALLOW_THREADS
    status = kvcl_req_layer_test(op->req, layer);
    Py_END_ALLOW_THREADS
    op->busy = false;
    return status;
}

void kvpy_op_cancel(kvpy_op_t *op)
{
    kvcl_req_h req = op->req;

    if (op->busy) {
        op->cancel = true;
        return;
    }
    op->busy = true;
    kvpy_queue_hold(op, 1);
    Py_BEGIN_ALLOW_THREADS
    kvcl_req_cancel(req);
    Py_END_ALLOW_THREADS
    kvpy_queue_hold(op, -1);
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
    if (op->queue != NULL) {
        Py_INCREF(self); /* until it is collected */
    }
    op->busy = false;
    kvpy_link_add(&op->ctx->ops, &op->link);
    if (op->cancel || op->ctx->closing) {
        op->cancel = false;
        kvpy_op_cancel(op);
    }
    return self;
}

/* Wait a slice. op must not be busy. @return whether it has finished; op may be freed then. */
bool kvpy_op_wait(kvpy_op_t *op, uint64_t ns)
{
    kvcl_req_h    req = op->req;
    kvcl_status_t status;

    if (op->queue != NULL) {
        return kvpy_queue_wait(op, ns);
    }
    op->busy = true;
    Py_BEGIN_ALLOW_THREADS
    status = look(op, req, ns);
    Py_END_ALLOW_THREADS
    op->busy = false;
    status   = collect(op, status);
    if (status != KVCL_INPROGRESS) {
        kvpy_op_finish(op, status);
        return true;
    }
    if (op->cancel) {
        op->cancel = false;
        kvpy_op_cancel(op);
    }
    /* A waiter may have been notified of the completion and tested in vain while this thread held the request. */
    return (op->self != NULL) && (op->self->callbacks != NULL) && !op->busy && kvpy_op_poll(op);
}

bool kvpy_ops_reap(kvpy_ctx_t *ctx)
{
    unsigned left = 16;

    while ((left-- > 0) && (ctx->dropped.next != &ctx->dropped)) {
        kvpy_op_t *op = KVPY_OF(ctx->dropped.next, kvpy_op_t, link);
        kvpy_link_del(&op->link); /* to the end of the list: the next operation's turn */
        kvpy_link_add(&ctx->dropped, &op->link);
        if (!op->busy && kvpy_op_poll(op)) {
            return true;
        }
    }
    return false;
}

unsigned kvpy_ops_stop(kvpy_ctx_t *ctx)
{
    uint64_t    until = kvpy_now_ns() + 5000000000u;
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
        if ((left == 0) || (kvpy_now_ns() > until)) {
            return left;
        }
        if (op == NULL) {
            kvpy_nap(KVPY_NAP_NS); /* other threads hold all of them and will read op->cancel */
            continue;
        }
        op->cancel = false;
        kvpy_op_cancel(op);
        if (!kvpy_op_wait(op, STOP_SLICE_NS)) {
            kvpy_link_del(&op->link);
            kvpy_link_add(&ctx->ops, &op->link);
        }
    }
}
