/*
 * Owns the writing of a decision log. Each call is one fprintf of bounded pieces; doubles are written exactly.
 */
#include "config.h"
#include "tools/sim/log/log.h"

#include <inttypes.h>
#include <string.h>

void log_begin(FILE *file, const log_head_t *head)
{
    if (file != NULL) {
        fprintf(file, "kvcl-log 2\npolicy %s\nmodel %s\nparams %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32
                "\n", head->policy, head->model, head->params->seed, head->params->max_insts,
                head->params->max_requests, head->params->max_blocks, head->params->max_holds);
    }
}

static void put_request(FILE *file, const kvcl_sched_req_t *r)
{
    fprintf(file, " %" PRIu64 " %" PRIu32 " %" PRIu32 " %zu %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64
            " %a %a %a %a %" PRIu64 " %a", r->id, r->flags, r->klass, r->n_keys, r->tokens, r->block_tokens, r->tries,
            r->output_tokens, r->output_max, r->weight, r->ttft_s, r->tbt_s, r->arrival_s, r->session, r->kv_bytes);
}

/* The eight bytes of each key that the scheduler reads. */
static void put_keys(FILE *file, const kvcl_sched_req_t *r)
{
    const size_t n = (r->keys != NULL) ? r->n_keys : 0;
    uint64_t     name;
    size_t       i;

    fprintf(file, " %zu", n);
    for (i = 0; i < n; ++i) {
        memcpy(&name, &r->keys[i].bytes[8], sizeof(name));
        fprintf(file, " %" PRIu64, name);
    }
}

static void put_instances(FILE *file, const kvcl_sched_inst_t *insts, size_t n)
{
    const kvcl_sched_inst_t *v;
    size_t                  i;

    fprintf(file, " %zu", n);
    for (i = 0; i < n; ++i) {
        v = &insts[i];
        fprintf(file, " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %a %a %" PRIu32 " %" PRIu32 " %" PRIu64
                " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64, v->id, v->role, v->flags, v->model, v->age_s,
                v->queue_s, v->prefills, v->waiting, v->queued_tokens, v->running, v->pending, v->context_tokens,
                v->pending_tokens);
        fprintf(file, " %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %a %" PRIu32 " %" PRIu32
                " %a %a %a", v->kv_free, v->kv_total, v->host, v->rack, v->net, v->nic_bytes_s, v->sends, v->recvs,
                v->send_bytes, v->recv_bytes, v->past_s);
    }
}

void log_put_answer(FILE *file, const kvcl_sched_decision_t *d)
{
    fprintf(file, "= %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %a %a\n", d->verdict, d->reason,
            d->prefill, d->decode, d->n_runs, d->times.ttft_s, d->busy_s);
}

void log_decide(FILE *file, double now, const kvcl_sched_req_t *req, const kvcl_sched_inst_t *insts, size_t n_insts,
                const kvcl_sched_hold_t *holds, size_t n_holds, const kvcl_sched_decision_t *decision)
{
    size_t i;

    if (file == NULL) {
        return;
    }
    fprintf(file, "d %a", now);
    put_request(file, req);
    put_keys(file, req);
    put_instances(file, insts, n_insts);
    fprintf(file, " %zu", n_holds);
    for (i = 0; i < n_holds; ++i) {
        fprintf(file, " %" PRIu32 " %" PRIu32 " %" PRIu32 " %u %u", holds[i].inst, holds[i].first, holds[i].blocks,
                holds[i].tier, holds[i].flags);
    }
    fputc('\n', file);
    log_put_answer(file, decision);
}

void log_decode(FILE *file, double now, const kvcl_sched_req_t *req, uint32_t prefill, uint32_t decode,
                const kvcl_sched_inst_t *insts, size_t n_insts, const kvcl_sched_decision_t *decision)
{
    if (file == NULL) {
        return;
    }
    fprintf(file, "e %a", now);
    put_request(file, req);
    fprintf(file, " %" PRIu32 " %" PRIu32, prefill, decode);
    put_instances(file, insts, n_insts);
    fputc('\n', file);
    log_put_answer(file, decision);
}

void log_put_order(FILE *file, size_t next, const size_t *late, size_t n_late)
{
    size_t i;

    fprintf(file, "= %zu %zu", next, n_late);
    for (i = 0; i < n_late; ++i) {
        fprintf(file, " %zu", late[i]);
    }
    fputc('\n', file);
}

void log_order(FILE *file, double now, const kvcl_sched_waiting_t *waiting, size_t n, size_t next, const size_t *late,
               size_t n_late)
{
    size_t i;

    if (file == NULL) {
        return;
    }
    fprintf(file, "o %a %zu", now, n);
    for (i = 0; i < n; ++i) {
        fprintf(file, " %" PRIu64 " %a %a %a %a %a %a %" PRIu64, waiting[i].id, waiting[i].arrival_s,
                waiting[i].deadline_s, waiting[i].prefill_s, waiting[i].error, waiting[i].ready_s, waiting[i].weight,
                waiting[i].tokens);
    }
    fputc('\n', file);
    log_put_order(file, next, late, n_late);
}

void log_measured(FILE *file, log_kind_t kind, double now, const kvcl_sched_measured_t *m)
{
    if (file != NULL) {
        fprintf(file, "%c %a %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64
                " %a %a %a %a %a %a %a %a\n", (char)kind, now, m->id, m->prefill, m->decode, m->klass, m->tokens,
                m->cached_tokens, m->output_tokens, m->prefill_s, m->fetch_s, m->fetch_bytes, m->ttft_s,
                m->ttft_guess_s, m->tbt_s, m->batch, m->context);
    }
}

void log_gone(FILE *file, double now, uint32_t inst)
{
    if (file != NULL) {
        fprintf(file, "g %a %" PRIu32 "\n", now, inst);
    }
}
