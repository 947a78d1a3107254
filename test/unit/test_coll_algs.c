/*
 * Every algorithm in the simulator (coll_sim.h): sizes 1..64, roots, lengths around the chunk, random orders of events,
 * narrow and wide windows, faults; the bounds of each algorithm on messages and rounds; and defective algorithms, which
 * the simulator must detect.
 */
#include "config.h"

#include "test/unit/coll_sim.h"

#include "base/rand.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 48, MOST_RANKS = 64 };

static const uint64_t lengths[] = {0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 7 * CHUNK + 5};

enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

static uint32_t log2_up(uint32_t n)
{
    uint32_t rounds = 0;

    while ((UINT32_C(1) << rounds) < n) {
        ++rounds;
    }
    return rounds;
}

/* The binomial tree's depth when all children pull at once: the most bits set in a virtual rank. */
static uint32_t binomial_depth(uint32_t n)
{
    uint32_t v, depth = 0;

    for (v = 0; v < n; ++v) {
        depth = ((uint32_t)__builtin_popcount(v) > depth) ? (uint32_t)__builtin_popcount(v) : depth;
    }
    return depth;
}

static sim_params_t make_params(uint32_t size, uint32_t root, uint64_t len, uint64_t seed)
{
    return (sim_params_t){
        .shape = {.size = size, .root = root, .len = len, .chunk = CHUNK, .elem = 1},
        .seed  = seed,
    };
}

static void must_run(const kvcl_coll_alg_t *alg, const sim_params_t *params, sim_result_t *result)
{
    const char *wrong = sim_run(alg, params, result);

    ck_assert_msg(wrong == NULL, "%s", wrong);
}

static int has_root(const kvcl_coll_alg_t *alg)
{
    return (alg->kind == KVCL_COLL_BCAST) || (alg->kind == KVCL_COLL_GATHER) || (alg->kind == KVCL_COLL_SCATTER);
}

/* What src/coll/coll_post.c sends without acknowledgements. */
static int may_have_no_acks(const kvcl_coll_alg_t *alg)
{
    return (alg->kind == KVCL_COLL_ALLREDUCE) || (alg->kind == KVCL_COLL_ALLGATHER) ||
           (alg->kind == KVCL_COLL_ALLTOALL);
}

/* The roots to try: all of a small communicator, four of a large one. */
static uint32_t root_count(const kvcl_coll_alg_t *alg, uint32_t size)
{
    return !has_root(alg) ? 1 : ((size <= 9) ? size : 4);
}

static uint32_t pick_root(uint32_t i, uint32_t size, kvcl_rand_t *rnd)
{
    if (size <= 9) {
        return i;
    }
    return (i == 0) ? 0 : ((i == 1) ? size - 1 : (uint32_t)kvcl_rand_below(rnd, size));
}

/* One algorithm, all sizes, roots, lengths; each with its own order of events and windows. */
START_TEST(every_rank_ends_with_the_right_bytes)
{
    const kvcl_coll_alg_t *alg = kvcl_coll_alg_at((size_t)_i);
    kvcl_rand_t            rnd;
    sim_result_t           result;
    uint32_t               size, i, l;

    kvcl_rand_seed(&rnd, sim_seed() + (uint64_t)_i);
    for (size = 1; size <= MOST_RANKS; ++size) {
        for (i = 0; i < root_count(alg, size); ++i) {
            for (l = 0; l < ((alg->kind == KVCL_COLL_BARRIER) ? 1 : LENGTHS); ++l) {
                sim_params_t params = make_params(size, pick_root(i, size, &rnd), lengths[l], kvcl_rand_next(&rnd));

                params.in_order         = (kvcl_rand_below(&rnd, 4) == 0);
                params.no_acks          = may_have_no_acks(alg) && (kvcl_rand_below(&rnd, 2) == 0);
                params.limits.pulls     = (uint32_t)kvcl_rand_below(&rnd, 4);
                params.limits.announces = (uint32_t)kvcl_rand_below(&rnd, 4);
                must_run(alg, &params, &result);
                ck_assert_uint_eq(result.succeeded, size);
                if (params.limits.pulls > 0) {
                    ck_assert_uint_le(result.most_pulls, params.limits.pulls);
                }
            }
        }
    }
}
END_TEST

static void check_doubling(uint32_t n, const sim_result_t *result)
{
    uint32_t power = 1, rounds = 0;

    while (power * 2 <= n) {
        power *= 2;
        ++rounds;
    }
    ck_assert_uint_eq(result->announces, (power * rounds) + (2 * (n - power)));
    ck_assert_uint_le(result->rounds, (n == power) ? rounds : (rounds + 2));
}

