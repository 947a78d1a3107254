/*
 * A second tier of a pool of several sizes that is far too small. Blocks of every size that were put are found, while
 * the sizes take the arena from each other and after a restart, and not after they were removed.
 */
#include "store/cold/cold.h"
#include "store/admin/ops.h"
#include "store/pool/pool.h"
#include "store_sized.h"
#include <kvcl/kvcl_store_admin.h>

enum { KEYS = 90, LATE = 10, POOL = 640 << 10 };

static kvcl_store_h open_store(world_t *w, const char *spec, uint64_t pool)
{
    kvcl_store_params_t params = sized_params(pool);
    kvcl_store_h        store;

    params.dir_entries = 16384;
    params.nvme        = spec;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    return store;
}

static void make_caches(world_t *w, kvcl_cache_h caches[SIZES])
{
    unsigned s;

    for (s = 0; s < SIZES; ++s) {
        caches[s] = make_sized(w, "tier", s);
    }
}

static void close_all(world_t *w, kvcl_store_h store, kvcl_cache_h caches[SIZES])
{
    unsigned s;

    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    tier_unlink();
    for (s = 0; s < SIZES; ++s) {
        kvcl_cache_destroy(caches[s]);
    }
}

/* Lock held. Whether the tier has the blocks that the class evicts next. */
static bool is_ahead(const kvcl_cold_class_t *cls)
{
    uint32_t room  = kvcl_owner_room(cls->pool), ahead = (room / 2 < 16) ? 16 : room / 2, dirty = 0, i;
    uint64_t avail = kvcl_pool_free_bytes(cls->pool) / kvcl_owner_bytes(cls->pool);

    for (i = 0; i < cls->pool->slots.n; ++i) {
        dirty += (cls->pool->array[i].state == KVCL_SLOT_PUBLISHED) && (cls->clean[i] == KVCL_COLD_DIRTY);
    }
    ahead = (ahead < room) ? ahead : room;
    return (avail >= ahead) || (dirty <= room - cls->pool->slots.n_free - (ahead - (uint32_t)avail));
}

/* Lock held. Whether all blocks that count as clean are in the tier, in their size. */
static bool is_clean(const kvcl_cold_class_t *cls)
{
    const kvcl_owner_t *pool = cls->pool;
    kvcl_tier_loc_t    at;
    uint32_t           i;

    for (i = 0; i < pool->slots.n; ++i) {
        if ((pool->array[i].state == KVCL_SLOT_PUBLISHED) && (cls->clean[i] == KVCL_COLD_CLEAN) &&
            ((kvcl_tier_find(cls->cold->tier, pool->array[i].key.bytes, &at) != KVCL_OK) ||
             (at.len != kvcl_owner_bytes(pool)))) {
            return false;
        }
    }
    return true;
}

static bool all_ahead(kvcl_store_h store)
{
    bool     ahead = true;
    unsigned i;

    kvcl_lock(store->ctx);
    for (i = 0; i < store->cold->n; ++i) {
        ahead = ahead && is_ahead(&store->cold->classes[i]) && is_clean(&store->cold->classes[i]);
    }
    kvcl_unlock(store->ctx);
    return ahead;
}

/* Wait until the tier has the blocks to be evicted next. */
static bool wait_ahead(world_t *w, kvcl_store_h store)
{
    uint64_t until = 0;
    bool     ahead = all_ahead(store);

    while (!ahead && keep_waiting(&until)) {
        kvcl_cold_kick(store->cold); /* a new block may be one of the next when the thread runs again */
        ahead = all_ahead(store);
    }
    CHECK(w, ahead, "the tier has not got what goes next, or what counts as being there");
    return ahead;
}

