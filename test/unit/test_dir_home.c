/*
 * The home's step and the messages that drive it: whole requests, whole replies.
 */
#include "config.h"

#include "test_dir.h"

#include "dir/home.h"

#include <check.h>
#include <stdlib.h>

enum { RANKS = 4, CAP = 64 * 1024 };

static _Alignas(64) char mem[64 * 1025];
static kvcl_dir_table_t  table;
static kvcl_shard_map_t  map, next_map;
static uint16_t          incarnations[RANKS] = {1, 1, 1, 1};
static kvcl_home_t       home;
static uint8_t           request[CAP], answer[CAP];
static kvcl_dir_msg_t    reply;
static kvcl_home_out_t   out = {.buf = answer, .cap = CAP};

static void open_home(void)
{
    const uint32_t ranks[RANKS] = {0, 1, 2, 3};

    ck_assert_int_eq(kvcl_dir_table_format(&table, mem, sizeof(mem)), KVCL_OK);
    ck_assert_int_eq(kvcl_shard_map_build(&map, 5, ranks, RANKS), KVCL_OK);
    ck_assert_int_eq(kvcl_home_init(&home, &table, 1, &map, incarnations, RANKS), KVCL_OK);
}

/* The i-th key whose home is rank 1. */
static kvcl_key_t my_key(unsigned i)
{
    kvcl_key_t key;
    uint64_t   k;

    for (k = 0;; ++k) {
        key = test_key(k);
        if ((kvcl_shard_home(&map, &key) == 1) && (i-- == 0)) {
            return key;
        }
    }
}

static kvcl_dir_pack_t pack;

static void begin_from(uint64_t view, kvcl_dir_msg_type_t type)
{
    ck_assert_int_eq(kvcl_dir_pack_begin(&pack, request, CAP, type, view, 77), KVCL_OK);
}

static void begin(kvcl_dir_msg_type_t type)
{
    begin_from(5, type);
}

static void add(const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    ck_assert_int_eq(kvcl_dir_pack_add(&pack, key, loc), KVCL_OK);
}

static void step(void)
{
    kvcl_dir_msg_t    msg;
    kvcl_home_event_t event = {.type = KVCL_HOME_REQUEST, .u.request = &msg};
    size_t            len   = kvcl_dir_pack_end(&pack);

    ck_assert_uint_eq(len, kvcl_dir_request_bytes((kvcl_dir_msg_type_t)pack.type, pack.n));
    ck_assert_int_eq(kvcl_dir_msg_unpack(&msg, request, len), KVCL_OK);
    ck_assert_int_eq(kvcl_home_step(&home, &event, &out), KVCL_OK);
    ck_assert_int_eq(kvcl_dir_msg_unpack(&reply, answer, out.len), KVCL_OK);
    ck_assert_uint_eq(reply.id, 77);
    ck_assert_uint_eq(reply.view, home.map->view);
    ck_assert_uint_eq(reply.n, pack.n);
    ck_assert(kvcl_dir_table_check(&table));
}

static kvcl_status_t one_from(uint64_t view, kvcl_dir_msg_type_t type, const kvcl_key_t *key,
                              const kvcl_dir_loc_t *loc)
{
    begin_from(view, type);
    add(key, loc);
    step();
    return kvcl_dir_msg_status(&reply, 0);
}

static kvcl_status_t one(kvcl_dir_msg_type_t type, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    return one_from(5, type, key, loc);
}

