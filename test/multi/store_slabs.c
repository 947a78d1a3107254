/*
 * The inside of pools of several sizes: slabs that are pinned, emptied, or requested by more sizes than can have them;
 * waits for room; a drain's knowledge of other ranks' room. It reads and changes the pool under the lock.
 */
#include "base/clock.h"
#include "store/home/ranks.h"
#include "store/pool/blocks.h"
#include "store/pool/pool.h"
#include "store_test.h"

#include <pthread.h>
#include <time.h>

enum { SIZES = 3, SMALL = 1528, MIDDLE = 4096, LARGE = 20488 };

static const uint64_t sizes[SIZES] = {SMALL, MIDDLE, LARGE}; /* the second is block_bytes */

bool pool_holds(kvcl_store_h store)
{
    const kvcl_pool_t *pool = store->pool;
    bool              holds;
    unsigned          i;

    kvcl_lock(store->ctx);
    holds = (pool->n == 1) || kvcl_slabs_check(&pool->slabs);
    for (i = 0; i < pool->n; ++i) {
        const kvcl_owner_t *owner = pool->owners[i];
        holds = holds && kvcl_slots_check_all(&owner->slots) && kvcl_evict_check(&owner->evict) &&
                ((pool->n == 1) || (pool->slabs.classes[i].n_used == owner->slots.n_published));
    }
    kvcl_unlock(store->ctx);
    return holds;
}

static kvcl_store_h open_store(world_t *w, uint64_t bytes, uint64_t n_sizes)
{
    kvcl_store_params_t p = KVCL_STORE_PARAMS_INIT;
    kvcl_store_h        store;

    p.dram_bytes    = bytes;
    p.block_bytes   = MIDDLE;
    p.block_sizes   = sizes;
    p.n_block_sizes = n_sizes;
    KVCL_TRY(kvcl_store_open(w->comm, &p, &store));
    return store;
}

static kvcl_cache_h cache_of(world_t *w, uint64_t size, uint64_t blocks)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(blocks, (uint32_t)size);
    kvcl_cache_h  cache;
    char          name[64];

    snprintf(name, sizeof(name), "slabs.%llu", (unsigned long long)size);
    KVCL_TRY(kvcl_cache_create(w->ctx, name, &layout, NULL, &cache));
    return cache;
}

static kvcl_status_t put_wait(kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *key, uint64_t timeout_ns)
{
    kvcl_xfer_params_t p  = KVCL_XFER_PARAMS_INIT;
    uint32_t           id = 0;
    kvcl_req_h         req;

    p.flags      = (timeout_ns != 0) ? KVCL_PUT_WAIT : 0;
    p.timeout_ns = timeout_ns;
    return DO(kvcl_store_put(store, key, 1, cache, &id, &p, &req));
}

/* Put keys first, first + 1, ... of this rank. */
static void put_many(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what, unsigned n)
{
    kvcl_status_t status;
    kvcl_key_t    key;
    unsigned      i;

    for (i = 0; i < n; ++i) {
        key    = key_of(what, (uint64_t)w->rank, i);
        status = put_wait(store, cache, &key, 0);
        CHECK(w, status == KVCL_OK, "%s %u: %s", what, i, kvcl_status_text(status));
    }
}

static uint64_t evicted(kvcl_store_h store)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;

    KVCL_TRY(kvcl_store_stats(store, &stats));
    return stats.evicted;
}

/* Lock held. Pin a block of each slab of this class; false removes the pins. */
static unsigned pin_slabs(kvcl_owner_t *owner, bool pin)
{
    unsigned n = 0;
    uint32_t s, id;

    for (s = 0; s < owner->slabs->n; ++s) {
        kvcl_slab_ids_t ids = kvcl_slabs_ids(owner->slabs, s, owner->cls);
        for (id = ids.first; id < ids.end; ++id) {
            if ((owner->array[id].state == KVCL_SLOT_PUBLISHED) && (pin || (owner->pins[id] != 0))) {
                pin ? kvcl_owner_pin(owner, id) : kvcl_owner_unpin(owner, id);
                ++n;
                break;
            }
        }
    }
    return n;
}

