/*
 * Native gets and puts: runs issued to the transport, a window of them at a time, unless the table (rma_table.h) says
 * that the owner serves runs of this number and size faster.
 *
 * A put ends with a flush of every written region, so that its completion means visibility at the owner. Then the
 * owner's control word is read, or fetched where it is not mapped: the bytes of a region revoked meanwhile are not
 * valid. It is fetched before a put writes as well, and before a get reads unless it was fetched within LIVE_NS: an
 * access to memory that was unregistered ends all operations of the connection.
 *
 * Where blocks have generations that are not mapped, the words are read together with the control word, after every run
 * has completed: read together with the bytes, a word could be older than they are.
 *
 * A stopped job waits for its operations in flight: until they have completed, the network may write. After STOP_NS the
 * transport ends them (rma_end), and those of the other jobs with that peer, which the owner then serves.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "xfer/pull.h"
#include "xfer/xfer.h"

#include <stdlib.h>

enum { WINDOW = 64, RUN_MAX = 1 << 20, SAMPLE = 64 };

#define LIVE_NS (1 * KVCL_NS_PER_MS)
#define STOP_NS (100 * KVCL_NS_PER_MS)

typedef struct kvcl_rma_job kvcl_rma_job_t;

typedef struct rma_send {
    kvcl_xport_send_t send;
    kvcl_rma_job_t    *job;
    bool              busy;
} rma_send_t;

struct kvcl_rma_job {
    kvcl_list_t   link;
    kvcl_pull_t   *pull;
    kvcl_runs_t   runs;
    kvcl_status_t status;
    unsigned      in_flight;
    bool          issued;       /* all runs are issued */
    bool          stopped;      /* by the caller, whose status it is */
    bool          ended;        /* rma_end was called, or the link was lost: the operations end by themselves */
    uint64_t      stop_ns;      /* stopped: when rma_end is called */
    bool          queried_word; /* the witness's control word has been requested */
    bool          before;       /* the word is read before the first run */
    bool          reads_gens;   /* all runs have completed: the generations are read */
    size_t        span;         /* the next one of pull->far_gens */
    uint64_t      word;
    uint32_t      flushes;      /* regions flushed so far */
    rma_send_t    sends[WINDOW];
};

static bool word_is_due(const kvcl_rma_job_t *job)
{
    return !job->queried_word && (job->status == KVCL_OK) && (kvcl_pull_witness(job->pull)->ctl == NULL);
}

/* @return KVCL_INPROGRESS: on_send will be called. */
static kvcl_status_t query_word(kvcl_rma_job_t *job, rma_send_t *one)
{
    kvcl_rregion_t *witness = kvcl_pull_witness(job->pull);
    kvcl_status_t  status;

    job->queried_word = true;
    status = job->pull->peer->ops->get(witness->ctl_rmem, witness->id * sizeof(uint64_t), &job->word, sizeof(uint64_t),
                                       &one->send);
    if (status == KVCL_INPROGRESS) {
        one->busy = true;
        ++job->in_flight;
    } else {
        job->status = status;
    }
    return status;
}

/* @return whether the job goes on: its next operations are to be issued. */
static bool end_if_over(kvcl_rma_job_t *job)
{
    kvcl_pull_t    *pull = job->pull;
    kvcl_rregion_t *witness;
    kvcl_status_t  status;
    bool           stopped, live;

    if ((job->in_flight != 0) || !job->issued) {
        return false;
    }
    if (!job->before && !job->reads_gens && (job->status == KVCL_OK) && (pull->far_gens.n_spans != 0)) {
        job->reads_gens = true;
        job->issued     = false;
        return true;
    }
    if (word_is_due(job) && (query_word(job, &job->sends[0]) == KVCL_INPROGRESS)) {
        return false;
    }
    witness = kvcl_pull_witness(pull);
    if (job->queried_word && (job->status == KVCL_OK) && (job->word == witness->epoch)) {
        witness->live_ns = kvcl_now_ns();
    }
    if (job->before && (job->status == KVCL_OK) && (job->word == witness->epoch)) {
        job->before = job->queried_word = job->issued = false;
        return true;
    }
    live    = job->queried_word ? (job->word == witness->epoch) : kvcl_rregion_live(witness);
    status  = job->status;
    stopped = job->stopped;
    kvcl_list_del(&job->link);
    pull->rma = NULL;
    free(job);
    if ((status != KVCL_OK) && !stopped) {
        kvcl_pull_rma_failed(pull, status);
    } else {
        pull->req.ctx->stats.bytes_native += ((status == KVCL_OK) && live) ? pull->total : 0;
        kvcl_pull_bytes_done(pull, status, live);
    }
    return false;
}

