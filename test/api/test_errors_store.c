/*
 * What the calls that run a store refuse: events, lists, pins, quotas, moves, statistics. One rank, alone.
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

    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_events(NULL, 0, 0, 0, events, 4, &out.n));
    REFUSED(INVALID_PARAM, "array of 4", kvcl_store_events(store, 0, 0, 0, NULL, 4, &out.n));
    REFUSED(INVALID_PARAM, "n_p is NULL", kvcl_store_events(store, 0, 0, 0, events, 4, NULL));
    REFUSED(INVALID_PARAM, "cap is 0", kvcl_store_events(store, 0, 0, 0, events, 0, &out.n));
    REFUSED(UNKNOWN_RANK, "rank 1 of a store over 1", kvcl_store_events(store, 1, 0, 0, events, 4, &out.n));
    REFUSED(UNKNOWN_RANK, "rank -1", kvcl_store_events(store, -1, 0, 0, events, 4, &out.n));
    REFUSED(STALE, "rank 0", kvcl_store_events(store, 0, 12, 0, events, 4, &out.n));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_list(NULL, 0, &cursor, items, 4, &out.n, NULL));
    REFUSED(INVALID_PARAM, "cursor", kvcl_store_list(store, 0, NULL, items, 4, &out.n, NULL));
    REFUSED(INVALID_PARAM, "cap is 0", kvcl_store_list(store, 0, &cursor, items, 0, &out.n, NULL));
    REFUSED(INVALID_PARAM, "rank 0", kvcl_store_list(store, 0, &odd, items, 4, &out.n, NULL));
    REFUSED(UNKNOWN_RANK, "rank 3", kvcl_store_list(store, 3, &cursor, items, 4, &out.n, NULL));
    ck_assert((cursor == 0) && (odd == 7));
    REFUSED(INVALID_PARAM, "the store", kvcl_store_match_all(NULL, world, keys, 2, &out.n));
    REFUSED(INVALID_PARAM, "hit_p", kvcl_store_match_all(store, world, keys, 2, NULL));
    REFUSED(INVALID_PARAM, "rank 0", kvcl_store_match_all(store, NULL, NULL, 2, &out.n));
}
END_TEST

START_TEST(keeping_and_moving_refuses_what_is_wrong_and_says_so)
{
    kvcl_xfer_params_t wait = KVCL_XFER_PARAMS_INIT;
    kvcl_store_stats_t *stats = (void *)out.bytes;
    uint64_t           *count = (void *)out.bytes;

    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_pin(NULL, keys, 2, 1, SECOND, 0, NULL));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_pin(store, NULL, 2, 1, SECOND, 0, NULL));
    REFUSED(INVALID_PARAM, "ttl_ns is 0", kvcl_store_pin(store, keys, 2, 1, 0, 0, NULL));
    REFUSED(INVALID_PARAM, "0x20", kvcl_store_pin(store, keys, 2, 1, SECOND, 0x20, NULL));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_unpin(store, NULL, 2, 1));
    REFUSED(INVALID_PARAM, "tenant 0", kvcl_store_quota(store, 0, 0, 1));
    REFUSED(UNKNOWN_RANK, "rank 1", kvcl_store_quota(store, 1, 5, 1));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_quota(NULL, 0, 5, 1));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_clear(NULL, 5, count));
    REFUSED(UNKNOWN_RANK, "rank 1", kvcl_store_copy(store, keys, 2, 1, 0, out.bytes));
    REFUSED(INVALID_PARAM, "0x8", kvcl_store_copy(store, keys, 2, 0, 8, out.bytes));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_copy(store, NULL, 2, 0, 0, out.bytes));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_drain(NULL, SECOND, count));
    REFUSED(UNKNOWN_RANK, "rank 9", kvcl_store_rank_stats(store, 9, stats));
    REFUSED(INVALID_PARAM, "array of 1", kvcl_store_rank_stats(store, 0, NULL));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_upsert(NULL, keys, 2, cache, good_ids, NULL, &out.req));
    wait.flags = KVCL_PUT_WAIT;
    REFUSED(INVALID_PARAM, "KVCL_PUT_WAIT", kvcl_store_publish(store, keys, 2, cache, good_ids, &wait, &out.req));
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
    tcase_add_test(tc, keeping_and_moving_refuses_what_is_wrong_and_says_so);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
