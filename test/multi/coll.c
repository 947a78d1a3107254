/*
 * Collectives over the public header, on any number of ranks. All ranks run every case; a rank that detects a mistake
 * reports it on stderr. Rank 0 prints "ok NAME" for a case that was right on all ranks. Exit 1 if any was not.
 *   coll              all cases
 *   coll speed BYTES  times of kvcl_bcast, for people; bytes copied with stores that bypass the caches
 */
#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(_cond)             say_unless((_cond), __LINE__, #_cond)
#define CHECK_IS(_status, _want) say_unless_is((_status), (_want), __LINE__, #_status)

enum { BLOCKS = 96, LONG_S = 60 };

static kvcl_context_h ctx;
static kvcl_comm_h    world;
static int            rank, size;
static bool           good;

static void say_unless(bool right, int line, const char *what)
{
    if (!right && good) { /* only the first mistake of a case is reported */
        fprintf(stderr, "rank %d: line %d: not so: %s (%s)\n", rank, line, what, kvcl_last_error());
    }
    good = good && right;
}

/* The last error's sentence may belong to another call. */
static void say_unless_is(kvcl_status_t status, kvcl_status_t want, int line, const char *what)
{
    if (status != want) {
        fprintf(stderr, "rank %d: %s, not %s\n", rank, kvcl_status_text(status), kvcl_status_text(want));
    }
    say_unless(status == want, line, what);
}

/* The status of the posting call, or the end of the request that it returned. */
static kvcl_status_t finish(kvcl_status_t posted, const kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted;
}

static kvcl_status_t barrier(kvcl_comm_h comm)
{
    kvcl_req_h req = NULL;

    return finish(kvcl_barrier(comm, NULL, &req), &req);
}

static kvcl_status_t bcast_bytes(kvcl_comm_h comm, int root, void *buf, size_t len, uint64_t timeout_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;

    params.timeout_ns = timeout_ns;
    return finish(kvcl_bcast_bytes(comm, root, buf, len, &params, &req), &req);
}

static unsigned char pattern(uint64_t seed, uint64_t i)
{
    uint64_t x = ((seed * 1000003u) + i) * UINT64_C(0x9e3779b97f4a7c15);

    return (unsigned char)(x >> 56);
}

static void fill(unsigned char *buf, size_t len, uint64_t seed)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        buf[i] = pattern(seed, i);
    }
}

static bool holds(const unsigned char *buf, size_t len, uint64_t seed)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        if (buf[i] != pattern(seed, i)) {
            fprintf(stderr, "rank %d: byte %zu of %zu is wrong\n", rank, i, len);
            return false;
        }
    }
    return true;
}

/* ---- cases ---- */

static void barrier_waits_for_the_last(void)
{
    uint64_t start = kvcl_now_ns();
    int      i;

    CHECK(bcast_bytes(world, 0, &start, sizeof(start), 0) == KVCL_OK);
    usleep(20000u * (unsigned)rank);
    CHECK(barrier(world) == KVCL_OK);
    CHECK(kvcl_now_ns() - start >= 20000000u * (uint64_t)(size - 1));
    for (i = 0; i < 200; ++i) {
        CHECK(barrier(world) == KVCL_OK);
    }
}

static void allgather_of_all_lengths(void)
{
    static const size_t lens[] = {0, 1, 7, 1000, 8192, 8193, 40000, 65536};
    unsigned char       *out = malloc(65536 * (size_t)size), in[65536];
    kvcl_req_h          req;
    size_t              i;
    int                 r, alias;

    for (i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i) {
        for (alias = 0; alias < 2; ++alias) {
            unsigned char *mine = alias ? out + ((size_t)rank * lens[i]) : in;
            memset(out, 0xee, 65536 * (size_t)size);
            fill(mine, lens[i], (uint64_t)rank + (i * 100));
            req = NULL;
            CHECK(finish(kvcl_allgather(world, mine, lens[i], out, NULL, &req), &req) == KVCL_OK);
            for (r = 0; r < size; ++r) {
                CHECK(holds(out + ((size_t)r * lens[i]), lens[i], (uint64_t)r + (i * 100)));
            }
        }
    }
    free(out);
}

