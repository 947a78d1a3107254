/*
 * Owns the fields of each call, in the order in which log.c writes them.
 */
#include "config.h"
#include "tools/sim/log/log_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void log_cursor(log_cursor_t *c, const char *line)
{
    *c = (log_cursor_t){line, line, NULL, 0};
}

static void fail(log_cursor_t *c, const char *error)
{
    if (c->error == NULL) {
        c->error  = error;
        c->column = (size_t)(c->p - c->start) + 1;
    }
}

uint64_t log_u64(log_cursor_t *c)
{
    uint64_t value;
    char     *end;

    c->p += strspn(c->p, " ");
    if ((*c->p < '0') || (*c->p > '9')) {
        fail(c, "a whole number is missing");
        return 0;
    }
    errno = 0;
    value = strtoull(c->p, &end, 10);
    if ((errno != 0) || ((*end != ' ') && (*end != '\n') && (*end != '\0'))) {
        fail(c, "not a whole number");
        return 0;
    }
    c->p = end;
    return value;
}

uint32_t log_u32(log_cursor_t *c)
{
    const uint64_t value = log_u64(c);

    if (value > UINT32_MAX) {
        fail(c, "the number is too large");
        return 0;
    }
    return (uint32_t)value;
}

static uint16_t read_u16(log_cursor_t *c)
{
    const uint64_t value = log_u64(c);

    if (value > UINT16_MAX) {
        fail(c, "the number is too large");
        return 0;
    }
    return (uint16_t)value;
}

double log_real(log_cursor_t *c)
{
    double value;
    char   *end;

    c->p += strspn(c->p, " ");
    value = (*c->p != '\n') ? strtod(c->p, &end) : 0;
    if ((*c->p == '\n') || (end == c->p) || ((*end != ' ') && (*end != '\n') && (*end != '\0'))) {
        fail(c, "a number is missing");
        return 0;
    }
    c->p = end;
    return value;
}

bool log_end(log_cursor_t *c)
{
    c->p += strspn(c->p, " \n\r");
    if (*c->p != '\0') {
        fail(c, "more than the call has");
    }
    return c->error == NULL;
}

/* Room for as many items as the line says. NULL after an error. */
static void *items(log_cursor_t *c, void *old, size_t size, size_t *n_p)
{
    const uint64_t n = log_u64(c);
    void           *array;

    if (n > LOG_ITEMS_MAX) {
        fail(c, "too many items");
    }
    /* Each item takes two bytes of the line or more. */
    if ((c->error == NULL) && (n > strlen(c->p))) {
        fail(c, "fewer items than the line says");
    }
    if (c->error != NULL) {
        *n_p = 0;
        return old;
    }
    array = realloc(old, (size_t)(n + 1) * size);
    if (array == NULL) {
        fail(c, "out of memory");
        *n_p = 0;
        return old;
    }
    *n_p = (size_t)n;
    return array;
}

static void read_request(log_cursor_t *c, kvcl_sched_req_t *r)
{
    *r               = (kvcl_sched_req_t)KVCL_SCHED_REQ_INIT;
    r->id            = log_u64(c);
    r->flags         = log_u32(c);
    r->klass         = log_u32(c);
    r->n_keys        = (size_t)log_u64(c);
    r->tokens        = log_u64(c);
    r->block_tokens  = log_u32(c);
    r->tries         = log_u32(c);
    r->output_tokens = log_u64(c);
    r->output_max    = log_u64(c);
    r->weight        = log_real(c);
    r->ttft_s        = log_real(c);
    r->tbt_s         = log_real(c);
    r->arrival_s     = log_real(c);
    r->session       = log_u64(c);
    r->kv_bytes      = log_real(c);
}

static void read_instance(log_cursor_t *c, kvcl_sched_inst_t *v)
{
    *v                = (kvcl_sched_inst_t)KVCL_SCHED_INST_INIT;
    v->id             = log_u32(c);
    v->role           = log_u32(c);
    v->flags          = log_u32(c);
    v->model          = log_u32(c);
    v->age_s          = log_real(c);
    v->queue_s        = log_real(c);
    v->prefills       = log_u32(c);
    v->waiting        = log_u32(c);
    v->queued_tokens  = log_u64(c);
    v->running        = log_u32(c);
    v->pending        = log_u32(c);
    v->context_tokens = log_u64(c);
    v->pending_tokens = log_u64(c);
    v->kv_free        = log_u64(c);
    v->kv_total       = log_u64(c);
    v->host           = log_u32(c);
    v->rack           = log_u32(c);
    v->net            = log_u32(c);
    v->nic_bytes_s    = log_real(c);
    v->sends          = log_u32(c);
    v->recvs          = log_u32(c);
    v->send_bytes     = log_real(c);
    v->recv_bytes     = log_real(c);
    v->past_s         = log_real(c);
}

