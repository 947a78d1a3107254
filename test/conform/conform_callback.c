/*
 * When callbacks run: before the call that collects their request returns, once, never inside the post. Each callback's
 * argument is poisoned and freed once the request is collected. A late callback is detected by the check of its magic
 * number, and by the address sanitizer.
 */
#include "conform.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 300, MAGIC = 0x600d600d, POISON = 0xdd };

enum { BY_TEST, BY_WAIT, BY_ANY, BY_ALL, WAYS };

typedef struct arg {
    uint32_t         magic;
    cf_t             *cf;
    _Atomic unsigned called;
    kvcl_status_t    status;
    bool             slow;
} arg_t;

static void on_end(void *user, kvcl_status_t status)
{
    arg_t *arg = user;

    if (arg->magic != MAGIC) {
        abort(); /* its identity has been poisoned as well */
    }
    if (arg->slow) {
        sched_yield();
        usleep(20);
    }
    CF_CHECK(arg->cf, arg->magic == MAGIC);
    arg->status = status;
    atomic_fetch_add(&arg->called, 1);
}

static arg_t *new_arg(cf_t *cf, kvcl_xfer_params_t *params)
{
    arg_t *arg = calloc(1, sizeof(*arg));

    *arg           = (arg_t){.magic = MAGIC, .cf = cf, .slow = kvcl_rand_below(&cf->rnd, 4) == 0};
    *params        = (kvcl_xfer_params_t)KVCL_XFER_PARAMS_INIT;
    params->cb     = on_end;
    params->cb_arg = arg;
    return arg;
}

/* The request was collected with this status: its callback must have returned. Without a sanitizer, later arguments
 * reuse the memory. */
static void end_arg(cf_t *cf, arg_t *arg, kvcl_status_t status)
{
    CF_CHECK(cf, (atomic_load(&arg->called) == 1) && (arg->status == status));
    memset(arg, POISON, sizeof(*arg));
    free(arg);
}

static kvcl_status_t collect(cf_t *cf, kvcl_req_h req, unsigned way)
{
    kvcl_req_h    reqs[2] = {NULL, req};
    kvcl_status_t status;
    size_t        at;

    switch (way) {
    case BY_TEST:
        while ((status = kvcl_req_test(req)) == KVCL_INPROGRESS) {
            sched_yield();
        }
        return status;
    case BY_ANY:
        status = kvcl_req_wait_any(reqs, 2, 20 * KVCL_NS_PER_SEC, &at);
        CF_CHECK(cf, (at == 1) && (reqs[1] == NULL));
        return status;
    case BY_ALL:
        status = kvcl_req_wait_all(reqs, 2, 20 * KVCL_NS_PER_SEC);
        CF_CHECK(cf, reqs[1] == NULL);
        return status;
    default:
        return cf_end(cf, req);
    }
}

/* Bytes copied inside the post, and served bytes. */
static void collected_after_callback(cf_t *cf)
{
    size_t             len = 40000;
    char               *buf = malloc(len);
    kvcl_xfer_params_t params;
    kvcl_req_h         req;
    unsigned           i, kind;

    for (kind = 0; kind < 2; ++kind) {
        cf_mem_t mem = cf_mem(cf, len, kind == 0, KVCL_READ_WRITE);
        for (i = 0; i < ROUNDS; ++i) {
            arg_t *arg = new_arg(cf, &params);
            CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf, (i & 8) ? len : 64, &params, &req));
            CF_CHECK(cf, (i % 3 != 0) || (usleep(i % 50), true)); /* the thread may be in the callback now */
            end_arg(cf, arg, collect(cf, req, i % WAYS));
        }
        cf_mem_end(cf, &mem);
    }
    free(buf);
}

