/*
 * Dead handles (errors.h is the frame). Every call refuses a freed handle, a handle of another kind, or no handle at
 * all, with a sentence that names the call and the kind. Calls that free do nothing with it; accessors return a neutral
 * value. Meanwhile new objects and requests reuse the addresses of dead objects and the slots of dead requests.
 */
#include "test/api/errors.h"

#include <stdatomic.h>

#define DEAD(_word, _call) REFUSED(DEAD_HANDLE, _word, _call)

/* A call that returns nothing: checks its error sentence. */
#define SAID(_word, _call)                                                                                           \
    do {                                                                                                             \
        forget_error();                                                                                              \
        _call;                                                                                                       \
        ck_assert_msg(strstr(kvcl_last_error(), (_word)) != NULL, "line %d: %s: \"%s\" lacks \"%s\"", __LINE__,       \
                      #_call, kvcl_last_error(), (_word));                                                           \
    } while (0)

static const char freed[] = "freed already";

static kvcl_comm_h new_comm(void)
{
    const int   me[] = {0};
    kvcl_comm_h comm;

    TAKEN(kvcl_comm_create(world, me, 1, &comm));
    return comm;
}

static kvcl_cache_h new_cache(const char *name)
{
    const kvcl_cache_params_t params = {.size = sizeof(params), .flags = KVCL_CACHE_WRITABLE};
    kvcl_cache_h made;

    TAKEN(kvcl_cache_create(ctx, name, &shape, &params, &made));
    return made;
}

/* ---- objects ---- */

static void no_memory(void *arg, const kvcl_memory_info_t *info)
{
    (void)arg;
    (void)info;
}

START_TEST(a_dead_communicator)
{
    kvcl_comm_h dead = new_comm();

    kvcl_comm_free(dead);
    SAID(freed, kvcl_comm_free(dead));
    SAID("kvcl_comm_free: the communicator", kvcl_comm_free(dead));
    DEAD("kvcl_get: the communicator was freed already", kvcl_get(dead, 0, cache, &good, &good, NULL, &out.req));
    DEAD(freed, kvcl_put(dead, 0, cache, &good, &good, NULL, &out.req));
    DEAD(freed, kvcl_send(dead, 0, 1, cache, &good, NULL, &out.req));
    DEAD(freed, kvcl_send_bytes(dead, 0, 1, "x", 1, NULL, &out.req));
    DEAD(freed, kvcl_recv(dead, 0, 1, cache, &good, NULL, &out.req));
    DEAD(freed, kvcl_recv_bytes(dead, KVCL_ANY_SOURCE, 1, out.bytes, 8, NULL, &out.req));
    DEAD(freed, kvcl_xfer_prepare(dead, 0, KVCL_XFER_GET, cache, &good, &good, NULL, (kvcl_xfer_h *)&out.req));
    DEAD(freed, kvcl_barrier(dead, NULL, &out.req));
    DEAD(freed, kvcl_bcast(dead, 0, cache, &good, NULL, &out.req));
    DEAD(freed, kvcl_bcast_bytes(dead, 0, out.bytes, 8, NULL, &out.req));
    DEAD(freed, kvcl_allgather(dead, out.bytes, 8, out.bytes, NULL, &out.req));
    DEAD(freed, kvcl_comm_create(dead, (const int[]){0}, 1, &out.comm));
    DEAD(freed, kvcl_comm_split(dead, 1, 0, SECOND, &out.comm));
    DEAD(freed, kvcl_probe(dead, KVCL_ANY_SOURCE, KVCL_ANY_TAG, 0, &(kvcl_recv_info_t)KVCL_RECV_INFO_INIT));
    DEAD(freed, kvcl_comm_connect(dead, "kvcl1:", SECOND, &out.comm));
    DEAD(freed, kvcl_comm_accept(dead, SECOND, &out.comm));
    DEAD(freed, kvcl_rmem_import(dead, 0, "x", 1, &out.rmem));
    DEAD(freed, kvcl_store_open(dead, NULL, &out.store));
    DEAD(freed, kvcl_query_path(dead, 0, (char *)out.bytes, 64));
    DEAD(freed, kvcl_query_memory(dead, 0, no_memory, NULL));
    SAID(freed, ck_assert_int_eq(kvcl_comm_rank(dead), -1));
    SAID(freed, ck_assert_int_eq(kvcl_comm_size(dead), 0));
    SAID(freed, ck_assert_uint_eq(kvcl_comm_view(dead), 0));
    SAID(freed, ck_assert_int_eq(kvcl_comm_is_inter(dead), 0));
}
END_TEST

START_TEST(a_dead_cache)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        dead   = new_cache("dies");
    kvcl_xfer_h         xfer;

    TAKEN(kvcl_xfer_prepare(world, 0, KVCL_XFER_GET, dead, &good, &good, NULL, &xfer));
    kvcl_cache_destroy(dead);
    SAID("kvcl_cache_destroy: the cache was freed already", kvcl_cache_destroy(dead));
    DEAD(freed, kvcl_get(world, 0, dead, &good, &good, NULL, &out.req));
    DEAD(freed, kvcl_put(world, 0, dead, &good, &good, NULL, &out.req));
    DEAD(freed, kvcl_send(world, 0, 1, dead, &good, NULL, &out.req));
    DEAD(freed, kvcl_recv(world, 0, 1, dead, &good, NULL, &out.req));
    DEAD(freed, kvcl_bcast(world, 0, dead, &good, NULL, &out.req));
    DEAD(freed, kvcl_cache_read_block(dead, 0, out.bytes, 256));
    DEAD(freed, kvcl_cache_write_block(dead, 0, out.bytes, 256));
    DEAD("kvcl_xfer_post: the cache", kvcl_xfer_post(xfer, good_ids, 2, good_ids, 2, NULL, &out.req));
    params.cache = dead;
    DEAD("kvcl_store_open: params.cache", kvcl_store_open(world, &params, &out.store));
    SAID(freed, ck_assert_uint_eq(kvcl_cache_block_bytes(dead), 0));
    SAID(freed, ck_assert_uint_eq(kvcl_cache_blocks(dead), 0));
    SAID(freed, ck_assert_ptr_null(kvcl_cache_base(dead, 0)));
    SAID(freed, (void)kvcl_cache_kind(dead));
    kvcl_xfer_free(xfer);
    SAID("kvcl_xfer_free: the prepared transfer was freed already", kvcl_xfer_free(xfer));
    DEAD("kvcl_xfer_post: the prepared transfer", kvcl_xfer_post(xfer, good_ids, 2, good_ids, 2, NULL, &out.req));
}
END_TEST

