/*
 * The home's table: copies, generations, full windows, tombstones, and readers of garbage.
 */
#include "config.h"

#include "test_dir.h"

#include "dir/table.h"

#include <check.h>
#include <stdlib.h>

static void *mem;
static size_t mem_bytes;
static kvcl_dir_table_t table;

static void open_table(uint64_t entries)
{
    mem_bytes = kvcl_dir_table_bytes(entries);
    mem       = aligned_alloc(64, mem_bytes);
    ck_assert_ptr_nonnull(mem);
    ck_assert_int_eq(kvcl_dir_table_format(&table, mem, mem_bytes), KVCL_OK);
}

static void close_table(void)
{
    ck_assert(kvcl_dir_table_check(&table));
    free(mem);
}

static kvcl_status_t add(uint64_t k, uint16_t rank, uint32_t slot, uint32_t gen)
{
    kvcl_key_t     key = test_key(k);
    kvcl_dir_loc_t loc = test_loc(rank, slot, gen);

    return kvcl_dir_table_insert(&table, &key, &loc);
}

static kvcl_status_t del(uint64_t k, uint16_t rank, uint32_t slot, uint32_t gen)
{
    kvcl_key_t     key = test_key(k);
    kvcl_dir_loc_t loc = test_loc(rank, slot, gen);

    return kvcl_dir_table_remove(&table, &key, &loc);
}

static unsigned find(uint64_t k, kvcl_dir_loc_t *locs)
{
    kvcl_key_t key = test_key(k);

    return kvcl_dir_table_find(&table, &key, locs);
}

START_TEST(what_is_inserted_is_found_with_all_its_fields)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX], want = test_loc(3, 7, 9);

    open_table(128);
    ck_assert_uint_eq(find(1, locs), 0);
    ck_assert_int_eq(add(1, 3, 7, 9), KVCL_OK);
    ck_assert_uint_eq(find(1, locs), 1);
    ck_assert(test_loc_equal(&locs[0], &want));
    ck_assert_uint_eq(find(2, locs), 0);
    close_table();
}
END_TEST

START_TEST(a_key_has_at_most_four_copies)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    uint16_t       r;

    open_table(128);
    for (r = 0; r < 4; ++r) {
        ck_assert_int_eq(add(5, r, 1, 1), KVCL_OK);
        ck_assert_uint_eq(find(5, locs), r + 1u);
    }
    ck_assert_int_eq(add(5, 4, 1, 1), KVCL_ERR_EXISTS);
    ck_assert_int_eq(add(5, 2, 1, 1), KVCL_OK); /* again: refreshes */
    ck_assert_uint_eq(table.count, 4);
    ck_assert_int_eq(del(5, 2, 1, 1), KVCL_OK);
    ck_assert_int_eq(add(5, 4, 1, 1), KVCL_OK);
    ck_assert_uint_eq(find(5, locs), 4);
    close_table();
}
END_TEST

START_TEST(a_newer_generation_replaces_and_an_older_one_is_stale)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];

    open_table(128);
    ck_assert_int_eq(add(5, 1, 1, 7), KVCL_OK);
    ck_assert_int_eq(add(5, 1, 1, 8), KVCL_OK);
    ck_assert_int_eq(add(5, 1, 1, 7), KVCL_ERR_STALE);
    ck_assert_uint_eq(find(5, locs), 1);
    ck_assert_uint_eq(locs[0].gen, 8);
    ck_assert_int_eq(add(6, 1, 1, 0xffffffffu), KVCL_OK);
    ck_assert_int_eq(add(6, 1, 1, 2), KVCL_OK); /* generations wrap */
    ck_assert_int_eq(add(6, 1, 1, 0xffffffffu), KVCL_ERR_STALE);
    close_table();
}
END_TEST

START_TEST(a_late_remove_does_not_kill_a_newer_publish)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX], late = test_loc(1, 1, 8);
    kvcl_key_t     key = test_key(5);

    open_table(128);
    ck_assert_int_eq(add(5, 1, 1, 8), KVCL_OK);
    ck_assert_int_eq(del(5, 1, 1, 7), KVCL_ERR_STALE);
    late.incarnation = 0;
    ck_assert_int_eq(kvcl_dir_table_remove(&table, &key, &late), KVCL_ERR_STALE);
    ck_assert_uint_eq(find(5, locs), 1);
    ck_assert_int_eq(del(5, 1, 1, 8), KVCL_OK);
    ck_assert_int_eq(del(5, 1, 1, 8), KVCL_ERR_NOT_FOUND);
    close_table();
}
END_TEST

