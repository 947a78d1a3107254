/*
 * The eviction order: who goes first, pins, chains, and what S3-FIFO is for.
 */
#include "config.h"

#include "base/rand.h"
#include "store/evict.h"

#include <check.h>
#include <stdlib.h>

static kvcl_evict_t evict;
static void        *mem;

static void open_order(kvcl_evict_policy_t policy, uint32_t n)
{
    mem = malloc(kvcl_evict_bytes(n));
    ck_assert_ptr_nonnull(mem);
    ck_assert_int_eq(kvcl_evict_init(&evict, policy, n, mem, kvcl_evict_bytes(n)), KVCL_OK);
}

static void close_order(void)
{
    ck_assert(kvcl_evict_check(&evict));
    free(mem);
}

static uint64_t hash_of(uint64_t i)
{
    return kvcl_splitmix64(&i);
}

static uint32_t victim(void)
{
    uint32_t slot = UINT32_MAX;

    ck_assert_int_eq(kvcl_evict_victim(&evict, &slot), KVCL_OK);
    return slot;
}

START_TEST(untouched_blocks_leave_first_in_first_out)
{
    uint32_t i, slot;

    open_order((kvcl_evict_policy_t)_i, 20);
    for (i = 0; i < 20; ++i) {
        ck_assert_int_eq(kvcl_evict_insert(&evict, i, hash_of(i)), KVCL_OK);
    }
    for (i = 0; i < 20; ++i) {
        ck_assert_uint_eq(victim(), i);
    }
    ck_assert_int_eq(kvcl_evict_victim(&evict, &slot), KVCL_ERR_NOT_FOUND);
    close_order();
}
END_TEST

START_TEST(what_is_used_often_outlives_a_scan)
{
    uint32_t i, slot, hot = 0;

    open_order(KVCL_EVICT_S3FIFO, 100);
    for (i = 0; i < 100; ++i) {
        ck_assert_int_eq(kvcl_evict_insert(&evict, i, hash_of(i)), KVCL_OK);
    }
    for (i = 0; i < 30; ++i) { /* hot: touched twice */
        kvcl_evict_touch(&evict, i);
        kvcl_evict_touch(&evict, i);
    }
    for (i = 0; i < 1000; ++i) { /* a scan of blocks used once */
        slot = victim();
        hot += slot < 30;
        ck_assert_int_eq(kvcl_evict_insert(&evict, slot, hash_of(1000 + i)), KVCL_OK);
    }
    ck_assert_uint_eq(hot, 0);
    close_order();
}
END_TEST

START_TEST(what_comes_back_soon_goes_to_main)
{
    uint32_t i, slot;

    open_order(KVCL_EVICT_S3FIFO, 40);
    for (i = 0; i < 40; ++i) {
        ck_assert_int_eq(kvcl_evict_insert(&evict, i, hash_of(i)), KVCL_OK);
    }
    slot = victim();
    ck_assert_int_eq(kvcl_evict_insert(&evict, slot, hash_of(slot)), KVCL_OK);
    ck_assert_uint_eq(evict.queue[2].n, 1);
    slot = victim();
    ck_assert_int_eq(kvcl_evict_insert(&evict, slot, hash_of(777)), KVCL_OK);
    ck_assert_uint_eq(evict.queue[2].n, 1);
    close_order();
}
END_TEST

START_TEST(pinned_slots_are_never_victims)
{
    uint32_t i, slot;

    open_order((kvcl_evict_policy_t)_i, 10);
    for (i = 0; i < 10; ++i) {
        ck_assert_int_eq(kvcl_evict_insert(&evict, i, hash_of(i)), KVCL_OK);
        ck_assert_int_eq(kvcl_evict_pin(&evict, i), KVCL_OK);
    }
    ck_assert_int_eq(kvcl_evict_pin(&evict, 3), KVCL_OK);
    ck_assert_int_eq(kvcl_evict_victim(&evict, &slot), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_evict_unpin(&evict, 3), KVCL_OK);
    ck_assert_int_eq(kvcl_evict_victim(&evict, &slot), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_evict_unpin(&evict, 3), KVCL_OK);
    ck_assert_int_eq(kvcl_evict_unpin(&evict, 3), KVCL_ERR_INVALID_PARAM);
    ck_assert_uint_eq(victim(), 3);
    ck_assert_int_eq(kvcl_evict_unpin(&evict, 3), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_evict_remove(&evict, 4), KVCL_OK);
    ck_assert_int_eq(kvcl_evict_remove(&evict, 4), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_evict_insert(&evict, 4, 1), KVCL_OK);
    ck_assert_uint_eq(victim(), 4);
    ck_assert_uint_eq(kvcl_evict_count(&evict), 8);
    close_order();
}
END_TEST