START_TEST(published_keys_are_found_until_removed)
{
    enum { N = 150 };
    kvcl_dir_loc_t loc, locs[KVCL_DIR_LOCS_MAX];
    kvcl_key_t     key;
    uint32_t       at = 0;
    unsigned       i, n;

    open_home();
    begin(KVCL_DIR_MSG_PUBLISH);
    for (i = 0; i < N; ++i) {
        key = my_key(i / 2);
        loc = test_loc((uint16_t)(i % 2), i, 1);
        add(&key, &loc);
    }
    step();
    for (i = 0; i < N; ++i) {
        ck_assert_int_eq(kvcl_dir_msg_status(&reply, i), KVCL_OK);
    }
    begin(KVCL_DIR_MSG_LOOKUP);
    for (i = 0; i < N; ++i) {
        key = my_key(i);
        add(&key, NULL);
    }
    step();
    ck_assert_uint_eq(reply.n_locs, N);
    for (i = 0; i < N; ++i) {
        n = kvcl_dir_msg_locs(&reply, i, &at, locs);
        ck_assert_uint_eq(n, (i < N / 2) ? 2 : 0);
        ck_assert(n == 0 || locs[0].slot / 2 == i);
    }
    key = my_key(3);
    loc = test_loc(0, 6, 1);
    ck_assert_int_eq(one(KVCL_DIR_MSG_REMOVE, &key, &loc), KVCL_OK);
    ck_assert_int_eq(one(KVCL_DIR_MSG_REMOVE, &key, &loc), KVCL_ERR_NOT_FOUND);
    ck_assert_uint_eq(home.n_hits, N / 2);
    ck_assert_uint_eq(home.n_removed, 1);
}
END_TEST

START_TEST(a_publish_of_a_dead_process_or_foreign_shard_is_stale)
{
    kvcl_dir_loc_t loc = test_loc(2, 1, 1);
    kvcl_key_t     key, foreign;
    uint64_t       k;

    open_home();
    key             = my_key(0);
    foreign         = key;
    loc.incarnation = 2;
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_ERR_STALE);
    loc.incarnation = 0;
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_ERR_STALE);
    loc.incarnation = 1;
    loc.rank        = RANKS;
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_ERR_STALE);
    loc.rank = 2;
    for (k = 0; (kvcl_shard_home(&map, &foreign) == 1) || (kvcl_shard_backup(&map, &foreign) == 1); ++k) {
        foreign = test_key(k);
    }
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &foreign, &loc), KVCL_ERR_STALE);
    ck_assert_uint_eq(table.count, 0);
    ck_assert_uint_eq(home.n_refused, 4);
}
END_TEST

/* Otherwise a home that loses the shard in one of the views between and gets it back in another would drop what it has
 * acknowledged. */
