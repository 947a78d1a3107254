/*
 * Takes a part of stored blocks: each rank the KV heads that it computes with, layer by layer.
 *
 *   mpirun -n 4 take_heads          (or alone)
 *
 * Rank 0 is an engine without tensor parallelism: it computes a prompt and puts blocks with all heads into the store.
 * The other ranks are engines of tensor-parallel size 2: they ask which ranks have the blocks (kvcl_store_where), as a
 * router or a scheduler does before it decides, and get half of the heads into blocks of that size
 * (kvcl_store_get_part). A layer can be used as soon as it has arrived.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>
#include <string.h>

enum {
    LAYERS   = 4,
    BLOCKS   = 32,
    TOKENS   = 16,
    HEADS    = 8, /* of the model */
    OURS     = 4, /* of a rank with tensor parallelism */
    HEAD_DIM = 32, /* elements of 2 bytes */
    PROMPT   = 6   /* blocks */
};

static const uint64_t second = 1000000000;

/* Stands for the model: an element of a block. */
static uint16_t kv_value(unsigned block, unsigned layer, unsigned plane, unsigned token, unsigned head, unsigned dim)
{
    return (uint16_t)((block * 7919u) + (layer * 104729u) + (plane * 31u) + (token * 613u) + (head * 211u) + dim);
}

/* Visit the elements of one layer of the prompt's blocks, in a cache with this number of heads: write them, or count
 * wrong ones. first: of these heads, in the model. Each layer has a tensor [K,V][blocks][tokens][heads][head_dim]. */
static size_t visit(kvcl_cache_h cache, const uint32_t *ids, unsigned layer, unsigned heads, unsigned first, int write)
{
    uint16_t *tensor = kvcl_cache_base(cache, layer);
    size_t   wrong   = 0;
    unsigned b, p, row, dim;
    uint16_t *at, value;

    for (b = 0; b < PROMPT; ++b) {
        for (p = 0; p < 2; ++p) {
            for (row = 0; row < TOKENS * heads; ++row) {
                at = tensor + (((((size_t)p * BLOCKS) + ids[b]) * TOKENS * heads) + row) * HEAD_DIM;
                for (dim = 0; dim < HEAD_DIM; ++dim) {
                    value = kv_value(b, layer, p, row / heads, first + (row % heads), dim);
                    if (write) {
                        at[dim] = value;
                    } else {
                        wrong += (at[dim] != value);
                    }
                }
            }
        }
    }
    return wrong;
}

/* Both engines find the keys by the tokens alone. What else the bytes depend on is in the root, but for the parallel
 * size: a block has all heads, whoever takes some of them. */
static void prompt_keys(kvcl_key_t *keys)
{
    uint32_t   tokens[PROMPT * TOKENS], i;
    kvcl_key_t root;
    size_t     n;

    for (i = 0; i < PROMPT * TOKENS; ++i) {
        tokens[i] = 1000 + i;
    }
    kvcl_key_root(NULL, 0, "toy-model/bf16/16", &root);
    KVCL_TRY(kvcl_key_chain(&root, 0, tokens, PROMPT * TOKENS, TOKENS, keys, PROMPT, &n));
}

static void put_prompt(kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *keys, const uint32_t *ids)
{
    kvcl_req_h req;
    unsigned   layer;

    for (layer = 0; layer < LAYERS; ++layer) {
        visit(cache, ids, layer, HEADS, 0, 1);
    }
    KVCL_TRY(kvcl_store_put(store, keys, PROMPT, cache, ids, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 10 * second));
}

