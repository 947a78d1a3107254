/*
 * Native gets and puts: runs issued to the transport, a window of them at a time.
 *
 * A put ends with a flush of every region written, so that its completion means visibility at the owner. A stopped job
 * waits for what is in flight: the network may still write until then.
 */
#include "config.h"
#include "base/error.h"
#include "xfer/pull.h"
#include "xfer/xfer.h"

#include <stdlib.h>

enum { WINDOW = 64, RUN_MAX = 1 << 20 };

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
    bool          issued;       /* all runs are */
    uint32_t      flushes;      /* regions flushed so far */
    rma_send_t    sends[WINDOW];
};

static void end_if_over(kvcl_rma_job_t *job)
{
    kvcl_pull_t   *pull  = job->pull;
    kvcl_status_t status = job->status;

    if ((job->in_flight == 0) && job->issued) {
        kvcl_list_del(&job->link);
        pull->rma = NULL;
        free(job);
        kvcl_pull_bytes_done(pull, status);
    }
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
    end_if_over(job);
}

static kvcl_rregion_t *region_of(kvcl_pull_t *pull, uint32_t base)
{
    return (pull->from == KVCL_FROM_REGION) ? pull->rregion : &pull->rcache->regions[pull->rcache->base_region[base]];
}

static kvcl_status_t issue_run(kvcl_rma_job_t *job, const kvcl_run_t *run, rma_send_t *one)
{
    kvcl_pull_t    *pull   = job->pull;
    kvcl_rregion_t *region = region_of(pull, pull->push ? run->dst_base : run->src_base);
    uint64_t       offset  = (uint64_t)(pull->push ? run->dst : run->src) - region->addr;
    const kvcl_xport_ops_t *ops = pull->peer->ops;

    return pull->push ? ops->put(region->rmem, offset, (const void *)run->src, run->len, &one->send)
                      : ops->get(region->rmem, offset, (void *)run->dst, run->len, &one->send);
}

/* The flush behind a put's runs: one region after the other. */
static kvcl_status_t issue_flush(kvcl_rma_job_t *job, rma_send_t *one, bool *none_p)
{
    kvcl_pull_t *pull = job->pull;
    uint32_t    n     = (pull->from == KVCL_FROM_REGION) ? 1 : pull->rcache->n_regions;

    *none_p = !pull->push || (job->flushes == n);
    if (*none_p) {
        return KVCL_OK;
    }
    return pull->peer->ops->flush((pull->from == KVCL_FROM_REGION) ? pull->rregion->rmem
                                                                   : pull->rcache->regions[job->flushes++].rmem,
                                  &one->send);
}

static unsigned advance(kvcl_rma_job_t *job)
{
    unsigned      n = 0, i;
    kvcl_status_t status;
    kvcl_run_t    run;
    bool          none;

    for (i = 0; (i < WINDOW) && !job->issued; ++i) {
        if (job->sends[i].busy) {
            continue;
        }
        if (kvcl_runs_next(&job->runs, RUN_MAX, &run)) {
            status = issue_run(job, &run, &job->sends[i]);
        } else {
            status      = issue_flush(job, &job->sends[i], &none);
            job->issued = none;
            if (none) {
                break;
            }
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
    end_if_over(job);
    return n;
}

kvcl_status_t kvcl_rma_start(kvcl_pull_t *pull, const kvcl_runs_t *runs)
{
    kvcl_rma_job_t *job = calloc(1, sizeof(*job));
    unsigned       i;

    if (job == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a transfer");
    }
    job->pull = pull;
    job->runs = *runs;
    for (i = 0; i < WINDOW; ++i) {
        job->sends[i].job       = job;
        job->sends[i].send.done = on_send;
    }
    pull->rma = job;
    kvcl_list_add_tail(&kvcl_xfer_state(pull->req.ctx)->rmas, &job->link);
    kvcl_engine_kick(pull->req.ctx);
    return KVCL_OK;
}

void kvcl_rma_stop(kvcl_pull_t *pull, kvcl_status_t status)
{
    kvcl_rma_job_t *job = pull->rma;

    if (job->status == KVCL_OK) {
        job->status = status;
    }
    job->issued = true;
    end_if_over(job);
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
