/*
 * Completion queues: each operation is recorded once, whenever it ends, with its argument, status, bytes, time and
 * error; the descriptor is readable exactly while there are records; a drain takes no lock of a context; queues and
 * contexts may end in any order. And kvcl_req_wait_some.
 */
#include "config.h"
#include "conform.h"
#include "core/context.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends a test that hangs; no result depends on it. */
#define WAIT_NS (60 * KVCL_NS_PER_SEC)

static void *number(size_t n)
{
    return (void *)(uintptr_t)n;
}

static kvcl_xfer_params_t to(kvcl_queue_h queue, size_t n)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.queue  = queue;
    params.cb_arg = number(n);
    return params;
}

static size_t drain(cf_t *cf, kvcl_queue_h queue, kvcl_done_t *done, size_t cap)
{
    size_t n = 77;

    CF_OK(cf, kvcl_req_drain(queue, done, sizeof(*done), cap, &n));
    CF_CHECK(cf, n <= cap);
    return n;
}

/* Wait for exactly n records. */
static void drain_all(cf_t *cf, kvcl_queue_h queue, kvcl_done_t *done, size_t n)
{
    uint64_t until = kvcl_deadline_after(WAIT_NS);
    size_t   got   = 0;

    while (got < n) {
        CF_CHECK(cf, !kvcl_deadline_passed(until));
        (void)kvcl_progress(cf->ctx);
        got += drain(cf, queue, done + got, n - got);
        sched_yield();
    }
    CF_CHECK(cf, drain(cf, queue, done, 1) == 0);
}

/* ---------------------------------------------------------------- records */

enum { SMALL = 64, LARGE = 9 << 20 };

/* One of each kind of transfer, small ones that end inside their call and large ones. The number is the record's. */
static void post_one(cf_t *cf, kvcl_queue_h queue, const cf_mem_t *mem, char *buf, size_t i, uint64_t *bytes_p)
{
    kvcl_xfer_params_t params = to(queue, i);
    size_t             len    = (i & 1) ? LARGE : SMALL;
    char               *at    = buf + ((i / 8) * LARGE);
    kvcl_req_h         handle, *req_p = ((i % 3) == 0) ? &handle : NULL; /* with and without a handle */

    *bytes_p = len;
    switch ((i / 2) % 4) {
    case 0:
        CF_OK(cf, kvcl_get_bytes(mem->of[cf_after(cf)], 0, at, len, &params, req_p));
        break;
    case 1:
        CF_OK(cf, kvcl_put_bytes(mem->of[cf_after(cf)], 0, at, len, &params, req_p));
        break;
    case 2:
        CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), len, at, len, &params, req_p));
        break;
    default:
        CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), len, at, LARGE, &params, req_p));
        break;
    }
}

static void records(cf_t *cf)
{
    enum { N = 24 };
    cf_mem_t     mem  = cf_mem(cf, LARGE, (cf_same(cf) & 1) != 0, KVCL_READ_WRITE);
    char         *buf = calloc(N / 8, LARGE);
    uint64_t     bytes[N], began = kvcl_now_ns();
    kvcl_done_t  done[N];
    kvcl_queue_h queue;
    unsigned     seen = 0;
    size_t       i, n;

    CF_OK(cf, kvcl_queue_create(&queue));
    CF_CHECK(cf, drain(cf, queue, done, N) == 0);
    for (i = 0; i < N; ++i) {
        post_one(cf, queue, &mem, buf, i, &bytes[i]);
    }
    drain_all(cf, queue, done, N);
    for (i = 0; i < N; ++i) {
        n = (size_t)(uintptr_t)done[i].arg;
        CF_CHECK(cf, (n < N) && ((seen & (1u << n)) == 0));
        seen |= 1u << n;
        CF_OK(cf, done[i].status);
        CF_CHECK(cf, (done[i].bytes == bytes[n]) && (done[i].error == NULL) && (done[i].size == sizeof(done[i])));
        CF_CHECK(cf, (done[i].ns > 0) && (done[i].ns <= kvcl_now_ns() - began));
    }
    CF_OK(cf, kvcl_barrier(cf->world, &(kvcl_xfer_params_t){.size = sizeof(kvcl_xfer_params_t), .queue = queue}, NULL));
    drain_all(cf, queue, done, 1);
    CF_CHECK(cf, (done[0].status == KVCL_OK) && (done[0].bytes == 0) && (done[0].arg == NULL));
    kvcl_queue_destroy(queue);
    cf_mem_end(cf, &mem);
    free(buf);
}

