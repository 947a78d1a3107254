/*
 * How requests fail. Each has an error sentence that names the operation, the rank, its object with its numbers, and
 * what to do. kvcl_req_error() returns it until the request is collected; then it is the collecting call's last error.
 * One rank, alone, over the loop path, so its peer is itself.
 */
#include "test/api/errors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

static const uint32_t three_ids[3] = {4, 5, 6}, other_ids[2] = {6, 7};
static const kvcl_sel_t three = {.blocks = three_ids, .n_blocks = 3}, far = {.blocks = bad_ids, .n_blocks = 2},
                        elsewhere = {.blocks = other_ids, .n_blocks = 2};
static kvcl_xfer_params_t soon; /* 40 ms */

static void open_late(void)
{
    open_world();
    soon            = (kvcl_xfer_params_t)KVCL_XFER_PARAMS_INIT;
    soon.timeout_ns = 40 * 1000000ull;
}

/* The text has every word; NULL ends the list. */
static void check_words(const char *said, const char *const *words, int line)
{
    for (; *words != NULL; ++words) {
        ck_assert_msg(strstr(said, *words) != NULL, "line %d: \"%s\" does not name \"%s\"", line, said, *words);
    }
}

/* The request ends with want. Its sentence and the collecting call's are the same, and name the words. */
static void check_end(kvcl_req_h req, kvcl_status_t want, const char *const *words, int line)
{
    char          own[1024] = "";
    kvcl_status_t status    = KVCL_INPROGRESS;
    int           turns;

    for (turns = 0; (turns < 40000) && (kvcl_req_error(req)[0] == '\0'); ++turns) {
        (void)kvcl_progress(ctx);
        usleep(1000);
    }
    snprintf(own, sizeof(own), "%s", kvcl_req_error(req));
    forget_error();
    status = final(req);
    ck_assert_msg(status == want, "line %d: %s, not %s (%s)", line, kvcl_status_name(status), kvcl_status_name(want),
                  kvcl_last_error());
    check_words(kvcl_last_error(), words, line);
    ck_assert_str_eq(own, kvcl_last_error());
}

#define ENDS(_req, _status, ...) \
    check_end((_req), KVCL_ERR_##_status, (const char *const[]){__VA_ARGS__, NULL}, __LINE__)

START_TEST(gets_and_puts_of_blocks_name_rank_cache_blocks_and_remedy)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    p.remote_cache = "nowhere";
    TAKEN(kvcl_get(world, 0, cache, &good, &good, &p, &req));
    ENDS(req, NOT_REGISTERED, "kvcl_get", "2 blocks (0, 1)", "rank 0", "\"nowhere\"", "\"mine\"",
         "params.remote_cache");
    TAKEN(kvcl_put(world, 0, cache, &good, &good, &p, &req));
    ENDS(req, NOT_REGISTERED, "kvcl_put", "2 blocks (0, 1)", "rank 0", "\"nowhere\"", "create it there");
    TAKEN(kvcl_get(world, 0, cache, &far, &good, NULL, &req)); /* asks for the description first */
    ENDS(req, OUT_OF_RANGE, "kvcl_get", "rank 0", "blocks[1] is 8", "the layout has blocks 0 to 7");
    TAKEN(kvcl_get(world, 0, cache, &elsewhere, &good, NULL, &req));
    ck_assert_int_eq(final(req), KVCL_OK);
    TAKEN(kvcl_get(world, 0, cache, &far, &good, NULL, &req)); /* known now: inside the call */
    ENDS(req, OUT_OF_RANGE, "kvcl_get", "rank 0", "blocks[1] is 8", "the layout has blocks 0 to 7");
    TAKEN(kvcl_put(world, 0, cache, &good, &far, NULL, &req));
    ENDS(req, OUT_OF_RANGE, "kvcl_put", "rank 0", "blocks[1] is 8");
    TAKEN(kvcl_get(world, 0, cache, &three, &good, NULL, &req));
    ENDS(req, BAD_LAYOUT, "kvcl_get", "3 blocks (4, 5, 6)", "2 blocks (0, 1)", "n_blocks is 2 on the destination, 3");
}
END_TEST