START_TEST(dead_memory)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    unsigned char      desc[2048];
    size_t             len = sizeof(desc);
    kvcl_mem_h         dead;
    kvcl_rmem_h        import;

    TAKEN(kvcl_mem_alloc(ctx, 4096, NULL, &dead));
    TAKEN(kvcl_mem_export(dead, KVCL_READ | KVCL_WRITE, desc, &len));
    TAKEN(kvcl_rmem_import(world, 0, desc, len, &import));
    kvcl_mem_free(dead);
    SAID("kvcl_mem_free: the memory was freed already", kvcl_mem_free(dead));
    SAID(freed, ck_assert_int_eq(kvcl_mem_revoke(dead), KVCL_ERR_DEAD_HANDLE));
    SAID(freed, ck_assert_ptr_null(kvcl_mem_addr(dead)));
    SAID(freed, ck_assert_uint_eq(kvcl_mem_len(dead), 0));
    SAID(freed, (void)kvcl_mem_kind_of(dead));
    DEAD(freed, kvcl_mem_export(dead, KVCL_READ, out.bytes, &out.n));
    DEAD(freed, kvcl_signal_wait(dead, 0, 1, SECOND));
    kvcl_rmem_free(import);
    SAID("kvcl_rmem_free: the imported memory was freed already", kvcl_rmem_free(import));
    SAID(freed, ck_assert_uint_eq(kvcl_rmem_len(import), 0));
    DEAD(freed, kvcl_get_bytes(import, 0, plain, 8, NULL, &out.req));
    DEAD(freed, kvcl_put_bytes(import, 0, plain, 8, NULL, &out.req));
    params.signal_mem = import;
    DEAD(freed, kvcl_put(world, 0, cache, &good, &good, &params, &out.req));
}
END_TEST

