/*
 * The values that kvcl_replay derives from a trace before it runs: the generated trace's statistics, hits and hot
 * prefixes, keys, pool sizes; and its options.
 */
#include "config.h"
#include "tools/replay/generate.h"
#include "tools/replay/idmap.h"
#include "tools/replay/models.h"
#include "tools/replay/options.h"
#include "tools/replay/plan.h"
#include "tools/replay/worker.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static uint32_t quantile_of_blocks(const trace_t *trace, unsigned percent)
{
    uint32_t *sizes = malloc(trace->n_requests * sizeof(*sizes));
    uint32_t value;
    size_t   i;

    ck_assert_ptr_nonnull(sizes);
    for (i = 0; i < trace->n_requests; ++i) {
        sizes[i] = trace->requests[i].n;
    }
    qsort(sizes, trace->n_requests, sizeof(*sizes), by_size);
    value = sizes[(trace->n_requests * percent) / 100];
    free(sizes);
    return value;
}

START_TEST(the_generated_trace_has_the_real_ones_shape)
{
    trace_t  trace;
    plan_t   plan;
    double   ratio;
    uint32_t p50, p99;

    trace_init(&trace);
    ck_assert(trace_generate(&trace, 12000, (uint64_t)_i));
    ck_assert(plan_make(&plan, &trace, 0, 4, 256));
    ratio = (double)plan.hits / (double)trace.n_ids;
    p50   = quantile_of_blocks(&trace, 50);
    p99   = quantile_of_blocks(&trace, 99);
    ck_assert_msg((ratio > 0.31) && (ratio < 0.42), "%.3f of the blocks hit", ratio);
    ck_assert_msg((p50 >= 12) && (p50 <= 16), "p50 %u", p50);
    ck_assert_msg((p99 >= 130) && (p99 <= 210), "p99 %u", p99);
    ck_assert_uint_le(trace.longest, 247);
    ck_assert_uint_gt(plan.n_hot, 0);
    plan_free(&plan);
    trace_free(&trace);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_trace)
{
    trace_t a, b, c;

    trace_init(&a);
    trace_init(&b);
    trace_init(&c);
    ck_assert(trace_generate(&a, 500, 7) && trace_generate(&b, 500, 7) && trace_generate(&c, 500, 8));
    ck_assert_uint_eq(a.n_ids, b.n_ids);
    ck_assert_mem_eq(a.ids, b.ids, a.n_ids * sizeof(*a.ids));
    ck_assert((a.n_ids != c.n_ids) || (memcmp(a.ids, c.ids, a.n_ids * sizeof(*a.ids)) != 0));
    trace_free(&a);
    trace_free(&b);
    trace_free(&c);
}
END_TEST

static void add(trace_t *trace, const uint64_t *ids, uint32_t n)
{
    const trace_request_t request = {0};

    ck_assert(trace_add(trace, &request, ids, n));
}

START_TEST(a_block_is_the_same_only_behind_the_same_blocks)
{
    const uint64_t a[] = {1, 2, 3}, b[] = {1, 2, 4}, c[] = {9, 2, 3}, d[] = {1, 2, 3};
    trace_t        trace;
    plan_t         plan;

    trace_init(&trace);
    add(&trace, a, 3);
    add(&trace, b, 3);
    add(&trace, c, 3);
    add(&trace, d, 3);
    ck_assert(plan_make(&plan, &trace, 1, 2, 0));
    ck_assert_uint_eq(plan.distinct, 7);
    ck_assert_uint_eq(plan.hits, 2 + 3);
    ck_assert_uint_eq(plan.own_first, 1);    /* rank 1 has b and d: only b's 4 is new */
    ck_assert_uint_eq(plan.own_distinct, 4); /* 1, 2, 4 and d's 3 */
    ck_assert_uint_eq(plan.all_distinct, 4 + 6);
    ck_assert_uint_eq(plan.n_hot, 0);
    plan_free(&plan);
    trace_free(&trace);
}
END_TEST

