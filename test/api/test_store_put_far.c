/*
 * Puts of more bytes than KVCL_INLINE_COPY into another rank's pool: the call reads no byte, and takes the blocks, so
 * it still refuses what another put has. Two ranks of one process: rank 0 puts, and has no thread, so nothing moves but
 * while the test waits; rank 1 has the pool, and a thread. With KVCL_PUT_STAYS the same holds of a put into rank 0's
 * own pool of which rank 1 makes the second copy: it fetches the caller's blocks before rank 0's pool has them all.
 */
#include "test/api/store_puts.h"
#include "test/board.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the ranks ---- */

static const char     *path = "loop";
static pthread_t      other;
static int            ranks[2] = {0, 1};
static _Atomic(kvcl_store_h) pool; /* rank 1's store */
static bool           managed; /* the cache, of rank 0, is the store's own */
static bool           stays; /* rank 0 has a pool too, and puts with KVCL_PUT_STAYS and two copies */

static void *hold_the_pool(void *arg)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_comm_h         world;
    kvcl_context_h      own = board_join(arg, 2, path, 0, &world);
    kvcl_store_h        opened;

    params.dir_entries = 4096;
    params.block_bytes = BLOCK;
    params.dram_bytes  = (uint64_t)BLOCKS * BLOCK;
    TAKEN(kvcl_store_open(world, &params, &opened));
    pool = opened;
    pthread_barrier_wait(&board_all);
    kvcl_store_close(opened);
    kvcl_finalize(own);
    return NULL;
}

static void open_both(void)
{
    kvcl_layout_t             layout = KVCL_LAYOUT_BYTES(2 * BLOCKS, BLOCK);
    const kvcl_cache_params_t shared = {.size = sizeof(shared), .flags = KVCL_CACHE_WRITABLE};
    kvcl_store_params_t       params = KVCL_STORE_PARAMS_INIT;
    kvcl_comm_h               world;
    uint32_t                  i;

    setenv("KVCL_INLINE_COPY", "64K", 1);
    board.n = 0;
    pool    = NULL;
    pthread_barrier_init(&board_all, NULL, 2);
    ck_assert_int_eq(pthread_create(&other, NULL, hold_the_pool, &ranks[1]), 0);
    ctx = board_join(&ranks[0], 2, path, KVCL_INIT_NO_THREAD, &world);
    TAKEN(kvcl_cache_create(ctx, "mine", &layout, &shared, &cache));
    params.dir_entries = 4096;
    params.cache       = managed ? cache : NULL;
    params.block_bytes = stays ? BLOCK : 0;
    params.dram_bytes  = stays ? (uint64_t)2 * BLOCKS * BLOCK : 0; /* room for a second put beside the first */
    TAKEN(kvcl_store_open(world, &params, &store));
    while (pool == NULL) {
        (void)kvcl_progress(ctx);
    }
    bytes = kvcl_cache_base(cache, 0);
    if (managed) {
        TAKEN(kvcl_store_alloc(store, BLOCKS, near_ids));
        TAKEN(kvcl_store_alloc(store, BLOCKS, far_ids));
    }
    for (i = 0; i < BLOCKS; ++i) {
        memset(&keys[i], 0, sizeof(keys[i]));
        keys[i].bytes[0] = (uint8_t)(i + 1);
        keys[i].bytes[9] = 7;
        near_ids[i]      = managed ? near_ids[i] : i;
        far_ids[i]       = managed ? far_ids[i] : BLOCKS + i;
        memset(bytes + ((size_t)near_ids[i] * BLOCK), (int)i + 1, BLOCK);
    }
}

static void open_own(void)
{
    managed = false;
    path    = "loop";
    open_both();
}

static void open_managed(void)
{
    managed = true;
    path    = "loop";
    open_both();
}

static void open_tcp(void)
{
    managed = false;
    path    = "tcp";
    setenv("KVCL_NET", "lo", 1);
    open_both();
}

static void open_stays(void)
{
    stays = true;
    open_own();
}

static void open_stays_managed(void)
{
    stays = true;
    open_managed();
}

static void open_stays_tcp(void)
{
    stays = true;
    open_tcp();
}

static void close_both(void)
{
    pthread_barrier_wait(&board_all);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    pthread_join(other, NULL);
    pthread_barrier_destroy(&board_all);
}