START_TEST(a_publish_from_a_later_view_is_stale_until_the_home_is_there)
{
    const uint32_t    left[3] = {0, 1, 3};
    kvcl_home_event_t view    = {.type = KVCL_HOME_VIEW, .u.view = {&next_map, incarnations, RANKS}};
    kvcl_dir_loc_t    loc     = test_loc(3, 1, 1);
    kvcl_key_t        key;

    open_home();
    key = my_key(0);
    ck_assert_int_eq(one_from(6, KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_ERR_STALE);
    ck_assert_uint_eq(table.count, 0);
    ck_assert_uint_eq(home.n_refused, 1);
    ck_assert_int_eq(one_from(4, KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_OK);
    ck_assert_int_eq(one_from(6, KVCL_DIR_MSG_REMOVE, &key, &loc), KVCL_OK);
    ck_assert_int_eq(kvcl_shard_map_build(&next_map, 6, left, 3), KVCL_OK);
    ck_assert_int_eq(kvcl_home_step(&home, &view, &out), KVCL_OK);
    ck_assert_int_eq(one_from(6, KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_OK);
    ck_assert_int_eq(one_from(7, KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_ERR_STALE); /* although it is listed */
    ck_assert_uint_eq(table.count, 1);
}
END_TEST

START_TEST(a_dead_rank_and_a_new_view_drop_what_is_gone)
{
    const uint32_t    left[3]       = {0, 1, 3};
    static uint16_t   reborn[RANKS] = {1, 1, 0, 2};
    kvcl_home_event_t dead          = {.type = KVCL_HOME_RANK_DEAD, .u.dead = {0, 1}};
    kvcl_home_event_t view          = {.type = KVCL_HOME_VIEW, .u.view = {&next_map, reborn, RANKS}};
    kvcl_dir_loc_t    loc;
    kvcl_key_t        key;
    unsigned          i;

    open_home();
    for (i = 0; i < 80; ++i) {
        key = my_key(i);
        loc = test_loc((uint16_t)(i % RANKS), i, 1);
        ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_OK);
    }
    ck_assert_int_eq(kvcl_home_step(&home, &dead, &out), KVCL_OK);
    ck_assert_uint_eq(out.dropped, 20);
    ck_assert_int_eq(kvcl_shard_map_build(&next_map, 6, left, 3), KVCL_OK);
    ck_assert_int_eq(kvcl_home_step(&home, &view, &out), KVCL_OK);
    ck_assert_uint_eq(out.dropped, 40); /* rank 2 failed, rank 3 restarted */
    ck_assert_uint_eq(out.len, 0);
    ck_assert_uint_eq(table.count, 20);
    ck_assert(kvcl_dir_table_check(&table));
}
END_TEST

START_TEST(a_small_reply_buffer_changes_nothing)
{
    kvcl_dir_msg_t    msg;
    kvcl_home_event_t event = {.type = KVCL_HOME_REQUEST, .u.request = &msg};
    kvcl_home_out_t   tight = {.buf = answer, .cap = KVCL_DIR_MSG_HEADER_BYTES};
    kvcl_dir_loc_t    loc   = test_loc(2, 1, 1);
    kvcl_key_t        key;

    open_home();
    key = my_key(0);
    begin(KVCL_DIR_MSG_PUBLISH);
    add(&key, &loc);
    ck_assert_int_eq(kvcl_dir_msg_unpack(&msg, request, kvcl_dir_pack_end(&pack)), KVCL_OK);
    ck_assert_int_eq(kvcl_home_step(&home, &event, &tight), KVCL_ERR_NO_SPACE);
    ck_assert_uint_eq(table.count, 0);
    msg.type = KVCL_DIR_MSG_LOOKUP_REPLY;
    ck_assert_int_eq(kvcl_home_step(&home, &event, &tight), KVCL_ERR_INVALID_PARAM);
}
END_TEST

START_TEST(a_batch_ends_where_the_buffer_does)
{
    kvcl_dir_loc_t loc = test_loc(2, 1, 1);
    kvcl_key_t     key = test_key(1);

    ck_assert_int_eq(kvcl_dir_pack_begin(&pack, request, 31, KVCL_DIR_MSG_PUBLISH, 1, 1), KVCL_ERR_NO_SPACE);
    ck_assert_int_eq(kvcl_dir_pack_begin(&pack, request, 200, KVCL_DIR_MSG_PUBLISH_REPLY, 1, 1),
                     KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_dir_pack_begin(&pack, request, 32 + 64 + 63, KVCL_DIR_MSG_PUBLISH, 1, 1), KVCL_OK);
    ck_assert_int_eq(kvcl_dir_pack_add(&pack, &key, &loc), KVCL_OK);
    ck_assert_int_eq(kvcl_dir_pack_add(&pack, &key, &loc), KVCL_ERR_NO_SPACE);
    ck_assert_uint_eq(kvcl_dir_pack_end(&pack), 96);
}
END_TEST

/* A request is laid out by hand: the layout is a wire contract. */
START_TEST(the_layout_is_the_one_of_version_1)
{
    const uint8_t  header[32] = {0x44, 0x4b, 1, 3, 64, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
                                 77,   0,    0, 0, 0,  0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
    kvcl_key_t     key        = test_key(1);

    begin(KVCL_DIR_MSG_LOOKUP);
    add(&key, NULL);
    ck_assert_uint_eq(kvcl_dir_pack_end(&pack), 64);
    ck_assert_int_eq(memcmp(request, header, sizeof(header)), 0);
    ck_assert_int_eq(memcmp(request + 32, key.bytes, 32), 0);
}
END_TEST

START_TEST(every_cut_and_many_flips_of_messages_are_refused_or_harmless)
{
    kvcl_dir_loc_t loc = test_loc(2, 1, 1), locs[KVCL_DIR_LOCS_MAX];
    kvcl_dir_msg_t msg;
    kvcl_key_t     key;
    uint8_t       *copy;
    uint32_t       at, i;
    size_t         len, cut, bit;

    open_home();
    key = my_key(0);
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_OK);
    begin(KVCL_DIR_MSG_LOOKUP);
    add(&key, NULL);
    add(&key, NULL);
    step();
    len = out.len;
    for (cut = 0; cut < len; ++cut) {
        copy = malloc(cut + 1); /* ASan detects a read past the end */
        memcpy(copy, answer, cut);
        ck_assert_int_eq(kvcl_dir_msg_unpack(&msg, copy, cut), KVCL_ERR_PROTOCOL);
        free(copy);
    }
    for (bit = 0; bit < len * 8; ++bit) {
        copy = malloc(len);
        memcpy(copy, answer, len);
        copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        if (kvcl_dir_msg_unpack(&msg, copy, len) == KVCL_OK && msg.type == KVCL_DIR_MSG_LOOKUP_REPLY) {
            for (i = 0, at = 0; i < msg.n; ++i) {
                (void)kvcl_dir_msg_locs(&msg, i, &at, locs);
            }
        }
        free(copy);
    }
}
END_TEST

START_TEST(records_that_no_home_may_take_are_refused_when_unpacked)
{
    kvcl_dir_loc_t good = test_loc(2, 1, 1), bad;
    kvcl_dir_msg_t msg;
    kvcl_key_t     key = test_key(1);
    unsigned       i;

    for (i = 0; i < 5; ++i) {
        bad = good;
        bad.gen      = (i == 1) ? 0 : bad.gen;
        bad.rank     = (i == 2) ? KVCL_DIR_RANK_NONE : bad.rank;
        bad.flags    = (i == 3) ? 0x4000 : bad.flags;
        bad.source   = (i == 4) ? 1 : 0;
        begin(KVCL_DIR_MSG_REMOVE);
        add(&key, &bad);
        ck_assert_int_eq(kvcl_dir_msg_unpack(&msg, request, kvcl_dir_pack_end(&pack)),
                         (i == 0) ? KVCL_OK : KVCL_ERR_PROTOCOL);
    }
}
END_TEST

/* Entries of processes that have gone, which the repair has yet to remove, take no place of a copy. */
START_TEST(a_full_set_of_copies_has_none_of_the_dead)
{
    kvcl_dir_loc_t loc = test_loc(3, 7, 1), locs[KVCL_DIR_LOCS_MAX];
    kvcl_key_t     key;
    unsigned       i;

    open_home();
    key             = my_key(0);
    loc.incarnation = 2;
    ck_assert_int_eq(kvcl_dir_table_insert(&table, &key, &loc), KVCL_OK);
    for (i = 0; i < KVCL_DIR_LOCS_MAX; ++i) {
        loc = test_loc((uint16_t)i, 1, 1);
        ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_OK);
    }
    loc = test_loc(2, 2, 1);
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_ERR_EXISTS); /* these live */
    ck_assert_uint_eq(kvcl_dir_table_find(&table, &key, locs), KVCL_DIR_LOCS_MAX);
    for (i = 0; i < KVCL_DIR_LOCS_MAX; ++i) {
        ck_assert_uint_eq(locs[i].incarnation, 1);
        ck_assert_uint_eq(locs[i].slot, 1);
    }
}
END_TEST

/* A rank's new process lists the same key in the same slot, as one does that reads its tier's file again. */
START_TEST(an_entry_of_the_process_before_is_no_newer_one)
{
    kvcl_dir_loc_t loc = test_loc(3, 7, 9), locs[KVCL_DIR_LOCS_MAX];
    kvcl_key_t     key;

    open_home();
    key             = my_key(0);
    loc.incarnation = 2; /* random numbers are in no order */
    ck_assert_int_eq(kvcl_dir_table_insert(&table, &key, &loc), KVCL_OK);
    loc = test_loc(3, 7, 1);
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_OK);
    ck_assert_uint_eq(kvcl_dir_table_find(&table, &key, locs), 1);
    ck_assert_uint_eq(locs[0].incarnation, 1);
    ck_assert_uint_eq(locs[0].gen, 1);
    loc.gen = 2;
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_OK);
    loc.gen = 1;
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &loc), KVCL_ERR_STALE); /* that one lives */
}
END_TEST

