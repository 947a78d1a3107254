/*
 * Moves a prompt from M tensor-parallel ranks to N others by kvcl_reshard_plan: once fetched by the destinations
 * (kvcl_get), once sent by the sources (kvcl_put), for models of 1 (latent), 2, 4 and 8 KV heads where both groups can
 * hold them. The two groups have different block sizes and memory orders, so the destinations' last block is partly
 * filled. Every byte is compared.
 *   reshard M N        on M + N ranks: the first M hold the prompt
 * Prints "ok RANK of SIZE". Exit 1 after the first mistake.
 */
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, PROMPT_TOKENS = 112, HEAD_BYTES = 256, RANKS_MAX = 64, WAIT_S = 30 };
enum { SOURCE_TOKENS = 16, DESTINATION_TOKENS = 64, BLOCKS = 24 };

static kvcl_comm_h world;
static int         rank = -1, size, m, n;

/* One rank's share of the model, and its memory. */
typedef struct part {
    kvcl_cache_h  cache;
    kvcl_range_t  layers, heads;
    kvcl_layout_t layout;
    uint32_t      ids[BLOCKS];
    size_t        n_ids;
} part_t;

static int ok(kvcl_status_t status, const char *what)
{
    if (status != KVCL_OK) {
        fprintf(stderr, "rank %d: %s: %s (%s)\n", rank, what, kvcl_status_text(status), kvcl_last_error());
    }
    return status == KVCL_OK;
}

static int wait_for(kvcl_req_h *reqs, size_t n_reqs, const char *what)
{
    return ok(kvcl_req_wait_all(reqs, n_reqs, (uint64_t)WAIT_S * 1000000000u), what);
}

static int barrier(void)
{
    kvcl_req_h req = NULL;

    return ok(kvcl_barrier(world, NULL, &req), "kvcl_barrier") && wait_for(&req, 1, "barrier");
}

static unsigned char value(uint32_t heads, uint32_t round, uint32_t layer, uint32_t plane, uint32_t token,
                           uint32_t head, uint32_t i)
{
    uint32_t x = (((((((heads * 2 + round) * LAYERS + layer) * 2 + plane) * PROMPT_TOKENS) + token) * 8 + head) *
                  HEAD_BYTES) + i;

    return (unsigned char)((x * 2654435761u) >> 24);
}

static int is_source(void)
{
    return rank < m;
}

static uint32_t blocks_of(uint32_t tokens)
{
    return (PROMPT_TOKENS + tokens - 1) / tokens;
}

static int make_part(kvcl_context_h ctx, uint32_t heads, part_t *part)
{
    kvcl_reshard_group_t group  = {.tp = (uint32_t)(is_source() ? m : n)};
    uint32_t             index  = (uint32_t)(is_source() ? rank : rank - m);
    uint32_t             tokens = is_source() ? SOURCE_TOKENS : DESTINATION_TOKENS, i;
    const kvcl_cache_params_t writable = {.size = sizeof(writable), .flags = KVCL_CACHE_WRITABLE};

    if (!ok(kvcl_reshard_share(&group, LAYERS, heads, index, &part->layers, &part->heads), "kvcl_reshard_share")) {
        return 0;
    }
    part->layout = (kvcl_layout_t){.size = sizeof(part->layout), .layers = LAYERS, .kv = (heads == 1) ? 1 : 2,
                                   .blocks = BLOCKS, .tokens = tokens, .heads = part->heads.end - part->heads.first,
                                   .head_dim = HEAD_BYTES / 2, .elem_bytes = 2,
                                   .order = is_source() ? KVCL_ORDER_NHD : KVCL_ORDER_HND};
    part->n_ids  = blocks_of(tokens);
    for (i = 0; i < part->n_ids; ++i) { /* scattered, and different on each rank */
        part->ids[i] = (uint32_t)((i * 7) + (uint32_t)rank) % BLOCKS;
    }
    return ok(kvcl_cache_create(ctx, "kv", &part->layout, &writable, &part->cache), "kvcl_cache_create");
}

/* Write the prompt (or 0xee with wipe) into this rank's blocks, or compare. In canonical order: layer, plane, token,
 * head, byte. */
static int visit(const part_t *part, uint32_t heads, uint32_t round, int write, int wipe)
{
    size_t        bytes = kvcl_cache_block_bytes(part->cache), b, at;
    unsigned char *block = malloc(bytes), *have = malloc(bytes);
    uint32_t      l, k, t, h, i;
    int           good = (block != NULL) && (have != NULL);

    for (b = 0; good && (b < part->n_ids); ++b) {
        at = 0;
        for (l = 0; l < LAYERS; ++l) {
            for (k = 0; k < part->layout.kv; ++k) {
                for (t = 0; t < part->layout.tokens; ++t) {
                    for (h = part->heads.first; h < part->heads.end; ++h) {
                        for (i = 0; i < HEAD_BYTES; ++i) {
                            uint32_t token = (uint32_t)(b * part->layout.tokens) + t;
                            block[at++] = (wipe || (token >= PROMPT_TOKENS)) ? 0xee
                                                                             : value(heads, round, l, k, token, h, i);
                        }
                    }
                }
            }
        }
        if (write) {
            good = ok(kvcl_cache_write_block(part->cache, part->ids[b], block, bytes), "kvcl_cache_write_block");
        } else {
            good = ok(kvcl_cache_read_block(part->cache, part->ids[b], have, bytes), "kvcl_cache_read_block") &&
                   (memcmp(have, block, bytes) == 0);
            if (!good) {
                fprintf(stderr, "rank %d: %u heads, round %u: block %zu is wrong\n", rank, heads, round, b);
            }
        }
    }
    free(block);
    free(have);
    return good;
}

