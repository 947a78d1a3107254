/*
 * Requests: the four ways to collect, cancel, deadlines, callbacks, the descriptor, many threads, and the inactivity of
 * an idle context.
 */
#include "conform.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ends a test that hangs; no result depends on it. */
#define WAIT_NS (60 * KVCL_NS_PER_SEC)
enum { WAIT_MS = 60000 };

static kvcl_req_h recv_never(cf_t *cf, uint64_t timeout_ns, kvcl_req_cb_t cb, void *arg)
{
    static char        in[8];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    params.timeout_ns = timeout_ns;
    params.cb         = cb;
    params.cb_arg     = arg;
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 8, &params, &req));
    return req;
}

/* ---------------------------------------------------------------- collecting */

static void test_and_wait(cf_t *cf)
{
    char          in[4] = "", out[4] = "abc";
    kvcl_req_h    r, s;
    kvcl_status_t status;
    uint64_t      began;

    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 1, in, 4, NULL, &r));
    CF_IS(cf, kvcl_req_test(r), KVCL_INPROGRESS);
    began = kvcl_now_ns();
    CF_IS(cf, kvcl_req_wait(r, 3 * KVCL_NS_PER_MS), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, kvcl_now_ns() - began >= 3 * KVCL_NS_PER_MS);
    cf_fence(cf);
    CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 1, out, 4, NULL, &s));
    while ((status = kvcl_req_test(r)) == KVCL_INPROGRESS) {
    }
    CF_OK(cf, status);
    CF_CHECK(cf, strcmp(in, "abc") == 0);
    CF_OK(cf, kvcl_req_wait(s, KVCL_WAIT_FOREVER));
}

static void any_and_all(cf_t *cf)
{
    enum { N = 9 };
    char       in[N] = {0}, out[N];
    kvcl_req_h r[N + 1] = {NULL}, s[N];
    size_t     at = 77, i, n;
    unsigned   seen = 0;

    CF_OK(cf, kvcl_req_wait_any(r, 3, 1, &at));
    CF_CHECK(cf, at == 3);
    CF_OK(cf, kvcl_req_wait_any(NULL, 0, 1, &at));
    CF_CHECK(cf, at == 0);
    CF_OK(cf, kvcl_req_wait_all(r, 3, 1));
    CF_OK(cf, kvcl_req_wait_all(NULL, 0, 1));
    for (i = 0; i < N; ++i) {
        out[i] = (char)i;
        CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 10 + i, &in[i], 1, NULL, &r[(i + 1) % (N + 1)]));
    }
    at = 77;
    CF_IS(cf, kvcl_req_wait_any(r, N + 1, KVCL_NS_PER_MS, &at), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, at == 77);
    CF_IS(cf, kvcl_req_wait_all(r, N + 1, KVCL_NS_PER_MS), KVCL_ERR_WAIT_TIMEOUT);
    cf_fence(cf);
    for (i = N; i-- > 0;) {
        CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 10 + i, &out[i], 1, NULL, &s[i]));
    }
    for (n = 0; n < N; ++n) {
        CF_OK(cf, kvcl_req_wait_any(r, N + 1, WAIT_NS, &at));
        CF_CHECK(cf, (at >= 1) && (at <= N) && (r[at] == NULL) && (in[at - 1] == (char)(at - 1)));
        CF_CHECK(cf, (seen & (1u << at)) == 0);
        seen |= 1u << at;
    }
    CF_OK(cf, kvcl_req_wait_all(s, N, WAIT_NS));
    for (i = 0; i < N; ++i) {
        CF_CHECK(cf, s[i] == NULL);
    }
    r[0] = recv_never(cf, KVCL_NS_PER_MS, NULL, NULL);
    r[1] = recv_never(cf, 0, NULL, NULL);
    kvcl_req_cancel(r[1]);
    CF_CHECK(cf, kvcl_req_wait_all(r, 2, WAIT_NS) < 0); /* the first error */
    CF_CHECK(cf, (r[0] == NULL) && (r[1] == NULL));
    kvcl_req_cancel(NULL);
}