START_TEST(a_dead_store)
{
    kvcl_store_stats_t stats = {.size = sizeof(stats)};
    kvcl_store_h       dead;
    uint64_t           cursor = 0;

    TAKEN(kvcl_store_open(world, NULL, &dead));
    kvcl_store_close(dead);
    SAID("kvcl_store_close: the store was freed already", kvcl_store_close(dead));
    DEAD(freed, kvcl_store_match(dead, keys, 2, &out.n, NULL));
    DEAD(freed, kvcl_store_match_all(dead, world, keys, 2, &out.n, NULL));
    DEAD(freed, kvcl_store_get_part(dead, keys, 2, NULL, NULL, cache, &good, NULL, NULL, &out.req));
    DEAD(freed, kvcl_store_exists(dead, keys, 2, out.bytes, NULL));
    DEAD(freed, kvcl_store_where(dead, keys, 1, (kvcl_store_places_t *)(void *)out.bytes, sizeof(kvcl_store_places_t),
                                 NULL));
    DEAD(freed, kvcl_store_get(dead, keys, 2, cache, good_ids, NULL, NULL, &out.req));
    DEAD(freed, kvcl_store_put(dead, keys, 2, cache, good_ids, NULL, &out.req));
    DEAD(freed, kvcl_store_remove(dead, keys, 2, NULL, &out.req));
    DEAD(freed, kvcl_store_alloc(dead, 1, &out.id));
    DEAD(freed, kvcl_store_drain(dead, NULL, NULL));
    DEAD(freed, kvcl_store_list(dead, 0, &cursor, (kvcl_store_item_t *)(void *)out.bytes, sizeof(kvcl_store_item_t), 1,
                                &out.n, NULL, NULL));
    SAID(freed, kvcl_store_unpin_local(dead, 0));
    DEAD(freed, kvcl_store_stats(dead, &stats));
}
END_TEST

START_TEST(a_dead_queue)
{
    kvcl_done_t  done[2];
    kvcl_queue_h dead;

    TAKEN(kvcl_queue_create(&dead));
    kvcl_queue_destroy(dead);
    SAID("kvcl_queue_destroy: the completion queue was freed already", kvcl_queue_destroy(dead));
    DEAD("kvcl_req_drain: the completion queue was freed already",
         kvcl_req_drain(dead, done, sizeof(done[0]), 2, &out.n));
    DEAD(freed, kvcl_queue_fd(dead, &out.fd));
    REFUSED(INVALID_PARAM, "the completion queue is a context",
            kvcl_req_drain((kvcl_queue_h)(void *)ctx, done, sizeof(done[0]), 2, &out.n));
    REFUSED(INVALID_PARAM, "queue_p", kvcl_queue_create(NULL));
    TAKEN(kvcl_queue_create(&dead));
    REFUSED(INVALID_PARAM, "fd_p", kvcl_queue_fd(dead, NULL));
    REFUSED(INVALID_PARAM, "NULL argument", kvcl_req_drain(dead, NULL, sizeof(done[0]), 2, &out.n));
    REFUSED(INVALID_PARAM, "NULL argument", kvcl_req_drain(dead, done, sizeof(done[0]), 2, NULL));
    kvcl_queue_destroy(dead);
    kvcl_queue_destroy(NULL);
}
END_TEST

static void no_latency(void *arg, const kvcl_latency_info_t *info)
{
    (void)arg;
    (void)info;
}

START_TEST(a_dead_context)
{
    kvcl_init_params_t   params = alone();
    kvcl_context_stats_t stats  = {.size = sizeof(stats)};
    kvcl_context_h       dead;
    kvcl_comm_h          its;
    kvcl_cache_h         left;
    kvcl_mem_h           memory;
    kvcl_xfer_h          xfer;
    kvcl_req_h           req;

    TAKEN(kvcl_init(&params, &dead));
    TAKEN(kvcl_comm_world(dead, &its));
    TAKEN(kvcl_cache_create(dead, "left", &shape, NULL, &left));
    TAKEN(kvcl_mem_alloc(dead, 64, NULL, &memory));
    TAKEN(kvcl_xfer_prepare(its, 0, KVCL_XFER_GET, left, &good, &good, NULL, &xfer));
    TAKEN(kvcl_recv_bytes(its, 0, 1, plain, 8, NULL, &req));
    kvcl_finalize(dead);
    SAID("kvcl_finalize: the context was freed already", kvcl_finalize(dead));
    DEAD(freed, kvcl_comm_world(dead, &out.comm));
    DEAD(freed, kvcl_context_address(dead, (char *)out.bytes, 64, &out.n));
    DEAD(freed, kvcl_context_eventfd(dead, &out.fd));
    DEAD(freed, kvcl_cache_create(dead, "c", &shape, NULL, &out.cache));
    DEAD(freed, kvcl_mem_alloc(dead, 64, NULL, &out.mem));
    DEAD(freed, kvcl_mem_register(dead, plain, 64, KVCL_MEM_HOST, NULL, &out.mem));
    DEAD(freed, kvcl_stream_done(dead, plain, NULL, &out.req));
    DEAD(freed, kvcl_context_connect_post(dead, "127.0.0.1:1", NULL, &out.comm, &out.req));
    SAID(freed, ck_assert_uint_eq(kvcl_progress(dead), 0));
    DEAD(freed, kvcl_context_stats(dead, &stats));
    DEAD(freed, kvcl_query_latency(dead, no_latency, NULL));
    /* Objects made from it were freed with it; its requests can be collected. */
    DEAD(freed, kvcl_barrier(its, NULL, &out.req));
    SAID(freed, kvcl_cache_destroy(left));
    SAID(freed, kvcl_mem_free(memory));
    DEAD(freed, kvcl_xfer_post(xfer, good_ids, 2, good_ids, 2, NULL, &out.req));
    kvcl_xfer_free(xfer);
    ck_assert_int_eq(kvcl_req_wait(req, SECOND), KVCL_ERR_CANCELED);
    DEAD("collected already", kvcl_req_wait(req, SECOND));
}
END_TEST

