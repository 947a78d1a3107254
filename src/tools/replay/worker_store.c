/*
 * Owns the work for a request with --store: match, then for each window: get the existing blocks from any tier and
 * rank, verify them, compute the others and put them with the requested number of copies.
 *
 * The change of the store's statistics gives the tier of each hit. Only the thread that watches a kill issues gets as
 * well (watch.h), so both threads hold get_lock around a get.
 */
#include "config.h"
#include "tools/replay/worker.h"

#include "tools/clock.h"
#include "tools/pattern.h"

#include <string.h>

/* Room for all copies of all blocks, listed at any rank; twice, since a nearly full table refuses entries. */
static uint64_t entries_of(const replay_options_t *opt, uint64_t distinct, uint64_t pool_blocks, uint64_t tier_blocks,
                           uint64_t size)
{
    const uint64_t most  = distinct * opt->replicas * 2;
    uint64_t       total = pool_blocks * size;
    uint64_t       each;

    total = ((total < most) ? total : most) + (tier_blocks * size);
    total *= (opt->replicas > 1) ? 2 : 1; /* homes of a key */
    /* After a kill the other ranks are the homes of all keys. Few entries may be unevenly distributed. */
    each = (size > 2) ? ((total / (size - 1)) * 2) + WORKER_ENTRIES_MIN : total * 2;
    each = ((total < 16 * WORKER_ENTRIES_MIN) && (each < total * 2)) ? total * 2 : each;
    return (each < WORKER_ENTRIES_MIN) ? WORKER_ENTRIES_MIN : each;
}

/* The number of blocks that a tier may hold; the store refuses text other than PATH:SIZE. */
static uint64_t tier_blocks_of(const replay_options_t *opt)
{
    const char *colon = (opt->nvme != NULL) ? strrchr(opt->nvme, ':') : NULL;
    uint64_t   bytes;

    return ((colon != NULL) && cli_parse_size(colon + 1, &bytes)) ? bytes / opt->block_bytes : 0;
}

bool worker_size_store(const replay_options_t *opt, const trace_t *trace, const plan_t *plan, int size,
                       worker_room_t *room, char *error, size_t cap)
{
    const uint64_t longest = (trace->longest < WORKER_WINDOW_MAX) ? trace->longest : WORKER_WINDOW_MAX;
    const uint64_t all     = plan->distinct + WORKER_WINDOW_MAX; /* no pool holds a block twice; some are filling */

    room->blocks = all;
    if (opt->pool_share > 0) {
        room->blocks = (uint64_t)((double)plan->distinct * opt->pool_share / (double)size);
    } else if (opt->pool_bytes != REPLAY_POOL_UNLIMITED) {
        room->blocks = opt->pool_bytes / opt->block_bytes;
    }
    if (!worker_pool_fits(opt, room->blocks, error, cap)) {
        return false;
    }
    room->blocks = (room->blocks < all) ? room->blocks : all;
    room->window = (uint32_t)((room->blocks / 4 < longest) ? room->blocks / 4 : longest);
    room->window = (room->window != 0) ? room->window : 1;
    if (!worker_room_fits(opt, room->blocks, error, cap)) {
        return false;
    }
    room->dir_entries = entries_of(opt, plan->distinct, room->blocks, tier_blocks_of(opt), (uint64_t)size);
    return true;
}

/* The result of a get. */
static void count_got(worker_t *worker, const kvcl_store_stats_t *was, const kvcl_store_stats_t *now)
{
    const uint64_t got   = now->hits - was->hits;
    const uint64_t local = now->hits_local - was->hits_local;
    const uint64_t nvme  = now->hits_nvme - was->hits_nvme;

    worker->tally.hits += got;
    worker->tally.local += local;
    worker->tally.nvme += nvme;
    worker->tally.remote += got - local - nvme;
    worker->tally.bytes += (got - local) * worker->opt->block_bytes;
}

