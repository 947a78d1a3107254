/*
 * The paths to a store's ranks (paths.h). Owns nothing. A rank counts as mapped if one of its caches or its table is
 * mapped by this rank.
 */
#include "config.h"
#include "store/home/paths.h"
#include "core/context.h"
#include "store/store.h"

kvcl_mem_path_t kvcl_store_path(const struct kvcl_store *store, uint32_t rank)
{
    const kvcl_store_rank_t *r = &store->ranks[rank];

    if (rank == store->me) {
        return KVCL_MEM_PATH_LOOP;
    }
    if ((r->peer == NULL) || ((r->peer->maps != 1) &&
                              (atomic_load_explicit(&((kvcl_store_rank_t *)r)->view_state, memory_order_relaxed) !=
                               KVCL_VIEW_MAPPED))) {
        return KVCL_MEM_PATH_SERVED;
    }
    return kvcl_mem_path_mapped(r->peer);
}

kvcl_mem_path_t kvcl_rpc_path(const kvcl_rpc_t *rpc)
{
    return rpc->read ? KVCL_MEM_PATH_NATIVE : kvcl_store_path(rpc->store, rpc->rank);
}

void kvcl_scatter_path(const struct kvcl_store *store, const kvcl_scatter_t *scatter, kvcl_timing_t *timing)
{
    uint32_t home;

    for (home = 0; (timing->begun_ns != 0) && (home < store->n_ranks); ++home) {
        if (scatter->starts[home] != scatter->starts[home + 1]) {
            kvcl_timing_path(timing, kvcl_store_path(store, home));
        }
    }
}
