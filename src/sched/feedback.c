/*
 * Feedback: what was measured goes into the factors of the instance, the errors, and the lengths of outputs.
 */
#include "config.h"
#include "sched/sched.h"
#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"

static kvcl_status_t read(const char *call, kvcl_sched_h sched, const kvcl_sched_measured_t *from,
                          kvcl_sched_measured_t *to)
{
    kvcl_status_t status = kvcl_handle_check(sched, KVCL_KIND_SCHED, call);

    if ((status == KVCL_OK) && (from == NULL)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: measured is NULL", call);
    }
    if (status == KVCL_OK) {
        *to    = (kvcl_sched_measured_t)KVCL_SCHED_MEASURED_INIT;
        status = kvcl_struct_in(to, from, KVCL_UP_TO(kvcl_sched_measured_t, context), sizeof(*to),
                                "kvcl_sched_measured_t");
    }
    if ((status == KVCL_OK) && ((to->klass >= KVCL_SCHED_CLASSES) ||
                                ((to->prefill != KVCL_SCHED_NONE) && (to->prefill >= sched->params.max_insts)) ||
                                ((to->decode != KVCL_SCHED_NONE) && (to->decode >= sched->params.max_insts)))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: class %u is not below 32, or instance %u or %u not below "
                           "max_insts (%u)", call, (unsigned)to->klass, (unsigned)to->prefill, (unsigned)to->decode,
                           (unsigned)sched->params.max_insts);
    }
    return status;
}

/* Its prefill has ended. */
static void begins(kvcl_sched_h sched, uint64_t id, double now_s)
{
    kvcl_followed_t *request = kvcl_follow_find(&sched->follow, id);

    if (request != NULL) {
        request->decodes = true;
        request->start_s = now_s;
    }
}

/* The fetches of a request against what was predicted of them. Blocks that were evicted meanwhile, or fetched in vain,
 * change the bytes: the prediction is scaled to those that came. */
static void learn_fetch(kvcl_sched_h sched, const kvcl_followed_t *request, const kvcl_sched_measured_t *m)
{
    kvcl_factor_t *factor   = &sched->learn.inst[m->prefill].fetch;
    double        predicted = request->fetch_s / kvcl_factor_mean(factor);

    if ((m->fetch_bytes > 0) && (m->fetch_bytes < 1e18) && (request->fetch_bytes > 0)) {
        predicted *= m->fetch_bytes / request->fetch_bytes;
    }
    kvcl_factor_add(factor, m->fetch_s, predicted);
}

kvcl_status_t kvcl_sched_prefill_done(kvcl_sched_h sched, double now_s, const kvcl_sched_measured_t *measured)
{
    kvcl_sched_measured_t m;
    kvcl_status_t         status = read("kvcl_sched_prefill_done", sched, measured, &m);
    const kvcl_followed_t *request;
    double                n, p;

    if (status != KVCL_OK) {
        return status;
    }
    begins(sched, m.id, now_s);
    if (m.prefill == KVCL_SCHED_NONE) {
        return KVCL_OK;
    }
    request = kvcl_follow_find(&sched->follow, m.id);
    if ((request != NULL) && (request->prefill == m.prefill)) {
        learn_fetch(sched, request, &m);
    }
    n = (double)m.tokens;
    p = (m.cached_tokens < m.tokens) ? (double)m.cached_tokens : n - 1;
    if (n > 0) {
        kvcl_factor_add(&sched->learn.inst[m.prefill].prefill, m.prefill_s,
                        kvcl_model_prefill(sched->models[sched->model_of[m.prefill]], n, p));
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_sched_first_token(kvcl_sched_h sched, double now_s, const kvcl_sched_measured_t *measured)
{
    kvcl_sched_measured_t m;
    kvcl_status_t         status = read("kvcl_sched_first_token", sched, measured, &m);

    if (status == KVCL_OK) {
        begins(sched, m.id, now_s);
        kvcl_factor_add(&sched->learn.ttft, m.ttft_s, m.ttft_guess_s);
    }
    return status;
}

kvcl_status_t kvcl_sched_finished(kvcl_sched_h sched, double now_s, const kvcl_sched_measured_t *measured)
{
    kvcl_sched_measured_t m;
    kvcl_status_t         status = read("kvcl_sched_finished", sched, measured, &m);

    (void)now_s;
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_follow_remove(&sched->follow, m.id);
    kvcl_lengths_add(&sched->learn.lengths[m.klass], m.output_tokens);
    if ((m.decode != KVCL_SCHED_NONE) && (m.batch > 0) && (m.batch < 1e9) && (m.context >= 0) && (m.context < 1e15)) {
        kvcl_factor_add(&sched->learn.inst[m.decode].decode, m.tbt_s,
                        kvcl_model_decode(sched->models[sched->model_of[m.decode]], m.batch, m.context));
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_sched_gone(kvcl_sched_h sched, double now_s, uint32_t inst)
{
    kvcl_status_t status = kvcl_handle_check(sched, KVCL_KIND_SCHED, "kvcl_sched_gone");

    (void)now_s;
    if ((status == KVCL_OK) && (inst >= sched->params.max_insts)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_gone: instance %u is not below max_insts (%u)",
                           (unsigned)inst, (unsigned)sched->params.max_insts);
    }
    if (status == KVCL_OK) {
        sched->learn.inst[inst] = (kvcl_learn_inst_t){.past_s = 0};
        kvcl_follow_gone(&sched->follow, inst);
    }
    return status;
}