static void on_send(kvcl_xport_send_t *send, kvcl_status_t status)
{
    rma_send_t     *one = kvcl_container_of(send, rma_send_t, send);
    kvcl_rma_job_t *job = one->job;

    one->busy = false;
    --job->in_flight;
    if ((status != KVCL_OK) && (job->status == KVCL_OK)) {
        job->status = status;
        job->issued = true;
    }
    (void)end_if_over(job); /* kvcl_rma_poll follows */
}

static kvcl_rregion_t *region_of(kvcl_pull_t *pull, uint32_t base)
{
    return (pull->from == KVCL_FROM_REGION) ? pull->rregion : &pull->rcache->regions[pull->rcache->base_region[base]];
}

static kvcl_status_t issue_run(kvcl_rma_job_t *job, const kvcl_run_t *run, rma_send_t *one)
{
    kvcl_pull_t            *pull   = job->pull;
    kvcl_rregion_t         *region = region_of(pull, pull->push ? run->dst_base : run->src_base);
    uint64_t               offset  = (uint64_t)(pull->push ? run->dst : run->src) - region->addr;
    const kvcl_xport_ops_t *ops    = pull->peer->ops;

    return pull->push ? ops->put(region->rmem, offset, (const void *)run->src, run->len, &one->send)
                      : ops->get(region->rmem, offset, (void *)run->dst, run->len, &one->send);
}

/* The flushes after a put's runs: one region after the other. */
static kvcl_status_t issue_flush(kvcl_rma_job_t *job, rma_send_t *one, bool *none_p)
{
    kvcl_pull_t *pull = job->pull;
    bool        flat  = (pull->from == KVCL_FROM_REGION);
    uint32_t    next  = job->flushes;

    *none_p = !pull->push || (next == (flat ? 1 : pull->rcache->n_regions));
    if (*none_p) {
        return KVCL_OK;
    }
    ++job->flushes;
    return pull->peer->ops->flush(flat ? pull->rregion->rmem : pull->rcache->regions[next].rmem, &one->send);
}

/* A span of generations, after the runs. */
static kvcl_status_t issue_gens(kvcl_rma_job_t *job, rma_send_t *one, bool *none_p)
{
    kvcl_pull_t           *pull = job->pull;
    const kvcl_rma_gens_t *gens = &pull->far_gens;
    const kvcl_rma_span_t *span = &gens->spans[job->span];

    *none_p = (job->span == gens->n_spans);
    if (*none_p) {
        return KVCL_OK;
    }
    ++job->span;
    return pull->peer->ops->get(pull->rcache->gens_region.rmem, (uint64_t)span->first * sizeof(uint32_t),
                                gens->words + span->at, span->n * sizeof(uint32_t), &one->send);
}

/* Operations in flight: WINDOW; for the lower class, while the upper one has a job, its share of WINDOW. */
static unsigned window(const kvcl_rma_job_t *job)
{
    kvcl_context_h ctx = job->pull->req.ctx;
    unsigned       share = (unsigned)ctx->config.background_share * WINDOW / 100;
    kvcl_rma_job_t *other;

    if (job->pull->background) {
        kvcl_list_foreach (other, &kvcl_xfer_state(ctx)->rmas, kvcl_rma_job_t, link) {
            if (!other->pull->background) {
                return (share == 0) ? 1 : share;
            }
        }
    }
    return WINDOW;
}

static unsigned advance(kvcl_rma_job_t *job)
{
    unsigned      n = 0, i, most = window(job);
    kvcl_status_t status;
    kvcl_run_t    run;
    bool          none;

    for (i = 0; (i < most) && !job->issued; ++i) {
        if (job->sends[i].busy) {
            continue;
        }
        none = false;
        if (job->reads_gens) {
            status      = issue_gens(job, &job->sends[i], &none);
            job->issued = none;
        } else if (kvcl_runs_next(&job->runs, RUN_MAX, &run)) {
            status = issue_run(job, &run, &job->sends[i]);
        } else {
            status      = issue_flush(job, &job->sends[i], &none);
            job->issued = none;
        }
        if (none && job->reads_gens && word_is_due(job)) { /* beside them */
            (void)query_word(job, &job->sends[i]);
            ++n;
        }
        if (none) {
            break;
        }
        ++n;
        if (status == KVCL_INPROGRESS) {
            job->sends[i].busy = true;
            ++job->in_flight;
        } else if (status != KVCL_OK) {
            job->status = status;
            job->issued = true;
        }
    }
    return n + (end_if_over(job) ? 1 : 0);
}

/* Natively, transports move host memory to host memory, or device memory to device memory (cuda_ipc, RDMA). */
bool kvcl_rma_same_kind(const kvcl_pull_t *pull)
{
    kvcl_mem_kind_t mine = kvcl_copier_kind((pull->cache != NULL) ? pull->cache->copier : pull->buf_copier);

    return mine == ((pull->from == KVCL_FROM_REGION) ? pull->rregion->kind
                                                     : (pull->rcache != NULL) ? pull->rcache->kind : KVCL_MEM_HOST);
}

