/*
 * Blocks of different sizes on the two sides: get, put, send and recv between blocks of 16 and of 64 tokens, partly
 * filled at either end, and parts of blocks of equal size. Transfers range from one message to several windows of
 * frames. A model holds the expected value of each token of each block, and every byte of both caches is compared after
 * each step. Gets and puts are posted alternately by kvcl_get and kvcl_put and by prepared handles.
 */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, KV = 2, HEADS = 3, SMALL = 16, LARGE = 64, SLOTS = 256, LIST_MAX = SLOTS / SMALL };

/* The value of a token: the content `x` that was first on the rank `away` ranks after this one. */
typedef struct content {
    int      away;
    uint32_t x;
} content_t;

/* A cache and its model, which is the same on all ranks. */
typedef struct table {
    cf_cache_t cache;
    const char *name;
    uint32_t   tokens; /* of a block */
    uint32_t   head_bytes;
    content_t  slots[SLOTS]; /* [block][token] */
} table_t;

typedef struct scene {
    cf_t     *cf;
    uint64_t seed;
    bool     prepare; /* the next get or put uses a handle */
    table_t  small, large;
} scene_t;

/* A selection: a list and a range of its tokens. */
typedef struct part {
    table_t    *table;
    kvcl_sel_t sel;
} part_t;

static void expected_block(const scene_t *s, const table_t *t, uint32_t block, unsigned char *to)
{
    uint32_t l, k, i, h;

    for (l = 0; l < LAYERS; ++l) {
        for (k = 0; k < KV; ++k) {
            for (i = 0; i < t->tokens; ++i) {
                const content_t *c = &t->slots[(block * t->tokens) + i];
                uint64_t        of = (uint64_t)((s->cf->rank + c->away) % s->cf->size);
                for (h = 0; h < HEADS; ++h) {
                    cf_bytes(s->seed + (of * 1000000u) + c->x, (l * 100) + (k * 10) + h, to, t->head_bytes);
                    to += t->head_bytes;
                }
            }
        }
    }
}

/* Write the model's bytes, or compare all of them. */
static void visit(const scene_t *s, const table_t *t, bool write)
{
    size_t        bytes = kvcl_cache_block_bytes(t->cache.h);
    unsigned char *want = malloc(bytes), *have = malloc(bytes);
    uint32_t      b;

    for (b = 0; b < SLOTS / t->tokens; ++b) {
        expected_block(s, t, b, want);
        if (write) {
            CF_OK(s->cf, kvcl_cache_write_block(t->cache.h, b, want, bytes));
        } else {
            CF_OK(s->cf, kvcl_cache_read_block(t->cache.h, b, have, bytes));
            CF_CHECK(s->cf, memcmp(want, have, bytes) == 0);
        }
    }
    free(want);
    free(have);
}

static void make_table(scene_t *s, table_t *t, const char *name, uint32_t tokens, uint32_t head_bytes, bool ours)
{
    kvcl_layout_t layout = {.size = sizeof(layout), .layers = LAYERS, .kv = KV, .blocks = SLOTS / tokens,
                            .tokens = tokens, .heads = HEADS, .head_dim = head_bytes / 2, .elem_bytes = 2,
                            .order = (tokens == LARGE) ? KVCL_ORDER_HND : KVCL_ORDER_NHD,
                            .flags = (tokens == LARGE) ? 0 : KVCL_LAYOUT_PER_LAYER};
    uint32_t      i;

    t->name       = name;
    t->tokens     = tokens;
    t->head_bytes = head_bytes;
    t->cache      = cf_cache(s->cf, name, &layout, ours);
    for (i = 0; i < SLOTS; ++i) {
        t->slots[i] = (content_t){0, i + ((tokens == LARGE) ? 1000 : 0)};
    }
    visit(s, t, true);
}

