/*
 * What the administrative calls of a store refuse: events, lists, pins, quotas, moves, statistics; and the calls for
 * values. One rank, alone.
 */
#include "test/api/errors.h"

#include <stdlib.h>

static kvcl_store_h store;

static void open_store(void)
{
    const kvcl_store_params_t p = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = 4096, .block_bytes = 256};

    open_world();
    TAKEN(kvcl_store_open(world, &p, &store));
}

static void close_store(void)
{
    kvcl_store_close(store);
    close_world();
}

START_TEST(following_refuses_what_is_wrong_and_says_so)
{
    kvcl_store_event_t *events = (void *)out.bytes;
    kvcl_store_item_t  *items  = (void *)out.bytes;
    uint64_t           cursor  = 0, odd = 7;

    kvcl_store_places_t *places = (void *)out.bytes;

    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_events(NULL, 0, 0, 0, events, sizeof(*events), 4, &out.n, NULL));
    REFUSED(INVALID_PARAM, "array of 4", kvcl_store_events(store, 0, 0, 0, NULL, sizeof(*events), 4, &out.n, NULL));
    REFUSED(INVALID_PARAM, "n_p is NULL", kvcl_store_events(store, 0, 0, 0, events, sizeof(*events), 4, NULL, NULL));
    REFUSED(INVALID_PARAM, "cap is 0", kvcl_store_events(store, 0, 0, 0, events, sizeof(*events), 0, &out.n, NULL));
    REFUSED(UNKNOWN_RANK, "rank is 1, but the store has ranks 0 to 0",
            kvcl_store_events(store, 1, 0, 0, events, sizeof(*events), 4, &out.n, NULL));
    REFUSED(UNKNOWN_RANK, "rank is -1", kvcl_store_events(store, -1, 0, 0, events, sizeof(*events), 4, &out.n, NULL));
    REFUSED(STALE, "rank 0", kvcl_store_events(store, 0, 12, 0, events, sizeof(*events), 4, &out.n, NULL));
    REFUSED(INVALID_PARAM, "store is NULL",
            kvcl_store_list(NULL, 0, &cursor, items, sizeof(*items), 4, &out.n, NULL, NULL));
    REFUSED(INVALID_PARAM, "cursor", kvcl_store_list(store, 0, NULL, items, sizeof(*items), 4, &out.n, NULL, NULL));
    REFUSED(INVALID_PARAM, "cap is 0",
            kvcl_store_list(store, 0, &cursor, items, sizeof(*items), 0, &out.n, NULL, NULL));
    REFUSED(INVALID_PARAM, "rank 0", kvcl_store_list(store, 0, &odd, items, sizeof(*items), 4, &out.n, NULL, NULL));
    REFUSED(UNKNOWN_RANK, "rank is 3",
            kvcl_store_list(store, 3, &cursor, items, sizeof(*items), 4, &out.n, NULL, NULL));
    ck_assert((cursor == 0) && (odd == 7));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_where(NULL, keys, 2, places, sizeof(*places), NULL));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_where(store, NULL, 2, places, sizeof(*places), NULL));
    REFUSED(INVALID_PARAM, "places is NULL", kvcl_store_where(store, keys, 2, NULL, sizeof(*places), NULL));
    REFUSED(INVALID_PARAM, "stride is 8", kvcl_store_where(store, keys, 2, places, 8, NULL));
    REFUSED(INVALID_PARAM, "the store", kvcl_store_match_all(NULL, world, keys, 2, &out.n, NULL));
    REFUSED(INVALID_PARAM, "hit_p", kvcl_store_match_all(store, world, keys, 2, NULL, NULL));
    REFUSED(INVALID_PARAM, "rank 0", kvcl_store_match_all(store, NULL, NULL, 2, &out.n, NULL));
}
END_TEST

