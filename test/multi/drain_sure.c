/*
 * When may a drain say that other ranks have all blocks? Rank 0 drains, rank 1 has room, rank 2 has no pool; each is
 * the home of some keys. What is rare by chance is made on purpose, under the engine's lock.
 *   drain_sure [CASE]   prints "ok CASE" or "WRONG CASE ..."; exit 1 if one is wrong
 *
 * stale     homes list blocks of rank 1 that it has dropped, the removal being on its way: the drain moves them
 * unlisted  rank 1 has the blocks, and no home lists them there any more: the drain has them listed again
 * full      two homes: one lists KVCL_DIR_LOCS_MAX other copies, and the copy of rank 1 counts as listed by neither;
 *           when they have gone, the drain has it listed there
 * pending   a home has listed a block of rank 1, whose publish waits for the answer and may fail: rank 1 does not say
 *           that it has the block until it has the answer
 */
#include "grow_keys.h"
#include "start_ranks.h"

#include "store/admin/ops.h"
#include "store/home/home_answer.h"
#include "store/copy/copy_jobs.h"
#include "store/home/ranks.h"
#include "store/pool/pool.h"
#include "store/pool/publish.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { RANKS = 3, TARGET = 1, KEYS = 40 };

typedef struct shared {
    _Atomic int      met, wrong, locked, waits, asked;
    kvcl_store_rec_t source, copy; /* pending */
} shared_t;

typedef struct rank {
    int            rank, meetings;
    kvcl_context_h ctx;
    kvcl_store_h   store;
    kvcl_cache_h   cache;
} rank_t;

static shared_t *s;

#define IS(_is, ...)                                                                                                   \
    do {                                                                                                               \
        if (!(_is)) {                                                                                                  \
            printf("rank %d, line %d: %s: ", r->rank, __LINE__, #_is);                                                 \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
            fflush(stdout);                                                                                            \
            s->wrong = 1;                                                                                              \
        }                                                                                                              \
    } while (0)

static void await(const _Atomic int *word, int value)
{
    while (atomic_load(word) < value) { /* the alarm of each process bounds it */
        usleep(500);
    }
}

static void meet(rank_t *r)
{
    s->met += 1;
    await(&s->met, RANKS * ++r->meetings);
}

static kvcl_owner_t *pool_of(const rank_t *r)
{
    return kvcl_pool_for(r->store, BLOCK);
}

static bool lists(const rank_t *r, const kvcl_key_t *key)
{
    bool is;

    kvcl_lock(r->ctx);
    is = kvcl_owner_lists(pool_of(r), key);
    kvcl_unlock(r->ctx);
    return is;
}

static void put_all(rank_t *r)
{
    static uint64_t words[WORDS];
    uint32_t        id = 0;
    kvcl_req_h      req;
    kvcl_key_t      key;
    unsigned        i;

    for (i = 0; i < KEYS; ++i) {
        key = key_of(0, i);
        expected(&key, words);
        KVCL_TRY(kvcl_cache_write_block(r->cache, id, words, sizeof(words)));
        KVCL_TRY(wait_for(kvcl_store_put(r->store, &key, 1, r->cache, &id, NULL, &req), &req));
    }
}

/* Rank 0 puts the blocks, and rank 1 gets a copy of each. */
static void put_and_copy(rank_t *r)
{
    kvcl_key_t keys[KEYS];
    unsigned   i;

    if (r->rank == 0) {
        put_all(r);
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of(0, i);
        }
        KVCL_TRY(kvcl_store_copy(r->store, keys, KEYS, TARGET, 0, NULL, NULL));
    }
    meet(r);
}

/* Rank 0's drain says OK: then rank 1 has all blocks, rank 2 finds them there and gets their bytes. */
static void drain(rank_t *r, uint64_t n)
{
    static uint64_t            want[WORDS], got[WORDS];
    static kvcl_store_places_t places[KEYS];
    kvcl_key_t                 keys[KEYS];
    uint64_t                   moved = 0;
    uint32_t                   id    = 1;
    kvcl_status_t              status;
    kvcl_req_h                 req;
    unsigned                   i, j;

    meet(r);
    if (r->rank == 0) {
        status = kvcl_store_drain(r->store, &moved, NULL);
        IS((status == KVCL_OK) && (moved == n), "%s, %llu have moved, not %llu", kvcl_status_name(status),
           (unsigned long long)moved, (unsigned long long)n);
    }
    meet(r);
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(0, i);
        IS((r->rank != TARGET) || lists(r, &keys[i]), "key %u", i);
    }
    KVCL_TRY(kvcl_store_where(r->store, keys, KEYS, places, sizeof(places[0]), NULL));
    for (i = 0; i < KEYS; ++i) {
        for (j = 0; (j < places[i].n) && (places[i].at[j].rank != TARGET); ++j) {
        }
        IS(j < places[i].n, "key %u is listed in %u places, and not at rank %d", i, (unsigned)places[i].n, TARGET);
    }
    for (i = 0; (r->rank == 2) && (i < KEYS); ++i) {
        expected(&keys[i], want);
        status = wait_for(kvcl_store_get(r->store, &keys[i], 1, r->cache, &id, NULL, NULL, &req), &req);
        IS(status == KVCL_OK, "key %u: %s", i, kvcl_status_name(status));
        KVCL_TRY(kvcl_cache_read_block(r->cache, id, got, sizeof(got)));
        IS(memcmp(want, got, sizeof(want)) == 0, "key %u has other bytes", i);
    }
}

