/*
 * Blocks of device memory over every path, with random layouts on both sides: get, put, send and recv, broadcast. Each
 * is compared with a plain copy that this file makes element by element, as is every byte around it. Each side is
 * device or host memory; at least one side is a device's.
 *
 * The driver has no device, or, with CF_GPU=1 (run_gpu.sh), it is the real one with the machine's devices, assigned
 * rank by rank. There, where UCX chooses the path itself (auto), it uses cuda_ipc if available.
 */
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !KVCL_HAVE_CUDA
int main(void)
{
    puts("SKIP: built without device memory (--without-cuda)");
    return 77;
}
#else
#include "test/unit/gpu.h"

enum { BASES = 16, LIST = 12, ROUNDS = 16 };

typedef enum { GET, PUT, SEND, BCAST, OPS } op_t;

static const char *const op_names[] = {"get", "put", "send", "bcast"};

/* One rank's side: every rank draws all sides from the same numbers. */
typedef struct side {
    kvcl_layout_t layout;
    bool          device;
    uint32_t      kv, n_bases, first_layer, first_head;
    size_t        base_bytes;
    uint64_t      head, token, block, plane, layer; /* strides, bytes */
    uint32_t      ids[LIST];
} side_t;

typedef struct round {
    op_t     op;
    uint32_t layers, heads, blocks, head_bytes; /* the blocks to move */
    side_t   sides[CF_RANKS_MAX];
} round_t;

static bool real(void)
{
    return getenv("CF_GPU") != NULL;
}

static unsigned device_of(const cf_t *cf)
{
    return (unsigned)cf->rank % gpu_count();
}

/* ---- random choices ---- */

static uint32_t upto(kvcl_rand_t *r, uint32_t n)
{
    return (uint32_t)kvcl_rand_below(r, n);
}

static void draw_ids(kvcl_rand_t *r, side_t *side, uint32_t n)
{
    uint32_t all[2 * LIST], blocks = (uint32_t)side->layout.blocks, i, j, t;

    for (i = 0; i < blocks; ++i) {
        all[i] = i;
    }
    for (i = blocks; (i > 1) && (upto(r, 20) != 0); --i) {
        j          = upto(r, i);
        t          = all[i - 1];
        all[i - 1] = all[j];
        all[j]     = t;
    }
    memcpy(side->ids, all, n * sizeof(*all));
}

static void draw_side(cf_t *cf, kvcl_rand_t *r, const round_t *round, uint32_t kv, uint32_t tokens, side_t *side)
{
    kvcl_layout_t *l = &side->layout;
    size_t        n_bases;

    *l = (kvcl_layout_t){.size = sizeof(*l)};
    l->layers     = round->layers + upto(r, 2);
    l->heads      = round->heads + upto(r, 3);
    l->blocks     = round->blocks + upto(r, LIST);
    l->kv         = kv;
    l->tokens     = tokens;
    l->elem_bytes = 2;
    l->head_dim   = round->head_bytes / 2;
    l->order      = upto(r, 2);
    l->flags      = (uint64_t[]){0, KVCL_LAYOUT_PER_LAYER, KVCL_LAYOUT_PER_PLANE}[upto(r, 3)];
    side->kv    = kv;
    side->head  = (l->order == KVCL_ORDER_NHD) ? round->head_bytes : (uint64_t)round->head_bytes * tokens;
    side->token = (l->order == KVCL_ORDER_NHD) ? (uint64_t)round->head_bytes * l->heads : round->head_bytes;
    side->block = (uint64_t)round->head_bytes * l->heads * tokens;
    if ((upto(r, 3) == 0) && (l->blocks > 1)) { /* pages followed by padding; the stride of a single block is ignored */
        side->block    += 2 * (1 + upto(r, 40));
        l->block_stride = side->block;
    }
    side->plane       = side->block * l->blocks;
    side->layer       = side->plane * kv;
    side->first_layer = upto(r, l->layers - round->layers + 1);
    side->first_head  = upto(r, l->heads - round->heads + 1);
    CF_OK(cf, kvcl_layout_extent(l, &n_bases, &side->base_bytes));
    side->n_bases = (uint32_t)n_bases;
    CF_CHECK(cf, n_bases <= BASES);
    side->device = upto(r, 3) != 0;
    draw_ids(r, side, round->blocks);
}

