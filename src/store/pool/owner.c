/*
 * Owners (owner.h): the local index, and the transitions to and from PUBLISHED. attach.c makes them.
 *
 * Invariant: a slot is in the index and, if its owner is managed, in the eviction order, exactly while it is PUBLISHED.
 * Engine lock held.
 */
#include "config.h"
#include "store/home/ranks.h"
#include "store/pool/owner.h"
#include "base/error.h"
#include "store/pool/pool.h"
#include "store/pool/room.h"

/* ---- the index ---- */

kvcl_status_t kvcl_owner_reserve(kvcl_store_h store, size_t n)
{
    if (kvcl_map_reserve(&store->index, kvcl_map_count(&store->index) + n) != KVCL_OK) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to index %zu more keys", n);
    }
    return KVCL_OK;
}

static void index_add(kvcl_store_h store, kvcl_owner_node_t *node, const kvcl_key_t *key)
{
    uint64_t hash = kvcl_owner_hash(key);

    node->next = kvcl_map_get(&store->index, hash);
    if (kvcl_map_put(&store->index, hash, node) != KVCL_OK) {
        node->next = NULL; /* cannot happen: kvcl_owner_reserve() made room */
    }
}

static void index_del(kvcl_store_h store, kvcl_owner_node_t *node, const kvcl_key_t *key)
{
    uint64_t          hash  = kvcl_owner_hash(key);
    kvcl_owner_node_t *head = kvcl_map_get(&store->index, hash), *at;

    if (head == node) {
        if (node->next == NULL) {
            (void)kvcl_map_del(&store->index, hash);
        } else if (kvcl_map_put(&store->index, hash, node->next) != KVCL_OK) {
            head = NULL; /* cannot happen: it replaces an entry */
        }
        return;
    }
    for (at = head; (at != NULL) && (at->next != node); at = at->next) {
    }
    if (at != NULL) {
        at->next = node->next;
    }
}

kvcl_owner_node_t *kvcl_owner_find(kvcl_store_h store, const kvcl_key_t *key, const kvcl_owner_t *want)
{
    kvcl_owner_node_t *at, *any = NULL;

    for (at = kvcl_map_get(&store->index, kvcl_owner_hash(key)); at != NULL; at = at->next) {
        const kvcl_slot_t *slot = &at->owner->array[kvcl_owner_slot(at)];
        if (!kvcl_key_equal(&slot->key, key) || (slot->note & KVCL_NOTE_CORRUPT)) {
            continue;
        }
        if ((want != NULL) ? (at->owner == want) : (at->owner == store->own)) {
            return at;
        }
        if ((want == NULL) && ((any == NULL) || (any->owner->pool != NULL))) {
            any = at;
        }
    }
    return any;
}

bool kvcl_owner_lists(const kvcl_owner_t *owner, const kvcl_key_t *key)
{
    const kvcl_owner_node_t *node = kvcl_owner_find(owner->store, key, owner);

    return (node != NULL) && (owner->array[kvcl_owner_slot(node)].note & KVCL_NOTE_LISTED);
}

void kvcl_owner_unlist(kvcl_owner_t *owner)
{
    uint32_t slot;

    for (slot = 0; slot < owner->slots.n; ++slot) {
        kvcl_slot_t *at = &owner->array[slot];
        if ((at->state == KVCL_SLOT_PUBLISHED) && !kvcl_store_two_homes(owner->store, at->flags)) {
            at->note &= (uint8_t)~KVCL_NOTE_LISTED;
        }
    }
}

kvcl_store_rec_t kvcl_owner_record(const kvcl_owner_t *owner, uint32_t slot)
{
    const kvcl_slot_t *at = &owner->array[slot];

    return (kvcl_store_rec_t){.key = at->key,
                              .loc = {.rank = owner->slots.rank, .incarnation = owner->slots.incarnation,
                                      .cache = owner->slots.cache, .flags = at->flags, .slot = slot,
                                      .len = (uint32_t)kvcl_owner_bytes(owner),
                                      .gen = kvcl_slots_gen(&owner->slots, slot), .checksum = at->sum}};
}

kvcl_owner_t *kvcl_owner_by_cache_id(kvcl_store_h store, uint32_t id)
{
    kvcl_owner_t *owner;

    kvcl_list_foreach (owner, &store->owners, kvcl_owner_t, link) {
        if (owner->cache->id == id) {
            return owner;
        }
    }
    return NULL;
}

kvcl_owner_t *kvcl_owner_next(kvcl_store_h store, uint64_t least)
{
    kvcl_owner_t *owner, *best = NULL;

    kvcl_list_foreach (owner, &store->owners, kvcl_owner_t, link) {
        if ((owner->cache->id >= least) && ((best == NULL) || (owner->cache->id < best->cache->id))) {
            best = owner;
        }
    }
    return best;
}

/* ---- publish and discard ---- */

