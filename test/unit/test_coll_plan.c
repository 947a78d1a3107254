/*
 * Plans themselves: appending, indexing, the checks, the refusals of kvcl_coll_plan, and the cache.
 */
#include "config.h"

#include "collectives/pattern_chunk.h"
#include "collectives/pattern_part.h"
#include "collectives/plan_cache.h"

#include "base/error.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static kvcl_plan_t plan;

static void setup(void)
{
    kvcl_plan_init(&plan);
}

static void teardown(void)
{
    kvcl_plan_fini(&plan);
}

static const kvcl_coll_shape_t bcast_of_4 = {.rank = 1, .size = 4, .root = 0, .len = 1000, .chunk = 100};

START_TEST(seal_numbers_the_steps_of_each_peer_in_order)
{
    kvcl_plan_recv(&plan, 7, 0, 1, KVCL_STEP_NONE);
    kvcl_plan_send(&plan, 7, 0, 1, 0);
    kvcl_plan_send(&plan, 2, 0, 1, 0);
    kvcl_plan_recv(&plan, 2, 1, 1, 0);
    kvcl_plan_recv(&plan, 7, 1, 1, KVCL_STEP_NONE);
    kvcl_plan_send(&plan, 7, 1, 1, 4);
    ck_assert_int_eq(kvcl_plan_seal(&plan), KVCL_OK);
    ck_assert_uint_eq(plan.npeers, 2);
    ck_assert_uint_eq(kvcl_plan_find_peer(&plan, 2), 0);
    ck_assert_uint_eq(kvcl_plan_find_peer(&plan, 7), 1);
    ck_assert_uint_eq(kvcl_plan_find_peer(&plan, 3), KVCL_STEP_NONE);
    ck_assert_uint_eq(plan.peers[0].recvs, 1);
    ck_assert_uint_eq(plan.peers[1].sends, 2);
    ck_assert_uint_eq(plan.index[plan.peers[1].first_send], 1);
    ck_assert_uint_eq(plan.index[plan.peers[1].first_send + 1], 5);
    ck_assert_uint_eq(plan.index[plan.peers[1].first_recv], 0);
    ck_assert_uint_eq(plan.index[plan.peers[1].first_recv + 1], 4);
    ck_assert_uint_eq(plan.steps[5].k, 1);
    ck_assert_uint_eq(plan.steps[0].first_dep, 1); /* then 2, then 3 */
    ck_assert_uint_eq(plan.steps[1].next_dep, 2);
    ck_assert_uint_eq(plan.steps[2].next_dep, 3);
    ck_assert_uint_eq(plan.steps[3].next_dep, KVCL_STEP_NONE);
}
END_TEST

START_TEST(a_failed_append_sticks)
{
    ck_assert_uint_eq(kvcl_plan_send(&plan, 1, 0, 1, 0), KVCL_STEP_NONE); /* waits for itself */
    ck_assert_uint_eq(kvcl_plan_send(&plan, 1, 0, 1, KVCL_STEP_NONE), KVCL_STEP_NONE);
    ck_assert_uint_eq(plan.count, 0);
    ck_assert_int_eq(kvcl_plan_seal(&plan), KVCL_ERR_INTERNAL);
}
END_TEST

START_TEST(too_many_steps_are_an_error)
{
    uint32_t i;

    for (i = 0; i <= KVCL_PLAN_MAX_STEPS; ++i) {
        kvcl_plan_send(&plan, 1, 0, 1, KVCL_STEP_NONE);
    }
    ck_assert_int_eq(kvcl_plan_seal(&plan), KVCL_ERR_INTERNAL);
}
END_TEST

START_TEST(check_names_the_bad_step)
{
    kvcl_plan_send(&plan, 1, 0, 8, KVCL_STEP_NONE);
    kvcl_plan_recv(&plan, 2, UINT64_MAX, 8, KVCL_STEP_NONE);
    ck_assert_int_eq(kvcl_plan_seal(&plan), KVCL_OK);
    ck_assert_int_eq(kvcl_plan_check(&plan, 0, 3, 8, 8), KVCL_ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "step 1"));
    plan.steps[1].off = 0;
    ck_assert_int_eq(kvcl_plan_check(&plan, 0, 3, 8, 8), KVCL_OK);
    ck_assert_int_eq(kvcl_plan_check(&plan, 0, 3, 7, 7), KVCL_ERR_INTERNAL); /* longer than the buffer */
    ck_assert_int_eq(kvcl_plan_check(&plan, 0, 2, 8, 8), KVCL_ERR_INTERNAL); /* no rank 2 */
    ck_assert_int_eq(kvcl_plan_check(&plan, 1, 3, 8, 8), KVCL_ERR_INTERNAL); /* a send to itself */
    ck_assert_int_eq(kvcl_plan_check(&plan, 0, 3, 7, 8), KVCL_ERR_INTERNAL); /* the one to send from */
    ck_assert_int_eq(kvcl_plan_check(&plan, 0, 3, 8, 7), KVCL_ERR_INTERNAL); /* the one to receive into */
    plan.steps[1].with = 1;
    ck_assert_int_eq(kvcl_plan_check(&plan, 0, 3, 8, 8), KVCL_ERR_INTERNAL); /* an operand that ends outside */
    plan.steps[1].with = 0;
    ck_assert_int_eq(kvcl_plan_check(&plan, 0, 3, 8, 8), KVCL_OK);
    plan.steps[1].after = 1;
    ck_assert_int_eq(kvcl_plan_check(&plan, 0, 3, 8, 8), KVCL_ERR_INTERNAL);
}
END_TEST

