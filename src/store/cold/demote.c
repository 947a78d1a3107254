/*
 * From the pool into the tier, ahead of eviction: the thread chooses victims, writes them, and has them listed.
 *
 * The candidates of a class are the next kvcl_cold_lacking() blocks in its order of eviction; the classes take turns.
 * Their bytes are copied without the lock, as a peer would read them, several blocks side by side. The generation
 * decides afterwards whether they were that block's all the while; if not, the tier drops the block. The checksum is
 * the one that the block was published with, so bytes that have changed in memory do not become valid by passing
 * through the tier; a block without one is summed as it is copied.
 *
 * A block that is evicted before its homes have answered stays listed in the pool until they have (cold/listing.c).
 * Otherwise its key would be listed nowhere for a moment, and a removal in that moment would not reach this rank. Only
 * the tier thread calls the functions that cold/cold.h marks so.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "store/cold/listing.h"
#include "store/pool/pool.h"
#include "weave/sum_copy.h"

#include <stdlib.h>

enum { BATCH = 128, SUM_SLICE = 4096 };

typedef struct victim {
    kvcl_cold_class_t *cls;
    kvcl_key_t        key;
    uint32_t          slot, gen;
    unsigned          copies;
    uint64_t          sum;
    bool              summed;
} victim_t;

/* ---- the choice of victims ---- */

/* Lock held. Is this slot's block to be written? */
static bool is_victim(kvcl_cold_class_t *cls, uint32_t at, victim_t *victim)
{
    kvcl_owner_t      *pool = cls->pool;
    const kvcl_slot_t *slot = &pool->array[at];

    kvcl_assert_locked(cls->cold->store->ctx);
    if ((cls->clean[at] != KVCL_COLD_DIRTY) || (slot->state != KVCL_SLOT_PUBLISHED)) {
        return false;
    }
    *victim = (victim_t){.cls = cls, .key = slot->key, .slot = at, .gen = kvcl_slots_gen(&pool->slots, at),
                         .copies = kvcl_loc_copies(slot->flags), .sum = cls->sums[at],
                         .summed = (slot->flags & KVCL_LOC_SUMMED) != 0};
    return true;
}

/* Lock held. The next of all blocks, once; also those that cannot be evicted now. */
static unsigned choose_all(kvcl_cold_class_t *cls, victim_t *victims, unsigned room)
{
    uint32_t n     = cls->pool->slots.n;
    unsigned found = 0;

    kvcl_assert_locked(cls->cold->store->ctx);
    for (; (cls->drain_at < n) && (found < room); ++cls->drain_at) {
        found += is_victim(cls, cls->drain_at, &victims[found]) ? 1 : 0;
    }
    return found;
}

/* Lock held. The next victims of the eviction order. */
static unsigned choose_next(kvcl_cold_class_t *cls, uint32_t order[KVCL_COLD_AHEAD_MAX], victim_t *victims,
                            unsigned room)
{
    uint32_t n     = kvcl_evict_peek(&cls->pool->evict, order, kvcl_cold_lacking(cls)), i;
    unsigned found = 0;

    kvcl_assert_locked(cls->cold->store->ctx);
    for (i = 0; (i < n) && (found < room); ++i) {
        found += is_victim(cls, order[i], &victims[found]) ? 1 : 0;
    }
    return found;
}

/* Lock held. The next blocks of the slab that is leaving. It is written when none is left and those before are done. */
static unsigned choose_leaving(kvcl_cold_t *cold, victim_t *victims)
{
    kvcl_cold_leaving_t *leaving = &cold->leaving;
    unsigned            found    = 0;

    kvcl_assert_locked(cold->store->ctx);
    for (; (leaving->cls != NULL) && (leaving->at < leaving->ids.end) && (found < BATCH); ++leaving->at) {
        found += is_victim(leaving->cls, leaving->at, &victims[found]) ? 1 : 0;
    }
    leaving->written = leaving->written || (found == 0);
    return found;
}