enum { PIECES = 3, BLOCKS = 4, BLOCK = 4096, WORDS = 64, KINDS = 9 };

/* One of each other kind, with the number of its record: pieces, blocks, prepared transfers, notifications after data
 * and alone, collectives. bytes: what the record must say. */
static void post_kinds(cf_t *cf, kvcl_queue_h queue, const cf_mem_t *mem, char *buf, kvcl_cache_h cache,
                       kvcl_comm_h coll, const uint64_t *in, uint64_t *out, uint64_t bytes[KINDS])
{
    static const uint32_t ids[] = {0, 1, 2, 3};
    const kvcl_sel_t      sel   = cf_sel(ids, BLOCKS);
    kvcl_xfer_params_t    params[KINDS];
    kvcl_vec_t            v[PIECES];
    kvcl_xfer_h           xfer;
    int                   at = cf_after(cf);
    size_t                i;

    for (i = 0; i < PIECES; ++i) {
        v[i] = (kvcl_vec_t){i * 100000, buf + (i * 200000), 70000 + i};
    }
    for (i = 0; i < KINDS; ++i) {
        params[i] = to(queue, i);
        bytes[i]  = 0;
    }
    params[1].notify       = params[3].notify       = "seen";
    params[1].notify_bytes = params[3].notify_bytes = 4;
    CF_OK(cf, kvcl_get_vec(mem->of[at], v, PIECES, NULL, &params[0], NULL));
    CF_OK(cf, kvcl_put_vec(mem->of[at], v, PIECES, NULL, &params[1], NULL));
    bytes[0] = bytes[1] = (3 * 70000) + 3;
    CF_OK(cf, kvcl_get(cf->world, at, cache, &sel, &sel, &params[2], NULL));
    CF_OK(cf, kvcl_put(cf->world, at, cache, &sel, &sel, &params[3], NULL));
    CF_OK(cf, kvcl_xfer_prepare(cf->world, at, KVCL_XFER_PUT, cache, &sel, &sel, NULL, &xfer));
    CF_OK(cf, kvcl_xfer_post(xfer, ids, BLOCKS, ids, BLOCKS, &params[4], NULL));
    kvcl_xfer_free(xfer);
    bytes[2] = bytes[3] = bytes[4] = BLOCKS * BLOCK;
    CF_OK(cf, kvcl_notify(cf->world, at, "alone", 5, &params[5], NULL));
    CF_OK(cf, kvcl_allreduce(coll, in, out, WORDS, KVCL_DTYPE_U64, KVCL_REDUCE_SUM, &params[6], NULL));
    CF_OK(cf, kvcl_bcast_bytes(coll, 0, buf + LARGE, LARGE, &params[7], NULL));
    CF_OK(cf, kvcl_barrier(coll, &params[8], NULL));
    bytes[6] = WORDS * sizeof(*in);
    bytes[7] = LARGE;
}

static void kinds(cf_t *cf)
{
    kvcl_layout_t             layout   = KVCL_LAYOUT_BYTES(BLOCKS, BLOCK);
    const kvcl_cache_params_t writable = {.size = sizeof(writable), .flags = KVCL_CACHE_WRITABLE};
    cf_mem_t                  mem      = cf_mem(cf, LARGE, (cf_same(cf) & 1) != 0, KVCL_READ_WRITE);
    char                      *buf     = calloc(2, LARGE);
    uint64_t                  in[WORDS], out[WORDS], bytes[KINDS];
    kvcl_done_t               done[KINDS];
    kvcl_queue_h              queue;
    kvcl_cache_h              cache;
    unsigned                  seen = 0;
    size_t                    i, n;

    for (i = 0; i < WORDS; ++i) {
        in[i] = i + (uint64_t)cf->rank;
    }
    CF_OK(cf, kvcl_queue_create(&queue));
    CF_OK(cf, kvcl_cache_create(cf->ctx, "kinds", &layout, &writable, &cache));
    cf_fence(cf);
    post_kinds(cf, queue, &mem, buf, cache, cf->world, in, out, bytes);
    drain_all(cf, queue, done, KINDS);
    for (i = 0; i < KINDS; ++i) {
        n = (size_t)(uintptr_t)done[i].arg;
        CF_CHECK(cf, (n < KINDS) && ((seen & (1u << n)) == 0));
        seen |= 1u << n;
        CF_OK(cf, done[i].status);
        CF_CHECK(cf, (done[i].bytes == bytes[n]) && (done[i].error == NULL) && (done[i].ns > 0));
    }
    for (i = 0; i < WORDS; ++i) {
        CF_CHECK(cf, out[i] == (i * (uint64_t)cf->size) + ((uint64_t)cf->size * ((uint64_t)cf->size - 1) / 2));
    }
    for (i = 0; i < 3; ++i) { /* "seen", "seen" and "alone" */
        kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
        CF_OK(cf, kvcl_notify_recv(cf->world, buf, 8, &info, WAIT_NS));
        CF_CHECK(cf, info.source == cf_before(cf));
    }
    cf_fence(cf);
    kvcl_cache_destroy(cache);
    kvcl_queue_destroy(queue);
    cf_mem_end(cf, &mem);
    free(buf);
}