static void bcast_of_bytes_from_every_root(void)
{
    static const size_t lens[] = {0, 1, 100, 8191, 8192, 8193, 100001, 262144, 300007, (3u << 20) + 5};
    unsigned char       *buf   = malloc((3u << 20) + 6);
    size_t              i;
    int                 root;

    for (i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i) {
        for (root = 0; root < size; ++root) {
            memset(buf, 0xcd, lens[i] + 1);
            if (rank == root) {
                fill(buf, lens[i], i + 10);
            }
            CHECK(bcast_bytes(world, root, buf, lens[i], 0) == KVCL_OK);
            CHECK(holds(buf, lens[i], i + 10));
            CHECK(buf[lens[i]] == 0xcd);
        }
    }
    free(buf);
}

/* Ranks store the same blocks differently: dense, padded with heads outside, opaque, in the caller's memory. */
static kvcl_cache_h make_cache(const char *name, uint32_t tokens, unsigned kind, void **mem_p)
{
    kvcl_layout_t nhd = KVCL_LAYOUT_NHD(.layers = 3, .blocks = BLOCKS, .tokens = tokens, .heads = 4, .head_dim = 64,
                                        .elem_bytes = 2);
    kvcl_layout_t hnd = KVCL_LAYOUT_HND(.flags = KVCL_LAYOUT_PER_LAYER, .layers = 3, .blocks = BLOCKS, .tokens = tokens,
                                        .heads = 4, .head_dim = 64, .elem_bytes = 2,
                                        .block_stride = ((size_t)tokens * 4 * 128) + 256);
    size_t        total = 3ul * 2 * tokens * 4 * 128 * BLOCKS;
    kvcl_layout_t bytes = KVCL_LAYOUT_BYTES(BLOCKS, (uint32_t)(total / BLOCKS));
    kvcl_layout_t *layout = (kind == 0) ? &nhd : (kind == 1) ? &hnd : (kind == 2) ? &bytes : &nhd;
    kvcl_cache_h  cache = NULL;
    void          *bases[1];
    kvcl_cache_params_t memory = {.size = sizeof(memory), .n_bases = 1, .bases = bases, .base_bytes = &total};

    *mem_p = NULL;
    if (kind == 3) {
        *mem_p   = malloc(total);
        bases[0] = *mem_p;
    }
    CHECK(kvcl_cache_create(ctx, name, layout, (kind == 3) ? &memory : NULL, &cache) == KVCL_OK);
    return cache;
}

static void write_blocks(kvcl_cache_h cache, const uint32_t *ids, size_t n, uint64_t seed)
{
    size_t        len = kvcl_cache_block_bytes(cache), i;
    unsigned char *buf = malloc(len);

    for (i = 0; i < n; ++i) {
        fill(buf, len, seed + i);
        CHECK(kvcl_cache_write_block(cache, ids[i], buf, len) == KVCL_OK);
    }
    free(buf);
}

static bool blocks_hold(kvcl_cache_h cache, const uint32_t *ids, size_t n, uint64_t seed)
{
    size_t        len  = kvcl_cache_block_bytes(cache), i;
    unsigned char *buf = malloc(len);
    bool          all  = true;

    for (i = 0; i < n; ++i) {
        CHECK(kvcl_cache_read_block(cache, ids[i], buf, len) == KVCL_OK);
        all = all && holds(buf, len, seed + i);
    }
    free(buf);
    return all;
}

static void choose(uint32_t *ids, size_t n, unsigned salt)
{
    size_t i;

    for (i = 0; i < n; ++i) { /* 13 and BLOCKS have no common divisor */
        ids[i] = (uint32_t)((i * 13 + (unsigned)rank * 5 + salt) % BLOCKS);
    }
}

