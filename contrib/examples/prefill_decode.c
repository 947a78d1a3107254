/*
 * Hands a prompt's blocks from a prefill rank to a decode rank.
 *
 *   mpirun -n 2 prefill_decode      (4: two pairs; alone: to itself)
 *
 * Even ranks prefill, odd ranks decode. The cache is over the engine's own tensors, one per layer. Each side names its
 * own block ids, so the two sides need not agree on where a block is.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>

enum {
    LAYERS     = 4,
    BLOCKS     = 64,
    TOKENS     = 16,
    HEADS      = 8,
    HEAD_DIM   = 128,
    PROMPT     = 10, /* blocks of one prompt */
    REQUEST_ID = 7
};

static const uint64_t second = 1000000000;

/* Stands for the model: the value of element i of layer l of the prompt's block b. */
static uint16_t kv_value(unsigned l, unsigned b, size_t i)
{
    return (uint16_t)((l * 7919) + (b * 104729) + (i * 31));
}

/* The address of block b of plane p. The engine's tensor of a layer is [K,V][blocks][tokens][heads][head_dim]. */
static uint16_t *block_at(uint16_t *tensor, unsigned p, unsigned b)
{
    return tensor + (((size_t)p * BLOCKS) + b) * TOKENS * HEADS * HEAD_DIM;
}

/* Visit all values of the prompt in the blocks of ids: write them, or count the wrong ones. */
static size_t visit(void *const *tensors, const uint32_t *ids, int write)
{
    const size_t n     = TOKENS * HEADS * HEAD_DIM;
    size_t       wrong = 0, i;
    unsigned     l, b, p;
    uint16_t     *at;

    for (l = 0; l < LAYERS; ++l) {
        for (b = 0; b < PROMPT; ++b) {
            for (p = 0; p < 2; ++p) {
                at = block_at(tensors[l], p, ids[b]);
                for (i = 0; i < n; ++i) {
                    if (write) {
                        at[i] = kv_value(l, b, i + (p * n));
                    } else {
                        wrong += (at[i] != kv_value(l, b, i + (p * n)));
                    }
                }
            }
        }
    }
    return wrong;
}

static kvcl_req_h prefill(kvcl_comm_h world, int to, kvcl_cache_h cache, void *const *tensors)
{
    static const uint32_t ids[PROMPT] = {3, 4, 5, 9, 12, 13, 14, 15, 1, 0};
    kvcl_sel_t            mine        = {.blocks = ids, .n_blocks = PROMPT};
    kvcl_req_h            req;

    visit(tensors, ids, 1);
    KVCL_TRY(kvcl_send(world, to, REQUEST_ID, cache, &mine, NULL, &req));
    return req;
}

static size_t decode(kvcl_comm_h world, kvcl_cache_h cache, void *const *tensors)
{
    static const uint32_t ids[PROMPT] = {40, 41, 42, 43, 50, 51, 33, 32, 31, 30};
    kvcl_sel_t            theirs      = {.blocks = ids, .n_blocks = PROMPT};
    kvcl_req_h            req;

    KVCL_TRY(kvcl_recv(world, KVCL_ANY_SOURCE, REQUEST_ID, cache, &theirs, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 10 * second));
    return visit(tensors, ids, 0);
}

int main(void)
{
    kvcl_layout_t  layout = KVCL_LAYOUT_NHD(.flags = KVCL_LAYOUT_PER_LAYER, .layers = LAYERS, .blocks = BLOCKS,
                                            .tokens = TOKENS, .heads = HEADS, .head_dim = HEAD_DIM, .elem_bytes = 2);
    void           *tensors[LAYERS];
    size_t         lengths[LAYERS];
    kvcl_cache_params_t memory = {.size = sizeof(memory), .n_bases = LAYERS, .bases = tensors, .base_bytes = lengths};
    kvcl_req_h     req   = NULL;
    size_t         wrong = 0, bytes;
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_cache_h   cache;
    int            rank, size, l;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    rank = kvcl_comm_rank(world);
    size = kvcl_comm_size(world);

    KVCL_TRY(kvcl_layout_extent(&layout, NULL, &bytes));
    for (l = 0; l < LAYERS; ++l) {
        tensors[l] = calloc(1, bytes);
        lengths[l] = bytes;
        if (tensors[l] == NULL) {
            return 1;
        }
    }
    KVCL_TRY(kvcl_cache_create(ctx, "main", &layout, &memory, &cache));

    if ((rank % 2 == 0) && ((rank + 1 < size) || (size == 1))) {
        req = prefill(world, (rank + 1) % size, cache, tensors);
    }
    if ((rank % 2 == 1) || (size == 1)) {
        wrong = decode(world, cache, tensors);
        printf("rank %d got %d blocks of %zu bytes, %zu values wrong\n", rank, PROMPT, kvcl_cache_block_bytes(cache),
               wrong);
    }
    if (req != NULL) {
        KVCL_TRY(kvcl_req_wait(req, 10 * second)); /* the decode rank has the bytes */
    }

    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    for (l = 0; l < LAYERS; ++l) {
        free(tensors[l]);
    }
    return (wrong == 0) ? 0 : 1;
}