/* Messages sent and received, canceled, timed out; many at once, collected in any order. */
static void many_at_once(cf_t *cf)
{
    enum { N = 32 };
    char               in[N];
    kvcl_xfer_params_t params;
    kvcl_req_h         reqs[2 * N];
    arg_t              *args[2 * N];
    kvcl_status_t      status;
    size_t             at, left, i;

    for (i = 0; i < N; ++i) {
        args[i] = new_arg(cf, &params);
        CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), i, &in[i], 1, &params, &reqs[i]));
    }
    for (i = 0; i < N; ++i) {
        args[N + i] = new_arg(cf, &params);
        CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), i, "x", 1, &params, &reqs[N + i]));
    }
    for (left = (size_t)2 * N; left > N / 2; --left) {
        status = kvcl_req_wait_any(reqs, (size_t)2 * N, 20 * KVCL_NS_PER_SEC, &at);
        CF_OK(cf, status);
        end_arg(cf, args[at], status);
        args[at] = NULL;
    }
    CF_OK(cf, kvcl_req_wait_all(reqs, (size_t)2 * N, 20 * KVCL_NS_PER_SEC));
    for (i = 0; i < (size_t)2 * N; ++i) {
        if (args[i] != NULL) {
            end_arg(cf, args[i], KVCL_OK);
        }
    }
    for (i = 0; i < 2; ++i) {
        args[0]           = new_arg(cf, &params);
        params.timeout_ns = (i == 0) ? 2 * KVCL_NS_PER_MS : 0;
        CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 1, &params, &reqs[0]));
        if (i == 1) {
            kvcl_req_cancel(reqs[0]);
        }
        status = collect(cf, reqs[0], (i == 0) ? BY_WAIT : BY_TEST);
        CF_IS(cf, status, (i == 0) ? KVCL_ERR_TIMED_OUT : KVCL_ERR_CANCELED);
        end_arg(cf, args[0], status);
    }
}

/* Several threads, each with requests of its own: each runs the others' callbacks. */
typedef struct poster {
    cf_t        cf; /* its own random numbers */
    kvcl_rmem_h from;
    pthread_t   thread;
} poster_t;

static void *post_many(void *user)
{
    poster_t           *poster = user;
    kvcl_xfer_params_t params;
    kvcl_req_h         req;
    char               buf[64];
    unsigned           i;

    for (i = 0; i < ROUNDS; ++i) {
        arg_t *arg = new_arg(&poster->cf, &params);
        CF_OK(&poster->cf, kvcl_get_bytes(poster->from, 0, buf, sizeof(buf), &params, &req));
        end_arg(&poster->cf, arg, collect(&poster->cf, req, i % WAYS));
    }
    return NULL;
}

static void several_threads(cf_t *cf)
{
    enum { N = 3 };
    cf_mem_t mem = cf_mem(cf, 64, (cf_same(cf) & 1) != 0, KVCL_READ);
    poster_t posters[N];
    unsigned i;

    for (i = 0; i < N; ++i) {
        posters[i] = (poster_t){.cf = *cf, .from = mem.of[cf_after(cf)]};
        kvcl_rand_seed(&posters[i].cf.rnd, cf_same(cf) + i);
        pthread_create(&posters[i].thread, NULL, post_many, &posters[i]);
    }
    for (i = 0; i < N; ++i) {
        pthread_join(posters[i].thread, NULL);
    }
    cf_mem_end(cf, &mem);
}

/* ---------------------------------------------------------------- inside callbacks */

typedef struct own {
    cf_t             *cf;
    kvcl_req_h       req;   /* this one's */
    kvcl_req_h       outer; /* the request in whose callback this one runs */
    kvcl_rmem_h      from;
    bool             wait;
    pthread_t        thread; /* of the outer callback */
    _Atomic unsigned nested; /* the inner callback has run on it */
    _Atomic unsigned over;
} own_t;

static void collect_own(void *user, kvcl_status_t status)
{
    own_t *own = user;

    CF_CHECK(own->cf, status == KVCL_OK);
    CF_OK(own->cf, own->wait ? kvcl_req_wait(own->req, KVCL_NS_PER_SEC) : kvcl_req_test(own->req));
    atomic_store(&own->over, 1);
}