START_TEST(a_newer_incarnation_replaces_whatever_its_generation)
{
    kvcl_dir_loc_t loc = test_loc(1, 1, 1);
    kvcl_key_t     key = test_key(5);

    open_table(128);
    ck_assert_int_eq(add(5, 1, 1, 100), KVCL_OK);
    loc.incarnation = 2;
    ck_assert_int_eq(kvcl_dir_table_insert(&table, &key, &loc), KVCL_OK);
    ck_assert_int_eq(add(5, 1, 1, 101), KVCL_ERR_STALE);
    ck_assert_uint_eq(table.count, 1);
    close_table();
}
END_TEST

START_TEST(impossible_locations_are_refused)
{
    kvcl_dir_loc_t loc = test_loc(1, 1, 1);
    kvcl_key_t     key = test_key(5);

    open_table(64);
    ck_assert_int_eq(add(5, 1, 1, 0), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(add(5, KVCL_DIR_RANK_NONE, 1, 1), KVCL_ERR_INVALID_PARAM);
    loc.flags = 0x100;
    ck_assert_int_eq(kvcl_dir_table_insert(&table, &key, &loc), KVCL_ERR_INVALID_PARAM);
    ck_assert_uint_eq(table.count, 0);
    close_table();
}
END_TEST

START_TEST(a_full_window_says_no_space_and_recovers)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    uint64_t       k;

    open_table(KVCL_DIR_WINDOW); /* one window, shared by all keys */
    for (k = 0; k < KVCL_DIR_WINDOW; ++k) {
        ck_assert_int_eq(add(k, 1, (uint32_t)k, 1), KVCL_OK);
    }
    ck_assert_int_eq(add(k, 1, (uint32_t)k, 1), KVCL_ERR_NO_SPACE);
    for (k = 0; k < KVCL_DIR_WINDOW; ++k) {
        ck_assert_uint_eq(find(k, locs), 1);
        ck_assert_uint_eq(locs[0].slot, k);
    }
    ck_assert_int_eq(del(10, 1, 10, 1), KVCL_OK);
    ck_assert_int_eq(add(100, 1, 100, 1), KVCL_OK);
    ck_assert_uint_eq(find(100, locs), 1);
    close_table();
}
END_TEST

/* Fill nine tenths, remove half of it at random, and fill again, several times. */
START_TEST(nine_tenths_of_a_table_can_be_used)
{
    enum { ENTRIES = 40000, USED = ENTRIES / 10 * 9 };
    static bool    there[2 * USED];
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    kvcl_rand_t    rnd;
    uint64_t       k;
    unsigned       turn;

    kvcl_rand_seed(&rnd, 11);
    open_table(ENTRIES);
    for (turn = 0; turn < 4; ++turn) {
        while (table.count < USED) {
            k = kvcl_rand_below(&rnd, 2 * USED);
            ck_assert_int_eq(add(k, 1, (uint32_t)k, 1), KVCL_OK);
            there[k] = true;
        }
        ck_assert(kvcl_dir_table_check(&table));
        for (k = 0; k < 2 * USED; ++k) {
            ck_assert_uint_eq(find(k, locs), there[k] ? 1 : 0);
            if (there[k] && (kvcl_rand_below(&rnd, 2) == 0)) {
                ck_assert_int_eq(del(k, 1, (uint32_t)k, 1), KVCL_OK);
                there[k] = false;
            }
        }
        ck_assert(kvcl_dir_table_check(&table));
    }
    close_table();
}
END_TEST

START_TEST(emptied_tables_have_no_tombstones)
{
    uint64_t k;

    open_table(256);
    for (k = 0; k < 180; ++k) {
        ck_assert_int_eq(add(k, 1, (uint32_t)k, 1), KVCL_OK);
    }
    for (k = 0; k < 180; ++k) {
        ck_assert_int_eq(del(k, 1, (uint32_t)k, 1), KVCL_OK);
        ck_assert(kvcl_dir_table_check(&table));
    }
    ck_assert_uint_eq(table.count, 0);
    ck_assert_uint_eq(table.tombs, 0);
    close_table();
}
END_TEST

enum { MODEL_KEYS = 48, MODEL_RANKS = 5 };