/* A new object is never taken for a dead one, however often memory is reused. */
START_TEST(addresses_are_not_used_again)
{
    enum { MANY = 20000 };
    kvcl_comm_h dead = new_comm(), comm;
    int         i;

    kvcl_comm_free(dead);
    for (i = 0; i < MANY; ++i) {
        comm = new_comm();
        ck_assert_ptr_ne(comm, dead);
        ck_assert_int_eq(kvcl_comm_rank(comm), 0);
        kvcl_comm_free(comm);
        ck_assert_int_eq(kvcl_comm_rank(comm), -1);
    }
    DEAD(freed, kvcl_barrier(dead, NULL, &out.req));
}
END_TEST

/* ---- kinds ---- */

START_TEST(other_kinds_are_named)
{
    kvcl_req_h req;

    REFUSED(INVALID_PARAM, "kvcl_barrier: the communicator is a cache",
            kvcl_barrier((kvcl_comm_h)cache, NULL, &out.req));
    REFUSED(INVALID_PARAM, "the cache is a context",
            kvcl_get(world, 0, (kvcl_cache_h)ctx, &good, &good, NULL, &out.req));
    REFUSED(INVALID_PARAM, "the context is a communicator", kvcl_comm_world((kvcl_context_h)world, &out.comm));
    REFUSED(INVALID_PARAM, "the imported memory is a memory",
            kvcl_get_bytes((kvcl_rmem_h)mem, 0, plain, 8, NULL, &out.req));
    REFUSED(INVALID_PARAM, "the request is a cache", kvcl_req_test((kvcl_req_h)cache));
    REFUSED(INVALID_PARAM, "is no communicator", kvcl_barrier((kvcl_comm_h)(void *)plain, NULL, &out.req));
    REFUSED(INVALID_PARAM, "is no communicator", kvcl_barrier((kvcl_comm_h)((char *)world + 8), NULL, &out.req));
    REFUSED(INVALID_PARAM, "is no request", kvcl_req_test((kvcl_req_h)(void *)plain));
    REFUSED(INVALID_PARAM, "is no request", kvcl_req_test((kvcl_req_h)UINTPTR_MAX));
    TAKEN(kvcl_recv_bytes(world, 0, 1, plain, 8, NULL, &req));
    REFUSED(INVALID_PARAM, "the communicator is a request", kvcl_barrier((kvcl_comm_h)req, NULL, &out.req));
    kvcl_req_cancel(req);
    ck_assert_int_eq(final(req), KVCL_ERR_CANCELED);
    SAID("kvcl_finalize: the context is a cache", kvcl_finalize((kvcl_context_h)cache));
    SAID("kvcl_cache_destroy: the cache is a memory", kvcl_cache_destroy((kvcl_cache_h)mem));
}
END_TEST

START_TEST(null_has_neutral_answers)
{
    ck_assert_int_eq(kvcl_comm_rank(NULL), -1);
    ck_assert_int_eq(kvcl_comm_size(NULL), 0);
    ck_assert_uint_eq(kvcl_comm_view(NULL), 0);
    ck_assert_int_eq(kvcl_comm_is_inter(NULL), 0);
    ck_assert_uint_eq(kvcl_cache_block_bytes(NULL), 0);
    ck_assert_uint_eq(kvcl_cache_blocks(NULL), 0);
    ck_assert_ptr_null(kvcl_cache_base(NULL, 0));
    ck_assert_int_eq(kvcl_cache_kind(NULL), KVCL_MEM_AUTO);
    ck_assert_ptr_null(kvcl_mem_addr(NULL));
    ck_assert_uint_eq(kvcl_mem_len(NULL), 0);
    ck_assert_int_eq(kvcl_mem_kind_of(NULL), KVCL_MEM_AUTO);
    ck_assert_uint_eq(kvcl_rmem_len(NULL), 0);
    ck_assert_uint_eq(kvcl_progress(NULL), 0);
    ck_assert_int_eq(kvcl_mem_revoke(NULL), KVCL_ERR_INVALID_PARAM);
    kvcl_store_unpin_local(NULL, 0);
    kvcl_req_cancel(NULL);
}
END_TEST