static kvcl_status_t put_of(const uint32_t *ids, size_t n, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t own = KVCL_XFER_PARAMS_INIT;

    own          = (params != NULL) ? *params : own;
    own.flags    |= stays ? KVCL_PUT_STAYS : 0;
    own.replicas = stays ? 2 : own.replicas;
    return kvcl_store_put(store, keys, n, cache, ids, &own, req_p);
}

static kvcl_status_t put(size_t n, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return put_of(near_ids, n, params, req_p);
}

#define ENDS(_req) ck_assert_msg(end_of(_req) == KVCL_OK, "%s", kvcl_last_error())

/* Each byte of block i in the pool is i + plus. */
static void check_bytes(size_t first, size_t n, unsigned plus)
{
    kvcl_req_h req;
    size_t     i, j;

    TAKEN(kvcl_store_get(store, keys + first, n, cache, far_ids, NULL, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    for (i = 0; i < n; ++i) {
        for (j = 0; j < BLOCK; j += 997) {
            ck_assert_uint_eq(bytes[((size_t)far_ids[i] * BLOCK) + j], (uint8_t)(first + i + plus));
        }
    }
}

/* Rank 0's pool is filled with other keys: what is left of these is in rank 1's. */
static void forget_here(void)
{
    static kvcl_key_t others[2 * BLOCKS];
    uint32_t          ids[2 * BLOCKS], i;
    kvcl_req_h        req;

    for (i = 0; i < 2 * BLOCKS; ++i) {
        others[i].bytes[0] = (uint8_t)(i + 1);
        others[i].bytes[9] = 200;
        ids[i]             = near_ids[i % BLOCKS];
    }
    TAKEN(kvcl_store_put(store, others, 2 * BLOCKS, cache, ids, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
}

static kvcl_store_stats_t stats_of(kvcl_store_h of)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;

    TAKEN(kvcl_store_stats(of, &stats));
    return stats;
}

/* ---- the tests ---- */

START_TEST(a_put_reads_nothing_inside_the_call)
{
    uint8_t            copies[BLOCKS];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;
    size_t             i;

    params.copies = copies;
    TAKEN(put(BLOCKS, &params, &req));
    memset(bytes + ((size_t)near_ids[1] * BLOCK), 99, BLOCK); /* its checksum is that of these bytes */
    ck_assert_int_eq(end_of(req), KVCL_OK);
    for (i = 0; i < BLOCKS; ++i) {
        ck_assert_uint_eq(copies[i], stays ? 2 : 1);
    }
    ck_assert_uint_eq(count_present(), BLOCKS);
    check_bytes(0, 1, 1);
    check_bytes(1, 1, 98);
    check_bytes(2, BLOCKS - 2, 1);
    if (stays) {
        forget_here();
        check_bytes(0, 1, 1);
        check_bytes(1, 1, 98);
        check_bytes(2, BLOCKS - 2, 1);
    }
}
END_TEST

/* Rank 0 stops as soon as rank 1 can fetch the first blocks, and cancels when it has some: those stay, with their
 * bytes, whatever rank 0 writes into its cache from then on. */
START_TEST(blocks_are_fetched_before_the_pool_here_has_them)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         other_key = {{0}};
    kvcl_status_t      status[BLOCKS];
    kvcl_req_h         req;
    unsigned           naps, n = 0;
    size_t             i, j;

    params.flags   = KVCL_PUT_TO;
    params.to_rank = 1;
    TAKEN(kvcl_store_put(store, &other_key, 1, cache, far_ids, &params, &req)); /* rank 1 knows the cache from now on */
    ENDS(req);
    TAKEN(put(BLOCKS, NULL, &req));
    while (stats_of(store).blocks == 0) {
        (void)kvcl_progress(ctx);
    }
    ck_assert_uint_eq(stats_of(store).pool_published, 0);
    for (naps = 0; (naps < 60000) && (stats_of(pool).copied == 1); ++naps) {
        usleep(1000);
    }
    ck_assert_uint_gt(stats_of(pool).copied, 1);
    kvcl_req_cancel(req);
    ck_assert_int_eq(end_of(req), KVCL_ERR_CANCELED);
    for (i = 0; i < BLOCKS; ++i) {
        memset(bytes + ((size_t)near_ids[i] * BLOCK), 0xee, BLOCK);
    }
    ck_assert_uint_eq(stats_of(store).blocks, 0);
    TAKEN(kvcl_store_get(store, keys, BLOCKS, cache, far_ids, status, NULL, &req));
    (void)!end_of(req);
    for (i = 0; i < BLOCKS; ++i) {
        n += (status[i] == KVCL_OK) ? 1 : 0;
        for (j = 0; (status[i] == KVCL_OK) && (j < BLOCK); ++j) {
            ck_assert_uint_eq(bytes[((size_t)far_ids[i] * BLOCK) + j], i + 1);
        }
    }
    ck_assert_uint_lt(n, BLOCKS);
}
END_TEST

/* Those that the pool here has already, in one copy, are copied from there. */
START_TEST(blocks_of_one_copy_get_a_second_one)
{
    uint8_t            copies[BLOCKS];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;
    size_t             i;

    TAKEN(kvcl_store_put(store, keys, BLOCKS / 2, cache, near_ids, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    params.copies = copies;
    TAKEN(put(BLOCKS, &params, &req));
    ENDS(req);
    for (i = 0; i < BLOCKS; ++i) {
        ck_assert_uint_eq(copies[i], 2);
    }
    forget_here();
    check_bytes(0, BLOCKS, 1);
}
END_TEST

/* The call copies so few bytes itself. */
START_TEST(a_small_put_takes_no_block)
{
    kvcl_req_h req, again;

    TAKEN(put(1, NULL, &req));
    TAKEN(put(1, NULL, &again));
    memset(bytes + ((size_t)near_ids[0] * BLOCK), 99, BLOCK);
    ck_assert_int_eq(end_of(req), KVCL_OK);
    ck_assert_int_eq(end_of(again), KVCL_OK);
    forget_here();
    check_bytes(0, 1, 1);
}
END_TEST

START_TEST(the_call_takes_the_blocks)
{
    kvcl_key_t another = keys[0];
    kvcl_req_h req, none;

    another.bytes[9] = 8;
    TAKEN(put(BLOCKS, NULL, &req));
    ck_assert_int_eq(put(BLOCKS, NULL, &none), KVCL_ERR_BUSY);
    ck_assert_msg(strstr(kvcl_last_error(), "published already, or being put") != NULL, "%s", kvcl_last_error());
    ck_assert_int_eq(kvcl_store_publish(store, &another, 1, cache, &near_ids[BLOCKS - 1], NULL, &none), KVCL_ERR_BUSY);
    ck_assert_int_eq(managed ? kvcl_store_free(store, &near_ids[0], 1) : KVCL_ERR_BUSY, KVCL_ERR_BUSY);
    ck_assert_int_eq(end_of(req), KVCL_OK);
    TAKEN(kvcl_store_put(store, &another, 1, cache, &near_ids[0], NULL, &req)); /* they are the caller's again */
    ck_assert_int_eq(end_of(req), KVCL_OK);
    TAKEN(kvcl_store_publish(store, &another, 1, cache, &near_ids[1], NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    if (managed) {
        TAKEN(kvcl_store_free(store, &near_ids[2], 1));
    }
}
END_TEST

START_TEST(a_block_given_twice_is_refused_and_none_is_taken)
{
    uint32_t   ids[BLOCKS];
    kvcl_req_h req;

    memcpy(ids, near_ids, sizeof(ids));
    ids[BLOCKS - 1] = ids[3];
    ck_assert_int_eq(put_of(ids, BLOCKS, NULL, &req), KVCL_ERR_BUSY);
    TAKEN(put(BLOCKS, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    check_bytes(0, BLOCKS, 1);
}
END_TEST

START_TEST(a_canceled_put_leaves_nothing)
{
    kvcl_req_h req;

    TAKEN(put(BLOCKS, NULL, &req));
    kvcl_req_cancel(req);
    ck_assert_int_eq(end_of(req), KVCL_ERR_CANCELED);
    ck_assert_uint_eq(count_present(), 0);
    TAKEN(put(BLOCKS, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    check_bytes(0, BLOCKS, 1);
}
END_TEST

START_TEST(a_deadline_leaves_nothing)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    params.timeout_ns = 1;
    TAKEN(put(BLOCKS, &params, &req));
    ck_assert_int_eq(end_of(req), KVCL_ERR_TIMED_OUT);
    ck_assert_uint_eq(count_present(), 0);
    TAKEN(put(BLOCKS, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
}
END_TEST

/* What the pool holds is not copied again: its bytes stay, whatever the caller's are. */
START_TEST(blocks_that_the_pool_holds_are_skipped)
{
    kvcl_req_h req;
    size_t     i;

    TAKEN(put(BLOCKS / 2, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    for (i = 0; i < BLOCKS; ++i) {
        memset(bytes + ((size_t)near_ids[i] * BLOCK), (int)i + 51, BLOCK);
    }
    TAKEN(put(BLOCKS, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    check_bytes(0, BLOCKS / 2, 1);
    check_bytes(BLOCKS / 2, BLOCKS / 2, 51);
    TAKEN(put(BLOCKS, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
}
END_TEST

START_TEST(an_upsert_replaces_them)
{
    kvcl_req_h req;
    size_t     i;

    TAKEN(put(BLOCKS, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    for (i = 0; i < BLOCKS; ++i) {
        memset(bytes + ((size_t)near_ids[i] * BLOCK), (int)i + 51, BLOCK);
    }
    TAKEN(kvcl_store_upsert(store, keys, BLOCKS, cache, near_ids, NULL, &req));
    ck_assert_int_eq(end_of(req), KVCL_OK);
    check_bytes(0, BLOCKS, 51);
}
END_TEST

START_TEST(a_closed_store_ends_its_puts)
{
    kvcl_req_h    req;
    kvcl_status_t status;

    TAKEN(put(BLOCKS, NULL, &req));
    pthread_barrier_wait(&board_all);
    kvcl_store_close(store);
    status = end_of(req);
    ck_assert_msg((status != KVCL_INPROGRESS) && (status != KVCL_ERR_TIMED_OUT), "%s", kvcl_status_name(status));
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    pthread_join(other, NULL);
}
END_TEST

static TCase *make_case(Suite *suite, const char *name, void (*open)(void))
{
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, open, close_both);
    tcase_add_test(tcase, a_put_reads_nothing_inside_the_call);
    tcase_add_test(tcase, the_call_takes_the_blocks);
    tcase_add_test(tcase, a_block_given_twice_is_refused_and_none_is_taken);
    tcase_add_test(tcase, a_canceled_put_leaves_nothing);
    tcase_add_test(tcase, a_deadline_leaves_nothing);
    tcase_add_test(tcase, blocks_that_the_pool_holds_are_skipped);
    tcase_add_test(tcase, an_upsert_replaces_them);
    suite_add_tcase(suite, tcase);
    return tcase;
}

static void add_stays(Suite *suite, const char *name, void (*open)(void))
{
    TCase *tcase = make_case(suite, name, open);

    if (open != open_stays_tcp) { /* which fetches with the help of rank 0 */
        tcase_add_test(tcase, blocks_are_fetched_before_the_pool_here_has_them);
    }
    tcase_add_test(tcase, blocks_of_one_copy_get_a_second_one);
    tcase_add_test(tcase, a_small_put_takes_no_block);
}

int main(void)
{
    Suite   *suite = suite_create("store_put_far");
    TCase   *ends  = tcase_create("ends"), *stay = tcase_create("ends, into the pool here too");
    SRunner *runner;
    int     failed;

    (void)make_case(suite, "a cache of the caller", open_own);
    (void)make_case(suite, "the store's own cache", open_managed);
    (void)make_case(suite, "over TCP", open_tcp);
    add_stays(suite, "into the pool here too", open_stays);
    add_stays(suite, "into the pool here too, from the store's own cache", open_stays_managed);
    add_stays(suite, "into the pool here too, over TCP", open_stays_tcp);
    tcase_set_timeout(ends, 60);
    tcase_add_checked_fixture(ends, open_own, NULL);
    tcase_add_test(ends, a_closed_store_ends_its_puts);
    suite_add_tcase(suite, ends);
    tcase_set_timeout(stay, 60);
    tcase_add_checked_fixture(stay, open_stays, NULL);
    tcase_add_test(stay, a_closed_store_ends_its_puts);
    suite_add_tcase(suite, stay);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