/* Check the bounds of each algorithm: messages sent, bytes moved, rounds. */
static void check_promise(const kvcl_coll_alg_t *alg, uint32_t n, uint64_t len, const sim_result_t *result)
{
    uint64_t chunks = (len + CHUNK - 1) / CHUNK;

    if (alg->kind == KVCL_COLL_ALLTOALLV) {
        ck_assert_uint_le(result->pulled_bytes, (uint64_t)n * (n - 1) * 2 * len);
    } else if (has_root(alg)) {
        ck_assert_uint_eq(result->pulled_bytes, (n - 1) * len);
    } else if (alg->kind == KVCL_COLL_ALLREDUCE) {
        ck_assert_uint_eq(result->pulled_bytes,
                          (alg == &kvcl_coll_alg_allreduce_doubling) ? (result->announces * len) : 2 * (n - 1) * len);
    } else if (alg->kind != KVCL_COLL_BARRIER) {
        ck_assert_uint_eq(result->pulled_bytes, (uint64_t)n * (n - 1) * len);
    }
    ck_assert_uint_eq(result->acks, (alg->kind == KVCL_COLL_BARRIER) ? 0 : result->announces);
    if (alg == &kvcl_coll_alg_bcast_flat) {
        ck_assert_uint_eq(result->announces, n - 1);
        ck_assert_uint_eq(result->rounds, (n > 1) ? 1 : 0);
    } else if (alg == &kvcl_coll_alg_bcast_binomial) {
        ck_assert_uint_eq(result->announces, n - 1);
        ck_assert_uint_eq(result->rounds, binomial_depth(n));
        ck_assert_uint_le(result->rounds, log2_up(n));
    } else if (alg == &kvcl_coll_alg_bcast_chain) {
        ck_assert_uint_eq(result->announces, (n - 1) * chunks);
        ck_assert_uint_eq(result->rounds, n - 1);
    } else if (alg == &kvcl_coll_alg_barrier_dissemination) {
        ck_assert_uint_eq(result->announces, (uint64_t)n * log2_up(n));
        ck_assert_uint_eq(result->rounds, log2_up(n));
    } else if (alg == &kvcl_coll_alg_allgather_ring) {
        ck_assert_uint_eq(result->announces, (uint64_t)n * (n - 1) * chunks);
        ck_assert_uint_eq(result->rounds, n - 1);
    } else if (alg == &kvcl_coll_alg_allgather_bruck) {
        ck_assert_uint_ge(result->announces, (uint64_t)n * log2_up(n));
        ck_assert_uint_le(result->announces, (uint64_t)n * log2_up(n) + n * log2_up(n));
        ck_assert_uint_le(result->rounds, 2 * log2_up(n)); /* a run around the end counts as two */
    } else if ((alg == &kvcl_coll_alg_allgather_direct) || (alg == &kvcl_coll_alg_alltoall_pairwise)) {
        ck_assert_uint_eq(result->announces, (uint64_t)n * (n - 1) * chunks);
        ck_assert_uint_eq(result->rounds, (n > 1) ? 1 : 0);
    } else if ((alg == &kvcl_coll_alg_gather_flat) || (alg == &kvcl_coll_alg_scatter_flat) ||
               (alg == &kvcl_coll_alg_bcast_pieces)) {
        ck_assert_uint_eq(result->announces, (n - 1) * chunks);
        ck_assert_uint_eq(result->rounds, (n > 1) ? 1 : 0);
    } else if (alg == &kvcl_coll_alg_alltoallv_pairwise) {
        ck_assert_uint_le(result->announces, (uint64_t)n * (n - 1) * 2 * chunks);
        ck_assert_uint_le(result->rounds, 1);
    } else if (alg == &kvcl_coll_alg_allreduce_doubling) {
        check_doubling(n, result);
    } else if (alg == &kvcl_coll_alg_allreduce_direct) {
        ck_assert_uint_le(result->announces, 2 * (uint64_t)(n - 1) * (chunks + n));
        ck_assert_uint_le(result->rounds, n); /* the reductions of a part, one after another, and its way back */
    } else if (alg == &kvcl_coll_alg_allreduce_ring) {
        ck_assert_uint_le(result->announces, 2 * (uint64_t)(n - 1) * (chunks + n));
        ck_assert_uint_le(result->rounds, 2 * (n - 1));
    } else if (alg == &kvcl_coll_alg_reduce_scatter_pairwise) {
        ck_assert_uint_eq(result->announces, (uint64_t)n * (n - 1) * chunks);
        ck_assert_uint_le(result->rounds, n - 1); /* its reductions, one after another */
    } else {
        ck_abort_msg("%s promises nothing: add its line", alg->name);
    }
}

