/*
 * Tenants of a pool. A quota is enforced by eviction of the tenant's own blocks, the oldest first, used ones later,
 * pinned ones never.
 */
#include "policy/tenants.h"
#include "base/rand.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 64, CLASS = 2, OTHER = 5, BYTES = 100 };

static kvcl_tenants_t tenants;
static kvcl_evict_t   order;
static void           *mem;

static void setup(void)
{
    mem = malloc(kvcl_evict_bytes(SLOTS));
    ck_assert_int_eq(kvcl_evict_init(&order, SLOTS, mem, kvcl_evict_bytes(SLOTS)), KVCL_OK);
    kvcl_tenants_init(&tenants);
    ck_assert_int_eq(kvcl_tenants_class(&tenants, CLASS, SLOTS, BYTES), KVCL_OK);
    ck_assert_int_eq(kvcl_tenants_class(&tenants, OTHER, SLOTS, 1), KVCL_OK);
}

static void teardown(void)
{
    kvcl_tenants_fini(&tenants);
    free(mem);
}

static void come(uint32_t slot, uint64_t tenant)
{
    ck_assert_int_eq(kvcl_evict_insert(&order, slot, slot * 7919ull), KVCL_OK);
    kvcl_tenants_add(&tenants, CLASS, slot, tenant);
}

static uint32_t victim(uint64_t tenant)
{
    uint32_t slot = SLOTS;

    if (kvcl_tenants_victim(&tenants, tenant, CLASS, &order, &slot) == KVCL_OK) {
        kvcl_tenants_del(&tenants, CLASS, slot);
    }
    return slot;
}

START_TEST(victims_are_the_oldest_but_used_ones_go_round_and_pinned_ones_stay)
{
    uint32_t i;

    for (i = 0; i < 8; ++i) {
        come(i, 1 + (i % 2));
    }
    kvcl_evict_touch(&order, 0);
    ck_assert_int_eq(kvcl_evict_pin(&order, 2), KVCL_OK);
    ck_assert_uint_eq(victim(1), 4);
    ck_assert_uint_eq(victim(1), 6);
    ck_assert_uint_eq(victim(1), 0); /* its use was forgiven once */
    ck_assert_uint_eq(victim(1), SLOTS);
    ck_assert_uint_eq(kvcl_tenants_used(&tenants, 1), BYTES);
    ck_assert_uint_eq(kvcl_tenants_used(&tenants, 2), 4 * BYTES);
    ck_assert_uint_eq(victim(3), SLOTS);
    ck_assert(kvcl_evict_check(&order));
}
END_TEST

START_TEST(over_counts_what_must_go_for_n_more)
{
    uint32_t i;

    ck_assert_int_eq(kvcl_tenants_quota(&tenants, 0, 3), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_tenants_quota(&tenants, 5, (10 * BYTES) + 7), KVCL_OK);
    for (i = 0; i < 8; ++i) {
        come(i, 5);
    }
    ck_assert_uint_eq(kvcl_tenants_over(&tenants, 5, 2 * BYTES), 0);
    ck_assert_uint_eq(kvcl_tenants_over(&tenants, 5, 5 * BYTES), (3 * BYTES) - 7);
    ck_assert_uint_eq(kvcl_tenants_over(&tenants, 5, 10 * BYTES), (8 * BYTES) - 7);
    ck_assert_uint_eq(kvcl_tenants_over(&tenants, 5, 11 * BYTES), KVCL_TENANT_NEVER);
    ck_assert_uint_eq(kvcl_tenants_over(&tenants, 6, 1000), 0);
    ck_assert_uint_eq(kvcl_tenants_any_over(&tenants), 0);
    ck_assert_int_eq(kvcl_tenants_quota(&tenants, 5, 7 * BYTES), KVCL_OK);
    ck_assert_uint_eq(kvcl_tenants_any_over(&tenants), 5);
    ck_assert_int_eq(kvcl_tenants_quota(&tenants, 5, KVCL_TENANT_NO_QUOTA), KVCL_OK);
    ck_assert_uint_eq(kvcl_tenants_any_over(&tenants), 0);
    ck_assert_uint_eq(tenants.n_quotas, 0);
}
END_TEST

START_TEST(blocks_of_all_classes_count_and_each_class_has_its_own_victims)
{
    uint32_t slot = SLOTS;

    ck_assert_int_eq(kvcl_tenants_quota(&tenants, 5, 150), KVCL_OK);
    kvcl_tenants_add(&tenants, OTHER, 9, 5);
    come(3, 5);
    ck_assert_uint_eq(kvcl_tenants_used(&tenants, 5), BYTES + 1);
    ck_assert_uint_eq(kvcl_tenants_over(&tenants, 5, BYTES), BYTES - 49);
    ck_assert_uint_eq(kvcl_tenants_of(&tenants, OTHER, 9), 5);
    ck_assert_uint_eq(kvcl_tenants_of(&tenants, OTHER, 3), 0);
    ck_assert_uint_eq(victim(5), 3);
    ck_assert_int_eq(kvcl_tenants_victim(&tenants, 5, CLASS, &order, &slot), KVCL_ERR_NOT_FOUND);
    kvcl_tenants_del(&tenants, OTHER, 9);
    ck_assert_uint_eq(kvcl_tenants_used(&tenants, 5), 0);
}
END_TEST

START_TEST(random_changes_keep_the_counts_and_free_idle_records)
{
    const char  *replay = getenv("TEST_SEED");
    uint64_t    seed = (replay != NULL) ? strtoull(replay, NULL, 0) : 1, of[SLOTS] = {0}, used[5];
    kvcl_rand_t rnd;
    uint32_t    step, slot, i;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    kvcl_rand_seed(&rnd, seed);
    for (step = 0; step < 20000; ++step) {
        slot = (uint32_t)(kvcl_rand_next(&rnd) % SLOTS);
        if (order.nodes[slot].queue == 0) {
            of[slot] = kvcl_rand_next(&rnd) % 5;
            come(slot, of[slot]);
        } else if (kvcl_rand_next(&rnd) % 2 == 0) {
            kvcl_evict_touch(&order, slot);
        } else {
            ck_assert_int_eq(kvcl_evict_remove(&order, slot), KVCL_OK);
            kvcl_tenants_del(&tenants, CLASS, slot);
        }
        for (i = 0; i < 5; ++i) {
            used[i] = 0;
        }
        for (i = 0; i < SLOTS; ++i) {
            used[of[i]] += (order.nodes[i].queue != 0) ? 1 : 0;
            ck_assert_uint_eq(kvcl_tenants_of(&tenants, CLASS, i), (order.nodes[i].queue != 0) ? of[i] : 0);
        }
        for (i = 1; i < 5; ++i) {
            ck_assert_uint_eq(kvcl_tenants_used(&tenants, i), used[i] * BYTES);
        }
    }
    for (i = 1; i < 5; ++i) {
        while (kvcl_tenants_used(&tenants, i) != 0) {
            ck_assert_uint_lt(victim(i), SLOTS);
        }
    }
    ck_assert_uint_eq(kvcl_map_count(&tenants.by_id), 0);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("store_tenants");
    TCase   *tc    = tcase_create("tenants");
    SRunner *runner;
    int     failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, victims_are_the_oldest_but_used_ones_go_round_and_pinned_ones_stay);
    tcase_add_test(tc, over_counts_what_must_go_for_n_more);
    tcase_add_test(tc, blocks_of_all_classes_count_and_each_class_has_its_own_victims);
    tcase_add_test(tc, random_changes_keep_the_counts_and_free_idle_records);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