static void stale(rank_t *r)
{
    kvcl_store_rec_t removed;
    unsigned         i;

    put_and_copy(r);
    if (r->rank == TARGET) {
        kvcl_lock(r->ctx);
        for (i = 0; i < KEYS; ++i) {
            const kvcl_key_t        key   = key_of(0, i);
            const kvcl_owner_node_t *node = kvcl_owner_find(r->store, &key, pool_of(r));
            KVCL_TRY(kvcl_owner_withdraw(pool_of(r), kvcl_owner_slot(node), KVCL_SLOT_FREE, &removed));
        }
        kvcl_unlock(r->ctx);
    }
    drain(r, KEYS);
}

static void unlisted(rank_t *r)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    unsigned       n = 0, i, j;

    put_and_copy(r);
    kvcl_lock(r->ctx);
    for (i = 0; i < KEYS; ++i) {
        const kvcl_key_t key = key_of(0, i);
        for (j = kvcl_dir_table_find(&r->store->table, &key, locs); j-- > 0;) {
            if (locs[j].rank == TARGET) {
                KVCL_TRY(kvcl_dir_table_remove(&r->store->table, &key, &locs[j]));
                ++n;
            }
        }
    }
    kvcl_unlock(r->ctx);
    IS(n != 0, "it is the home of no key");
    drain(r, KEYS);
}

/* ---- full ---- */

enum { CROWD = 77 }; /* the number of a cache that no rank has */

/* The home of each key, not its backup, lists other copies instead of that of rank 1; or lists them no more. */
static void crowd(const rank_t *r, bool comes)
{
    kvcl_store_h   store = r->store;
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    unsigned       i, j;

    kvcl_lock(r->ctx);
    for (i = 0; i < KEYS; ++i) {
        const kvcl_key_t key  = key_of(0, i);
        kvcl_dir_loc_t   more = {.rank = 2, .incarnation = (uint16_t)store->incarnations[2], .cache = CROWD, .gen = 1,
                                 .len = BLOCK, .flags = KVCL_DIR_TIER_CACHE};
        if (kvcl_shard_home(kvcl_store_shards(store), &key) != store->me) {
            continue;
        }
        for (j = kvcl_dir_table_find(&store->table, &key, locs); j-- > 0;) {
            if (locs[j].rank == (comes ? TARGET : 2)) {
                KVCL_TRY(kvcl_dir_table_remove(&store->table, &key, &locs[j]));
            }
        }
        while (comes && (kvcl_dir_table_insert(&store->table, &key, &more) == KVCL_OK)) {
            ++more.slot;
        }
    }
    kvcl_unlock(r->ctx);
}

static void full(rank_t *r)
{
    kvcl_key_t    keys[KEYS];
    uint8_t       made[KEYS];
    kvcl_status_t status;
    unsigned      i;

    if (r->rank == 0) {
        put_all(r);
    }
    meet(r);
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(0, i);
        IS((r->rank != TARGET) || lists(r, &keys[i]), "key %u", i);
    }
    crowd(r, true);
    meet(r);
    if (r->rank == TARGET) { /* it has them, and lists them again */
        status = kvcl_store_copy(r->store, keys, KEYS, TARGET, 0, made, NULL);
        IS((status == KVCL_ERR_NO_SPACE) && (memchr(made, 1, KEYS) == NULL), "%s", kvcl_status_name(status));
    }
    meet(r);
    crowd(r, false);
    drain(r, KEYS);
}

/* ---- pending ---- */

static kvcl_key_t key_at_home(const rank_t *r, uint32_t home)
{
    kvcl_key_t key = key_of(0, 0);
    unsigned   i;

    for (i = 0; (i < KEYS) && (kvcl_shard_home(kvcl_store_shards(r->store), &key) != home); ++i) {
        key = key_of(0, i);
    }
    return key;
}