/* Put the first n of each size: one size after the other, the largest first, with some of the others in between. */
static void put_mine(world_t *w, kvcl_store_h store, kvcl_cache_h caches[SIZES], uint64_t owner, unsigned n)
{
    bool     ahead = true;
    unsigned phase, i, s;

    for (phase = 0; phase < SIZES; ++phase) {
        for (i = 0; (i < n) && ahead; ++i) {
            s = (i % SIZES != 0) ? SIZES - 1 - phase : (SIZES - phase) % SIZES;
            kvcl_key_t key = key_at(owner, s, i);
            CHECK(w, put_one(store, caches[s], &key, 1, NULL) == KVCL_OK, "put %u of size %u", i, s);
            ahead = wait_ahead(w, store);
        }
    }
}

/* How many blocks of size s of all ranks are found; those have their bytes. */
static unsigned get_sized(world_t *w, kvcl_store_h store, kvcl_cache_h caches[SIZES], unsigned s, uint64_t owner,
                          unsigned n)
{
    unsigned      found = 0, i;
    kvcl_status_t status;
    kvcl_key_t    key;
    int           r;

    for (r = 0; r < w->size; ++r) {
        for (i = 0; i < n; ++i) {
            key    = key_at(owner + (uint64_t)((r + w->rank) % w->size), s, i);
            status = get_one(store, caches[s], &key);
            found += (status == KVCL_OK) ? 1 : 0;
            CHECK(w, (status == KVCL_OK) ? is_right(caches[s], 1, s, &key) : (status == KVCL_ERR_NOT_FOUND),
                  "%u of size %u: %s", i, s, kvcl_status_text(status));
        }
    }
    return found;
}

/* All blocks of all ranks are found, some of each size in tiers; collective. */
static void get_all(world_t *w, kvcl_store_h store, kvcl_cache_h caches[SIZES], uint64_t owner, unsigned n)
{
    uint64_t before;
    unsigned s, found;

    for (s = 0; s < SIZES; ++s) {
        before = stats_of(store).hits_nvme;
        found  = get_sized(w, store, caches, s, owner, n);
        CHECK(w, found == n * (unsigned)w->size, "%u of %u blocks of %llu bytes came", found, n * (unsigned)w->size,
              (unsigned long long)sizes[s]);
        CHECK(w, sum_of(w, stats_of(store).hits_nvme - before) > 0, "of %llu bytes none came out of a tier",
              (unsigned long long)sizes[s]);
    }
}

static void names(uint64_t owner, unsigned n, kvcl_key_t *keys)
{
    unsigned i;

    for (i = 0; i < SIZES * n; ++i) {
        keys[i] = key_at(owner, i / n, i % n);
    }
}

/* Wait until all ranks' blocks are listed. */
static bool listed(world_t *w, kvcl_store_h store, uint64_t owner, unsigned n)
{
    kvcl_key_t keys[SIZES * KEYS];
    uint64_t   until = 0;
    size_t     hit   = 0;
    bool       more  = true;
    int        r;

    for (r = 0; (r < w->size) && more; ++r) {
        names(owner + (uint64_t)r, n, keys);
        do {
            KVCL_TRY(kvcl_store_match(store, keys, SIZES * n, &hit, NULL));
        } while ((hit < SIZES * n) && (more = keep_waiting(&until)));
    }
    return more;
}

/* Every block is in the tier before it is evicted, whether its own size or another one needs the room. */
void test_tier_sizes(world_t *w)
{
    const char         *spec = tier_spec(w);
    kvcl_store_h       store = open_store(w, spec, POOL);
    kvcl_cache_h       caches[SIZES];
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    kvcl_key_t         key = key_at((uint64_t)w->rank, 0, 0);

    make_caches(w, caches);
    put_mine(w, store, caches, (uint64_t)w->rank, KEYS);
    stats = stats_of(store);
    CHECK(w, (stats.nvme_state == KVCL_STORE_NVME_ON) && (stats.dropped == 0), "%llu dropped",
          (unsigned long long)stats.dropped);
    CHECK(w, stats.pool_taken > 3, "%llu parts changed hands", (unsigned long long)stats.pool_taken);
    sync_all(w);
    CHECK(w, listed(w, store, 0, KEYS), "not all is listed");
    get_all(w, store, caches, 0, KEYS);
    CHECK(w, get_one(store, caches[1], &key) == KVCL_ERR_NOT_FOUND, "a block of another size");
    sync_all(w);
    get_all(w, store, caches, 0, KEYS);
    stats = stats_of(store);
    CHECK(w, (stats.promoted > 0) && (stats.corrupt == 0) && (stats.nvme_bad == 0), "%llu promoted, %llu corrupt",
          (unsigned long long)stats.promoted, (unsigned long long)stats.corrupt);
    if (w->rank == 0) {
        printf("tier_sizes: %llu demoted, %llu promoted, %llu parts changed hands\n",
               (unsigned long long)stats.demoted, (unsigned long long)stats.promoted,
               (unsigned long long)stats.pool_taken);
    }
    close_all(w, store, caches);
}