START_TEST(revoked_memory_is_named)
{
    const kvcl_vec_t v[2] = {{8, plain, 8}, {64, plain + 8, 4}};
    kvcl_req_h       req;

    TAKEN(kvcl_mem_revoke(mem));
    TAKEN(kvcl_get_bytes(rmem, 64, plain, 16, NULL, &req));
    ENDS(req, ACCESS, "kvcl_get_bytes of 16 bytes at 64", "rank 0", "revoked", "import a new export");
    TAKEN(kvcl_put_bytes(rmem, 8, plain, 8, NULL, &req));
    ENDS(req, ACCESS, "kvcl_put_bytes of 8 bytes at 8", "rank 0", "revoked");
    TAKEN(kvcl_get_vec(rmem, v, 2, NULL, NULL, &req));
    ENDS(req, ACCESS, "kvcl_get_vec of 2 pieces, 12 bytes", "rank 0", "revoked", "import a new export");
    TAKEN(kvcl_put_vec(rmem, v, 2, NULL, NULL, &req));
    ENDS(req, ACCESS, "kvcl_put_vec of 2 pieces, 12 bytes", "rank 0", "revoked");
}
END_TEST

START_TEST(both_sides_of_a_mismatch_hear_the_numbers)
{
    kvcl_req_h sent, got;

    TAKEN(kvcl_send(world, 0, 77, cache, &three, NULL, &sent));
    TAKEN(kvcl_recv(world, 0, 77, cache, &good, NULL, &got));
    ENDS(got, TRUNCATED, "kvcl_recv of tag 77 from rank 0", "2 blocks (0, 1)", "768 bytes (3 blocks", "512 (2 blocks",
         "on both sides");
    ENDS(sent, TRUNCATED, "kvcl_send of tag 77 to rank 0", "3 blocks (4, 5, 6)", "768 bytes", "on both sides");
    TAKEN(kvcl_send_bytes(world, 0, 78, plain, 64, NULL, &sent));
    TAKEN(kvcl_recv_bytes(world, 0, 78, out.bytes, 16, NULL, &got));
    ENDS(got, TRUNCATED, "kvcl_recv_bytes of tag 78", "64 bytes", "16");
    ENDS(sent, TRUNCATED, "kvcl_send_bytes of tag 78", "64 bytes");
}
END_TEST

START_TEST(a_mismatch_of_opaque_blocks_is_told_in_blocks)
{
    const kvcl_layout_t plain_blocks = KVCL_LAYOUT_BYTES(BLOCKS, 256);
    kvcl_cache_h        opaque;
    kvcl_req_h          sent, got;

    TAKEN(kvcl_cache_create(ctx, "opaque", &plain_blocks, NULL, &opaque));
    TAKEN(kvcl_send(world, 0, 79, opaque, &three, NULL, &sent));
    TAKEN(kvcl_recv(world, 0, 79, opaque, &good, NULL, &got));
    ENDS(got, TRUNCATED, "the send has 768 bytes (3 blocks), the recv selects 512 (2 blocks): select as many blocks on "
         "both sides");
    ENDS(sent, TRUNCATED, "kvcl_send of tag 79 to rank 0", "on both sides");
    kvcl_cache_destroy(opaque);
}
END_TEST

START_TEST(layouts_that_do_not_match_are_put_side_by_side)
{
    kvcl_layout_t wide = shape;
    kvcl_cache_h  mine;
    kvcl_req_h    sent, got;

    wide.heads    = 4;
    wide.head_dim = 2;
    TAKEN(kvcl_cache_create(ctx, "wide", &wide, NULL, &mine));
    TAKEN(kvcl_send(world, 0, 5, cache, &good, NULL, &sent));
    TAKEN(kvcl_recv(world, 0, 5, mine, &good, NULL, &got));
    ENDS(got, BAD_LAYOUT, "kvcl_recv of tag 5 from rank 0", "\"wide\"", "heads is 2 in the send, 4 in the recv",
         "2 blocks of 4 tokens", "both sides");
    ENDS(sent, BAD_LAYOUT, "kvcl_send of tag 5 to rank 0", "layouts do not match", "kvcl_req_error");
    kvcl_cache_destroy(mine);
}
END_TEST