/* Lock held. */
static unsigned choose(kvcl_cold_t *cold, uint32_t order[KVCL_COLD_AHEAD_MAX], victim_t *victims)
{
    bool     all   = atomic_load(&cold->draining);
    unsigned found = 0, i;

    kvcl_assert_locked(cold->store->ctx);
    if (cold->off) {
        return 0;
    }
    if (!all && ((found = choose_leaving(cold, victims)) != 0)) {
        return found;
    }
    for (i = 0; (i < cold->n) && (found < BATCH); ++i) {
        kvcl_cold_class_t *cls = &cold->classes[(cold->choose_at + i) % cold->n];
        found += all ? choose_all(cls, victims + found, BATCH - found)
                     : choose_next(cls, order, victims + found, BATCH - found);
    }
    cold->choose_at = (cold->choose_at + 1) % cold->n;
    return found;
}

/* ---- writing ---- */

/* A pool's block is plain bytes. */
static const uint8_t *block_of(const victim_t *victim)
{
    const kvcl_cache_h pool = victim->cls->pool->cache;

    return (const uint8_t *)pool->bases[0] + (victim->slot * pool->shape.block_bytes);
}

/* A kvcl_tier_still_t. */
static bool is_still_there(void *arg)
{
    const victim_t *victim = arg;

    return kvcl_slots_gen_is(&victim->cls->pool->cache->gens[victim->slot], victim->gen);
}

/* Slices are copied and summed in one pass: a put may overwrite the block meanwhile. False: it may have done so. */
static bool sum_block(victim_t *victim)
{
    const uint8_t *block = block_of(victim);
    uint64_t      bytes  = victim->cls->pool->cache->shape.block_bytes, off;
    uint8_t       slice[SUM_SLICE];
    kvcl_sum_t    sum;

    kvcl_sum_init(&sum);
    for (off = 0; off < bytes; off += SUM_SLICE) {
        kvcl_sum_copy(&sum, slice, block + off, (bytes - off < SUM_SLICE) ? bytes - off : SUM_SLICE);
    }
    victim->sum = kvcl_sum_end(&sum);
    return is_still_there(victim);
}

/* What a turn has written. */
typedef struct written {
    kvcl_status_t     how[BATCH];
    kvcl_tier_block_t blocks[BATCH]; /* at most one of each victim, in their order */
    kvcl_tier_loc_t   at[BATCH];     /* of the victim; before: what the tier had under its key */
} written_t;

/* The tier has one block of a key: one of another size that it held before leaves it. A block without a checksum that
 * it may hold already is summed before. False: the victim is not there any more. */
static bool prepare(victim_t *victim, kvcl_tier_loc_t *old)
{
    kvcl_cold_t  *cold = victim->cls->cold;
    kvcl_cache_h pool  = victim->cls->pool->cache;

    if (kvcl_tier_find(cold->tier, victim->key.bytes, old) != KVCL_OK) {
        old->len = 0;
    }
    if (!victim->summed && (old->len == pool->shape.block_bytes)) {
        victim->summed = sum_block(victim);
        return victim->summed;
    }
    return true;
}

/* Write victims of one class. */
static void write_some(victim_t *victims, unsigned n, written_t *written, unsigned first, kvcl_bulk_how_t *how_p)
{
    kvcl_cold_t       *cold  = victims->cls->cold;
    const size_t      bytes  = victims->cls->pool->cache->shape.block_bytes;
    kvcl_tier_block_t *block = written->blocks;
    unsigned          i, k;

    for (i = 0; i < n; ++i) {
        written->how[first + i] = KVCL_ERR_STALE;
        if (prepare(&victims[i], &written->at[first + i])) {
            *block++ = (kvcl_tier_block_t){.key = victims[i].key.bytes, .bytes = block_of(&victims[i]), .len = bytes,
                                           .checksum = victims[i].sum, .summed = victims[i].summed,
                                           .arg = &victims[i]};
        }
    }
    kvcl_tier_append_all(cold->tier, written->blocks, (unsigned)(block - written->blocks), is_still_there, how_p);
    while (block > written->blocks) {
        --block;
        i = (unsigned)((victim_t *)block->arg - victims);
        k = first + i;
        if ((block->status == KVCL_OK) && (written->at[k].len != 0) && (written->at[k].len != bytes)) {
            kvcl_cold_dropped(cold, victims[i].key.bytes, &written->at[k]);
        }
        written->how[k] = block->status;
        written->at[k]  = block->loc;
    }
}

