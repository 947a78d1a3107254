/*
 * Ranks whose queue in shared memory has a hole (hole.h) get another one (link/heal.c): all stay members, and
 * collectives, agreements and gets go on.
 *   deaf RANKS   prints "ok NAME" for each case; exit 1 if one failed.
 */
#include "hole.h"
#include "start_ranks.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { RANKS_MAX = 8, BYTES = 1 << 16, BEFORE = 5, AFTER = 20, LONG_S = 60, FLOOD = 3000 };

#define TIMEOUT_NS UINT64_C(2000000000)
#define GOOD       UINT64_C(1) /* agreed flags: the operations of this round were good at all ranks */
#define GO_ON      UINT64_C(2)
#define NO_TURN    UINT64_C(4)

typedef struct one {
    _Atomic int      ready, turn, good; /* turn: of its last hole; good: rounds in a row without an error */
    _Atomic int      wrong;              /* something that must not happen */
    _Atomic uint64_t failed;             /* operations */
    size_t           len;
    uint8_t          exported[512];
} one_t;

typedef struct shared {
    _Atomic unsigned deaf; /* bits: these ranks make a hole in each turn */
    _Atomic int      turn, stop;
    _Atomic int      flood; /* messages that the others send to the deaf, in each turn */
    one_t            one[RANKS_MAX];
} shared_t;

static shared_t *shared;
static int      size;
static pid_t    pids[RANKS_MAX];

/* ---- a rank ---- */

static void wrong(int rank, const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, kvcl_last_error());
    atomic_store(&shared->one[rank].wrong, 1);
}

/* May an operation that was under way when a rank became deaf end with it? */
static bool may_be(kvcl_status_t status)
{
    return (status == KVCL_OK) || (status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_TIMED_OUT);
}

static bool reduce(kvcl_comm_h world, int rank)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint32_t           one    = 1, sum = 0;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;

    params.timeout_ns = TIMEOUT_NS;
    status            = kvcl_allreduce(world, &one, &sum, 1, KVCL_DTYPE_U32, KVCL_REDUCE_SUM, &params, &req);
    status            = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    if (!may_be(status) || ((status == KVCL_OK) && (sum != (uint32_t)size))) {
        wrong(rank, "allreduce");
    }
    return status == KVCL_OK;
}

static bool get_from(kvcl_rmem_h rmem, int rank, int from)
{
    static uint8_t bytes[BYTES];
    kvcl_req_h     req = NULL;
    kvcl_status_t  status;

    memset(bytes, 0, sizeof(bytes));
    status = kvcl_get_bytes(rmem, 0, bytes, sizeof(bytes), NULL, &req);
    status = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    if (!may_be(status) || ((status == KVCL_OK) && ((bytes[0] != from + 1) || (bytes[BYTES - 1] != from + 1)))) {
        wrong(rank, "get");
    }
    return status == KVCL_OK;
}

/* Its own messages do not travel by the queue that is deaf. */
static bool talk_to_itself(kvcl_comm_h world, int rank)
{
    kvcl_xfer_params_t params  = KVCL_XFER_PARAMS_INIT;
    uint64_t           out     = 0x1234, in = 0;
    kvcl_req_h         reqs[2] = {NULL, NULL};
    kvcl_status_t      sent, received;

    params.timeout_ns = TIMEOUT_NS;
    received          = kvcl_recv_bytes(world, rank, 2, &in, sizeof(in), &params, &reqs[0]);
    sent              = kvcl_send_bytes(world, rank, 2, &out, sizeof(out), &params, &reqs[1]);
    sent              = (sent == KVCL_OK) ? kvcl_req_wait(reqs[1], KVCL_WAIT_FOREVER) : sent;
    received          = (received == KVCL_OK) ? kvcl_req_wait(reqs[0], KVCL_WAIT_FOREVER) : received;
    if (!may_be(sent) || !may_be(received) || ((received == KVCL_OK) && (in != out))) {
        wrong(rank, "talk to itself");
    }
    return (sent == KVCL_OK) && (received == KVCL_OK);
}