/* The model of one transfer: src, as it is on the rank `away` ranks after this one, into dst. */
static void model(const scene_t *s, const part_t *dst, const part_t *src, int away)
{
    uint32_t first = dst->sel.tokens.first, from = src->sel.tokens.first, i, n;
    uint32_t end = (dst->sel.tokens.end != 0) ? dst->sel.tokens.end : (uint32_t)dst->sel.n_blocks * dst->table->tokens;

    for (i = 0, n = end - first; i < n; ++i) {
        uint32_t        d  = dst->sel.blocks[(first + i) / dst->table->tokens] * dst->table->tokens;
        uint32_t        at = src->sel.blocks[(from + i) / src->table->tokens] * src->table->tokens;
        const content_t c  = src->table->slots[at + ((from + i) % src->table->tokens)];
        dst->table->slots[d + ((first + i) % dst->table->tokens)] =
            (content_t){(c.away + away + s->cf->size) % s->cf->size, c.x};
    }
}

static void check(const scene_t *s)
{
    cf_alive(s->cf); /* a step was done */
    cf_fence(s->cf);
    visit(s, &s->small, false);
    visit(s, &s->large, false);
    cf_fence(s->cf);
}

/* Transfer between selection `local` of the cache and `remote` of the next rank's, by a call or by a handle made for
 * them. */
static void move(scene_t *s, kvcl_xfer_dir_t dir, kvcl_cache_h cache, const kvcl_sel_t *local, const kvcl_sel_t *remote,
                 const char *name, kvcl_status_t *statuses)
{
    int                next = (s->cf->rank + 1) % s->cf->size;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT, own = KVCL_XFER_PARAMS_INIT;
    kvcl_xfer_h        xfer;
    kvcl_req_h         req;

    params.remote_cache = name;
    own.status          = statuses;
    if (s->prepare) {
        CF_OK(s->cf, kvcl_xfer_prepare(s->cf->world, next, dir, cache, local, remote, &params, &xfer));
        CF_OK(s->cf, kvcl_xfer_post(xfer, local->blocks, local->n_blocks, remote->blocks, remote->n_blocks, &own,
                                    &req));
        kvcl_xfer_free(xfer);
    } else {
        params.status = statuses;
        CF_OK(s->cf, (dir == KVCL_XFER_GET) ? kvcl_get(s->cf->world, next, cache, remote, local, &params, &req)
                                            : kvcl_put(s->cf->world, next, cache, local, remote, &params, &req));
    }
    CF_OK(s->cf, cf_end(s->cf, req));
    s->prepare = !s->prepare;
}

static void get(scene_t *s, part_t dst, part_t src)
{
    kvcl_status_t statuses[LIST_MAX];
    size_t        i;

    move(s, KVCL_XFER_GET, dst.table->cache.h, &dst.sel, &src.sel, src.table->name, statuses);
    for (i = 0; i < src.sel.n_blocks; ++i) {
        CF_CHECK(s->cf, statuses[i] == KVCL_OK); /* one for each block of the remote list */
    }
    model(s, &dst, &src, 1);
    check(s);
}

static void put(scene_t *s, part_t dst, part_t src)
{
    move(s, KVCL_XFER_PUT, src.table->cache.h, &src.sel, &dst.sel, dst.table->name, NULL);
    model(s, &dst, &src, -1);
    check(s);
}

static void pass(scene_t *s, part_t dst, part_t src, bool early)
{
    int        next = (s->cf->rank + 1) % s->cf->size, last = (s->cf->rank + s->cf->size - 1) % s->cf->size;
    kvcl_req_h out, in;

    if (early) {
        CF_OK(s->cf, kvcl_recv(s->cf->world, last, 9, dst.table->cache.h, &dst.sel, NULL, &in));
        cf_fence(s->cf);
    }
    CF_OK(s->cf, kvcl_send(s->cf->world, next, 9, src.table->cache.h, &src.sel, NULL, &out));
    if (!early) {
        cf_fence(s->cf);
        CF_OK(s->cf, kvcl_recv(s->cf->world, last, 9, dst.table->cache.h, &dst.sel, NULL, &in));
    }
    CF_OK(s->cf, cf_end(s->cf, in));
    CF_OK(s->cf, cf_end(s->cf, out));
    model(s, &dst, &src, -1);
    check(s);
}