/* A block put just before a close is found as well; a removed or cleared one is found nowhere. */
void test_tier_sizes_restart(world_t *w)
{
    enum { MANY = KEYS / 3, ALL = SIZES * (MANY + LATE) };
    const char   *spec = tier_spec(w);
    kvcl_store_h store = open_store(w, spec, POOL);
    kvcl_cache_h caches[SIZES];
    kvcl_key_t   keys[SIZES * MANY], key;
    kvcl_req_h   req;
    uint64_t     until;
    unsigned     i;

    make_caches(w, caches);
    put_mine(w, store, caches, (uint64_t)w->rank, MANY);
    for (i = 0; i < SIZES * LATE; ++i) {
        key = key_at(1000 + (uint64_t)w->rank, i % SIZES, i / SIZES);
        CHECK(w, put_one(store, caches[i % SIZES], &key, 1, NULL) == KVCL_OK, "late put %u", i);
        if (!wait_ahead(w, store)) {
            break;
        }
    }
    CHECK(w, stats_of(store).dropped == 0, "%llu dropped", (unsigned long long)stats_of(store).dropped);
    CHECK(w, stats_of(store).nvme_blocks < ALL, "nothing is left for the close to write");
    sync_all(w);
    kvcl_store_close(store);
    store = open_store(w, spec, POOL);
    CHECK(w, stats_of(store).nvme_blocks == ALL, "%llu of %d blocks found again",
          (unsigned long long)stats_of(store).nvme_blocks, ALL);
    CHECK(w, listed(w, store, 0, MANY) && listed(w, store, 1000, LATE), "not all is listed again");
    get_all(w, store, caches, 0, MANY);
    get_all(w, store, caches, 1000, LATE);
    sync_all(w);
    names((uint64_t)((w->rank + 1) % w->size), MANY, keys);
    CHECK(w, DO(kvcl_store_remove(store, keys, SIZES * MANY, NULL, &req)) == KVCL_OK, "remove");
    CHECK(w, vanished(store, keys, SIZES * MANY), "removed keys are still listed");
    for (until = 0; (stats_of(store).nvme_blocks > SIZES * LATE) && keep_waiting(&until);) {
    }
    CHECK(w, stats_of(store).nvme_blocks == SIZES * LATE, "%llu blocks are in the tier",
          (unsigned long long)stats_of(store).nvme_blocks);
    sync_all(w);
    if (w->rank == 0) {
        CHECK(w, kvcl_store_clear(store, 0, NULL, NULL) == KVCL_OK, "clear");
    }
    sync_all(w);
    for (i = 0; i < SIZES; ++i) {
        CHECK(w, get_sized(w, store, caches, i, 1000, LATE) == 0, "what was cleared is there");
    }
    sync_all(w);
    kvcl_store_close(store);
    store = open_store(w, spec, POOL);
    CHECK(w, stats_of(store).nvme_blocks == 0, "%llu blocks came back",
          (unsigned long long)stats_of(store).nvme_blocks);
    close_all(w, store, caches);
}

