/*
 * Slabs at their limits: the maximum of a class, the class that returns an empty slab, slabs that cannot be had, a
 * clock that wraps around, and the cost of choosing in a large arena.
 */
#include "policy/slabs.h"
#include "base/clock.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static kvcl_slabs_t slabs;
static void         *mem;

static void open_slabs(uint64_t arena, const uint64_t *sizes, unsigned n)
{
    size_t bytes = kvcl_slabs_bytes(arena, sizes, n);

    mem = malloc(bytes);
    ck_assert_ptr_nonnull(mem);
    ck_assert_int_eq(kvcl_slabs_init(&slabs, arena, sizes, n, mem, bytes), KVCL_OK);
}

static void teardown(void)
{
    free(mem);
    mem = NULL;
}

static void give(uint32_t slab, unsigned cls)
{
    kvcl_slab_ids_t got, lost;

    kvcl_slabs_give(&slabs, slab, cls, &got, &lost);
}

static uint32_t nobodys(void)
{
    uint32_t s;

    for (s = 0; (s < slabs.n) && (slabs.slabs[s].owner != KVCL_SLAB_NOBODY); ++s) {
    }
    return s;
}

/* Give n_second free slabs to class 1, and all others to class 0. */
static void share(uint32_t n_second)
{
    for (; n_second != 0; --n_second) {
        give(nobodys(), 1);
    }
    while (slabs.n_free != 0) {
        give(nobodys(), 0);
    }
}

static void use_all(unsigned cls)
{
    uint32_t id;

    for (id = 0; id < slabs.classes[cls].n_ids; ++id) {
        kvcl_slabs_use(&slabs, cls, id);
    }
}

START_TEST(most_is_what_a_class_has_when_the_others_keep_a_slab_each)
{
    static const uint64_t sizes[2] = {8, 1000};
    uint32_t              s;

    open_slabs(8999, sizes, 2); /* the last slab has 999 bytes more */
    ck_assert_uint_eq(slabs.slabs[0].owner, 0);
    give(nobodys(), 0);
    for (s = 0; (s < slabs.n) && (slabs.slabs[s].owner != 1); ++s) {
    }
    ck_assert_uint_lt(s + 1, slabs.n);
    give(s, 0);
    give(0, 1); /* and all others are class 0's */
    while (slabs.n_free != 0) {
        give(nobodys(), 0);
    }
    ck_assert(kvcl_slabs_check(&slabs));
    ck_assert_uint_eq(slabs.classes[0].n_room, kvcl_slabs_most(&slabs, 0));
    ck_assert_uint_le(slabs.classes[1].n_room, kvcl_slabs_most(&slabs, 1));
}
END_TEST

START_TEST(a_class_without_blocks_keeps_one_slab_and_gives_the_others_away)
{
    static const uint64_t sizes[2] = {10, 100};
    uint32_t              slab;

    open_slabs(10000, sizes, 2);
    share(1);
    use_all(0);
    ck_assert_uint_eq(slabs.classes[1].n_slabs, 2);
    ck_assert_uint_eq(kvcl_slabs_spare(&slabs, 0), 1);
    ck_assert_uint_eq(kvcl_slabs_spare(&slabs, 1), 0);
    slab = kvcl_slabs_choose(&slabs, 0, false);
    ck_assert_uint_ne(slab, KVCL_SLAB_NONE);
    ck_assert_uint_eq(slabs.slabs[slab].owner, 1);
    give(slab, 0);
    ck_assert_uint_eq(kvcl_slabs_spare(&slabs, 0), 0);
    ck_assert_uint_eq(kvcl_slabs_choose(&slabs, 0, false), KVCL_SLAB_NONE);
    ck_assert_uint_eq(kvcl_slabs_choose(&slabs, 0, true), KVCL_SLAB_NONE);
    ck_assert(kvcl_slabs_check(&slabs));
}
END_TEST

START_TEST(spare_says_how_many_come_for_the_asking)
{
    static const uint64_t sizes[2] = {10, 100};
    uint32_t              slab, spare, n, id;
    unsigned              used;

    for (used = 0; used < 12; ++used) {
        open_slabs(10000, sizes, 2);
        share(20);
        use_all(0);
        for (id = 0, n = 0; (id < slabs.classes[1].n_ids) && (n < used); ++id) {
            n += kvcl_slabs_has(&slabs, 1, id) ? 1 : 0;
            kvcl_slabs_use(&slabs, 1, id);
        }
        use_all(0); /* class 1's are the older ones */
        spare = kvcl_slabs_spare(&slabs, 0);
        ck_assert_uint_ge(spare, 21 - 2 - used);
        for (n = 0; n < spare; ++n) {
            slab = kvcl_slabs_choose(&slabs, 0, false);
            ck_assert_uint_ne(slab, KVCL_SLAB_NONE);
            ck_assert_uint_eq(slabs.slabs[slab].n_used, 0);
            ck_assert_uint_eq(kvcl_slabs_spare(&slabs, 0), spare - n);
            give(slab, 0);
        }
        ck_assert_uint_eq(kvcl_slabs_spare(&slabs, 0), 0);
        ck_assert(kvcl_slabs_check(&slabs));
        teardown();
    }
}
END_TEST

