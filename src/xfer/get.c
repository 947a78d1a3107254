/*
 * kvcl_get: a pull posted by the user; small mapped ones are copied inside the call. Those of plain memory are in
 * vec/vec.c.
 */
#include "config.h"
#include "base/error.h"
#include "base/fence.h"
#include "xfer/describe.h"
#include "xfer/direct.h"
#include "xfer/params.h"
#include "weave/bulk.h"
#include "xfer/prepare.h"
#include "xfer/pull.h"
#include "xfer/xfer.h"
#include "weave/pieces.h"

#include <stdio.h>

/* The remote cache, if it is described and mapped and the bytes are few: the engine is not needed. */
kvcl_rcache_t *kvcl_direct_rcache(kvcl_context_h ctx, kvcl_peer_t *peer, uint64_t key, uint64_t bytes)
{
    kvcl_rcache_t *rcache = atomic_load_explicit(&peer->direct, memory_order_acquire);

    if (bytes > ctx->config.inline_copy) {
        return NULL;
    }
    if ((rcache == NULL) || (rcache->key != key)) {
        kvcl_lock(ctx);
        rcache = (peer->state == KVCL_PEER_READY) ? kvcl_rcache_ready(peer, key) : NULL;
        if ((rcache != NULL) && rcache->mapped) {
            atomic_store_explicit(&peer->direct, rcache, memory_order_release);
        }
        kvcl_unlock_quietly(ctx); /* nothing was posted: no thread to wake */
    }
    return ((rcache != NULL) && rcache->mapped && kvcl_rregion_live(&rcache->gens_region)) ? rcache : NULL;
}

static bool is_whole(const kvcl_sel_t *sel)
{
    return (sel->layers.end == 0) && (sel->heads.end == 0) && (sel->tokens.end == 0);
}

/* Whole opaque blocks: copied without streams. False: another case, or an error for the general check to report. */
static bool copy_opaque(kvcl_cache_h cache, const kvcl_sel_t *local, const kvcl_rcache_t *rcache,
                        const kvcl_sel_t *remote, bool push)
{
    uint64_t bytes = cache->shape.block_bytes;
    size_t   i, n;

    if ((cache->copier != NULL) || (rcache->copier != NULL) || !kvcl_shape_is_opaque(&cache->shape) ||
        !kvcl_shape_is_opaque(&rcache->shape) || !is_whole(local) ||
        !is_whole(remote) || (rcache->shape.block_bytes != bytes) || (remote->n_blocks != local->n_blocks) ||
        (remote->blocks == NULL) || (kvcl_bulk_how(bytes * local->n_blocks) != KVCL_BULK_CACHED)) {
        return false;
    }
    for (i = 0; i < remote->n_blocks; ++i) {
        if (remote->blocks[i] >= rcache->shape.blocks) {
            return false;
        }
    }
    for (i = 0; i < local->n_blocks; i += n) {
        char *mine   = (char *)cache->bases[0] + (local->blocks[i] * cache->shape.block_stride);
        char *theirs = (char *)rcache->bases[0] + (remote->blocks[i] * rcache->shape.block_stride);
        n = 1;
        while ((i + n < local->n_blocks) && (local->blocks[i + n] == local->blocks[i] + n) &&
               (remote->blocks[i + n] == remote->blocks[i] + n) && (cache->shape.block_stride == bytes) &&
               (rcache->shape.block_stride == bytes)) {
            ++n;
        }
        kvcl_copy_bytes(push ? theirs : mine, push ? mine : theirs, n * bytes);
    }
    return true;
}

/* No lock: copy between mapped sides; push: local to remote. */
static KVCL_UNGUARDED kvcl_status_t direct_copy(kvcl_cache_h cache, const kvcl_sel_t *local_sel, kvcl_rcache_t *rcache,
                                 const kvcl_sel_t *remote_sel, bool push)
{
    kvcl_side_t   local  = kvcl_cache_side(cache, local_sel);
    kvcl_side_t   remote = kvcl_rcache_side(rcache, remote_sel);
    uint64_t      bytes  = cache->shape.block_bytes * local_sel->n_blocks;
    kvcl_status_t status;
    kvcl_runs_t   runs;

    if (!copy_opaque(cache, local_sel, rcache, remote_sel, push)) {
        status = kvcl_side_check(&remote);
        if (status == KVCL_OK) {
            status = kvcl_runs_init(&runs, push ? &remote : &local, push ? &local : &remote, KVCL_RUNS_ANY_ORDER);
        }
        if (status != KVCL_OK) {
            return status;
        }
        bytes = kvcl_runs_bytes(&runs);
        status = kvcl_runs_copy_all(&runs);
        if (status != KVCL_OK) {
            return status;
        }
    }
    kvcl_fence(memory_order_seq_cst);
    atomic_fetch_add_explicit(push ? &cache->ctx->bytes_out : &cache->ctx->bytes_in, bytes, memory_order_relaxed);
    return kvcl_rregion_live(&rcache->gens_region) ? KVCL_OK : KVCL_ERR_STALE;
}

static kvcl_status_t direct_copy_timed(kvcl_cache_h cache, const kvcl_sel_t *local_sel, kvcl_rcache_t *rcache,
                                       const kvcl_sel_t *remote_sel, bool push)
{
    kvcl_timing_t timing = kvcl_timing_turn(&cache->ctx->latency, push ? KVCL_LATENCY_PUT : KVCL_LATENCY_GET);
    kvcl_status_t status = direct_copy(cache, local_sel, rcache, remote_sel, push);

    if (status == KVCL_OK) {
        kvcl_timing_path(&timing, kvcl_mem_path_mapped(rcache->peer));
        kvcl_timing_record(&cache->ctx->latency, &timing);
    }
    return status;
}