START_TEST(a_prefix_asked_for_by_most_ranks_is_broadcast_once)
{
    uint64_t ids[12];
    trace_t  trace;
    plan_t   plan;
    size_t   i;

    trace_init(&trace);
    for (i = 0; i < 12; ++i) {
        ids[i] = i;
    }
    for (i = 0; i < 200; ++i) {
        ids[11] = 100 + i; /* the last block differs in each request */
        add(&trace, ids, 12);
    }
    ck_assert(plan_make(&plan, &trace, 3, 4, 256));
    ck_assert_uint_eq(plan.n_hot, 1);
    ck_assert_uint_eq(plan.hot[0].request, 2); /* the third of four ranks */
    ck_assert_uint_eq(plan.hot[0].before, 6);  /* a round later */
    ck_assert_uint_eq(plan.hot[0].begin, 0);
    ck_assert_uint_eq(plan.hot[0].end, 11);
    ck_assert_uint_eq(plan.hot_blocks, 11);
    plan_free(&plan);
    ck_assert(plan_make(&plan, &trace, 0, 1, 256)); /* alone: no rank to notify */
    ck_assert_uint_eq(plan.n_hot, 0);
    plan_free(&plan);
    trace_free(&trace);
}
END_TEST

START_TEST(every_rank_makes_the_same_broadcasts)
{
    trace_t trace;
    plan_t  first, other;
    int     rank;

    trace_init(&trace);
    ck_assert(trace_generate(&trace, 3000, 3));
    ck_assert(plan_make(&first, &trace, 0, 7, 100));
    for (rank = 1; rank < 7; ++rank) {
        ck_assert(plan_make(&other, &trace, rank, 7, 100));
        ck_assert_uint_eq(first.n_hot, other.n_hot);
        ck_assert_mem_eq(first.hot, other.hot, first.n_hot * sizeof(*first.hot));
        ck_assert_uint_eq(first.hits, other.hits);
        plan_free(&other);
    }
    plan_free(&first);
    trace_free(&trace);
}
END_TEST

static int by_key(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(kvcl_key_t));
}

/* Keys must distinguish blocks exactly as the plan does: as many different keys as different prefix blocks. */
START_TEST(keys_are_as_many_as_prefix_blocks)
{
    kvcl_key_t root, *keys;
    uint32_t   tokens[2 * 256];
    uint64_t   distinct = 0;
    trace_t    trace;
    plan_t     plan;
    size_t     i;

    trace_init(&trace);
    ck_assert(trace_generate(&trace, 1000, 11));
    ck_assert(plan_make(&plan, &trace, 0, 4, 256));
    keys = malloc(trace.n_ids * sizeof(*keys));
    ck_assert_ptr_nonnull(keys);
    kvcl_key_root(NULL, 0, "kvcl_replay", &root);
    for (i = 0; i < trace.n_requests; ++i) {
        ck_assert_int_eq(worker_keys(&trace, &trace.requests[i], trace.requests[i].n, &root, tokens,
                                     keys + trace.requests[i].first),
                         KVCL_OK);
    }
    qsort(keys, trace.n_ids, sizeof(*keys), by_key);
    for (i = 0; i < trace.n_ids; ++i) {
        distinct += ((i == 0) || (memcmp(&keys[i], &keys[i - 1], sizeof(*keys)) != 0)) ? 1u : 0u;
    }
    ck_assert_uint_eq(distinct, plan.distinct);
    free(keys);
    plan_free(&plan);
    trace_free(&trace);
}
END_TEST

