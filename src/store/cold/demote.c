/*
 * From the pool into the tier, ahead of eviction; and the listing of blocks that are in the tier.
 *
 * The candidates of a class are the next in its order of eviction, as many as free slots are missing to `ahead`; the
 * classes take turns. Their bytes are copied without the lock, as a peer would read them. The generation decides
 * afterwards whether they were that block's all the while; if not, the tier forgets what it took. The checksum is the
 * one that the block was published with, so bytes that have changed in memory do not become valid by passing through
 * the tier.
 *
 * A block that is in the tier, and listed there, is clean until the tier forgets it or the slot is used again. A block
 * that is evicted before its homes have answered stays listed in the pool until they have. Otherwise its key would be
 * listed nowhere for a moment, and a removal in that moment would not reach this rank. Only the tier thread calls the
 * functions that cold/cold.h marks so.
 */
#include "config.h"
#include "base/copy_racy.h"
#include "base/error.h"
#include "base/log.h"
#include "store/cold/cold.h"
#include "store/pool/pool.h"
#include "xfer/params.h"

#include <stdlib.h>

enum { BATCH = 128, LIST_BATCH = 1024, LISTING_MAX = 4, AHEAD_MIN = 16, AHEAD_MAX = 2048, ROUNDS_MAX = 4 };

typedef struct victim {
    kvcl_cold_class_t *cls;
    kvcl_key_t        key;
    uint32_t          slot, gen;
    unsigned          copies;
    uint64_t          sum;
    bool              summed;
} victim_t;

static kvcl_cold_class_t *class_of(const kvcl_owner_t *owner)
{
    kvcl_cold_t *cold = owner->store->cold;

    return ((cold != NULL) && (owner->pool != NULL)) ? &cold->classes[owner->cls] : NULL;
}

/* Number of slots missing to those that must be free or clean: half of the slots that the class has room for now. */
static uint32_t lacking(const kvcl_cold_class_t *cls)
{
    uint32_t room  = kvcl_owner_room(cls->pool), ahead = room / 2;
    uint64_t free  = kvcl_pool_free_bytes(cls->pool) / kvcl_owner_bytes(cls->pool);

    ahead = (ahead < AHEAD_MIN) ? AHEAD_MIN : (ahead > AHEAD_MAX) ? AHEAD_MAX : ahead;
    ahead = (ahead < room) ? ahead : room;
    return (free < ahead) ? ahead - (uint32_t)free : 0;
}

void kvcl_cold_published(const kvcl_owner_t *owner, uint32_t slot, uint64_t checksum)
{
    kvcl_cold_class_t *cls = class_of(owner);

    if (cls != NULL) {
        cls->clean[slot] = KVCL_COLD_DIRTY;
        cls->sums[slot]  = checksum;
        if (lacking(cls) >= kvcl_evict_count(&owner->evict)) { /* it is among the next victims: there are few */
            kvcl_cold_kick(cls->cold);
        }
    }
}

bool kvcl_cold_evicted(const kvcl_owner_t *owner, uint32_t slot)
{
    kvcl_cold_class_t *cls = class_of(owner);

    if ((cls == NULL) || (cls->clean[slot] == KVCL_COLD_CLEAN)) {
        return false;
    }
    if (cls->clean[slot] != KVCL_COLD_LISTED_SOON) {
        atomic_fetch_add_explicit(&cls->cold->n_dropped, 1, memory_order_relaxed);
        return false;
    }
    return true;
}

static bool any_dirty(const kvcl_cold_class_t *cls, kvcl_slab_ids_t ids)
{
    uint32_t slot = ids.first;

    while ((slot < ids.end) &&
           ((cls->pool->array[slot].state != KVCL_SLOT_PUBLISHED) || (cls->clean[slot] != KVCL_COLD_DIRTY))) {
        ++slot;
    }
    return slot < ids.end;
}

static bool is_leaving(const kvcl_cold_class_t *cls, kvcl_slab_ids_t ids)
{
    const kvcl_cold_leaving_t *leaving = &cls->cold->leaving;

    return (leaving->cls == cls) && (leaving->ids.first == ids.first);
}

/* One slab at a time. Blocks that were published in it after it was written are written as well, at most ROUNDS_MAX
 * times, or the slab might never become free. */
bool kvcl_cold_may_release(const kvcl_owner_t *owner, kvcl_slab_ids_t ids)
{
    kvcl_cold_class_t   *cls = class_of(owner);
    kvcl_cold_leaving_t *leaving;
    bool                same;

    if ((cls == NULL) || cls->cold->off || atomic_load(&cls->cold->draining) || !any_dirty(cls, ids)) {
        return true;
    }
    leaving = &cls->cold->leaving;
    same    = is_leaving(cls, ids);
    if (same && leaving->written && (leaving->rounds == ROUNDS_MAX)) {
        return true;
    }
    if ((leaving->cls == NULL) || leaving->written) {
        *leaving = (kvcl_cold_leaving_t){.cls = cls, .ids = ids, .at = ids.first,
                                         .rounds = 1 + (same ? leaving->rounds : 0)};
        kvcl_cold_kick(cls->cold);
    }
    return false;
}

