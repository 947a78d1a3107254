/*
 * A decision's runs: THERE, FETCH and COMPUTE cover the prompt's blocks in order; REPLICATE follows them. Pure.
 */
#include "config.h"
#include "sched/sched.h"

static kvcl_sched_run_t *add(kvcl_job_t *job, uint32_t first, uint32_t blocks, kvcl_sched_plan_t plan)
{
    kvcl_sched_run_t *run = &job->out->runs[job->out->n_runs++];

    *run = (kvcl_sched_run_t){.first = first, .blocks = blocks, .plan = (uint16_t)plan, .from = KVCL_SCHED_NONE};
    return run;
}

/* Blocks that the picked instance has, or will have when it prefills. */
static void add_there(kvcl_job_t *job, uint32_t first, uint32_t end)
{
    add(job, first, end - first, KVCL_SCHED_THERE)->tier =
        kvcl_view_tier(job, kvcl_job_inst(job, &job->cand[job->pick])->id, first, end, true);
}

static void add_piece(kvcl_job_t *job, const kvcl_piece_t *piece, kvcl_sched_plan_t plan)
{
    kvcl_sched_run_t *run = add(job, piece->first, piece->blocks, plan);
    uint32_t         i;

    run->from  = job->inst[piece->from]->id;
    run->tier  = piece->tier;
    run->flags = ((plan == KVCL_SCHED_REPLICATE) || job->keep) ? KVCL_SCHED_KEEP : 0;
    for (i = 0; i < piece->n_others; ++i) {
        run->inst[run->n++] = job->inst[piece->others[i]]->id;
    }
}

static uint64_t tokens_of(const kvcl_job_t *job, uint64_t blocks)
{
    const uint64_t tokens = blocks * job->req.block_tokens;

    return (tokens < job->req.tokens) ? tokens : job->req.tokens;
}

void kvcl_runs_write(kvcl_job_t *job)
{
    const kvcl_cand_t     *cand = &job->cand[job->pick];
    kvcl_sched_decision_t *out  = job->out;
    uint64_t              there = tokens_of(job, cand->own);
    uint32_t              i, at = cand->own;

    if (cand->own > 0) {
        add_there(job, 0, cand->own);
    }
    for (i = 0; (i < job->n_pieces) && (out->n_runs + 4 <= KVCL_SCHED_RUNS); ++i) { /* without room: computed */
        if (job->piece[i].first > at) { /* what no piece has is there: runs behind the leading one */
            there += tokens_of(job, job->piece[i].first) - tokens_of(job, at);
            add_there(job, at, job->piece[i].first);
        }
        add_piece(job, &job->piece[i], KVCL_SCHED_FETCH);
        at = job->piece[i].first + job->piece[i].blocks;
    }
    if ((at < cand->upto) && (i == job->n_pieces) && (i < KVCL_PIECES)) {
        there += tokens_of(job, cand->upto) - tokens_of(job, at);
        add_there(job, at, cand->upto);
        at = cand->upto;
    }
    if (at < job->blocks) {
        (void)add(job, at, job->blocks - at, KVCL_SCHED_COMPUTE);
    }
    for (i = 0; (i < job->n_copies) && (out->n_runs < KVCL_SCHED_RUNS); ++i) {
        add_piece(job, &job->copy[i], KVCL_SCHED_REPLICATE);
    }
    out->there_tokens   = there;
    out->fetch_tokens   = tokens_of(job, at) - there;
    out->compute_tokens = job->req.tokens - tokens_of(job, at);
}