START_TEST(parts_refuse_what_is_wrong_and_say_so)
{
    kvcl_layout_t      wider  = shape, bad = shape;
    kvcl_xfer_params_t layers = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         far    = {.layers = {0, FAR}}, newer = {.reserved = {1}};

#define PART(_store, _keys, _n, _stored, _part, _cache, _local, _params)                                               \
    kvcl_store_get_part(_store, _keys, _n, _stored, _part, _cache, _local, NULL, _params, &out.req)
    wider.head_dim *= 2;
    bad.heads       = 0;
    layers.flags    = KVCL_LAYERWISE | KVCL_BACKGROUND;
    REFUSED(INVALID_PARAM, "store is NULL", PART(NULL, keys, 2, NULL, NULL, cache, &good, NULL));
    REFUSED(INVALID_PARAM, "array of 2", PART(store, NULL, 2, NULL, NULL, cache, &good, NULL));
    REFUSED(INVALID_PARAM, "cache", PART(store, keys, 2, NULL, NULL, NULL, &good, NULL));
    REFUSED(INVALID_PARAM, "another context", PART(store, keys, 2, NULL, NULL, theirs, &good, NULL));
    REFUSED(INVALID_PARAM, "selection is NULL", PART(store, keys, 2, NULL, NULL, cache, NULL, NULL));
    REFUSED(INVALID_PARAM, "KVCL_BACKGROUND is a flag", PART(store, keys, 2, NULL, NULL, cache, &good, &layers));
    REFUSED(BAD_LAYOUT, "n_blocks", PART(store, keys, 1, NULL, NULL, cache, &good, NULL));
    REFUSED(BAD_LAYOUT, "no keys for 2", PART(store, keys, 0, NULL, NULL, cache, &good, NULL));
    REFUSED(BAD_LAYOUT, "head_dim", PART(store, keys, 2, &wider, NULL, cache, &good, NULL));
    REFUSED(BAD_LAYOUT, "stored: ", PART(store, keys, 2, &bad, NULL, cache, &good, NULL));
    REFUSED(OUT_OF_RANGE, "part: ", PART(store, keys, 2, NULL, &far, cache, &good, NULL));
    REFUSED(INVALID_PARAM, "part: ", PART(store, keys, 2, NULL, &newer, cache, &good, NULL));
#undef PART
}
END_TEST

START_TEST(keeping_and_moving_refuses_what_is_wrong_and_says_so)
{
    kvcl_xfer_params_t wait = KVCL_XFER_PARAMS_INIT;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    uint64_t           *count = (void *)out.bytes;
    kvcl_key_t         key_out;

    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_pin(NULL, keys, 2, 1, SECOND, 0, NULL, NULL));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_pin(store, NULL, 2, 1, SECOND, 0, NULL, NULL));
    REFUSED(INVALID_PARAM, "ttl_ns is 0", kvcl_store_pin(store, keys, 2, 1, 0, 0, NULL, NULL));
    REFUSED(INVALID_PARAM, "0x20", kvcl_store_pin(store, keys, 2, 1, SECOND, 0x20, NULL, NULL));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_unpin(store, NULL, 2, 1, NULL));
    REFUSED(INVALID_PARAM, "tenant is 0", kvcl_store_quota(store, 0, 0, 1, NULL));
    REFUSED(UNKNOWN_RANK, "rank is 1", kvcl_store_quota(store, 1, 5, 1, NULL));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_quota(NULL, 0, 5, 1, NULL));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_clear(NULL, 5, count, NULL));
    REFUSED(UNKNOWN_RANK, "rank 1", kvcl_store_copy(store, keys, 2, 1, 0, out.bytes, NULL));
    REFUSED(INVALID_PARAM, "0x8", kvcl_store_copy(store, keys, 2, 0, 8, out.bytes, NULL));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_copy(store, NULL, 2, 0, 0, out.bytes, NULL));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_drain(NULL, count, NULL));
    wait.timeout_ns = KVCL_WAIT_FOREVER;
    REFUSED(INVALID_PARAM, "KVCL_WAIT_FOREVER", kvcl_store_drain(store, count, &wait));
    wait.timeout_ns = 0;
    REFUSED(OUT_OF_RANGE, "576460752303423488 elements",
            kvcl_store_pin_post(store, keys, (size_t)1 << 59, 1, SECOND, 0, NULL, NULL, &out.req));
    REFUSED(OUT_OF_RANGE, "split the call", kvcl_store_match(store, keys, SIZE_MAX / 33 + 1, &out.n, NULL));
    REFUSED(OUT_OF_RANGE, "at most 2147483647", kvcl_store_remove(store, keys, (size_t)INT32_MAX + 1, NULL, &out.req));
    forget_error();
    kvcl_store_value_key(NULL, &key_out);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "key is NULL"));
    kvcl_store_value_key(&keys[0], NULL);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "head_p is NULL"));
    REFUSED(UNKNOWN_RANK, "rank is 9", kvcl_store_rank_stats(store, 9, &stats, NULL));
    REFUSED(INVALID_PARAM, "array of 1", kvcl_store_rank_stats(store, 0, NULL, NULL));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_upsert(NULL, keys, 2, cache, good_ids, NULL, &out.req));
    wait.flags = KVCL_PUT_WAIT;
    REFUSED(INVALID_PARAM, "KVCL_PUT_WAIT", kvcl_store_publish(store, keys, 2, cache, good_ids, &wait, &out.req));
}
END_TEST