/* A wait that times out is an error that names its operation and the time; the operation continues. */
static void waits_end(cf_t *cf)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    cf_mem_t           mem    = cf_mem(cf, 64, true, KVCL_READ);
    char               who[32], in[4], out[4] = "abc";
    kvcl_req_h         r[2], s;
    uint64_t           began;
    size_t             at = 77;

    snprintf(who, sizeof(who), "of tag 2 from rank %d", cf_before(cf));
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 2, in, 4, NULL, &r[0]));
    r[1] = NULL;
    CF_IS(cf, kvcl_req_wait(r[0], 2 * KVCL_NS_PER_MS), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, (strstr(kvcl_last_error(), who) != NULL) && (strstr(kvcl_last_error(), "2ms") != NULL));
    CF_IS(cf, kvcl_req_wait_any(r, 2, 2 * KVCL_NS_PER_MS, &at), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, (strstr(kvcl_last_error(), "1 of 2 requests") != NULL) && (at == 77));
    CF_IS(cf, kvcl_req_wait_all(r, 2, 2 * KVCL_NS_PER_MS), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, (strstr(kvcl_last_error(), "1 of 2 requests") != NULL) && (r[0] != NULL));
    CF_IS(cf, kvcl_req_layer_wait(r[0], 0, 2 * KVCL_NS_PER_MS), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, strstr(kvcl_last_error(), "layer 0 of: kvcl_recv_bytes") != NULL);
    CF_IS(cf, kvcl_signal_wait(mem.mine, 8, 5, 2 * KVCL_NS_PER_MS), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, strstr(kvcl_last_error(), "offset 8") != NULL);
    CF_IS(cf, kvcl_signal_wait(mem.mine, 8, 5, KVCL_WAIT_FOREVER), KVCL_ERR_INVALID_PARAM);
    began = kvcl_now_ns(); /* 0: tests, does not wait */
    CF_IS(cf, kvcl_req_wait(r[0], 0), KVCL_ERR_WAIT_TIMEOUT);
    CF_IS(cf, kvcl_req_wait_any(r, 2, 0, &at), KVCL_ERR_WAIT_TIMEOUT);
    CF_IS(cf, kvcl_req_wait_all(r, 2, 0), KVCL_ERR_WAIT_TIMEOUT);
    CF_IS(cf, kvcl_req_layer_wait(r[0], 0, 0), KVCL_ERR_WAIT_TIMEOUT);
    CF_IS(cf, kvcl_signal_wait(mem.mine, 8, 5, 0), KVCL_ERR_WAIT_TIMEOUT);
    CF_CHECK(cf, kvcl_now_ns() - began < 20 * KVCL_NS_PER_SEC); /* KVCL_TIMEOUT is 30 s */
    cf_fence(cf);
    CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 2, out, 4, NULL, &s));
    CF_OK(cf, kvcl_req_wait(r[0], KVCL_WAIT_FOREVER));
    CF_OK(cf, kvcl_req_wait_all(&s, 1, KVCL_WAIT_DEFAULT));
    params.timeout_ns = 2 * KVCL_NS_PER_MS; /* a wait for ever ends with the operation's own deadline */
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 4, &params, &r[0]));
    CF_IS(cf, kvcl_req_wait(r[0], KVCL_WAIT_FOREVER), KVCL_ERR_TIMED_OUT);
    r[0]              = NULL;
    params.timeout_ns = KVCL_WAIT_FOREVER; /* so no operation may lack a deadline */
    CF_IS(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 4, &params, &r[0]), KVCL_ERR_INVALID_PARAM);
    CF_CHECK(cf, (r[0] == NULL) && (strstr(kvcl_last_error(), "KVCL_WAIT_FOREVER") != NULL));
    params.timeout_ns = KVCL_WAIT_DEFAULT;
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 4, &params, &r[0]));
    kvcl_req_cancel(r[0]);
    CF_IS(cf, cf_end(cf, r[0]), KVCL_ERR_CANCELED);
    cf_mem_end(cf, &mem);
}