/* Get keys[first..first + n) into the scratch blocks 0..n-1; part_status: which were fetched; these are verified. */
static bool get_some(worker_t *worker, size_t first, size_t n)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_store_stats_t was    = KVCL_STORE_STATS_INIT, now = KVCL_STORE_STATS_INIT;
    kvcl_status_t      status;
    uint64_t           start;
    uint32_t           i;

    if (n == 0) {
        return true;
    }
    for (i = 0; i < n; ++i) {
        worker->part_ids[i]    = i;
        worker->part_status[i] = KVCL_ERR_NOT_FOUND;
    }
    params.timeout_ns = worker->timeout_ns;
    pthread_mutex_lock(&worker->get_lock);
    KVCL_TRY(kvcl_store_stats(worker->store, &was));
    start  = clock_ns();
    status = kvcl_store_get(worker->store, worker->keys + first, n, worker->cache, worker->part_ids,
                            worker->part_status, &params, &req);
    status = worker_finish(worker, status, req);
    hist_add(&worker->tally.get_ns, clock_ns() - start);
    KVCL_TRY(kvcl_store_stats(worker->store, &now));
    pthread_mutex_unlock(&worker->get_lock);
    count_got(worker, &was, &now);
    if ((status != KVCL_OK) && (status != KVCL_ERR_NOT_FOUND) && (status != KVCL_ERR_STALE) &&
        !worker_bears(worker, status)) {
        return job_ok(worker->job, status, "kvcl_store_get");
    }
    for (i = 0; i < n; ++i) {
        if (worker->part_status[i] == KVCL_OK) {
            worker_verify(worker, &worker->keys[first + i], i);
        } else {
            worker->tally.vanished += 1;
            worker->tally.failed += worker_bears(worker, worker->part_status[i]) ? 1 : 0;
        }
    }
    return true;
}

/* The results of n puts. */
static void count_put(worker_t *worker, size_t n, bool failed)
{
    size_t i;

    for (i = 0; i < n; ++i) {
        worker->tally.not_put += (worker->copies[i] == 0) ? 1 : 0;
        worker->tally.few_copies += ((worker->copies[i] != 0) && (worker->copies[i] < worker->opt->replicas)) ? 1 : 0;
    }
    worker->tally.failed += failed ? n : 0;
}

/* Compute those of keys[first..first + n) that were not fetched, in the scratch blocks, and put them. */
static bool put_rest(worker_t *worker, size_t first, size_t n_got, size_t n)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;
    uint64_t           start;
    uint32_t           i, n_part = 0;

    for (i = 0; i < n; ++i) {
        if ((i >= n_got) || (worker->part_status[i] != KVCL_OK)) {
            worker->part_keys[n_part]  = worker->keys[first + i];
            worker->part_ids[n_part++] = i; /* n_part <= i: that entry was read already */
            pattern_fill(worker->keys[first + i].bytes, worker->base + ((size_t)i * worker->opt->block_bytes),
                         worker->opt->block_bytes);
        }
    }
    if (n_part == 0) {
        return true;
    }
    memset(worker->copies, 0, n_part);
    worker->tally.computed += n_part;
    params.timeout_ns = worker->timeout_ns;
    params.copies     = worker->copies;
    start  = clock_ns();
    status = kvcl_store_put(worker->store, worker->part_keys, n_part, worker->cache, worker->part_ids, &params, &req);
    status = worker_finish(worker, status, req);
    hist_add(&worker->tally.put_ns, clock_ns() - start);
    if ((status != KVCL_OK) && (status != KVCL_ERR_NO_SPACE) && !worker_bears(worker, status)) {
        return job_ok(worker->job, status, "kvcl_store_put");
    }
    count_put(worker, n_part, worker_bears(worker, status));
    return true;
}

bool worker_serve_from_store(worker_t *worker, size_t index)
{
    const trace_request_t *request = &worker->trace->requests[index];
    size_t                hit, at, n, n_hit;

    if (!job_ok(worker->job,
                worker_keys(worker->trace, request, request->n, &worker->root, worker->tokens, worker->keys),
                "kvcl_key_chain")) {
        return false;
    }
    if (!worker_take_turn(worker, index) || !worker_match(worker, request->n, &hit)) {
        return false;
    }
    for (at = 0; at < request->n; at += n) {
        n     = (request->n - at < worker->window) ? request->n - at : worker->window;
        n_hit = (hit <= at) ? 0 : (hit - at < n) ? hit - at : n;
        if (!get_some(worker, at, n_hit) || !put_rest(worker, at, n_hit, n)) {
            return false;
        }
    }
    ++worker->tally.requests;
    worker->tally.blocks += request->n;
    return worker_pass_turn(worker, index);
}