/* The same, layer by layer. */
static void pass_layers(scene_t *s, part_t dst, part_t src)
{
    int                next = (s->cf->rank + 1) % s->cf->size, last = (s->cf->rank + s->cf->size - 1) % s->cf->size;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         out, in;
    uint32_t           l;

    params.flags = KVCL_LAYERWISE;
    CF_OK(s->cf, kvcl_recv(s->cf->world, last, 9, dst.table->cache.h, &dst.sel, NULL, &in));
    CF_OK(s->cf, kvcl_send(s->cf->world, next, 9, src.table->cache.h, &src.sel, &params, &out));
    for (l = 0; l < LAYERS; ++l) {
        CF_OK(s->cf, kvcl_req_layer_ready(out, l));
    }
    CF_OK(s->cf, cf_end(s->cf, in));
    CF_OK(s->cf, cf_end(s->cf, out));
    model(s, &dst, &src, -1);
    check(s);
}

static void one_size(cf_t *cf, uint32_t head_bytes, bool ours)
{
    static const uint32_t seven[] = {3, 4, 9, 0, 12, 13, 7}, eight[] = {1, 2, 5, 6, 8, 10, 11, 14}, two[] = {2, 0},
                          others[] = {1, 3}, three[] = {15, 13, 3};
    scene_t s = {.cf = cf, .seed = cf_same(cf), .prepare = ours};
    part_t  small_7 = {&s.small, cf_sel(seven, 7)}, small_8 = {&s.small, cf_sel(eight, 8)};
    part_t  large_2 = {&s.large, cf_sel(two, 2)}, other_2 = {&s.large, cf_sel(others, 2)};
    part_t  large_112 = large_2, other_112 = other_2, later = other_2, middle = {&s.small, cf_sel(three, 3)};
    part_t  odd = middle, odd_2 = small_8;

    large_112.sel.tokens = other_112.sel.tokens = (kvcl_range_t){0, 112};
    later.sel.tokens     = (kvcl_range_t){16, 128}; /* a larger block that is filled from its second quarter on */
    odd.sel.tokens       = (kvcl_range_t){5, 42};   /* also tokens of smaller blocks */
    odd_2.sel.tokens     = (kvcl_range_t){23, 60};
    make_table(&s, &s.small, "small", SMALL, head_bytes, ours);
    make_table(&s, &s.large, "large", LARGE, head_bytes, !ours);
    check(&s);
    get(&s, large_2, small_8);
    get(&s, small_7, other_112);
    put(&s, later, small_7);
    put(&s, small_8, large_2);
    pass(&s, large_112, small_7, true);
    pass(&s, small_7, other_112, false);
    pass(&s, small_8, other_2, true);
    pass(&s, other_2, small_8, false);
    get(&s, odd, odd_2);
    put(&s, odd_2, odd);
    pass(&s, odd_2, odd, true);
    pass_layers(&s, small_7, other_112);
    pass_layers(&s, large_2, small_8);
    cf_cache_end(&s.small.cache);
    cf_cache_end(&s.large.cache);
}

/* ---- at random ---- */

/* n different blocks of a table, in random order. */
static void some_blocks(kvcl_rand_t *rnd, const table_t *t, uint32_t *ids, uint32_t n)
{
    uint32_t all = SLOTS / t->tokens, list[LIST_MAX], i, j;

    for (i = 0; i < all; ++i) {
        list[i] = i;
    }
    for (i = 0; i < n; ++i) {
        j       = i + (uint32_t)kvcl_rand_below(rnd, all - i);
        ids[i]  = list[j];
        list[j] = list[i];
    }
}