/* ---------------------------------------------------------------- deadlines */

static void deadlines(cf_t *cf)
{
    static const unsigned ms[] = {1, 20, 150, 5, 60};
    uint64_t   began = kvcl_now_ns();
    kvcl_req_h reqs[5];
    unsigned   i;

    for (i = 0; i < 5; ++i) {
        reqs[i] = recv_never(cf, ms[i] * KVCL_NS_PER_MS, NULL, NULL);
    }
    for (i = 0; i < 5; ++i) {
        size_t at;
        CF_IS(cf, kvcl_req_wait_any(reqs, 5, WAIT_NS, &at), KVCL_ERR_TIMED_OUT);
        CF_CHECK(cf, kvcl_now_ns() - began >= ms[at] * KVCL_NS_PER_MS);
    }
}

typedef struct waiter {
    cf_t          *cf;
    kvcl_req_h    req;
    kvcl_status_t end;
    uint64_t      after_ns;
} waiter_t;

static void *wait_for_it(void *arg)
{
    waiter_t *w = arg;

    CF_IS(w->cf, kvcl_req_wait(w->req, WAIT_NS), w->end);
    w->after_ns = kvcl_now_ns();
    return NULL;
}

/* An earlier deadline that is set while others sleep on later ones is kept too. */
static void deadline_beside_sleepers(cf_t *cf)
{
    waiter_t  late = {cf, recv_never(cf, 2 * WAIT_NS, NULL, NULL), KVCL_ERR_CANCELED, 0};
    waiter_t  soon = {cf, NULL, KVCL_ERR_TIMED_OUT, 0};
    uint64_t  began;
    pthread_t a, b;

    pthread_create(&a, NULL, wait_for_it, &late);
    cf_sleep_us(cf, 30000);
    began    = kvcl_now_ns();
    soon.req = recv_never(cf, 50 * KVCL_NS_PER_MS, NULL, NULL);
    pthread_create(&b, NULL, wait_for_it, &soon);
    pthread_join(b, NULL);
    CF_CHECK(cf, soon.after_ns - began >= 50 * KVCL_NS_PER_MS);
    kvcl_req_cancel(late.req);
    pthread_join(a, NULL);
}

/* ---------------------------------------------------------------- callbacks */

static _Thread_local int posting; /* inside a posting call */

typedef struct seen {
    cf_t             *cf;
    _Atomic unsigned count;
    _Atomic int      status;
} seen_t;

static void on_end(void *arg, kvcl_status_t status)
{
    seen_t *seen = arg;

    CF_CHECK(seen->cf, posting == 0);
    atomic_store(&seen->status, status);
    atomic_fetch_add(&seen->count, 1);
}

static void wait_count(cf_t *cf, seen_t *seen, unsigned n)
{
    uint64_t until = kvcl_deadline_after(WAIT_NS);

    while (atomic_load(&seen->count) < n) {
        CF_CHECK(cf, !kvcl_deadline_passed(until));
        cf_sleep_us(cf, 50);
    }
    cf_sleep_us(cf, 500);
    CF_CHECK(cf, atomic_load(&seen->count) == n);
}

/* Operations copied inside the post, served, sent, received, canceled: each makes one callback, never inside the post;
 * with a handle and detached. */