START_TEST(ids_that_differ_above_32_bits_have_different_keys)
{
    const uint64_t a[] = {5}, b[] = {5 + (UINT64_C(1) << 40)};
    kvcl_key_t     root, key_a, key_b;
    uint32_t       tokens[2];
    trace_t        trace;

    trace_init(&trace);
    add(&trace, a, 1);
    add(&trace, b, 1);
    kvcl_key_root(NULL, 0, "kvcl_replay", &root);
    ck_assert_int_eq(worker_keys(&trace, &trace.requests[0], 1, &root, tokens, &key_a), KVCL_OK);
    ck_assert_int_eq(worker_keys(&trace, &trace.requests[1], 1, &root, tokens, &key_b), KVCL_OK);
    ck_assert(!kvcl_key_equal(&key_a, &key_b));
    trace_free(&trace);
}
END_TEST

START_TEST(an_unlimited_pool_holds_what_the_rank_computes)
{
    replay_options_t opt  = {.block_bytes = 8192, .pool_bytes = REPLAY_POOL_UNLIMITED, .in_order = true};
    char             error[256];
    worker_room_t    room;
    trace_t          trace;
    plan_t           plan;

    trace_init(&trace);
    ck_assert(trace_generate(&trace, 1000, 1));
    ck_assert(plan_make(&plan, &trace, 2, 4, 256));
    ck_assert(worker_size_pool(&opt, &trace, &plan, 4, &room, error, sizeof(error)));
    ck_assert_uint_ge(room.blocks, plan.own_first + plan.hot_blocks + trace.longest);
    ck_assert_uint_ge(room.dir_entries, plan.distinct);
    opt.in_order = false;
    ck_assert(worker_size_pool(&opt, &trace, &plan, 4, &room, error, sizeof(error)));
    ck_assert_uint_ge(room.blocks, plan.own_distinct + plan.hot_blocks + trace.longest);

    opt.pool_bytes = 20 * 8192;
    ck_assert(worker_size_pool(&opt, &trace, &plan, 4, &room, error, sizeof(error)));
    ck_assert_uint_eq(room.blocks, 20);
    ck_assert_uint_eq(room.window, 10);

    opt.pool_bytes = 3 * 8192;
    ck_assert(!worker_size_pool(&opt, &trace, &plan, 4, &room, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, "--pool is too small: 4 blocks of 8192 bytes are the least"));

    opt.block_bytes = UINT64_C(1) << 31;
    opt.pool_bytes  = REPLAY_POOL_UNLIMITED;
    ck_assert(!worker_size_pool(&opt, &trace, &plan, 4, &room, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, "more than the machine has"));
    plan_free(&plan);
    trace_free(&trace);
}
END_TEST

START_TEST(pools_of_a_store_have_their_share)
{
    replay_options_t opt = {.block_bytes = 8192, .store = true, .replicas = 2, .pool_share = 0.25};
    char             error[256];
    worker_room_t    room;
    trace_t          trace;
    plan_t           plan;

    trace_init(&trace);
    ck_assert(trace_generate(&trace, 1000, 1));
    ck_assert(plan_make(&plan, &trace, 2, 4, 0));
    ck_assert(worker_size_store(&opt, &trace, &plan, 4, &room, error, sizeof(error)));
    ck_assert_uint_eq(room.blocks, plan.distinct / 16);
    ck_assert_uint_ge(room.dir_entries, 2 * room.blocks); /* four pools, two homes, three of them left */
    ck_assert_uint_le(room.window, room.blocks / 4);

    opt.nvme = "/nvme/file:80M"; /* 10,240 blocks a rank */
    ck_assert(worker_size_store(&opt, &trace, &plan, 4, &room, error, sizeof(error)));
    ck_assert_uint_ge(room.dir_entries, 2 * 4 * 10240 / 3);

    opt.pool_share = 0;
    ck_assert(worker_size_store(&opt, &trace, &plan, 4, &room, error, sizeof(error)));
    ck_assert_uint_ge(room.blocks, plan.distinct);

    opt.pool_bytes = 4 * 8192;
    ck_assert(worker_size_store(&opt, &trace, &plan, 4, &room, error, sizeof(error)));
    ck_assert_uint_eq(room.blocks, 4);
    ck_assert_uint_eq(room.window, 1);
    opt.pool_bytes = 3 * 8192;
    ck_assert(!worker_size_store(&opt, &trace, &plan, 4, &room, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, "--pool is too small"));
    plan_free(&plan);
    trace_free(&trace);
}
END_TEST