/* The table against a plain array, over many seeds' random inserts and removes. */
START_TEST(random_operations_match_a_model)
{
    uint32_t       model[MODEL_KEYS][MODEL_RANKS] = {{0}};
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    kvcl_rand_t    rnd;
    kvcl_status_t  status;
    unsigned       step, k, r, n, i, copies;

    kvcl_rand_seed(&rnd, (uint64_t)_i);
    open_table(64 + kvcl_rand_below(&rnd, 200));
    for (step = 1; step < 4000; ++step) {
        k = (unsigned)kvcl_rand_below(&rnd, MODEL_KEYS);
        r = (unsigned)kvcl_rand_below(&rnd, MODEL_RANKS);
        for (copies = 0, i = 0; i < MODEL_RANKS; ++i) {
            copies += model[k][i] != 0;
        }
        if (kvcl_rand_below(&rnd, 3) > 0) {
            status = add(k, (uint16_t)r, k, step);
            if (status == KVCL_OK) {
                model[k][r] = step;
            } else if (status == KVCL_ERR_EXISTS) {
                ck_assert(copies == KVCL_DIR_LOCS_MAX && model[k][r] == 0);
            } else {
                ck_assert_int_eq(status, KVCL_ERR_NO_SPACE);
            }
        } else if (model[k][r] != 0) {
            ck_assert_int_eq(del(k, (uint16_t)r, k, model[k][r]), KVCL_OK);
            model[k][r] = 0;
        } else {
            ck_assert_int_eq(del(k, (uint16_t)r, k, 1), KVCL_ERR_NOT_FOUND);
        }
        n = find(k, locs);
        for (copies = 0, i = 0; i < MODEL_RANKS; ++i) {
            copies += model[k][i] != 0;
        }
        ck_assert_uint_eq(n, copies);
        for (i = 0; i < n; ++i) {
            ck_assert_uint_eq(locs[i].gen, model[k][locs[i].rank]);
        }
    }
    close_table();
}
END_TEST

START_TEST(a_dead_rank_leaves_with_its_older_incarnations_only)
{
    kvcl_dir_loc_t loc;
    kvcl_key_t     key;
    uint64_t       k;

    open_table(256);
    for (k = 0; k < 90; ++k) {
        key             = test_key(k);
        loc             = test_loc((uint16_t)(k % 3), (uint32_t)k, 1);
        loc.incarnation = (uint16_t)(5 + k / 30);
        ck_assert_int_eq(kvcl_dir_table_insert(&table, &key, &loc), KVCL_OK);
    }
    ck_assert_uint_eq(kvcl_dir_table_remove_rank(&table, 1, 6), 20);
    ck_assert_uint_eq(kvcl_dir_table_remove_rank(&table, 1, 6), 0);
    ck_assert_uint_eq(table.count, 70);
    close_table();
}
END_TEST

START_TEST(a_walk_sees_every_entry_once)
{
    kvcl_dir_loc_t loc;
    kvcl_key_t     key;
    uint64_t       cursor = 0, k, n = 0;
    uint8_t        seen[100] = {0};

    open_table(256);
    for (k = 0; k < 100; ++k) {
        ck_assert_int_eq(add(k, 1, (uint32_t)k, 1), KVCL_OK);
    }
    while (kvcl_dir_table_next(&table, &cursor, &key, &loc)) {
        ck_assert_uint_eq(++seen[loc.slot], 1);
        ++n;
    }
    ck_assert_uint_eq(n, 100);
    close_table();
}
END_TEST

START_TEST(a_batch_reads_what_single_reads_do)
{
    enum { N = 100 };
    kvcl_key_t      keys[N];
    kvcl_dir_loc_t  locs[N][KVCL_DIR_LOCS_MAX], one[KVCL_DIR_LOCS_MAX];
    kvcl_dir_view_t view;
    uint8_t         counts[N];
    size_t          i, n;

    open_table(300);
    for (i = 0; i < N; ++i) {
        keys[i] = test_key(i);
        if (i % 3 != 0) {
            ck_assert_int_eq(add(i, 1, (uint32_t)i, 1), KVCL_OK);
        }
        if (i % 3 == 2) {
            ck_assert_int_eq(add(i, 2, (uint32_t)i, 1), KVCL_OK);
        }
    }
    ck_assert_int_eq(kvcl_dir_view_init(&view, mem, mem_bytes), KVCL_OK);
    for (n = 0; n <= N; n += 25) {
        ck_assert_uint_eq(kvcl_dir_read_batch(&view, keys, n, locs, counts), n - (n + 2) / 3);
        for (i = 0; i < n; ++i) {
            ck_assert_uint_eq(counts[i], i % 3);
            ck_assert_uint_eq(kvcl_dir_read(&view, &keys[i], one), counts[i]);
            ck_assert_int_eq(memcmp(one, locs[i], counts[i] * sizeof(one[0])), 0);
        }
    }
    close_table();
}
END_TEST