static kvcl_status_t direct_fail(const kvcl_xfer_plan_t *plan, const kvcl_sel_t *local, const kvcl_sel_t *remote,
                                 bool push, kvcl_status_t status)
{
    const kvcl_transfer_words_t words = {.push = push, .peer = plan->peer, .name = plan->name, .remote = remote,
                                         .cache = plan->cache, .local = local};
    char what[384], why[KVCL_ERROR_MAX / 2];

    snprintf(why, sizeof(why), "%s", kvcl_last_error());
    kvcl_lock(plan->ctx);
    if (status == KVCL_ERR_STALE) { /* decided without a sentence */
        (void)kvcl_explain_transfer(&words, status, why, sizeof(why));
    }
    kvcl_describe_transfer(&words, what, sizeof(what));
    kvcl_unlock(plan->ctx);
    return kvcl_fail(status, "%s: %s", what, why);
}

void kvcl_set_statuses(kvcl_status_t *statuses, size_t n, kvcl_status_t status)
{
    size_t i;

    for (i = 0; (statuses != NULL) && (i < n); ++i) {
        statuses[i] = status;
    }
}

/* Only where its record needs it: a small copy takes less time than this sum. */
static uint64_t moved_by(const kvcl_xfer_plan_t *plan, const kvcl_sel_t *local, kvcl_status_t status,
                         const kvcl_xfer_params_t *p)
{
    return ((p->queue != NULL) && (status == KVCL_OK)) ? kvcl_sel_bytes(&plan->cache->shape, local) : 0;
}

KVCL_UNGUARDED kvcl_status_t kvcl_direct_post(const kvcl_xfer_plan_t *plan, const kvcl_sel_t *local,
                                              kvcl_rcache_t *rcache, const kvcl_sel_t *remote, bool push,
                                              const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_status_t status = kvcl_timing_due(&plan->ctx->instant_ops)
                               ? direct_copy_timed(plan->cache, local, rcache, remote, push)
                               : direct_copy(plan->cache, local, rcache, remote, push);

    if (status != KVCL_OK) {
        status = direct_fail(plan, local, remote, push, status);
    }
    kvcl_set_statuses(p->status, remote->n_blocks, status);
    return kvcl_req_instant(plan->ctx, status, moved_by(plan, local, status, p), p, req_p);
}

kvcl_status_t kvcl_get_begin(kvcl_context_h ctx, kvcl_pull_t *pull, kvcl_gate_t *gate, const kvcl_xfer_params_t *p,
                             kvcl_req_h *req_p)
{
    kvcl_status_t status;

    pull->gate       = gate;
    pull->op         = (gate == NULL) ? KVCL_LATENCY_GET : KVCL_LATENCY_NONE; /* a stream's work is not timed */
    pull->background = (p->flags & KVCL_BACKGROUND) != 0;
    if (p->notify != NULL) {
        return kvcl_xfer_state(ctx)->notifier->get(ctx, pull, p, req_p);
    }
    kvcl_lock(ctx);
    status = kvcl_pull_post(ctx, pull, p, req_p);
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        kvcl_pull_discard(pull);
        return kvcl_fail(status, "no memory for a transfer");
    }
    return KVCL_OK;
}

KVCL_UNGUARDED kvcl_status_t kvcl_get_post(const kvcl_xfer_plan_t *plan, const kvcl_sel_t *remote,
                                           const kvcl_sel_t *local, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    uint64_t      bytes   = kvcl_sel_bytes(&plan->cache->shape, local);
    kvcl_rcache_t *rcache = NULL;
    kvcl_gate_t   *gate;
    kvcl_status_t status  = kvcl_gate_make(plan->ctx, p->stream, "kvcl_get", &gate);
    kvcl_pull_t   *pull;

    if (status != KVCL_OK) {
        return status;
    }
    if ((gate == NULL) && (p->notify == NULL)) {
        rcache = kvcl_direct_rcache(plan->ctx, plan->peer, plan->name_key, bytes);
    }
    if (rcache != NULL) {
        return kvcl_direct_post(plan, local, rcache, remote, false, p, req_p);
    }
    pull = kvcl_pull_new();
    if ((pull == NULL) || ((status = kvcl_pull_set_remote(pull, remote)) != KVCL_OK) ||
        ((status = kvcl_pull_set_local(pull, plan->cache, local)) != KVCL_OK)) {
        kvcl_pull_discard(pull);
        kvcl_gate_free(gate);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_get: no memory for a transfer");
    }
    pull->peer     = plan->peer;
    pull->self     = plan->self;
    pull->from     = KVCL_FROM_CACHE;
    strcpy(pull->cache_name, plan->name);
    pull->name_key = plan->name_key;
    pull->total    = bytes;
    pull->status   = p->status;
    return kvcl_get_begin(plan->ctx, pull, gate, p, req_p);
}

KVCL_UNGUARDED kvcl_status_t kvcl_get(kvcl_comm_h comm, int rank, kvcl_cache_h cache, const kvcl_sel_t *remote,
                       const kvcl_sel_t *local, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_xfer_plan_t   plan;
    kvcl_status_t      status = kvcl_xfer_plan(comm, rank, cache, KVCL_CALL_GET, params, &p, &plan);

    if (status == KVCL_OK) {
        status = kvcl_xfer_local(comm->ctx, cache, local, "kvcl_get");
    }
    if (status == KVCL_OK) {
        status = kvcl_xfer_remote(remote, "kvcl_get");
    }
    return (status == KVCL_OK) ? kvcl_get_post(&plan, remote, local, &p, req_p) : status;
}