/* A failed operation has its sentence, and a handle is dead once its record is drained. */
static void failures(cf_t *cf)
{
    kvcl_xfer_params_t params;
    kvcl_queue_h       queue;
    kvcl_req_h         req, handles[2];
    kvcl_done_t        done[2];
    char               in[8];
    size_t             at = 77;

    CF_OK(cf, kvcl_queue_create(&queue));
    params            = to(queue, 1);
    params.timeout_ns = KVCL_NS_PER_MS;
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 8, &params, NULL));
    drain_all(cf, queue, done, 1);
    CF_IS(cf, done[0].status, KVCL_ERR_TIMED_OUT);
    CF_CHECK(cf, (done[0].bytes == 0) && (strstr(done[0].error, "kvcl_recv_bytes of tag 57005") != NULL));
    params = to(queue, 2);
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 8, &params, &req));
    CF_IS(cf, kvcl_req_test(req), KVCL_ERR_INVALID_PARAM);
    CF_CHECK(cf, strstr(kvcl_last_error(), "kvcl_req_drain") != NULL);
    CF_IS(cf, kvcl_req_wait(req, 0), KVCL_ERR_INVALID_PARAM);
    handles[0] = NULL;
    handles[1] = req;
    CF_IS(cf, kvcl_req_wait_any(handles, 2, 0, &at), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_req_wait_all(handles, 2, 0), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_req_wait_some(handles, 2, 0, &at, NULL, &at), KVCL_ERR_INVALID_PARAM);
    CF_CHECK(cf, strcmp(kvcl_req_error(req), "") == 0);
    kvcl_req_cancel(req);
    CF_CHECK(cf, strstr(kvcl_req_error(req), "canceled") != NULL); /* not drained yet */
    drain_all(cf, queue, done, 1);
    CF_IS(cf, done[0].status, KVCL_ERR_CANCELED);
    CF_CHECK(cf, (done[0].arg == number(2)) && (strstr(done[0].error, "canceled") != NULL));
    CF_IS(cf, kvcl_req_test(req), KVCL_ERR_DEAD_HANDLE);
    params    = to(queue, 3); /* a call that fails is not recorded */
    CF_IS(cf, kvcl_recv_bytes(cf->world, cf->size, 1, in, 8, &params, &req), KVCL_ERR_UNKNOWN_RANK);
    CF_CHECK(cf, drain(cf, queue, done, 2) == 0);
    kvcl_queue_destroy(queue);
    CF_IS(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 1, in, 8, &params, &req), KVCL_ERR_DEAD_HANDLE);
}