static void draw(cf_t *cf, kvcl_rand_t *r, round_t *round)
{
    uint32_t kv = 1 + upto(r, 2), tokens = 1 + upto(r, 16);
    bool     any = false;
    int      i;

    round->op         = upto(r, OPS);
    round->layers     = 1 + upto(r, 3);
    round->heads      = 1 + upto(r, 4);
    round->blocks     = 1 + upto(r, LIST);
    round->head_bytes = (uint32_t[]){2, 6, 16, 128, 256, 2304}[upto(r, 6)];
    for (i = 0; i < cf->size; ++i) {
        draw_side(cf, r, round, kv, tokens, &round->sides[i]);
        any = any || round->sides[i].device;
    }
    round->sides[0].device = round->sides[0].device || !any;
}

/* ---- the reference ---- */

/* The contents of a rank's memory when a round begins. */
static void image(uint64_t seed, int rank, const side_t *side, char *bases[BASES])
{
    uint32_t b;

    for (b = 0; b < side->n_bases; ++b) {
        bases[b] = malloc(side->base_bytes);
        cf_bytes(seed + (uint64_t)rank, b, bases[b], side->base_bytes);
    }
}

static void image_end(const side_t *side, char *bases[BASES])
{
    uint32_t b;

    for (b = 0; b < side->n_bases; ++b) {
        free(bases[b]);
    }
}

/* The address of head vector (layer, plane, block of the list, token, head) of the selection. */
static char *at(const side_t *side, char *bases[BASES], const uint32_t i[5])
{
    uint32_t layer = side->first_layer + i[0], base = 0;
    uint64_t offset = (side->ids[i[2]] * side->block) + (i[3] * side->token) + ((side->first_head + i[4]) * side->head);

    if (side->layout.flags == 0) {
        offset += (layer * side->layer) + (i[1] * side->plane);
    } else if (side->layout.flags == KVCL_LAYOUT_PER_LAYER) {
        base    = layer;
        offset += i[1] * side->plane;
    } else {
        base = (layer * side->kv) + i[1];
    }
    return bases[base] + offset;
}

static void reference(const round_t *round, const side_t *from, char *src[BASES], const side_t *to, char *dst[BASES])
{
    uint32_t i[5];

    for (i[0] = 0; i[0] < round->layers; ++i[0]) {
        for (i[1] = 0; i[1] < to->kv; ++i[1]) {
            for (i[2] = 0; i[2] < round->blocks; ++i[2]) {
                for (i[3] = 0; i[3] < to->layout.tokens; ++i[3]) {
                    for (i[4] = 0; i[4] < round->heads; ++i[4]) {
                        memcpy(at(to, dst, i), at(from, src, i), round->head_bytes);
                    }
                }
            }
        }
    }
}

/* ---- a round ---- */

typedef struct mine {
    kvcl_cache_h cache;
    void         *bases[BASES];
} mine_t;

static void make(cf_t *cf, const side_t *side, uint64_t seed, mine_t *mine)
{
    char     *bytes[BASES];
    uint32_t b;

    image(seed, cf->rank, side, bytes);
    for (b = 0; b < side->n_bases; ++b) {
        mine->bases[b] = side->device ? gpu_malloc(device_of(cf), side->base_bytes) : malloc(side->base_bytes);
        if (side->device) {
            gpu_write(device_of(cf), mine->bases[b], bytes[b], side->base_bytes);
        } else {
            memcpy(mine->bases[b], bytes[b], side->base_bytes);
        }
    }
    image_end(side, bytes);
    CF_OK(cf, cf_over(cf, "gpu", &side->layout, mine->bases, KVCL_MEM_AUTO, &mine->cache));
    CF_CHECK(cf, kvcl_cache_kind(mine->cache) == (side->device ? KVCL_MEM_CUDA : KVCL_MEM_HOST));
}

static void compare(cf_t *cf, const round_t *round, uint64_t seed, int source, const mine_t *mine)
{
    const side_t *side = &round->sides[cf->rank];
    char         *want[BASES], *src[BASES], *got = malloc(side->base_bytes);
    uint32_t     b;

    image(seed, cf->rank, side, want);
    if (source >= 0) {
        image(seed, source, &round->sides[source], src);
        reference(round, &round->sides[source], src, side, want);
        image_end(&round->sides[source], src);
    }
    for (b = 0; b < side->n_bases; ++b) {
        if (side->device) {
            gpu_read(device_of(cf), got, mine->bases[b], side->base_bytes);
        } else {
            memcpy(got, mine->bases[b], side->base_bytes);
        }
        if (memcmp(got, want[b], side->base_bytes) != 0) {
            cf_fail(cf, __FILE__, __LINE__, "bytes differ after", op_names[round->op]);
        }
    }
    image_end(side, want);
    free(got);
}

