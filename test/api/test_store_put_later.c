/*
 * Puts of more bytes than KVCL_INLINE_COPY: the call returns before they are copied, and before others are evicted for
 * them; the request completes after. One rank without a thread, so bytes move only while the test waits; the cases of
 * threads have one.
 */
#include "test/api/store_puts.h"

#include <kvcl/kvcl_store_admin.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static kvcl_comm_h world;

static void open_all(unsigned flags)
{
    kvcl_layout_t             layout = KVCL_LAYOUT_BYTES(2 * BLOCKS, BLOCK);
    kvcl_init_params_t        init   = KVCL_INIT_PARAMS_INIT;
    const kvcl_cache_params_t shared = {.size = sizeof(shared), .flags = KVCL_CACHE_WRITABLE};
    kvcl_store_params_t       params = KVCL_STORE_PARAMS_INIT;
    void                      *base;
    uint32_t                  i;

    init.boot  = "self";
    init.path  = "loop";
    init.flags = flags;
    setenv("KVCL_INLINE_COPY", "64K", 1);
    TAKEN(kvcl_init(&init, &ctx));
    TAKEN(kvcl_comm_world(ctx, &world));
    TAKEN(kvcl_cache_create(ctx, "mine", &layout, &shared, &cache));
    params.dir_entries = 4096;
    params.block_bytes = BLOCK;
    params.dram_bytes  = (uint64_t)BLOCKS * BLOCK;
    TAKEN(kvcl_store_open(world, &params, &store));
    base  = kvcl_cache_base(cache, 0);
    bytes = base;
    for (i = 0; i < BLOCKS; ++i) {
        memset(&keys[i], 0, sizeof(keys[i]));
        keys[i].bytes[0] = (uint8_t)(i + 1);
        keys[i].bytes[9] = 7;
        near_ids[i]      = i;
        far_ids[i]       = BLOCKS + i;
        memset(bytes + ((size_t)i * BLOCK), (int)i + 1, BLOCK);
    }
}

static void open_idle(void)
{
    open_all(KVCL_INIT_NO_THREAD);
}

static void open_busy(void)
{
    open_all(0);
}

static void close_all(void)
{
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
}

static kvcl_status_t put(size_t n, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return kvcl_store_put(store, keys, n, cache, near_ids, params, req_p);
}

static uint64_t blocks_in_pool(void)
{
    kvcl_store_stats_t stats = {.size = sizeof(stats)};

    TAKEN(kvcl_store_stats(store, &stats));
    return stats.blocks;
}