START_TEST(a_moved_or_flipped_entry_is_a_miss_never_a_lie)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX], want = test_loc(1, 1, 1);
    unsigned char *entry = NULL, *bytes;
    size_t         i;
    unsigned       bit, n;

    open_table(64);
    bytes = mem;
    ck_assert_int_eq(add(5, 1, 1, 1), KVCL_OK);
    entry = bytes + KVCL_DIR_HEADER_BYTES;
    for (i = 0; i < KVCL_DIR_ENTRY_BYTES; ++i) {
        for (bit = 0; bit < 8; ++bit) {
            entry[i] ^= (unsigned char)(1u << bit);
            n = find(5, locs);
            ck_assert(n == 0 || (n == 1 && test_loc_equal(&locs[0], &want)));
            ck_assert_uint_eq(n, 0);
            entry[i] ^= (unsigned char)(1u << bit);
        }
    }
    memcpy(entry + 64, entry, 64);
    ck_assert_uint_eq(find(5, locs), 1); /* the copy beside it does not count */
    memset(entry + 64, 0, 64);
    close_table();
}
END_TEST

START_TEST(a_view_trusts_no_header)
{
    kvcl_dir_view_t view;
    kvcl_dir_loc_t  locs[KVCL_DIR_LOCS_MAX];
    kvcl_key_t      key;
    kvcl_rand_t     rnd;
    uint64_t        word;
    size_t          i;
    unsigned        round;

    open_table(128);
    ck_assert_int_eq(kvcl_dir_view_init(&view, mem, mem_bytes), KVCL_OK);
    ck_assert_int_eq(kvcl_dir_view_init(&view, mem, mem_bytes - 1), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_dir_view_init(&view, mem, 63), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_dir_view_init(&view, (char *)mem + 8, mem_bytes - 8), KVCL_ERR_INVALID_PARAM);
    for (word = 0; word < KVCL_DIR_WINDOW; ++word) {
        memcpy((char *)mem + 16, &word, sizeof(word));
        ck_assert_int_eq(kvcl_dir_view_init(&view, mem, mem_bytes), KVCL_ERR_OUT_OF_RANGE);
    }
    word = UINT64_MAX;
    memcpy((char *)mem + 16, &word, sizeof(word));
    ck_assert_int_eq(kvcl_dir_view_init(&view, mem, mem_bytes), KVCL_ERR_OUT_OF_RANGE);
    ((char *)mem)[8] ^= 1;
    ck_assert_int_eq(kvcl_dir_view_init(&view, mem, mem_bytes), KVCL_ERR_VERSION);
    memset(mem, 0, 64);
    ck_assert_int_eq(kvcl_dir_view_init(&view, mem, mem_bytes), KVCL_ERR_PROTOCOL);

    /* After a good header all other bytes may be garbage. */
    ck_assert_int_eq(kvcl_dir_table_format(&table, mem, mem_bytes), KVCL_OK);
    ck_assert_int_eq(kvcl_dir_view_init(&view, mem, mem_bytes), KVCL_OK);
    kvcl_rand_seed(&rnd, 1);
    for (round = 0; round < 20; ++round) {
        for (i = 0; i < mem_bytes; i += sizeof(word)) {
            word = kvcl_rand_next(&rnd);
            memcpy((char *)mem + i, &word, sizeof(word));
        }
        for (i = 0; i < 100; ++i) {
            key = test_key(i);
            ck_assert_uint_eq(kvcl_dir_read(&view, &key, locs), 0);
        }
    }
    free(mem);
}
END_TEST

/* A reader that copies windows over a network finds what one does that maps the table. */
static int far_find(const kvcl_dir_view_t *view, uint64_t k, kvcl_dir_loc_t *locs)
{
    static _Alignas(64) char window[KVCL_DIR_WINDOW_BYTES];
    kvcl_key_t               key    = test_key(k);
    uint64_t                 offset = kvcl_dir_far_offset(view, &key);

    ck_assert_uint_eq(offset % 64, 0);
    ck_assert_uint_ge(offset, KVCL_DIR_HEADER_BYTES);
    ck_assert_uint_le(offset + sizeof(window), mem_bytes);
    memcpy(window, (char *)mem + offset, sizeof(window));
    return kvcl_dir_far_read(view, &key, window, locs);
}