/* @return how many victims were written or refused; the first one for which the tier is busy is the last of them. */
static unsigned write_all(victim_t *victims, unsigned n, written_t *written)
{
    uint64_t        bytes = 0;
    unsigned        done, k;
    kvcl_bulk_how_t how;

    for (k = 0; k < n; ++k) {
        bytes += kvcl_owner_bytes(victims[k].cls->pool);
    }
    how = kvcl_bulk_how(bytes);
    for (done = 0; done < n; done += k) {
        for (k = 1; (done + k < n) && (victims[done + k].cls == victims[done].cls); ++k) {
        }
        write_some(victims + done, k, written, done, &how);
        for (; k > 0; --k, ++done) {
            if (written->how[done] == KVCL_OK) {
                atomic_fetch_add_explicit(&victims[done].cls->cold->n_demoted, 1, memory_order_relaxed);
            } else if (written->how[done] == KVCL_ERR_BUSY) {
                return done + 1;
            }
        }
    }
    return done;
}

/* ---- the thread's turns ---- */

static kvcl_store_rec_t pool_rec(const victim_t *victim)
{
    const kvcl_owner_t *pool = victim->cls->pool;

    return (kvcl_store_rec_t){
        .key = victim->key,
        .loc = {.rank = pool->slots.rank, .incarnation = pool->slots.incarnation, .cache = pool->slots.cache,
                .flags = pool->array[victim->slot].flags, .slot = victim->slot, .gen = victim->gen}};
}

/* Lock held. The tier has one block of a key: pool blocks of other sizes under this key are not in it, and are not
 * written. */
static void refuse_others(const victim_t *victim)
{
    kvcl_cold_t       *cold = victim->cls->cold;
    kvcl_owner_node_t *node;
    unsigned          i;

    kvcl_assert_locked(victim->cls->cold->store->ctx);
    for (i = 0; i < cold->n; ++i) {
        kvcl_cold_class_t *cls = &cold->classes[i];
        node = (cls != victim->cls) ? kvcl_owner_find(cold->store, &victim->key, cls->pool) : NULL;
        if (node != NULL) {
            cls->clean[kvcl_owner_slot(node)] = KVCL_COLD_REFUSED;
        }
    }
}

/* Lock held. Blocks that were written are to be listed; those that are still in the pool become clean then. A block
 * that has left the pool meanwhile was evicted or removed: if any key was removed since `epoch`, the tier forgets
 * it. */
static size_t mark(kvcl_cold_t *cold, uint64_t epoch, const victim_t *victims, const written_t *written, unsigned n,
                   kvcl_store_rec_t *recs, kvcl_cold_listing_t *listing)
{
    size_t   n_recs = 0;
    unsigned i;

    kvcl_assert_locked(cold->store->ctx);
    for (i = 0; i < n; ++i) {
        kvcl_cold_class_t *cls = victims[i].cls;
        bool              present = (kvcl_slots_gen(&cls->pool->slots, victims[i].slot) == victims[i].gen);
        kvcl_status_t     how = written->how[i];
        bool              in_tier = (how == KVCL_OK) || (how == KVCL_ERR_EXISTS);
        if (in_tier && !present && (cold->drop_epoch != epoch)) {
            kvcl_cold_drop(cold, &victims[i].key);
        } else if (in_tier) {
            recs[n_recs++] = (kvcl_store_rec_t){.key = victims[i].key,
                                                .loc = kvcl_cold_loc(cold, &written->at[i], victims[i].copies)};
            refuse_others(&victims[i]);
            if (present) {
                cls->clean[victims[i].slot] = KVCL_COLD_LISTED_SOON;
                listing->blocks[listing->n++] = (kvcl_cold_listed_t){cls, pool_rec(&victims[i])};
            }
        } else if ((how != KVCL_ERR_BUSY) && (how != KVCL_ERR_STALE) && present) {
            cls->clean[victims[i].slot] = KVCL_COLD_REFUSED; /* too long for the tier, or the tier is off */
            cold->off = cold->off || (how == KVCL_ERR_IO);
        }
    }
    return n_recs;
}

