/*
 * Peers that die (SIGKILL) or stop (SIGSTOP) in the middle of a get, put, send or recv. Waiting ranks get an error
 * within a couple of seconds or at their deadline, never later; all other ranks continue.
 */
#include "config.h"
#include "conform.h"
#include "core/context.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BIG = 16 << 20 };

typedef struct tools {
    cf_mem_t   mapped; /* exported memory of the library */
    cf_mem_t   served; /* malloc'ed: the owner's CPU moves its bytes */
    cf_cache_t blocks, ours;
    char       *buf;
} tools_t;

static tools_t setup(cf_t *cf)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(16, BIG / 16);
    tools_t       t;

    t.mapped = cf_mem(cf, BIG, true, KVCL_READ_WRITE);
    t.served = cf_mem(cf, BIG, false, KVCL_READ_WRITE);
    t.blocks = cf_cache(cf, "theirs", &layout, false);
    t.ours   = cf_cache(cf, "ours", &layout, true);
    t.buf    = calloc(1, BIG);
    cf_fence(cf);
    return t;
}

/* Exchange a message between all ranks, so that the following operations are not the first contact. */
static void meet(cf_t *cf, tools_t *t)
{
    kvcl_req_h req;
    int        i;

    for (i = 0; i < cf->size; ++i) {
        CF_OK(cf, kvcl_get_bytes(t->served.of[i], 0, t->buf, 100, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_OK(cf, kvcl_put_bytes(t->mapped.of[i], 8 * (uint64_t)cf->rank, t->buf, 8, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    cf_fence(cf);
}

/* Free all objects of a rank that has lost another one, its context included. */
static void teardown(cf_t *cf, tools_t *t)
{
    kvcl_finalize(cf->ctx);
    cf->ctx = NULL;
    free(t->served.malloced);
    free(t->blocks.bases[0]);
    free(t->blocks.bases);
    free(t->buf);
}

static const uint32_t all16[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

enum { OP_GET_SERVED, OP_GET_MAPPED, OP_PUT_SERVED, OP_PUT_MAPPED, OP_GET_BLOCKS, OP_PUT_BLOCKS, OP_SEND, OP_SEND_SMALL,
       OP_SEND_BLOCKS, OP_RECV, OPS };

static kvcl_req_h post(cf_t *cf, tools_t *t, int op, int peer, uint64_t timeout_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         sel    = cf_sel(all16, 16);
    kvcl_req_h         req    = NULL;

    params.timeout_ns = timeout_ns;
    switch (op) {
    case OP_GET_SERVED:
        CF_OK(cf, kvcl_get_bytes(t->served.of[peer], 0, t->buf, BIG, &params, &req));
        break;
    case OP_GET_MAPPED:
        CF_OK(cf, kvcl_get_bytes(t->mapped.of[peer], 0, t->buf, BIG, &params, &req));
        break;
    case OP_PUT_SERVED:
        CF_OK(cf, kvcl_put_bytes(t->served.of[peer], 0, t->buf, BIG, &params, &req));
        break;
    case OP_PUT_MAPPED:
        params.signal_mem = t->mapped.of[peer];
        params.signal_add = 1;
        CF_OK(cf, kvcl_put_bytes(t->mapped.of[peer], 8, t->buf, BIG - 8, &params, &req));
        break;
    case OP_GET_BLOCKS:
        CF_OK(cf, kvcl_get(cf->world, peer, t->blocks.h, &sel, &sel, &params, &req));
        break;
    case OP_PUT_BLOCKS:
        params.remote_cache = "ours";
        CF_OK(cf, kvcl_put(cf->world, peer, t->blocks.h, &sel, &sel, &params, &req));
        break;
    case OP_SEND:
        CF_OK(cf, kvcl_send_bytes(cf->world, peer, 1, t->buf, BIG, &params, &req));
        break;
    case OP_SEND_SMALL:
        CF_OK(cf, kvcl_send_bytes(cf->world, peer, 2, t->buf, 100, &params, &req));
        break;
    case OP_SEND_BLOCKS:
        CF_OK(cf, kvcl_send(cf->world, peer, 3, t->ours.h, &sel, &params, &req));
        break;
    default:
        CF_OK(cf, kvcl_recv_bytes(cf->world, peer, 4, t->buf, BIG, &params, &req));
        break;
    }
    return req;
}

static void still_works(cf_t *cf, tools_t *t, int peer)
{
    kvcl_req_h req;

    memset(t->buf, 1, BIG);
    CF_OK(cf, kvcl_get_bytes(t->served.of[peer], 0, t->buf, 1 << 20, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    CF_CHECK(cf, t->buf[12345] == 0);
    CF_OK(cf, kvcl_put_bytes(t->served.of[peer], BIG - 8, t->buf, 8, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
}

static void die(void *arg, kvcl_status_t status)
{
    (void)arg;
    (void)status;
    kill(getpid(), SIGKILL);
}

/*
 * Over shared memory the rank dies from a callback, when no thread of the process is inside UCX. A writer killed
 * between taking a slot of another rank's queue and filling it (UCX's posix transport, 1.13 to 1.22) leaves that queue
 * blocked for all ranks, about one time in twenty-five here. CF_RUDE=1 kills at any moment there too.
 */
static void die_soon(cf_t *cf)
{
    static char        in[8];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           wait   = kvcl_rand_below(&cf->rnd, 4 * KVCL_NS_PER_MS);

    if ((strcmp(cf->path, "tcp") == 0) || (getenv("CF_RUDE") != NULL)) {
        usleep((unsigned)(wait / 1000));
        die(NULL, KVCL_OK);
    }
    params.timeout_ns = wait + 1;
    params.cb         = die;
    CF_OK(cf, kvcl_recv_bytes(cf->world, 1, 77, in, 8, &params, NULL));
    pause();
}

/* Where another pair of ports is tried, what cannot begin again ends before the peer has failed. */
static bool ends_with_the_link(cf_t *cf, kvcl_status_t status)
{
    return (status == KVCL_ERR_UNREACHABLE) && (cf->ctx->peers.lost_links != 0);
}

/* Rank 1 dies while ranks 0 and 2 have every kind of operation with it in flight; afterwards they communicate with each
 * other. */
static void killed_in_the_middle(cf_t *cf)
{
    tools_t       t = setup(cf);
    kvcl_req_h    reqs[OPS];
    kvcl_status_t status;
    int           op;

    meet(cf, &t);
    if (cf->rank == 1) {
        kvcl_req_h req;
        CF_OK(cf, kvcl_recv_bytes(cf->world, 0, 1, t.buf, BIG, NULL, &req));
        cf_fence(cf);
        die_soon(cf);
    }
    cf_fence(cf);
    for (op = 0; op < OPS; ++op) {
        reqs[op] = post(cf, &t, op, 1, 0);
    }
    for (op = 0; op < OPS; ++op) { /* at a deadline the status would be TIMED_OUT */
        status = cf_end(cf, reqs[op]);
        CF_CHECK(cf, (status == KVCL_OK) || (status == KVCL_ERR_RANK_FAILED) || ends_with_the_link(cf, status));
        CF_CHECK(cf, (op != OP_RECV) || (status != KVCL_OK));
    }
    for (op = 0; op < OPS; ++op) { /* now known to be dead: fails at once, except for mapped memory */
        kvcl_req_h req = post(cf, &t, op, 1, 0);
        status = cf_end(cf, req);
        CF_CHECK(cf, status == KVCL_ERR_RANK_FAILED);
    }
    still_works(cf, &t, 2 - cf->rank);
    *cf_word(cf, (unsigned)cf->rank + 10) = 1;
    while ((*cf_word(cf, 10) == 0) || (*cf_word(cf, 12) == 0)) {
        cf_sleep_us(cf, 100);
    }
    teardown(cf, &t);
}

/* The same before the first contact: the address of a rank that is already dead. */
static void dead_before_first_contact(cf_t *cf)
{
    tools_t       t   = setup(cf);
    const pid_t   pid = cf_pid(cf, 1);
    kvcl_status_t status;
    kvcl_req_h    req;
    int           op;

    if (cf->rank == 1) {
        kill(getpid(), SIGKILL);
    }
    cf_sleep_us(cf, (pid == 0) ? 20000 : 0); /* on another machine: by then it has most likely died */
    while ((pid != 0) && (kill(pid, 0) == 0)) { /* until its parent has waited for it */
        cf_sleep_us(cf, 100);
    }
    for (op = 0; op < OPS; ++op) {
        req    = post(cf, &t, op, 1, 3 * KVCL_NS_PER_SEC);
        status = cf_end(cf, req);
        CF_CHECK(cf, (status == KVCL_ERR_RANK_FAILED) || (status == KVCL_ERR_UNREACHABLE) ||
                         (status == KVCL_ERR_TIMED_OUT));
        if (status == KVCL_ERR_TIMED_OUT) {
            break; /* each would run to its deadline */
        }
    }
    still_works(cf, &t, 2 - cf->rank);
    *cf_word(cf, (unsigned)cf->rank + 10) = 1;
    while ((*cf_word(cf, 10) == 0) || (*cf_word(cf, 12) == 0)) {
        cf_sleep_us(cf, 100);
    }
    teardown(cf, &t);
}

/* Whether the operation uses mapped memory, or is native: over RDMA all gets and puts, otherwise where UCX can. */
static bool needs_no_owner(const cf_t *cf, int op)
{
    if (cf->native) {
        return op <= OP_PUT_BLOCKS;
    }
    return (strcmp(cf->path, "shm") == 0) && ((op == OP_GET_MAPPED) || (op == OP_GET_SERVED) || (op == OP_GET_BLOCKS));
}

/* Rank 1 stops. Operations that need its CPU end at the deadline (cf_end() waits no default of 30 s); the others
 * continue. Once it resumes, all works again, and no bytes of ended operations arrive. */
static void stopped(cf_t *cf)
{
    enum { DEADLINE_MS = 250 };
    tools_t       t = setup(cf);
    kvcl_req_h    reqs[OPS], req;
    kvcl_status_t status;
    uint64_t      began, took;
    char          word[8];
    int           op;

    meet(cf, &t);
    if (cf->rank == 1) {
        *cf_word(cf, 0) = 1;
        while (*cf_word(cf, 1) == 0) {
            usleep(1000);
        }
    } else if (cf->rank == 0) {
        while (*cf_word(cf, 0) == 0) {
            usleep(100);
        }
        cf_kill(cf, 1, SIGSTOP);
        began = kvcl_now_ns();
        for (op = 0; op < OPS; ++op) {
            reqs[op] = post(cf, &t, op, 1, DEADLINE_MS * KVCL_NS_PER_MS);
        }
        for (op = 0; op < OPS; ++op) {
            status = cf_end(cf, reqs[op]);
            took   = kvcl_now_ns() - began;
            CF_CHECK(cf, (status == KVCL_ERR_TIMED_OUT) || ((status == KVCL_OK) && needs_no_owner(cf, op)));
            CF_CHECK(cf, (status == KVCL_OK) || (took >= DEADLINE_MS * KVCL_NS_PER_MS));
        }
        memset(t.buf, 0x66, BIG);
        still_works(cf, &t, 2);
        memset(t.buf, 0x66, BIG);
        cf_kill(cf, 1, SIGCONT);
        CF_OK(cf, kvcl_get_bytes(t.served.of[1], 0, word, sizeof(word), NULL, &req)); /* after all earlier operations */
        CF_OK(cf, cf_end(cf, req));
        for (op = 0; op < BIG; ++op) {
            CF_CHECK(cf, t.buf[op] == 0x66);
        }
        *cf_word(cf, 1) = 1;
    }
    cf_fence(cf);
    if (cf->rank == 0) {
        CF_OK(cf, cf_end(cf, post(cf, &t, OP_GET_SERVED, 1, 0)));
        CF_OK(cf, cf_end(cf, post(cf, &t, OP_PUT_BLOCKS, 1, 0)));
    }
    cf_fence(cf);
    cf_mem_end(cf, &t.mapped);
    cf_mem_end(cf, &t.served);
    cf_cache_end(&t.blocks);
    cf_cache_end(&t.ours);
    free(t.buf);
}

/* Memory that a stopped rank is being sent from is not freed while the transport uses it; finalizing completes. */
static void leave_beside_a_stopped_one(cf_t *cf)
{
    tools_t t = setup(cf);

    meet(cf, &t);
    if (cf->rank == 1) {
        (void)post(cf, &t, OP_GET_SERVED, 0, 0); /* rank 0 serves into a full socket */
        *cf_word(cf, 0) = 1;
        pause();
    }
    while (*cf_word(cf, 0) == 0) {
        usleep(10);
    }
    if (cf->rank == 0) {
        cf_kill(cf, 1, SIGSTOP);
        usleep(20000);
        kvcl_cache_destroy(t.ours.h);
        teardown(cf, &t); /* would hang for ever if finalizing waited for the stopped rank */
        cf_kill(cf, 1, SIGKILL);
        *cf_word(cf, 1) = 1;
    }
    while (*cf_word(cf, 1) == 0) {
        usleep(1000);
    }
    if (cf->rank == 2) {
        teardown(cf, &t);
    }
}

/* A rank that finalizes notifies the others: ranks that wait for it need not wait for a deadline. */
static void left(cf_t *cf)
{
    tools_t    t = setup(cf);
    kvcl_req_h req;

    meet(cf, &t);
    if (cf->rank == 1) {
        cf_sleep_us(cf, 5000);
        teardown(cf, &t);
        return;
    }
    req = post(cf, &t, OP_RECV, 1, 0);
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_RANK_FAILED); /* at a deadline the status would be TIMED_OUT */
    still_works(cf, &t, 2 - cf->rank);
    *cf_word(cf, (unsigned)cf->rank + 10) = 1;
    while ((*cf_word(cf, 10) == 0) || (*cf_word(cf, 12) == 0)) {
        cf_sleep_us(cf, 100);
    }
    teardown(cf, &t);
}

static const cf_case_t cases[] = {
    {"killed_in_the_middle", killed_in_the_middle, CF_DIES},
    {"dead_before_first_contact", dead_before_first_contact, CF_DIES},
    {"stopped", stopped, CF_DIES},
    {"leave_beside_a_stopped_one", leave_beside_a_stopped_one, CF_DIES},
    {"left", left, CF_DIES},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {{"shm", true, 3, 0}, {"tcp", true, 3, 0}, {"tcp", true, 3, CF_LANE},
                                       {NULL, false, 0, 0}};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
