/*
 * get and put, of blocks and of bytes: sizes, layouts, rights, revocation, signals, over every path.
 */
#include "conform_decisions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static kvcl_status_t get(cf_t *cf, int rank, kvcl_cache_h cache, kvcl_sel_t remote, kvcl_sel_t local,
                         const kvcl_xfer_params_t *params)
{
    kvcl_req_h req;

    CF_OK(cf, kvcl_get(cf->world, rank, cache, &remote, &local, params, &req));
    return cf_end(cf, req);
}

static kvcl_status_t put(cf_t *cf, int rank, kvcl_cache_h cache, kvcl_sel_t local, kvcl_sel_t remote,
                         const kvcl_xfer_params_t *params)
{
    kvcl_req_h req;

    CF_OK(cf, kvcl_put(cf->world, rank, cache, &local, &remote, params, &req));
    return cf_end(cf, req);
}

/* ---------------------------------------------------------------- sizes */

/* Sizes around the limits of eager, inline and small answers, frames and slices. */
static const uint32_t sizes[] = {1,      7,      8,      4095,   8191,    8192,    8193,    65535,
                                 65536,  245759, 245760, 245761, 262144,  262145,  524288,  524289,
                                 983040, 1048576, 1048577, 3145733};
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Blocks 0, 1 of the next rank arrive in local blocks 4, 3; local blocks 2 and 5 stay; then 4, 3 are put into the next
 * rank's 6, 7. */
static void one_size(cf_t *cf, uint32_t size, bool ours)
{
    static const uint32_t src[] = {0, 1}, dst[] = {4, 3}, far[] = {6, 7};
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(8, size);
    uint64_t      seed = cf_same(cf) + size, mine = seed + (uint64_t)cf->rank, next = seed + (uint64_t)cf_after(cf);
    cf_cache_t    cache;
    char          name[32];

    snprintf(name, sizeof(name), "%s%u", ours ? "ours" : "theirs", size);
    cache = cf_cache(cf, name, &layout, ours);
    cf_fill(cf, cache.h, mine);
    cf_fence(cf);
    CF_OK(cf, get(cf, cf_after(cf), cache.h, cf_sel(src, 2), cf_sel(dst, 2), NULL));
    cf_block_is(cf, cache.h, 4, next, 0);
    cf_block_is(cf, cache.h, 3, next, 1);
    cf_block_is(cf, cache.h, 2, mine, 2);
    cf_block_is(cf, cache.h, 5, mine, 5);
    CF_OK(cf, put(cf, cf_after(cf), cache.h, cf_sel(dst, 2), cf_sel(far, 2), NULL));
    cf_fence(cf);
    cf_block_is(cf, cache.h, 6, mine, 0); /* the last rank got this rank's blocks and put them back */
    cf_block_is(cf, cache.h, 7, mine, 1);
    cf_block_is(cf, cache.h, 5, mine, 5);
    cf_fence(cf);
    cf_cache_end(&cache);
}

static void sizes_of_blocks(cf_t *cf)
{
    unsigned i;

    for (i = 0; i < N_SIZES; ++i) {
        one_size(cf, sizes[i], true);
        one_size(cf, sizes[i], false);
    }
}