START_TEST(deadlines_and_cancels_are_told_with_numbers)
{
    kvcl_req_h req;

    TAKEN(kvcl_recv(world, 0, 9, cache, &good, &soon, &req));
    ENDS(req, TIMED_OUT, "kvcl_recv of tag 9 from rank 0", "40 ms", "tag", "timeout_ns");
    TAKEN(kvcl_recv_bytes(world, KVCL_ANY_SOURCE, 9, plain, 8, &soon, &req));
    ENDS(req, TIMED_OUT, "from any rank", "8 bytes", "40 ms");
    TAKEN(kvcl_send(world, 0, 10, cache, &good, &soon, &req));
    ENDS(req, TIMED_OUT, "kvcl_send of tag 10 to rank 0", "no recv took it", "40 ms");
    TAKEN(kvcl_recv(world, 0, 11, cache, &good, NULL, &req));
    ck_assert_str_eq(kvcl_req_error(req), "");
    kvcl_req_cancel(req);
    ENDS(req, CANCELED, "kvcl_recv of tag 11", "canceled");
}
END_TEST

typedef struct heard {
    kvcl_req_h    req;
    kvcl_status_t status;
    char          last[1024], own[1024];
    _Atomic int   n;
} heard_t;

static void on_end(void *arg, kvcl_status_t status)
{
    heard_t *heard = arg;

    heard->status = status;
    snprintf(heard->last, sizeof(heard->last), "%s", kvcl_last_error());
    if (heard->req != NULL) {
        snprintf(heard->own, sizeof(heard->own), "%s", kvcl_req_error(heard->req));
    }
    ++heard->n;
}

static void wait_heard(heard_t *heard)
{
    int turns;

    for (turns = 0; (turns < 40000) && (heard->n == 0); ++turns) {
        (void)kvcl_progress(ctx);
        usleep(1000);
    }
    ck_assert_int_eq(heard->n, 1);
}

START_TEST(a_callback_hears_the_sentence_with_or_without_a_request)
{
    heard_t heard = {.req = NULL}, detached = {.req = NULL};

    soon.cb     = on_end;
    soon.cb_arg = &heard;
    TAKEN(kvcl_recv(world, 0, 12, cache, &good, &soon, &heard.req));
    wait_heard(&heard);
    ck_assert_int_eq(heard.status, KVCL_ERR_TIMED_OUT);
    ck_assert_ptr_nonnull(strstr(heard.last, "kvcl_recv of tag 12 from rank 0"));
    ck_assert_str_eq(heard.last, heard.own);
    ck_assert_int_eq(final(heard.req), KVCL_ERR_TIMED_OUT);
    soon.cb_arg = &detached;
    TAKEN(kvcl_recv(world, 0, 13, cache, &good, &soon, NULL));
    wait_heard(&detached);
    ck_assert_ptr_nonnull(strstr(detached.last, "kvcl_recv of tag 13 from rank 0"));
}
END_TEST

typedef struct closing {
    kvcl_store_h store;
    char         text[2][512];
    _Atomic bool over;
} closing_t;

static void close_all_in_callback(void *arg, kvcl_status_t status)
{
    closing_t *closing = arg;

    (void)status;
    kvcl_store_close(closing->store);
    snprintf(closing->text[0], sizeof(closing->text[0]), "%s", kvcl_last_error());
    kvcl_finalize(ctx);
    snprintf(closing->text[1], sizeof(closing->text[1]), "%s", kvcl_last_error());
    atomic_store(&closing->over, true);
}

/* By the progress thread, which the calls would wait for. */
START_TEST(a_callback_closes_neither_its_store_nor_its_context)
{
    const kvcl_store_params_t open    = {.size = sizeof(open), .dir_entries = 64};
    closing_t                 closing = {.over = false};
    kvcl_xfer_params_t        p       = KVCL_XFER_PARAMS_INIT;
    kvcl_xfer_params_t        q       = KVCL_XFER_PARAMS_INIT;

    TAKEN(kvcl_store_open(world, &open, &closing.store));
    p.cb         = close_all_in_callback;
    p.cb_arg     = &closing;
    p.timeout_ns = 1000000;
    TAKEN(kvcl_recv_bytes(world, 0, 77, out.bytes, 8, &p, NULL));
    while (!atomic_load(&closing.over)) {
        usleep(1000);
    }
    ck_assert_ptr_nonnull(strstr(closing.text[0], "kvcl_store_close: called from a callback"));
    ck_assert_ptr_nonnull(strstr(closing.text[1], "kvcl_finalize: called from a callback"));
    TAKEN(kvcl_store_exists(closing.store, keys, 1, out.bytes, &q)); /* both are open */
    ck_assert_int_eq(out.bytes[0], 0);
    kvcl_store_close(closing.store);
}
END_TEST