static void bcast_blocks(uint32_t tokens, const char *name)
{
    static const size_t counts[] = {0, 1, 5, 40};
    uint32_t            ids[BLOCKS], rest[BLOCKS];
    kvcl_sel_t          sel = {.blocks = ids};
    void                *mem;
    kvcl_cache_h        cache = make_cache(name, tokens, (unsigned)rank % 4, &mem);
    kvcl_req_h          req;
    size_t              i;
    int                 root;

    for (i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        for (root = 0; root < size; ++root) {
            choose(ids, BLOCKS, i);
            memcpy(rest, ids + counts[i], (BLOCKS - counts[i]) * sizeof(rest[0]));
            write_blocks(cache, ids, BLOCKS, 777);
            CHECK(barrier(world) == KVCL_OK);
            if (rank == root) {
                write_blocks(cache, ids, counts[i], 5000 + i);
            }
            sel.n_blocks = counts[i];
            req          = NULL;
            CHECK(finish(kvcl_bcast(world, root, cache, &sel, NULL, &req), &req) == KVCL_OK);
            CHECK(blocks_hold(cache, ids, counts[i], 5000 + i));
            CHECK(blocks_hold(cache, rest, BLOCKS - counts[i], 777 + counts[i]));
        }
    }
    CHECK(barrier(world) == KVCL_OK);
    kvcl_cache_destroy(cache);
    free(mem);
}

static void bcast_of_small_blocks_between_layouts(void)
{
    bcast_blocks(1, "small"); /* one block travels with its announcement */
}

static void bcast_of_large_blocks_between_layouts(void)
{
    bcast_blocks(16, "large"); /* 49,152 bytes each: 40 are more than the chunk */
}

/* Some layers and heads only; the same ones, at other places on each rank. */
static void bcast_of_part_of_each_block(void)
{
    uint32_t      ids[8], first = (uint32_t)rank % 2;
    void          *mem;
    kvcl_cache_h  cache = make_cache("part", 4, 0, &mem);
    size_t        len = kvcl_cache_block_bytes(cache), i;
    kvcl_sel_t    sel = {.blocks = ids, .n_blocks = 8, .layers = {first, first + 2},
                         .heads = {first * 2, first * 2 + 2}};
    unsigned char *buf = malloc(len);
    kvcl_req_h    req = NULL;

    choose(ids, 8, 3);
    for (i = 0; i < 8; ++i) {
        memset(buf, rank == size - 1 ? (int)(i + 1) : 0xff, len);
        CHECK(kvcl_cache_write_block(cache, ids[i], buf, len) == KVCL_OK);
    }
    CHECK(finish(kvcl_bcast(world, size - 1, cache, &sel, NULL, &req), &req) == KVCL_OK);
    for (i = 0; i < 8; ++i) {
        size_t at, mine = 0;
        CHECK(kvcl_cache_read_block(cache, ids[i], buf, len) == KVCL_OK);
        for (at = 0; at < len; ++at) {
            mine += (buf[at] == i + 1);
            CHECK((buf[at] == i + 1) || (buf[at] == 0xff));
        }
        CHECK(mine == (rank == size - 1 ? len : len / 3)); /* 2 of 3 layers, 2 of 4 heads */
    }
    CHECK(barrier(world) == KVCL_OK);
    kvcl_cache_destroy(cache);
    free(buf);
    free(mem);
}

static void many_at_once(void)
{
    enum { N = 100 };
    static uint64_t words[N];
    kvcl_req_h      reqs[2 * N];
    int             i;

    for (i = 0; i < N; ++i) {
        words[i]          = (rank == i % size) ? (uint64_t)i * 3 + 1 : 0;
        reqs[2 * i]       = NULL;
        reqs[(2 * i) + 1] = NULL;
        CHECK(kvcl_bcast_bytes(world, i % size, &words[i], sizeof(words[i]), NULL, &reqs[2 * i]) == KVCL_OK);
        CHECK(kvcl_barrier(world, NULL, &reqs[(2 * i) + 1]) == KVCL_OK);
    }
    CHECK(kvcl_req_wait_all(reqs, 2ul * N, (uint64_t)LONG_S * 1000000000u) == KVCL_OK);
    for (i = 0; i < N; ++i) {
        CHECK(words[i] == (uint64_t)i * 3 + 1);
    }
}

static int called;

static void on_done(void *arg, kvcl_status_t status)
{
    *(kvcl_status_t *)arg = status;
    __atomic_add_fetch(&called, 1, __ATOMIC_RELEASE);
}