static bool are_listing(world_t *w, kvcl_store_h store)
{
    bool listing = false;
    int  r;

    kvcl_lock(w->ctx);
    for (r = 0; r < w->size; ++r) {
        listing = listing || store->ranks[r].listing;
    }
    kvcl_unlock(w->ctx);
    return listing;
}

/* A start without one of the sizes works without its blocks. */
void test_tier_sizes_other(world_t *w)
{
    enum { MANY = 20 };
    const char          *spec = tier_spec(w);
    kvcl_store_h        store = open_store(w, spec, POOL);
    kvcl_store_params_t params;
    kvcl_cache_h        caches[SIZES];
    uint64_t            until = 0;
    unsigned            i, found;

    make_caches(w, caches);
    put_mine(w, store, caches, 100 + (uint64_t)w->rank, MANY);
    sync_all(w);
    kvcl_store_close(store);
    params               = sized_params(POOL);
    params.n_block_sizes = 1; /* block_bytes, and the first */
    params.dir_entries   = 16384;
    params.nvme          = spec;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    while (are_listing(w, store) && keep_waiting(&until)) {
    }
    sync_all(w);
    for (i = 0; i < SIZES; ++i) {
        found = get_sized(w, store, caches, i, 100, MANY);
        CHECK(w, found == ((i < 2) ? MANY * (unsigned)w->size : 0), "%u blocks of size %u", found, i);
    }
    close_all(w, store, caches);
}

/* One key in two sizes: the tier has one of them, and a get of either returns its bytes or a miss. */
void test_tier_sizes_twice(world_t *w)
{
    enum { MANY = 30 };
    const char    *spec = tier_spec(w);
    kvcl_store_h  store = open_store(w, spec, POOL);
    kvcl_cache_h  caches[SIZES];
    kvcl_status_t status;
    kvcl_key_t    key;
    uint64_t      words[LARGEST / sizeof(uint64_t)];
    unsigned      i, s, found = 0, both = 0, here;
    uint32_t      id = 0;
    kvcl_req_h    req;

    make_caches(w, caches);
    for (i = 0; i < 2 * MANY; ++i) {
        s   = i % 2;
        key = key_at((uint64_t)w->rank, 0, i / 2);
        memset(words, (int)(s + 1), sizeof(words));
        KVCL_TRY(kvcl_cache_write_block(caches[s], 0, words, sizes[s]));
        CHECK(w, DO(kvcl_store_put(store, &key, 1, caches[s], &id, NULL, &req)) == KVCL_OK, "put");
        (void)wait_ahead(w, store);
    }
    put_mine(w, store, caches, 200 + (uint64_t)w->rank, KEYS); /* all of them are evicted */
    for (i = 0; i < MANY; ++i) {
        key = key_at((uint64_t)w->rank, 0, i);
        for (s = 0, here = 0; s < 2; ++s) {
            status = get_one(store, caches[s], &key);
            CHECK(w, (status == KVCL_OK) || (status == KVCL_ERR_NOT_FOUND), "%s", kvcl_status_text(status));
            KVCL_TRY(kvcl_cache_read_block(caches[s], 1, words, sizes[s]));
            CHECK(w, (status != KVCL_OK) || (((uint8_t *)words)[sizes[s] - 1] == s + 1), "other bytes");
            here += (status == KVCL_OK) ? 1 : 0;
        }
        found += (here != 0) ? 1 : 0;
        both  += (here == 2) ? 1 : 0;
    }
    CHECK(w, found == MANY, "%u of %d are there in one size", found, MANY);
    CHECK(w, both < MANY, "the tier has two blocks of a key");
    close_all(w, store, caches);
}

static bool is_written(kvcl_store_h store)
{
    bool written;

    kvcl_lock(store->ctx);
    written = store->cold->leaving.written;
    kvcl_unlock(store->ctx);
    return written;
}

