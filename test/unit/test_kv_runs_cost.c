/*
 * The cost of a run list: nanoseconds per run to walk it and to make it, and the bandwidth of kvcl_runs_copy against a
 * memcpy loop over the same list written out as an array. Prints numbers and asserts only that counts are right and
 * bytes arrive, since time on a shared machine proves nothing. KVCL_TEST_COST=1 uses the full sizes of facts.md;
 * without it memory stays under 100 MiB.
 */
#include "kv/runs.h"

#include "base/rand.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { WALKS = 5 }; /* short rounds, the best of many */

static double now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ((double)ts.tv_sec * 1e9) + (double)ts.tv_nsec;
}

static void random_ids(uint32_t *ids, uint32_t n, uint64_t seed)
{
    kvcl_rand_t rnd;
    uint32_t i, j, t;

    kvcl_rand_seed(&rnd, seed);
    for (i = 0; i < n; ++i) {
        ids[i] = i;
    }
    for (i = n; i > 1; --i) {
        j = (uint32_t)kvcl_rand_below(&rnd, i);
        t = ids[i - 1], ids[i - 1] = ids[j], ids[j] = t;
    }
}

static uint8_t *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    ck_assert(p != MAP_FAILED);
    return p;
}

typedef struct end {
    kvcl_shape_t shape;
    uintptr_t *bases;
    uint8_t *mem;
} end_t;

typedef struct work {
    const char *name;
    end_t dst, src;
    kvcl_side_t d, s;
    kvcl_run_t *list;
    uint64_t n_runs;
} work_t;

static kvcl_side_t make_end(end_t *end, const kvcl_layout_t *layout, uint32_t *ids, uint64_t seed)
{
    uint32_t b;

    ck_assert_int_eq(kvcl_shape_init(&end->shape, layout), KVCL_OK);
    end->mem = map(end->shape.base_bytes * end->shape.n_bases);
    end->bases = calloc(end->shape.n_bases, sizeof(uintptr_t));
    for (b = 0; b < end->shape.n_bases; ++b) {
        end->bases[b] = (uintptr_t)end->mem + (b * end->shape.base_bytes);
    }
    random_ids(ids, (uint32_t)end->shape.blocks, seed);
    return (kvcl_side_t){.shape = &end->shape, .bases = end->bases,
                         .sel = {.blocks = ids, .n_blocks = (uint32_t)end->shape.blocks}};
}

/* Copy all blocks of a cache in random order to all blocks of another, which may have another layout. */
static void setup_two(work_t *w, const char *name, const kvcl_layout_t *dst, const kvcl_layout_t *src, uint32_t *ids)
{
    size_t i, all;

    w->name = name;
    w->d = make_end(&w->dst, dst, ids, 1);
    w->s = make_end(&w->src, src, ids + w->dst.shape.blocks, 2);
    all = w->src.shape.base_bytes * w->src.shape.n_bases;
    for (i = 0; i < all; ++i) {
        w->src.mem[i] = (uint8_t)((i * 2654435761u) >> 13);
    }
}

static void setup(work_t *w, const char *name, const kvcl_layout_t *layout, uint32_t *ids)
{
    setup_two(w, name, layout, layout, ids);
}

static void write_out(work_t *w, const kvcl_runs_t *runs)
{
    kvcl_runs_t walk = *runs;
    uint64_t    i = 0;
    kvcl_run_t  run;

    for (w->n_runs = 0; kvcl_runs_next(&walk, SIZE_MAX, &run); ++w->n_runs) {
    }
    walk    = *runs;
    w->list = calloc(w->n_runs, sizeof(*w->list));
    while (kvcl_runs_next(&walk, SIZE_MAX, &w->list[i])) {
        ++i;
    }
    ck_assert_uint_eq(i, w->n_runs);
}

static double best(double a, double b)
{
    return (a < b) ? a : b;
}