kvcl_status_t kvcl_owner_publish(kvcl_owner_t *owner, uint32_t slot, const kvcl_key_t *key, uint64_t checksum,
                                 bool summed, unsigned copies, uint64_t tenant, kvcl_dir_loc_t *loc_p)
{
    kvcl_store_h  store = owner->store;
    uint16_t      flags = (uint16_t)(owner->tier | (summed ? KVCL_LOC_SUMMED : 0) |
                                     ((copies - 1) << KVCL_LOC_COPIES_SHIFT));
    kvcl_status_t status;

    status = kvcl_slots_publish(&owner->slots, slot, key, flags, (uint32_t)owner->cache->shape.block_bytes, checksum,
                                loc_p);
    if (status != KVCL_OK) {
        return status;
    }
    index_add(store, &owner->nodes[slot], key);
    if (owner->managed) {
        status = kvcl_evict_insert(&owner->evict, slot, kvcl_owner_hash(key));
    } else if ((tenant != 0) && !kvcl_tenants_has(owner->tenants, owner->cls)) {
        /* the first of a tenant in this cache; without memory the block has none */
        (void)!kvcl_tenants_class(owner->tenants, owner->cls, owner->slots.n, owner->cache->shape.block_bytes);
    }
    kvcl_tenants_add(owner->tenants, owner->cls, slot, tenant);
    if (owner->slabs != NULL) {
        kvcl_slabs_use(owner->slabs, owner->cls, slot);
    }
    store->notify->published(owner, slot, checksum);
    ++store->n_published;
    ++store->n_ever;
    kvcl_store_freed(store); /* a put that waits for room may evict it */
    store->notify->event(owner, slot, KVCL_STORE_STORED, -1);
    return status;
}

kvcl_status_t kvcl_owner_discard(kvcl_owner_t *owner, uint32_t slot, kvcl_slot_state_t next,
                                 kvcl_store_event_kind_t why, int to_rank, kvcl_store_rec_t *rec_p)
{
    kvcl_store_h  store = owner->store;
    kvcl_status_t status;

    if ((slot >= owner->slots.n) || (owner->array[slot].state != KVCL_SLOT_PUBLISHED)) {
        return KVCL_ERR_BUSY;
    }
    rec_p->key = owner->array[slot].key;
    rec_p->loc = (kvcl_dir_loc_t){.rank = owner->slots.rank, .incarnation = owner->slots.incarnation,
                                  .cache = owner->slots.cache, .slot = slot, .flags = owner->array[slot].flags,
                                  .gen = kvcl_slots_gen(&owner->slots, slot)};
    status = kvcl_slots_withdraw(&owner->slots, slot, next);
    if (status < 0) {
        return status;
    }
    index_del(store, &owner->nodes[slot], &rec_p->key);
    store->notify->event(owner, slot, why, to_rank);
    kvcl_tenants_del(owner->tenants, owner->cls, slot);
    if (owner->managed) {
        kvcl_pins_forget(owner, slot);
        if (owner->pins[slot] != 0) {
            owner->pins[slot] = 0;
            --owner->pinned;
        }
        (void)!kvcl_evict_remove(&owner->evict, slot); /* fails for a victim, which is out of the order already */
    }
    if (owner->slabs != NULL) {
        kvcl_slabs_removed(owner->slabs, owner->cls, slot);
    }
    --store->n_published;
    kvcl_store_freed(store);
    return KVCL_OK;
}

void kvcl_owner_touch(kvcl_owner_t *owner, uint32_t slot)
{
    if (owner->managed && (slot < owner->slots.n)) {
        kvcl_evict_touch(&owner->evict, slot);
        /* A late reader may touch a slot that is no longer published. */
        if ((owner->slabs != NULL) && (owner->array[slot].state == KVCL_SLOT_PUBLISHED)) {
            kvcl_slabs_use(owner->slabs, owner->cls, slot);
        }
        owner->store->notify->used(owner, slot);
    }
}

/* ---- pins ---- */

void kvcl_owner_pin(kvcl_owner_t *owner, uint32_t slot)
{
    if (owner->managed && (kvcl_evict_pin(&owner->evict, slot) == KVCL_OK) && (owner->pins[slot]++ == 0)) {
        ++owner->pinned;
    }
}

void kvcl_owner_unpin(kvcl_owner_t *owner, uint32_t slot)
{
    if (owner->managed && (slot < owner->slots.n) && (owner->pins[slot] != 0)) {
        (void)!kvcl_evict_unpin(&owner->evict, slot);
        owner->pinned -= (--owner->pins[slot] == 0) ? 1 : 0;
        kvcl_store_freed(owner->store);
    }
}

void kvcl_owner_pin_recs(kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n, bool pin)
{
    size_t i;

    for (i = 0; i < n; ++i) {
        if (kvcl_slots_check(&owner->slots, recs[i].loc.slot, recs[i].loc.gen, &recs[i].key) != KVCL_OK) {
            continue;
        }
        if (pin) {
            kvcl_owner_pin(owner, recs[i].loc.slot);
        } else {
            kvcl_owner_unpin(owner, recs[i].loc.slot);
        }
    }
}