static void look_at_events(kvcl_context_h ctx, int rank)
{
    kvcl_event_t event = KVCL_EVENT_INIT;

    while (kvcl_event_next(ctx, &event) == KVCL_OK) {
        if ((event.type != KVCL_EVENT_SUSPECT) && (event.type != KVCL_EVENT_ALIVE_AGAIN)) {
            fprintf(stderr, "rank %d: event %d\n", rank, (int)event.type);
            atomic_store(&shared->one[rank].wrong, 1);
        }
    }
}

static void export(kvcl_context_h ctx, int rank, kvcl_mem_h *mem_p)
{
    one_t *one = &shared->one[rank];

    KVCL_TRY(kvcl_mem_alloc(ctx, BYTES, NULL, mem_p));
    memset(kvcl_mem_addr(*mem_p), rank + 1, BYTES);
    one->len = sizeof(one->exported);
    KVCL_TRY(kvcl_mem_export(*mem_p, KVCL_READ, one->exported, &one->len));
    atomic_store(&one->ready, 1);
}

static void wait_until(_Atomic int *flag)
{
    while (atomic_load(flag) == 0) {
        usleep(1000);
    }
}

/* So many messages fill the queue of the deaf rank, and more wait at the sender. No recv takes them. */
static void flood(kvcl_comm_h world, int rank, int to)
{
    static kvcl_req_h  reqs[FLOOD];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           bytes  = 1;
    int                n      = atomic_load(&shared->flood), i;

    params.timeout_ns = TIMEOUT_NS;
    for (i = 0; i < n; ++i) {
        if (kvcl_send_bytes(world, to, 1, &bytes, sizeof(bytes), &params, &reqs[i]) != KVCL_OK) {
            wrong(rank, "send");
        }
    }
    for (i = 0; i < n; ++i) {
        if (!may_be(kvcl_req_wait(reqs[i], KVCL_WAIT_FOREVER))) {
            wrong(rank, "send");
        }
    }
}

/* A new turn, of all ranks after the same round: the deaf make a hole, and then the others send to them. */
static void take_turn(kvcl_comm_h world, int rank)
{
    one_t    *one = &shared->one[rank];
    unsigned deaf = atomic_load(&shared->deaf);
    int      turn = atomic_load(&shared->turn), to;

    atomic_store(&one->good, 0);
    if ((((deaf >> rank) & 1) != 0) && (make_holes() == 0)) {
        wrong(rank, "its queue is not found");
    }
    atomic_store(&one->turn, turn);
    for (to = 0; to < size; ++to) {
        if ((((deaf >> to) & 1) != 0) && (to != rank)) {
            while (atomic_load(&shared->one[to].turn) != turn) {
                usleep(1000);
            }
            flood(world, rank, to);
        }
    }
}

/* One round. @return whether all go on. */
static bool go_round(kvcl_context_h ctx, kvcl_comm_h world, kvcl_rmem_h *rmems, int rank)
{
    one_t         *one  = &shared->one[rank];
    uint64_t      flags = GOOD | GO_ON | NO_TURN;
    bool          good  = reduce(world, rank);
    kvcl_status_t status;
    int           i;

    for (i = 0; i < size; ++i) {
        good = ((i == rank) || get_from(rmems[i], rank, i)) && good;
    }
    good = talk_to_itself(world, rank) && good;
    look_at_events(ctx, rank);
    one->failed += good ? 0 : 1;
    flags       &= good ? UINT64_MAX : ~GOOD;
    flags       &= (atomic_load(&shared->stop) == 0) ? UINT64_MAX : ~GO_ON;
    flags       &= (atomic_load(&shared->turn) == atomic_load(&one->turn)) ? UINT64_MAX : ~NO_TURN;
    status       = kvcl_comm_agree(world, &flags, LONG_S * UINT64_C(1000000000));
    if (status != KVCL_OK) {
        wrong(rank, "agree");
        return false;
    }
    atomic_store(&one->good, ((flags & GOOD) != 0) ? atomic_load(&one->good) + 1 : 0);
    if ((flags & NO_TURN) == 0) {
        take_turn(world, rank);
    }
    return (flags & GO_ON) != 0;
}