/* Bytes are those of the larger buffer, whatever memory the algorithm needs; so is the number in a sentence. */
static void collectives(cf_t *cf)
{
    enum { N = 3 };
    const uint64_t expected[N] = {SMALL, (cf->rank == 0) ? (uint64_t)cf->size * SMALL : SMALL,
                                  (cf->rank == 0) ? (uint64_t)cf->size * SMALL : SMALL};
    char               in[CF_RANKS_MAX * SMALL] = {0}, out[CF_RANKS_MAX * SMALL], all[CF_RANKS_MAX * SMALL];
    kvcl_xfer_params_t params[N];
    kvcl_queue_h       queue;
    kvcl_done_t        done[N];
    size_t             i, n;

    CF_OK(cf, kvcl_queue_create(&queue));
    for (i = 0; i < N; ++i) {
        params[i] = to(queue, i);
    }
    CF_OK(cf, kvcl_allreduce(cf->world, in, out, SMALL, KVCL_DTYPE_U8, KVCL_REDUCE_MAX, &params[0], NULL));
    CF_OK(cf, kvcl_gather(cf->world, 0, in, SMALL, (cf->rank == 0) ? all : NULL, &params[1], NULL));
    drain_all(cf, queue, done, 2);
    CF_OK(cf, kvcl_scatter(cf->world, 0, (cf->rank == 0) ? in : NULL, SMALL, out, &params[2], NULL));
    drain_all(cf, queue, done + 2, 1);
    for (i = 0; i < N; ++i) {
        n = (size_t)(uintptr_t)done[i].arg;
        CF_OK(cf, done[i].status);
        CF_CHECK(cf, (n < N) && (done[i].bytes == expected[n]));
    }
    params[0].timeout_ns = KVCL_NS_PER_MS;
    if (cf->rank == 0) {
        cf_fence(cf);
    }
    CF_OK(cf, kvcl_allreduce(cf->world, in, out, SMALL, KVCL_DTYPE_U8, KVCL_REDUCE_MAX, &params[0], NULL));
    drain_all(cf, queue, done, 1);
    if (cf->rank != 0) {
        cf_fence(cf); /* the first rank comes too late */
    }
    CF_CHECK(cf, ((cf->rank == 0) && (done[0].status == KVCL_OK)) || /* the others had sent all that it needs */
                     ((done[0].status < 0) && (done[0].bytes == 0) && (strstr(done[0].error, ", 64 bytes") != NULL)));
    cf_fence(cf);
    kvcl_queue_destroy(queue);
}

/* ---------------------------------------------------------------- the descriptor */

static bool readable(int fd, int ms)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    return poll(&pfd, 1, ms) == 1;
}

static void descriptor(cf_t *cf)
{
    enum { N = 5 };
    cf_mem_t           mem = cf_mem(cf, SMALL, true, KVCL_READ);
    char               in[N][8], buf[SMALL];
    kvcl_xfer_params_t params;
    kvcl_done_t        done[N];
    kvcl_queue_h       queue;
    kvcl_req_h         sent[N];
    uint64_t           until = kvcl_deadline_after(WAIT_NS);
    int                fd, again;
    size_t             i;

    CF_OK(cf, kvcl_queue_create(&queue));
    params = to(queue, 0);
    CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf, SMALL, &params, NULL));
    CF_OK(cf, kvcl_queue_fd(queue, &fd)); /* the queue has a record already, or will have it */
    CF_OK(cf, kvcl_queue_fd(queue, &again));
    CF_CHECK(cf, fd == again);
    while (!readable(fd, 0)) {
        CF_CHECK(cf, !kvcl_deadline_passed(until));
        (void)kvcl_progress(cf->ctx);
        sched_yield();
    }
    CF_CHECK(cf, (drain(cf, queue, done, N) == 1) && !readable(fd, 0));
    for (i = 0; i < N; ++i) {
        params = to(queue, i);
        CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), i, in[i], 8, &params, NULL));
    }
    CF_CHECK(cf, !readable(fd, 2));
    cf_fence(cf);
    for (i = 0; i < N; ++i) {
        CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), i, "told", 5, NULL, &sent[i]));
    }
    CF_OK(cf, kvcl_req_wait_all(sent, N, WAIT_NS));
    cf_fence(cf); /* all have arrived: their sends are complete */
    CF_CHECK(cf, readable(fd, 60000));
    CF_CHECK(cf, (drain(cf, queue, done, 2) == 2) && readable(fd, 0)); /* some are left */
    CF_CHECK(cf, (drain(cf, queue, done, N) == N - 2) && !readable(fd, 0));
    CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf, SMALL, &params, NULL));
    drain_all(cf, queue, done, 1);
    CF_CHECK(cf, !readable(fd, 0));
    kvcl_queue_destroy(queue);
    cf_mem_end(cf, &mem);
}

/* ---------------------------------------------------------------- locks, threads */

/* With the engine lock held by this very thread, a drain that took it would hang. */
static void takes_no_engine_lock(cf_t *cf)
{
    char               in[8];
    kvcl_xfer_params_t params;
    kvcl_queue_h       queue;
    kvcl_done_t        done[2];
    kvcl_req_h         req;

    CF_OK(cf, kvcl_queue_create(&queue));
    params = to(queue, 1);
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 8, &params, &req));
    kvcl_lock(cf->ctx);
    CF_CHECK(cf, drain(cf, queue, done, 2) == 0);
    kvcl_unlock(cf->ctx);
    kvcl_req_cancel(req);
    kvcl_lock(cf->ctx);
    CF_CHECK(cf, (drain(cf, queue, done, 2) == 1) && (done[0].status == KVCL_ERR_CANCELED));
    kvcl_unlock(cf->ctx);
    kvcl_queue_destroy(queue);
}