void kvcl_cold_slab_removed(const kvcl_owner_t *owner, kvcl_slab_ids_t ids)
{
    kvcl_cold_class_t *cls = class_of(owner);

    if ((cls != NULL) && is_leaving(cls, ids)) {
        cls->cold->leaving.cls = NULL;
    }
}

void kvcl_cold_taken(const kvcl_owner_t *owner)
{
    kvcl_cold_class_t *cls = class_of(owner);

    if ((cls != NULL) && (lacking(cls) != 0)) {
        kvcl_cold_kick(cls->cold);
    }
}

void kvcl_cold_used(const kvcl_owner_t *owner, uint32_t slot)
{
    kvcl_cold_class_t *cls = class_of(owner);

    if ((cls != NULL) && (cls->clean[slot] == KVCL_COLD_CLEAN) && (++cls->used > lacking(cls) / 4)) {
        cls->used = 0; /* the thread checks up to this many slots: not once for each use */
        kvcl_cold_taken(owner);
    }
}

/* The block has left the tier, which has no block of the key now. */
static void mark_dirty(kvcl_cold_t *cold, const kvcl_store_rec_t *rec)
{
    kvcl_owner_node_t *node;
    unsigned          i;

    for (i = 0; i < cold->n; ++i) {
        kvcl_cold_class_t *cls = &cold->classes[i];
        node = kvcl_owner_find(cold->store, &rec->key, cls->pool);
        if ((node != NULL) && ((kvcl_owner_bytes(cls->pool) == rec->loc.len) ||
                               (cls->clean[kvcl_owner_slot(node)] == KVCL_COLD_REFUSED))) {
            cls->clean[kvcl_owner_slot(node)] = KVCL_COLD_DIRTY;
        }
    }
}

/* A block that one of another size has replaced in the tier is not written again, or the two would alternate for
 * ever. */