/* A transfer of no bytes is valid. */
static void nothing_at_all(cf_t *cf)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(2, 64);
    kvcl_sel_t    none   = {0};
    bool          ours;
    int           i;

    for (i = 0; i < 2; ++i) {
        ours              = (i == 0);
        cf_cache_t cache  = cf_cache(cf, ours ? "a" : "b", &layout, ours);
        cf_mem_t   mem    = cf_mem(cf, 64, ours, KVCL_READ_WRITE);
        kvcl_req_h req;
        CF_OK(cf, get(cf, cf_after(cf), cache.h, none, none, NULL));
        CF_OK(cf, put(cf, cf_after(cf), cache.h, none, none, NULL));
        CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 64, NULL, 0, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_OK(cf, kvcl_put_bytes(mem.of[cf_after(cf)], 0, NULL, 0, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        cf_mem_end(cf, &mem);
        cf_cache_end(&cache);
    }
}

/* A rank may get from and put to itself. */
static void to_myself(cf_t *cf)
{
    static const uint32_t src[] = {0, 1}, dst[] = {2, 3}, far[] = {4, 5};
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(6, 300000);
    uint64_t      seed = cf_same(cf) + (uint64_t)cf->rank;
    cf_cache_t    cache = cf_cache(cf, "me", &layout, (seed & 1) != 0);

    cf_fill(cf, cache.h, seed);
    CF_OK(cf, get(cf, cf->rank, cache.h, cf_sel(src, 2), cf_sel(dst, 2), NULL));
    cf_block_is(cf, cache.h, 3, seed, 1);
    CF_OK(cf, put(cf, cf->rank, cache.h, cf_sel(src, 2), cf_sel(far, 2), NULL));
    cf_block_is(cf, cache.h, 4, seed, 0);
    cf_fence(cf);
    cf_cache_end(&cache);
}

static void sizes_of_bytes(cf_t *cf)
{
    size_t   len  = 4 << 20, n, i;
    char     *buf = malloc(len);
    unsigned kind;

    for (kind = 0; kind < 2; ++kind) {
        cf_mem_t   mem  = cf_mem(cf, len, kind == 0, KVCL_READ_WRITE);
        uint64_t   seed = cf_same(cf) + kind;
        kvcl_req_h req;
        cf_bytes(seed + (uint64_t)cf->rank, 0, mem.addr, len);
        cf_fence(cf);
        for (i = 0; i <= N_SIZES; ++i) {
            n = (i < N_SIZES) ? sizes[i] : len;
            memset(buf, 0xee, len);
            CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf, n, NULL, &req));
            CF_OK(cf, cf_end(cf, req));
            CF_CHECK(cf, cf_bytes_are(seed + (uint64_t)cf_after(cf), 0, buf, n));
            CF_CHECK(cf, (n == len) || (buf[n] == (char)0xee));
        }
        cf_fence(cf);
        for (i = 0; i <= N_SIZES; ++i) { /* at the end of the region */
            n = (i < N_SIZES) ? sizes[i] : len;
            cf_bytes(seed + n + (uint64_t)cf->rank, 1, buf, n);
            CF_OK(cf, kvcl_put_bytes(mem.of[cf_after(cf)], len - n, buf, n, NULL, &req));
            CF_OK(cf, cf_end(cf, req));
            cf_fence(cf);
            CF_CHECK(cf, cf_bytes_are(seed + n + (uint64_t)cf_before(cf), 1, mem.addr + (len - n), n));
            cf_fence(cf);
        }
        cf_mem_end(cf, &mem);
    }
    free(buf);
}

/* ---------------------------------------------------------------- layouts */

#define COUNTS .layers = 3, .blocks = 12, .tokens = 4, .heads = 4, .head_dim = 8, .elem_bytes = 2

/* Six memories of one logical shape (384 bytes a block and layer pair), and an opaque one of the same size. */
static unsigned layout_of(unsigned i, kvcl_layout_t *layout)
{
    switch (i) {
    case 0:
        *layout = KVCL_LAYOUT_NHD(COUNTS);
        break;
    case 1:
        *layout = KVCL_LAYOUT_HND(COUNTS);
        break;
    case 2:
        *layout = KVCL_LAYOUT_NHD(COUNTS, .token_stride = 80);
        break;
    case 3:
        *layout = KVCL_LAYOUT_HND(COUNTS, .flags = KVCL_LAYOUT_PER_LAYER, .head_stride = 96);
        break;
    case 4:
        *layout = KVCL_LAYOUT_NHD(COUNTS, .flags = KVCL_LAYOUT_PER_PLANE, .block_stride = 1024);
        break;
    case 5:
        *layout = KVCL_LAYOUT_NHD(COUNTS, .flags = KVCL_LAYOUT_PER_LAYER, .kv_stride = 256, .block_stride = 512);
        break;
    default:
        *layout = KVCL_LAYOUT_BYTES(12, 3 * 2 * 4 * 4 * 8 * 2);
        break;
    }
    return 7;
}

/* Whole blocks between any two memories of one shape. */
static void layout_pair(cf_t *cf, cf_cache_t *theirs, unsigned j, cf_cache_t *here, uint64_t seed)
{
    static const uint32_t src[] = {0, 11, 5, 6}, dst[] = {8, 2, 3, 4};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status[4] = {KVCL_INPROGRESS, KVCL_INPROGRESS, KVCL_INPROGRESS, KVCL_INPROGRESS};
    char               name[16];
    unsigned           i;

    (void)theirs;
    snprintf(name, sizeof(name), "from%u", j);
    params.remote_cache = name;
    params.status       = status;
    CF_OK(cf, get(cf, cf_after(cf), here->h, cf_sel(src, 4), cf_sel(dst, 4), &params));
    for (i = 0; i < 4; ++i) {
        CF_CHECK(cf, status[i] == KVCL_OK);
        cf_block_is(cf, here->h, dst[i], seed + j + (uint64_t)cf_after(cf), src[i]);
    }
    snprintf(name, sizeof(name), "to%u", j);
    CF_OK(cf, put(cf, cf_after(cf), here->h, cf_sel(dst, 4), cf_sel(src, 4), &params));
}