static void callbacks_and_no_handle(void)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status = KVCL_INPROGRESS;
    uint64_t           end    = kvcl_now_ns() + ((uint64_t)LONG_S * 1000000000u);

    __atomic_store_n(&called, 0, __ATOMIC_RELAXED);
    params.cb     = on_done;
    params.cb_arg = &status;
    CHECK(kvcl_barrier(world, &params, NULL) == KVCL_OK);
    while ((__atomic_load_n(&called, __ATOMIC_ACQUIRE) == 0) && (kvcl_now_ns() < end)) {
        usleep(1000);
    }
    CHECK(__atomic_load_n(&called, __ATOMIC_ACQUIRE) == 1);
    CHECK(status == KVCL_OK);
}

static void different_lengths_are_an_error(void)
{
    static const size_t lens[][2] = {{100, 200}, {9000, 9001}, {100000, 300000}, {300000, 400000}, {0, 500}, {500, 0}};
    unsigned char       *buf = calloc(1, 400000);
    size_t              i;

    for (i = 0; (size > 1) && (i < sizeof(lens) / sizeof(lens[0])); ++i) {
        int           odd    = (rank == size - 1);
        bool          silent = (lens[i][0] == 0) || (lens[i][1] == 0); /* a rank without bytes sends no notice */
        kvcl_status_t status = bcast_bytes(world, 0, buf, lens[i][odd], silent ? 200000000u : LONG_S * 1000000000ull);

        /* A rank that had no exchange with the odd one may have finished before the mistake was known. */
        CHECK((status == KVCL_ERR_INVALID_PARAM) || (silent && (lens[i][odd] != 0) && (status == KVCL_ERR_TIMED_OUT)) ||
              ((status == KVCL_OK) && (silent || (!odd && (size > 2)))));
        CHECK(barrier(world) == KVCL_OK);
    }
    free(buf);
}

static void different_shapes_are_an_error(void)
{
    uint32_t      ids[4] = {0, 1, 2, 3};
    kvcl_sel_t    sel = {.blocks = ids, .n_blocks = 4};
    kvcl_layout_t a = KVCL_LAYOUT_NHD(.layers = 2, .blocks = 8, .tokens = 16, .heads = 4, .head_dim = 64,
                                      .elem_bytes = 2);
    kvcl_layout_t b = KVCL_LAYOUT_NHD(.layers = 2, .blocks = 8, .tokens = 32, .heads = 2, .head_dim = 64,
                                      .elem_bytes = 2);
    kvcl_cache_h  cache = NULL;
    kvcl_req_h    req   = NULL;
    kvcl_status_t status;
    int           odd = (rank == size - 1), turn;

    CHECK(kvcl_cache_create(ctx, "shape", odd ? &b : &a, NULL, &cache) == KVCL_OK);
    for (turn = 0; (size > 1) && (turn < 2); ++turn) { /* other blocks; a different number of them */
        sel.n_blocks = ((turn == 1) && odd) ? 3 : 4;
        status       = finish(kvcl_bcast(world, 0, cache, &sel, NULL, &req), &req);
        req          = NULL;
        CHECK((status == KVCL_ERR_BAD_LAYOUT) || (!odd && (size > 2) && (status == KVCL_OK)));
        CHECK(!odd ||
              (strstr(kvcl_last_error(), (turn == 0) ? "heads is 4 on rank" : "selects 4 blocks, this rank 3") !=
                       NULL));
        CHECK(barrier(world) == KVCL_OK);
    }
    kvcl_cache_destroy(cache);
}

/* The second of two ranks waits for the first. */
static void follow(int first, int second)
{
    kvcl_req_h req  = NULL;
    char       word = 0;

    CHECK_IS(finish((rank == first) ? kvcl_send_bytes(world, second, 1, &word, 1, NULL, &req)
                                    : kvcl_recv_bytes(world, first, 1, &word, 1, NULL, &req), &req), KVCL_OK);
}