/* Lock held. Pin all blocks of a class. */
static void pin_blocks(kvcl_owner_t *owner)
{
    uint32_t id;

    for (id = 0; id < owner->slots.n; ++id) {
        if (owner->array[id].state == KVCL_SLOT_PUBLISHED) {
            kvcl_owner_pin(owner, id);
        }
    }
}

/* The arena has room for this many, but the pins leave only one slab. */
static void put_too_many(world_t *w, kvcl_store_h store, kvcl_cache_h cache)
{
    enum { MANY = 50 };
    kvcl_xfer_params_t x = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         keys[MANY];
    uint32_t           ids[MANY] = {0}, i;
    kvcl_status_t      status;
    kvcl_req_h         req;

    for (i = 0; i < MANY; ++i) {
        keys[i] = key_of("too many", (uint64_t)w->rank, i);
    }
    status = DO(kvcl_store_put(store, keys, MANY, cache, ids, &x, &req));
    CHECK(w, status == KVCL_ERR_NO_SPACE, "%d at once: %s", MANY, kvcl_status_text(status));
}

/* A hundred slabs cannot be given away, because of a pin in each; then one can. */
void test_slabs_pinned(world_t *w)
{
    enum { ARENA = 6 << 20 };
    kvcl_store_h  store  = open_store(w, ARENA, SIZES);
    kvcl_owner_t  *small = kvcl_pool_for(store, SMALL), *large = kvcl_pool_for(store, LARGE);
    kvcl_cache_h  small_cache = cache_of(w, SMALL, 1), large_cache = cache_of(w, LARGE, 1);
    kvcl_key_t    key = key_of("one more", (uint64_t)w->rank, 0);
    uint64_t      before;
    kvcl_status_t status;
    uint32_t      id;
    unsigned      n;

    put_many(w, store, small_cache, "small", ARENA / SMALL + 100);
    kvcl_lock(store->ctx);
    n = pin_slabs(small, true);
    id = large->slots.n_free;
    kvcl_unlock(store->ctx);
    CHECK(w, n > 90, "only %u slabs are pinned", n);
    put_many(w, store, large_cache, "large", id);
    kvcl_lock(store->ctx);
    pin_blocks(large);
    kvcl_unlock(store->ctx);
    before = evicted(store);
    status = put_wait(store, large_cache, &key, 0);
    CHECK(w, status == KVCL_ERR_NO_SPACE, "all slabs are pinned: %s", kvcl_status_text(status));
    CHECK(w, evicted(store) == before, "%llu evicted in vain", (unsigned long long)(evicted(store) - before));
    kvcl_lock(store->ctx);
    for (id = small->slots.n; small->pins[--id] == 0;) {
    }
    kvcl_owner_unpin(small, id); /* the last one of them */
    kvcl_unlock(store->ctx);
    put_too_many(w, store, large_cache);
    CHECK(w, evicted(store) == before, "%llu evicted in vain", (unsigned long long)(evicted(store) - before));
    status = put_wait(store, large_cache, &key, 0);
    CHECK(w, status == KVCL_OK, "one slab of %u is not pinned: %s", n, kvcl_status_text(status));
    CHECK(w, pool_holds(store), "the pool contradicts itself");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(small_cache);
    kvcl_cache_destroy(large_cache);
}

static void remove_many(world_t *w, kvcl_store_h store, const char *what, unsigned n)
{
    kvcl_req_h req;
    kvcl_key_t key;
    unsigned   i;

    for (i = 0; i < n; ++i) {
        key = key_of(what, (uint64_t)w->rank, i);
        KVCL_TRY(DO(kvcl_store_remove(store, &key, 1, NULL, &req)));
    }
}