static void all_layouts(cf_t *cf)
{
    static const uint32_t ids[] = {0, 11, 5, 6};
    cf_cache_t    from[7], to[7], here[7];
    kvcl_layout_t layout;
    uint64_t      seed = cf_same(cf);
    char          name[16];
    unsigned      i, j, b;

    for (i = 0; i < 7; ++i) {
        (void)layout_of(i, &layout);
        snprintf(name, sizeof(name), "from%u", i);
        from[i] = cf_cache(cf, name, &layout, (i % 3) != 0);
        cf_fill(cf, from[i].h, seed + i + (uint64_t)cf->rank);
        snprintf(name, sizeof(name), "to%u", i);
        to[i] = cf_cache(cf, name, &layout, (i % 2) != 0);
        snprintf(name, sizeof(name), "here%u", i);
        here[i] = cf_cache(cf, name, &layout, (i % 2) == 0);
    }
    cf_fence(cf);
    for (i = 0; i < 7; ++i) {
        for (j = 0; j < 7; ++j) {
            layout_pair(cf, &to[j], j, &here[i], seed);
        }
    }
    cf_fence(cf);
    for (j = 0; j < 7; ++j) {
        for (b = 0; b < 4; ++b) {
            cf_block_is(cf, to[j].h, ids[b], seed + j + (uint64_t)cf->rank, ids[b]);
        }
    }
    cf_fence(cf);
    for (i = 0; i < 7; ++i) {
        cf_cache_end(&from[i]);
        cf_cache_end(&to[i]);
        cf_cache_end(&here[i]);
    }
}

/* Some layers and heads, as a change of tensor-parallel size needs. Compared element by element, through the
 * strides. */
static void slices(cf_t *cf)
{
    static const uint32_t src[] = {3, 9}, dst[] = {1, 0};
    kvcl_layout_t nhd = KVCL_LAYOUT_NHD(COUNTS), hnd = KVCL_LAYOUT_HND(COUNTS);
    cf_cache_t    theirs = cf_cache(cf, "theirs", &nhd, true), mine = cf_cache(cf, "mine", &hnd, false);
    size_t        len = kvcl_cache_block_bytes(mine.h), row = 16, l, p, t, h, at, far;
    uint64_t      seed = cf_same(cf);
    char          *want = malloc(len), *got = malloc(len), *before = malloc(len);
    kvcl_sel_t    remote = {src, 2, {1, 3}, {2, 4}, {0, 0}, {0, 0}}, local = {dst, 2, {0, 2}, {1, 3}, {0, 0}, {0, 0}};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    cf_fill(cf, theirs.h, seed + (uint64_t)cf->rank);
    cf_fill(cf, mine.h, seed + 100);
    cf_fence(cf);
    params.remote_cache = "theirs";
    CF_OK(cf, get(cf, cf_after(cf), mine.h, remote, local, &params));
    cf_bytes(seed + (uint64_t)cf_after(cf), 9, want, len);
    cf_bytes(seed + 100, 0, before, len);
    CF_OK(cf, kvcl_cache_read_block(mine.h, 0, got, len));
    for (l = 0; l < 3; ++l) {
        for (p = 0; p < 2; ++p) {
            for (t = 0; t < 4; ++t) {
                for (h = 0; h < 4; ++h) {
                    at  = ((((l * 2 + p) * 4 + t) * 4) + h) * row;
                    far = (((((l + 1) * 2 + p) * 4 + t) * 4) + h + 1) * row;
                    if ((l < 2) && (h >= 1) && (h < 3)) {
                        CF_CHECK(cf, memcmp(got + at, want + far, row) == 0);
                    } else {
                        CF_CHECK(cf, memcmp(got + at, before + at, row) == 0);
                    }
                }
            }
        }
    }
    cf_fence(cf);
    cf_cache_end(&theirs);
    cf_cache_end(&mine);
    free(want);
    free(got);
    free(before);
}

/* ---------------------------------------------------------------- what is refused later */