START_TEST(of_many_the_first_failure_is_told)
{
    kvcl_req_h reqs[3];
    size_t     at;

    TAKEN(kvcl_recv(world, 0, 20, cache, &good, &soon, &reqs[0]));
    TAKEN(kvcl_barrier(world, NULL, &reqs[1]));
    TAKEN(kvcl_recv(world, 0, 21, cache, &good, &soon, &reqs[2]));
    ck_assert_int_eq(kvcl_req_wait_all(reqs, 3, 20ull * SECOND), KVCL_ERR_TIMED_OUT);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "tag 20"));
    reqs[0] = NULL;
    TAKEN(kvcl_recv(world, 0, 22, cache, &good, &soon, &reqs[1]));
    ck_assert_int_eq(kvcl_req_wait_any(reqs, 2, 20ull * SECOND, &at), KVCL_ERR_TIMED_OUT);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "tag 22"));
}
END_TEST

static void *collect_there(void *arg)
{
    char *said = arg;

    (void)!final(out.req);
    snprintf(said, 1024, "%s", kvcl_last_error());
    return NULL;
}

START_TEST(another_thread_that_collects_hears_it)
{
    char      said[1024] = "";
    pthread_t thread;

    TAKEN(kvcl_get(world, 0, cache, &elsewhere, &good, NULL, &out.req));
    ck_assert_int_eq(final(out.req), KVCL_OK);
    TAKEN(kvcl_get(world, 0, cache, &far, &good, NULL, &out.req)); /* ended inside the call, by this thread */
    ck_assert_int_eq(pthread_create(&thread, NULL, collect_there, said), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_msg(strstr(said, "blocks[1] is 8") != NULL, "%s", said);
}
END_TEST

static kvcl_store_h open_store(uint64_t pool)
{
    kvcl_store_params_t p = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = pool, .block_bytes = 256};
    kvcl_store_h        store;

    TAKEN(kvcl_store_open(world, &p, &store));
    return store;
}

/* An absent block is expected, yet the sentence is that call's own. */
START_TEST(absent_blocks_and_values_are_named_by_key)
{
    static const kvcl_key_t far_key = {{0xab, 0xcd, 0xef, 1, 2, 3, 4, 5}};
    kvcl_key_t              both[2] = {keys[0], far_key};
    kvcl_store_h            store   = open_store(4096);
    kvcl_req_h              req;

    TAKEN(kvcl_store_get(store, &far_key, 1, cache, good_ids, NULL, NULL, &req));
    ENDS(req, NOT_FOUND, "kvcl_store_get", "1 of 1 blocks are absent", "number 0", "abcdef0102030405", "put it");
    TAKEN(kvcl_store_put(store, keys, 1, cache, good_ids, NULL, &req));
    ck_assert_int_eq(final(req), KVCL_OK);
    TAKEN(kvcl_store_get(store, both, 2, cache, good_ids, NULL, NULL, &req));
    ENDS(req, NOT_FOUND, "1 of 2 blocks are absent", "number 1", "abcdef0102030405");
    TAKEN(kvcl_store_get_value(store, &far_key, plain, 40, NULL, &req));
    ENDS(req, NOT_FOUND, "kvcl_store_get_values", "1 of 1 values are absent", "abcdef0102030405");
    kvcl_store_close(store);
    store = open_store(0);
    TAKEN(kvcl_store_get_value(store, &far_key, plain, 40, NULL, &req));
    ENDS(req, NOT_FOUND, "kvcl_store_get_values", "abcdef0102030405");
    kvcl_store_close(store);
}
END_TEST