/* Blocks of a chain inserted and touched tail first leave tail first. */
START_TEST(children_leave_before_their_parents)
{
    enum { CHAIN = 10, CHAINS = 5 };
    uint32_t i, chain, slot, last[CHAINS] = {0}, round;

    open_order((kvcl_evict_policy_t)_i, CHAIN * CHAINS);
    for (chain = 0; chain < CHAINS; ++chain) {
        for (i = CHAIN; i-- > 0;) { /* depth i lies in slot chain * CHAIN + i */
            ck_assert_int_eq(kvcl_evict_insert(&evict, chain * CHAIN + i, hash_of(chain * CHAIN + i)), KVCL_OK);
        }
        last[chain] = CHAIN;
    }
    for (round = 0; round < 3; ++round) { /* matches of ever shorter prefixes of chain 2 */
        for (i = CHAIN - 3 * round; i-- > 0;) {
            kvcl_evict_touch(&evict, 2 * CHAIN + i);
        }
    }
    for (i = 0; i < CHAIN * CHAINS; ++i) {
        slot = victim();
        ck_assert_uint_eq(slot % CHAIN, last[slot / CHAIN] - 1);
        last[slot / CHAIN] = slot % CHAIN;
    }
    close_order();
}
END_TEST

START_TEST(random_operations_keep_the_order_whole)
{
    enum { N = 60 };
    kvcl_rand_t rnd;
    uint32_t    in[N] = {0}, pins[N] = {0}, i, slot, count = 0, free_pins;
    unsigned    step;

    kvcl_rand_seed(&rnd, (uint64_t)_i);
    open_order((kvcl_evict_policy_t)(_i % 2), N);
    for (step = 0; step < 20000; ++step) {
        i = (uint32_t)kvcl_rand_below(&rnd, N);
        switch (kvcl_rand_below(&rnd, 6)) {
        case 0:
        case 1:
            ck_assert_int_eq(kvcl_evict_insert(&evict, i, kvcl_rand_below(&rnd, 100)),
                             in[i] ? KVCL_ERR_EXISTS : KVCL_OK);
            count += !in[i];
            in[i] = 1;
            break;
        case 2:
            kvcl_evict_touch(&evict, i);
            break;
        case 3:
            for (slot = 0, free_pins = 0; slot < N; ++slot) {
                free_pins += in[slot] && (pins[slot] == 0);
            }
            if (free_pins == 0) {
                ck_assert_int_eq(kvcl_evict_victim(&evict, &slot), KVCL_ERR_NOT_FOUND);
                break;
            }
            slot = victim();
            ck_assert(in[slot] && pins[slot] == 0);
            in[slot] = 0;
            --count;
            break;
        case 4:
            if (kvcl_evict_pin(&evict, i) == KVCL_OK) {
                ++pins[i];
            }
            break;
        default:
            if ((pins[i] > 0) && (kvcl_evict_unpin(&evict, i) == KVCL_OK)) {
                --pins[i];
            }
        }
        ck_assert_uint_eq(kvcl_evict_count(&evict), count);
        ck_assert((step % 64 != 0) || kvcl_evict_check(&evict));
    }
    close_order();
}
END_TEST

/* Who was named as the next one is the next one, whatever was done before. */
START_TEST(the_next_victim_is_known_before)
{
    enum { N = 60 };
    kvcl_rand_t rnd;
    uint32_t    i, turn, next[N], n;

    kvcl_rand_seed(&rnd, (uint64_t)_i);
    open_order((_i % 2) ? KVCL_EVICT_LRU : KVCL_EVICT_S3FIFO, N);
    for (turn = 0; turn < 4000; ++turn) {
        i = (uint32_t)kvcl_rand_below(&rnd, N);
        if (kvcl_rand_below(&rnd, 3) > 0) {
            kvcl_evict_touch(&evict, i);
        } else if (kvcl_evict_insert(&evict, i, hash_of(kvcl_rand_below(&rnd, 4 * N))) != KVCL_OK) {
            n = kvcl_evict_peek(&evict, next, N);
            ck_assert_uint_eq(n, kvcl_evict_count(&evict));
            ck_assert_uint_eq(next[0], victim());
        }
        if (kvcl_rand_below(&rnd, 50) == 0) {
            (void)!kvcl_evict_pin(&evict, i);
            n = kvcl_evict_peek(&evict, next, N);
            while (n-- > 0) {
                ck_assert(evict.nodes[next[n]].pins == 0);
            }
            (void)!kvcl_evict_remove(&evict, i);
        }
    }
    close_order();
}
END_TEST

START_TEST(wrong_calls_are_refused)
{
    open_order(KVCL_EVICT_S3FIFO, 4);
    ck_assert_int_eq(kvcl_evict_insert(&evict, 4, 1), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_evict_pin(&evict, 4), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_evict_pin(&evict, 1), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_evict_remove(&evict, 4), KVCL_ERR_OUT_OF_RANGE);
    kvcl_evict_touch(&evict, 1);
    kvcl_evict_touch(&evict, 9);
    ck_assert_int_eq(kvcl_evict_init(&evict, KVCL_EVICT_LRU, 4, mem, 8), KVCL_ERR_INVALID_PARAM);
    free(mem);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("store_evict");
    TCase   *tc    = tcase_create("evict");
    SRunner *runner;
    int      failed;

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, untouched_blocks_leave_first_in_first_out, 0, 2);
    tcase_add_test(tc, what_is_used_often_outlives_a_scan);
    tcase_add_test(tc, what_comes_back_soon_goes_to_main);
    tcase_add_loop_test(tc, pinned_slots_are_never_victims, 0, 2);
    tcase_add_loop_test(tc, children_leave_before_their_parents, 0, 2);
    tcase_add_loop_test(tc, random_operations_keep_the_order_whole, 0, 10);
    tcase_add_loop_test(tc, the_next_victim_is_known_before, 0, 10);
    tcase_add_test(tc, wrong_calls_are_refused);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