/* Lock held. These were not written: start again from them. */
static void retry_from(kvcl_cold_t *cold, const victim_t *victims, unsigned n)
{
    kvcl_cold_leaving_t *leaving = &cold->leaving;
    unsigned            i;

    kvcl_assert_locked(cold->store->ctx);
    for (i = 0; i < n; ++i) {
        kvcl_cold_class_t *cls = victims[i].cls;
        uint32_t          slot = victims[i].slot;
        cls->drain_at = (cls->drain_at > slot) ? slot : cls->drain_at;
        if ((leaving->cls == cls) && (slot >= leaving->ids.first) && (slot < leaving->at)) {
            leaving->at = slot;
        }
    }
}

/* Lock held. Keys that must leave the tier are still in it: a block that was put under one of them since would be taken
 * for the one in the tier, and be dropped with it. */
static bool drops_wait(kvcl_cold_t *cold)
{
    bool any;

    kvcl_assert_locked(cold->store->ctx);
    pthread_mutex_lock(&cold->lock);
    any = (cold->n_drops != 0);
    pthread_mutex_unlock(&cold->lock);
    return any;
}

kvcl_cold_turn_t kvcl_cold_demote(kvcl_cold_t *cold)
{
    kvcl_store_h        store    = cold->store;
    uint32_t            *order   = malloc(KVCL_COLD_AHEAD_MAX * sizeof(*order));
    kvcl_cold_listing_t *listing = malloc(sizeof(*listing) + (BATCH * sizeof(listing->blocks[0])));
    victim_t            victims[BATCH];
    written_t           written;
    kvcl_store_rec_t    recs[BATCH];
    unsigned            n, done;
    uint64_t            epoch;
    size_t              n_recs;
    bool                busy;

    if ((order == NULL) || (listing == NULL)) {
        free(order);
        free(listing);
        return KVCL_COLD_WAIT;
    }
    *listing = (kvcl_cold_listing_t){.cold = cold};
    kvcl_lock(store->ctx);
    busy  = !store->closing && !atomic_load(&cold->draining) && (cold->listing >= KVCL_COLD_LISTINGS_MAX);
    busy  = busy || (!store->closing && drops_wait(cold));
    n     = (store->closing || busy) ? 0 : choose(cold, order, victims);
    epoch = cold->drop_epoch;
    kvcl_unlock(store->ctx);
    free(order);
    done = write_all(victims, n, &written);
    if (done > 0) {
        busy = (written.how[done - 1] == KVCL_ERR_BUSY);
        kvcl_lock(store->ctx);
        n_recs = mark(cold, epoch, victims, &written, done, recs, listing);
        if (busy) {
            retry_from(cold, victims + (done - 1), n - (done - 1));
        }
        kvcl_unlock(store->ctx);
        if ((n_recs != 0) && !atomic_load(&cold->draining) && kvcl_listing_start(cold, recs, n_recs, listing)) {
            listing = NULL;
        }
    }
    if ((listing != NULL) && (listing->n != 0)) { /* the store is being closed */
        kvcl_lock(store->ctx);
        kvcl_listing_settle(cold, listing);
        kvcl_unlock(store->ctx);
    }
    free(listing);
    return busy ? KVCL_COLD_WAIT : (n > 0) ? KVCL_COLD_MORE : KVCL_COLD_IDLE;
}
