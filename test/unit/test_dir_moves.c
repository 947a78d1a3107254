/*
 * Shards that move from one map to the next: who is asked, who is told, what moves, and when all is at its place.
 */
#include "config.h"

#include "test_dir.h"

#include "dir/home.h"
#include "dir/moves.h"

#include <check.h>

enum { KEYS = 4000 };

static kvcl_shard_map_t a, b, old;

static void maps(const uint32_t *before, uint32_t n_before, const uint32_t *after, uint32_t n_after)
{
    ck_assert_int_eq(kvcl_shard_map_build(&a, 1, before, n_before), KVCL_OK);
    ck_assert_int_eq(kvcl_shard_map_build(&b, 1, after, n_after), KVCL_OK);
    old = a;
}

static bool has(const uint32_t homes[KVCL_MOVES_HOMES], uint32_t rank)
{
    unsigned i;

    for (i = 0; (i < KVCL_MOVES_HOMES) && (homes[i] != rank); ++i) {
    }
    return i < KVCL_MOVES_HOMES;
}

START_TEST(a_joiner_takes_its_share_and_nothing_else_moves)
{
    const uint32_t before[7] = {0, 1, 2, 3, 4, 5, 6}, after[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint32_t       homes = 0, backups = 0, i;

    maps(before, 7, after, 8);
    for (i = 0; i < KVCL_SHARDS; ++i) {
        if (a.home[i] != b.home[i]) {
            ck_assert_uint_eq(b.home[i], 7);
            ck_assert_uint_eq(b.backup[i], a.home[i]); /* which has all of its records */
            ++homes;
        } else if (a.backup[i] != b.backup[i]) {
            ck_assert_uint_eq(b.backup[i], 7);
            ++backups;
        }
    }
    ck_assert_uint_gt(homes * 8 * 10, KVCL_SHARDS * 8);
    ck_assert_uint_lt(homes * 8 * 10, KVCL_SHARDS * 12);
    ck_assert_uint_gt(backups * 8 * 10, KVCL_SHARDS * 8);
    ck_assert_uint_lt(backups * 8 * 10, KVCL_SHARDS * 12);
}
END_TEST

START_TEST(whoever_is_asked_was_told)
{
    const uint32_t   before[5] = {0, 1, 2, 3, 4}, after[5] = {0, 1, 2, 4, 5}; /* 3 has gone, 5 has come */
    uint32_t         homes[KVCL_MOVES_HOMES], reader, i;
    kvcl_key_t       key;
    unsigned         two;

    maps(before, 5, after, 5);
    kvcl_moves_drop(&old, 3);
    for (i = 0; i < KEYS; ++i) {
        key = test_key(i);
        for (two = 0; two < 2; ++two) {
            kvcl_moves_homes((kvcl_moves_maps_t){.map = &b, .old = &old}, &key, two != 0, homes);
            ck_assert(has(homes, kvcl_shard_home(&b, &key)));
            reader = kvcl_moves_reader(&b, &old, &key, two != 0);
            ck_assert(has(homes, reader));
            ck_assert_uint_ne(reader, 3);
            ck_assert(!has(homes, 3));
            ck_assert(!two || has(homes, kvcl_shard_backup(&b, &key)));
            if (kvcl_shard_home(&a, &key) != 3) {
                ck_assert_uint_eq(reader, kvcl_shard_home(&a, &key));
            } else if (two) {
                ck_assert_uint_eq(reader, kvcl_shard_backup(&a, &key));
            }
            /* The walk tells the homes that a record's first listing did not. */
            ck_assert_int_eq(kvcl_moves_is_new(&old, &key, two != 0, kvcl_shard_home(&b, &key)),
                             (kvcl_shard_home(&b, &key) != kvcl_shard_home(&old, &key)) &&
                                 (!two || (kvcl_shard_home(&b, &key) != kvcl_shard_backup(&old, &key))));
        }
    }
}
END_TEST

/* 3 comes to 0, 1 and 2. Some have switched when 2 goes, one has not; or some had settled, and one not. */
START_TEST(each_rank_lists_where_any_looks_up_when_one_goes)
{
    static kvcl_shard_map_t  now, unswitched, switched;
    const uint32_t           before[3] = {0, 1, 2}, after[4] = {0, 1, 2, 3}, left[3] = {0, 1, 3};
    const kvcl_moves_maps_t  moving = {.map = &b, .old = &old}, settled = {.map = &b, .also = &old};
    kvcl_moves_maps_t        late, early;
    uint32_t                 homes[KVCL_MOVES_HOMES];
    unsigned                 i, two, needed = 0;

    maps(before, 3, after, 4);
    late  = kvcl_moves_next(moving, false, false);
    early = kvcl_moves_next(moving, true, false);
    ck_assert((late.old == &old) && (late.also == NULL));
    ck_assert((early.old == &b) && (early.also == &old));
    early = kvcl_moves_next(settled, false, false);
    ck_assert((early.old == &b) && (early.also == &old));
    early = kvcl_moves_next((kvcl_moves_maps_t){.map = &now, .old = &b, .also = &old}, true, false);
    ck_assert((early.old == &now) && (early.also == &old));
    early = kvcl_moves_next(settled, false, true); /* nobody looks up by `old` any more */
    ck_assert((early.old == &b) && (early.also == NULL));
    ck_assert_int_eq(kvcl_shard_map_build(&now, 1, left, 3), KVCL_OK);
    unswitched = old;
    switched   = b;
    kvcl_moves_drop(&unswitched, 2);
    kvcl_moves_drop(&switched, 2);
    for (i = 0; i < KEYS; ++i) {
        const kvcl_key_t key = test_key(i);

        for (two = 0; two < 2; ++two) {
            const uint32_t first  = kvcl_moves_reader(&now, &unswitched, &key, two != 0);
            const uint32_t second = kvcl_moves_reader(&now, &switched, &key, two != 0);

            kvcl_moves_homes((kvcl_moves_maps_t){.map = &now, .old = &unswitched}, &key, two != 0, homes);
            ck_assert(has(homes, first) && has(homes, second));
            kvcl_moves_homes((kvcl_moves_maps_t){.map = &now, .old = &switched}, &key, two != 0, homes);
            needed += has(homes, first) ? 0 : 1;
            kvcl_moves_homes((kvcl_moves_maps_t){&now, &switched, &unswitched}, &key, two != 0, homes);
            ck_assert(has(homes, first) && has(homes, second));
        }
    }
    ck_assert_uint_gt(needed, 0);
}
END_TEST

START_TEST(a_step_counts_for_one_set_of_ranks)
{
    kvcl_moves_rank_t ranks[3] = {{.incarnation = 5}, {.incarnation = 6}, {.incarnation = 7}};
    kvcl_moves_t      moves    = {.ranks = ranks, .n_ranks = 3};
    uint64_t          all, two;

    kvcl_moves_begin(&moves);
    all                  = moves.id;
    ranks[2].incarnation = 0;
    kvcl_moves_begin(&moves);
    two = moves.id;
    ck_assert_uint_ne(all, two);
    kvcl_moves_say(&moves, 0, two, KVCL_MOVES_LISTED);
    kvcl_moves_say(&moves, 1, all, KVCL_MOVES_LISTED); /* of another set */
    ck_assert(!kvcl_moves_all(&moves, KVCL_MOVES_LISTED));
    kvcl_moves_say(&moves, 1, two, KVCL_MOVES_SWITCHED);
    ck_assert(kvcl_moves_all(&moves, KVCL_MOVES_LISTED));
    ck_assert(!kvcl_moves_all(&moves, KVCL_MOVES_SWITCHED));
    ranks[2].incarnation = 8; /* another process comes */
    kvcl_moves_begin(&moves);
    ck_assert_uint_ne(moves.id, all);
    ck_assert(!kvcl_moves_all(&moves, KVCL_MOVES_LISTED));
}
END_TEST

START_TEST(a_home_lists_nothing_without_a_lease_and_keeps_what_moves)
{
    static _Alignas(64) char mem[64 * 1025];
    const uint32_t           before[2] = {0, 1}, after[3] = {0, 1, 2};
    const uint16_t           incarnations[3] = {1, 1, 1};
    kvcl_dir_table_t         table;
    kvcl_home_t              home;
    kvcl_key_t               key;
    kvcl_dir_loc_t           loc = {.rank = 0, .incarnation = 1, .gen = 1};
    unsigned                 i, lost = 0;

    maps(before, 2, after, 3);
    ck_assert_int_eq(kvcl_dir_table_format(&table, mem, sizeof(mem)), KVCL_OK);
    ck_assert_int_eq(kvcl_home_init(&home, &table, 0, &a, incarnations, 3), KVCL_OK);
    kvcl_home_adopt(&home, &b, &old, NULL, incarnations, 3);
    for (i = 0; i < KEYS; ++i) { /* of two ranks each is a home of all keys */
        key = test_key(i);
        ck_assert_int_eq(kvcl_home_may_change(&home, &key, false), KVCL_OK);
        ck_assert_int_eq(kvcl_home_may_change(&home, &key, true), KVCL_ERR_NO_QUORUM);
        ck_assert(kvcl_home_keeps(&home, &key, &loc));
    }
    kvcl_home_adopt(&home, &b, NULL, NULL, incarnations, 3);
    for (i = 0; i < KEYS; ++i) {
        key = test_key(i);
        lost += (kvcl_home_may_change(&home, &key, false) == KVCL_ERR_STALE) ? 1 : 0;
        ck_assert_int_eq(kvcl_home_keeps(&home, &key, &loc), kvcl_home_may_change(&home, &key, false) == KVCL_OK);
    }
    ck_assert_uint_gt(lost, KEYS / 5);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("dir_moves");
    TCase   *tc    = tcase_create("moves");
    SRunner *runner;
    int      failed;

    tcase_add_test(tc, a_joiner_takes_its_share_and_nothing_else_moves);
    tcase_add_test(tc, whoever_is_asked_was_told);
    tcase_add_test(tc, each_rank_lists_where_any_looks_up_when_one_goes);
    tcase_add_test(tc, a_step_counts_for_one_set_of_ranks);
    tcase_add_test(tc, a_home_lists_nothing_without_a_lease_and_keeps_what_moves);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