static int live(const void *arg, int rank)
{
    kvcl_event_t   event = KVCL_EVENT_INIT;
    kvcl_rmem_h    rmems[RANKS_MAX] = {NULL};
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_mem_h     mem;
    int            i;

    (void)arg;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    while (kvcl_event_next(ctx, &event) != KVCL_OK) { /* the first view */
        usleep(1000);
    }
    export(ctx, rank, &mem);
    for (i = 0; i < size; ++i) {
        wait_until(&shared->one[i].ready);
        if (i != rank) {
            KVCL_TRY(kvcl_rmem_import(world, i, shared->one[i].exported, shared->one[i].len, &rmems[i]));
        }
    }
    while (go_round(ctx, world, rmems, rank)) {
    }
    for (i = 0; i < size; ++i) {
        kvcl_rmem_free(rmems[i]);
    }
    kvcl_mem_free(mem);
    kvcl_finalize(ctx);
    return atomic_load(&shared->one[rank].wrong);
}

/* ---- a rank dies, and leaves another one deaf ---- */

enum { ROOT, DEAF, PART = 256 << 10 };

/* Waits until the view without the dead is known. */
static void see_death(kvcl_context_h ctx)
{
    kvcl_event_t event  = KVCL_EVENT_INIT;
    bool         failed = false;

    do { /* the alarm of each process bounds it */
        if (kvcl_event_next(ctx, &event) != KVCL_OK) {
            usleep(1000);
            continue;
        }
        failed = failed || (event.type == KVCL_EVENT_FAILED);
    } while (!failed || (event.type != KVCL_EVENT_VIEW));
}

/* The deaf rank gives its part to a root that does not call the gather; the plan of the deaf has no other rank. Its
 * connection to the root is lost, but what it is to do about it is to go on without the dead. */
static void give_part(kvcl_comm_h world, int rank)
{
    static uint8_t     part[PART];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;

    params.timeout_ns = LONG_S * UINT64_C(1000000000);
    status            = kvcl_gather(world, ROOT, part, sizeof(part), NULL, &params, &req);
    if ((status != KVCL_OK) || (kvcl_req_test(req) != KVCL_INPROGRESS)) {
        wrong(rank, "the gather is not under way");
        return;
    }
    if (make_holes() == 0) {
        wrong(rank, "its queue is not found");
    }
    status = kvcl_req_wait(req, KVCL_WAIT_FOREVER);
    if ((status != KVCL_ERR_RANK_FAILED) || (strstr(kvcl_last_error(), "left or failed") == NULL)) {
        wrong(rank, "gather");
    }
}

static int live_after_death(const void *arg, int rank)
{
    kvcl_event_t   event = KVCL_EVENT_INIT;
    one_t          *deaf = &shared->one[DEAF];
    kvcl_context_h ctx;
    kvcl_comm_h    world, rest;

    (void)arg;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    while (kvcl_event_next(ctx, &event) != KVCL_OK) { /* the first view */
        usleep(1000);
    }
    atomic_store(&shared->one[rank].ready, 1);
    if (rank == size - 1) {
        pause(); /* until it is killed */
    }
    see_death(ctx);
    if (rank == DEAF) {
        give_part(world, rank);
        atomic_store(&deaf->turn, 1);
    }
    wait_until(&deaf->turn);
    KVCL_TRY(kvcl_comm_shrink(world, LONG_S * UINT64_C(1000000000), &rest));
    if (kvcl_comm_size(rest) != size - 1) {
        wrong(rank, "shrink");
    }
    kvcl_comm_free(rest);
    kvcl_finalize(ctx);
    return atomic_load(&shared->one[rank].wrong);
}

