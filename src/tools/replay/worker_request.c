/*
 * Owns the work for one request: match, take the leading blocks that any rank has (local ones are pinned, the others
 * fetched), compute and publish the rest, let the next request start, verify. Blocks are processed in windows of at
 * most half the pool, so a request may be longer than the pool.
 *
 * Fetched copies are freed once verified: a worker's pool holds the blocks that it computed and the hot prefixes that
 * it received by broadcast. So the hits do not depend on the rank that serves a request.
 */
#include "config.h"
#include "tools/replay/worker.h"

#include "tools/clock.h"
#include "tools/pattern.h"

#include <string.h>

bool worker_match(worker_t *worker, uint32_t n, size_t *hit_p)
{
    const uint64_t start = clock_ns();
    kvcl_status_t  status;

    *hit_p = 0;
    if (n == 0) {
        return true;
    }
    status = kvcl_store_match(worker->store, worker->keys, n, hit_p, NULL);
    if (worker_bears(worker, status)) {
        worker->tally.failed += n;
        *hit_p = 0;
        return true;
    }
    if (!job_ok(worker->job, status, "kvcl_store_match")) {
        return false;
    }
    hist_add(&worker->tally.match_ns, clock_ns() - start);
    worker->tally.lookups += n;
    return true;
}

/* A block that cannot be fetched any longer is not a failure: it is computed. Any other error ends the run. */
static bool is_absent(kvcl_status_t status)
{
    return (status == KVCL_ERR_NOT_FOUND) || (status == KVCL_ERR_STALE);
}

/* Get part_keys[0..n) into new blocks part_ids; part_status: which were fetched. */
static bool fetch(worker_t *worker, size_t n)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;
    uint64_t           start;
    size_t             i;

    if (n == 0) {
        return true;
    }
    if (!job_ok(worker->job, kvcl_store_alloc(worker->store, n, worker->part_ids), "kvcl_store_alloc")) {
        return false;
    }
    for (i = 0; i < n; ++i) {
        worker->part_status[i] = KVCL_ERR_NOT_FOUND;
    }
    params.timeout_ns = worker->timeout_ns;
    start             = clock_ns();
    status            = kvcl_store_get(worker->store, worker->part_keys, n, worker->cache, worker->part_ids,
                                       worker->part_status, &params, &req);
    status            = worker_finish(worker, status, req);
    if ((status != KVCL_OK) && !is_absent(status)) {
        return job_ok(worker->job, status, "kvcl_store_get");
    }
    hist_add(&worker->tally.get_ns, clock_ns() - start);
    return true;
}

/* Of the n keys from first on, pin those that this rank holds into held[]; the others go to part_keys. */
static size_t pin_ours(worker_t *worker, size_t first, size_t n)
{
    worker_held_t *held;
    size_t        i, n_part = 0;

    for (i = 0; i < n; ++i) {
        held         = &worker->held[i];
        held->key    = (uint32_t)(first + i);
        held->pinned = (kvcl_store_pin_local(worker->store, &worker->keys[first + i], &held->id) == KVCL_OK);
        if (!held->pinned) {
            worker->part_keys[n_part++] = worker->keys[first + i];
        }
    }
    return n_part;
}

/* After a fetch: keep the leading fetched blocks, free the rest. @return the number kept, or SIZE_MAX. */
static size_t keep_leading(worker_t *worker, size_t n)
{
    worker_held_t *held;
    size_t        i, part = 0, n_kept = 0, n_free = 0;
    bool          leading = true, came;

    for (i = 0; i < n; ++i) {
        held = &worker->held[i];
        came = held->pinned || (worker->part_status[part] == KVCL_OK);
        if (!held->pinned) {
            held->id = worker->part_ids[part++];
            worker->tally.vanished += came ? 0u : 1u;
        }
        leading = leading && came;
        if (leading) {
            worker->tally.local += held->pinned ? 1u : 0u;
            worker->tally.bytes += held->pinned ? 0u : worker->opt->block_bytes;
            ++n_kept;
        } else if (held->pinned) {
            kvcl_store_unpin_local(worker->store, held->id);
        } else {
            worker->part_ids[n_free++] = held->id; /* n_free < part: this entry has been read */
        }
    }
    worker->n_held = n_kept;
    if ((n_free != 0) &&
        !job_ok(worker->job, kvcl_store_free(worker->store, worker->part_ids, n_free), "kvcl_store_free")) {
        return SIZE_MAX;
    }
    return n_kept;
}