/* A handle from one table to the other, for a range of some length; then lists of the length that it needs. */
static void posted_at_random(scene_t *s, kvcl_rand_t *rnd)
{
    bool               to_large = (kvcl_rand_below(rnd, 2) != 0), put = (kvcl_rand_below(rnd, 2) != 0);
    part_t             dst = {.table = to_large ? &s->large : &s->small};
    part_t             src = {.table = to_large ? &s->small : &s->large};
    part_t             *near_end = put ? &src : &dst, *far_end = put ? &dst : &src;
    uint32_t           lists[2][LIST_MAX], n = 1 + (uint32_t)kvcl_rand_below(rnd, SLOTS / 2), posts;
    int                next = (s->cf->rank + 1) % s->cf->size;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    part_t             *part;
    kvcl_xfer_h        xfer;
    kvcl_req_h         req;

    for (part = &dst; part != NULL; part = (part == &dst) ? &src : NULL) {
        uint32_t first       = (uint32_t)kvcl_rand_below(rnd, part->table->tokens);
        part->sel.tokens     = (kvcl_range_t){first, first + n};
        part->sel.n_blocks   = (first + n + part->table->tokens - 1) / part->table->tokens;
        part->sel.blocks     = lists[part == &src];
    }
    params.remote_cache = far_end->table->name;
    CF_OK(s->cf, kvcl_xfer_prepare(s->cf->world, next, put ? KVCL_XFER_PUT : KVCL_XFER_GET, near_end->table->cache.h,
                                   &near_end->sel, &far_end->sel, &params, &xfer));
    for (posts = 0; posts < 3; ++posts) {
        some_blocks(rnd, dst.table, lists[0], (uint32_t)dst.sel.n_blocks);
        some_blocks(rnd, src.table, lists[1], (uint32_t)src.sel.n_blocks);
        CF_OK(s->cf, kvcl_xfer_post(xfer, near_end->sel.blocks, near_end->sel.n_blocks, far_end->sel.blocks,
                                    far_end->sel.n_blocks, NULL, &req));
        CF_OK(s->cf, cf_end(s->cf, req));
        model(s, &dst, &src, put ? -1 : 1);
        check(s);
    }
    kvcl_xfer_free(xfer);
}

/* The params of a handle apply to every post: tokens that the lists do not have are refused. */
static void lists_too_short(scene_t *s)
{
    static const uint32_t two[] = {0, 1}, eight[] = {0, 1, 2, 3, 4, 5, 6, 7};
    int                   next = (s->cf->rank + 1) % s->cf->size;
    kvcl_sel_t            local = {.tokens = {0, 112}}, remote = {.tokens = {16, 128}};
    kvcl_xfer_params_t    params = KVCL_XFER_PARAMS_INIT;
    kvcl_xfer_h           xfer;
    kvcl_req_h            req;

    params.remote_cache = s->large.name;
    CF_OK(s->cf, kvcl_xfer_prepare(s->cf->world, next, KVCL_XFER_GET, s->small.cache.h, &local, &remote, &params,
                                   &xfer));
    CF_IS(s->cf, kvcl_xfer_post(xfer, eight, 6, two, 2, NULL, &req), KVCL_ERR_OUT_OF_RANGE); /* 96 tokens here */
    CF_OK(s->cf, kvcl_xfer_post(xfer, eight, 7, two, 1, NULL, &req));                        /* 64 on the remote side */
    CF_IS(s->cf, cf_end(s->cf, req), KVCL_ERR_OUT_OF_RANGE);
    kvcl_xfer_free(xfer);
    check(s);
}

static void prepared_at_random(cf_t *cf)
{
    enum { HANDLES = 12 };
    scene_t     s = {.cf = cf, .seed = cf_same(cf)};
    kvcl_rand_t rnd;
    int         i;

    kvcl_rand_seed(&rnd, s.seed); /* the same on all ranks */
    make_table(&s, &s.small, "small", SMALL, 8 << kvcl_rand_below(&rnd, 8), kvcl_rand_below(&rnd, 2) != 0);
    make_table(&s, &s.large, "large", LARGE, s.small.head_bytes, kvcl_rand_below(&rnd, 2) != 0);
    check(&s);
    lists_too_short(&s);
    for (i = 0; i < HANDLES; ++i) {
        posted_at_random(&s, &rnd);
    }
    cf_cache_end(&s.small.cache);
    cf_cache_end(&s.large.cache);
}

static void small_transfers(cf_t *cf)
{
    one_size(cf, 8, true);
    one_size(cf, 8, false);
}