/* How many blocks of a size the pool reports to accept without evicting, and how many of those are free. */
static unsigned takes(kvcl_store_h store, uint64_t size, uint64_t *free_p)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    unsigned           i;

    KVCL_TRY(kvcl_store_stats(store, &stats));
    for (i = 0; (i < stats.n_sizes) && (stats.sizes[i].block_bytes != size); ++i) {
    }
    *free_p = stats.sizes[i].free;
    return (unsigned)stats.sizes[i].takes;
}

/* The empty slabs of one size pass to another without an eviction, one by one or many at once; they count as room. */
void test_slabs_emptied(world_t *w)
{
    enum { ARENA = 4 << 20, HALF = ARENA / 2 / LARGE };
    kvcl_xfer_params_t x     = KVCL_XFER_PARAMS_INIT;
    kvcl_store_h       store = open_store(w, ARENA, SIZES);
    kvcl_cache_h       small_cache = cache_of(w, SMALL, 1), large_cache = cache_of(w, LARGE, HALF);
    kvcl_key_t         keys[HALF];
    uint32_t           ids[HALF], i;
    uint64_t           before, room, n_free;
    unsigned           n;
    kvcl_status_t      status;
    kvcl_req_h         req;

    kvcl_lock(store->ctx);
    room = kvcl_pool_room(kvcl_pool_for(store, LARGE));
    kvcl_unlock(store->ctx);
    CHECK(w, room * LARGE > ARENA * 3 / 4, "room for %llu when all is empty", (unsigned long long)room);
    put_many(w, store, large_cache, "first", ARENA / LARGE + 20);
    n = takes(store, SMALL, &n_free);
    CHECK(w, n == n_free, "%u could be had, %llu are free", n, (unsigned long long)n_free);
    remove_many(w, store, "first", ARENA / LARGE + 20);
    before = evicted(store);
    n      = takes(store, SMALL, &n_free);
    CHECK(w, n > ARENA / SMALL * 3 / 4, "%u could be had", n);
    put_many(w, store, small_cache, "small", n - (n / 16)); /* some cross borders */
    CHECK(w, evicted(store) == before, "%llu evicted", (unsigned long long)(evicted(store) - before));
    remove_many(w, store, "small", n);
    for (i = 0; i < HALF; ++i) {
        keys[i] = key_of("large", (uint64_t)w->rank, i);
        ids[i]  = i;
    }
    n = takes(store, LARGE, &n_free);
    CHECK(w, n >= HALF, "%u of %d could be had", n, HALF);
    status = DO(kvcl_store_put(store, keys, HALF, large_cache, ids, &x, &req));
    CHECK(w, status == KVCL_OK, "%d at once: %s", HALF, kvcl_status_text(status));
    CHECK(w, evicted(store) == before, "%llu evicted", (unsigned long long)(evicted(store) - before));
    CHECK(w, pool_holds(store), "the pool contradicts itself");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(small_cache);
    kvcl_cache_destroy(large_cache);
}

/* Whether every key arrives here within a while. */
static bool all_come(kvcl_store_h store, const char *what, unsigned n, unsigned *missing_p)
{
    const struct timespec a_while = {.tv_nsec = 20000000};
    uint64_t              begin = kvcl_now_ns();
    kvcl_key_t            key;
    unsigned              i;

    do {
        nanosleep(&a_while, NULL);
        kvcl_lock(store->ctx);
        for (i = 0, *missing_p = 0; i < n; ++i) {
            key         = key_of(what, 0, i);
            *missing_p += (kvcl_owner_find(store, &key, NULL) == NULL) ? 1 : 0;
        }
        kvcl_unlock(store->ctx);
    } while ((*missing_p != 0) && (kvcl_now_ns() - begin < 60 * KVCL_NS_PER_SEC));
    return *missing_p == 0;
}

/* Four ranks. The last one has no blocks of this size, but is home to some of them. Rank 1, which holds copies, is
 * taken for failed by all others: rank 2 gets those copies instead, for any home. */