/* Write all of the pool's blocks of this size to the tier, as if another size needed the room. */
static void write_all(world_t *w, kvcl_store_h store, uint64_t size)
{
    kvcl_cold_class_t *cls  = kvcl_cold_class_for(store->cold, size);
    uint64_t          until = 0;

    kvcl_lock(w->ctx);
    CHECK(w, !kvcl_cold_may_release(cls->pool, (kvcl_slab_ids_t){0, cls->pool->slots.n}), "there is nothing to write");
    kvcl_unlock(w->ctx);
    while (!is_written(store) && keep_waiting(&until)) {
    }
}

/* How many locations in tiers the keys have. */
static unsigned count_tier(kvcl_store_h store, const kvcl_key_t *keys, unsigned n)
{
    kvcl_found_t found[KEYS];
    unsigned     count = 0, i, k;

    KVCL_TRY(kvcl_locate(store, keys, n, found, 0));
    for (i = 0; i < n; ++i) {
        for (k = 0; k < found[i].n; ++k) {
            count += kvcl_loc_is_nvme(&found[i].locs[k]) ? 1 : 0;
        }
    }
    return count;
}

static unsigned count_refused(kvcl_store_h store, const kvcl_key_t *keys, unsigned n, uint64_t size)
{
    kvcl_cold_class_t *cls  = kvcl_cold_class_for(store->cold, size);
    unsigned          count = 0, i;
    kvcl_owner_node_t *node;

    kvcl_lock(store->ctx);
    for (i = 0; i < n; ++i) {
        node   = kvcl_owner_find(store, &keys[i], cls->pool);
        count += ((node != NULL) && (cls->clean[kvcl_owner_slot(node)] == KVCL_COLD_REFUSED)) ? 1 : 0;
    }
    kvcl_unlock(store->ctx);
    return count;
}

/* In the tier one size replaces the other, and homes are notified. When it is removed, the other one may be evicted. */
void test_tier_sizes_replaced(world_t *w)
{
    enum { MANY = 8 };
    const char   *spec = tier_spec(w);
    kvcl_store_h store = open_store(w, spec, POOL);
    kvcl_cache_h caches[SIZES];
    kvcl_key_t   keys[MANY];
    uint32_t     block = 0;
    uint64_t     until = 0;
    unsigned     i, s;
    kvcl_req_h   req;

    make_caches(w, caches);
    for (s = 0; s < 2; ++s) {
        for (i = 0; i < MANY; ++i) {
            keys[i] = key_at((uint64_t)w->rank, 0, i);
            CHECK(w, DO(kvcl_store_put(store, &keys[i], 1, caches[s], &block, NULL, &req)) == KVCL_OK, "put");
        }
        write_all(w, store, sizes[s]);
    }
    CHECK(w, count_refused(store, keys, MANY, sizes[0]) == MANY, "what was replaced is to go there again");
    while ((count_tier(store, keys, MANY) != MANY) && keep_waiting(&until)) {
    }
    CHECK(w, count_tier(store, keys, MANY) == MANY, "%u places in tiers are listed of %d keys",
          count_tier(store, keys, MANY), MANY);
    CHECK(w, count_refused(store, keys, MANY, sizes[0]) == MANY, "the sizes take turns");
    kvcl_lock(w->ctx);
    for (i = 0; i < MANY; ++i) {
        kvcl_cold_drop(store->cold, &keys[i]);
    }
    kvcl_unlock(w->ctx);
    for (until = 0; (count_refused(store, keys, MANY, sizes[0]) != 0) && keep_waiting(&until);) {
    }
    CHECK(w, count_refused(store, keys, MANY, sizes[0]) == 0, "what was refused stays so");
    close_all(w, store, caches);
}