START_TEST(statistics_refuse_what_is_wrong_and_say_so)
{
    kvcl_store_stats_t *stats  = (void *)out.bytes;
    kvcl_status_t      *status = (void *)(out.bytes + sizeof(out.bytes) - sizeof(*status));

    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_all_stats(NULL, 1, stats, sizeof(*stats), status, NULL));
    REFUSED(INVALID_PARAM, "array of 1", kvcl_store_all_stats(store, 1, NULL, sizeof(*stats), status, NULL));
    REFUSED(INVALID_PARAM, "status is NULL", kvcl_store_all_stats(store, 1, stats, sizeof(*stats), NULL, NULL));
    REFUSED(INVALID_PARAM, "n is 2, but the store has 1 ranks",
            kvcl_store_all_stats(store, 2, stats, sizeof(*stats), status, NULL));
    REFUSED(INVALID_PARAM, "stride is 79, 80 to", kvcl_store_all_stats(store, 1, stats, 79, status, NULL));
    REFUSED(INVALID_PARAM, "stride is 8193", kvcl_store_all_stats(store, 1, stats, 8193, status, NULL));
    REFUSED(INVALID_PARAM, "is NULL", kvcl_store_stats(store, NULL));
    REFUSED(INVALID_PARAM, "is NULL", kvcl_context_stats(ctx, NULL));
    REFUSED(INVALID_PARAM, "n is 0, but the store has 1 ranks",
            kvcl_store_all_stats(store, 0, stats, sizeof(*stats), status, NULL));
}
END_TEST

/* ---- values ---- */

enum { BYTES = 100 };

typedef kvcl_status_t (*values_call_t)(kvcl_store_h to, const kvcl_key_t *k, size_t n, const kvcl_value_t *values,
                                       const kvcl_xfer_params_t *params, kvcl_req_h *req_p);

static kvcl_status_t get_values(kvcl_store_h from, const kvcl_key_t *k, size_t n, const kvcl_value_t *values,
                                const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return kvcl_store_get_values(from, k, n, values, (kvcl_status_t *)(void *)out.bytes, params, req_p);
}