/* A copy is accepted while its source or the copy itself is listed. At the backup, which may not know yet, it is always
 * accepted. */
START_TEST(a_copy_of_what_is_listed_no_more_is_refused)
{
    kvcl_dir_loc_t first = test_loc(2, 1, 1), copy = test_loc(3, 1, 1), locs[KVCL_DIR_LOCS_MAX];
    kvcl_key_t     key;
    unsigned       i;

    open_home();
    key         = my_key(0);
    copy.source = kvcl_dir_loc_tag(&first);
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &copy), KVCL_ERR_NOT_FOUND);
    ck_assert_uint_eq(kvcl_dir_table_find(&table, &key, locs), 0);
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &first), KVCL_OK);
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &copy), KVCL_OK);
    ck_assert_int_eq(one(KVCL_DIR_MSG_REMOVE, &key, &first), KVCL_OK);
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &copy), KVCL_OK); /* a repeated publish: it is listed */
    ++first.gen; /* other bytes in that place */
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &first), KVCL_OK);
    ++copy.slot;
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &copy), KVCL_ERR_NOT_FOUND);
    ck_assert_uint_eq(kvcl_dir_table_find(&table, &key, locs), 2);
    ck_assert_uint_eq(locs[0].source | locs[1].source, 0);
    for (i = 0; kvcl_shard_backup(&map, &key) != home.me; ++i) {
        key = test_key(i);
    }
    ck_assert_int_eq(one(KVCL_DIR_MSG_PUBLISH, &key, &copy), KVCL_OK);
}
END_TEST