/* The last rank has a small pool and a tier; when it is drained the others have all of its blocks. */
void test_tier_sizes_drain(world_t *w)
{
    enum { MANY = KEYS / 3 };
    const char    *spec = tier_spec(w);
    int           last  = w->size - 1;
    kvcl_store_h  store = open_store(w, (w->rank == last) ? spec : "", (w->rank == last) ? POOL / 2 : 8 * POOL);
    kvcl_cache_h  caches[SIZES];
    uint64_t      moved = 0;
    unsigned      s, i;
    kvcl_status_t status;
    kvcl_key_t    key;

    make_caches(w, caches);
    if (w->rank == last) {
        put_mine(w, store, caches, 0, MANY);
        status = kvcl_store_drain(store, &moved, NULL);
        CHECK(w, status == ((last != 0) ? KVCL_OK : KVCL_ERR_NO_SPACE), "drain: %s", kvcl_status_text(status));
        CHECK(w, moved == ((last != 0) ? SIZES * MANY : 0), "%llu blocks moved", (unsigned long long)moved);
        CHECK(w, (last == 0) || (stats_of(store).nvme_blocks == 0), "%llu blocks are still in the tier",
              (unsigned long long)stats_of(store).nvme_blocks);
    }
    sync_all(w);
    for (s = 0; s < SIZES; ++s) {
        for (i = 0; i < MANY; ++i) {
            key = key_at(0, s, i);
            status = get_one(store, caches[s], &key);
            CHECK(w, (status == KVCL_OK) && is_right(caches[s], 1, s, &key), "%u of size %u: %s", i, s,
                  kvcl_status_text(status));
        }
    }
    CHECK(w, (last == 0) || (stats_of(store).hits_nvme == 0), "the tier still has some");
    close_all(w, store, caches);
}

/* ---- a slab that another size needs ---- */

/* Lock held. Mark all blocks of the class dirty, as if they had just been put. */
static void mark_all_dirty(kvcl_cold_class_t *cls)
{
    memset(cls->clean, KVCL_COLD_DIRTY, cls->pool->slots.n);
}

/* Lock held. A block of the class in the slab that `to` would take from it. */
static uint32_t wanted_slot(const kvcl_owner_t *from, const kvcl_owner_t *to)
{
    kvcl_slab_ids_t ids = kvcl_slabs_ids(from->slabs, kvcl_slabs_choose(to->slabs, to->cls, false), from->cls);

    while ((ids.first + 1 < ids.end) && !kvcl_slabs_has(from->slabs, from->cls, ids.first)) {
        ++ids.first;
    }
    return ids.first;
}

static bool lies_in(const kvcl_cold_leaving_t *leaving, uint32_t slot)
{
    return (slot >= leaving->ids.first) && (slot < leaving->ids.end);
}

/* Lock held. A slab with a pin is not chosen, since it would be written in vain. The slab that is written can be taken
 * once it is. */
static void begin_leaving(world_t *w, kvcl_cold_class_t *from, kvcl_owner_t *to)
{
    kvcl_cold_leaving_t *leaving = &from->cold->leaving;
    uint32_t            pinned   = wanted_slot(from->pool, to);

    mark_all_dirty(from);
    kvcl_owner_pin(from->pool, pinned);
    CHECK(w, !kvcl_pool_grow(to, false), "a slab went before the tier had it");
    CHECK(w, (leaving->cls == from) && !leaving->written, "nothing is on its way into the tier");
    CHECK(w, !lies_in(leaving, pinned), "a slab with a pin is written");
    kvcl_owner_unpin(from->pool, pinned);
    CHECK(w, lies_in(leaving, wanted_slot(from->pool, to)), "another one would be next");
}