START_TEST(a_copied_window_reads_as_the_table_does)
{
    kvcl_dir_loc_t  locs[KVCL_DIR_LOCS_MAX], far[KVCL_DIR_LOCS_MAX];
    char            header[KVCL_DIR_HEADER_BYTES];
    kvcl_dir_view_t view;
    kvcl_rand_t     rnd;
    uint64_t        k;
    unsigned        round, n;

    open_table(200);
    memcpy(header, mem, sizeof(header));
    ck_assert_int_eq(kvcl_dir_far_init(&view, header, mem_bytes - 1), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_dir_far_init(&view, header, mem_bytes), KVCL_OK);
    kvcl_rand_seed(&rnd, 11);
    for (round = 0; round < 4000; ++round) {
        k = kvcl_rand_below(&rnd, 150);
        if (round % 3 == 2) {
            (void)del(k, (uint16_t)(round % 4), (uint32_t)k, 1);
        } else {
            (void)add(k, (uint16_t)(round % 4), (uint32_t)k, 1);
        }
        k = kvcl_rand_below(&rnd, 150);
        n = find(k, locs);
        ck_assert_int_eq(far_find(&view, k, far), (int)n);
        ck_assert_int_eq(memcmp(locs, far, n * sizeof(locs[0])), 0);
    }
    close_table();
}
END_TEST

/* Each bit of an entry flipped: the window is to be copied again, or lacks the key. */
START_TEST(a_torn_window_is_copied_again)
{
    kvcl_dir_loc_t  locs[KVCL_DIR_LOCS_MAX];
    kvcl_dir_view_t view;
    unsigned char   *entry;
    unsigned        i, torn = 0;
    int             n;

    open_table(64);
    ck_assert_int_eq(add(5, 1, 1, 1), KVCL_OK);
    ck_assert_int_eq(kvcl_dir_far_init(&view, mem, mem_bytes), KVCL_OK);
    ck_assert_int_eq(far_find(&view, 5, locs), 1);
    entry = (unsigned char *)mem + KVCL_DIR_HEADER_BYTES;
    for (i = 0; i < KVCL_DIR_ENTRY_BYTES * 8; ++i) {
        entry[i / 8] ^= (unsigned char)(1u << (i % 8));
        n = far_find(&view, 5, locs);
        ck_assert((n == 0) || (n == -1));
        torn += (n == -1);
        entry[i / 8] ^= (unsigned char)(1u << (i % 8));
    }
    /* all but the key's first word, and two bits of the state */
    ck_assert_uint_ge(torn, KVCL_DIR_ENTRY_BYTES * 8 - 66);
    close_table();
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("dir_table");
    TCase   *tc    = tcase_create("table");
    SRunner *runner;
    int      failed;

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, what_is_inserted_is_found_with_all_its_fields);
    tcase_add_test(tc, a_key_has_at_most_four_copies);
    tcase_add_test(tc, a_newer_generation_replaces_and_an_older_one_is_stale);
    tcase_add_test(tc, a_late_remove_does_not_kill_a_newer_publish);
    tcase_add_test(tc, a_newer_incarnation_replaces_whatever_its_generation);
    tcase_add_test(tc, impossible_locations_are_refused);
    tcase_add_test(tc, a_full_window_says_no_space_and_recovers);
    tcase_add_test(tc, nine_tenths_of_a_table_can_be_used);
    tcase_add_test(tc, emptied_tables_have_no_tombstones);
    tcase_add_loop_test(tc, random_operations_match_a_model, 0, 20);
    tcase_add_test(tc, a_dead_rank_leaves_with_its_older_incarnations_only);
    tcase_add_test(tc, a_walk_sees_every_entry_once);
    tcase_add_test(tc, a_batch_reads_what_single_reads_do);
    tcase_add_test(tc, a_moved_or_flipped_entry_is_a_miss_never_a_lie);
    tcase_add_test(tc, a_view_trusts_no_header);
    tcase_add_test(tc, a_copied_window_reads_as_the_table_does);
    tcase_add_test(tc, a_torn_window_is_copied_again);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