void test_slabs_repair(world_t *w)
{
    enum { KEYS = 60 };
    kvcl_xfer_params_t x = KVCL_XFER_PARAMS_INIT;
    kvcl_store_h       store;
    kvcl_cache_h       large;
    uint32_t           id = 0;
    unsigned           missing = 0, i;
    uint8_t            copies;
    kvcl_key_t         key;
    kvcl_req_h         req;

    store      = open_store(w, 8 << 20, (w->rank == 3) ? 0 : SIZES);
    large      = cache_of(w, LARGE, 1);
    x.replicas = 2;
    x.copies   = &copies;
    for (i = 0; (w->rank == 0) && (i < KEYS); ++i) {
        key = key_of("repaired", 0, i);
        KVCL_TRY(DO(kvcl_store_put(store, &key, 1, large, &id, &x, &req)));
        CHECK(w, copies == 2, "%u copies of key %u", copies, i);
    }
    sync_all(w);
    if (w->rank != 1) {
        kvcl_lock(store->ctx);
        kvcl_store_rank_failed(store, 1);
        kvcl_unlock(store->ctx);
    }
    if (w->rank == 2) {
        CHECK(w, all_come(store, "repaired", KEYS, &missing), "%u of %d are not here", missing, KEYS);
    }
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(large);
}