/* The slab that is written for another size is the next one that this size gets. Its writing has ended then. */
void test_tier_sizes_leaving(world_t *w)
{
    const char          *spec    = tier_spec(w);
    kvcl_store_h        store    = open_store(w, spec, POOL);
    kvcl_cold_class_t   *from    = kvcl_cold_class_for(store->cold, LARGEST);
    kvcl_owner_t        *to      = kvcl_pool_for(store, sizes[0]);
    kvcl_cold_leaving_t *leaving = &store->cold->leaving;
    uint64_t            until    = 0;
    kvcl_cache_h        caches[SIZES];
    kvcl_key_t          key;
    unsigned            i;

    make_caches(w, caches);
    for (i = 0; i < KEYS; ++i) {
        key = key_at((uint64_t)w->rank, SIZES - 1, i);
        CHECK(w, put_one(store, caches[SIZES - 1], &key, 1, NULL) == KVCL_OK, "put %u", i);
    }
    kvcl_lock(w->ctx);
    begin_leaving(w, from, to);
    kvcl_unlock(w->ctx);
    while (!is_written(store) && keep_waiting(&until)) {
    }
    kvcl_lock(w->ctx);
    CHECK(w, kvcl_pool_grow(to, false), "the tier has it, and it does not go");
    CHECK(w, leaving->cls == NULL, "what has gone is still leaving");
    mark_all_dirty(from);
    CHECK(w, !kvcl_pool_grow(to, false) && (leaving->cls == from), "nothing is on its way into the tier");
    CHECK(w, kvcl_pool_grow(to, true) && (leaving->cls == NULL), "what had to go is still leaving");
    kvcl_unlock(w->ctx);
    close_all(w, store, caches);
}

/* Puts that hardly ever wait, in changing mixes, and gets of all ranks' recent keys: bytes of the key, or a miss. */
void test_tier_sizes_churn(world_t *w)
{
    enum { STEPS = 1500, PHASE = 250, LATELY = 200, PAUSE = 50 };
    const char          *spec  = tier_spec(w);
    kvcl_store_params_t params = sized_params(POOL);
    kvcl_cache_h        caches[SIZES];
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_store_h        store;
    kvcl_rand_t         rnd;
    unsigned            step, s, hits = 0, wrong = 0, failed = 0;
    kvcl_key_t          key;

    kvcl_rand_seed(&rnd, w->seed + (uint64_t)w->rank);
    params.dir_entries = 32768;
    params.nvme        = spec;
    params.flags       = (w->seed % 2 != 0) ? KVCL_STORE_NO_CHECKSUM : 0;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    make_caches(w, caches);
    sync_all(w);
    for (step = 1; step <= STEPS; ++step) {
        s   = (kvcl_rand_next(&rnd) % 4 != 0) ? (step / PHASE) % SIZES : (unsigned)(kvcl_rand_next(&rnd) % SIZES);
        key = key_at((uint64_t)w->rank, s, step);
        failed += (put_one(store, caches[s], &key, 1 + (kvcl_rand_next(&rnd) % 8 == 0), NULL) != KVCL_OK) ? 1 : 0;
        s   = (unsigned)(kvcl_rand_next(&rnd) % SIZES);
        key = key_at(kvcl_rand_next(&rnd) % (uint64_t)w->size, s, step - (kvcl_rand_next(&rnd) % LATELY));
        if (get_one(store, caches[s], &key) == KVCL_OK) {
            ++hits;
            wrong += is_right(caches[s], 1, s, &key) ? 0 : 1;
        }
        if (step % PAUSE == 0) { /* or the thread may not run at all on a busy machine */
            (void)wait_ahead(w, store);
        }
    }
    stats = stats_of(store);
    CHECK(w, (wrong == 0) && (stats.corrupt == 0) && (stats.nvme_bad == 0), "%u of %u wrong, %llu corrupt, %llu bad",
          wrong, hits, (unsigned long long)stats.corrupt, (unsigned long long)stats.nvme_bad);
    CHECK(w, (failed < STEPS / 50) && (hits > STEPS / 20), "%u puts failed, %u hits", failed, hits);
    CHECK(w, sum_of(w, stats.hits_nvme) > 0, "nothing came out of tiers");
    CHECK(w, sum_of(w, stats.pool_taken) > 0, "no parts changed hands");
    if (w->rank == 0) {
        printf("tier_sizes_churn: %u hits, %llu out of tiers, %llu demoted, %llu dropped, %llu parts changed hands\n",
               hits, (unsigned long long)stats.hits_nvme, (unsigned long long)stats.demoted,
               (unsigned long long)stats.dropped, (unsigned long long)stats.pool_taken);
    }
    close_all(w, store, caches);
}
