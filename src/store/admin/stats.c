/*
 * Statistics: of this rank's part, and of other ranks' by a question (ops.h), whose answer is packed (stats_wire.h).
 */
#include "config.h"
#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"
#include "store/cold/cold.h"
#include "store/admin/ops.h"
#include "store/admin/stats_wire.h"
#include "store/pool/pool.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdlib.h>

#define STATS_FIRST KVCL_UP_TO(kvcl_store_stats_t, lookups)

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)counter, memory_order_relaxed);
}

/* Lock held. */
static void fill(kvcl_store_h store, kvcl_store_stats_t *stats)
{
    const kvcl_pool_t *pool = store->pool;
    unsigned          i;

    *stats = (kvcl_store_stats_t){.size = sizeof(*stats), .blocks = store->n_published, .published = store->n_ever,
                                  .evicted = store->n_evicted, .entries = store->table.count,
                                  .events = store->events.newest, .moved = store->n_moved, .copied = store->n_copied,
                                  .draining = store->draining};
    if (pool != NULL) {
        stats->block_bytes     = kvcl_owner_bytes(pool->owners[0]);
        stats->pool_bytes      = pool->bytes;
        stats->pool_free_bytes = kvcl_pool_all_free_bytes(pool);
        stats->pool_taken      = pool->n_taken;
        stats->n_sizes         = pool->n;
    }
    for (i = 0; (pool != NULL) && (i < pool->n); ++i) {
        const kvcl_owner_t *owner = pool->owners[i];
        stats->sizes[i] = (kvcl_store_size_stats_t){.block_bytes = kvcl_owner_bytes(owner),
                                                    .blocks = kvcl_owner_room(owner), .free = owner->slots.n_free,
                                                    .published = owner->slots.n_published, .pinned = owner->pinned,
                                                    .takes = kvcl_pool_free_bytes(owner) / kvcl_owner_bytes(owner)};
        stats->pool_blocks    += stats->sizes[i].blocks;
        stats->pool_free      += stats->sizes[i].free;
        stats->pool_published += stats->sizes[i].published;
        stats->pinned         += stats->sizes[i].pinned;
    }
    stats->gets       = load(&store->gets);
    stats->hits       = load(&store->hits);
    stats->stale      = load(&store->stale);
    stats->corrupt    = load(&store->corrupt);
    stats->lookups    = load(&store->lookups);
    stats->hits_cache = load(&store->tier_hits[KVCL_DIR_TIER_CACHE]);
    stats->hits_dram  = load(&store->tier_hits[KVCL_DIR_TIER_DRAM]);
    stats->hits_nvme  = load(&store->tier_hits[KVCL_DIR_TIER_NVME]);
    stats->hits_local = load(&store->local_hits);
    stats->bytes_in   = store->ctx->stats.bytes_in;
    stats->bytes_out  = store->ctx->stats.bytes_out;
}

kvcl_status_t kvcl_op_stats(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    kvcl_store_stats_t stats;

    (void)in;
    if (len != 0) {
        return KVCL_ERR_PROTOCOL;
    }
    fill(store, &stats);
    kvcl_cold_stats(store->cold, &stats);
    out->len = kvcl_stats_pack(&stats, out->buf, out->cap);
    return (out->len != 0) ? KVCL_OK : KVCL_ERR_NO_SPACE;
}

kvcl_status_t kvcl_store_stats(kvcl_store_h store, kvcl_store_stats_t *stats)
{
    kvcl_status_t      status = kvcl_struct_out_check(stats, STATS_FIRST, "kvcl_store_stats_t", "kvcl_store_stats");
    kvcl_store_stats_t now;

    if (status == KVCL_OK) {
        status = kvcl_handle_check(store, KVCL_KIND_STORE, "kvcl_store_stats");
    }
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(store->ctx);
    fill(store, &now);
    pthread_mutex_unlock(&store->ctx->engine.lock);
    kvcl_cold_stats(store->cold, &now);
    kvcl_struct_out(stats, &now, sizeof(now));
    return KVCL_OK;
}