static kvcl_sel_t sel_of(const round_t *round, int rank)
{
    const side_t *side = &round->sides[rank];

    return (kvcl_sel_t){.blocks = side->ids, .n_blocks = round->blocks,
                        .layers = {side->first_layer, side->first_layer + round->layers},
                        .heads  = {side->first_head, side->first_head + round->heads}};
}

/* Rank 0 begins, rank 1 is the peer. Return the rank whose blocks arrived here, or -1. */
static int act(cf_t *cf, const round_t *round, kvcl_cache_h cache)
{
    kvcl_sel_t sel = sel_of(round, cf->rank), other = sel_of(round, (cf->rank == 0) ? 1 : 0);
    kvcl_req_h req = NULL;
    int        source = -1;

    if (round->op == BCAST) {
        CF_OK(cf, kvcl_bcast(cf->world, 0, cache, &sel, NULL, &req));
        source = (cf->rank == 0) ? -1 : 0;
    } else if ((round->op == GET) && (cf->rank == 0)) {
        CF_OK(cf, kvcl_get(cf->world, 1, cache, &other, &sel, NULL, &req));
        source = 1;
    } else if ((round->op == PUT) && (cf->rank == 0)) {
        CF_OK(cf, kvcl_put(cf->world, 1, cache, &sel, &other, NULL, &req));
    } else if ((round->op == SEND) && (cf->rank == 0)) {
        CF_OK(cf, kvcl_send(cf->world, 1, 5, cache, &sel, NULL, &req));
    } else if ((round->op == SEND) && (cf->rank == 1)) {
        CF_OK(cf, kvcl_recv(cf->world, 0, 5, cache, &sel, NULL, &req));
    }
    if (req != NULL) {
        CF_OK(cf, cf_end(cf, req));
    }
    return ((round->op != GET) && (round->op != BCAST) && (cf->rank == 1)) ? 0 : source;
}

static void random_blocks(cf_t *cf)
{
    uint64_t    seed = cf_same(cf);
    char        path[128];
    kvcl_rand_t same;
    round_t     round;
    mine_t      mine;
    unsigned    i;
    uint32_t    b;
    int         source;

    CF_CHECK(cf, gpu_open(real()) == NULL);
    kvcl_rand_seed(&same, seed);
    for (i = 0; i < ROUNDS; ++i) {
        draw(cf, &same, &round);
        make(cf, &round.sides[cf->rank], seed + (i * CF_RANKS_MAX), &mine);
        cf_fence(cf);
        source = act(cf, &round, mine.cache);
        cf_fence(cf);
        compare(cf, &round, seed + (i * CF_RANKS_MAX), source, &mine);
        cf_fence(cf);
        kvcl_cache_destroy(mine.cache);
        for (b = 0; b < round.sides[cf->rank].n_bases; ++b) {
            if (round.sides[cf->rank].device) {
                gpu_free(device_of(cf), mine.bases[b]);
            } else {
                free(mine.bases[b]);
            }
        }
        cf_alive(cf);
    }
    if (real() && (cf->rank == 0)) {
        CF_OK(cf, kvcl_query_path(cf->world, 1, path, sizeof(path)));
        printf("     %s, %s: %s\n", cf->path, cf->procs ? "processes" : "threads", path);
    }
}