START_TEST(a_map_numbers_pairs_in_order)
{
    idmap_t  map;
    bool     is_new;
    uint32_t i;

    idmap_init(&map);
    for (i = 0; i < 20000; ++i) {
        ck_assert_uint_eq(idmap_number(&map, i * UINT64_C(4294967296), i % 7, &is_new), i);
        ck_assert(is_new);
    }
    for (i = 0; i < 20000; ++i) {
        ck_assert_uint_eq(idmap_number(&map, i * UINT64_C(4294967296), i % 7, &is_new), i);
        ck_assert(!is_new);
    }
    idmap_free(&map);
}
END_TEST

START_TEST(models_are_known_by_name)
{
    ck_assert_uint_eq(replay_model_bytes_per_token("llama-3-8b"), 128 * 1024);
    ck_assert_uint_eq(replay_model_bytes_per_token("llama-3-70b"), 320 * 1024);
    ck_assert_uint_eq(replay_model_bytes_per_token("qwen3-8b"), 144 * 1024);
    ck_assert_uint_eq(replay_model_bytes_per_token("qwen3-235b"), 188 * 1024);
    ck_assert_uint_eq(replay_model_bytes_per_token("deepseek-v3"), 70272);
    ck_assert_uint_eq(replay_model_bytes_per_token("kimi-k2"), 70272);
    ck_assert_uint_eq(replay_model_bytes_per_token("gpt-2"), 0);
    ck_assert_str_eq(replay_model_names(), "llama-3-8b, llama-3-70b, qwen3-8b, qwen3-235b, deepseek-v3, kimi-k2");
}
END_TEST

START_TEST(options_settle_sizes)
{
    const char *const model[] = {"kvcl_replay", "--model", "llama-3-8b", "--pool", "2G", "--speed=1.5", NULL};
    const char *const both[]  = {"kvcl_replay", "--model", "llama-3-8b", "--bytes-per-token", "16", NULL};
    const char *const pool[]  = {"kvcl_replay", "--pool", "lots", NULL};
    const char *const large[] = {"kvcl_replay", "--bytes-per-token", "8M", NULL};
    replay_options_t opt;

    ck_assert_int_eq(replay_options_parse(&opt, 1, (char **)model), CLI_GO);
    ck_assert_uint_eq(opt.block_bytes, 16 * 512);
    ck_assert_uint_eq(opt.pool_bytes, REPLAY_POOL_UNLIMITED);
    ck_assert_int_eq(replay_options_parse(&opt, 6, (char **)model), CLI_GO);
    ck_assert_uint_eq(opt.block_bytes, 64u << 20);
    ck_assert_uint_eq(opt.pool_bytes, UINT64_C(2) << 30);
    ck_assert(opt.speed > 1.49);
    ck_assert_int_eq(replay_options_parse(&opt, 5, (char **)both), CLI_BAD);
    ck_assert_int_eq(replay_options_parse(&opt, 3, (char **)pool), CLI_BAD);
    ck_assert_int_eq(replay_options_parse(&opt, 3, (char **)large), CLI_BAD);
}
END_TEST

static cli_result_t parse(replay_options_t *opt, const char *a, const char *b, const char *c, const char *d)
{
    const char *const argv[] = {"kvcl_replay", a, b, c, d, NULL};
    int               argc   = 1;

    while (argv[argc] != NULL) {
        ++argc;
    }
    return replay_options_parse(opt, argc, (char **)argv);
}