void kvcl_cold_mark_dirty(kvcl_cold_t *cold, const kvcl_store_rec_t *recs, size_t n)
{
    kvcl_cold_class_t *cls;
    kvcl_owner_node_t *node;
    kvcl_tier_loc_t   at;
    size_t            i;

    for (i = 0; i < n; ++i) {
        if (kvcl_tier_find(cold->tier, recs[i].key.bytes, &at) != KVCL_OK) {
            mark_dirty(cold, &recs[i]);
            continue;
        }
        cls  = (at.len == recs[i].loc.len) ? kvcl_cold_class_for(cold, at.len) : NULL;
        node = (cls != NULL) ? kvcl_owner_find(cold->store, &recs[i].key, cls->pool) : NULL;
        if ((node != NULL) && !kvcl_cold_holds(cold, &recs[i].key, &recs[i].loc)) {
            cls->clean[kvcl_owner_slot(node)] = KVCL_COLD_DIRTY;
        }
    }
}

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
static unsigned choose_next(kvcl_cold_class_t *cls, uint32_t order[AHEAD_MAX], victim_t *victims, unsigned room)
{
    uint32_t n     = kvcl_evict_peek(&cls->pool->evict, order, lacking(cls)), i;
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
static unsigned choose(kvcl_cold_t *cold, uint32_t order[AHEAD_MAX], victim_t *victims)
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

/* A kvcl_tier_fill_t. A pool's block is plain bytes. */
static bool copy_out(void *arg, uint8_t *dst, uint64_t off, size_t len)
{
    const victim_t     *victim = arg;
    const kvcl_cache_h pool    = victim->cls->pool->cache;
    uint64_t           bytes   = pool->shape.block_bytes;

    kvcl_copy_racy(dst, (const uint8_t *)pool->bases[0] + (victim->slot * bytes) + off, len);
    return (off + len < bytes) || kvcl_slots_gen_is(&pool->gens[victim->slot], victim->gen);
}

/* The tier has one block of a key: a block of another size that it held before has left it. */
static kvcl_status_t write_one(victim_t *victim, kvcl_tier_loc_t *at)
{
    kvcl_cold_t     *cold = victim->cls->cold;
    kvcl_cache_h    pool  = victim->cls->pool->cache;
    kvcl_tier_loc_t old;
    kvcl_status_t   status;
    bool            other;

    if (!victim->summed) {
        victim->sum = kvcl_store_block_sum(pool, victim->slot);
        if (!kvcl_slots_gen_is(&pool->gens[victim->slot], victim->gen)) {
            return KVCL_ERR_STALE;
        }
    }
    other  = (kvcl_tier_find(cold->tier, victim->key.bytes, &old) == KVCL_OK) && (old.len != pool->shape.block_bytes);
    status = kvcl_tier_append_by(cold->tier, victim->key.bytes, victim->sum, pool->shape.block_bytes, copy_out, victim,
                                 NULL, NULL, at);
    if (other && (status == KVCL_OK)) {
        kvcl_cold_dropped(cold, victim->key.bytes, &old);
    }
    return status;
}

/* ---- listing ---- */

typedef struct listed {
    kvcl_cold_class_t *cls;
    kvcl_store_rec_t  rec;
} listed_t;

/* Blocks of the tier whose homes are being notified. */
typedef struct listing {
    kvcl_cold_t *cold;
    size_t      n;        /* pool blocks that become clean at its end, or were evicted meanwhile */
    listed_t    blocks[]; /* BATCH, or none */
} listing_t;

/* Lock held. */
static void settle(kvcl_cold_t *cold, const listing_t *listing)
{
    size_t i;

    kvcl_assert_locked(cold->store->ctx);
    for (i = 0; i < listing->n; ++i) {
        const kvcl_dir_loc_t *loc = &listing->blocks[i].rec.loc;
        kvcl_cold_class_t    *cls = listing->blocks[i].cls;
        if (kvcl_slots_gen(&cls->pool->slots, loc->slot) != loc->gen) {
            kvcl_store_notify_removed(cold->store, &listing->blocks[i].rec, 1);
        } else if (cls->clean[loc->slot] == KVCL_COLD_LISTED_SOON) {
            cls->clean[loc->slot] = KVCL_COLD_CLEAN;
        }
    }
}

static void on_listed(void *arg, kvcl_status_t status)
{
    listing_t      *listing = arg;
    kvcl_cold_t    *cold    = listing->cold;
    kvcl_context_h ctx      = cold->store->ctx;

    if (status != KVCL_OK) {
        kvcl_log_debug("blocks of a tier are not all listed: %s", kvcl_status_text(status));
    }
    kvcl_lock(ctx);
    if (!cold->store->closing) {
        settle(cold, listing);
    }
    free(listing);
    --cold->listing;
    if (cold->listing == LISTING_MAX - 1) {
        kvcl_cold_wake(cold);
    } else if ((cold->listing == 0) && !cold->notified) {
        kvcl_cold_kick(cold);
    }
    --cold->store->ops; /* last: the store may be closed from here on */
    kvcl_engine_notify(ctx);
    kvcl_unlock(ctx);
}

/* No lock. False: not now; otherwise the listing owns itself. */
static bool list(kvcl_cold_t *cold, const kvcl_store_rec_t *recs, size_t n, listing_t *listing)
{
    kvcl_store_h       store = cold->store;
    kvcl_xfer_params_t p     = {.size = sizeof(p), .cb = on_listed, .cb_arg = listing};
    kvcl_status_t      status;
    bool               now;

    kvcl_lock(store->ctx);
    now = !store->closing && (cold->listing < LISTING_MAX);
    if (now) {
        ++cold->listing;
        ++store->ops;
    }
    kvcl_unlock(store->ctx);
    if (!now) {
        return false;
    }
    status = kvcl_publish_start(cold->classes[0].pool, recs, n, NULL, &p, NULL);
    if (status != KVCL_OK) {
        on_listed(listing, status);
    }
    return true;
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
static size_t mark(kvcl_cold_t *cold, uint64_t epoch, const victim_t *victims, const kvcl_status_t *how,
                   const kvcl_tier_loc_t *at, unsigned n, kvcl_store_rec_t *recs, listing_t *listing)
{
    size_t   n_recs = 0;
    unsigned i;

    kvcl_assert_locked(cold->store->ctx);
    for (i = 0; i < n; ++i) {
        kvcl_cold_class_t *cls = victims[i].cls;
        bool              present = (kvcl_slots_gen(&cls->pool->slots, victims[i].slot) == victims[i].gen);
        bool              in_tier = (how[i] == KVCL_OK) || (how[i] == KVCL_ERR_EXISTS);
        if (in_tier && !present && (cold->drop_epoch != epoch)) {
            kvcl_cold_drop(cold, &victims[i].key);
        } else if (in_tier) {
            recs[n_recs++] = (kvcl_store_rec_t){.key = victims[i].key,
                                                .loc = kvcl_cold_loc(cold, &at[i], victims[i].copies)};
            refuse_others(&victims[i]);
            if (present) {
                cls->clean[victims[i].slot] = KVCL_COLD_LISTED_SOON;
                listing->blocks[listing->n++] = (listed_t){cls, pool_rec(&victims[i])};
            }
        } else if ((how[i] != KVCL_ERR_BUSY) && (how[i] != KVCL_ERR_STALE) && present) {
            cls->clean[victims[i].slot] = KVCL_COLD_REFUSED; /* too long for the tier, or the tier is off */
            cold->off = cold->off || (how[i] == KVCL_ERR_IO);
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
    kvcl_store_h     store  = cold->store;
    uint32_t         *order   = malloc(AHEAD_MAX * sizeof(*order));
    listing_t        *listing = malloc(sizeof(*listing) + (BATCH * sizeof(listing->blocks[0])));
    victim_t         victims[BATCH];
    kvcl_status_t    how[BATCH];
    kvcl_tier_loc_t  at[BATCH];
    kvcl_store_rec_t recs[BATCH];
    unsigned         n, done;
    uint64_t         epoch;
    size_t           n_recs;
    bool             busy;

    if ((order == NULL) || (listing == NULL)) {
        free(order);
        free(listing);
        return KVCL_COLD_WAIT;
    }
    *listing = (listing_t){.cold = cold};
    kvcl_lock(store->ctx);
    busy  = !store->closing && !atomic_load(&cold->draining) && (cold->listing >= LISTING_MAX);
    busy  = busy || (!store->closing && drops_wait(cold));
    n     = (store->closing || busy) ? 0 : choose(cold, order, victims);
    epoch = cold->drop_epoch;
    kvcl_unlock(store->ctx);
    free(order);
    for (done = 0; (done < n) && !busy; ++done) {
        how[done] = write_one(&victims[done], &at[done]);
        busy      = (how[done] == KVCL_ERR_BUSY);
        if (how[done] == KVCL_OK) {
            atomic_fetch_add_explicit(&cold->n_demoted, 1, memory_order_relaxed);
        }
    }
    if (done > 0) {
        kvcl_lock(store->ctx);
        n_recs = mark(cold, epoch, victims, how, at, done, recs, listing);
        if (busy) {
            retry_from(cold, victims + (done - 1), n - (done - 1));
        }
        kvcl_unlock(store->ctx);
        if ((n_recs != 0) && !atomic_load(&cold->draining) && list(cold, recs, n_recs, listing)) {
            listing = NULL;
        }
    }
    if ((listing != NULL) && (listing->n != 0)) { /* the store is being closed */
        kvcl_lock(store->ctx);
        settle(cold, listing);
        kvcl_unlock(store->ctx);
    }
    free(listing);
    return busy ? KVCL_COLD_WAIT : (n > 0) ? KVCL_COLD_MORE : KVCL_COLD_IDLE;
}

/* Once all listings of a start are over. */
static void notify_others(kvcl_cold_t *cold)
{
    kvcl_store_h store = cold->store;

    kvcl_lock(store->ctx);
    if (!cold->notified && (cold->listing == 0) && !store->closing) {
        cold->notified = true;
        kvcl_relist_over(store);
    }
    kvcl_unlock(store->ctx);
}

kvcl_cold_turn_t kvcl_cold_list(kvcl_cold_t *cold)
{
    kvcl_tier_item_t *items;
    kvcl_store_rec_t *recs;
    listing_t        *listing;
    uint64_t         scan = cold->scan;
    size_t           n, some = 0, i;
    bool             done = true;

    if (cold->scanned || cold->store->closing) {
        notify_others(cold);
        return KVCL_COLD_IDLE;
    }
    items   = malloc(LIST_BATCH * (sizeof(*items) + sizeof(*recs)));
    listing = calloc(1, sizeof(*listing));
    if ((items == NULL) || (listing == NULL) || atomic_load(&kvcl_cold_late)) {
        free(items);
        free(listing);
        return KVCL_COLD_WAIT;
    }
    listing->cold = cold;
    recs = (kvcl_store_rec_t *)(void *)(items + LIST_BATCH);
    n    = kvcl_tier_walk(cold->tier, &scan, items, LIST_BATCH);
    for (i = 0; i < n; ++i) {
        if (kvcl_cold_class_for(cold, items[i].loc.len) != NULL) {
            memcpy(recs[some].key.bytes, items[i].key, sizeof(recs[some].key.bytes));
            recs[some++].loc = kvcl_cold_loc(cold, &items[i].loc, cold->store->replicas);
        }
    }
    if (some != 0) {
        done    = list(cold, recs, some, listing);
        listing = done ? NULL : listing;
    }
    free(listing);
    free(items);
    if (done) {
        cold->scan    = scan;
        cold->scanned = (n == 0);
    }
    return done ? KVCL_COLD_MORE : KVCL_COLD_WAIT;
}