/* ---- requests ---- */

static kvcl_req_h instant(void)
{
    kvcl_req_h req;

    TAKEN(kvcl_get(world, 0, cache, &good, &good, NULL, &req));
    return req;
}

START_TEST(a_dead_request)
{
    kvcl_req_h dead[4], reqs[2], req;
    size_t     i, k;

    dead[0] = instant();
    TAKEN(final(dead[0]));
    TAKEN(kvcl_recv_bytes(world, 0, 1, plain, 8, NULL, &dead[1]));
    TAKEN(kvcl_send_bytes(world, 0, 1, "message", 8, NULL, &dead[2]));
    TAKEN(final(dead[1]));
    TAKEN(final(dead[2]));
    TAKEN(kvcl_recv_bytes(world, 0, 1, plain, 8, NULL, &dead[3]));
    kvcl_req_cancel(dead[3]);
    ck_assert_int_eq(final(dead[3]), KVCL_ERR_CANCELED);
    for (k = 0; k < 3; ++k) {
        for (i = 0; i < 4; ++i) {
            DEAD("kvcl_req_test: the request was collected already", kvcl_req_test(dead[i]));
            DEAD("kvcl_req_wait: the request", kvcl_req_wait(dead[i], SECOND));
            DEAD("kvcl_req_layer_ready", kvcl_req_layer_ready(dead[i], 0));
            DEAD("kvcl_req_layer_test", kvcl_req_layer_test(dead[i], 0));
            DEAD("kvcl_req_layer_wait", kvcl_req_layer_wait(dead[i], 0, SECOND));
            SAID("kvcl_req_cancel: the request was collected already", kvcl_req_cancel(dead[i]));
            SAID("kvcl_req_error: the request", (void)kvcl_req_error(dead[i]));
            reqs[0] = NULL;
            reqs[1] = dead[i];
            DEAD("kvcl_req_wait_any", kvcl_req_wait_any(reqs, 2, SECOND, &out.n));
            DEAD("kvcl_req_wait_all", kvcl_req_wait_all(reqs, 2, SECOND));
        }
        for (i = 0; i < 5000; ++i) { /* other requests use their slots and memory */
            req = instant();
            ck_assert((req != dead[0]) && (req != dead[1]) && (req != dead[2]) && (req != dead[3]));
            TAKEN((i % 2) ? kvcl_req_test(req) : final(req));
        }
    }
}
END_TEST

static void count(void *arg, kvcl_status_t status)
{
    ck_assert_int_eq(status, KVCL_OK);
    atomic_fetch_add((_Atomic unsigned *)arg, 1);
}

/* Many alive at once, with and without callbacks, collected by turns. They move no bytes: they would share a block. */
START_TEST(many_requests)
{
    enum { MANY = 3000 };
    static kvcl_req_h  reqs[MANY], were[MANY];
    const kvcl_sel_t   none   = {.blocks = good_ids, .n_blocks = 0};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    _Atomic unsigned   called = 0;
    int                i;

    params.cb     = count;
    params.cb_arg = &called;
    for (i = 0; i < MANY; ++i) {
        TAKEN(kvcl_get(world, 0, cache, &none, &none, (i % 3) ? NULL : &params, (i % 6 == 3) ? NULL : &reqs[i]));
    }
    for (i = 0; i < MANY; i += 2) {
        were[i] = reqs[i];
        TAKEN(final(reqs[i]));
        reqs[i] = NULL;
    }
    for (i = 0; i < MANY; i += 2) {
        DEAD("collected already", kvcl_req_test(were[i]));
    }
    TAKEN(kvcl_req_wait_all(reqs, MANY, SECOND));
    while (atomic_load(&called) < MANY / 3) {
        (void)kvcl_progress(ctx);
    }
    ck_assert_uint_eq(atomic_load(&called), MANY / 3);
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("handles");
    TCase   *tcase  = tcase_create("handles");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, open_world, close_world);
    tcase_add_test(tcase, a_dead_communicator);
    tcase_add_test(tcase, a_dead_cache);
    tcase_add_test(tcase, dead_memory);
    tcase_add_test(tcase, a_dead_store);
    tcase_add_test(tcase, a_dead_queue);
    tcase_add_test(tcase, a_dead_context);
    tcase_add_test(tcase, addresses_are_not_used_again);
    tcase_add_test(tcase, other_kinds_are_named);
    tcase_add_test(tcase, null_has_neutral_answers);
    tcase_add_test(tcase, a_dead_request);
    tcase_add_test(tcase, many_requests);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