static void read_instances(log_cursor_t *c, log_call_t *call)
{
    size_t i;

    call->insts = items(c, call->insts, sizeof(*call->insts), &call->n_insts);
    for (i = 0; (i < call->n_insts) && (c->error == NULL); ++i) {
        read_instance(c, &call->insts[i]);
    }
}

/* As many keys as blocks, or none. */
static void read_keys(log_cursor_t *c, log_call_t *call)
{
    uint64_t name;
    size_t   n, i;

    call->keys = items(c, call->keys, sizeof(*call->keys), &n);
    if ((c->error == NULL) && (n != 0) && (n != call->req.n_keys)) {
        fail(c, "the keys are not as many as the request's blocks");
    }
    for (i = 0; (i < n) && (c->error == NULL); ++i) {
        name          = log_u64(c);
        call->keys[i] = (kvcl_key_t){{0}};
        memcpy(&call->keys[i].bytes[8], &name, sizeof(name));
    }
    call->req.keys = (n != 0) ? call->keys : NULL;
}

static void read_holds(log_cursor_t *c, log_call_t *call)
{
    kvcl_sched_hold_t *h;
    size_t            i;

    call->holds = items(c, call->holds, sizeof(*call->holds), &call->n_holds);
    for (i = 0; (i < call->n_holds) && (c->error == NULL); ++i) {
        h         = &call->holds[i];
        h->inst   = log_u32(c);
        h->first  = log_u32(c);
        h->blocks = log_u32(c);
        h->tier   = read_u16(c);
        h->flags  = read_u16(c);
    }
}

static void read_waiting(log_cursor_t *c, log_call_t *call)
{
    kvcl_sched_waiting_t *w;
    size_t               i;

    call->waiting = items(c, call->waiting, sizeof(*call->waiting), &call->n_waiting);
    for (i = 0; (i < call->n_waiting) && (c->error == NULL); ++i) {
        w             = &call->waiting[i];
        *w            = (kvcl_sched_waiting_t)KVCL_SCHED_WAITING_INIT;
        w->id         = log_u64(c);
        w->arrival_s  = log_real(c);
        w->deadline_s = log_real(c);
        w->prefill_s  = log_real(c);
        w->error      = log_real(c);
        w->ready_s    = log_real(c);
        w->weight     = log_real(c);
        w->tokens     = log_u64(c);
    }
}

static void read_measured(log_cursor_t *c, kvcl_sched_measured_t *m)
{
    *m               = (kvcl_sched_measured_t)KVCL_SCHED_MEASURED_INIT;
    m->id            = log_u64(c);
    m->prefill       = log_u32(c);
    m->decode        = log_u32(c);
    m->klass         = log_u32(c);
    m->tokens        = log_u64(c);
    m->cached_tokens = log_u64(c);
    m->output_tokens = log_u64(c);
    m->prefill_s     = log_real(c);
    m->fetch_s       = log_real(c);
    m->fetch_bytes   = log_real(c);
    m->ttft_s        = log_real(c);
    m->ttft_guess_s  = log_real(c);
    m->tbt_s         = log_real(c);
    m->batch         = log_real(c);
    m->context       = log_real(c);
}

bool log_read_call(log_cursor_t *c, char kind, log_call_t *call)
{
    call->now = log_real(c);
    switch (kind) {
    case 'd':
        read_request(c, &call->req);
        read_keys(c, call);
        read_instances(c, call);
        read_holds(c, call);
        break;
    case 'e':
        read_request(c, &call->req);
        call->prefill = log_u32(c);
        call->decode  = log_u32(c);
        read_instances(c, call);
        break;
    case 'o':
        read_waiting(c, call);
        break;
    case 'g':
        call->inst = log_u32(c);
        break;
    default:
        read_measured(c, &call->measured);
        break;
    }
    return log_end(c);
}

void log_free_call(log_call_t *call)
{
    free(call->keys);
    free(call->insts);
    free(call->holds);
    free(call->waiting);
    memset(call, 0, sizeof(*call));
}
