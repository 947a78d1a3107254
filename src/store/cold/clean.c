/*
 * Which blocks of the pool are in the tier: a state for each slot (KVCL_COLD_*), kept up to date by what happens to the
 * slots and to the tier, and the slab whose blocks are written before another class gets its room.
 *
 * A block is CLEAN when it is in the tier and listed there, until the tier forgets it or the slot is used again. Each
 * event that brings a dirty block among the next victims kicks the thread (cold/demote.c), which writes it.
 *
 * All under the engine lock.
 */
#include "config.h"
#include "store/cold/cold.h"
#include "store/pool/pool.h"

enum { AHEAD_MIN = 16, ROUNDS_MAX = 4 };

static kvcl_cold_class_t *class_of(const kvcl_owner_t *owner)
{
    kvcl_cold_t *cold = owner->store->cold;

    return ((cold != NULL) && (owner->pool != NULL)) ? &cold->classes[owner->cls] : NULL;
}

uint32_t kvcl_cold_lacking(const kvcl_cold_class_t *cls)
{
    uint32_t room = kvcl_owner_room(cls->pool), ahead = room / 2;
    uint64_t free = kvcl_pool_free_bytes(cls->pool) / kvcl_owner_bytes(cls->pool);

    kvcl_assert_locked(cls->cold->store->ctx);
    ahead = (ahead < AHEAD_MIN) ? AHEAD_MIN : (ahead > KVCL_COLD_AHEAD_MAX) ? KVCL_COLD_AHEAD_MAX : ahead;
    ahead = (ahead < room) ? ahead : room;
    return (free < ahead) ? ahead - (uint32_t)free : 0;
}

void kvcl_cold_published(const kvcl_owner_t *owner, uint32_t slot, uint64_t checksum)
{
    kvcl_cold_class_t *cls = class_of(owner);

    if (cls != NULL) {
        cls->clean[slot] = KVCL_COLD_DIRTY;
        cls->sums[slot]  = checksum;
        if (kvcl_cold_lacking(cls) >= kvcl_evict_count(&owner->evict)) { /* it is among the next victims */
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

    if ((cls != NULL) && (kvcl_cold_lacking(cls) != 0)) {
        kvcl_cold_kick(cls->cold);
    }
}

void kvcl_cold_used(const kvcl_owner_t *owner, uint32_t slot)
{
    kvcl_cold_class_t *cls = class_of(owner);

    if ((cls != NULL) && (cls->clean[slot] == KVCL_COLD_CLEAN) && (++cls->used > kvcl_cold_lacking(cls) / 4)) {
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
