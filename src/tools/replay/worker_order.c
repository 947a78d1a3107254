/*
 * Owns the dependencies between ranks: the turn that passes from request to request with --in-order, and the broadcasts
 * of hot prefixes.
 *
 * No deadlock: the rank of request j joins every broadcast planned before j and only then waits for its turn. So a rank
 * that waits in a broadcast planned before b has served all its requests below b, and the requests below b wait only
 * for one another, in their order, and for broadcasts planned earlier.
 */
#include "config.h"
#include "tools/replay/worker.h"

#include <inttypes.h>

#define TURN_TAG UINT64_C(0x7475726e00000000) /* "turn" */

/* With --speed the turn may arrive as late as the trace's timestamps require. */
static uint64_t turn_timeout(const worker_t *worker, size_t index)
{
    const size_t size = (size_t)worker->job->size;
    uint64_t     from, to;

    if ((worker->opt->speed <= 0) || (index < size)) {
        return worker->timeout_ns;
    }
    from = worker->trace->requests[index - size].timestamp_ms;
    to   = worker->trace->requests[index].timestamp_ms;
    return worker->timeout_ns + ((to > from) ? (uint64_t)((double)(to - from) * 1e6 / worker->opt->speed) : 0);
}

bool worker_take_turn(worker_t *worker, size_t index)
{
    const int before = (int)((index + (size_t)worker->job->size - 1) % (size_t)worker->job->size);

    if (!worker->opt->in_order || (worker->job->size == 1) || (index == 0)) {
        return true;
    }
    if (!job_recv(worker->job, before, TURN_TAG, &worker->baton[1], sizeof(worker->baton[1]),
                  turn_timeout(worker, index))) {
        return false;
    }
    if (worker->baton[1] != index) {
        job_complain(worker->job, "received the turn of request %" PRIu64 ", not of %zu", worker->baton[1], index);
        return false;
    }
    return true;
}

bool worker_passed_turn(worker_t *worker)
{
    kvcl_req_h req = worker->baton_req;

    worker->baton_req = NULL;
    return (req == NULL) || job_ok(worker->job, worker_finish(worker, KVCL_OK, req), "passing the turn");
}

bool worker_pass_turn(worker_t *worker, size_t index)
{
    const int          next   = (int)((index + 1) % (size_t)worker->job->size);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    if (!worker->opt->in_order || (worker->job->size == 1) || (index + 1 >= worker->trace->n_requests)) {
        return true;
    }
    /* The turn has returned to this rank, so the one it sent was received long ago. */
    if (!worker_passed_turn(worker)) {
        return false;
    }
    worker->baton[0]  = index + 1;
    params.timeout_ns = turn_timeout(worker, index + 1);
    return job_ok(worker->job,
                  kvcl_send_bytes(worker->job->world, next, TURN_TAG, &worker->baton[0], sizeof(worker->baton[0]),
                                  &params, &worker->baton_req),
                  "kvcl_send_bytes");
}

/* Take part in one broadcast. A prefix that is not (or no longer) complete is not broadcast. */
static bool broadcast(worker_t *worker, const plan_hot_t *hot)
{
    const size_t       n      = hot->end - hot->begin;
    const kvcl_key_t   *keys  = worker->keys + hot->begin;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;
    size_t             i;

    if (!job_ok(worker->job,
                worker_keys(worker->trace, &worker->trace->requests[hot->request], hot->end, &worker->root,
                            worker->tokens, worker->keys),
                "kvcl_key_chain") ||
        !job_ok(worker->job, kvcl_store_alloc(worker->store, n, worker->part_ids), "kvcl_store_alloc")) {
        return false;
    }
    params.timeout_ns = turn_timeout(worker, hot->request);
    status = kvcl_store_bcast(worker->store, keys, n, worker->cache, worker->part_ids, &params, &req);
    status = worker_finish(worker, status, req);
    if (status == KVCL_ERR_NOT_FOUND) {
        return job_ok(worker->job, kvcl_store_free(worker->store, worker->part_ids, n), "kvcl_store_free");
    }
    if (!job_ok(worker->job, status, "kvcl_store_bcast")) {
        return false;
    }
    /* The store may evict the blocks now, but only when this thread allocates others. */
    for (i = 0; i < n; ++i) {
        worker_verify(worker, &keys[i], worker->part_ids[i]);
    }
    ++worker->tally.bcasts;
    worker->tally.bcast_blocks += n;
    return true;
}

bool worker_broadcasts(worker_t *worker, size_t before)
{
    while ((worker->next_hot < worker->plan->n_hot) && (worker->plan->hot[worker->next_hot].before <= before)) {
        if (!broadcast(worker, &worker->plan->hot[worker->next_hot++])) {
            return false;
        }
    }
    return true;
}