/* Many small runs, and few large ones, in both directions. */
static void long_lists(cf_t *cf)
{
    static const struct {
        uint32_t blocks, bytes;
    } sizes[] = {{4096, 512}, {700, 4096}, {40, 200000}};
    uint64_t   seed = cf_same(cf);
    uint32_t   *ids, s, i;
    char       *bytes;
    kvcl_req_h req;

    CF_CHECK(cf, gpu_open(real()) == NULL);
    for (s = 0; s < 3; ++s) {
        kvcl_layout_t layout = KVCL_LAYOUT_BYTES(sizes[s].blocks, sizes[s].bytes);
        size_t        len    = (size_t)sizes[s].blocks * sizes[s].bytes;
        void          *base  = gpu_malloc(device_of(cf), len);
        kvcl_cache_h  cache;
        kvcl_sel_t    sel, far;

        ids   = malloc(sizes[s].blocks * 2 * sizeof(*ids));
        bytes = malloc(len);
        for (i = 0; i < sizes[s].blocks; ++i) {
            cf_bytes(seed + s + (uint64_t)cf->rank, i, bytes + ((size_t)i * sizes[s].bytes), sizes[s].bytes);
            ids[i]                   = sizes[s].blocks - 1 - i;
            ids[sizes[s].blocks + i] = (i * 2) % sizes[s].blocks + ((i * 2) / sizes[s].blocks);
        }
        gpu_write(device_of(cf), base, bytes, len);
        CF_OK(cf, cf_over(cf, "long", &layout, &base, KVCL_MEM_CUDA, &cache));
        cf_fence(cf);
        if (cf->rank == 0) {
            sel = cf_sel(ids, sizes[s].blocks);
            far = cf_sel(ids + sizes[s].blocks, sizes[s].blocks);
            CF_OK(cf, kvcl_get(cf->world, 1, cache, &far, &sel, NULL, &req));
            CF_OK(cf, cf_end(cf, req));
            gpu_read(device_of(cf), bytes, base, len);
            for (i = 0; i < sizes[s].blocks; ++i) {
                CF_CHECK(cf, cf_bytes_are(seed + s + 1, far.blocks[i], bytes + ((size_t)ids[i] * sizes[s].bytes),
                                          sizes[s].bytes));
            }
        }
        cf_fence(cf);
        kvcl_cache_destroy(cache);
        gpu_free(device_of(cf), base);
        free(bytes);
        free(ids);
        cf_alive(cf);
    }
}

/* A put posted after a copy that the engine's stream has not done yet. */
static void after_a_stream(cf_t *cf)
{
    enum { BLOCKS = 16, BYTES = 65536 };
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(BLOCKS, BYTES);
    uint32_t           ids[BLOCKS], i;
    uint64_t           seed   = cf_same(cf);
    size_t             len    = (size_t)BLOCKS * BYTES;
    char               *bytes = NULL;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    _Atomic int        go     = 0;
    kvcl_sel_t         sel    = cf_sel(ids, BLOCKS);
    CUstream           stream;
    kvcl_cache_h       cache;
    kvcl_req_h         req;
    void               *base;

    CF_CHECK(cf, gpu_open(real()) == NULL);
    base  = gpu_malloc(device_of(cf), len);
    bytes = gpu_pinned(device_of(cf), len);
    for (i = 0; i < BLOCKS; ++i) {
        ids[i] = i;
        cf_bytes(seed, i, bytes + ((size_t)i * BYTES), BYTES);
    }
    CF_OK(cf, cf_over(cf, "stream", &layout, &base, KVCL_MEM_CUDA, &cache));
    cf_fence(cf);
    if (cf->rank == 0) {
        stream = gpu_stream(device_of(cf));
        gpu_hold(device_of(cf), stream, &go);
        gpu_copy(device_of(cf), stream, base, bytes, len);
        params.stream = stream;
        CF_OK(cf, kvcl_put(cf->world, 1, cache, &sel, &sel, &params, &req));
        cf_sleep_us(cf, 10000);
        CF_CHECK(cf, kvcl_req_test(req) == KVCL_INPROGRESS);
        go = 1;
        CF_OK(cf, cf_end(cf, req));
        gpu_stream_end(device_of(cf), stream);
    }
    cf_fence(cf);
    if (cf->rank == 1) {
        gpu_read(device_of(cf), bytes, base, len);
        for (i = 0; i < BLOCKS; ++i) {
            CF_CHECK(cf, cf_bytes_are(seed, i, bytes + ((size_t)i * BYTES), BYTES));
        }
    }
    cf_fence(cf);
    kvcl_cache_destroy(cache);
    gpu_free(device_of(cf), base);
    gpu_pinned_free(device_of(cf), bytes);
}

static const cf_case_t cases[] = {
    {"random_blocks", random_blocks, 0},
    {"long_lists", long_lists, 0},
    {"after_a_stream", after_a_stream, 0},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 3, CF_NATIVE}, {"shm", true, 3, 0},  {"tcp", true, 3, 0},
    {"tcp", false, 2, KVCL_INIT_NO_THREAD},               {"auto", true, 2, 0}, {"auto", true, 3, KVCL_INIT_NO_THREAD},
    {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    if (real() && !gpu_is_there()) {
        return 77;
    }
    return cf_main(argc, argv, configs, cases);
}
#endif