START_TEST(options_of_the_store)
{
    static const char *const bad_kills[] = {"", "1", "1@", "@1", "-1@1", "1@-1", "1@nan", "1@2x", "70000@1", "1@1e9",
                                            "x@1", "1 @1", "1@ 1", "99999999999999999999@1", "1@hel", "1@held ",
                                            "@held", "70000@held", "1@held"};
    static const char *const bad_pools[] = {"0%", "101%", "%", "nan%", "-1%", "10%%", "10 %"};
    replay_options_t         opt;
    size_t                   i;

    ck_assert_int_eq(parse(&opt, "--store", NULL, NULL, NULL), CLI_GO);
    ck_assert_int_eq(opt.kill_rank, REPLAY_KILL_NONE);
    ck_assert_uint_eq(opt.replicas, 1);
    ck_assert_int_eq(parse(&opt, "--store", "--kill=3@2.5", "--replicas=2", "--nvme=/a:1G"), CLI_GO);
    ck_assert_int_eq(opt.kill_rank, 3);
    ck_assert_uint_eq(opt.kill_ns, UINT64_C(2500000000));
    ck_assert_uint_eq(opt.replicas, 2);
    ck_assert_str_eq(opt.nvme, "/a:1G");
    ck_assert_int_eq(parse(&opt, "--store", "--kill=3@held", "--replicas=2", NULL), CLI_GO);
    ck_assert_int_eq(opt.kill_rank, 3);
    ck_assert(opt.kill_ns == REPLAY_KILL_HELD);
    ck_assert_int_eq(parse(&opt, "--store", "--pool=25%", NULL, NULL), CLI_GO);
    ck_assert(opt.pool_share > 0.249 && opt.pool_share < 0.251);

    ck_assert_int_eq(parse(&opt, "--pool=25%", NULL, NULL, NULL), CLI_BAD);
    ck_assert_int_eq(parse(&opt, "--kill=1@1", NULL, NULL, NULL), CLI_BAD);
    ck_assert_int_eq(parse(&opt, "--replicas=2", NULL, NULL, NULL), CLI_BAD);
    ck_assert_int_eq(parse(&opt, "--nvme=/a:1G", NULL, NULL, NULL), CLI_BAD);
    ck_assert_int_eq(parse(&opt, "--store", "--replicas=5", NULL, NULL), CLI_BAD);
    ck_assert_int_eq(parse(&opt, "--store", "--kill=1@1", "--in-order", NULL), CLI_BAD);
    for (i = 0; i < sizeof(bad_kills) / sizeof(bad_kills[0]); ++i) {
        ck_assert_msg(parse(&opt, "--store", "--kill", bad_kills[i], NULL) == CLI_BAD, "--kill \"%s\"", bad_kills[i]);
    }
    for (i = 0; i < sizeof(bad_pools) / sizeof(bad_pools[0]); ++i) {
        ck_assert_msg(parse(&opt, "--store", "--pool", bad_pools[i], NULL) == CLI_BAD, "--pool \"%s\"", bad_pools[i]);
    }
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("tools_replay");
    TCase   *tcase  = tcase_create("replay");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, the_generated_trace_has_the_real_ones_shape, 1, 5);
    tcase_add_test(tcase, the_same_seed_gives_the_same_trace);
    tcase_add_test(tcase, a_block_is_the_same_only_behind_the_same_blocks);
    tcase_add_test(tcase, a_prefix_asked_for_by_most_ranks_is_broadcast_once);
    tcase_add_test(tcase, every_rank_makes_the_same_broadcasts);
    tcase_add_test(tcase, keys_are_as_many_as_prefix_blocks);
    tcase_add_test(tcase, ids_that_differ_above_32_bits_have_different_keys);
    tcase_add_test(tcase, an_unlimited_pool_holds_what_the_rank_computes);
    tcase_add_test(tcase, a_map_numbers_pairs_in_order);
    tcase_add_test(tcase, models_are_known_by_name);
    tcase_add_test(tcase, options_settle_sizes);
    tcase_add_test(tcase, options_of_the_store);
    tcase_add_test(tcase, pools_of_a_store_have_their_share);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
