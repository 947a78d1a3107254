/*
 * Inter-communicators between jobs that were started separately: forked ranks that meet at two rendezvous addresses,
 * and contexts alone in one process. Prints "ok NAME" for each case; exit 1 if one failed.
 *   connect RANKS-A RANKS-B
 */
#include "start_ranks.h"

#include <kvcl/kvcl.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(_cond)                                                                                    \
    do {                                                                                                \
        if (!(_cond)) {                                                                                 \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #_cond, kvcl_last_error()); \
            good = false;                                                                               \
        }                                                                                               \
    } while (0)

#define SECONDS(_s) ((uint64_t)(_s) * 1000000000u)

enum { RANKS_MAX = 8, ADDRESS_MAX = 16384, BLOCK = 5000 };

static bool good = true;
static char secrets[2][64];

static void make_secret(int i)
{
    int fd;

    snprintf(secrets[i], sizeof(secrets[i]), "/tmp/kvcl-connect-%d-%d", (int)getpid(), i);
    fd = open(secrets[i], O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if ((fd < 0) || (write(fd, (i == 0) ? "one job's secret" : "another's secret", 16) != 16)) {
        perror(secrets[i]);
        exit(1);
    }
    close(fd);
}

static kvcl_context_h alone(int secret)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx    = NULL;

    params.boot        = "self";
    params.secret_file = secrets[secret];
    KVCL_TRY(kvcl_init(&params, &ctx));
    return ctx;
}

static kvcl_comm_h world_of(kvcl_context_h ctx)
{
    kvcl_comm_h world = NULL;

    KVCL_TRY(kvcl_comm_world(ctx, &world));
    return world;
}

static void address_of(kvcl_context_h ctx, char *text)
{
    size_t len = 0;

    KVCL_TRY(kvcl_context_address(ctx, text, ADDRESS_MAX, &len));
}

static kvcl_status_t wait_for(kvcl_status_t posted, const kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted;
}

/* ---- in one process ---- */

typedef struct accepter {
    kvcl_comm_h   comm;
    unsigned      after_ms;
    uint64_t      timeout_ns;
    kvcl_comm_h   inter;
    kvcl_status_t status;
} accepter_t;

static void *accept_one(void *arg)
{
    accepter_t *a = arg;

    usleep(a->after_ms * 1000);
    a->status = kvcl_comm_accept(a->comm, a->timeout_ns, &a->inter);
    return NULL;
}

/* A message in each direction. */
static void talk(kvcl_comm_h a, kvcl_comm_h b)
{
    kvcl_req_h reqs[2] = {NULL, NULL};
    uint64_t   out = 4711, in = 0;

    CHECK(kvcl_recv_bytes(b, 0, 5, &in, sizeof(in), NULL, &reqs[0]) == KVCL_OK);
    CHECK(kvcl_send_bytes(a, 0, 5, &out, sizeof(out), NULL, &reqs[1]) == KVCL_OK);
    CHECK(wait_for(KVCL_OK, &reqs[1]) == KVCL_OK);
    CHECK(wait_for(KVCL_OK, &reqs[0]) == KVCL_OK);
    CHECK(in == 4711);
}

static void connect_once(kvcl_context_h a, kvcl_context_h b, unsigned accept_after_ms)
{
    accepter_t  acc = {.comm = world_of(b), .after_ms = accept_after_ms, .timeout_ns = SECONDS(60)};
    kvcl_comm_h inter = NULL;
    char        text[ADDRESS_MAX];
    pthread_t   thread;

    address_of(b, text);
    pthread_create(&thread, NULL, accept_one, &acc);
    CHECK(kvcl_comm_connect(world_of(a), text, SECONDS(60), &inter) == KVCL_OK);
    pthread_join(thread, NULL);
    CHECK(acc.status == KVCL_OK);
    if ((inter == NULL) || (acc.inter == NULL)) {
        return;
    }
    CHECK(kvcl_comm_is_inter(inter) && kvcl_comm_is_inter(acc.inter));
    CHECK((kvcl_comm_size(inter) == 1) && (kvcl_comm_rank(inter) == 0));
    talk(inter, acc.inter);
    talk(acc.inter, inter);
    kvcl_comm_free(inter);
    kvcl_comm_free(acc.inter);
}

