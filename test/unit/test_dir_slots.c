/*
 * Slots of a cache: the states, the generation word, and every call at the wrong time.
 */
#include "config.h"

#include "test_dir.h"

#include "dir/slots.h"

#include <check.h>

enum { N = 4 };

static _Atomic uint32_t gens[N];
static kvcl_slot_t      array[N];
static kvcl_slots_t     slots;
static kvcl_dir_loc_t   loc;
static kvcl_key_t       key;

static void open_slots(void)
{
    key = test_key(1);
    ck_assert_int_eq(kvcl_slots_init(&slots, gens, array, N, 3, 7, 2, 0), KVCL_OK);
}

static uint32_t published(void)
{
    uint32_t slot;

    ck_assert_int_eq(kvcl_slots_alloc(&slots, &slot), KVCL_OK);
    ck_assert_int_eq(kvcl_slots_publish(&slots, slot, &key, KVCL_DIR_TIER_DRAM, 100, 55, &loc), KVCL_OK);
    return slot;
}

START_TEST(publish_gives_a_complete_location)
{
    uint32_t slot;

    open_slots();
    slot = published();
    ck_assert_uint_eq(loc.rank, 3);
    ck_assert_uint_eq(loc.incarnation, 7);
    ck_assert_uint_eq(loc.cache, 2);
    ck_assert_uint_eq(loc.flags, KVCL_DIR_TIER_DRAM);
    ck_assert_uint_eq(loc.slot, slot);
    ck_assert_uint_eq(loc.len, 100);
    ck_assert_uint_eq(loc.gen, 1);
    ck_assert_uint_eq(loc.checksum, 55);
    ck_assert_int_eq(kvcl_slots_check(&slots, slot, 1, &key), KVCL_OK);
    ck_assert(kvcl_slots_gen_is(&gens[slot], 1));
    ck_assert(kvcl_slots_check_all(&slots));
}
END_TEST

START_TEST(withdraw_bumps_the_word_at_once)
{
    kvcl_key_t other = test_key(2);
    uint32_t   slot;

    open_slots();
    slot = published();
    ck_assert_int_eq(kvcl_slots_check(&slots, slot, 2, &key), KVCL_ERR_STALE);
    ck_assert_int_eq(kvcl_slots_check(&slots, slot, 1, &other), KVCL_ERR_STALE);
    ck_assert_int_eq(kvcl_slots_withdraw(&slots, slot, KVCL_SLOT_FILLING), KVCL_OK);
    ck_assert(!kvcl_slots_gen_is(&gens[slot], 1));
    ck_assert_int_eq(kvcl_slots_check(&slots, slot, 1, &key), KVCL_ERR_STALE);
    ck_assert_int_eq(kvcl_slots_check(&slots, slot, 2, &key), KVCL_ERR_STALE);
    ck_assert_int_eq(kvcl_slots_publish(&slots, slot, &key, 0, 1, 1, &loc), KVCL_OK);
    ck_assert_uint_eq(loc.gen, 2);
    ck_assert(kvcl_slots_check_all(&slots));
}
END_TEST

START_TEST(generation_zero_never_occurs)
{
    uint32_t slot;

    key = test_key(1);
    ck_assert_int_eq(kvcl_slots_init(&slots, gens, array, N, 3, 7, 2, UINT32_MAX), KVCL_OK);
    slot = published();
    ck_assert_uint_eq(loc.gen, UINT32_MAX);
    ck_assert_int_eq(kvcl_slots_withdraw(&slots, slot, KVCL_SLOT_FREE), KVCL_OK);
    ck_assert_uint_eq(kvcl_slots_gen(&slots, slot), 1);
}
END_TEST

START_TEST(all_slots_can_be_had_and_the_one_more_cannot)
{
    uint32_t slot, i, seen = 0;

    open_slots();
    for (i = 0; i < N; ++i) {
        ck_assert_int_eq(kvcl_slots_alloc(&slots, &slot), KVCL_OK);
        seen |= 1u << slot;
    }
    ck_assert_uint_eq(seen, (1u << N) - 1);
    ck_assert_int_eq(kvcl_slots_alloc(&slots, &slot), KVCL_ERR_NO_SPACE);
    ck_assert_int_eq(kvcl_slots_abort(&slots, 2), KVCL_OK);
    ck_assert_int_eq(kvcl_slots_take(&slots, 2), KVCL_OK);
    ck_assert_int_eq(kvcl_slots_take(&slots, 2), KVCL_ERR_BUSY);
    ck_assert(kvcl_slots_check_all(&slots));
}
END_TEST

START_TEST(wrong_transitions_change_nothing)
{
    uint32_t slot;

    open_slots();
    ck_assert_int_eq(kvcl_slots_publish(&slots, 0, &key, 0, 1, 1, &loc), KVCL_ERR_BUSY);
    ck_assert_int_eq(kvcl_slots_withdraw(&slots, 0, KVCL_SLOT_FREE), KVCL_ERR_BUSY);
    ck_assert_int_eq(kvcl_slots_abort(&slots, 0), KVCL_ERR_BUSY);
    ck_assert_int_eq(kvcl_slots_take(&slots, N), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_slots_abort(&slots, N), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_slots_publish(&slots, N, &key, 0, 1, 1, &loc), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_slots_withdraw(&slots, N, KVCL_SLOT_FREE), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_slots_check(&slots, N, 1, &key), KVCL_ERR_OUT_OF_RANGE);
    slot = published();
    ck_assert_int_eq(kvcl_slots_withdraw(&slots, slot, KVCL_SLOT_PUBLISHED), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_slots_abort(&slots, slot), KVCL_ERR_BUSY);
    ck_assert_int_eq(kvcl_slots_check(&slots, slot, 1, &key), KVCL_OK);
    ck_assert_int_eq(kvcl_slots_init(&slots, gens, array, 0, 3, 7, 2, 0), KVCL_ERR_INVALID_PARAM);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("dir_slots");
    TCase   *tc    = tcase_create("slots");
    SRunner *runner;
    int      failed;

    tcase_add_test(tc, publish_gives_a_complete_location);
    tcase_add_test(tc, withdraw_bumps_the_word_at_once);
    tcase_add_test(tc, generation_zero_never_occurs);
    tcase_add_test(tc, all_slots_can_be_had_and_the_one_more_cannot);
    tcase_add_test(tc, wrong_transitions_change_nothing);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