static void middling_transfers(cf_t *cf)
{
    one_size(cf, 96, true);
    one_size(cf, 96, false);
}

static void large_transfers(cf_t *cf)
{
    one_size(cf, 4000, true);
    one_size(cf, 4000, false);
}

static void what_does_not_fit_is_refused(cf_t *cf)
{
    static const uint32_t ids[] = {0, 1, 2, 3};
    kvcl_layout_t         sixteen = KVCL_LAYOUT_NHD(.layers = 1, .blocks = 4, .tokens = 16, .heads = 2, .head_dim = 8,
                                                    .elem_bytes = 2);
    kvcl_layout_t         more = sixteen;
    kvcl_xfer_params_t    params = KVCL_XFER_PARAMS_INIT;
    int                   next = (cf->rank + 1) % cf->size;
    cf_cache_t            a, b, c;
    kvcl_sel_t            sel = cf_sel(ids, 4), part = cf_sel(ids, 3), none = cf_sel(ids, 4);
    kvcl_req_h            req, in;

    more.tokens = 24; /* neither divides the other */
    a           = cf_cache(cf, "sixteen", &sixteen, true);
    b           = cf_cache(cf, "24", &more, true);
    more.tokens = 32;
    c           = cf_cache(cf, "32", &more, true);
    cf_fence(cf);
    part.tokens         = (kvcl_range_t){0, 48};
    params.remote_cache = "24";
    sel.tokens          = (kvcl_range_t){0, 48};
    CF_OK(cf, kvcl_get(cf->world, next, a.h, &part, &sel, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_BAD_LAYOUT);
    CF_OK(cf, kvcl_put(cf->world, next, a.h, &sel, &part, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_BAD_LAYOUT);
    CF_OK(cf, kvcl_send(cf->world, next, 3, a.h, &sel, NULL, &req));
    CF_OK(cf, kvcl_recv(cf->world, (cf->rank + cf->size - 1) % cf->size, 3, b.h, &part, NULL, &in));
    CF_IS(cf, cf_end(cf, in), KVCL_ERR_BAD_LAYOUT);
    CF_CHECK(cf, strstr(kvcl_last_error(), "tokens of a block is 16 in the send, 24 in the recv") != NULL);
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_BAD_LAYOUT);
    params.remote_cache = "32";
    part.tokens         = (kvcl_range_t){0, 64}; /* more than 48 */
    CF_OK(cf, kvcl_get(cf->world, next, a.h, &part, &sel, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_BAD_LAYOUT);
    part.tokens = (kvcl_range_t){50, 98}; /* three blocks have 96 tokens */
    CF_OK(cf, kvcl_get(cf->world, next, a.h, &part, &sel, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_OUT_OF_RANGE);
    sel.tokens = (kvcl_range_t){0, 65};
    CF_IS(cf, kvcl_get(cf->world, next, a.h, &sel, &sel, NULL, &req), KVCL_ERR_OUT_OF_RANGE);
    CF_CHECK(cf, strstr(kvcl_last_error(), "tokens end at 65, the blocks have 64") != NULL);
    none.tokens = (kvcl_range_t){0, 64};
    CF_IS(cf, kvcl_bcast(cf->world, 0, a.h, &none, NULL, &req), KVCL_ERR_INVALID_PARAM);
    cf_fence(cf);
    cf_cache_end(&a);
    cf_cache_end(&b);
    cf_cache_end(&c);
}

static const cf_case_t cases[] = {
    {"small_transfers", small_transfers, 0},
    {"middling_transfers", middling_transfers, 0},
    {"large_transfers", large_transfers, 0},
    {"prepared_at_random", prepared_at_random, 0},
    {"what_does_not_fit_is_refused", what_does_not_fit_is_refused, 0},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 2, CF_NATIVE}, {"loop", false, 2, CF_OVERTAKE}, {"shm", true, 3, 0},
    {"tcp", false, 2, 0},  {"tcp", true, 3, 0},   {"tcp", true, 2, CF_LANE}, {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
