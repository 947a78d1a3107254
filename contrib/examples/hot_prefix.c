/*
 * Broadcasts a hot prefix to every worker.
 *
 *   mpirun -n 4 hot_prefix          (or alone)
 *
 * First with kvcl_bcast: rank 0 has the blocks, and every rank names its destination blocks. Then with
 * kvcl_store_bcast: keys name the blocks, any rank that has them is the source, and every rank holds them in the store
 * afterwards.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>

enum {
    BLOCKS      = 64,
    BLOCK_BYTES = 8192,
    PREFIX      = 12 /* blocks */
};

static const uint64_t second = 1000000000;

static unsigned char kv_byte(unsigned salt, unsigned b, size_t i)
{
    return (unsigned char)((salt * 17) + (b * 31) + (i * 7) + (i >> 8));
}

static unsigned char *block_at(kvcl_cache_h cache, uint32_t id)
{
    return (unsigned char *)kvcl_cache_base(cache, 0) + ((size_t)id * BLOCK_BYTES);
}

static void compute(kvcl_cache_h cache, const uint32_t *ids, unsigned salt)
{
    unsigned b;
    size_t   i;

    for (b = 0; b < PREFIX; ++b) {
        for (i = 0; i < BLOCK_BYTES; ++i) {
            block_at(cache, ids[b])[i] = kv_byte(salt, b, i);
        }
    }
}

static size_t count_wrong(kvcl_cache_h cache, const uint32_t *ids, unsigned salt)
{
    size_t   wrong = 0, i;
    unsigned b;

    for (b = 0; b < PREFIX; ++b) {
        for (i = 0; i < BLOCK_BYTES; ++i) {
            wrong += (block_at(cache, ids[b])[i] != kv_byte(salt, b, i));
        }
    }
    return wrong;
}

/* Each rank has its own ids: here rank r takes every block from first + r on. */
static void choose_ids(uint32_t *ids, int rank, uint32_t first)
{
    uint32_t b;

    for (b = 0; b < PREFIX; ++b) {
        ids[b] = first + ((b + (uint32_t)rank) % PREFIX);
    }
}

static size_t by_blocks(kvcl_comm_h world, kvcl_cache_h cache)
{
    uint32_t   ids[PREFIX];
    kvcl_sel_t sel = {.blocks = ids, .n_blocks = PREFIX};
    kvcl_req_h req;

    choose_ids(ids, kvcl_comm_rank(world), 0);
    if (kvcl_comm_rank(world) == 0) {
        compute(cache, ids, 1);
    }
    KVCL_TRY(kvcl_bcast(world, /* root */ 0, cache, &sel, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 10 * second));
    return count_wrong(cache, ids, 1);
}

static size_t by_keys(kvcl_comm_h world, kvcl_store_h store, kvcl_cache_h cache)
{
    const int  rank = kvcl_comm_rank(world);
    kvcl_key_t root, keys[PREFIX];
    uint32_t   tokens[PREFIX], ids[PREFIX], id;
    kvcl_req_h req;
    size_t     n, missing = 0;
    uint32_t   b;

    for (b = 0; b < PREFIX; ++b) {
        tokens[b] = b;
    }
    kvcl_key_root(NULL, 0, "toy-model/1", &root);
    KVCL_TRY(kvcl_key_chain(&root, 0, tokens, PREFIX, 1, keys, PREFIX, &n));

    if (rank == kvcl_comm_size(world) - 1) { /* the last rank has computed and published it once */
        choose_ids(ids, rank, 2 * PREFIX);
        compute(cache, ids, 2);
        KVCL_TRY(kvcl_store_publish(store, keys, n, cache, ids, NULL, &req));
        KVCL_TRY(kvcl_req_wait(req, 10 * second));
    }
    KVCL_TRY(kvcl_barrier(world, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 10 * second));

    choose_ids(ids, rank, 3 * PREFIX);
    KVCL_TRY(kvcl_store_bcast(store, keys, n, cache, ids, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 10 * second));
    for (b = 0; b < PREFIX; ++b) {
        if (kvcl_store_pin_local(store, &keys[b], &id) != KVCL_OK) {
            ++missing;
        } else {
            kvcl_store_unpin_local(store, id);
        }
    }
    return count_wrong(cache, ids, 2) + missing;
}

int main(void)
{
    kvcl_layout_t  layout = KVCL_LAYOUT_BYTES(BLOCKS, BLOCK_BYTES);
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_cache_h   cache;
    kvcl_store_h   store;
    kvcl_req_h     req;
    size_t         wrong;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    KVCL_TRY(kvcl_cache_create(ctx, "main", &layout, NULL, &cache));
    KVCL_TRY(kvcl_store_open(world, NULL, &store));

    wrong = by_blocks(world, cache);
    wrong += by_keys(world, store, cache);
    printf("rank %d has the prefix twice, %zu bytes wrong\n", kvcl_comm_rank(world), wrong);

    KVCL_TRY(kvcl_barrier(world, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 10 * second));
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    return (wrong == 0) ? 0 : 1;
}