/* The block ids of a rank are a formula here; engines exchange block tables. */
static void ids_of(int of, uint32_t tokens, uint32_t *ids)
{
    uint32_t i;

    for (i = 0; i < blocks_of(tokens); ++i) {
        ids[i] = ((i * 7) + (uint32_t)of) % BLOCKS;
    }
}

static int post(const part_t *part, const kvcl_reshard_step_t *step, kvcl_req_h *req_p)
{
    int        peer   = is_source() ? m + (int)step->destination : (int)step->source;
    uint32_t   tokens = is_source() ? DESTINATION_TOKENS : SOURCE_TOKENS, theirs[BLOCKS];
    kvcl_sel_t source, destination, *mine = is_source() ? &source : &destination;
    kvcl_sel_t *other = is_source() ? &destination : &source;

    memset(&source, 0, sizeof(source));
    memset(&destination, 0, sizeof(destination));
    source.layers      = step->source_layers;
    source.heads       = step->source_heads;
    destination.layers = step->destination_layers;
    destination.heads  = step->destination_heads;
    ids_of(peer, tokens, theirs);
    mine->blocks    = part->ids;
    mine->n_blocks  = part->n_ids;
    other->blocks   = theirs;
    other->n_blocks = blocks_of(tokens);
    destination.tokens = (kvcl_range_t){0, PROMPT_TOKENS};
    return is_source() ? ok(kvcl_put(world, peer, part->cache, &source, &destination, NULL, req_p), "kvcl_put")
                       : ok(kvcl_get(world, peer, part->cache, &source, &destination, NULL, req_p), "kvcl_get");
}

/* Post all of this rank's steps, and wait for them. */
static int move(const part_t *part, uint32_t heads)
{
    kvcl_reshard_params_t params = KVCL_RESHARD_PARAMS_INIT;
    kvcl_reshard_step_t   steps[RANKS_MAX];
    kvcl_req_h            reqs[RANKS_MAX] = {NULL};
    size_t                n_steps, i;
    kvcl_status_t         status;
    int                   good;

    params.layers         = LAYERS;
    params.heads          = heads;
    params.source.tp      = (uint32_t)m;
    params.destination.tp = (uint32_t)n;
    status = is_source() ? kvcl_reshard_plan_source(&params, (uint32_t)rank, steps, sizeof(kvcl_reshard_step_t),
                                                    RANKS_MAX, &n_steps)
                         : kvcl_reshard_plan(&params, (uint32_t)(rank - m), steps, sizeof(kvcl_reshard_step_t),
                                             RANKS_MAX, &n_steps);
    good = ok(status, "kvcl_reshard_plan");
    for (i = 0; good && (i < n_steps); ++i) {
        good = post(part, &steps[i], &reqs[i]);
    }
    return good && wait_for(reqs, n_steps, "a step");
}

/* round 0: the destinations get; 1: the sources put. */
static int model(kvcl_context_h ctx, uint32_t heads)
{
    part_t   part;
    uint32_t round;
    int      good = make_part(ctx, heads, &part);

    for (round = 0; good && (round < 2); ++round) {
        good = visit(&part, heads, round, 1, !is_source()) && barrier();
        if (good && (is_source() == (round == 1))) {
            good = move(&part, heads);
        }
        good = good && barrier() && visit(&part, heads, round, 0, 0) && barrier();
    }
    if (good) {
        kvcl_cache_destroy(part.cache);
    }
    return good && barrier();
}

static int placeable(int heads, int ranks)
{
    return (heads % ranks == 0) || (ranks % heads == 0);
}

int main(int argc, char **argv)
{
    kvcl_context_h ctx;
    int            heads, good = 1;

    m = (argc == 3) ? atoi(argv[1]) : 0;
    n = (argc == 3) ? atoi(argv[2]) : 0;
    if ((m < 1) || (n < 1) || (m + n > RANKS_MAX)) {
        fprintf(stderr, "usage: reshard M N\n");
        return 2;
    }
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    rank = kvcl_comm_rank(world);
    size = kvcl_comm_size(world);
    if (size != m + n) {
        fprintf(stderr, "reshard: %d + %d ranks are needed, there are %d\n", m, n, size);
        return 2;
    }
    for (heads = 1; good && (heads <= 8); heads *= 2) {
        if (placeable(heads, m) && placeable(heads, n)) {
            good = model(ctx, (uint32_t)heads);
        }
    }
    if (!good) {
        return 1;
    }
    printf("ok %d of %d\n", rank, size);
    kvcl_finalize(ctx);
    return 0;
}
