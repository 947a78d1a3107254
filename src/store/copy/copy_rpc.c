/*
 * KVCL_RPC_COPY as a message: how it is made, the time that its answer may take, and which contents are accepted. No
 * state, no locks.
 */
#include "config.h"
#include "base/clock.h"
#include "core/context.h"
#include "store/copy/copy_job.h"
#include "store/copy/copy_jobs.h"

enum { CHAIN_BYTES_PER_SEC = 50 << 20 };

uint64_t kvcl_copy_time(const struct kvcl_store *store, uint32_t n, uint64_t bytes)
{
    const uint64_t ten_hedges = 10 * store->ctx->config.store_hedge_ns, least = 2 * KVCL_NS_PER_SEC;

    return ((ten_hedges > least) ? ten_hedges : least) + ((n * bytes / CHAIN_BYTES_PER_SEC) * KVCL_NS_PER_SEC);
}

kvcl_rpc_t *kvcl_copy_request(kvcl_store_h store, uint32_t rank, const kvcl_copy_head_t *head,
                              const kvcl_store_rec_t *recs, const uint32_t *order, uint32_t n)
{
    size_t     len  = sizeof(*head) + (n * sizeof(*recs));
    kvcl_rpc_t *rpc = kvcl_rpc_new(store, rank, KVCL_RPC_COPY, len);
    uint32_t   i;

    if (rpc != NULL) {
        memcpy(rpc->payload, head, sizeof(*head));
        for (i = 0; i < n; ++i) {
            memcpy(rpc->payload + sizeof(*head) + (i * sizeof(*recs)), &recs[(order != NULL) ? order[i] : i],
                   sizeof(*recs));
        }
        rpc->len   = len;
        rpc->n     = n;
        rpc->order = order;
    }
    return rpc;
}

bool kvcl_copy_check(const kvcl_owner_t *pool, const kvcl_copy_head_t *head, const kvcl_store_rec_t *recs, uint32_t n)
{
    const struct kvcl_store *store = pool->store;
    uint32_t                i;

    if ((head->copies == 0) || (head->copies > KVCL_DIR_LOCS_MAX) || (head->n_next > KVCL_DIR_LOCS_MAX - 2) ||
        (head->there > KVCL_DIR_LOCS_MAX) || ((head->flags & ~KVCL_COPY_UNLISTED) != 0)) {
        return false;
    }
    for (i = 0; i < head->n_next; ++i) {
        if (head->next[i] >= store->n_ranks) {
            return false;
        }
    }
    for (i = 0; i < n; ++i) {
        if ((recs[i].loc.rank >= store->n_ranks) || (recs[i].loc.gen == 0) || (recs[i].loc.source != 0) ||
            ((recs[i].loc.flags & ~KVCL_DIR_FLAGS_MASK) != 0) ||
            (recs[i].loc.len != kvcl_owner_bytes(pool))) {
            return false;
        }
    }
    return true;
}
