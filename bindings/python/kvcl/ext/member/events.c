/*
 * Context: events of views, and the phase of this rank (kvcl_view.h).
 */
#include "kvcl/ext/ext.h"

/* The ranks of an event, ascending. */
static PyObject *ranks_of(const kvcl_event_t *event)
{
    PyObject *ranks = PyTuple_New(event->n_ranks), *number;
    int      rank, i = 0;

    for (rank = 0; (ranks != NULL) && (rank < KVCL_EVENT_RANKS) && (i < event->n_ranks); ++rank) {
        if (!kvcl_event_has(event, rank)) {
            continue;
        }
        number = PyLong_FromLong(rank);
        if (number == NULL) {
            Py_CLEAR(ranks);
        } else {
            (void)PyTuple_SetItem(ranks, i++, number); /* takes the reference; in range */
        }
    }
    return ranks;
}

/* _event(): (type, ranks, view, view_id, time_ns, lost), or None */
PyObject *kvpy_context_event(PyObject *self, PyObject *none)
{
    kvpy_ctx_t    *ctx  = (kvpy_ctx_t *)self;
    kvcl_event_t  event = KVCL_EVENT_INIT;
    kvcl_status_t status;
    PyObject      *ranks;

    (void)none;
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_event_next(ctx->handle, &event));
    if (status != KVCL_OK) {
        return (status == KVCL_INPROGRESS) ? kvpy_none() : kvpy_raise(status, NULL);
    }
    ranks = ranks_of(&event);
    return (ranks == NULL) ? NULL
                           : Py_BuildValue("(iNKKKK)", event.type, ranks, (unsigned long long)event.view,
                                           (unsigned long long)event.view_id, (unsigned long long)event.time_ns,
                                           (unsigned long long)event.lost);
}

/* _event_fd() */
PyObject *kvpy_context_event_fd(PyObject *self, PyObject *none)
{
    kvpy_ctx_t    *ctx = (kvpy_ctx_t *)self;
    kvcl_status_t status;
    int           fd = -1;

    (void)none;
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_event_fd(ctx->handle, &fd));
    return (status == KVCL_OK) ? PyLong_FromLong(fd) : kvpy_raise(status, NULL);
}

/* _phase(warm_up) */
PyObject *kvpy_context_phase(PyObject *self, PyObject *arg)
{
    kvpy_ctx_t    *ctx = (kvpy_ctx_t *)self;
    const int     warm = PyObject_IsTrue(arg);
    kvcl_status_t status;

    if ((warm < 0) || (kvpy_ctx_check(ctx) != 0)) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_phase(ctx->handle, warm ? KVCL_PHASE_WARM_UP : KVCL_PHASE_SERVING));
    return (status == KVCL_OK) ? kvpy_none() : kvpy_raise(status, NULL);
}