/* Is native faster, by the table? Estimated from the first runs of the list. */
static bool pays(const kvcl_pull_t *pull, const kvcl_runs_t *runs)
{
    const kvcl_rregion_t *region = (pull->from == KVCL_FROM_REGION) ? pull->rregion : &pull->rcache->regions[0];
    kvcl_runs_t          walk = *runs;
    uint64_t             all = kvcl_runs_bytes(runs), bytes = 0, n_runs;
    kvcl_run_t           run;
    const char           *kind = kvcl_rregion_mechanism(region);
    unsigned             n;
    bool                 native;

    for (n = 0; (n < SAMPLE) && kvcl_runs_next(&walk, RUN_MAX, &run); ++n) {
        bytes += run.len;
    }
    bytes  = (n == 0) ? 0 : bytes / n;
    n_runs = (n < SAMPLE) ? n : all / bytes;
    native = kvcl_rma_table_native(&kvcl_xfer_state(pull->req.ctx)->rma_table, kind, bytes, n_runs);
    kvcl_log_debug("%s: %llu runs of about %llu bytes, %s: %s", pull->peer->name, (unsigned long long)n_runs,
                   (unsigned long long)bytes, kind, native ? "native" : "served");
    return native;
}

/* Must the control word be read before the first run? */
static bool must_look(kvcl_pull_t *pull)
{
    const kvcl_rregion_t *witness = kvcl_pull_witness(pull);

    return (witness->ctl == NULL) && (pull->push || (witness->live_ns == 0) ||
                                      (kvcl_now_ns() - witness->live_ns > LIVE_NS));
}

kvcl_status_t kvcl_rma_start(kvcl_pull_t *pull, const kvcl_runs_t *runs)
{
    kvcl_rma_job_t *job;
    kvcl_status_t  status;
    unsigned       i;

    if ((!pull->push || pull->need_direct) && !pays(pull, runs)) {
        return KVCL_ERR_UNSUPPORTED;
    }
    kvcl_rma_gens_clear(&pull->far_gens);
    if ((pull->gens != NULL) && (pull->rcache->gens == NULL)) {
        status = kvcl_rma_gens_plan(pull->remote.blocks, pull->remote.n_blocks, &pull->far_gens);
        if (status != KVCL_OK) {
            return status;
        }
    }
    job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a transfer");
    }
    job->pull = pull;
    job->runs = *runs;
    for (i = 0; i < WINDOW; ++i) {
        job->sends[i].job       = job;
        job->sends[i].send.done = on_send;
    }
    job->before = job->issued = must_look(pull);
    pull->rma   = job;
    kvcl_list_add_tail(&kvcl_xfer_state(pull->req.ctx)->rmas, &job->link);
    kvcl_engine_kick(pull->req.ctx);
    return KVCL_OK;
}

/* The job's operations in flight end soon, or by rma_end after STOP_NS. */
static void fence(kvcl_rma_job_t *job)
{
    kvcl_peer_t *peer = job->pull->peer;

    if (job->ended || (peer->ops->rma_end == NULL) || (peer->ep == NULL)) {
        return;
    }
    if (!kvcl_deadline_passed(job->stop_ns) && kvcl_req_stop_again(&job->pull->req, job->stop_ns)) {
        return;
    }
    kvcl_log_debug("%s: native operations of a stopped transfer are ended", peer->name);
    job->ended = true;
    peer->ops->rma_end(peer->ep);
    kvcl_engine_kick(job->pull->req.ctx); /* they complete from progress */
}

bool kvcl_rma_stopped(const kvcl_pull_t *pull)
{
    return pull->rma->stopped;
}

/* KVCL_ERR_UNREACHABLE: its operations in flight end with the endpoint of the lost link. */
void kvcl_rma_stop(kvcl_pull_t *pull, kvcl_status_t status)
{
    kvcl_rma_job_t *job = pull->rma;

    job->ended = job->ended || (status == KVCL_ERR_UNREACHABLE);
    if (job->stopped && pull->lost && (status != KVCL_ERR_UNREACHABLE)) { /* it will not begin again */
        pull->lost  = false;
        job->status = status;
    }
    if (!job->stopped) {
        job->status  = status;
        job->stopped = true;
        job->issued  = true;
        job->stop_ns = kvcl_deadline_after(STOP_NS);
    }
    if (job->in_flight != 0) {
        fence(job);
        return;
    }
    (void)end_if_over(job);
}

unsigned kvcl_rma_poll(kvcl_context_h ctx)
{
    kvcl_rma_job_t *job, *next;
    unsigned       n = 0;

    kvcl_list_foreach_safe (job, next, &kvcl_xfer_state(ctx)->rmas, kvcl_rma_job_t, link) {
        n += advance(job);
    }
    return n;
}