static void refused_by_the_peer(cf_t *cf)
{
    static const uint32_t two[] = {0, 1}, far[] = {0, 40};
    kvcl_layout_t small = KVCL_LAYOUT_BYTES(4, 512), big = KVCL_LAYOUT_BYTES(4, 1024);
    kvcl_layout_t many = KVCL_LAYOUT_BYTES(64, 512);
    cf_cache_t    cache = cf_cache(cf, "small", &small, true), other = cf_cache(cf, "big", &big, false);
    cf_cache_t    more = cf_cache(cf, "many", (cf->rank == 0) ? &many : &small, true);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t status[2];
    int           round;

    params.status = status;
    cf_fill(cf, cache.h, 1);
    cf_fence(cf);
    for (round = 0; round < 2; ++round) { /* the second time the description is known */
        params.remote_cache = "nobody has it";
        CF_IS(cf, get(cf, cf_after(cf), cache.h, cf_sel(two, 2), cf_sel(two, 2), &params), KVCL_ERR_NOT_REGISTERED);
        CF_CHECK(cf, (status[0] == KVCL_ERR_NOT_REGISTERED) && (status[1] == KVCL_ERR_NOT_REGISTERED));
        CF_IS(cf, put(cf, cf_after(cf), cache.h, cf_sel(two, 2), cf_sel(two, 2), &params), KVCL_ERR_NOT_REGISTERED);
        params.remote_cache = "big";
        CF_IS(cf, get(cf, cf_after(cf), cache.h, cf_sel(two, 2), cf_sel(two, 2), &params), KVCL_ERR_BAD_LAYOUT);
        CF_IS(cf, put(cf, cf_after(cf), cache.h, cf_sel(two, 2), cf_sel(two, 2), &params), KVCL_ERR_BAD_LAYOUT);
        if (cf->rank == 0) {
            params.remote_cache = NULL;
            CF_IS(cf, get(cf, 1, more.h, cf_sel(far, 2), cf_sel(two, 2), &params), KVCL_ERR_OUT_OF_RANGE);
            CF_IS(cf, put(cf, 1, more.h, cf_sel(two, 2), cf_sel(far, 2), &params), KVCL_ERR_OUT_OF_RANGE);
            CF_CHECK(cf, status[0] < 0);
        }
    }
    cf_block_is(cf, cache.h, 0, 1, 0); /* nothing was written */
    cf_block_is(cf, cache.h, 1, 1, 1);
    cf_fence(cf);
    cf_cache_end(&cache);
    cf_cache_end(&other);
    cf_cache_end(&more);
}

/* A cache is destroyed and another gets its name, or its place in the table: a get never returns the other one's
 * bytes. */
static void caches_come_and_go(cf_t *cf)
{
    static const uint32_t two[] = {0, 1};
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(4, 2048);
    uint64_t      seed = cf_same(cf);
    cf_cache_t    here = cf_cache(cf, "here", &layout, true), cache;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    int           kind;

    params.remote_cache = "first";
    for (kind = 0; kind < 4; ++kind) {
        cache = cf_cache(cf, "first", &layout, (kind & 1) != 0);
        cf_fill(cf, cache.h, seed + (uint64_t)kind + (uint64_t)cf->rank);
        cf_fence(cf);
        CF_OK(cf, get(cf, cf_after(cf), here.h, cf_sel(two, 2), cf_sel(two, 2), &params));
        cf_block_is(cf, here.h, 1, seed + (uint64_t)kind + (uint64_t)cf_after(cf), 1);
        cf_fence(cf);
        cf_cache_end(&cache);
        cache = cf_cache(cf, "second", &layout, (kind & 2) != 0);
        cf_fill(cf, cache.h, ~seed);
        cf_fence(cf);
        CF_IS(cf, get(cf, cf_after(cf), here.h, cf_sel(two, 2), cf_sel(two, 2), &params), KVCL_ERR_NOT_REGISTERED);
        CF_IS(cf, put(cf, cf_after(cf), here.h, cf_sel(two, 2), cf_sel(two, 2), &params), KVCL_ERR_NOT_REGISTERED);
        cf_fence(cf);
        cf_block_is(cf, cache.h, 0, ~seed, 0);
        cf_fence(cf);
        cf_cache_end(&cache);
    }
    cf_cache_end(&here);
}