START_TEST(bad_shapes_are_refused)
{
    kvcl_coll_shape_t shape = bcast_of_4;

    shape.root = 4;
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_bcast_flat, &shape, &plan), KVCL_ERR_UNKNOWN_RANK);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "root 4"));
    shape      = bcast_of_4;
    shape.rank = 4;
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_bcast_flat, &shape, &plan), KVCL_ERR_INVALID_PARAM);
    shape     = bcast_of_4;
    shape.len = UINT64_MAX / 2;
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_allgather_ring, &shape, &plan), KVCL_ERR_INVALID_PARAM);
    shape.len = UINT64_MAX / 4;
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_bcast_flat, &shape, &plan), KVCL_OK); /* nothing is multiplied */
    kvcl_plan_fini(&plan);
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_allreduce_doubling, &shape, &plan), KVCL_OK);
    kvcl_plan_fini(&plan);
    shape.len = UINT64_MAX / 2;
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_allreduce_doubling, &shape, &plan), KVCL_ERR_INVALID_PARAM);
    shape.len  = 10;
    shape.elem = 4;
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_allreduce_ring, &shape, &plan), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "no whole elements"));
    ck_assert_uint_eq(plan.count, 0);
}
END_TEST

START_TEST(the_signature_tells_shapes_and_algorithms_apart_but_not_ranks)
{
    kvcl_coll_shape_t shape = bcast_of_4;
    kvcl_plan_t       other;

    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_bcast_chain, &shape, &plan), KVCL_OK);
    shape.rank = 3;
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_bcast_chain, &shape, &other), KVCL_OK);
    ck_assert_uint_eq(plan.signature, other.signature);
    kvcl_plan_fini(&other);
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_bcast_flat, &shape, &other), KVCL_OK);
    ck_assert_uint_ne(plan.signature, other.signature);
    kvcl_plan_fini(&other);
    shape.len = 999;
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_bcast_chain, &shape, &other), KVCL_OK);
    ck_assert_uint_ne(plan.signature, other.signature);
    kvcl_plan_fini(&other);
    shape           = bcast_of_4;
    shape.reduction = 1;
    ck_assert_int_eq(kvcl_coll_plan(&kvcl_coll_alg_bcast_chain, &shape, &other), KVCL_OK);
    ck_assert_uint_ne(plan.signature, other.signature);
    kvcl_plan_fini(&other);
}
END_TEST

START_TEST(parts_cover_all_elements_once)
{
    static const uint64_t counts[] = {1, 2, 5, 64, 1000, UINT64_MAX / 8};
    static const uint64_t wishes[] = {0, 1, 100, UINT64_MAX};
    kvcl_coll_shape_t     shape    = {.elem = 8};
    size_t                i, j;
    uint32_t              r, piece;

    for (i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        for (j = 0; j < sizeof(wishes) / sizeof(wishes[0]); ++j) {
            for (shape.size = 1; shape.size < 9; ++shape.size) {
                uint64_t at = 0;

                shape.len   = counts[i] * 8;
                shape.chunk = wishes[j];
                for (r = 0; r < shape.size; ++r) {
                    kvcl_part_t part = kvcl_part_of(&shape, r);

                    ck_assert_uint_le(kvcl_part_pieces(&part), KVCL_PART_PIECES);
                    for (piece = 0; piece < kvcl_part_pieces(&part); ++piece) {
                        uint64_t off, len = kvcl_part_piece(&part, piece, &off);

                        ck_assert_uint_eq(off, at);
                        ck_assert_uint_gt(len, 0);
                        ck_assert_uint_eq(len % 8, 0);
                        at += len;
                    }
                }
                ck_assert_uint_eq(at, shape.len);
            }
        }
    }
}
END_TEST

START_TEST(chunks_cover_any_length_and_stay_few)
{
    static const uint64_t lens[] = {1, 2, 1023, 1024, 1025, 1048576, UINT64_MAX};
    static const uint64_t wishes[] = {0, 1, 2, 1024, 1 << 20, UINT64_MAX};
    size_t                i, j;

    for (i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i) {
        for (j = 0; j < sizeof(wishes) / sizeof(wishes[0]); ++j) {
            uint64_t chunk = kvcl_chunk_bytes(lens[i], wishes[j]);

            ck_assert_uint_gt(chunk, 0);
            ck_assert_uint_le(chunk, lens[i]);
            ck_assert_uint_le((lens[i] - 1) / chunk, KVCL_CHUNKS_MAX - 1);
        }
    }
}
END_TEST

