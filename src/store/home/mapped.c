/*
 * Tables of other ranks that are mapped here (mapped.h). Owns kvcl_store_rank_t.mapped. Engine lock held; readers of a
 * table take no lock.
 */
#include "config.h"
#include "store/home/mapped.h"

#include <stdlib.h>

kvcl_status_t kvcl_mapped_keep(kvcl_store_rank_t *rank)
{
    kvcl_store_mapped_t *mapped = calloc(1, sizeof(*mapped));
    kvcl_status_t       status  = KVCL_ERR_NO_MEMORY;

    if (mapped != NULL) {
        status = kvcl_dir_view_init(&mapped->view, rank->region.attr.map, (size_t)rank->region.len);
    }
    if (status != KVCL_OK) {
        free(mapped);
        return status;
    }
    mapped->region = rank->region;
    mapped->before = atomic_load_explicit(&rank->mapped, memory_order_relaxed);
    memset(&rank->region, 0, sizeof(rank->region));
    atomic_store_explicit(&rank->mapped, mapped, memory_order_release);
    return KVCL_OK;
}

void kvcl_mapped_close(kvcl_store_rank_t *rank, const kvcl_peer_t *peer)
{
    kvcl_store_mapped_t *mapped;

    for (mapped = atomic_load(&rank->mapped); mapped != NULL; mapped = mapped->before) {
        if ((peer == NULL) || (mapped->region.peer == peer)) {
            kvcl_rregion_close(&mapped->region);
        }
    }
}

void kvcl_mapped_free(kvcl_store_h store)
{
    kvcl_store_mapped_t *mapped, *before;
    uint32_t            i;

    for (i = 0; (store->ranks != NULL) && (i < store->n_ranks); ++i) {
        for (mapped = atomic_load(&store->ranks[i].mapped); mapped != NULL; mapped = before) {
            before = mapped->before;
            free(mapped);
        }
    }
}