static void measure(work_t *w, uint32_t order)
{
    double t, walk = 1e18, make = 1e18, check = 1e18, copy = 1e18, plain = 1e18;
    kvcl_runs_t runs;
    kvcl_run_t run;
    uintptr_t sum = 0;
    uint64_t i;
    int round, bad = 0;

    ck_assert_int_eq(kvcl_runs_init(&runs, &w->d, &w->s, order), KVCL_OK);
    write_out(w, &runs);
    for (round = 0; round < 7; ++round) {
        t = now_ns();
        bad += kvcl_side_check(&w->d) != KVCL_OK; /* ck_assert itself costs microseconds */
        bad += kvcl_side_check(&w->s) != KVCL_OK;
        check = best(check, now_ns() - t);
        t = now_ns();
        bad += kvcl_runs_init(&runs, &w->d, &w->s, order) != KVCL_OK;
        make = best(make, now_ns() - t);
        for (i = 0; i < WALKS; ++i) {
            kvcl_runs_seek(&runs, 0);
            t = now_ns();
            while (kvcl_runs_next(&runs, SIZE_MAX, &run)) {
                sum += run.dst ^ run.src ^ run.len;
            }
            walk = best(walk, now_ns() - t);
        }
        kvcl_runs_seek(&runs, 0);
        t = now_ns();
        (void)!kvcl_runs_copy(&runs, 0, kvcl_runs_bytes(&runs));
        copy = best(copy, now_ns() - t);
        t = now_ns();
        for (i = 0; i < w->n_runs; ++i) {
            memcpy((void *)w->list[i].dst, (const void *)w->list[i].src, w->list[i].len);
        }
        plain = best(plain, now_ns() - t);
    }
    printf("%-34s %8llu runs of %6zu: walk %5.1f ns/run, make %4.0f ns, check %4.2f ns/id, copy %5.2f GB/s, memcpy of "
           "the written list %5.2f GB/s (%c)\n",
           w->name, (unsigned long long)w->n_runs, w->list[0].len, walk / (double)w->n_runs, make,
           check / (2.0 * (double)w->d.sel.n_blocks), (double)kvcl_runs_bytes(&runs) / copy,
           (double)kvcl_runs_bytes(&runs) / plain, (sum == 42) ? '!' : '.');
    for (i = 0; i < w->n_runs; ++i) {
        bad += memcmp((void *)w->list[i].dst, (const void *)w->list[i].src, w->list[i].len) != 0;
    }
    ck_assert_int_eq(bad, 0);
    free(w->list);
}

static void teardown(work_t *w)
{
    munmap(w->dst.mem, w->dst.shape.base_bytes * w->dst.shape.n_bases);
    munmap(w->src.mem, w->src.shape.base_bytes * w->src.shape.n_bases);
    free(w->dst.bases);
    free(w->src.bases);
}

START_TEST(cost_of_the_lists_of_real_prompts)
{
    uint64_t part = (getenv("KVCL_TEST_COST") != NULL) ? 1 : 16;
    uint32_t *ids = calloc(2 * 131072, sizeof(*ids));
    kvcl_layout_t llama70 = KVCL_LAYOUT_NHD(.layers = 80, .blocks = 512 / part, .tokens = 16, .heads = 1,
                                            .head_dim = 128, .elem_bytes = 2, .flags = KVCL_LAYOUT_PER_LAYER);
    kvcl_layout_t llama8 = KVCL_LAYOUT_NHD(.layers = 32, .blocks = 512 / part, .tokens = 16, .heads = 8,
                                           .head_dim = 128, .elem_bytes = 2, .flags = KVCL_LAYOUT_PER_LAYER);
    kvcl_layout_t mla = KVCL_LAYOUT_NHD(.layers = 61, .kv = 1, .blocks = 128 / part, .tokens = 64, .heads = 1,
                                        .head_dim = 576, .elem_bytes = 2, .flags = KVCL_LAYOUT_PER_LAYER);
    kvcl_layout_t opaque = KVCL_LAYOUT_BYTES(81920 / part, 4096);
    work_t w;

    setup(&w, "llama-70b tp8, layer order", &llama70, ids);
    measure(&w, KVCL_RUNS_ANY_ORDER);
    w.name = "llama-70b tp8, canonical order";
    measure(&w, KVCL_STREAM_CANONICAL);
    teardown(&w);
    setup(&w, "llama-8b", &llama8, ids);
    measure(&w, KVCL_RUNS_ANY_ORDER);
    w.name = "llama-8b, head by head";
    measure(&w, KVCL_STREAM_HND);
    teardown(&w);
    setup(&w, "deepseek mla, 64 tokens", &mla, ids);
    measure(&w, KVCL_RUNS_ANY_ORDER);
    teardown(&w);
    setup(&w, "opaque 4 KiB", &opaque, ids);
    measure(&w, KVCL_RUNS_ANY_ORDER);
    teardown(&w);
    free(ids);
}
END_TEST