static void two_contexts_connect(void)
{
    kvcl_context_h a = alone(0), b = alone(0);

    connect_once(a, b, 0);
    connect_once(a, b, 200); /* the request precedes the accept */
    connect_once(b, a, 50);
    kvcl_finalize(a);
    kvcl_finalize(b);
}

static void nobody_accepts(void)
{
    kvcl_context_h a = alone(0), b = alone(0);
    kvcl_comm_h    inter = NULL;
    char           text[ADDRESS_MAX];

    address_of(b, text);
    CHECK(kvcl_comm_connect(world_of(a), text, SECONDS(1), &inter) == KVCL_ERR_TIMED_OUT);
    CHECK(kvcl_comm_accept(world_of(b), 200000000u, &inter) == KVCL_ERR_TIMED_OUT); /* the request has been withdrawn */
    CHECK(inter == NULL);
    connect_once(a, b, 0);
    kvcl_finalize(a);
    kvcl_finalize(b);
}

static void another_secret_is_refused(void)
{
    kvcl_context_h       a = alone(0), b = alone(1);
    accepter_t           acc = {.comm = world_of(b), .timeout_ns = SECONDS(1)};
    kvcl_comm_h          inter = NULL;
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;
    char                 text[ADDRESS_MAX];
    pthread_t            thread;

    address_of(b, text);
    pthread_create(&thread, NULL, accept_one, &acc);
    CHECK(kvcl_comm_connect(world_of(a), text, SECONDS(60), &inter) == KVCL_ERR_AUTH);
    pthread_join(thread, NULL);
    CHECK(acc.status == KVCL_ERR_TIMED_OUT);
    KVCL_TRY(kvcl_context_stats(b, &stats));
    CHECK(stats.strangers == 0); /* nothing was sent */
    kvcl_finalize(a);
    kvcl_finalize(b);
}

static void bad_addresses_are_refused(void)
{
    kvcl_context_h a = alone(0), b = alone(0);
    kvcl_comm_h    inter = NULL;
    char           text[ADDRESS_MAX];

    address_of(b, text);
    CHECK(kvcl_comm_connect(world_of(a), "nonsense", SECONDS(1), &inter) == KVCL_ERR_INVALID_PARAM);
    CHECK(kvcl_comm_connect(world_of(a), "kvcl1:AAAA", SECONDS(1), &inter) == KVCL_ERR_INVALID_PARAM);
    CHECK(kvcl_comm_connect(world_of(a), NULL, SECONDS(1), &inter) == KVCL_ERR_INVALID_PARAM);
    CHECK(kvcl_comm_connect(NULL, text, SECONDS(1), &inter) == KVCL_ERR_INVALID_PARAM);
    text[strlen(text) / 2] = '\0';
    CHECK(kvcl_comm_connect(world_of(a), text, SECONDS(1), &inter) == KVCL_ERR_INVALID_PARAM);
    CHECK(inter == NULL);
    address_of(b, text);
    kvcl_finalize(b);
    CHECK(kvcl_comm_connect(world_of(a), text, SECONDS(2), &inter) < 0); /* the other context no longer exists */
    kvcl_finalize(a);
}

/* ---- two forked jobs ---- */

typedef struct side {
    bool          accepts;
    int           size;
    int           others;
    int           secret;
    int           pipe[2]; /* the address, from the accepting to the connecting side */
    int           over[2]; /* a byte of each connecting rank whose connect has ended */
    kvcl_status_t expected;
} side_t;

static kvcl_cache_h make_cache(kvcl_context_h ctx, int rank, bool accepts)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(4, BLOCK);
    kvcl_cache_h  cache  = NULL;
    unsigned char block[BLOCK];

    memset(block, rank + (accepts ? 100 : 0), sizeof(block));
    KVCL_TRY(kvcl_cache_create(ctx, "pages", &layout, NULL, &cache));
    KVCL_TRY(kvcl_cache_write_block(cache, 1, block, BLOCK));
    return cache;
}