START_TEST(next_offers_each_slab_once_until_a_new_round)
{
    static const uint64_t sizes[3] = {10, 30, 100};
    uint32_t              slab, n, round;

    open_slabs(20000, sizes, 3);
    share(30);
    for (round = 0; round < 3; ++round) {
        for (n = 0; (slab = kvcl_slabs_next(&slabs, 0)) != KVCL_SLAB_NONE; ++n) {
            ck_assert_uint_eq(slabs.slabs[slab].owner, 1); /* class 2 has one only */
            kvcl_slabs_refuse(&slabs, slab);
        }
        ck_assert_uint_eq(n, slabs.classes[1].n_slabs);
        ck_assert_uint_eq(kvcl_slabs_choose(&slabs, 0, true), KVCL_SLAB_NONE);
        kvcl_slabs_round(&slabs);
    }
}
END_TEST

/* Times have 32 bits, and one value means "not published". */
START_TEST(the_clock_goes_round)
{
    static const uint64_t sizes[2] = {10, 100};
    uint32_t              id, i;

    open_slabs(10000, sizes, 2);
    for (id = 0; !kvcl_slabs_has(&slabs, 0, id); ++id) {
    }
    slabs.now = (slabs.unit << 32) - (3 * sizes[0]);
    for (i = 0; i < 8; ++i) {
        kvcl_slabs_use(&slabs, 0, id + i);
        ck_assert(kvcl_slabs_check(&slabs));
        ck_assert_uint_eq(slabs.classes[0].n_used, i + 1);
    }
    slabs.now += 5 * slabs.unit;
    ck_assert(kvcl_slabs_check(&slabs));
    for (i = 0; i < 8; ++i) {
        kvcl_slabs_removed(&slabs, 0, id + i);
    }
    ck_assert_uint_eq(slabs.classes[0].sum_used, 0);
    ck_assert(kvcl_slabs_check(&slabs));
}
END_TEST

static double us_since(uint64_t begin)
{
    return (double)(kvcl_now_ns() - begin) / 1000;
}

/* As many slabs as a put of 2 GiB takes; and a take that finds none. */
START_TEST(choosing_is_cheap_in_a_large_arena)
{
    static const uint64_t gib[2] = {256, 1024}, sizes[3] = {65536, 73728, 2170880};
    enum { GROWN = 64, TRIES = 8 };
    double   grown, owned, none;
    uint64_t begin;
    uint32_t slab, n;
    unsigned i;

    for (i = 0; i < 2; ++i) {
        open_slabs(gib[i] << 30, sizes, 3);
        begin = kvcl_now_ns();
        for (n = 0; n < GROWN; ++n) {
            give(kvcl_slabs_choose(&slabs, 0, false), 0);
        }
        grown = us_since(begin);
        share(slabs.n / 2);
        begin = kvcl_now_ns();
        for (n = 0; n < GROWN; ++n) {
            ck_assert_uint_ne(kvcl_slabs_choose(&slabs, 0, true), KVCL_SLAB_NONE);
        }
        owned = us_since(begin);
        begin = kvcl_now_ns();
        for (n = 0; n < slabs.n; ++n) {
            slab = (n < TRIES) ? kvcl_slabs_choose(&slabs, 0, true) : kvcl_slabs_next(&slabs, 0);
            if (slab == KVCL_SLAB_NONE) {
                break;
            }
            kvcl_slabs_refuse(&slabs, slab);
        }
        none = us_since(begin);
        printf("%4llu GiB, %u slabs: %.1f us a slab of nobody's, %.1f us one of another's; all refused: %.0f us\n",
               (unsigned long long)gib[i], slabs.n, grown / GROWN, owned / GROWN, none);
        ck_assert_uint_ge(n, slabs.n / 2);
        ck_assert_double_lt(none, 500000); /* a refusal must not visit all slabs */
        teardown();
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("store_slabs_edges");
    TCase   *tc    = tcase_create("edges");
    SRunner *runner;
    int     failed;

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, NULL, teardown);
    tcase_add_test(tc, most_is_what_a_class_has_when_the_others_keep_a_slab_each);
    tcase_add_test(tc, a_class_without_blocks_keeps_one_slab_and_gives_the_others_away);
    tcase_add_test(tc, spare_says_how_many_come_for_the_asking);
    tcase_add_test(tc, next_offers_each_slab_once_until_a_new_round);
    tcase_add_test(tc, the_clock_goes_round);
    tcase_add_test(tc, choosing_is_cheap_in_a_large_arena);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