/* With views what another rank holds stays listed until it says that its block is gone; otherwise nothing does. */
START_TEST(a_removed_key_waits_for_the_ranks_that_hold_it)
{
    const kvcl_dir_loc_t mine = test_loc(1, 1, 1), other = test_loc(2, 1, 1);
    kvcl_dir_loc_t       dead = test_loc(3, 1, 1), locs[KVCL_DIR_LOCS_MAX];
    kvcl_key_t           key;
    unsigned             i;

    open_home();
    dead.incarnation += 1;
    key = my_key(0);
    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(kvcl_dir_table_insert(&table, &key, &mine), KVCL_OK);
        ck_assert_int_eq(kvcl_dir_table_insert(&table, &key, &other), KVCL_OK);
        ck_assert_int_eq(kvcl_dir_table_insert(&table, &key, &dead), KVCL_OK);
        ck_assert_uint_eq(kvcl_home_remove(&home, &key, i == 0, locs), 2); /* of the dead rank none is told */
        ck_assert_uint_eq(locs[0].rank + locs[1].rank, 3);
        ck_assert_uint_eq(kvcl_dir_table_find(&table, &key, locs), (i == 0) ? 1 : 0);
        if (i == 0) {
            ck_assert_uint_eq(locs[0].rank, 2);
            ck_assert_uint_eq(kvcl_home_remove(&home, &key, true, locs), 1); /* it is told again */
            ck_assert_int_eq(one(KVCL_DIR_MSG_REMOVE, &key, &locs[0]), KVCL_OK);
            ck_assert_uint_eq(kvcl_home_remove(&home, &key, true, locs), 0);
        }
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("dir_home");
    TCase   *tc    = tcase_create("home");
    SRunner *runner;
    int      failed;

    tcase_add_test(tc, published_keys_are_found_until_removed);
    tcase_add_test(tc, a_publish_of_a_dead_process_or_foreign_shard_is_stale);
    tcase_add_test(tc, a_publish_from_a_later_view_is_stale_until_the_home_is_there);
    tcase_add_test(tc, a_full_set_of_copies_has_none_of_the_dead);
    tcase_add_test(tc, an_entry_of_the_process_before_is_no_newer_one);
    tcase_add_test(tc, a_copy_of_what_is_listed_no_more_is_refused);
    tcase_add_test(tc, a_removed_key_waits_for_the_ranks_that_hold_it);
    tcase_add_test(tc, a_dead_rank_and_a_new_view_drop_what_is_gone);
    tcase_add_test(tc, a_small_reply_buffer_changes_nothing);
    tcase_add_test(tc, a_batch_ends_where_the_buffer_does);
    tcase_add_test(tc, the_layout_is_the_one_of_version_1);
    tcase_add_test(tc, every_cut_and_many_flips_of_messages_are_refused_or_harmless);
    tcase_add_test(tc, records_that_no_home_may_take_are_refused_when_unpacked);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