/* Blocks of 16 tokens from blocks of 64, where the run of a unit is all of it, a plane or a head; and ranges of
 * tokens. */
START_TEST(cost_of_blocks_of_unequal_size)
{
    uint64_t part = (getenv("KVCL_TEST_COST") != NULL) ? 1 : 4;
    uint32_t *ids = calloc(2 * 131072, sizeof(*ids));
    kvcl_layout_t mla64 = KVCL_LAYOUT_NHD(.layers = 61, .kv = 1, .blocks = 128 / part, .tokens = 64, .heads = 1,
                                          .head_dim = 576, .elem_bytes = 2, .flags = KVCL_LAYOUT_PER_LAYER);
    kvcl_layout_t mla16 = mla64, nhd64, nhd16, hnd64, hnd16;
    work_t w;

    mla16.tokens = 16, mla16.blocks = mla64.blocks * 4;
    nhd64 = (kvcl_layout_t)KVCL_LAYOUT_NHD(.layers = 32, .blocks = 128 / part, .tokens = 64, .heads = 2,
                                           .head_dim = 128, .elem_bytes = 2, .flags = KVCL_LAYOUT_PER_LAYER);
    nhd16 = nhd64, nhd16.tokens = 16, nhd16.blocks = nhd64.blocks * 4;
    hnd64 = (kvcl_layout_t)KVCL_LAYOUT_HND(.layers = 32, .blocks = 128 / part, .tokens = 64, .heads = 2,
                                           .head_dim = 128, .elem_bytes = 2, .flags = KVCL_LAYOUT_PER_LAYER);
    hnd16 = hnd64, hnd16.tokens = 16, hnd16.blocks = hnd64.blocks * 4;
    setup_two(&w, "mla, 16 tokens from 64", &mla16, &mla64, ids);
    measure(&w, KVCL_RUNS_ANY_ORDER);
    teardown(&w);
    setup_two(&w, "mla, 64 tokens from 16", &mla64, &mla16, ids);
    measure(&w, KVCL_RUNS_ANY_ORDER);
    w.name = "the same, canonical order";
    measure(&w, KVCL_STREAM_CANONICAL);
    w.name = "the same, tokens 8 to the last 8";
    w.d.sel.tokens = w.s.sel.tokens = (kvcl_range_t){8, (uint32_t)(mla64.blocks * 64) - 8};
    measure(&w, KVCL_RUNS_ANY_ORDER);
    teardown(&w);
    setup_two(&w, "nhd, 16 tokens from 64", &nhd16, &nhd64, ids);
    measure(&w, KVCL_RUNS_ANY_ORDER);
    w.name = "the same, canonical order";
    measure(&w, KVCL_STREAM_CANONICAL);
    teardown(&w);
    setup_two(&w, "hnd, 16 tokens from 64", &hnd16, &hnd64, ids);
    measure(&w, KVCL_RUNS_ANY_ORDER);
    teardown(&w);
    setup_two(&w, "hnd, 64 tokens from nhd, 16", &hnd64, &nhd16, ids);
    measure(&w, KVCL_RUNS_ANY_ORDER);
    teardown(&w);
    free(ids);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_runs_cost");
    TCase *tc = tcase_create("cost");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, cost_of_the_lists_of_real_prompts);
    tcase_add_test(tc, cost_of_blocks_of_unequal_size);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
