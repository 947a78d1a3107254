/*
 * Reuses a prefix that any rank has.
 *
 *   mpirun -n 4 reuse_prefix        (or alone)
 *
 * Rank 0 serves a prompt and puts its blocks into the store. Then every rank serves a prompt that begins with the same
 * tokens: it matches the longest leading run that any rank has, gets those blocks and computes only the rest. A router
 * would send the prompt to the rank that has most of it.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>

enum {
    BLOCKS        = 64,
    TOKENS        = 16,
    BLOCK_BYTES   = 4096,
    PROMPT_BLOCKS = 24,
    SHARED_BLOCKS = 18 /* the same in all prompts */
};

static const uint64_t second = 1000000000;

/* Stands for the model: a block's bytes follow from its key, which covers every token before them. */
static unsigned char kv_byte(const kvcl_key_t *key, size_t i)
{
    return (unsigned char)(key->bytes[i % 32] + (i / 32));
}

static unsigned char *block_at(kvcl_cache_h cache, uint32_t id)
{
    return (unsigned char *)kvcl_cache_base(cache, 0) + ((size_t)id * BLOCK_BYTES);
}

static void compute(kvcl_cache_h cache, const kvcl_key_t *keys, const uint32_t *ids, size_t n)
{
    size_t b, i;

    for (b = 0; b < n; ++b) {
        for (i = 0; i < BLOCK_BYTES; ++i) {
            block_at(cache, ids[b])[i] = kv_byte(&keys[b], i);
        }
    }
}

static size_t count_wrong(kvcl_cache_h cache, const kvcl_key_t *keys, const uint32_t *ids, size_t n)
{
    size_t wrong = 0, b, i;

    for (b = 0; b < n; ++b) {
        for (i = 0; i < BLOCK_BYTES; ++i) {
            wrong += (block_at(cache, ids[b])[i] != kv_byte(&keys[b], i));
        }
    }
    return wrong;
}

/* How many of the keys this rank has in its own memory. */
static size_t count_here(kvcl_store_h store, const kvcl_key_t *keys, size_t n, int rank)
{
    kvcl_store_places_t places[PROMPT_BLOCKS];
    size_t              here = 0, i;

    KVCL_TRY(kvcl_store_where(store, keys, n, places, sizeof(places[0]), NULL));
    for (i = 0; i < n; ++i) {
        here += (places[i].n != 0) && (places[i].at[0].rank == rank); /* its own copy is the first */
    }
    return here;
}

/* Serves one prompt. @return the number of leading blocks found in the store; *wrong_p counts wrong bytes. */
static size_t serve(kvcl_store_h store, kvcl_cache_h cache, unsigned speaker, int rank, size_t *wrong_p)
{
    kvcl_key_t    root, keys[PROMPT_BLOCKS];
    uint32_t      tokens[PROMPT_BLOCKS * TOKENS], ids[PROMPT_BLOCKS];
    kvcl_status_t status[PROMPT_BLOCKS];
    kvcl_req_h    req;
    size_t        n, hit, i;

    for (i = 0; i < PROMPT_BLOCKS * TOKENS; ++i) {
        tokens[i] = (uint32_t)((i < SHARED_BLOCKS * TOKENS) ? i : (1000 * speaker) + i);
    }
    for (i = 0; i < PROMPT_BLOCKS; ++i) {
        ids[i] = (uint32_t)i; /* this engine's blocks for the prompt */
    }
    kvcl_key_root("tenant-1", 8, "toy-model/16", &root);
    KVCL_TRY(kvcl_key_chain(&root, 0, tokens, PROMPT_BLOCKS * TOKENS, TOKENS, keys, PROMPT_BLOCKS, &n));

    KVCL_TRY(kvcl_store_match(store, keys, n, &hit, NULL));
    if (hit > 0) {
        printf("rank %d: %zu of the %zu blocks are here\n", rank, count_here(store, keys, hit, rank), hit);
        KVCL_TRY(kvcl_store_get(store, keys, hit, cache, ids, status, NULL, &req));
        KVCL_TRY(kvcl_req_wait(req, 10 * second));
        *wrong_p += count_wrong(cache, keys, ids, hit);
    }
    compute(cache, keys + hit, ids + hit, n - hit);
    if (hit < n) {
        KVCL_TRY(kvcl_store_put(store, keys + hit, n - hit, cache, ids + hit, NULL, &req));
        KVCL_TRY(kvcl_req_wait(req, 10 * second)); /* from this point on every rank finds them */
    }
    return hit;
}

static void barrier(kvcl_comm_h world)
{
    kvcl_req_h req;

    KVCL_TRY(kvcl_barrier(world, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 10 * second));
}

int main(void)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(BLOCKS, BLOCK_BYTES);
    kvcl_store_params_t params = {.size = sizeof(params), .dram_bytes = 1u << 20, .block_bytes = BLOCK_BYTES};
    size_t              wrong  = 0, hit;
    kvcl_context_h      ctx;
    kvcl_comm_h         world;
    kvcl_cache_h        cache;
    kvcl_store_h        store;
    int                 rank;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    rank = kvcl_comm_rank(world);
    KVCL_TRY(kvcl_cache_create(ctx, "main", &layout, NULL, &cache));
    KVCL_TRY(kvcl_store_open(world, &params, &store));

    if (rank == 0) {
        hit = serve(store, cache, 0, rank, &wrong);
        printf("rank 0: the first prompt, %zu of %d blocks reused\n", hit, PROMPT_BLOCKS);
    }
    barrier(world);
    hit = serve(store, cache, 1 + (unsigned)rank, rank, &wrong);
    printf("rank %d: %zu of %d blocks reused, %zu bytes wrong\n", rank, hit, PROMPT_BLOCKS, wrong);

    barrier(world); /* no rank leaves while others still get its blocks */
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    return ((wrong == 0) && (hit == SHARED_BLOCKS)) ? 0 : 1;
}