static void callbacks(cf_t *cf)
{
    seen_t             seen   = {.cf = cf};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    size_t             len    = 300000;
    char               *buf   = malloc(len), in[8];
    kvcl_req_h         req;
    unsigned           n = 0, i, kind;

    params.cb     = on_end;
    params.cb_arg = &seen;
    for (kind = 0; kind < 2; ++kind) {
        cf_mem_t mem = cf_mem(cf, len, kind == 0, KVCL_READ_WRITE);
        for (i = 0; i < 16; ++i) {
            kvcl_req_h *req_p = (i & 1) ? &req : NULL;
            size_t     size   = (i & 2) ? len : 64;
            posting = 1;
            CF_OK(cf, (i & 4) ? kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf, size, &params, req_p)
                              : kvcl_put_bytes(mem.of[cf_after(cf)], 0, buf, size, &params, req_p));
            posting = 0;
            ++n;
            if (req_p != NULL) {
                CF_OK(cf, cf_end(cf, req));
            }
            wait_count(cf, &seen, n);
            CF_CHECK(cf, atomic_load(&seen.status) == KVCL_OK);
        }
        cf_mem_end(cf, &mem);
    }
    posting = 1;
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 2, in, 8, &params, NULL));
    CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 2, "message", 8, &params, NULL));
    posting = 0;
    wait_count(cf, &seen, n += 2);
    CF_CHECK(cf, strcmp(in, "message") == 0);
    req = recv_never(cf, 0, on_end, &seen);
    posting = 1; /* cancel must not run callbacks either */
    kvcl_req_cancel(req);
    posting = 0;
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_CANCELED);
    wait_count(cf, &seen, n += 1);
    CF_CHECK(cf, atomic_load(&seen.status) == KVCL_ERR_CANCELED);
    free(buf);
}

/* A chain: each callback posts the next operation, on the thread that runs it, and tests. */
typedef struct chain {
    cf_t             *cf;
    kvcl_rmem_h      from;
    char             buf[64];
    _Atomic unsigned left;
} chain_t;

static void next_link(void *arg, kvcl_status_t status)
{
    static _Thread_local int depth;
    chain_t                  *chain  = arg;
    kvcl_xfer_params_t       params  = KVCL_XFER_PARAMS_INIT;

    CF_CHECK(chain->cf, (status == KVCL_OK) && (depth == 0));
    if (atomic_fetch_sub(&chain->left, 1) > 1) {
        params.cb     = next_link;
        params.cb_arg = chain;
        depth         = 1;
        CF_OK(chain->cf, kvcl_get_bytes(chain->from, 0, chain->buf, 64, &params, NULL));
        depth = 0;
    }
}

static void callbacks_that_post(cf_t *cf)
{
    cf_mem_t mem   = cf_mem(cf, 64, (cf_same(cf) & 1) != 0, KVCL_READ);
    chain_t  chain = {.cf = cf, .from = mem.of[cf_after(cf)], .left = 300};
    uint64_t until = kvcl_deadline_after(WAIT_NS);

    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    params.cb     = next_link;
    params.cb_arg = &chain;
    CF_OK(cf, kvcl_get_bytes(chain.from, 0, chain.buf, 64, &params, NULL));
    while (atomic_load(&chain.left) > 0) {
        CF_CHECK(cf, !kvcl_deadline_passed(until));
        cf_sleep_us(cf, 50);
    }
    cf_mem_end(cf, &mem);
}

/* A callback runs even while the only other thread that could run it waits for a message that is not sent. */
static void *post_small(void *arg)
{
    chain_t            *chain  = arg;
    kvcl_xfer_params_t params  = KVCL_XFER_PARAMS_INIT;

    usleep(20000);
    params.cb     = next_link;
    params.cb_arg = chain;
    CF_OK(chain->cf, kvcl_get_bytes(chain->from, 0, chain->buf, 64, &params, NULL));
    return NULL;
}