/* A reader reports that it used a block, but too late: the block is gone. */
void test_slabs_late_use(world_t *w)
{
    kvcl_store_h store = open_store(w, 1 << 20, SIZES);
    kvcl_owner_t *small = kvcl_pool_for(store, SMALL);
    kvcl_cache_h cache  = cache_of(w, SMALL, 1);
    uint32_t     slot;

    put_many(w, store, cache, "used", 5);
    remove_many(w, store, "used", 5);
    kvcl_lock(store->ctx);
    for (slot = 0; slot < small->slots.n + 3; ++slot) {
        kvcl_owner_touch(small, slot);
    }
    kvcl_unlock(store->ctx);
    CHECK(w, pool_holds(store), "blocks that are gone are in use");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* An arena is rounded down to blocks of the first size before it is checked. */
void test_slabs_least(world_t *w)
{
    kvcl_store_params_t p = KVCL_STORE_PARAMS_INIT;
    uint64_t            list[KVCL_SLABS_CLASSES_MAX];

    p.dram_bytes    = 12 * LARGE; /* less by a part of a MIDDLE: 11 of them, and 12 are needed */
    p.block_bytes   = MIDDLE;
    p.block_sizes   = sizes;
    p.n_block_sizes = SIZES;
    CHECK(w, kvcl_pool_sizes(&p, list) == 0, "a pool too small by what it is rounded down");
    p.dram_bytes += MIDDLE;
    CHECK(w, kvcl_pool_sizes(&p, list) == SIZES, "a pool just large enough");
}

typedef struct publisher {
    kvcl_store_h store;
    uint32_t     slot;
    kvcl_key_t   key;
    bool         waited; /* a put waits for room */
} publisher_t;

static void *publish_later(void *arg)
{
    publisher_t    *me   = arg;
    uint64_t       until = 0;
    kvcl_dir_loc_t loc;

    do {
        kvcl_lock(me->store->ctx);
        me->waited = (me->store->n_room_waiters != 0);
        kvcl_unlock(me->store->ctx);
    } while (!me->waited && keep_waiting(&until));
    kvcl_lock(me->store->ctx);
    KVCL_TRY(kvcl_owner_publish(me->store->pool->owners[0], me->slot, &me->key, 0, false, 1, 0, &loc));
    kvcl_unlock(me->store->ctx);
    return NULL;
}

/* All blocks are being filled. One that is published may be evicted, so a waiting put gets room. */
void test_slabs_waiter(world_t *w)
{
    enum { BLOCKS = 4 };
    kvcl_store_h  store = open_store(w, BLOCKS * MIDDLE, 0);
    kvcl_owner_t  *owner = store->pool->owners[0];
    kvcl_cache_h  cache  = cache_of(w, MIDDLE, 1);
    kvcl_key_t    key    = key_of("waits", (uint64_t)w->rank, 0);
    publisher_t   other  = {.store = store, .key = key_of("was there", (uint64_t)w->rank, 0)};
    uint32_t      ids[BLOCKS], i;
    pthread_t     thread;
    kvcl_status_t status;

    kvcl_lock(store->ctx);
    KVCL_TRY(kvcl_owner_reserve(store, BLOCKS));
    KVCL_TRY(kvcl_owner_take_for(owner, 0, BLOCKS, ids));
    kvcl_unlock(store->ctx);
    other.slot = ids[0];
    CHECK(w, pthread_create(&thread, NULL, publish_later, &other) == 0, "no thread");
    status = put_wait(store, cache, &key, 120 * KVCL_NS_PER_SEC);
    CHECK(w, status == KVCL_OK, "%s", kvcl_status_text(status)); /* a waiter that sleeps has no room at the deadline */
    pthread_join(thread, NULL);
    CHECK(w, other.waited, "nobody waited for room");
    kvcl_lock(store->ctx);
    for (i = 1; i < BLOCKS; ++i) {
        KVCL_TRY(kvcl_slots_abort(&owner->slots, ids[i]));
    }
    kvcl_unlock(store->ctx);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* Two ranks. With copies, a rank reports its whole pool, and that decides the places, for any size of the copies. */
void test_slabs_places(world_t *w)
{
    kvcl_store_h       store = open_store(w, 1 << 20, SIZES);
    kvcl_cache_h       middle = cache_of(w, MIDDLE, 1);
    kvcl_xfer_params_t x = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         key = key_of("copied", 0, 0);
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    uint64_t           heard;
    uint32_t           id = 0;
    kvcl_req_h         req;

    if (w->rank != 0) {
        put_many(w, store, middle, "fills", (1 << 20) / MIDDLE + 50);
    }
    sync_all(w);
    if (w->rank == 0) {
        x.replicas = 2;
        KVCL_TRY(DO(kvcl_store_put(store, &key, 1, middle, &id, &x, &req)));
        kvcl_lock(store->ctx);
        heard = store->places[1].free;
        kvcl_unlock(store->ctx);
        KVCL_TRY(kvcl_store_rank_stats(store, 1, &stats, NULL));
        CHECK(w, (heard == stats.pool_free_bytes) && (heard != 0), "%llu are free there, it is thought: %llu",
              (unsigned long long)stats.pool_free_bytes, (unsigned long long)heard);
    }
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(middle);
}

/* The other ranks are full of one size, and have room for another: a drain has that information, and evicts nothing
 * there. */
void test_slabs_drain(world_t *w)
{
    kvcl_store_h  store = open_store(w, 1 << 20, SIZES);
    kvcl_cache_h  middle = cache_of(w, MIDDLE, 1), large = cache_of(w, LARGE, 1);
    kvcl_key_t    key    = key_of("to move", 0, 0);
    uint64_t      before, moved = 0;
    uint32_t      id = 0;
    kvcl_status_t status;
    kvcl_req_h    req;

    if (w->rank != 0) {
        put_many(w, store, middle, "fills", (1 << 20) / MIDDLE + 50);
    } else {
        put_many(w, store, middle, "to stay", 3);
        put_many(w, store, large, "to move", 1);
    }
    sync_all(w);
    before = evicted(store);
    sync_all(w);
    if ((w->rank == 0) && (w->size > 1)) {
        status = kvcl_store_drain(store, &moved, NULL);
        CHECK(w, status == KVCL_ERR_NO_SPACE, "a drain with room for a part: %s", kvcl_status_text(status));
        CHECK(w, moved == 1, "%llu moved", (unsigned long long)moved);
    }
    sync_all(w);
    CHECK(w, evicted(store) == before, "a drain evicted %llu", (unsigned long long)(evicted(store) - before));
    status = DO(kvcl_store_get(store, &key, 1, large, &id, NULL, NULL, &req));
    CHECK(w, status == KVCL_OK, "%s", kvcl_status_text(status));
    CHECK(w, pool_holds(store), "the pool contradicts itself");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(middle);
    kvcl_cache_destroy(large);
}
