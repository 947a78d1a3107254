/*
 * The simulator of eviction policies (contrib/bench/policies), and the number of hits of the store's eviction order on
 * a trace of known blocks: not fewer than LRU's, nor than when this test was written.
 */
#include "config.h"

#include "contrib/bench/policies/chains.h"
#include "tools/replay/generate.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 1500, SEED = 7 };

static trace_t  trace;
static chains_t chains;

static void open_trace(void)
{
    trace_init(&trace);
    ck_assert(trace_generate(&trace, REQUESTS, SEED));
    ck_assert(chains_make(&chains, &trace));
}

static void close_trace(void)
{
    chains_free(&chains);
    trace_free(&trace);
}

static outcome_t outcome_of(const policy_t *policy, uint32_t capacity)
{
    outcome_t outcome;

    ck_assert(chains_run(&chains, policy, capacity, &outcome));
    return outcome;
}

/* LRU again, implemented as slowly and plainly as possible. */
static uint64_t plain_lru(uint32_t capacity, uint64_t *runs_p)
{
    uint64_t *last = calloc(chains.n_keys, sizeof(*last)), now = 0, hits = 0;
    uint32_t r, i, k, used = 0, oldest;
    bool     run;

    ck_assert_ptr_nonnull(last);
    for (r = 0; r < chains.n_requests; ++r) {
        for (i = chains.first[r], run = true; i < chains.first[r + 1]; ++i) {
            hits    += last[chains.ids[i]] != 0;
            run      = run && (last[chains.ids[i]] != 0);
            *runs_p += run;
        }
        for (i = chains.first[r + 1]; i-- > chains.first[r];) {
            if (last[chains.ids[i]] != 0) {
                last[chains.ids[i]] = ++now;
            }
        }
        for (i = chains.first[r + 1]; i-- > chains.first[r];) {
            if (last[chains.ids[i]] != 0) {
                continue;
            }
            if (used == capacity) {
                for (k = 0, oldest = POOL_NONE; k < chains.n_keys; ++k) {
                    if ((last[k] != 0) && ((oldest == POOL_NONE) || (last[k] < last[oldest]))) {
                        oldest = k;
                    }
                }
                last[oldest] = 0;
                --used;
            }
            last[chains.ids[i]] = ++now;
            ++used;
        }
    }
    free(last);
    return hits;
}

START_TEST(lru_is_lru)
{
    const uint32_t capacity = chains.n_keys / 10;
    const outcome_t lru     = outcome_of(&policy_lru, capacity);
    uint64_t        runs    = 0;

    ck_assert_uint_eq(lru.block_hits, plain_lru(capacity, &runs));
    ck_assert_uint_eq(lru.run_hits, runs);
}
END_TEST

/* Where no block must be evicted all policies are equal, and hit every block seen before. */
START_TEST(a_pool_for_all_hits_what_was_seen)
{
    outcome_t outcome;
    size_t    p;

    for (p = 0; p < n_policies; ++p) {
        outcome = outcome_of(policies[p], chains.n_keys);
        ck_assert_msg(outcome.block_hits == chains.n_ids - chains.n_keys, "%s: %llu", policies[p]->name,
                      (unsigned long long)outcome.block_hits);
        ck_assert_uint_eq(outcome.evicted, 0);
    }
}
END_TEST

START_TEST(nobody_beats_the_one_who_sees_the_future)
{
    static const uint32_t percents[] = {1, 5, 10, 25, 50, 90};
    uint32_t              capacity   = ((uint64_t)chains.n_keys * percents[_i]) / 100;
    const uint64_t        bound      = outcome_of(&policy_belady, capacity).block_hits;
    outcome_t             outcome;
    size_t                p;

    for (p = 0; p < n_policies; ++p) {
        outcome = outcome_of(policies[p], capacity);
        ck_assert_msg(outcome.block_hits <= bound, "%s: %llu of %llu", policies[p]->name,
                      (unsigned long long)outcome.block_hits, (unsigned long long)bound);
        ck_assert_uint_le(outcome.run_hits, outcome.block_hits);
    }
}
END_TEST

/* Pools of one or two blocks, where off-by-one errors in borders show. */
START_TEST(tiny_pools_work)
{
    size_t   p;
    uint32_t capacity;

    for (p = 0; p < n_policies; ++p) {
        for (capacity = 1; capacity < 12; ++capacity) {
            ck_assert_uint_le(outcome_of(policies[p], capacity).run_hits, chains.n_ids);
        }
    }
}
END_TEST

/* The hits of the store's order when its rule was chosen: fewer is a regression. In this trace a conversation continues
 * with the same probability whether it has before or not, so that LRU is as good as any policy; this order is never
 * more than 1% worse. */
START_TEST(the_stores_order_hits_as_often_as_it_did)
{
    static const struct {
        uint32_t percent;
        uint64_t run_hits;
    } was[] = {{5, 10455}, {10, 13658}, {25, 14982}, {50, 15160}};
    const uint32_t  capacity = ((uint64_t)chains.n_keys * was[_i].percent) / 100;
    const outcome_t ours     = outcome_of(&policy_kvcl, capacity);

    printf("%u%%: %llu hits, %llu orphans\n", was[_i].percent, (unsigned long long)ours.run_hits,
           (unsigned long long)ours.orphans);
    ck_assert_uint_ge(ours.run_hits, was[_i].run_hits);
    ck_assert_uint_ge(100 * ours.run_hits, 99 * outcome_of(&policy_lru, capacity).run_hits);
    ck_assert_uint_le(ours.orphans * 1000, ours.evicted); /* children left behind, by requests as long as the pool */
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("store_policies");
    TCase   *tc    = tcase_create("policies");
    SRunner *runner;
    int      failed;

    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, open_trace, close_trace);
    tcase_add_test(tc, lru_is_lru);
    tcase_add_test(tc, a_pool_for_all_hits_what_was_seen);
    tcase_add_loop_test(tc, nobody_beats_the_one_who_sees_the_future, 0, 6);
    tcase_add_test(tc, tiny_pools_work);
    tcase_add_loop_test(tc, the_stores_order_hits_as_often_as_it_did, 0, 4);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
