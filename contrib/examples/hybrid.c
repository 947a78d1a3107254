/*
 * Hands a prompt of a hybrid model (full attention, sliding window, Mamba state) from a prefill rank to a decode rank.
 *
 *   mpirun -n 2 hybrid      (4: two pairs; alone: to itself)
 *
 * As in vLLM, the cache is one pool of pages of equal size, with one tensor for each layer of a group. Every group of
 * layers has its own block table: a page is a block of the group that allocated it. So each group is a cache over the
 * same tensors, with the layout of its blocks, and moves by its own request; the requests are posted together and
 * waited for together. The groups differ in tokens per block, heads, and the part of the prompt that they keep. Even
 * ranks prefill, odd ranks decode.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>

enum { LAYERS = 2, PAGES = 32, PAGE_BYTES = 16384, PROMPT = 100, WINDOW = 48, GROUPS = 3, TABLE_MAX = 8, TAG = 70 };

static const uint64_t second = 1000000000;

/* A group of layers: the layout of its blocks, and the prompt's tokens that it keeps. */
typedef struct group {
    const char    *name;
    kvcl_layout_t layout;
    kvcl_cache_h  cache;
    uint32_t      from[TABLE_MAX], to[TABLE_MAX]; /* block tables of both ranks */
    uint32_t      n_blocks;
    kvcl_range_t  tokens; /* of the table */
} group_t;

/* All groups share everything but the strides inside a block: pages of the pool, a tensor for each layer. */
#define IN_POOL .flags = KVCL_LAYOUT_PER_LAYER, .layers = LAYERS, .blocks = PAGES, .block_stride = PAGE_BYTES

static group_t groups[GROUPS] = {
    {.name     = "full", /* all 100 tokens: six blocks of 16, and 4 tokens of a seventh */
     .layout   = {sizeof(kvcl_layout_t), IN_POOL, .kv = 2, .tokens = 16, .heads = 4, .head_dim = 64, .elem_bytes = 2,
                  .kv_stride = PAGE_BYTES / 2},
     .from     = {3, 4, 5, 9, 12, 13, 14},
     .to       = {31, 17, 18, 19, 20, 21, 30},
     .n_blocks = 7,
     .tokens   = {0, PROMPT}},
    {.name     = "window", /* the last 48 tokens: blocks of 32, from the 20th token of the first one still held */
     .layout   = {sizeof(kvcl_layout_t), IN_POOL, .kv = 2, .tokens = 32, .heads = 2, .head_dim = 64, .elem_bytes = 2,
                  .kv_stride = PAGE_BYTES / 2},
     .from     = {0, 1, 8},
     .to       = {24, 16, 25},
     .n_blocks = 3,
     .tokens   = {PROMPT - WINDOW - 32, PROMPT - 32}},
    {.name     = "mamba", /* one state for the whole prompt, opaque, smaller than its page */
     .layout   = {sizeof(kvcl_layout_t), IN_POOL, .kv = 1, .tokens = 1, .heads = 1, .head_dim = 12000, .elem_bytes = 1},
     .from     = {10},
     .to       = {22},
     .n_blocks = 1},
};

/* Stands for the model: its value of byte i of a token. */
static uint8_t kv_value(unsigned group, unsigned layer, unsigned plane, unsigned token, size_t i)
{
    return (uint8_t)((group * 7919u) + (layer * 104729u) + (plane * 31u) + (token * 13u) + (i * 7u) + (i >> 8));
}

/* Visit the tokens a group keeps, in the blocks of ids: write them, or count wrong bytes. */
static size_t visit(unsigned g, uint8_t *const *tensors, const uint32_t *ids, int write)
{
    const kvcl_layout_t *l    = &groups[g].layout;
    const size_t        row   = (size_t)l->heads * l->head_dim * l->elem_bytes; /* bytes of a token in a plane */
    unsigned            end   = (groups[g].tokens.end != 0) ? groups[g].tokens.end : groups[g].n_blocks * l->tokens;
    size_t              wrong = 0, i;
    unsigned            layer, plane, t;
    uint8_t             *at;

    for (layer = 0; layer < LAYERS; ++layer) {
        for (plane = 0; plane < l->kv; ++plane) {
            for (t = groups[g].tokens.first; t < end; ++t) {
                at = tensors[layer] + ((size_t)ids[t / l->tokens] * PAGE_BYTES) + (plane * l->kv_stride) +
                     ((t % l->tokens) * row);
                for (i = 0; i < row; ++i) {
                    if (write) {
                        at[i] = kv_value(g, layer, plane, t, i);
                    } else {
                        wrong += (at[i] != kv_value(g, layer, plane, t, i));
                    }
                }
            }
        }
    }
    return wrong;
}

/* Post one group's part. */
static kvcl_req_h post(kvcl_comm_h world, int rank, unsigned g, int send)
{
    const kvcl_sel_t sel = {.blocks = send ? groups[g].from : groups[g].to, .n_blocks = groups[g].n_blocks,
                            .tokens = groups[g].tokens};
    kvcl_req_h       req;

    if (send) {
        KVCL_TRY(kvcl_send(world, rank, TAG + g, groups[g].cache, &sel, NULL, &req));
    } else {
        KVCL_TRY(kvcl_recv(world, rank, TAG + g, groups[g].cache, &sel, NULL, &req));
    }
    return req;
}

int main(void)
{
    kvcl_req_h     sends[GROUPS] = {NULL}, recvs[GROUPS] = {NULL};
    uint8_t        *tensors[LAYERS];
    size_t         lengths[LAYERS];
    kvcl_cache_params_t memory = {.size = sizeof(memory), .n_bases = LAYERS, .bases = (void *const *)tensors,
                                  .base_bytes = lengths};
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    size_t         wrong = 0;
    unsigned       g, l;
    int            rank, size;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    rank = kvcl_comm_rank(world);
    size = kvcl_comm_size(world);
    for (l = 0; l < LAYERS; ++l) {
        tensors[l] = calloc(PAGES, PAGE_BYTES);
        lengths[l] = (size_t)PAGES * PAGE_BYTES;
        if (tensors[l] == NULL) {
            return 1;
        }
    }
    for (g = 0; g < GROUPS; ++g) { /* three caches over the same tensors */
        KVCL_TRY(kvcl_cache_create(ctx, groups[g].name, &groups[g].layout, &memory, &groups[g].cache));
    }

    for (g = 0; g < GROUPS; ++g) {
        if ((rank % 2 == 1) || (size == 1)) {
            recvs[g] = post(world, (size == 1) ? 0 : rank - 1, g, 0);
        }
        if ((rank % 2 == 0) && ((rank + 1 < size) || (size == 1))) {
            visit(g, tensors, groups[g].from, 1);
            sends[g] = post(world, (rank + 1) % size, g, 1);
        }
    }
    if (recvs[0] != NULL) {
        KVCL_TRY(kvcl_req_wait_all(recvs, GROUPS, 10 * second));
        for (g = 0; g < GROUPS; ++g) {
            wrong += visit(g, tensors, groups[g].to, 0);
        }
        printf("rank %d got %d groups of layers, %zu bytes wrong\n", rank, GROUPS, wrong);
    }
    KVCL_TRY(kvcl_req_wait_all(sends, GROUPS, 10 * second)); /* the decode rank has the bytes */

    for (g = 0; g < GROUPS; ++g) {
        kvcl_cache_destroy(groups[g].cache);
    }
    kvcl_finalize(ctx);
    for (l = 0; l < LAYERS; ++l) {
        free(tensors[l]);
    }
    return (wrong == 0) ? 0 : 1;
}
