/*
 * Prepared transfers, long lists of small pieces, and the two classes, over every path.
 */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

#define COUNTS .layers = 3, .blocks = 12, .tokens = 4, .heads = 4, .head_dim = 8, .elem_bytes = 2

enum { BLOCKS = 24, ROUNDS = 30 };

/* Shuffle the numbers below n. */
static void shuffle(cf_t *cf, uint32_t *ids, uint32_t n)
{
    uint32_t i, j, t;

    for (i = 0; i < n; ++i) {
        ids[i] = i;
    }
    for (i = n; i > 1; --i) {
        j          = (uint32_t)kvcl_rand_below(&cf->rnd, i);
        t          = ids[i - 1];
        ids[i - 1] = ids[j];
        ids[j]     = t;
    }
}

static void note_end(void *arg, kvcl_status_t status)
{
    *(_Atomic int *)arg = status;
}

/* One handle, many lists: get the next rank's blocks, then put them to the next rank's second cache. */
static void posted_often(cf_t *cf, uint32_t size, bool ours)
{
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(BLOCKS, size);
    uint64_t           seed = cf_same(cf) + size, theirs = seed + (uint64_t)cf_after(cf);
    cf_cache_t         from = cf_cache(cf, "from", &layout, ours), to = cf_cache(cf, "to", &layout, ours);
    cf_cache_t         back = cf_cache(cf, "back", &layout, ours);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT, own = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         all = {0};
    kvcl_status_t      each[BLOCKS];
    uint32_t           mine[BLOCKS], far[BLOCKS], n, r, i;
    kvcl_xfer_h        get, put;
    kvcl_req_h         req;

    cf_fill(cf, from.h, seed + (uint64_t)cf->rank);
    cf_fence(cf);
    params.remote_cache = "from";
    CF_OK(cf, kvcl_xfer_prepare(cf->world, cf_after(cf), KVCL_XFER_GET, to.h, &all, &all, &params, &get));
    params.remote_cache = "back";
    params.flags        = KVCL_BACKGROUND;
    CF_OK(cf, kvcl_xfer_prepare(cf->world, cf_after(cf), KVCL_XFER_PUT, to.h, &all, &all, &params, &put));
    for (r = 0; r < ROUNDS; ++r) {
        n = 1 + (uint32_t)kvcl_rand_below(&cf->rnd, BLOCKS);
        shuffle(cf, mine, BLOCKS);
        shuffle(cf, far, BLOCKS);
        own.status = each;
        CF_OK(cf, kvcl_xfer_post(get, mine, n, far, n, &own, &req));
        CF_OK(cf, cf_end(cf, req));
        for (i = 0; i < n; ++i) {
            CF_CHECK(cf, each[i] == KVCL_OK);
            cf_block_is(cf, to.h, mine[i], theirs, far[i]);
        }
    }
    shuffle(cf, mine, BLOCKS);
    for (i = 0; i < BLOCKS; ++i) {
        far[i] = i;
    }
    CF_OK(cf, kvcl_xfer_post(get, mine, BLOCKS, far, BLOCKS, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    CF_OK(cf, kvcl_xfer_post(put, mine, BLOCKS, far, BLOCKS, NULL, &req));
    kvcl_xfer_free(put); /* posted transfers continue */
    kvcl_xfer_free(get);
    CF_OK(cf, cf_end(cf, req));
    cf_fence(cf);
    for (i = 0; i < BLOCKS; ++i) { /* the last rank has put this rank's own blocks here */
        cf_block_is(cf, back.h, i, seed + (uint64_t)cf->rank, i);
    }
    cf_fence(cf);
    cf_cache_end(&from);
    cf_cache_end(&to);
    cf_cache_end(&back);
}

static void prepared(cf_t *cf)
{
    static const uint32_t sizes[] = {64, 4096, 70000};
    unsigned              i;

    for (i = 0; i < 3; ++i) {
        posted_often(cf, sizes[i], (i % 2) == 0);
        posted_often(cf, sizes[i], (i % 2) != 0);
    }
}

/* Layers 1..2 and heads 2..3 of the remote cache become layers 0..1 and heads 1..2 of the local one, as with
 * kvcl_get. */
static void prepared_slices(cf_t *cf)
{
    kvcl_layout_t      nhd = KVCL_LAYOUT_NHD(COUNTS), hnd = KVCL_LAYOUT_HND(COUNTS);
    cf_cache_t         from = cf_cache(cf, "from", &nhd, true), a = cf_cache(cf, "a", &hnd, false);
    cf_cache_t         b = cf_cache(cf, "b", &hnd, false);
    size_t             len = kvcl_cache_block_bytes(a.h);
    uint64_t           seed = cf_same(cf);
    uint32_t           mine[12], far[12], i;
    char               *want = malloc(len), *got = malloc(len);
    kvcl_sel_t         remote = {.layers = {1, 3}, .heads = {2, 4}}, local = {.layers = {0, 2}, .heads = {1, 3}};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_xfer_h        xfer;
    kvcl_req_h         req;

    cf_fill(cf, from.h, seed + (uint64_t)cf->rank);
    cf_fill(cf, a.h, seed + 100);
    cf_fill(cf, b.h, seed + 100);
    cf_fence(cf);
    shuffle(cf, mine, 12);
    shuffle(cf, far, 12);
    params.remote_cache = "from";
    CF_OK(cf, kvcl_xfer_prepare(cf->world, cf_after(cf), KVCL_XFER_GET, a.h, &local, &remote, &params, &xfer));
    CF_OK(cf, kvcl_xfer_post(xfer, mine, 5, far, 5, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    CF_OK(cf, kvcl_xfer_post(xfer, mine + 5, 7, far + 5, 7, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    kvcl_xfer_free(xfer);
    local.blocks    = mine;
    remote.blocks   = far;
    local.n_blocks  = remote.n_blocks = 12;
    CF_OK(cf, kvcl_get(cf->world, cf_after(cf), b.h, &remote, &local, &params, &req));
    CF_OK(cf, cf_end(cf, req));
    for (i = 0; i < 12; ++i) {
        CF_OK(cf, kvcl_cache_read_block(a.h, i, got, len));
        CF_OK(cf, kvcl_cache_read_block(b.h, i, want, len));
        CF_CHECK(cf, memcmp(got, want, len) == 0);
    }
    cf_fence(cf);
    cf_cache_end(&from);
    cf_cache_end(&a);
    cf_cache_end(&b);
    free(want);
    free(got);
}

/* What is refused, and where: when preparing, when posting, or by the request. A refused call has changed nothing. */
static void prepared_refusals(cf_t *cf)
{
    kvcl_layout_t      layout = KVCL_LAYOUT_NHD(.layers = 2, .blocks = 4, .tokens = 4, .heads = 2, .head_dim = 8,
                                                .elem_bytes = 2);
    cf_cache_t         cache = cf_cache(cf, "c", &layout, true);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         all = {0}, layers = {.layers = {1, 3}};
    uint32_t           good[] = {0, 1}, bad[] = {0, 4}, here[] = {2, 3}; /* which no operation reads */
    _Atomic int        ended = KVCL_INPROGRESS;
    kvcl_xfer_h        xfer;
    kvcl_req_h         req;

    cf_fence(cf);
#define PREPARE(_rank, _dir, _local, _params) \
    kvcl_xfer_prepare(cf->world, (_rank), (_dir), cache.h, (_local), &all, (_params), &xfer)
    CF_IS(cf, PREPARE(99, KVCL_XFER_GET, &all, NULL), KVCL_ERR_UNKNOWN_RANK);
    CF_IS(cf, PREPARE(cf_after(cf), (kvcl_xfer_dir_t)2, &all, NULL), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, PREPARE(cf_after(cf), KVCL_XFER_GET, &layers, NULL), KVCL_ERR_OUT_OF_RANGE);
    CF_IS(cf, PREPARE(cf_after(cf), KVCL_XFER_GET, NULL, NULL), KVCL_ERR_INVALID_PARAM);
    params.cb = note_end;
    CF_IS(cf, PREPARE(cf_after(cf), KVCL_XFER_GET, &all, &params), KVCL_ERR_INVALID_PARAM);
    params.cb    = NULL;
    params.flags = UINT64_C(1) << 40;
    CF_IS(cf, PREPARE(cf_after(cf), KVCL_XFER_GET, &all, &params), KVCL_ERR_INVALID_PARAM);
    CF_OK(cf, PREPARE(cf_after(cf), KVCL_XFER_GET, &all, NULL));
#undef PREPARE
    CF_IS(cf, kvcl_xfer_post(NULL, good, 2, good, 2, NULL, &req), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_xfer_post(xfer, NULL, 2, good, 2, NULL, &req), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_xfer_post(xfer, bad, 2, good, 2, NULL, &req), KVCL_ERR_OUT_OF_RANGE);
    params.flags = KVCL_BACKGROUND;
    CF_IS(cf, kvcl_xfer_post(xfer, good, 2, good, 2, &params, &req), KVCL_ERR_INVALID_PARAM);
    CF_OK(cf, kvcl_xfer_post(xfer, good, 2, bad, 2, NULL, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_OUT_OF_RANGE);
    CF_OK(cf, kvcl_xfer_post(xfer, NULL, 0, NULL, 0, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    params.flags  = 0;
    params.cb     = note_end;
    params.cb_arg = &ended;
    CF_OK(cf, kvcl_xfer_post(xfer, here, 2, good, 2, &params, &req));
    CF_OK(cf, cf_end(cf, req));
    while (ended == KVCL_INPROGRESS) {
        cf_sleep_us(cf, 100);
    }
    CF_CHECK(cf, ended == KVCL_OK);
    kvcl_xfer_free(xfer);
    kvcl_xfer_free(NULL);
    cf_fence(cf);
    cf_cache_end(&cache);
}

/* More bytes than the caches hold, in pieces of 1 KiB: writes that bypass the caches, and gathers that prefetch. */
static void many_pieces(cf_t *cf)
{
    enum { N = 18 * 1024, PIECE = 1024 };
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(N, PIECE);
    uint64_t      seed = cf_same(cf);
    cf_cache_t    from = cf_cache(cf, "from", &layout, false), to = cf_cache(cf, "to", &layout, false);
    uint32_t      *mine = malloc(N * sizeof(*mine)), *far = malloc(N * sizeof(*far)), i;
    kvcl_sel_t    all = {0};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_xfer_h   xfer;
    kvcl_req_h    req;

    params.remote_cache = "from";
    cf_fill(cf, from.h, seed + (uint64_t)cf->rank);
    cf_fence(cf);
    shuffle(cf, mine, N);
    shuffle(cf, far, N);
    CF_OK(cf, kvcl_xfer_prepare(cf->world, cf_after(cf), KVCL_XFER_GET, to.h, &all, &all, &params, &xfer));
    CF_OK(cf, kvcl_xfer_post(xfer, mine, N, far, N, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    kvcl_xfer_free(xfer);
    for (i = 0; i < N; ++i) {
        cf_block_is(cf, to.h, mine[i], seed + (uint64_t)cf_after(cf), far[i]);
    }
    cf_fence(cf);
    cf_cache_end(&from);
    cf_cache_end(&to);
    free(mine);
    free(far);
}

/*
 * A background transfer is posted, then a foreground one of the same size: the second ends first. Tested only where no
 * progress is made between the two posts, or the first might end before the second begins.
 */
static void overtake(cf_t *cf, bool put, bool ours)
{
    enum { N = 48, SIZE = 256 * 1024 };
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(2 * N, SIZE);
    uint64_t           seed = cf_same(cf);
    cf_cache_t         mine = cf_cache(cf, "mine", &layout, ours), far = cf_cache(cf, "far", &layout, ours);
    uint32_t           a[N], b[N], i;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         sa = cf_sel(a, N), sb = cf_sel(b, N), none = {0};
    kvcl_cache_h       filled = put ? mine.h : far.h, result = put ? far.h : mine.h;
    kvcl_req_h         low, high, warm;
    int                rank = cf_after(cf), origin = put ? (cf->rank + cf->size - 1) % cf->size : rank;

    for (i = 0; i < N; ++i) { /* no two are neighbours: there are as many pieces as blocks */
        a[i] = 2 * i;
        b[i] = (2 * i) + 1;
    }
    cf_fill(cf, filled, seed + (uint64_t)cf->rank);
    cf_fence(cf);
    params.remote_cache = "far";
    CF_OK(cf, kvcl_get(cf->world, rank, mine.h, &none, &none, &params, &warm)); /* the session, the description */
    CF_OK(cf, cf_end(cf, warm));
    if (cf->rank == 0) {
        params.flags = KVCL_BACKGROUND;
        CF_OK(cf, put ? kvcl_put(cf->world, rank, mine.h, &sa, &sa, &params, &low)
                      : kvcl_get(cf->world, rank, mine.h, &sa, &sa, &params, &low));
        params.flags = 0;
        CF_OK(cf, put ? kvcl_put(cf->world, rank, mine.h, &sb, &sb, &params, &high)
                      : kvcl_get(cf->world, rank, mine.h, &sb, &sb, &params, &high));
        CF_OK(cf, cf_end(cf, high));
        CF_CHECK(cf, kvcl_req_test(low) == KVCL_INPROGRESS);
        CF_OK(cf, cf_end(cf, low));
    }
    cf_fence(cf);
    for (i = 0; (i < N) && (cf->rank == (put ? 1 : 0)); ++i) {
        cf_block_is(cf, result, a[i], seed + (uint64_t)origin, a[i]);
        cf_block_is(cf, result, b[i], seed + (uint64_t)origin, b[i]);
    }
    cf_fence(cf);
    cf_cache_end(&mine);
    cf_cache_end(&far);
}

static void background_yields(cf_t *cf)
{
    if (cf->no_thread) {
        overtake(cf, false, true);
        overtake(cf, false, false);
        overtake(cf, true, true);
        overtake(cf, true, false);
    }
}

static const cf_case_t cases[] = {
    {"prepared", prepared, 0},
    {"prepared_slices", prepared_slices, 0},
    {"prepared_refusals", prepared_refusals, 0},
    {"many_pieces", many_pieces, 0},
    {"background_yields", background_yields, 0},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 2, CF_NATIVE}, {"loop", false, 2, KVCL_INIT_NO_THREAD},
    {"shm", false, 2, 0},  {"shm", true, 3, 0},           {"shm", true, 2, KVCL_INIT_NO_THREAD},
    {"tcp", false, 2, 0},  {"tcp", true, 3, 0},           {"tcp", true, 2, KVCL_INIT_NO_THREAD},
    {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
