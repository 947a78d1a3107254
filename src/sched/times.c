/*
 * Predicted times of one decision: prefill, decode step, transfer, and the parts of a TTFT. Each is the model's, times
 * the factor learnt of the instance. Negative: not known. Pure.
 */
#include "config.h"
#include "sched/sched.h"

static double larger(double a, double b)
{
    return (a > b) ? a : b;
}

/* Tokens of the first blocks; the last token of a prompt is always computed. */
static double prefix_of(const kvcl_job_t *job, uint32_t blocks)
{
    const double tokens = (double)blocks * job->req.block_tokens;
    const double most   = (double)job->req.tokens - 1;

    return (tokens < most) ? tokens : most;
}

double kvcl_job_bytes(const kvcl_job_t *job, uint32_t first, uint32_t end)
{
    const double from = (double)first * job->req.block_tokens;
    const double to   = (double)end * job->req.block_tokens;

    return (((to < (double)job->req.tokens) ? to : (double)job->req.tokens) - from) * job->kv_bytes;
}

double kvcl_job_prefill(const kvcl_job_t *job, const kvcl_cand_t *cand, uint32_t blocks)
{
    const kvcl_sched_inst_t *inst   = kvcl_job_inst(job, cand);
    const double            seconds = kvcl_model_prefill(kvcl_job_model(job, inst), (double)job->req.tokens,
                                                         prefix_of(job, blocks));

    return (seconds < 0) ? -1 : seconds * cand->factor;
}

bool kvcl_times_own(kvcl_job_t *job, kvcl_cand_t *cand)
{
    cand->upto      = cand->own;
    cand->fetch_s   = 0;
    cand->prefill_s = kvcl_job_prefill(job, cand, cand->own);
    return cand->prefill_s >= 0;
}

double kvcl_times_tbt(const kvcl_job_t *job, uint32_t i)
{
    const kvcl_sched_inst_t *inst   = job->inst[i];
    const double            more    = (i == job->placed) ? 0 : 1; /* it is counted there already */
    const double            batch   = (double)inst->running + inst->pending + more;
    const double            context = (double)inst->context_tokens + (double)inst->pending_tokens +
                                      (more * ((double)job->req.tokens + (job->output / 2)));
    const double            seconds = kvcl_model_decode(kvcl_job_model(job, inst), batch, context);

    return (seconds < 0) ? -1 : seconds * kvcl_factor_mean(&job->s->learn.inst[inst->id].decode);
}

double kvcl_times_bandwidth(const kvcl_job_t *job, const kvcl_sched_inst_t *inst)
{
    return (inst->nic_bytes_s > 0) ? inst->nic_bytes_s : kvcl_job_model(job, inst)->info.nic_bytes_s;
}

double kvcl_times_rate(const kvcl_job_t *job, const kvcl_sched_inst_t *from, const kvcl_sched_inst_t *to)
{
    const double out = kvcl_times_bandwidth(job, from) / ((double)from->sends + 1);
    const double in  = kvcl_times_bandwidth(job, to) / ((double)to->recvs + 1);

    return ((out < in) ? out : in) / kvcl_factor_mean(&job->s->learn.inst[to->id].fetch);
}

/* The prompt's KV to the decode instance. The prefill sends each layer as it is done, so only what takes longer than
 * the prefill is left behind it. */
static void handover(const kvcl_job_t *job, const kvcl_cand_t *cand, kvcl_sched_times_t *times)
{
    const kvcl_sched_inst_t        *to    = job->inst[job->dpick];
    const struct kvcl_sched_model  *model = kvcl_job_model(job, to);
    const double                   bytes  = job->kv_bytes * (double)job->req.tokens;
    double                         rate;

    times->load_s = model->info.schedule_s;
    if (job->dpick == cand->inst) {
        return;
    }
    rate              = kvcl_times_rate(job, kvcl_job_inst(job, cand), to);
    times->handover_s = model->info.stage_s + ((rate > 0) ? larger((bytes / rate) - times->prefill_s, 0) : 0);
    times->load_s    += (model->info.load_bytes_s > 0) ? bytes / model->info.load_bytes_s : 0;
}

/* The parts' error, or that learnt of whole TTFTs if it is larger: it has what the queue's prediction is worth. */
static double ttft_error(const kvcl_factor_t *ttft, double parts)
{
    const double off    = kvcl_factor_mean(ttft) - 1;
    const double learnt = kvcl_factor_error(ttft, -1) + ((off < 0) ? -off : off);

    return (kvcl_factor_error(ttft, -1) < 0) ? parts : larger(learnt, parts);
}

/* The larger of two errors, if both are known. */
static double both(double a, double b)
{
    return ((a < 0) || (b < 0)) ? -1 : larger(a, b);
}

/* Of transfers to an instance: what was learnt of its fetches, or its model's. */
static double transfer_error(const kvcl_job_t *job, const kvcl_sched_inst_t *to)
{
    return kvcl_job_old(job, to) ? -1 : kvcl_factor_error(&job->s->learn.inst[to->id].fetch,
                                                          kvcl_job_model(job, to)->info.transfer_error);
}

/* Of the parts that the TTFT has seconds of: the prefill, fetches that the queue does not hide, and the hand-over. */
static double parts_error(const kvcl_job_t *job, const kvcl_cand_t *cand, const kvcl_sched_times_t *times)
{
    const kvcl_sched_inst_t *inst = kvcl_job_inst(job, cand);
    double                  error = kvcl_factor_error(&job->s->learn.inst[inst->id].prefill,
                                                      kvcl_job_model(job, inst)->info.prefill_error);

    error = (times->fetch_s > 0) ? both(error, transfer_error(job, inst)) : error;
    return (times->handover_s > 0) ? both(error, transfer_error(job, job->inst[job->dpick])) : error;
}

void kvcl_times_fill(const kvcl_job_t *job, const kvcl_cand_t *cand, kvcl_sched_times_t *times)
{
    *times = (kvcl_sched_times_t){.waited_s = larger(job->now_s - job->req.arrival_s, 0),
                                  .queue_s  = cand->queue_s,
                                  .fetch_s  = larger(cand->fetch_s - cand->queue_s, 0)};
    if (cand->prefill_s < 0) {
        times->ttft_s = -1;
        times->error  = -1;
        return;
    }
    times->prefill_s = cand->prefill_s;
    if (job->dpick != KVCL_SCHED_NONE) {
        handover(job, cand, times);
    }
    times->ttft_s = times->waited_s + times->queue_s + times->fetch_s + times->prefill_s + times->handover_s +
                    times->load_s;
    times->error  = kvcl_job_old(job, kvcl_job_inst(job, cand)) ? -1 :
                    ttft_error(&job->s->learn.ttft, parts_error(job, cand, times));
}
