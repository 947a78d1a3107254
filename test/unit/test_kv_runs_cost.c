/*
 * What a run list costs: nanoseconds a run to walk it, to make it, and the bandwidth of kvcl_runs_copy
 * beside a memcpy loop over the same list written out as an array. Prints numbers and asserts only that
 * counts are right and bytes arrive: time on a shared machine proves nothing. KVCL_TEST_COST=1 takes the
 * full sizes of facts.md; without it memory stays under 100 MiB.
 */
#include "kv/runs.h"

#include "base/rand.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

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

typedef struct work {
    const char *name;
    kvcl_shape_t shape;
    uintptr_t *dst_bases, *src_bases;
    uint8_t *dst, *src;
    kvcl_side_t d, s;
    kvcl_run_t *list;
    uint64_t n_runs;
} work_t;

static void setup(work_t *w, const char *name, const kvcl_layout_t *layout, uint32_t *ids)
{
    uint32_t n, b;
    size_t all;

    w->name = name;
    ck_assert_int_eq(kvcl_shape_init(&w->shape, layout), KVCL_OK);
    n = (uint32_t)w->shape.blocks;
    all = w->shape.base_bytes * w->shape.n_bases;
    w->dst = map(all);
    w->src = map(all);
    memset(w->src, 0x5a, all);
    w->dst_bases = calloc(w->shape.n_bases, sizeof(uintptr_t));
    w->src_bases = calloc(w->shape.n_bases, sizeof(uintptr_t));
    for (b = 0; b < w->shape.n_bases; ++b) {
        w->dst_bases[b] = (uintptr_t)w->dst + (b * w->shape.base_bytes);
        w->src_bases[b] = (uintptr_t)w->src + (b * w->shape.base_bytes);
    }
    random_ids(ids, n, 1);
    random_ids(ids + n, n, 2);
    w->d = (kvcl_side_t){.shape = &w->shape, .bases = w->dst_bases, .sel = {.blocks = ids, .n_blocks = n}};
    w->s = (kvcl_side_t){.shape = &w->shape, .bases = w->src_bases, .sel = {.blocks = ids + n, .n_blocks = n}};
}

static void write_out(work_t *w, const kvcl_runs_t *runs)
{
    kvcl_runs_t walk = *runs;
    uint64_t i = 0;

    w->n_runs = kvcl_runs_count(runs, SIZE_MAX);
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
        t = now_ns();
        while (kvcl_runs_next(&runs, SIZE_MAX, &run)) {
            sum += run.dst ^ run.src ^ run.len;
        }
        walk = best(walk, now_ns() - t);
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
    ck_assert_int_eq(bad, 0);
    ck_assert_int_eq(memcmp(w->dst, w->src, w->shape.base_bytes * w->shape.n_bases), 0);
    free(w->list);
}

static void teardown(work_t *w)
{
    munmap(w->dst, w->shape.base_bytes * w->shape.n_bases);
    munmap(w->src, w->shape.base_bytes * w->shape.n_bases);
    free(w->dst_bases);
    free(w->src_bases);
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

int main(void)
{
    Suite *suite = suite_create("kv_runs_cost");
    TCase *tc = tcase_create("cost");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, cost_of_the_lists_of_real_prompts);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