/* Each rank of one side exchanges a message and does a get with each rank of the other. */
static void use(kvcl_comm_h inter, kvcl_cache_h cache, const side_t *side, int rank)
{
    uint32_t      from = 1, to = 2;
    kvcl_sel_t    remote = {.blocks = &from, .n_blocks = 1}, local = {.blocks = &to, .n_blocks = 1};
    unsigned char block[BLOCK];
    uint64_t      out = (uint64_t)rank + 1, in;
    kvcl_req_h    req[2];
    int           r;

    for (r = 0; r < side->others; ++r) {
        in     = 0;
        req[0] = req[1] = NULL;
        CHECK(kvcl_recv_bytes(inter, r, 9, &in, sizeof(in), NULL, &req[0]) == KVCL_OK);
        CHECK(kvcl_send_bytes(inter, r, 9, &out, sizeof(out), NULL, &req[1]) == KVCL_OK);
        CHECK(wait_for(KVCL_OK, &req[0]) == KVCL_OK);
        CHECK(wait_for(KVCL_OK, &req[1]) == KVCL_OK);
        CHECK(in == (uint64_t)r + 1);
        req[0] = NULL;
        CHECK(wait_for(kvcl_get(inter, r, cache, &remote, &local, NULL, &req[0]), &req[0]) == KVCL_OK);
        CHECK(kvcl_cache_read_block(cache, 2, block, BLOCK) == KVCL_OK);
        CHECK((block[0] == r + (side->accepts ? 0 : 100)) && (block[BLOCK - 1] == block[0]));
    }
}

/* Wait until the other side is done as well: it may still get from this rank. */
static void part(kvcl_comm_h inter, const side_t *side)
{
    uint64_t   out = 0, in;
    kvcl_req_h req[2];
    int        r;

    for (r = 0; r < side->others; ++r) {
        req[0] = req[1] = NULL;
        CHECK(kvcl_recv_bytes(inter, r, 10, &in, sizeof(in), NULL, &req[0]) == KVCL_OK);
        CHECK(kvcl_send_bytes(inter, r, 10, &out, sizeof(out), NULL, &req[1]) == KVCL_OK);
        CHECK(wait_for(KVCL_OK, &req[0]) == KVCL_OK);
        CHECK(wait_for(KVCL_OK, &req[1]) == KVCL_OK);
    }
}

/* timeout_ns: long, since the machine may be busy, or short where the case waits for it to expire. */
static kvcl_status_t meet(kvcl_context_h ctx, const side_t *side, int rank, uint64_t timeout_ns, kvcl_comm_h *inter_p)
{
    char    text[ADDRESS_MAX] = "";
    ssize_t n;

    if (side->accepts) {
        if (rank == 0) {
            address_of(ctx, text);
            n = write(side->pipe[1], text, sizeof(text));
            CHECK(n == (ssize_t)sizeof(text));
        }
        return kvcl_comm_accept(world_of(ctx), timeout_ns, inter_p);
    }
    if (rank == 0) {
        size_t at = 0;
        while ((at < sizeof(text)) && ((n = read(side->pipe[0], text + at, sizeof(text) - at)) > 0)) {
            at += (size_t)n;
        }
    }
    return kvcl_comm_connect(world_of(ctx), (rank == 0) ? text : NULL, timeout_ns, inter_p);
}

/* The accepting side lives until all connects have ended: one that comes after the last accept is refused, too. */
static void wait_for_connects(const side_t *side, int rank)
{
    char byte = 0;
    int  n;

    if (!side->accepts) {
        CHECK(write(side->over[1], &byte, 1) == 1);
    }
    for (n = 0; side->accepts && (rank == 0) && (n < side->others); ++n) {
        CHECK(read(side->over[0], &byte, 1) == 1);
    }
}