/* Does rank 1 say that it has the block? */
static bool says_yes(const rank_t *r, const kvcl_key_t *key)
{
    const kvcl_found_t found = {.locs = {s->copy.loc}, .n = 1};
    uint8_t            held  = 0;

    KVCL_TRY(kvcl_held(r->store, key, &found, 1, 0, &held));
    return held != 0;
}

static void fetch(rank_t *r)
{
    const kvcl_copy_head_t head = {.copies = 1};
    bool                   waits = false;

    kvcl_lock(r->ctx);
    KVCL_TRY(kvcl_copy_here(r->store, &head, &s->source, NULL, 1, NULL));
    kvcl_unlock(r->ctx);
    while (!waits) {
        kvcl_lock(r->ctx);
        waits = !kvcl_list_is_empty(&r->store->publishes);
        if (waits) {
            s->copy = kvcl_owner_record(pool_of(r), kvcl_owner_slot(kvcl_owner_find(r->store, &s->source.key,
                                                                                    pool_of(r))));
        }
        kvcl_unlock(r->ctx);
        usleep(500);
    }
    s->waits = 1;
}

static void pending(rank_t *r)
{
    const kvcl_key_t key = key_at_home(r, 2);

    if (r->rank == 0) {
        put_all(r);
        kvcl_lock(r->ctx);
        s->source = kvcl_owner_record(pool_of(r), kvcl_owner_slot(kvcl_owner_find(r->store, &key, pool_of(r))));
        kvcl_unlock(r->ctx);
    }
    meet(r);
    if (r->rank == 2) { /* it answers nobody while this thread has the lock */
        kvcl_lock(r->ctx);
        s->locked = 1;
        await(&s->waits, 1);
        KVCL_TRY(kvcl_dir_table_insert(&r->store->table, &key, &s->copy.loc)); /* and its answer does not arrive */
        await(&s->asked, 1);
        kvcl_unlock(r->ctx);
    }
    await(&s->locked, 1);
    if (r->rank == TARGET) {
        fetch(r);
        await(&s->asked, 1);
        while (!lists(r, &key)) {
            usleep(500);
        }
    } else if (r->rank == 0) {
        await(&s->waits, 1);
        IS(!says_yes(r, &key), "its publish is in flight");
        s->asked = 1;
    }
    meet(r);
    IS((r->rank != 0) || says_yes(r, &key), "the block is listed");
    drain(r, KEYS - 1);
}

/* ---- the cases ---- */

typedef struct what {
    const char *name;
    void       (*run)(rank_t *r);
    uint64_t   replicas;
} what_t;

static int live(const void *arg, int rank)
{
    const what_t        *what  = arg;
    rank_t              me     = {.rank = rank}, *r = &me;
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(2, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_comm_h         world;

    params.dir_entries = 1 << 14;
    params.dram_bytes  = (rank == 2) ? 0 : 2ull * KEYS * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = what->replicas;
    KVCL_TRY(kvcl_init(NULL, &me.ctx));
    KVCL_TRY(kvcl_comm_world(me.ctx, &world));
    KVCL_TRY(kvcl_cache_create(me.ctx, "c", &layout, NULL, &me.cache));
    KVCL_TRY(kvcl_store_open(world, &params, &me.store));
    meet(r);
    what->run(r);
    meet(r);
    kvcl_store_close(me.store);
    kvcl_cache_destroy(me.cache);
    kvcl_finalize(me.ctx);
    return 0;
}

int main(int argc, char **argv)
{
    static const what_t cases[] = {
        {"stale", stale, 1}, {"unlisted", unlisted, 1}, {"full", full, 2}, {"pending", pending, 1}};
    bool                right   = true, well;
    pid_t               pids[RANKS];
    unsigned            i;
    int                 rank;

    s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setenv("KVCL_STORE_HEDGE", "0", 1); /* a publish waits for a silent home until its deadline */
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        if ((argc > 1) && (strcmp(argv[1], cases[i].name) != 0)) {
            continue;
        }
        memset(s, 0, sizeof(*s));
        start_ranks(RANKS, live, &cases[i], pids);
        for (rank = 0, well = true; rank < RANKS; ++rank) {
            well = rank_ends_well(pids[rank]) && well;
        }
        well  = well && !s->wrong;
        right = right && well;
        printf("%s %s\n", well ? "ok" : "WRONG", cases[i].name);
    }
    return right ? 0 : 1;
}