START_TEST(calls_for_values_refuse)
{
    static const struct {
        values_call_t call;
        const char    *name;
    } calls[] = {{get_values, "kvcl_store_get_values"}, {kvcl_store_put_values, "kvcl_store_put_values"},
                 {kvcl_store_upsert_values, "kvcl_store_upsert_values"}};
    static uint8_t           buf[BYTES];
    const kvcl_xfer_params_t old    = {.size = 8};
    const kvcl_extent_t      good_extent = {buf, BYTES}, no_memory = {NULL, BYTES};
    const kvcl_extent_t      endless[2]  = {{buf, SIZE_MAX}, {buf, 2}};
    const kvcl_value_t       fine[2]     = {{&good_extent, 1}, {&good_extent, 1}};
    const kvcl_value_t       nowhere[2]  = {{&good_extent, 1}, {&no_memory, 1}};
    const kvcl_value_t       hollow[2]   = {{&good_extent, 1}, {NULL, 1}};
    const kvcl_value_t       huge[2]     = {{&good_extent, 1}, {endless, 2}};
    size_t                   i;

    for (i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i) {
        const values_call_t call = calls[i].call;
        REFUSED(INVALID_PARAM, "store is NULL", call(NULL, keys, 2, fine, NULL, &out.req));
        REFUSED(INVALID_PARAM, calls[i].name, call(NULL, keys, 2, fine, NULL, &out.req));
        REFUSED(INVALID_PARAM, "array of 2", call(store, NULL, 2, fine, NULL, &out.req));
        REFUSED(INVALID_PARAM, calls[i].name, call(store, keys, 2, NULL, NULL, &out.req));
        REFUSED(INVALID_PARAM, "value 1", call(store, keys, 2, nowhere, NULL, &out.req));
        REFUSED(INVALID_PARAM, "value 1", call(store, keys, 2, hollow, NULL, &out.req));
        REFUSED(INVALID_PARAM, "value 1", call(store, keys, 2, huge, NULL, &out.req));
        REFUSED(INVALID_PARAM, "0x40", call(store, keys, 2, fine, &flagged, &out.req));
        REFUSED(INVALID_PARAM, "size is 8", call(store, keys, 2, fine, &old, &out.req));
    }
    REFUSED(INVALID_PARAM, "value 0", kvcl_store_put_value(store, keys, NULL, BYTES, NULL, &out.req));
    REFUSED(INVALID_PARAM, "value 0", kvcl_store_get_value(store, keys, NULL, BYTES, NULL, &out.req));
    REFUSED(INVALID_PARAM, "array of 1", kvcl_store_put_value(store, NULL, buf, BYTES, NULL, &out.req));
    REFUSED(INVALID_PARAM, "array of 1", kvcl_store_get_value(store, NULL, buf, BYTES, NULL, &out.req));
}
END_TEST

START_TEST(what_is_asked_about_values_is_checked)
{
    const kvcl_xfer_params_t for_ever = {.size = sizeof(for_ever), .timeout_ns = KVCL_WAIT_FOREVER};
    uint64_t                 *bytes   = (void *)out.bytes;

    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_value_sizes(NULL, keys, 2, bytes, NULL, NULL));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_value_sizes(store, NULL, 2, bytes, NULL, NULL));
    REFUSED(INVALID_PARAM, "bytes is NULL", kvcl_store_value_sizes(store, keys, 2, NULL, NULL, NULL));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_value_keys(NULL, keys, out.keys, 4, &out.n, NULL));
    REFUSED(INVALID_PARAM, "array of 1", kvcl_store_value_keys(store, NULL, out.keys, 4, &out.n, NULL));
    REFUSED(INVALID_PARAM, "keys", kvcl_store_value_keys(store, keys, NULL, 4, &out.n, NULL));
    REFUSED(INVALID_PARAM, "n_p", kvcl_store_value_keys(store, keys, out.keys, 4, NULL, NULL));
    ck_assert_int_eq(kvcl_store_value_keys(store, keys, out.keys, 4, &out.n, NULL), KVCL_ERR_NOT_FOUND);
    ck_assert_msg(strstr(kvcl_last_error(), "no rank has it") != NULL, "%s", kvcl_last_error());
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_remove_values(NULL, keys, 2, NULL));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_remove_values(store, NULL, 2, NULL));
    REFUSED(INVALID_PARAM, "KVCL_WAIT_FOREVER", kvcl_store_remove_values(store, keys, 2, &for_ever));
    TAKEN(kvcl_store_remove_values(store, keys, 2, NULL)); /* an absent value is no error */
    ck_assert(memcmp(&out, &kept, sizeof(out)) == 0);
}
END_TEST

static void count_end(void *arg, kvcl_status_t status)
{
    (void)status;
    ++*(int *)arg;
}

