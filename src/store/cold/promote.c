/*
 * Promotion: a block of the tier that is requested a second time is copied into the pool, as another rank's block would
 * be (copy/copy_jobs.c), if no block has to be dropped for it.
 *
 * cold->seen holds hashes of blocks that were requested once; one that another block has overwritten costs a promotion.
 * All under the engine lock.
 */
#include "config.h"
#include "store/cold/cold.h"
#include "store/pool/pool.h"

bool kvcl_promote_seen(kvcl_cold_t *cold, const kvcl_key_t *key)
{
    uint64_t hash = kvcl_owner_hash(key) | 1, *at = &cold->seen[(hash >> 8) & (cold->n_seen - 1)];
    bool     was  = (*at == hash);

    *at = was ? 0 : hash;
    return was;
}

/* No pool block is dropped for a block that is in the tier in any case. */
static bool pool_has_room(kvcl_cold_class_t *cls)
{
    kvcl_owner_t *pool = cls->pool;
    uint32_t     next;

    if ((kvcl_pool_free_bytes(pool) >= kvcl_owner_bytes(pool)) ||
        ((kvcl_evict_peek(&pool->evict, &next, 1) == 1) && (cls->clean[next] == KVCL_COLD_CLEAN))) {
        return true;
    }
    kvcl_cold_kick(cls->cold);
    return false;
}

void kvcl_promote(kvcl_stage_t *stage)
{
    kvcl_cold_class_t *cls  = stage->cls;
    kvcl_store_h      store = cls->cold->store;
    kvcl_store_rec_t  rec   = stage->rec;

    stage->promote = false;
    if (store->closing || store->draining || (kvcl_owner_find(store, &rec.key, cls->pool) != NULL) ||
        !pool_has_room(cls)) {
        return;
    }
    rec.loc.cache = (uint16_t)cls->cache->id;
    rec.loc.slot  = kvcl_stage_slot(stage);
    rec.loc.gen   = kvcl_slots_gen(&cls->slots, rec.loc.slot);
    rec.loc.flags = (uint16_t)((rec.loc.flags & ~KVCL_DIR_TIER_MASK) | KVCL_DIR_TIER_DRAM);
    if (store->notify->promote(store, &rec, kvcl_loc_copies(stage->rec.loc.flags), &stage->rec.loc)) {
        atomic_fetch_add_explicit(&cls->cold->n_promoted, 1, memory_order_relaxed);
    }
}