/* The last rank enters when the others' barrier has ended without it. */
static void who_comes_too_late_hears_of_it(void)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    int                last   = size - 1, r;

    CHECK(barrier(world) == KVCL_OK);
    for (r = 0; (rank == last) && (r < last); ++r) {
        follow(r, last);
    }
    params.timeout_ns = (rank == last) ? 0 : 200000000u;
    CHECK_IS(finish(kvcl_barrier(world, &params, &req), &req), (size == 1) ? KVCL_OK : KVCL_ERR_TIMED_OUT);
    if (rank != last) {
        follow(rank, last);
    }
    CHECK(barrier(world) == KVCL_OK);
}

static void who_cancels_tells_the_others(void)
{
    unsigned char *buf = calloc(1, 300000);
    kvcl_req_h    req  = NULL;
    int           r;

    CHECK(barrier(world) == KVCL_OK);
    if (rank == 0) {
        CHECK(kvcl_bcast_bytes(world, 0, buf, 300000, NULL, &req) == KVCL_OK);
        kvcl_req_cancel(req);
        CHECK_IS(finish(KVCL_OK, &req), (size == 1) ? KVCL_OK : KVCL_ERR_CANCELED);
        for (r = 1; r < size; ++r) {
            follow(0, r);
        }
    } else {
        follow(0, rank);
        CHECK_IS(bcast_bytes(world, 0, buf, 300000, 0), KVCL_ERR_CANCELED);
    }
    CHECK(barrier(world) == KVCL_OK);
    free(buf);
}

static void communicators_do_not_mix(void)
{
    int         list[64] = {0}, i, n = 0;
    kvcl_comm_h half = NULL, back = NULL;
    uint64_t    word;

    for (i = size - 1; i >= 0; --i) {
        if (i % 2 == rank % 2) {
            list[n++] = i;
        }
    }
    CHECK(kvcl_comm_create(world, list, n, &half) == KVCL_OK);
    for (i = 0; i < size; ++i) {
        list[i] = size - 1 - i;
    }
    CHECK(kvcl_comm_create(world, list, size, &back) == KVCL_OK);
    for (i = 0; i < 20; ++i) {
        word = (kvcl_comm_rank(half) == i % n) ? (uint64_t)(rank % 2) + 10 : 0;
        CHECK(bcast_bytes(half, i % n, &word, sizeof(word), 0) == KVCL_OK);
        CHECK(word == (uint64_t)(rank % 2) + 10);
        word = (rank == 0) ? 99 : 0;
        CHECK(bcast_bytes(back, size - 1, &word, sizeof(word), 0) == KVCL_OK);
        CHECK(word == 99);
    }
    CHECK(barrier(world) == KVCL_OK);
    kvcl_comm_free(half);
    kvcl_comm_free(back);
}

static void bad_calls_change_nothing(void)
{
    uint32_t     id = BLOCKS;
    kvcl_sel_t   sel = {.blocks = &id, .n_blocks = 1};
    void         *mem;
    kvcl_cache_h cache = make_cache("bad", 1, 0, &mem);
    char         byte  = 0;
    kvcl_req_h   req   = NULL;

    CHECK(kvcl_bcast_bytes(world, size, &byte, 1, NULL, &req) == KVCL_ERR_UNKNOWN_RANK);
    CHECK(kvcl_bcast_bytes(world, -1, &byte, 1, NULL, &req) == KVCL_ERR_UNKNOWN_RANK);
    CHECK(kvcl_bcast_bytes(world, 0, NULL, 1, NULL, &req) == KVCL_ERR_INVALID_PARAM);
    CHECK(kvcl_bcast(world, 0, cache, &sel, NULL, &req) == KVCL_ERR_OUT_OF_RANGE);
    CHECK(kvcl_bcast(world, 0, NULL, &sel, NULL, &req) == KVCL_ERR_INVALID_PARAM);
    CHECK(kvcl_barrier(NULL, NULL, &req) == KVCL_ERR_INVALID_PARAM);
    CHECK(req == NULL);
    kvcl_cache_destroy(cache);
    CHECK(barrier(world) == KVCL_OK);
}

/* ---- running the cases ---- */