static bool one_dies(void)
{
    bool right = true;
    int  rank;

    memset(shared, 0, sizeof(*shared));
    start_ranks(size, live_after_death, NULL, pids);
    for (rank = 0; rank < size; ++rank) {
        while ((atomic_load(&shared->one[rank].ready) == 0) && (waitpid(pids[rank], NULL, WNOHANG) == 0)) {
            usleep(1000);
        }
    }
    kill(pids[size - 1], SIGKILL);
    for (rank = 0; rank < size; ++rank) {
        right = (rank_ends_well(pids[rank]) || (rank == size - 1)) && right;
    }
    printf("%s a rank is deaf after another one was killed: its collective names the dead, %d ranks\n",
           right ? "ok" : "WRONG", size);
    fflush(stdout);
    return right;
}

/* ---- the parent ---- */

static bool wait_rounds(int n)
{
    uint64_t end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));
    int      rank;

    for (rank = 0; rank < size; ++rank) {
        while (atomic_load(&shared->one[rank].good) < n) {
            if (kvcl_now_ns() > end) {
                fprintf(stderr, "rank %d does not go on\n", rank);
                return false;
            }
            usleep(1000);
        }
    }
    return true;
}

/* The ranks are deaf from now on. @return whether all go on. */
static bool one_turn(uint64_t *ms_p)
{
    uint64_t from_ns = kvcl_now_ns(), end = from_ns + (LONG_S * UINT64_C(1000000000));
    int      turn    = atomic_fetch_add(&shared->turn, 1) + 1, rank;

    for (rank = 0; rank < size; ++rank) {
        while (atomic_load(&shared->one[rank].turn) != turn) {
            if (kvcl_now_ns() > end) {
                fprintf(stderr, "rank %d takes no turn\n", rank);
                return false;
            }
            usleep(1000);
        }
    }
    if (!wait_rounds(1)) {
        return false;
    }
    *ms_p = (kvcl_now_ns() - from_ns) / 1000000;
    return wait_rounds(AFTER);
}

/* One case: the ranks of these bits become deaf, together, so often. */
static bool become_deaf(const char *name, unsigned deaf, int turns, int n_flood)
{
    uint64_t ms = 0;
    bool     right;
    int      rank, i;

    memset(shared, 0, sizeof(*shared));
    shared->deaf  = deaf;
    shared->flood = n_flood;
    start_ranks(size, live, NULL, pids);
    right = wait_rounds(BEFORE);
    for (i = 0; right && (i < turns); ++i) {
        right = one_turn(&ms);
    }
    atomic_store(&shared->stop, 1);
    for (rank = 0; rank < size; ++rank) {
        if (!right) {
            kill(pids[rank], SIGKILL);
        }
        right = rank_ends_well(pids[rank]) && right;
    }
    printf("%s %s, %d ranks: they go on after %" PRIu64 " ms\n", right ? "ok" : "WRONG", name, size, ms);
    fflush(stdout);
    return right;
}

int main(int argc, char **argv)
{
    bool right;

    size = (argc > 1) ? atoi(argv[1]) : 3;
    if ((size < 2) || (size > RANKS_MAX)) {
        fprintf(stderr, "deaf RANKS: 2 to %d\n", RANKS_MAX);
        return 2;
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    set_views(PATIENT_MS); /* a rank that waits for a processor is not excluded */
    if (argc > 2) {
        return become_deaf("these ranks are deaf", (unsigned)atoi(argv[2]), 1, (argc > 3) ? FLOOD : 0) ? 0 : 1;
    }
    right = become_deaf("the lowest rank is deaf", 1, 1, 0);
    right = become_deaf("the highest rank is deaf, again and again", 1u << (size - 1), 3, 0) && right;
    right = ((size == 2) || become_deaf("two ranks are deaf", 3, 1, 0)) && right;
    right = become_deaf("a rank is deaf whose queue is full", 1, 1, FLOOD) && right;
    right = ((size == 2) || one_dies()) && right;
    return right ? 0 : 1;
}