static void rights(cf_t *cf)
{
    char       buf[64] = {0};
    kvcl_req_h req;
    unsigned   kind;

    for (kind = 0; kind < 2; ++kind) {
        cf_mem_t r = cf_mem(cf, 64, kind == 0, KVCL_READ), w = cf_mem(cf, 64, kind == 0, KVCL_WRITE);
        CF_OK(cf, kvcl_get_bytes(r.of[cf_after(cf)], 0, buf, 64, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_OK(cf, kvcl_put_bytes(w.of[cf_after(cf)], 0, buf, 64, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_IS(cf, kvcl_put_bytes(r.of[cf_after(cf)], 0, buf, 64, NULL, &req), KVCL_ERR_ACCESS);
        CF_IS(cf, kvcl_get_bytes(w.of[cf_after(cf)], 0, buf, 64, NULL, &req), KVCL_ERR_ACCESS);
        CF_IS(cf, kvcl_get_bytes(r.of[cf_after(cf)], 1, buf, 64, NULL, &req), KVCL_ERR_OUT_OF_RANGE);
        CF_IS(cf, kvcl_get_bytes(r.of[cf_after(cf)], UINT64_MAX, buf, 64, NULL, &req), KVCL_ERR_OUT_OF_RANGE);
        cf_mem_end(cf, &r);
        cf_mem_end(cf, &w);
    }
}

/* After a revoke nothing is read or written; a new export works, and the old one never works again. */
static void revoke_before(cf_t *cf)
{
    enum { BIG = 1 << 20 };
    char        *big = calloc(1, BIG), desc[1024], one[8] = "before!";
    const void  *blob;
    size_t      len, i;
    kvcl_req_h  req;
    unsigned    kind;
    kvcl_rmem_h again;

    for (kind = 0; kind < 4; ++kind) {
        cf_mem_t mem = cf_mem(cf, (size_t)BIG, (kind & 1) != 0, KVCL_READ_WRITE);
        if (kind & 2) { /* used before: the description is already open */
            CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, one, 8, NULL, &req));
            CF_OK(cf, cf_end(cf, req));
        }
        cf_fence(cf);
        CF_OK(cf, kvcl_mem_revoke(mem.mine));
        memset(mem.addr, 0x11, (size_t)BIG);
        cf_fence(cf);
        for (i = 8; i <= (size_t)BIG; i *= 131072) {
            CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, big, i, NULL, &req));
            CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
            CF_OK(cf, kvcl_put_bytes(mem.of[cf_after(cf)], 0, big, i, NULL, &req));
            CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
        }
        cf_fence(cf);
        for (i = 0; i < (size_t)BIG; ++i) {
            CF_CHECK(cf, mem.addr[i] == 0x11);
        }
        len = sizeof(desc);
        CF_OK(cf, kvcl_mem_export(mem.mine, KVCL_READ, desc, &len));
        cf_give(cf, desc, len);
        cf_fence(cf);
        blob = cf_blob(cf, cf_after(cf), &len);
        CF_OK(cf, kvcl_rmem_import(cf->world, cf_after(cf), blob, len, &again));
        CF_OK(cf, kvcl_get_bytes(again, 0, one, 8, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_CHECK(cf, one[0] == 0x11);
        CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, one, 8, NULL, &req));
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
        kvcl_rmem_free(again);
        cf_mem_end(cf, &mem);
    }
    free(big);
}