kvcl_status_t kvcl_store_rank_stats(kvcl_store_h store, int rank, kvcl_store_stats_t *stats)
{
    uint8_t            answer[KVCL_STATS_WIRE_MAX];
    kvcl_op_out_t      out    = {.buf = answer, .cap = sizeof(answer)};
    kvcl_status_t      status = kvcl_store_check(store, stats, 1, "kvcl_store_rank_stats");
    kvcl_store_stats_t now;

    if (status == KVCL_OK) {
        status = kvcl_struct_out_check(stats, STATS_FIRST, "kvcl_store_stats_t", "kvcl_store_rank_stats");
    }
    if (status == KVCL_OK) {
        status = kvcl_op_call(store, rank, KVCL_ASK_STATS, NULL, 0, 0, &out, "kvcl_store_rank_stats");
    }
    if ((status == KVCL_OK) && !kvcl_stats_unpack(answer, out.len, &now)) {
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "kvcl_store_rank_stats: rank %d gave %zu bytes that make no sense", rank,
                           out.len);
    }
    if (status == KVCL_OK) {
        kvcl_struct_out(stats, &now, sizeof(now));
    }
    return status;
}

/* The answers, in the caller's array. */
static void give_all(const kvcl_op_out_t *outs, size_t n, kvcl_store_stats_t *stats, size_t stride,
                     kvcl_status_t *status)
{
    kvcl_store_stats_t now;
    size_t             i;

    for (i = 0; i < n; ++i) {
        if ((status[i] == KVCL_OK) && !kvcl_stats_unpack(outs[i].buf, outs[i].len, &now)) {
            status[i] = KVCL_ERR_PROTOCOL;
        }
        if (status[i] != KVCL_OK) {
            memset(&now, 0, sizeof(now));
        }
        now.size = stride;
        kvcl_struct_out_at(stats, i, stride, &now, sizeof(now));
    }
}

static kvcl_status_t ask_all(kvcl_store_h store, size_t n, kvcl_store_stats_t *stats, size_t stride,
                             kvcl_status_t *status)
{
    kvcl_op_out_t *outs    = calloc(n, sizeof(*outs));
    uint8_t       *answers = malloc(n * KVCL_STATS_WIRE_MAX);
    kvcl_status_t result   = KVCL_ERR_NO_MEMORY;
    size_t        i;

    for (i = 0; (i < n) && (outs != NULL) && (answers != NULL); ++i) {
        outs[i]   = (kvcl_op_out_t){.buf = answers + (i * KVCL_STATS_WIRE_MAX), .cap = KVCL_STATS_WIRE_MAX};
        status[i] = KVCL_OK;
    }
    if ((outs == NULL) || (answers == NULL)) {
        (void)kvcl_fail(result, "kvcl_store_all_stats: no memory for %zu ranks", n);
    } else {
        result = kvcl_op_call_all(store, KVCL_ASK_STATS, NULL, 0, 0, outs, status);
    }
    if (result == KVCL_OK) {
        give_all(outs, n, stats, stride, status);
    }
    free(answers);
    free(outs);
    return result;
}

kvcl_status_t kvcl_store_all_stats(kvcl_store_h store, size_t n, kvcl_store_stats_t *stats, size_t stride,
                                   kvcl_status_t *status)
{
    kvcl_status_t result = kvcl_store_check(store, stats, n, "kvcl_store_all_stats");

    if (result == KVCL_OK) {
        result = kvcl_stride_check(stride, STATS_FIRST, "kvcl_store_stats_t", "kvcl_store_all_stats");
    }
    if (result != KVCL_OK) {
        return result;
    }
    if ((n != store->n_ranks) || (status == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_all_stats: %zu ranks of a store over %u, or NULL", n,
                         store->n_ranks);
    }
    return ask_all(store, n, stats, stride, status);
}