/* Says where the prompt is. @return whether every block has a place. */
static int ask_where(kvcl_store_h store, const kvcl_key_t *keys, int rank)
{
    kvcl_store_places_t places[PROMPT];
    size_t              found = 0, i;

    KVCL_TRY(kvcl_store_where(store, keys, PROMPT, places, sizeof(places[0]), NULL));
    for (i = 0; i < PROMPT; ++i) {
        found += (places[i].n != 0);
    }
    if (found != 0) {
        printf("rank %d: %zu of %d blocks are stored, the first on rank %d, %s\n", rank, found, PROMPT,
               places[0].at[0].rank, (places[0].at[0].tier == KVCL_STORE_TIER_DRAM) ? "in memory" : "elsewhere");
    }
    return found == PROMPT;
}

/* Gets the heads [first, first + OURS) of the prompt. @return wrong elements. */
static size_t take_heads(kvcl_store_h store, kvcl_cache_h cache, const kvcl_layout_t *stored, const kvcl_key_t *keys,
                         const uint32_t *ids, unsigned first)
{
    kvcl_xfer_params_t params = {.size = sizeof(params), .flags = KVCL_LAYERWISE};
    const kvcl_sel_t   part = {.heads = {first, first + OURS}}, local = {.blocks = ids, .n_blocks = PROMPT};
    kvcl_status_t      status[PROMPT];
    size_t             wrong = 0;
    unsigned           layer;
    kvcl_req_h         req;

    KVCL_TRY(kvcl_store_get_part(store, keys, PROMPT, stored, &part, cache, &local, status, &params, &req));
    for (layer = 0; layer < LAYERS; ++layer) { /* the model computes a layer when its bytes are in place */
        KVCL_TRY(kvcl_req_layer_wait(req, layer, 10 * second));
        wrong += visit(cache, ids, layer, OURS, first, 0);
    }
    KVCL_TRY(kvcl_req_wait(req, 10 * second));
    return wrong;
}

static void barrier(kvcl_comm_h world)
{
    kvcl_req_h req;

    KVCL_TRY(kvcl_barrier(world, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 10 * second));
}

int main(void)
{
    const kvcl_layout_t whole = KVCL_LAYOUT_NHD(.flags = KVCL_LAYOUT_PER_LAYER, .layers = LAYERS, .blocks = BLOCKS,
                                                .tokens = TOKENS, .heads = HEADS, .head_dim = HEAD_DIM,
                                                .elem_bytes = 2);
    kvcl_layout_t       half   = whole;
    const uint32_t      from[PROMPT] = {3, 4, 5, 9, 12, 13}, to[PROMPT] = {31, 17, 18, 2, 20, 0};
    kvcl_store_params_t params = {.size = sizeof(params), .dram_bytes = 4u << 20,
                                  .block_bytes = LAYERS * 2 * TOKENS * HEADS * HEAD_DIM * 2};
    kvcl_key_t          keys[PROMPT];
    size_t              wrong = 0;
    kvcl_context_h      ctx;
    kvcl_comm_h         world;
    kvcl_cache_h        all, ours;
    kvcl_store_h        store;
    int                 rank, found;

    half.heads = OURS;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    rank = kvcl_comm_rank(world);
    KVCL_TRY(kvcl_cache_create(ctx, "all heads", &whole, NULL, &all));
    KVCL_TRY(kvcl_cache_create(ctx, "our heads", &half, NULL, &ours));
    KVCL_TRY(kvcl_store_open(world, &params, &store));
    prompt_keys(keys);

    if (rank == 0) {
        put_prompt(store, all, keys, from);
    }
    barrier(world);
    found = ask_where(store, keys, rank);
    wrong = take_heads(store, ours, &whole, keys, to, (unsigned)(rank % 2) * OURS);
    printf("rank %d has heads %d to %d of the prompt, %zu elements wrong\n", rank, rank % 2 * OURS,
           (rank % 2 * OURS) + OURS - 1, wrong);

    barrier(world); /* no rank leaves while others still get its blocks */
    kvcl_store_close(store);
    kvcl_cache_destroy(ours);
    kvcl_cache_destroy(all);
    kvcl_finalize(ctx);
    return ((wrong == 0) && found) ? 0 : 1;
}