/* Words of file-backed memory are read and written like any other. */
static void a_file(cf_t *cf)
{
    char        path[] = "/tmp/kvcl-conform-XXXXXX", desc[1024], buf[64];
    int         fd = mkstemp(path);
    size_t      len = sizeof(desc);
    kvcl_mem_h  mem;
    kvcl_rmem_h rmem;
    kvcl_req_h  req;
    const void  *blob;

    CF_CHECK(cf, (fd >= 0) && (ftruncate(fd, 8192) == 0) && (pwrite(fd, "page two", 8, 4096) == 8));
    CF_OK(cf, kvcl_mem_file(cf->ctx, path, 4096, 0, &mem));
    CF_CHECK(cf, (kvcl_mem_len(mem) == 4096) && (memcmp(kvcl_mem_addr(mem), "page two", 8) == 0));
    CF_OK(cf, kvcl_mem_export(mem, KVCL_READ_WRITE, desc, &len));
    cf_give(cf, desc, len);
    cf_fence(cf);
    blob = cf_blob(cf, cf_after(cf), &len);
    CF_OK(cf, kvcl_rmem_import(cf->world, cf_after(cf), blob, len, &rmem));
    CF_OK(cf, kvcl_get_bytes(rmem, 0, buf, sizeof(buf), NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    CF_CHECK(cf, memcmp(buf, "page two", 8) == 0);
    CF_OK(cf, kvcl_put_bytes(rmem, 4000, "written", 8, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    cf_fence(cf);
    CF_CHECK(cf, (pread(fd, buf, 8, 8096) == 8) && (memcmp(buf, "written", 8) == 0));
    cf_fence(cf);
    kvcl_rmem_free(rmem);
    kvcl_mem_free(mem);
    close(fd);
    (void)unlink(path);
}

/* ---------------------------------------------------------------- native or served */

static uint64_t served_bytes(cf_t *cf)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;

    KVCL_TRY(kvcl_context_stats(cf->ctx, &stats));
    return stats.bytes_served;
}

/* An owner counts a transfer when its last frame has been sent, which is soon. */
static bool serves(cf_t *cf, uint64_t before, uint64_t bytes)
{
    int i;

    for (i = 0; (i < 50000) && (served_bytes(cf) - before < bytes); ++i) {
        cf_sleep_us(cf, 100);
    }
    return served_bytes(cf) - before == bytes;
}

/* n blocks, no two of them neighbours, are got and put back; then the owners compare the bytes they served. */
static void by_table(cf_t *cf, uint32_t size, uint32_t n, bool native)
{
    static const uint32_t odd[] = {1, 3, 5, 7, 9, 11, 13, 15}, even[] = {14, 12, 10, 8, 6, 4, 2, 0};
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(16, size);
    uint64_t      seed = cf_same(cf), before;
    cf_cache_t    cache = cf_cache(cf, "table", &layout, true);
    uint32_t      i;

    cf_fill(cf, cache.h, seed + (uint64_t)cf->rank);
    before = served_bytes(cf);
    cf_fence(cf);
    CF_OK(cf, get(cf, cf_after(cf), cache.h, cf_sel(odd, n), cf_sel(even, n), NULL));
    cf_fence(cf);
    for (i = 0; i < n; ++i) {
        cf_block_is(cf, cache.h, even[i], seed + (uint64_t)cf_after(cf), odd[i]);
    }
    CF_CHECK(cf, !cf->native || serves(cf, before, native ? 0 : (uint64_t)n * size));
    before = served_bytes(cf);
    cf_fence(cf);
    CF_OK(cf, put(cf, cf_after(cf), cache.h, cf_sel(odd, n), cf_sel(even, n), NULL));
    cf_fence(cf);
    for (i = 0; i < n; ++i) {
        cf_block_is(cf, cache.h, even[i], seed + (uint64_t)cf_before(cf), odd[i]);
    }
    if (cf->native) { /* a few bytes travel with the message */
        CF_CHECK(cf, serves(cf, before, (native || ((uint64_t)n * size <= 8192)) ? 0 : (uint64_t)n * size));
    }
    cf_fence(cf);
    cf_cache_end(&cache);
}

/* With the table that main() sets, four runs of less than 6,000 bytes are packed where they would otherwise be got
 * natively. */
static void native_or_served(cf_t *cf)
{
    by_table(cf, 5999, 8, false);
    by_table(cf, 100, 4, false);
    by_table(cf, 100, 3, true);
    by_table(cf, 6000, 8, true);
    by_table(cf, 100000, 8, true);
}

static const cf_case_t cases[] = {
    {"sizes_of_blocks", sizes_of_blocks, 0},
    {"sizes_of_bytes", sizes_of_bytes, 0},
    {"nothing_at_all", nothing_at_all, 0},
    {"to_myself", to_myself, 0},
    {"all_layouts", all_layouts, 0},
    {"slices", slices, 0},
    {"refused_by_the_peer", refused_by_the_peer, 0},
    {"caches_come_and_go", caches_come_and_go, 0},
    {"rights", rights, 0},
    {"revoke_before", revoke_before, 0},
    {"a_file", a_file, 0},
    {"native_or_served", native_or_served, 0},
    {"query_path", cf_query_path, 0},
    {"query_memory", cf_query_memory, 0},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 2, CF_NATIVE}, {"loop", false, 2, CF_OVERTAKE}, {"shm", false, 2, 0},
    {"shm", true, 3, 0},   {"tcp", false, 2, 0}, {"tcp", true, 3, 0},   {"tcp", true, 2, CF_LANE},
    {"tcp", true, 2, KVCL_INIT_NO_THREAD},     {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    setenv("KVCL_NATIVE_TABLE", "loop:0-6000:served:4", 0);
    return cf_main(argc, argv, configs, cases);
}