/* Each byte of block i in the store is i + plus. */
static void check_bytes(size_t n, unsigned plus)
{
    kvcl_req_h req;
    size_t     i, j;

    TAKEN(kvcl_store_get(store, keys, n, cache, far_ids, NULL, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    for (i = 0; i < n; ++i) {
        for (j = 0; j < BLOCK; j += 997) {
            ck_assert_uint_eq(bytes[((BLOCKS + i) * BLOCK) + j], (uint8_t)(i + plus));
        }
    }
}

START_TEST(a_put_reads_nothing_inside_the_call)
{
    kvcl_req_h req;

    TAKEN(put(BLOCKS, NULL, &req));
    ck_assert_uint_eq(blocks_in_pool(), 0);
    memset(bytes, 1, BLOCK); /* as it was, but a copy made by now would have the bytes below */
    memset(bytes + BLOCK, 99, BLOCK);
    ck_assert_int_eq(end_of(req), KVCL_OK);
    ck_assert_uint_eq(count_present(), BLOCKS);
    TAKEN(kvcl_store_get(store, &keys[1], 1, cache, far_ids, NULL, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    ck_assert_uint_eq(bytes[(size_t)BLOCKS * BLOCK], 99);
}
END_TEST

START_TEST(small_puts_and_those_without_a_request_read_all_inside_the_call)
{
    kvcl_req_h req;

    TAKEN(put(1, NULL, &req));
    memset(bytes, 99, BLOCK);
    ck_assert_int_eq(end_of(req), KVCL_OK);
    check_bytes(1, 1);
    TAKEN(put(BLOCKS, NULL, NULL));
    memset(bytes, 99, (size_t)BLOCKS * BLOCK);
    ck_assert_uint_eq(count_present(), BLOCKS);
    check_bytes(BLOCKS, 1);
}
END_TEST

static void on_end(void *arg, kvcl_status_t status)
{
    *(kvcl_status_t *)arg = status;
}

START_TEST(a_callback_is_called_after_the_copy)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      got    = KVCL_INPROGRESS;
    unsigned           turns;

    params.cb     = on_end;
    params.cb_arg = &got;
    TAKEN(put(BLOCKS, &params, NULL));
    ck_assert_int_eq(got, KVCL_INPROGRESS);
    for (turns = 0; (turns < 1000000) && (got == KVCL_INPROGRESS); ++turns) {
        (void)kvcl_progress(ctx);
    }
    ck_assert_int_eq(got, KVCL_OK);
    check_bytes(BLOCKS, 1);
}
END_TEST

/* All blocks of the pool are free again: another put takes every one. */
static void check_room(void)
{
    kvcl_req_h req;

    ck_assert_uint_eq(blocks_in_pool(), 0);
    ck_assert_uint_eq(count_present(), 0);
    TAKEN(put(BLOCKS, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    check_bytes(BLOCKS, 1);
}

START_TEST(a_deadline_frees_the_blocks)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint8_t            copies[BLOCKS];
    kvcl_req_h         req;
    size_t             i;

    memset(copies, 99, sizeof(copies));
    params.timeout_ns = 1;
    params.copies     = copies;
    TAKEN(put(BLOCKS, &params, &req));
    ck_assert_int_eq(end_of(req), KVCL_ERR_TIMED_OUT);
    ck_assert_msg(strstr(kvcl_last_error(), "64 blocks, which are being copied") != NULL, "%s", kvcl_last_error());
    for (i = 0; i < BLOCKS; ++i) {
        ck_assert_uint_eq(copies[i], 0);
    }
    check_room();
}
END_TEST

START_TEST(a_canceled_put_frees_the_blocks)
{
    kvcl_req_h req;

    TAKEN(put(BLOCKS, NULL, &req));
    kvcl_req_cancel(req);
    ck_assert_int_eq(end_of(req), KVCL_ERR_CANCELED);
    memset(bytes, 1, BLOCK);
    check_room();
}
END_TEST

/* ---- a pool that is full of other keys ---- */

static kvcl_key_t old[BLOCKS];

static void fill_pool(void)
{
    kvcl_req_h req;
    uint32_t   i;

    memcpy(old, keys, sizeof(old));
    for (i = 0; i < BLOCKS; ++i) {
        old[i].bytes[9] = 8;
    }
    TAKEN(kvcl_store_put(store, old, BLOCKS, cache, near_ids, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    ck_assert_uint_eq(blocks_in_pool(), BLOCKS);
}

/* How many of the old keys are there: listed, and in the pool. */
static size_t count_old(void)
{
    kvcl_store_stats_t stats = {.size = sizeof(stats)};
    uint8_t            present[BLOCKS];
    kvcl_status_t      status[BLOCKS];
    kvcl_req_h         req;
    size_t             listed = 0, got = 0, i;

    TAKEN(kvcl_store_exists(store, old, BLOCKS, present, NULL));
    TAKEN(kvcl_store_get(store, old, BLOCKS, cache, far_ids, status, NULL, &req));
    (void)!end_of(req);
    for (i = 0; i < BLOCKS; ++i) {
        listed += present[i];
        got += (status[i] == KVCL_OK) ? 1 : 0;
        ck_assert((status[i] == KVCL_OK) || (status[i] == KVCL_ERR_NOT_FOUND));
    }
    ck_assert_uint_eq(listed, got);
    TAKEN(kvcl_store_stats(store, &stats));
    ck_assert_uint_eq(stats.entries, stats.blocks); /* the home lists what there is, and nothing else */
    return got;
}

static uint64_t count_evicted(void)
{
    kvcl_store_stats_t stats = {.size = sizeof(stats)};

    TAKEN(kvcl_store_stats(store, &stats));
    return stats.evicted;
}

START_TEST(a_put_evicts_nothing_inside_the_call)
{
    kvcl_req_h req;

    fill_pool();
    TAKEN(put(BLOCKS, NULL, &req));
    ck_assert_uint_eq(count_evicted(), 0);
    ck_assert_uint_eq(blocks_in_pool(), BLOCKS);
    ck_assert_int_eq(end_of(req), KVCL_OK);
    ck_assert_uint_eq(count_evicted(), BLOCKS);
    ck_assert_uint_eq(count_old(), 0);
    ck_assert_uint_eq(count_present(), BLOCKS);
    check_bytes(BLOCKS, 1);
}
END_TEST

START_TEST(a_put_that_is_canceled_at_once_evicts_nothing)
{
    kvcl_req_h req;

    fill_pool();
    TAKEN(put(BLOCKS, NULL, &req));
    kvcl_req_cancel(req);
    ck_assert_int_eq(end_of(req), KVCL_ERR_CANCELED);
    ck_assert_uint_eq(count_evicted(), 0);
    ck_assert_uint_eq(count_old(), BLOCKS);
    TAKEN(put(BLOCKS, NULL, &req)); /* the room is there again */
    ck_assert_int_eq(end_of(req), KVCL_OK);
    ck_assert_uint_eq(count_old(), 0);
}
END_TEST

START_TEST(promised_room_is_promised_once)
{
    kvcl_req_h first, second, third;

    fill_pool();
    TAKEN(put(BLOCKS / 2, NULL, &first));
    TAKEN(kvcl_store_put(store, keys + (BLOCKS / 2), BLOCKS / 2, cache, near_ids + (BLOCKS / 2), NULL, &second));
    old[0].bytes[9] = 9;
    ck_assert_int_eq(kvcl_store_put(store, old, 1, cache, near_ids, NULL, &third), KVCL_ERR_NO_SPACE);
    ck_assert_msg(strstr(kvcl_last_error(), "for puts under way") != NULL, "%s", kvcl_last_error());
    ck_assert_int_eq(kvcl_store_put(store, old, 2, cache, near_ids, NULL, &third), KVCL_ERR_NO_SPACE);
    ck_assert_int_eq(end_of(second), KVCL_OK);
    ck_assert_int_eq(end_of(first), KVCL_OK);
    ck_assert_uint_eq(count_present(), BLOCKS);
    check_bytes(BLOCKS, 1);
    TAKEN(kvcl_store_put(store, old, 1, cache, near_ids, NULL, &third));
    ck_assert_int_eq(end_of(third), KVCL_OK);
}
END_TEST

START_TEST(blocks_pinned_after_the_call_are_not_evicted)
{
    uint8_t    copies[BLOCKS];
    kvcl_req_h req, pins;

    fill_pool();
    TAKEN(put(BLOCKS, NULL, &req));
    TAKEN(kvcl_store_pin_post(store, old, 2, 1, 60ull * SECOND, 0, copies, NULL, &pins));
    ck_assert_int_eq(kvcl_req_test(pins), KVCL_OK); /* of this rank: it does not wait */
    ck_assert_int_eq(end_of(req), KVCL_ERR_NO_SPACE);
    ck_assert_msg(strstr(kvcl_last_error(), "blocks were pinned since; no block was put") != NULL, "%s",
                  kvcl_last_error());
    ck_assert_uint_eq(count_present(), 0);
    ck_assert_uint_ge(count_old(), 2);
    ck_assert_int_eq(put(BLOCKS, NULL, &req), KVCL_ERR_NO_SPACE);
    TAKEN(put(BLOCKS - 2, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    ck_assert_uint_eq(count_old(), 2);
    check_bytes(BLOCKS - 2, 1);
}
END_TEST

START_TEST(a_tenant_stays_within_its_quota)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    params.tenant = 5;
    TAKEN(kvcl_store_quota(store, 0, 5, (uint64_t)(BLOCKS / 2) * BLOCK, NULL));
    ck_assert_int_eq(put(BLOCKS, &params, &req), KVCL_ERR_NO_SPACE);
    TAKEN(put(BLOCKS / 2, &params, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    TAKEN(kvcl_store_put(store, keys + (BLOCKS / 2), BLOCKS / 2, cache, near_ids + (BLOCKS / 2), &params, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    ck_assert_uint_eq(count_present(), BLOCKS / 2);
}
END_TEST

START_TEST(two_puts_of_the_same_keys_make_one_copy)
{
    uint8_t            copies[BLOCKS / 2];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         first, second, third;
    size_t             i;

    params.copies = copies;
    TAKEN(put(BLOCKS / 2, NULL, &first));
    TAKEN(put(BLOCKS / 2, &params, &second)); /* takes the other half of the pool meanwhile */
    ck_assert_int_eq(put(1, NULL, &third), KVCL_ERR_NO_SPACE);
    ck_assert_int_eq(end_of(second), KVCL_OK);
    ck_assert_int_eq(end_of(first), KVCL_OK);
    ck_assert_uint_eq(blocks_in_pool(), BLOCKS / 2);
    for (i = 0; i < BLOCKS / 2; ++i) {
        ck_assert_uint_eq(copies[i], 1);
    }
    check_bytes(BLOCKS / 2, 1);
}
END_TEST

START_TEST(the_keys_are_copied)
{
    kvcl_key_t  mine[BLOCKS];
    uint32_t    ids[BLOCKS];
    kvcl_req_h  req;

    memcpy(mine, keys, sizeof(mine));
    memcpy(ids, near_ids, sizeof(ids));
    TAKEN(kvcl_store_put(store, mine, BLOCKS, cache, ids, NULL, &req));
    memset(mine, 0xee, sizeof(mine));
    memset(ids, 0, sizeof(ids));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    check_bytes(BLOCKS, 1);
}
END_TEST

START_TEST(a_closed_store_ends_its_puts)
{
    kvcl_req_h    req;
    kvcl_status_t status;

    TAKEN(put(BLOCKS, NULL, &req));
    kvcl_store_close(store);
    status = end_of(req);
    ck_assert_msg((status == KVCL_OK) || (status == KVCL_ERR_SHUTDOWN), "%s", kvcl_status_name(status));
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
}
END_TEST

START_TEST(an_ended_context_ends_its_puts)
{
    TAKEN(put(BLOCKS, NULL, &(kvcl_req_h){NULL}));
    kvcl_finalize(ctx); /* frees store and cache too; the sanitizers look for what is left */
}
END_TEST

/* Two threads put the same keys, cancel some of the puts, and remove the keys. */
static void *put_often(void *arg)
{
    unsigned   step = *(unsigned *)arg, i;
    kvcl_req_h req;

    for (i = 0; i < 60; ++i) {
        if (put(BLOCKS / 4, NULL, &req) != KVCL_OK) {
            continue; /* the other thread has the room */
        }
        if (i % step == 0) {
            kvcl_req_cancel(req);
        }
        (void)!kvcl_req_wait(req, 20ull * SECOND);
        TAKEN(kvcl_store_remove(store, keys, BLOCKS / 4, NULL, &req));
        (void)!kvcl_req_wait(req, 20ull * SECOND);
    }
    return NULL;
}

START_TEST(puts_and_cancels_of_two_threads)
{
    unsigned   steps[2] = {2, 3};
    pthread_t  threads[2];
    kvcl_req_h req;
    int        i;

    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, put_often, &steps[i]), 0);
    }
    for (i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
    }
    TAKEN(kvcl_store_remove(store, keys, BLOCKS, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    check_room();
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("store_put_later");
    TCase   *idle  = tcase_create("without a thread"), *busy = tcase_create("with a thread");
    TCase   *ends  = tcase_create("ends");
    SRunner *runner;
    int     failed;

    tcase_set_timeout(idle, 60);
    tcase_set_timeout(busy, 60);
    tcase_set_timeout(ends, 60);
    tcase_add_checked_fixture(idle, open_idle, close_all);
    tcase_add_test(idle, a_put_reads_nothing_inside_the_call);
    tcase_add_test(idle, small_puts_and_those_without_a_request_read_all_inside_the_call);
    tcase_add_test(idle, a_callback_is_called_after_the_copy);
    tcase_add_test(idle, a_deadline_frees_the_blocks);
    tcase_add_test(idle, a_canceled_put_frees_the_blocks);
    tcase_add_test(idle, a_put_evicts_nothing_inside_the_call);
    tcase_add_test(idle, a_put_that_is_canceled_at_once_evicts_nothing);
    tcase_add_test(idle, promised_room_is_promised_once);
    tcase_add_test(idle, blocks_pinned_after_the_call_are_not_evicted);
    tcase_add_test(idle, a_tenant_stays_within_its_quota);
    tcase_add_test(idle, two_puts_of_the_same_keys_make_one_copy);
    tcase_add_test(idle, the_keys_are_copied);
    suite_add_tcase(suite, idle);
    tcase_add_checked_fixture(busy, open_busy, close_all);
    tcase_add_test(busy, puts_and_cancels_of_two_threads);
    tcase_add_test(busy, the_keys_are_copied);
    suite_add_tcase(suite, busy);
    tcase_add_checked_fixture(ends, open_busy, NULL);
    tcase_add_test(ends, a_closed_store_ends_its_puts);
    tcase_add_test(ends, an_ended_context_ends_its_puts);
    suite_add_tcase(suite, ends);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
