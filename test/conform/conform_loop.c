/*
 * Ranks without a progress thread in their own event loops. They sleep in poll(2) on the context's descriptor, without
 * a timeout, and only arm, test and post. Each serves its peers, completes its own requests, and wakes for deadlines
 * and for posts by another of its threads.
 */
#include "conform.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 60, LEN = 300000, STUCK_MS = 20000 };

/* Sleep until the descriptor is readable. A sleep of 20 s means a lost wake-up: nothing here takes that long. */
static void nap(cf_t *cf, int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    CF_CHECK(cf, poll(&pfd, 1, STUCK_MS) == 1);
}

/* Run the event loop until a request has ended. */
static kvcl_status_t loop_until(cf_t *cf, int fd, kvcl_req_h req)
{
    kvcl_status_t status, armed;

    for (;;) {
        do {
            armed  = kvcl_context_arm(cf->ctx);
            status = kvcl_req_test(req);
            CF_CHECK(cf, armed >= 0);
        } while ((armed == KVCL_INPROGRESS) && (status == KVCL_INPROGRESS));
        if (status != KVCL_INPROGRESS) {
            return status;
        }
        nap(cf, fd);
    }
}

/* A round of get from the next rank, which must serve it, a message to the next rank, and one from the last. Rank 0
 * falls behind now and then, so the others sleep when its messages arrive. */
static void loops(cf_t *cf)
{
    cf_mem_t   mem  = cf_mem(cf, LEN, (cf_same(cf) & 1) != 0, KVCL_READ);
    char       *buf = malloc(LEN), in[8];
    kvcl_req_h get, recv, send;
    unsigned   i;
    int        fd, again;

    cf_bytes((uint64_t)cf->rank, 0, mem.addr, LEN);
    CF_OK(cf, kvcl_context_eventfd(cf->ctx, &fd));
    CF_OK(cf, kvcl_context_eventfd(cf->ctx, &again));
    CF_CHECK(cf, fd == again);
    cf_fence(cf);
    for (i = 0; i < ROUNDS; ++i) {
        size_t len = (i % 3 == 0) ? LEN : 64;
        if ((cf->rank == 0) && (i % 8 == 0)) {
            usleep(3000); /* no thread progresses it meanwhile */
        }
        CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), i, in, 8, NULL, &recv));
        CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), i, "message", 8, NULL, &send));
        CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf, len, NULL, &get));
        CF_OK(cf, loop_until(cf, fd, get));
        CF_OK(cf, loop_until(cf, fd, recv));
        CF_OK(cf, loop_until(cf, fd, send));
        CF_CHECK(cf, (strcmp(in, "message") == 0) && cf_bytes_are((uint64_t)cf_after(cf), 0, buf, len));
    }
    cf_fence(cf); /* which progresses it for the ranks that are not done */
    cf_mem_end(cf, &mem);
    free(buf);
}

/* One rank only serves: it posts nothing, sleeps, and is woken by messages. */
static void one_serves(cf_t *cf)
{
    cf_mem_t   mem  = cf_mem(cf, LEN, false, KVCL_READ);
    char       *buf = malloc(LEN), stop[8];
    kvcl_req_h req;
    unsigned   i;
    int        fd;

    cf_bytes((uint64_t)cf->rank, 0, mem.addr, LEN);
    CF_OK(cf, kvcl_context_eventfd(cf->ctx, &fd));
    cf_fence(cf);
    if (cf->rank == 0) {
        CF_OK(cf, kvcl_recv_bytes(cf->world, 1, 77, stop, 8, NULL, &req));
        CF_OK(cf, loop_until(cf, fd, req));
    } else {
        for (i = 0; i < ROUNDS; ++i) {
            CF_OK(cf, kvcl_get_bytes(mem.of[0], 0, buf, (i & 1) ? LEN : 1000, NULL, &req));
            CF_OK(cf, loop_until(cf, fd, req));
            CF_CHECK(cf, cf_bytes_are(0, 0, buf, (i & 1) ? LEN : 1000));
            usleep((i % 5) * 300); /* the server falls asleep */
        }
        if (cf->rank == 1) {
            CF_OK(cf, kvcl_send_bytes(cf->world, 0, 77, "stop", 5, NULL, &req));
            CF_OK(cf, loop_until(cf, fd, req));
        }
    }
    cf_fence(cf);
    cf_mem_end(cf, &mem);
    free(buf);
}

/* The descriptor wakes for a deadline, and is not readable when there is nothing to do. */
static void deadlines(cf_t *cf)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    struct pollfd      pfd    = {.events = POLLIN};
    kvcl_req_h         req;
    char               in[8];
    int                fd;

    CF_OK(cf, kvcl_context_eventfd(cf->ctx, &fd));
    pfd.fd = fd;
    cf_fence(cf);
    params.timeout_ns = 30 * KVCL_NS_PER_MS;
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_after(cf), 0xdead, in, 8, &params, &req));
    CF_IS(cf, loop_until(cf, fd, req), KVCL_ERR_TIMED_OUT);
    while (kvcl_context_arm(cf->ctx) == KVCL_INPROGRESS) {
    }
    CF_CHECK(cf, poll(&pfd, 1, 0) == 0); /* armed, and no event: it must not stay readable */
    cf_fence(cf);
}

/* A second thread that posts or waits while the loop sleeps. */
typedef struct beside {
    cf_t        *cf;
    kvcl_rmem_h from;
    kvcl_req_h  theirs; /* the loop's request, ended by this thread's message */
} beside_t;

static void *post_beside(void *arg)
{
    beside_t   *beside = arg;
    cf_t       *cf     = beside->cf;
    char       *buf    = malloc(LEN);
    kvcl_req_h req;
    unsigned   i;

    for (i = 0; i < 10; ++i) {
        usleep(1000);
        CF_OK(cf, kvcl_get_bytes(beside->from, 0, buf, LEN, NULL, &req));
        CF_OK(cf, cf_end(cf, req)); /* this thread progresses the context, then hands it back */
    }
    CF_OK(cf, kvcl_send_bytes(cf->world, cf->rank, 55, "beside", 7, NULL, NULL)); /* the loop must progress this one */
    free(buf);
    return NULL;
}

static void threads_beside(cf_t *cf)
{
    cf_mem_t  mem    = cf_mem(cf, LEN, false, KVCL_READ);
    beside_t  beside = {.cf = cf, .from = mem.of[cf_after(cf)]};
    pthread_t thread;
    char      in[8];
    int       fd;

    CF_OK(cf, kvcl_context_eventfd(cf->ctx, &fd));
    cf_fence(cf);
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf->rank, 55, in, 8, NULL, &beside.theirs));
    pthread_create(&thread, NULL, post_beside, &beside);
    CF_OK(cf, loop_until(cf, fd, beside.theirs));
    CF_CHECK(cf, strcmp(in, "beside") == 0);
    pthread_join(thread, NULL);
    cf_fence(cf); /* others are served up to this point */
    cf_mem_end(cf, &mem);
}

static const cf_case_t cases[] = {
    {"loops", loops, 0},
    {"one_serves", one_serves, 0},
    {"deadlines", deadlines, 0},
    {"threads_beside", threads_beside, 0},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, KVCL_INIT_NO_THREAD}, {"shm", true, 2, KVCL_INIT_NO_THREAD},
    {"tcp", true, 3, KVCL_INIT_NO_THREAD},   {"tcp", true, 2, KVCL_INIT_NO_THREAD | CF_LANE},
    {"shm", true, 2, 0},                     {"tcp", true, 2, 0},
    {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