START_TEST(questions_about_values_can_be_posted)
{
    static uint8_t     buf[4096];
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    uint64_t           bytes[2];
    kvcl_status_t      status[2];
    kvcl_key_t         found[8];
    int                ended = 0;
    kvcl_req_h         req;
    size_t             n = 0;

    TAKEN(kvcl_store_put_value(store, &keys[1], buf, 3 * BYTES + 1, NULL, &req));
    TAKEN(final(req));
    p.cb     = count_end;
    p.cb_arg = &ended;
    TAKEN(kvcl_store_value_sizes_post(store, keys, 2, bytes, status, &p, &req));
    ck_assert_int_eq(final(req), KVCL_ERR_NOT_FOUND);
    ck_assert_msg(strstr(kvcl_last_error(), "value 0 of 2") != NULL, "%s", kvcl_last_error());
    ck_assert_uint_eq(bytes[0], 0);
    ck_assert_int_eq(status[0], KVCL_ERR_NOT_FOUND);
    ck_assert_uint_eq(bytes[1], 3 * BYTES + 1);
    ck_assert_int_eq(status[1], KVCL_OK);
    TAKEN(kvcl_store_value_keys_post(store, &keys[1], found, 8, &n, &p, &req));
    TAKEN(final(req));
    ck_assert_uint_ge(n, 2);
    TAKEN(kvcl_store_value_keys_post(store, &keys[1], found, 1, &n, &p, &req));
    ck_assert_int_eq(final(req), KVCL_ERR_NO_SPACE);
    ck_assert_msg(strstr(kvcl_last_error(), "cap is 1") != NULL, "%s", kvcl_last_error());
    TAKEN(kvcl_store_remove_values_post(store, keys, 2, &p, &req)); /* an absent value is no error */
    TAKEN(final(req));
    ck_assert_int_eq(ended, 4);
    ck_assert_int_eq(kvcl_store_value_sizes(store, &keys[1], 1, bytes, NULL, NULL), KVCL_ERR_NOT_FOUND);
}
END_TEST

static kvcl_store_h open_with(uint64_t pool, uint64_t block)
{
    const kvcl_store_params_t p = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = pool, .block_bytes = block};
    kvcl_store_h              opened;

    TAKEN(kvcl_store_open(world, &p, &opened));
    return opened;
}

START_TEST(a_failed_put_of_values_says_which_and_what_to_do)
{
    enum { MANY = 20 };
    static uint8_t           buf[8192];
    const kvcl_extent_t      parts  = {buf, 600}, large = {buf, sizeof(buf)}, small = {buf, BYTES};
    const kvcl_value_t       two[2] = {{&parts, 1}, {&large, 1}};
    const kvcl_xfer_params_t late   = {.size = sizeof(late), .timeout_ns = 1};
    kvcl_xfer_params_t       copies = KVCL_XFER_PARAMS_INIT;
    kvcl_value_t             values[MANY];
    kvcl_key_t               many[MANY];
    size_t                   i;

    for (i = 0; i < MANY; ++i) {
        values[i]        = (kvcl_value_t){&small, 1};
        many[i]          = keys[0];
        many[i].bytes[9] = (uint8_t)(i + 1);
    }
    copies.replicas = 9;
    REFUSED(NO_SPACE, "kvcl_store_put_values: value 0 of 1, 8192 bytes, key ",
            kvcl_store_put_value(store, keys, buf, sizeof(buf), NULL, &out.req));
    REFUSED(NO_SPACE, "dram_bytes", kvcl_store_put_value(store, keys, buf, sizeof(buf), NULL, &out.req));
    REFUSED(NO_SPACE, "kvcl_store_put_values: value 1 of 2",
            kvcl_store_put_values(store, keys, 2, two, NULL, &out.req));
    REFUSED(NO_SPACE, "kvcl_store_upsert_values: value 1 of 2",
            kvcl_store_upsert_values(store, keys, 2, two, NULL, &out.req));
    REFUSED(NO_SPACE, "the heads of 20 values: 20 blocks",
            kvcl_store_put_values(store, many, MANY, values, NULL, &out.req));
    REFUSED(NO_SPACE, "KVCL_PUT_WAIT", kvcl_store_put_values(store, many, MANY, values, NULL, &out.req));
    REFUSED(TIMED_OUT, "value 0 of 1", kvcl_store_put_value(store, keys, buf, 600, &late, &out.req));
    REFUSED(TIMED_OUT, "timeout_ns", kvcl_store_put_value(store, keys, buf, 600, &late, &out.req));
    REFUSED(INVALID_PARAM, "replicas is 9, at most", kvcl_store_put_value(store, keys, buf, 600, &copies, &out.req));
}
END_TEST