START_TEST(a_cache_of_blocks_that_no_pool_has_is_named)
{
    const uint64_t            sizes[] = {512, 1024, 2048, 4096, 64, 128};
    const kvcl_store_params_t many    = {.size = sizeof(many), .dir_entries = 64, .dram_bytes = 1 << 20,
                                         .block_sizes = sizes, .n_block_sizes = 6};
    const kvcl_layout_t       wide    = KVCL_LAYOUT_BYTES(BLOCKS, 512);
    kvcl_store_h              store   = open_store(4096);
    kvcl_cache_h              other_size;
    kvcl_req_h                req;

    TAKEN(kvcl_cache_create(ctx, "wide", &wide, NULL, &other_size));
    TAKEN(kvcl_store_put(store, keys, 1, cache, good_ids, NULL, &req));
    ck_assert_int_eq(final(req), KVCL_OK);
    TAKEN(kvcl_store_get(store, keys, 2, other_size, good_ids, NULL, NULL, &req));
    ENDS(req, NOT_FOUND, "kvcl_store_get", "2 of 2 blocks are absent", "number 0", "0100000000000000",
         "blocks of 512 bytes", "the store's pools have blocks of 256 bytes", "block_bytes 512");
    kvcl_store_close(store);
    TAKEN(kvcl_store_open(world, &many, &store));
    TAKEN(kvcl_store_get(store, keys, 2, cache, good_ids, NULL, NULL, &req));
    ENDS(req, NOT_FOUND, "blocks of 256 bytes", "pools have blocks of 512, 1024, 2048, 4096, ... bytes");
    TAKEN(kvcl_store_get(store, keys, 2, other_size, good_ids, NULL, NULL, &req));
    ENDS(req, NOT_FOUND, "or it was evicted: compute it and put it");
    kvcl_store_close(store);
    store = open_store(0); /* no pool has a size */
    TAKEN(kvcl_store_get(store, keys, 2, other_size, good_ids, NULL, NULL, &req));
    ENDS(req, NOT_FOUND, "or it was evicted: compute it and put it");
    kvcl_store_close(store);
    kvcl_cache_destroy(other_size);
}
END_TEST

START_TEST(what_a_store_has_no_room_for_is_named)
{
    kvcl_store_h store = open_store(1024); /* 4 blocks */
    kvcl_key_t   five[5] = {{{1}}, {{2}}, {{3}}, {{4}}, {{5}}};
    uint32_t     ids[5]  = {0, 1, 2, 3, 4};

    REFUSED(NO_SPACE, "kvcl_store_put", kvcl_store_put(store, five, 5, cache, ids, NULL, &out.req));
    REFUSED(NOT_FOUND, "0900000000000000", kvcl_store_pin(store, &(kvcl_key_t){{9}}, 1, 1, SECOND, 0, NULL, NULL));
    REFUSED(NOT_FOUND, "0900000000000000", kvcl_store_copy(store, &(kvcl_key_t){{9}}, 1, 0, 0, NULL, NULL));
    kvcl_store_close(store);
}
END_TEST

START_TEST(a_request_that_is_well_has_no_sentence)
{
    kvcl_req_h req;

    TAKEN(kvcl_barrier(world, NULL, &req));
    ck_assert_str_eq(kvcl_req_error(req), "");
    ck_assert_int_eq(final(req), KVCL_OK);
    ck_assert_ptr_nonnull(strstr(kvcl_req_error(NULL), "NULL"));
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("errors-late");
    SRunner *runner;
    TCase   *tc = tcase_create("requests");
    int      failed;

    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, open_late, close_world);
    tcase_add_test(tc, gets_and_puts_of_blocks_name_rank_cache_blocks_and_remedy);
    tcase_add_test(tc, revoked_memory_is_named);
    tcase_add_test(tc, both_sides_of_a_mismatch_hear_the_numbers);
    tcase_add_test(tc, a_mismatch_of_opaque_blocks_is_told_in_blocks);
    tcase_add_test(tc, layouts_that_do_not_match_are_put_side_by_side);
    tcase_add_test(tc, deadlines_and_cancels_are_told_with_numbers);
    tcase_add_test(tc, a_callback_hears_the_sentence_with_or_without_a_request);
    tcase_add_test(tc, a_callback_closes_neither_its_store_nor_its_context);
    tcase_add_test(tc, of_many_the_first_failure_is_told);
    tcase_add_test(tc, another_thread_that_collects_hears_it);
    tcase_add_test(tc, a_request_that_is_well_has_no_sentence);
    tcase_add_test(tc, absent_blocks_and_values_are_named_by_key);
    tcase_add_test(tc, a_cache_of_blocks_that_no_pool_has_is_named);
    tcase_add_test(tc, what_a_store_has_no_room_for_is_named);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