static int live(const void *arg, int rank)
{
    const side_t       *side  = arg;
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx    = NULL;
    kvcl_comm_h        inter  = NULL;
    kvcl_req_h         req    = NULL;
    kvcl_cache_h       cache;
    kvcl_status_t      status;

    params.secret_file = secrets[side->secret];
    params.rank        = rank;
    params.nranks      = side->size;
    good               = true;
    KVCL_TRY(kvcl_init(&params, &ctx));
    cache  = make_cache(ctx, rank, side->accepts);
    status = meet(ctx, side, rank, (side->expected == KVCL_ERR_TIMED_OUT) ? SECONDS(5) : SECONDS(60), &inter);
    if (status != side->expected) {
        fprintf(stderr, "rank %d of who %s: %s (%s)\n", rank, side->accepts ? "accepts" : "connects",
                kvcl_status_text(status), kvcl_last_error());
        good = false;
    }
    wait_for_connects(side, rank);
    if (status == KVCL_OK) {
        CHECK(kvcl_comm_is_inter(inter) && (kvcl_comm_size(inter) == side->others) && (kvcl_comm_rank(inter) == rank));
        use(inter, cache, side, rank);
        CHECK(kvcl_barrier(inter, NULL, &req) == KVCL_ERR_INVALID_PARAM);
        part(inter, side);
        kvcl_comm_free(inter);
    }
    CHECK(wait_for(kvcl_barrier(world_of(ctx), NULL, &req), &req) == KVCL_OK);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    return good ? 0 : 1;
}

/* expected: statuses of the connecting and of the accepting side. */
static bool jobs(const char *name, int connects, int accepts, int secret, kvcl_status_t expected,
                 kvcl_status_t accepted)
{
    side_t side[2] = {{false, connects, accepts, 0, {-1, -1}, {-1, -1}, expected},
                      {true, accepts, connects, secret, {-1, -1}, {-1, -1}, accepted}};
    int    s, n;
    bool   right = true;

    if ((pipe(side[0].pipe) != 0) || (pipe(side[0].over) != 0)) {
        perror("pipe");
        return false;
    }
    memcpy(side[1].pipe, side[0].pipe, sizeof(side[1].pipe));
    memcpy(side[1].over, side[0].over, sizeof(side[1].over));
    for (s = 0; s < 2; ++s) {
        start_ranks(side[s].size, live, &side[s], NULL);
    }
    for (n = connects + accepts; n > 0; --n) {
        right = rank_ends_well(-1) && right;
    }
    for (n = 0; n < 2; ++n) {
        close(side[0].pipe[n]);
        close(side[0].over[n]);
    }
    printf("%s %s, %d and %d ranks\n", right ? "ok" : "WRONG", name, connects, accepts);
    return right;
}

static bool in_process(void (*fn)(void), const char *name)
{
    good = true;
    fn();
    printf("%s %s\n", good ? "ok" : "WRONG", name);
    fflush(stdout);
    return good;
}

int main(int argc, char **argv)
{
    int a = (argc > 1) ? atoi(argv[1]) : 2, b = (argc > 2) ? atoi(argv[2]) : 3, bad = 0, i;

    make_secret(0);
    make_secret(1);
    /* The forks are first: a process that has used the library must not fork any more. */
    bad += jobs("two jobs connect", a, b, 0, KVCL_OK, KVCL_OK) ? 0 : 1;
    bad += jobs("another secret is refused", a, b, 1, KVCL_ERR_AUTH, KVCL_ERR_TIMED_OUT) ? 0 : 1;
    bad += in_process(two_contexts_connect, "contexts in one process connect") ? 0 : 1;
    bad += in_process(nobody_accepts, "nobody accepts") ? 0 : 1;
    bad += in_process(another_secret_is_refused, "another secret is refused in one process") ? 0 : 1;
    bad += in_process(bad_addresses_are_refused, "bad addresses are refused") ? 0 : 1;
    for (i = 0; i < 2; ++i) {
        unlink(secrets[i]);
    }
    return (bad == 0) ? 0 : 1;
}
