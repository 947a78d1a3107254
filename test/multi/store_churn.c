/*
 * Chains through a pool that is too small for them, used as by an engine: match, get the blocks found, put the rest.
 * The pool stays full of published blocks, and never holds a block without its predecessor in the chain.
 */
#include "store_test.h"

enum { POOL = 256, KEYS = 1500, DEPTH = 12, REQUESTS = 1500 };

typedef struct tree {
    kvcl_key_t keys[KEYS];
    uint32_t   parent[KEYS]; /* KEYS: none */
    uint32_t   depth[KEYS];
    uint32_t   by_key[KEYS]; /* sorted by bytes */
    bool       held[KEYS];
} tree_t;

static tree_t tree;

static int compare(const void *a, const void *b)
{
    return memcmp(&tree.keys[*(const uint32_t *)a], &tree.keys[*(const uint32_t *)b], sizeof(kvcl_key_t));
}

static void grow(world_t *w, kvcl_rand_t *rnd)
{
    uint32_t i;

    for (i = 0; i < KEYS; ++i) {
        tree.parent[i] = (i < 10) ? KEYS : (uint32_t)kvcl_rand_below(rnd, i);
        tree.depth[i]  = (i < 10) ? 0 : tree.depth[tree.parent[i]] + 1;
        if (tree.depth[i] == DEPTH) {
            tree.parent[i] = KEYS;
            tree.depth[i]  = 0;
        }
        tree.keys[i]   = key_of("churn", (uint64_t)w->rank, i);
        tree.by_key[i] = i;
    }
    qsort(tree.by_key, KEYS, sizeof(tree.by_key[0]), compare);
}

static uint32_t find(const kvcl_key_t *key)
{
    uint32_t low = 0, high = KEYS, mid;

    while (low < high) {
        mid = (low + high) / 2;
        if (memcmp(&tree.keys[tree.by_key[mid]], key, sizeof(*key)) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return tree.by_key[low];
}

/* A listing is not a use, so it does not change the order of eviction. @return blocks held without their parent. */
static unsigned orphans(world_t *w, kvcl_store_h store)
{
    kvcl_store_item_t items[POOL];
    uint64_t          cursor  = 0;
    unsigned          orphans = 0;
    size_t            n, i;

    memset(tree.held, 0, sizeof(tree.held));
    do {
        n = 0;
        KVCL_TRY(kvcl_store_list(store, w->rank, &cursor, items, sizeof(*items), POOL, &n, NULL, NULL));
        for (i = 0; i < n; ++i) {
            tree.held[find(&items[i].key)] = true;
        }
    } while (cursor != 0);
    for (i = 0; i < KEYS; ++i) {
        orphans += (tree.held[i] && (tree.parent[i] != KEYS) && !tree.held[tree.parent[i]]) ? 1 : 0;
    }
    return orphans;
}

/* Serve one prompt whose last block is `leaf`. */
static void request(world_t *w, kvcl_store_h store, kvcl_cache_h cache, uint32_t leaf)
{
    kvcl_key_t    keys[DEPTH];
    kvcl_status_t status[DEPTH];
    uint32_t      ids[DEPTH], i;
    size_t        n = tree.depth[leaf] + 1, hit = 0;
    kvcl_req_h    req;

    for (i = (uint32_t)n; i-- > 0; leaf = tree.parent[leaf]) {
        keys[i] = tree.keys[leaf];
        ids[i]  = i;
    }
    KVCL_TRY(kvcl_store_match(store, keys, n, &hit, NULL));
    if (hit != 0) { /* a home on another rank may not know yet of an eviction here */
        (void)!DO(kvcl_store_get(store, keys, hit, cache, ids, status, NULL, &req));
        for (i = 0; (i < hit) && (status[i] == KVCL_OK); ++i) {
        }
        CHECK(w, (i == hit) || (status[i] == KVCL_ERR_NOT_FOUND), "get: %s", kvcl_status_text(status[i]));
        hit = i;
    }
    for (i = 0; i < n; ++i) {
        CHECK(w, (i >= hit) || holds(cache, i, &keys[i]), "block %u of %zu", i, hit);
        if (i >= hit) {
            fill(cache, i, &keys[i]);
        }
    }
    CHECK(w, (hit == n) || (DO(kvcl_store_put(store, keys + hit, n - hit, cache, ids + hit, NULL, &req)) == KVCL_OK),
          "put");
}

void test_churn(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "churn", DEPTH, false);
    uint64_t            least  = POOL, left;
    unsigned            lost   = 0, turn;
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_store_h        store;
    kvcl_rand_t         rnd;

    kvcl_rand_seed(&rnd, w->seed + (uint64_t)w->rank);
    grow(w, &rnd);
    params.dir_entries = 4096;
    params.dram_bytes  = POOL * BLOCK;
    params.block_bytes = BLOCK;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (turn = 0; turn < REQUESTS; ++turn) {
        request(w, store, cache, (uint32_t)kvcl_rand_below(&rnd, (kvcl_rand_below(&rnd, 2) == 0) ? KEYS : KEYS / 8));
        KVCL_TRY(kvcl_store_stats(store, &stats));
        least = ((stats.evicted != 0) && (stats.pool_published < least)) ? stats.pool_published : least;
        lost += ((turn % 8) == 0) ? orphans(w, store) : 0;
    }
    left = params.dram_bytes - (stats.pool_blocks * stats.block_bytes);
    CHECK(w, stats.evicted > 2 * POOL, "%llu evicted: this tests nothing", (unsigned long long)stats.evicted);
    CHECK(w, lost == 0, "%u blocks held without the one before them", lost);
    CHECK(w, least * 100 >= POOL * 95, "%llu of %d blocks were in use", (unsigned long long)least, POOL);
    CHECK(w, left * 100 <= params.dram_bytes * 5, "%llu bytes of the pool are no blocks", (unsigned long long)left);
    if (w->rank == 0) {
        printf("churn: %llu evicted, at least %llu of %llu blocks in use\n", (unsigned long long)stats.evicted,
               (unsigned long long)least, (unsigned long long)stats.pool_blocks);
    }
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}