static bool run(void (*fn)(void), const char *name)
{
    char       mine, *all = malloc((size_t)size);
    kvcl_req_h req = NULL;
    int        i, wrong = 0;

    good = true;
    fn();
    mine = good ? 1 : 0;
    if (finish(kvcl_allgather(world, &mine, 1, all, NULL, &req), &req) != KVCL_OK) {
        fprintf(stderr, "rank %d: %s: the ranks cannot compare: %s\n", rank, name, kvcl_last_error());
        exit(1);
    }
    for (i = 0; i < size; ++i) {
        wrong += (all[i] != 1);
    }
    if (rank == 0) {
        printf("%s %s\n", (wrong == 0) ? "ok" : "WRONG", name);
        fflush(stdout);
    }
    free(all);
    return wrong == 0;
}

static bool speed(size_t bytes)
{
    enum { UNIT = 65536, ROUNDS = 8 };
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(bytes / UNIT, UNIT);
    uint32_t      *ids   = malloc((bytes / UNIT) * sizeof(*ids));
    kvcl_sel_t    sel    = {.blocks = ids, .n_blocks = bytes / UNIT};
    uint64_t      start, took;
    kvcl_cache_h  cache = NULL;
    kvcl_req_h    req;
    size_t        i;

    for (i = 0; i < bytes / UNIT; ++i) {
        ids[i] = (uint32_t)i;
    }
    KVCL_TRY(kvcl_cache_create(ctx, "speed", &layout, NULL, &cache));
    write_blocks(cache, ids, (rank == 0) ? bytes / UNIT : 0, 42);
    for (i = 0; i < ROUNDS; ++i) {
        KVCL_TRY(barrier(world));
        start = kvcl_now_ns();
        req   = NULL;
        KVCL_TRY(finish(kvcl_bcast(world, 0, cache, &sel, NULL, &req), &req));
        KVCL_TRY(barrier(world));
        took = kvcl_now_ns() - start;
        if (rank == 0) {
            printf("bcast of %zu bytes to %d ranks: %.2f ms\n", bytes, size, (double)took / 1e6);
        }
    }
    good = true;
    CHECK(blocks_hold(cache, ids, bytes / UNIT, 42));
    KVCL_TRY(barrier(world));
    kvcl_cache_destroy(cache);
    free(ids);
    if (rank == 0) {
        printf("%s speed\n", good ? "ok" : "WRONG");
    }
    return good;
}

int main(int argc, char **argv)
{
#define CASE(_fn) {_fn, #_fn}
    static const struct {
        void       (*fn)(void);
        const char *name;
    } cases[] = {
        CASE(barrier_waits_for_the_last),
        CASE(allgather_of_all_lengths),
        CASE(bcast_of_bytes_from_every_root),
        CASE(bcast_of_small_blocks_between_layouts),
        CASE(bcast_of_large_blocks_between_layouts),
        CASE(bcast_of_part_of_each_block),
        CASE(many_at_once),
        CASE(callbacks_and_no_handle),
        CASE(different_lengths_are_an_error),
        CASE(different_shapes_are_an_error),
        CASE(who_comes_too_late_hears_of_it),
        CASE(who_cancels_tells_the_others),
        CASE(communicators_do_not_mix),
        CASE(bad_calls_change_nothing),
    };
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;
    size_t               i;
    int                  bad = 0;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    rank = kvcl_comm_rank(world);
    size = kvcl_comm_size(world);
    if ((argc > 2) && (strcmp(argv[1], "speed") == 0)) {
        bad += speed((size_t)strtoull(argv[2], NULL, 0)) ? 0 : 1;
    }
    for (i = 0; (argc < 3) && (i < sizeof(cases) / sizeof(cases[0])); ++i) {
        if ((argc < 2) || (strstr(cases[i].name, argv[1]) != NULL)) {
            bad += run(cases[i].fn, cases[i].name) ? 0 : 1;
        }
    }
    KVCL_TRY(kvcl_context_stats(ctx, &stats));
    if (stats.malformed != 0) { /* right bytes may have arrived by a detour */
        printf("%llu messages made no sense\n", (unsigned long long)stats.malformed);
        ++bad;
    }
    kvcl_finalize(ctx);
    return (bad == 0) ? 0 : 1;
}