enum { POSTERS = 3, EACH = 300 };

typedef struct crowd {
    cf_t             *cf;
    kvcl_queue_h     queue;
    const cf_mem_t   *mem;
    _Atomic unsigned got;
    _Atomic unsigned char seen[POSTERS * EACH];
} crowd_t;

static void *drainer(void *arg)
{
    crowd_t     *crowd = arg;
    uint64_t    until  = kvcl_deadline_after(WAIT_NS);
    kvcl_done_t done[7];
    size_t      n, i;

    while (atomic_load(&crowd->got) < POSTERS * EACH) {
        CF_CHECK(crowd->cf, !kvcl_deadline_passed(until));
        (void)kvcl_progress(crowd->cf->ctx);
        n = drain(crowd->cf, crowd->queue, done, 7);
        for (i = 0; i < n; ++i) {
            CF_CHECK(crowd->cf, atomic_fetch_add(&crowd->seen[(uintptr_t)done[i].arg], 1) == 0);
            CF_OK(crowd->cf, done[i].status);
        }
        atomic_fetch_add(&crowd->got, (unsigned)n);
        sched_yield();
    }
    return NULL;
}

typedef struct poster {
    crowd_t *crowd;
    size_t  first;
    char    buf[EACH][SMALL];
} poster_t;

static void *post_many(void *arg)
{
    poster_t           *poster = arg;
    crowd_t            *crowd  = poster->crowd;
    kvcl_xfer_params_t params;
    size_t             i;

    for (i = poster->first; i < poster->first + EACH; ++i) {
        params = to(crowd->queue, i);
        CF_OK(crowd->cf, kvcl_get_bytes(crowd->mem->of[cf_after(crowd->cf)], 0, poster->buf[i - poster->first], SMALL,
                                        &params, NULL));
    }
    return NULL;
}

/* Several threads post and several drain: each record is drained once. */
static void crowded(cf_t *cf)
{
    cf_mem_t  mem   = cf_mem(cf, SMALL, true, KVCL_READ);
    crowd_t   crowd = {.cf = cf, .mem = &mem};
    poster_t  posters[POSTERS];
    pthread_t threads[POSTERS + 2];
    size_t    i;

    CF_OK(cf, kvcl_queue_create(&crowd.queue));
    for (i = 0; i < POSTERS; ++i) {
        posters[i] = (poster_t){.crowd = &crowd, .first = i * EACH};
        CF_CHECK(cf, pthread_create(&threads[i], NULL, post_many, &posters[i]) == 0);
    }
    for (; i < POSTERS + 2; ++i) {
        CF_CHECK(cf, pthread_create(&threads[i], NULL, drainer, &crowd) == 0);
    }
    for (i = 0; i < POSTERS + 2; ++i) {
        pthread_join(threads[i], NULL);
    }
    for (i = 0; i < POSTERS * EACH; ++i) {
        CF_CHECK(cf, atomic_load(&crowd.seen[i]) == 1);
    }
    kvcl_queue_destroy(crowd.queue);
    cf_fence(cf);
    cf_mem_end(cf, &mem);
}

/* ---------------------------------------------------------------- ends */

/* Operations go on after their queue; records and requests outlive their context. */
static void ends(cf_t *cf)
{
    kvcl_init_params_t alone = KVCL_INIT_PARAMS_INIT;
    kvcl_xfer_params_t params;
    kvcl_context_h     ctx;
    kvcl_comm_h        self;
    kvcl_queue_h       queue, left;
    kvcl_req_h         handle, s;
    kvcl_done_t        done[4];
    char               in[3][8] = {"", "", ""};

    CF_OK(cf, kvcl_queue_create(&queue));
    params = to(queue, 1);
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 1, in[0], 8, &params, &handle));
    kvcl_queue_destroy(queue);
    cf_fence(cf);
    CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 1, "arrives", 8, NULL, &s));
    CF_OK(cf, cf_end(cf, s));
    cf_fence(cf);
    CF_CHECK(cf, strcmp(in[0], "arrives") == 0);
    CF_IS(cf, kvcl_req_test(handle), KVCL_ERR_DEAD_HANDLE);

    alone.boot = "self";
    alone.path = cf->path;
    CF_OK(cf, kvcl_init(&alone, &ctx));
    CF_OK(cf, kvcl_comm_world(ctx, &self));
    CF_OK(cf, kvcl_queue_create(&left));
    params = to(left, 2);
    CF_OK(cf, kvcl_recv_bytes(self, 0, 1, in[1], 8, &params, NULL));
    params = to(left, 3);
    CF_OK(cf, kvcl_recv_bytes(self, 0, 2, in[2], 8, &params, &handle));
    kvcl_req_cancel(handle);
    kvcl_finalize(ctx);
    CF_CHECK(cf, drain(cf, left, done, 4) == 2);
    CF_CHECK(cf, (done[0].arg == number(3)) && (done[1].arg == number(2)) && (done[1].status == KVCL_ERR_CANCELED) &&
                     (done[1].error != NULL));
    kvcl_queue_destroy(left);
    kvcl_queue_destroy(NULL);
}