/* A callback that collects its own request: the handle is valid, and no other caller needs to collect it. */
static void own_request(cf_t *cf)
{
    cf_mem_t           mem    = cf_mem(cf, 64, (cf_same(cf) & 1) != 0, KVCL_READ);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           until  = kvcl_deadline_after(60 * KVCL_NS_PER_SEC);
    kvcl_req_h         req;
    char               buf[64], in[2][8];
    own_t              own;
    unsigned           i;

    for (i = 0; i < 2; ++i) {
        own           = (own_t){.cf = cf, .wait = i == 1};
        params.cb     = collect_own;
        params.cb_arg = &own;
        CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), i, in[i], 8, &params, &own.req));
        cf_fence(cf);
        CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), i, "message", 8, NULL, NULL));
        while (atomic_load(&own.over) == 0) {
            CF_CHECK(cf, !kvcl_deadline_passed(until));
            cf_sleep_us(cf, 50);
        }
    }
    CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf, 64, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    cf_mem_end(cf, &mem);
}

static void inner(void *user, kvcl_status_t status)
{
    own_t *own = user;

    CF_CHECK(own->cf, status == KVCL_OK);
    if (!pthread_equal(own->thread, pthread_self())) {
        return; /* the other thread was first: beside the outer callback, not inside it */
    }
    CF_IS(own->cf, kvcl_req_test(own->outer), KVCL_INPROGRESS);
    CF_IS(own->cf, kvcl_req_wait(own->outer, KVCL_NS_PER_SEC), KVCL_ERR_BUSY);
    CF_IS(own->cf, kvcl_req_wait_all(&own->outer, 1, KVCL_NS_PER_SEC), KVCL_ERR_BUSY);
    CF_CHECK(own->cf, own->outer != NULL);
    atomic_store(&own->nested, 1);
}

static void outer(void *user, kvcl_status_t status)
{
    own_t              *own   = user;
    own_t              within = {.cf = own->cf, .outer = own->req, .thread = pthread_self()};
    uint64_t           until  = kvcl_deadline_after(60 * KVCL_NS_PER_SEC);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;
    char               buf[8];

    CF_CHECK(own->cf, status == KVCL_OK);
    params.cb     = inner;
    params.cb_arg = &within;
    while (atomic_load(&within.nested) == 0) {
        CF_CHECK(own->cf, !kvcl_deadline_passed(until));
        CF_OK(own->cf, kvcl_get_bytes(own->from, 0, buf, sizeof(buf), &params, &req)); /* completes within the post */
        CF_OK(own->cf, kvcl_req_wait(req, 60 * KVCL_NS_PER_SEC));
    }
    atomic_store(&own->over, 1);
}

/* A callback inside a callback cannot collect the outer one's request, and gets an error. */
static void nested(cf_t *cf)
{
    cf_mem_t           mem    = cf_mem(cf, 64, true, KVCL_READ);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    own_t              own    = {.cf = cf, .from = mem.of[cf_after(cf)]};
    char               in[8], buf[8];
    kvcl_req_h         req;

    CF_OK(cf, kvcl_get_bytes(own.from, 0, buf, sizeof(buf), NULL, &req)); /* opened: the next is copied in its post */
    CF_OK(cf, cf_end(cf, req));
    params.cb     = outer;
    params.cb_arg = &own;
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf->rank, 7, in, 8, &params, &own.req));
    CF_OK(cf, kvcl_send_bytes(cf->world, cf->rank, 7, "outer", 6, NULL, NULL));
    CF_OK(cf, cf_end(cf, own.req));
    CF_CHECK(cf, atomic_load(&own.over) == 1);
    cf_mem_end(cf, &mem);
}

static const cf_case_t cases[] = {
    {"collected_after_callback", collected_after_callback, 0},
    {"many_at_once", many_at_once, 0},
    {"several_threads", several_threads, 0},
    {"own_request", own_request, 0},
    {"nested", nested, CF_MAPPED},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0},
    {"loop", false, 2, KVCL_INIT_NO_THREAD},
    {"shm", true, 2, 0},
    {"shm", true, 2, KVCL_INIT_NO_THREAD},
    {"tcp", false, 2, 0},
    {"tcp", true, 2, KVCL_INIT_NO_THREAD},
    {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