/* Take the first hit blocks. *got_p: their number; those of the last window are still held. */
static bool take_hits(worker_t *worker, size_t hit, size_t *got_p)
{
    size_t got = 0, n, came;

    while (got < hit) {
        n = (hit - got < worker->window) ? hit - got : worker->window;
        if (!worker_release(worker) || !fetch(worker, pin_ours(worker, got, n))) {
            return false;
        }
        came = keep_leading(worker, n);
        if (came == SIZE_MAX) {
            return false;
        }
        got += came;
        if (came < n) {
            break;
        }
    }
    worker->tally.hits += got;
    *got_p = got;
    return true;
}

/* Free the blocks whose key the directory did not accept. */
static bool give_back_unpublished(worker_t *worker, size_t n)
{
    size_t i, n_back = 0;

    for (i = 0; i < n; ++i) {
        if (worker->part_status[i] != KVCL_OK) {
            worker->part_ids[n_back++] = worker->part_ids[i];
        }
    }
    if (n_back == 0) {
        return true;
    }
    worker->tally.unpublished += n_back;
    return job_ok(worker->job, kvcl_store_withdraw(worker->store, worker->cache, worker->part_ids, n_back),
                  "kvcl_store_withdraw") &&
           job_ok(worker->job, kvcl_store_free(worker->store, worker->part_ids, n_back), "kvcl_store_free");
}

/* Compute and publish part_keys[0..n). */
static bool publish(worker_t *worker, size_t n)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;
    size_t             i;

    if (!job_ok(worker->job, kvcl_store_alloc(worker->store, n, worker->part_ids), "kvcl_store_alloc")) {
        return false;
    }
    for (i = 0; i < n; ++i) {
        pattern_fill(worker->part_keys[i].bytes,
                     worker->base + ((size_t)worker->part_ids[i] * worker->opt->block_bytes), worker->opt->block_bytes);
        worker->part_status[i] = KVCL_OK;
    }
    worker->tally.computed += n;
    params.timeout_ns = worker->timeout_ns;
    params.status     = worker->part_status;
    status = kvcl_store_publish(worker->store, worker->part_keys, n, worker->cache, worker->part_ids, &params, &req);
    status = worker_finish(worker, status, req);
    if ((status != KVCL_OK) && (status != KVCL_ERR_NO_SPACE) && (status != KVCL_ERR_EXISTS)) {
        return job_ok(worker->job, status, "kvcl_store_publish");
    }
    return give_back_unpublished(worker, n);
}

/* Compute blocks first..n-1. A block that this rank still holds, after a lost one, is not computed again. */
static bool compute(worker_t *worker, size_t first, size_t n)
{
    uint32_t id;
    size_t   i, n_part = 0;

    for (i = first; i < n; ++i) {
        if (kvcl_store_pin_local(worker->store, &worker->keys[i], &id) == KVCL_OK) {
            kvcl_store_unpin_local(worker->store, id);
        } else {
            worker->part_keys[n_part++] = worker->keys[i];
        }
        if ((n_part == worker->window) || ((i + 1 == n) && (n_part != 0))) {
            if (!publish(worker, n_part)) {
                return false;
            }
            n_part = 0;
        }
    }
    return true;
}

bool worker_serve_request(worker_t *worker, size_t index)
{
    const trace_request_t *request = &worker->trace->requests[index];
    size_t                hit, got;

    if (!job_ok(worker->job,
                worker_keys(worker->trace, request, request->n, &worker->root, worker->tokens, worker->keys),
                "kvcl_key_chain")) {
        return false;
    }
    if (!worker_take_turn(worker, index) || !worker_match(worker, request->n, &hit) || !take_hits(worker, hit, &got) ||
        !compute(worker, got, request->n) || !worker_pass_turn(worker, index)) {
        return false;
    }
    ++worker->tally.requests;
    worker->tally.blocks += request->n;
    return worker_release(worker);
}