/* ---------------------------------------------------------------- kvcl_req_wait_some */

static void some(cf_t *cf)
{
    enum { N = 9 };
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    char               in[N] = {0}, out[N];
    kvcl_req_h         r[N + 1] = {NULL}, s[N];
    kvcl_status_t      statuses[N + 1];
    size_t             at[N + 1], count = 77, got = 0, i;
    unsigned           seen = 0;

    CF_OK(cf, kvcl_req_wait_some(r, 3, 1, at, statuses, &count));
    CF_CHECK(cf, count == 0);
    CF_OK(cf, kvcl_req_wait_some(NULL, 0, 1, NULL, NULL, &count));
    CF_IS(cf, kvcl_req_wait_some(r, 3, 1, NULL, NULL, &count), KVCL_ERR_INVALID_PARAM);
    for (i = 0; i < N; ++i) {
        out[i] = (char)i;
        CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 10 + i, &in[i], 1, NULL, &r[i + 1]));
    }
    count = 77;
    CF_IS(cf, kvcl_req_wait_some(r, N + 1, KVCL_NS_PER_MS, at, statuses, &count), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, count == 77);
    cf_fence(cf);
    for (i = N; i-- > 0;) {
        CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 10 + i, &out[i], 1, NULL, &s[i]));
    }
    while (got < N) {
        CF_OK(cf, kvcl_req_wait_some(r, N + 1, WAIT_NS, at, statuses, &count));
        CF_CHECK(cf, (count >= 1) && (got + count <= N));
        for (i = 0; i < count; ++i) {
            CF_CHECK(cf, (r[at[i]] == NULL) && (statuses[i] == KVCL_OK) && ((seen & (1u << at[i])) == 0));
            CF_CHECK(cf, (i == 0) || (at[i - 1] < at[i]));
            seen |= 1u << at[i];
        }
        got += count;
    }
    CF_CHECK(cf, seen == 0x3fe);
    CF_OK(cf, kvcl_req_wait_all(s, N, WAIT_NS));
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 1, NULL, &r[0]));
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 1, NULL, &r[1]));
    params.timeout_ns = KVCL_NS_PER_SEC * 600;
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 1, &params, &r[2]));
    kvcl_req_cancel(r[0]);
    kvcl_req_cancel(r[1]);
    CF_IS(cf, kvcl_req_wait_some(r, 3, WAIT_NS, at, statuses, &count), KVCL_ERR_CANCELED);
    CF_CHECK(cf, (count == 2) && (at[0] == 0) && (at[1] == 1) && (statuses[1] == KVCL_ERR_CANCELED) && (r[2] != NULL));
    CF_CHECK(cf, strstr(kvcl_last_error(), "of tag 57005") != NULL);
    kvcl_req_cancel(r[2]);
    CF_IS(cf, cf_end(cf, r[2]), KVCL_ERR_CANCELED);
}

static const cf_case_t cases[] = {
    {"records", records, CF_RACY},
    {"kinds", kinds, CF_RACY},
    {"failures", failures, 0},
    {"collectives", collectives, 0},
    {"descriptor", descriptor, 0},
    {"takes_no_engine_lock", takes_no_engine_lock, 0},
    {"crowded", crowded, 0},
    {"ends", ends, 0},
    {"some", some, 0},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 3, CF_NATIVE},       {"shm", true, 2, 0}, {"tcp", true, 3, 0},
    {"tcp", true, 2, CF_LANE}, {"tcp", true, 2, KVCL_INIT_NO_THREAD}, {"shm", true, 2, KVCL_INIT_NO_THREAD},
    {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