START_TEST(the_cache_gives_the_same_plan_again)
{
    kvcl_coll_shape_t  shape = bcast_of_4;
    kvcl_plan_cache_t  cache;
    kvcl_plan_entry_t *a, *b;

    kvcl_plan_cache_init(&cache);
    ck_assert_int_eq(kvcl_plan_cache_get(&cache, &kvcl_coll_alg_bcast_chain, &bcast_of_4, &a), KVCL_OK);
    ck_assert_int_eq(kvcl_plan_cache_get(&cache, &kvcl_coll_alg_bcast_chain, &bcast_of_4, &b), KVCL_OK);
    ck_assert_ptr_eq(a, b);
    kvcl_plan_cache_put(&cache, a);
    kvcl_plan_cache_put(&cache, b);
    ck_assert_int_eq(kvcl_plan_cache_get(&cache, &kvcl_coll_alg_bcast_flat, &bcast_of_4, &b), KVCL_OK);
    ck_assert_ptr_ne(a, b);
    kvcl_plan_cache_put(&cache, b);
    shape.reduction = 1;
    ck_assert_int_eq(kvcl_plan_cache_get(&cache, &kvcl_coll_alg_bcast_flat, &shape, &a), KVCL_OK);
    ck_assert_ptr_ne(a, b); /* of another type of elements */
    kvcl_plan_cache_put(&cache, a);
    ck_assert_uint_eq(cache.hits, 1);
    ck_assert_uint_eq(cache.misses, 3);
    kvcl_plan_cache_fini(&cache);
}
END_TEST

START_TEST(the_cache_evicts_the_oldest_and_never_what_is_lent_out)
{
    kvcl_plan_entry_t *lent[KVCL_PLAN_CACHE_ENTRIES], *extra;
    kvcl_coll_shape_t  shape = bcast_of_4;
    kvcl_plan_cache_t  cache;
    uint32_t           i;

    kvcl_plan_cache_init(&cache);
    for (i = 0; i < KVCL_PLAN_CACHE_ENTRIES; ++i) {
        shape.len = 1 + i;
        ck_assert_int_eq(kvcl_plan_cache_get(&cache, &kvcl_coll_alg_bcast_flat, &shape, &lent[i]), KVCL_OK);
    }
    shape.len = 1000;
    ck_assert_int_eq(kvcl_plan_cache_get(&cache, &kvcl_coll_alg_bcast_flat, &shape, &extra), KVCL_OK);
    ck_assert_int_eq(extra->cached, 0); /* for one use */
    kvcl_plan_cache_put(&cache, extra);
    for (i = 0; i < KVCL_PLAN_CACHE_ENTRIES; ++i) {
        ck_assert_uint_eq(lent[i]->plan.steps[0].len, 1 + i);
        kvcl_plan_cache_put(&cache, lent[i]);
    }
    ck_assert_int_eq(kvcl_plan_cache_get(&cache, &kvcl_coll_alg_bcast_flat, &shape, &extra), KVCL_OK);
    ck_assert_ptr_eq(extra, lent[0]);
    kvcl_plan_cache_put(&cache, extra);
    shape.len = 2; /* still cached */
    ck_assert_int_eq(kvcl_plan_cache_get(&cache, &kvcl_coll_alg_bcast_flat, &shape, &extra), KVCL_OK);
    ck_assert_uint_eq(cache.hits, 1);
    kvcl_plan_cache_put(&cache, extra);
    kvcl_plan_cache_fini(&cache);
}
END_TEST

START_TEST(a_refused_shape_leaves_the_cache_alone)
{
    kvcl_coll_shape_t  shape = bcast_of_4;
    kvcl_plan_entry_t *entry = NULL;
    kvcl_plan_cache_t  cache;

    shape.root = 9;
    kvcl_plan_cache_init(&cache);
    ck_assert_int_eq(kvcl_plan_cache_get(&cache, &kvcl_coll_alg_bcast_flat, &shape, &entry), KVCL_ERR_UNKNOWN_RANK);
    ck_assert_ptr_null(entry);
    kvcl_plan_cache_fini(&cache);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("collectives: plans");
    TCase   *tcase = tcase_create("all");
    SRunner *runner;
    int      failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, seal_numbers_the_steps_of_each_peer_in_order);
    tcase_add_test(tcase, a_failed_append_sticks);
    tcase_add_test(tcase, too_many_steps_are_an_error);
    tcase_add_test(tcase, check_names_the_bad_step);
    tcase_add_test(tcase, bad_shapes_are_refused);
    tcase_add_test(tcase, the_signature_tells_shapes_and_algorithms_apart_but_not_ranks);
    tcase_add_test(tcase, parts_cover_all_elements_once);
    tcase_add_test(tcase, chunks_cover_any_length_and_stay_few);
    tcase_add_test(tcase, the_cache_gives_the_same_plan_again);
    tcase_add_test(tcase, the_cache_evicts_the_oldest_and_never_what_is_lent_out);
    tcase_add_test(tcase, a_refused_shape_leaves_the_cache_alone);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
