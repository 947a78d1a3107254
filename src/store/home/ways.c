/*
 * The ways to a store's ranks (ways.h). Owns nothing: a rank's caches or table that are mapped here say so.
 */
#include "config.h"
#include "store/home/ways.h"
#include "core/context.h"

kvcl_way_t kvcl_store_way(const struct kvcl_store *store, uint32_t rank)
{
    const kvcl_store_rank_t *r = &store->ranks[rank];

    if (rank == store->me) {
        return KVCL_WAY_LOOP;
    }
    if ((r->peer == NULL) || ((r->peer->maps != 1) &&
                              (atomic_load_explicit(&((kvcl_store_rank_t *)r)->view_state, memory_order_relaxed) !=
                               KVCL_VIEW_MAPPED))) {
        return KVCL_WAY_SERVED;
    }
    return kvcl_way_mapped(r->peer);
}

void kvcl_deal_way(const struct kvcl_store *store, const kvcl_deal_t *deal, kvcl_timing_t *timing)
{
    uint32_t home;

    for (home = 0; (timing->begun_ns != 0) && (home < store->n_ranks); ++home) {
        if (deal->starts[home] != deal->starts[home + 1]) {
            kvcl_timing_way(timing, kvcl_store_way(store, home));
        }
    }
}