START_TEST(messages_and_rounds_are_as_promised)
{
    const kvcl_coll_alg_t *alg = kvcl_coll_alg_at((size_t)_i);
    sim_result_t           result;
    uint32_t               size;

    for (size = 1; size <= MOST_RANKS; ++size) {
        sim_params_t params = make_params(size, size / 2, 5 * CHUNK + 7, sim_seed());

        params.shape.root = has_root(alg) ? (size / 2) : 0;
        params.shape.len  = (alg->kind == KVCL_COLL_BARRIER) ? 0 : params.shape.len;
        must_run(alg, &params, &result);
        check_promise(alg, size, params.shape.len, &result);
    }
}
END_TEST

/* Few ranks, many orders of events, elements of several bytes, and an operation that shows each order of operands. */
START_TEST(all_ranks_get_the_same_bits_of_every_reduction)
{
    const kvcl_coll_alg_t *alg = kvcl_coll_alg_at((size_t)_i);
    kvcl_rand_t            rnd;
    sim_result_t           result;
    uint32_t               size, run;

    kvcl_rand_seed(&rnd, sim_seed() + 1000 + (uint64_t)_i);
    for (size = 2; size <= 9; ++size) {
        for (run = 0; (run < 300) && ((alg->kind == KVCL_COLL_ALLREDUCE) || (alg->kind == KVCL_COLL_REDUCE_SCATTER));
             ++run) {
            uint32_t     elem   = UINT32_C(1) << kvcl_rand_below(&rnd, 4);
            sim_params_t params = make_params(size, 0, elem * kvcl_rand_below(&rnd, 60), kvcl_rand_next(&rnd));

            params.shape.elem       = elem;
            params.shape.chunk      = kvcl_rand_below(&rnd, 40);
            params.odd              = (int)kvcl_rand_below(&rnd, 2);
            params.no_acks          = may_have_no_acks(alg) && (kvcl_rand_below(&rnd, 2) == 0);
            params.limits.pulls     = (uint32_t)kvcl_rand_below(&rnd, 4);
            params.limits.announces = (uint32_t)kvcl_rand_below(&rnd, 4);
            must_run(alg, &params, &result);
            ck_assert_uint_eq(result.succeeded, size);
        }
    }
}
END_TEST

START_TEST(failures_end_everywhere_and_release_every_buffer)
{
    const kvcl_coll_alg_t *alg    = kvcl_coll_alg_at((size_t)_i);
    uint64_t               failed = 0, run;
    kvcl_rand_t            rnd;
    sim_result_t           result;

    kvcl_rand_seed(&rnd, sim_seed() ^ (uint64_t)(_i + 1));
    for (run = 0; run < 1500; ++run) {
        uint32_t     size   = 1 + (uint32_t)kvcl_rand_below(&rnd, 20);
        uint64_t     len    = (alg->kind == KVCL_COLL_BARRIER) ? 0 : lengths[kvcl_rand_below(&rnd, LENGTHS)];
        uint32_t     root   = has_root(alg) ? (uint32_t)kvcl_rand_below(&rnd, size) : 0;
        sim_params_t params = make_params(size, root, len, kvcl_rand_next(&rnd));

        params.fault            = (sim_fault_t)(1 + kvcl_rand_below(&rnd, SIM_FAULTS - 1));
        params.no_acks          = may_have_no_acks(alg) && (kvcl_rand_below(&rnd, 2) == 0);
        params.limits.pulls     = (uint32_t)kvcl_rand_below(&rnd, 3);
        params.limits.announces = (uint32_t)kvcl_rand_below(&rnd, 3);
        must_run(alg, &params, &result);
        failed += result.failed;
    }
    ck_assert_uint_gt(failed, 0);
}
END_TEST

START_TEST(a_chunk_wish_that_makes_too_many_pieces_grows)
{
    sim_params_t params = make_params(3, 0, 5000, sim_seed());
    sim_result_t result;

    params.shape.chunk = 1;
    must_run(&kvcl_coll_alg_bcast_chain, &params, &result);
    ck_assert_uint_eq(result.announces, 2 * 1000);
    params.shape.chunk = 0;
    must_run(&kvcl_coll_alg_bcast_chain, &params, &result);
    ck_assert_uint_eq(result.announces, 2);
}
END_TEST

/* Broken on purpose. */

static void plan_eager_chain(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    if (shape->rank > 0) {
        kvcl_plan_recv(plan, shape->rank - 1, 0, shape->len, KVCL_STEP_NONE);
    }
    if (shape->rank + 1 < shape->size) {
        kvcl_plan_send(plan, shape->rank + 1, 0, shape->len, KVCL_STEP_NONE); /* should wait for the recv */
    }
}

static void plan_missing_send(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    if (shape->rank > 0) {
        kvcl_plan_recv(plan, shape->rank - 1, 0, shape->len, KVCL_STEP_NONE);
    } else {
        kvcl_plan_send(plan, 1, 0, shape->len, KVCL_STEP_NONE);
    }
}