START_TEST(what_one_rank_cannot_do_says_what_to_do)
{
    static uint8_t buf[256];
    kvcl_req_h     req;

    REFUSED(NOT_FOUND, "(number 0 of 2): no rank holds it: put it", kvcl_store_copy(store, keys, 2, 0, 0, NULL, NULL));
    TAKEN(kvcl_store_put_value(store, keys, buf, sizeof(buf), NULL, &req));
    TAKEN(final(req));
    REFUSED(NO_SPACE, "0 blocks have moved", kvcl_store_drain(store, NULL, NULL));
    REFUSED(NO_SPACE, "more dram_bytes", kvcl_store_drain(store, NULL, NULL));
}
END_TEST

START_TEST(values_need_a_pool_with_room)
{
    static uint8_t buf[8192];
    kvcl_store_h   none = open_with(0, 0), narrow = open_with(1024, 64);
    kvcl_key_t     head;
    kvcl_req_h     req;

    REFUSED(UNSUPPORTED, "has a pool", kvcl_store_put_value(none, keys, buf, BYTES, NULL, &out.req));
    TAKEN(kvcl_store_get_value(none, keys, buf, BYTES, NULL, &req)); /* no rank can have put it */
    ck_assert_int_eq(final(req), KVCL_ERR_NOT_FOUND);
    REFUSED(UNSUPPORTED, "no room for a head", kvcl_store_put_value(narrow, keys, buf, BYTES, NULL, &out.req));
    TAKEN(kvcl_store_put_value(narrow, keys, buf, 64, NULL, &req)); /* a block without a head */
    TAKEN(final(req));
    REFUSED(NO_SPACE, "never has more than 16", kvcl_store_put_value(store, keys, buf, sizeof(buf), NULL, &out.req));
    TAKEN(kvcl_store_put_value(store, keys, buf, BYTES, NULL, &req));
    TAKEN(final(req));
    TAKEN(kvcl_store_get_value(store, keys, buf, BYTES + 1, NULL, &req)); /* its size is different */
    ck_assert_int_eq(final(req), KVCL_ERR_NOT_FOUND);
    kvcl_store_value_key(keys, &head);
    ck_assert(memcmp(&head, keys, sizeof(head)) != 0);
    ck_assert_int_eq(kvcl_store_value_keys(store, keys, NULL, 0, &out.n, NULL), KVCL_ERR_NO_SPACE);
    ck_assert_uint_eq(out.n, 1);
    kvcl_store_close(narrow);
    kvcl_store_close(none);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("errors_store");
    TCase   *tc    = tcase_create("store");
    SRunner *runner;
    int     failed;

    tcase_add_checked_fixture(tc, open_store, close_store);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, following_refuses_what_is_wrong_and_says_so);
    tcase_add_test(tc, parts_refuse_what_is_wrong_and_say_so);
    tcase_add_test(tc, keeping_and_moving_refuses_what_is_wrong_and_says_so);
    tcase_add_test(tc, statistics_refuse_what_is_wrong_and_say_so);
    tcase_add_test(tc, calls_for_values_refuse);
    tcase_add_test(tc, what_is_asked_about_values_is_checked);
    tcase_add_test(tc, questions_about_values_can_be_posted);
    tcase_add_test(tc, a_failed_put_of_values_says_which_and_what_to_do);
    tcase_add_test(tc, what_one_rank_cannot_do_says_what_to_do);
    tcase_add_test(tc, values_need_a_pool_with_room);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