static void callback_beside_a_waiter(cf_t *cf)
{
    cf_mem_t   mem   = cf_mem(cf, 64, true, KVCL_READ);
    chain_t    chain = {.cf = cf, .from = mem.of[cf_after(cf)], .left = 1};
    kvcl_req_h req;
    uint64_t   until;
    waiter_t   waiter = {cf, recv_never(cf, 2 * WAIT_NS, NULL, NULL), KVCL_ERR_CANCELED, 0};
    pthread_t  thread, poster;

    CF_OK(cf, kvcl_get_bytes(chain.from, 0, chain.buf, 64, NULL, &req)); /* connected and opened: the next is instant */
    CF_OK(cf, cf_end(cf, req));
    cf_fence(cf);
    pthread_create(&thread, NULL, wait_for_it, &waiter);
    pthread_create(&poster, NULL, post_small, &chain);
    until = kvcl_deadline_after(WAIT_NS);
    while (atomic_load(&chain.left) > 0) {
        CF_CHECK(cf, !kvcl_deadline_passed(until));
        usleep(500);
    }
    kvcl_req_cancel(waiter.req);
    pthread_join(poster, NULL);
    pthread_join(thread, NULL);
    cf_mem_end(cf, &mem);
}

/* ---------------------------------------------------------------- the descriptor */

static unsigned readable(int fd, int ms)
{
    struct pollfd pfd   = {.fd = fd, .events = POLLIN};
    uint64_t      count = 0;

    if (poll(&pfd, 1, ms) != 1) {
        return 0;
    }
    return (read(fd, &count, sizeof(count)) == sizeof(count)) ? (unsigned)count : 0;
}

/* Requests that the descriptor announces can be collected at once, so a sleeper may rely on it. */
static void descriptor(cf_t *cf)
{
    enum { ROUNDS = 300 };
    cf_mem_t           mem = cf_mem(cf, 70000, (cf_same(cf) & 1) != 0, KVCL_READ);
    char               *buf = malloc(70000), in[8];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status;
    seen_t             seen = {.cf = cf};
    kvcl_req_h         req, s;
    int                fd, again, i;

    CF_OK(cf, kvcl_context_eventfd(cf->ctx, &fd));
    CF_OK(cf, kvcl_context_eventfd(cf->ctx, &again));
    CF_CHECK(cf, (fd == again) && (fd >= 0));
    (void)readable(fd, 0);
    for (i = 0; i < ROUNDS; ++i) {
        CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf, (i % 2) ? 70000 : 8, NULL, &req));
        CF_CHECK(cf, readable(fd, WAIT_MS) == 1);
        status = kvcl_req_test(req);
        CF_OK(cf, status);
    }
    cf_fence(cf);
    CF_CHECK(cf, readable(fd, 0) == 0);
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 4, in, 8, NULL, &req));
    CF_CHECK(cf, readable(fd, 2) == 0);
    cf_fence(cf);
    CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 4, "told", 5, NULL, &s));
    for (i = 0; i < 2; i += (int)readable(fd, WAIT_MS)) {
    }
    CF_OK(cf, kvcl_req_test(req));
    CF_OK(cf, kvcl_req_test(s));
    params.cb     = on_end; /* one with a callback makes it readable as well */
    params.cb_arg = &seen;
    CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf, 8, &params, &req));
    CF_CHECK(cf, readable(fd, WAIT_MS) == 1);
    CF_OK(cf, cf_end(cf, req));
    wait_count(cf, &seen, 1);
    cf_mem_end(cf, &mem);
    free(buf);
}

static const cf_case_t cases[] = {
    {"test_and_wait", test_and_wait, 0},
    {"any_and_all", any_and_all, 0},
    {"waits_end", waits_end, 0},
    {"deadlines", deadlines, 0},
    {"deadline_beside_sleepers", deadline_beside_sleepers, 0},
    {"callbacks", callbacks, 0},
    {"callbacks_that_post", callbacks_that_post, 0},
    {"callback_beside_a_waiter", callback_beside_a_waiter, 0},
    {"descriptor", descriptor, CF_THREAD},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"shm", false, 2, 0}, {"shm", true, 2, 0}, {"tcp", false, 2, 0}, {"tcp", true, 3, 0},
    {"tcp", true, 2, KVCL_INIT_NO_THREAD},       {"shm", true, 2, KVCL_INIT_NO_THREAD},     {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