static void plan_short(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    if (shape->rank > 0) {
        kvcl_plan_recv(plan, 0, 0, shape->len - 1, KVCL_STEP_NONE);
    } else {
        uint32_t r;

        for (r = 1; r < shape->size; ++r) {
            kvcl_plan_send(plan, r, 0, shape->len - 1, KVCL_STEP_NONE);
        }
    }
}

static void plan_crossed(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint64_t half = shape->len / 2;

    if (shape->rank == 1) {
        uint32_t recv = kvcl_plan_recv(plan, 0, half, half, KVCL_STEP_NONE); /* the halves are exchanged */
        kvcl_plan_recv(plan, 0, 0, half, recv);
    } else if (shape->rank == 0) {
        uint32_t send = kvcl_plan_send(plan, 1, 0, half, KVCL_STEP_NONE);
        kvcl_plan_send(plan, 1, half, half, send);
    }
}

static void plan_loose_barrier(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t d, heard = KVCL_STEP_NONE;

    for (d = 1; d < shape->size; d *= 2) {
        kvcl_plan_send(plan, (shape->rank + d) % shape->size, 0, 0, heard);
        /* should wait for the RECV before */
        heard = kvcl_plan_recv(plan, (shape->rank + shape->size - d) % shape->size, 0, 0, KVCL_STEP_NONE);
    }
}

/* Each rank reduces into the bytes that its partner still reads. */
static void plan_in_place_doubling(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t bit, have = KVCL_STEP_NONE;

    for (bit = 1; bit < shape->size; bit *= 2) {
        kvcl_plan_send(plan, shape->rank ^ bit, 0, shape->len, have);
        have = kvcl_plan_reduce(plan, shape->rank ^ bit, 0, 0, 0, shape->len, have);
    }
}

static void plan_forgetful_alltoall(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t peer = 1 - shape->rank;

    kvcl_plan_send(plan, peer, peer * shape->len, shape->len, KVCL_STEP_NONE);
    kvcl_plan_recv(plan, peer, peer * shape->len, shape->len, KVCL_STEP_NONE); /* it lies elsewhere at the peer */
}

static const struct {
    kvcl_coll_alg_t alg;
    uint32_t        size;
    const char     *found;
} broken[] = {
    {{.kind = KVCL_COLL_BCAST, .name = "eager-chain", .plan = plan_eager_chain}, 4, "before the bytes are there"},
    {{.kind = KVCL_COLL_BCAST, .name = "missing-send", .plan = plan_missing_send}, 4, "never ends"},
    {{.kind = KVCL_COLL_BCAST, .name = "short", .plan = plan_short}, 4, "wrong byte"},
    {{.kind = KVCL_COLL_BCAST, .name = "crossed", .plan = plan_crossed}, 2, "refused a message"},
    {{.kind = KVCL_COLL_BARRIER, .name = "loose-barrier", .plan = plan_loose_barrier}, 16, "left the barrier before"},
    {{.kind = KVCL_COLL_ALLREDUCE, .name = "in-place-doubling", .plan = plan_in_place_doubling}, 4, "wrong byte"},
    {{.kind = KVCL_COLL_ALLTOALL, .name = "forgetful-alltoall", .plan = plan_forgetful_alltoall}, 2,
     "refused a message"},
};

START_TEST(the_simulator_finds_broken_algorithms_out)
{
    const char  *wrong = NULL;
    sim_result_t result;
    uint64_t     seed;

    for (seed = 0; (seed < 20000) && (wrong == NULL); ++seed) {
        sim_params_t params = make_params(broken[_i].size, 0, 2 * CHUNK, seed);

        params.shape.len = (broken[_i].alg.kind == KVCL_COLL_BARRIER) ? 0 : params.shape.len;
        wrong            = sim_run(&broken[_i].alg, &params, &result);
    }
    ck_assert_msg(wrong != NULL, "%s was not found out", broken[_i].alg.name);
    ck_assert_msg(strstr(wrong, broken[_i].found) != NULL, "found something else: %s", wrong);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("collectives: algorithms");
    TCase   *tcase = tcase_create("all");
    SRunner *runner;
    int      failed, algs = 0;

    sim_seed(); /* before the forks, so that all tests share it */
    while (kvcl_coll_alg_at((size_t)algs) != NULL) {
        ++algs;
    }
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, every_rank_ends_with_the_right_bytes, 0, algs);
    tcase_add_loop_test(tcase, messages_and_rounds_are_as_promised, 0, algs);
    tcase_add_loop_test(tcase, all_ranks_get_the_same_bits_of_every_reduction, 0, algs);
    tcase_add_loop_test(tcase, failures_end_everywhere_and_release_every_buffer, 0, algs);
    tcase_add_test(tcase, a_chunk_wish_that_makes_too_many_pieces_grows);
    tcase_add_loop_test(tcase, the_simulator_finds_broken_algorithms_out, 0,
                        (int)(sizeof(broken) / sizeof(broken[0])));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
