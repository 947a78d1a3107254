/*
 * Bad input and bad luck with views: calls in different order or of different sizes, collectives where others agree
 * or shrink, ranks that are not in the view or in no communicator, and a quorum that is out of reach for a while. Ranks
 * are forked here, and write what they saw into memory that all share.
 *   recover_bad RANKS [CASE]   prints "ok NAME" for each case; exit 1 if one failed.
 */
#include "hole.h"
#include "start_ranks.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS_MAX = 16, LONG_S = 100, ROOTS_S = 6, FREES = 40 };
#define LONG_NS (LONG_S * UINT64_C(1000000000))

typedef enum { CALLS, ORDER, KINDS, SIZES, EMPTY, LARGE, ROOTS, ABSENT, QUORUM, DEAF, FREED, DECIDED, DEATH } what_t;

typedef struct shared {
    what_t      what;
    _Atomic int met, wrong, finished, refused, go, stale, probes;
} shared_t;

static shared_t *shared;
static int      size;
static pid_t    pids[RANKS_MAX];

typedef struct rank {
    int            rank;
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_cache_h   cache;
} rank_t;

static void fail(const rank_t *r, const char *what, int got)
{
    fprintf(stderr, "rank %d: %s: %d, %s: %s\n", r->rank, what, got, kvcl_status_name((kvcl_status_t)got),
            kvcl_last_error());
    atomic_store(&shared->wrong, 1);
}

#define IS(_call, _result)                                                                                             \
    do {                                                                                                               \
        int is_ = (_call);                                                                                             \
        if (is_ != (_result)) {                                                                                        \
            fail(r, #_call, is_);                                                                                      \
        }                                                                                                              \
    } while (0)

/* The sentence of the last failure has both words. */
static void says(const rank_t *r, const char *one, const char *other)
{
    if ((strstr(kvcl_last_error(), one) == NULL) || (strstr(kvcl_last_error(), other) == NULL)) {
        fprintf(stderr, "rank %d: no \"%s\" or no \"%s\" in: %s\n", r->rank, one, other, kvcl_last_error());
        atomic_store(&shared->wrong, 1);
    }
}

static void wait_for(_Atomic int *word, int value)
{
    while (atomic_load(word) != value) {
        usleep(500);
    }
}

static kvcl_status_t end(kvcl_status_t status, const kvcl_req_h *req)
{
    return (status == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : status;
}

/* One rank agrees, the others shrink. */
static void unlike_calls(const rank_t *r)
{
    uint64_t    flags = 1;
    kvcl_comm_h comm;

    if (r->rank == size - 1) {
        IS(kvcl_comm_agree(r->world, &flags, LONG_NS), KVCL_ERR_INVALID_PARAM);
    } else {
        IS(kvcl_comm_shrink(r->world, LONG_NS, &comm), KVCL_ERR_INVALID_PARAM);
    }
    says(r, "kvcl_comm_agree", "kvcl_comm_shrink");
    flags = 3;
    IS(kvcl_comm_agree(r->world, &flags, LONG_NS), KVCL_OK); /* the next round is one */
    IS((int)flags, 3);
}

/* All make the same calls again: twice, since the first agreement counts from the error. */
static void call_alike(const rank_t *r)
{
    uint32_t    one   = 1, sum = 0;
    uint64_t    flags = 3;
    kvcl_req_h  req   = NULL;
    kvcl_comm_h comm  = NULL;
    int         i;

    for (i = 0; i < 2; ++i) {
        IS(end(kvcl_allreduce(r->world, &one, &sum, 1, KVCL_DTYPE_U32, KVCL_REDUCE_SUM, NULL, &req), &req), KVCL_OK);
        IS((int)sum, size);
        IS(kvcl_comm_agree(r->world, &flags, LONG_NS), KVCL_OK);
    }
    IS(kvcl_comm_shrink(r->world, LONG_NS, &comm), KVCL_OK);
    IS(end(kvcl_barrier(comm, NULL, &req), &req), KVCL_OK);
    kvcl_comm_free(comm);
}

/* One rank agrees or shrinks where the others call a collective: all learn of both calls. Four times, of which the
 * second and the fourth follow an error at once. */
static void unlike_order(const rank_t *r)
{
    static uint32_t in[1 << 16], out[1 << 16];
    uint64_t        from = kvcl_now_ns(), flags = 1;
    kvcl_req_h      req  = NULL;
    kvcl_comm_h     comm;
    int             i;

    for (i = 0; i < 4; ++i) {
        if (r->rank != ((i % 3 == 0) ? (size - 1) : 0)) {
            IS(end((i % 2 == 0) ? kvcl_barrier(r->world, NULL, &req)
                                : kvcl_allreduce(r->world, in, out, 1 << 16, KVCL_DTYPE_U32, KVCL_REDUCE_SUM, NULL,
                                                 &req), &req), KVCL_ERR_INVALID_PARAM);
        } else {
            IS((i < 2) ? kvcl_comm_agree(r->world, &flags, LONG_NS) : kvcl_comm_shrink(r->world, LONG_NS, &comm),
               KVCL_ERR_INVALID_PARAM);
        }
        says(r, (i < 2) ? "called kvcl_comm_agree" : "called kvcl_comm_shrink",
             (i % 2 == 0) ? "called kvcl_barrier" : "called kvcl_allreduce of 262144 bytes (sum of u32)");
        if (i % 2 == 1) {
            call_alike(r);
        }
    }
    if (kvcl_now_ns() - from > LONG_NS / 2) {
        fail(r, "it ended late", 0);
    }
}

/* The last rank is killed between broadcasts. Each other one makes as many as it can until one fails, so all have made
 * different numbers of them when they agree, and when they shrink. */
static void die_between(const rank_t *r)
{
    kvcl_xfer_params_t p      = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status = KVCL_OK;
    uint64_t           flags  = 1;
    kvcl_req_h         req    = NULL;
    kvcl_comm_h        comm   = NULL;
    char               bytes[64] = "";
    int                i, n;

    p.timeout_ns = ROOTS_S * UINT64_C(1000000000);
    for (i = 0; status == KVCL_OK; ++i) {
        if ((r->rank == size - 1) && (i == 20)) {
            raise(SIGKILL);
        }
        status = end(kvcl_bcast_bytes(r->world, 0, bytes, sizeof(bytes), &p, &req), &req);
    }
    IS(status == KVCL_ERR_INVALID_PARAM, false);
    IS(kvcl_comm_agree(r->world, &flags, LONG_NS), KVCL_ERR_RANK_FAILED);
    IS(kvcl_comm_shrink(r->world, LONG_NS, &comm), KVCL_OK);
    IS(kvcl_comm_get_failed(r->world, NULL, 0, &n), KVCL_OK);
    IS(n, 1);
    IS(end(kvcl_barrier(comm, NULL, &req), &req), KVCL_OK);
    IS(kvcl_comm_agree(comm, &flags, LONG_NS), KVCL_OK);
    kvcl_comm_free(comm);
}

/* The root's call is over at once. The others wait, and ask before their deadline. */
static void give_no_blocks(const rank_t *r)
{
    const uint32_t     block = 0;
    const bool         root  = (r->rank == size - 1);
    const kvcl_sel_t   sel   = {.blocks = &block, .n_blocks = root ? 0 : 1};
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req   = NULL;

    p.timeout_ns = ROOTS_S * UINT64_C(1000000000) / 2;
    IS(end(kvcl_bcast(r->world, size - 1, r->cache, &sel, &p, &req), &req), root ? KVCL_OK : KVCL_ERR_INVALID_PARAM);
    if (!root) {
        says(r, "called kvcl_bcast of 0 bytes", "called kvcl_bcast of 4096 bytes");
    }
}

/* One rank makes another collective, or one of other sizes, or each names another root. All learn of two calls. */
static void unlike_collectives(const rank_t *r)
{
    static char        large[1 << 20];
    uint32_t           in[8 * RANKS_MAX] = {0}, out[8 * RANKS_MAX];
    kvcl_xfer_params_t p                 = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req               = NULL;
    const bool         other             = (r->rank == size - 1);
    const uint64_t     from              = kvcl_now_ns();

    switch (shared->what) {
    case SIZES:
        IS(end(kvcl_allgather(r->world, in, other ? 16 : 32, out, NULL, &req), &req), KVCL_ERR_INVALID_PARAM);
        says(r, "called kvcl_allgather of 16 bytes of each", "called kvcl_allgather of 32 bytes of each");
        break;
    case EMPTY: /* that is over at once, on the rank that has nothing to give */
        IS(end(kvcl_allgather(r->world, in, other ? 0 : 32, out, NULL, &req), &req),
           other ? KVCL_OK : KVCL_ERR_INVALID_PARAM);
        if (!other) {
            says(r, "called kvcl_allgather of 0 bytes", "called kvcl_allgather of 32 bytes");
        }
        if (kvcl_now_ns() - from > UINT64_C(10000000000)) { /* by its deadline */
            fail(r, "it ended late", 0);
        }
        give_no_blocks(r);
        break;
    case LARGE:
        IS(end(other ? kvcl_barrier(r->world, NULL, &req)
                     : kvcl_bcast_bytes(r->world, 0, large, sizeof(large), NULL, &req), &req), KVCL_ERR_INVALID_PARAM);
        says(r, "called kvcl_bcast_bytes of 1048576 bytes from rank 0", "called kvcl_barrier");
        break;
    case ROOTS: /* all wait to receive: nobody sends before its deadline is near */
        p.timeout_ns = ROOTS_S * UINT64_C(1000000000);
        IS(end(kvcl_bcast_bytes(r->world, (r->rank + 1) % size, in, 64, &p, &req), &req), KVCL_ERR_INVALID_PARAM);
        says(r, "called kvcl_bcast_bytes of 64 bytes from rank ", ", rank ");
        break;
    default:
        IS(end(other ? kvcl_alltoall(r->world, in, 32, out, NULL, &req)
                     : kvcl_allgather(r->world, in, 32, out, NULL, &req), &req), KVCL_ERR_INVALID_PARAM);
        says(r, "called kvcl_alltoall of 32 bytes of each", "called kvcl_allgather of 32 bytes of each");
        break;
    }
    IS(end(kvcl_barrier(r->world, NULL, &req), &req), KVCL_OK); /* the next one is one */
}

/* Operations with a rank that the view does not have: at once, none waits for its deadline. */
static void operate_with_absent(const rank_t *r, int who)
{
    const uint32_t     block = 0;
    const uint64_t     from  = kvcl_now_ns();
    kvcl_sel_t         sel   = {.blocks = &block, .n_blocks = 1};
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    kvcl_recv_info_t   info  = KVCL_RECV_INFO_INIT;
    kvcl_req_h         req   = NULL;
    kvcl_view_change_result_t result = KVCL_VIEW_CHANGE_RESULT_INIT;
    char               byte;

    p.timeout_ns = LONG_NS;
    IS(end(kvcl_get(r->world, who, r->cache, &sel, &sel, &p, &req), &req), KVCL_ERR_RANK_FAILED);
    IS(end(kvcl_put(r->world, who, r->cache, &sel, &sel, &p, &req), &req), KVCL_ERR_RANK_FAILED);
    IS(end(kvcl_send_bytes(r->world, who, 1, "x", 1, &p, &req), &req), KVCL_ERR_RANK_FAILED);
    IS(end(kvcl_recv_bytes(r->world, who, 1, &byte, 1, &p, &req), &req), KVCL_ERR_RANK_FAILED);
    IS(end(kvcl_notify(r->world, who, "x", 1, &p, &req), &req), KVCL_ERR_RANK_FAILED);
    IS(kvcl_probe(r->world, who, 1, LONG_NS, &info), KVCL_ERR_RANK_FAILED);
    IS(end(kvcl_barrier(r->world, &p, &req), &req), KVCL_ERR_RANK_FAILED);
    IS(kvcl_comm_deactivate(r->world, &who, 1, LONG_NS, &result), KVCL_OK);
    IS(result.n_dropped, 1);
    if (kvcl_now_ns() - from > LONG_NS / 2) {
        fail(r, "operations with an absent rank took too long", 0);
    }
    IS(kvcl_get(r->world, size, r->cache, &sel, &sel, &p, &req), KVCL_ERR_UNKNOWN_RANK);
    IS(kvcl_send_bytes(r->world, -2, 1, "x", 1, &p, &req), KVCL_ERR_UNKNOWN_RANK);
    IS(kvcl_bcast_bytes(r->world, size, &byte, 1, &p, &req), KVCL_ERR_UNKNOWN_RANK);
}

/* The last rank is killed after each other one has read of it, so that its memory is mapped. */
static void absent(const rank_t *r)
{
    const int      who   = size - 1;
    const uint32_t block = 0;
    kvcl_sel_t     sel   = {.blocks = &block, .n_blocks = 1};
    kvcl_event_t   event = KVCL_EVENT_INIT;
    kvcl_req_h     req   = NULL;

    if (r->rank == who) {
        wait_for(&shared->go, size - 1);
        raise(SIGKILL);
    }
    IS(end(kvcl_get(r->world, who, r->cache, &sel, &sel, NULL, &req), &req), KVCL_OK);
    IS(end(kvcl_get(r->world, who, r->cache, &sel, &sel, NULL, &req), &req), KVCL_OK);
    atomic_fetch_add(&shared->go, 1);
    while ((kvcl_event_next(r->ctx, &event) != KVCL_OK) || (event.type != KVCL_EVENT_VIEW)) {
        usleep(500);
    }
    operate_with_absent(r, who);
}

/* Rank 0 is alone for a while, since all others are stopped. When they go on, all decide again. Those that wake up
 * later than a quorum may be excluded, since they are silent for too long by then. */
static void no_quorum(const rank_t *r)
{
    kvcl_status_t status = KVCL_OK;
    uint64_t      from, flags = 1;
    int           i;

    if (r->rank == 0) {
        wait_for(&shared->go, 1);
        from = kvcl_now_ns();
        IS(kvcl_comm_agree(r->world, &flags, STOPPED_MS * UINT64_C(1500000)), KVCL_ERR_NO_QUORUM);
        if (kvcl_now_ns() - from > LONG_NS / 2) {
            fail(r, "the answer came late", 0);
        }
        atomic_store(&shared->refused, 1);
    }
    wait_for(&shared->go, 2);
    for (i = (r->rank == 0) ? 1 : 0; (i < 2) && (status != KVCL_ERR_STALE); ++i) { /* as many rounds on each rank */
        flags  = 1;
        status = kvcl_comm_agree(r->world, &flags, LONG_NS);
        if (status == KVCL_ERR_STALE) {
            atomic_fetch_add(&shared->stale, 1);
        } else if ((status != KVCL_OK) && (status != KVCL_ERR_RANK_FAILED)) {
            fail(r, "agree, after the others have gone on", status);
        }
    }
}

static void wait_for_event(const rank_t *r, int type)
{
    kvcl_event_t event = KVCL_EVENT_INIT;

    while ((kvcl_event_next(r->ctx, &event) != KVCL_OK) || (event.type != type)) {
        usleep(500);
    }
}

/* Rank 0 hears nobody any more, though the others live, and each queue that it gets is deaf as well: it leaves, and
 * they go on without it. */
static void hear_nobody(const rank_t *r)
{
    kvcl_event_t event = KVCL_EVENT_INIT;
    uint64_t     flags = 1;

    if (r->rank == 0) {
        if (make_holes() == 0) {
            fail(r, "UCX has no queue in shared memory", 0);
        }
        while ((kvcl_event_next(r->ctx, &event) != KVCL_OK) || (event.type != KVCL_EVENT_EXCLUDED)) {
            (void)make_holes();
            usleep(500);
        }
        IS(kvcl_comm_agree(r->world, &flags, LONG_NS), KVCL_ERR_STALE);
        return;
    }
    wait_for_event(r, KVCL_EVENT_VIEW);
    IS(kvcl_comm_agree(r->world, &flags, LONG_NS), KVCL_ERR_RANK_FAILED);
    IS((int)kvcl_comm_view(r->world), 2);
}

typedef struct waiter {
    kvcl_comm_h   comm;
    kvcl_comm_h   shrunk; /* made of comm, where `shrinks` */
    bool          shrinks;
    _Atomic int   begun;
    kvcl_status_t status;
} waiter_t;

static void *agree_alone(void *arg)
{
    waiter_t *waiter = arg;
    uint64_t flags   = 1;

    atomic_store(&waiter->begun, 1);
    do {
        waiter->status = waiter->shrinks ? kvcl_comm_shrink(waiter->comm, LONG_NS, &waiter->shrunk)
                                         : kvcl_comm_agree(waiter->comm, &flags, LONG_NS);
    } while (waiter->status == KVCL_ERR_BUSY);
    return NULL;
}

static void copy_world(const rank_t *r, kvcl_comm_h *comm_p)
{
    int ranks[RANKS_MAX], i;

    for (i = 0; i < size; ++i) {
        ranks[i] = i;
    }
    IS(kvcl_comm_create(r->world, ranks, size, comm_p), KVCL_OK);
}

/* @return rounds of this thread's own, which ended before the other one's began. */
static int let_wait(pthread_t *thread, waiter_t *waiter)
{
    uint64_t flags = 1;
    int      n;

    pthread_create(thread, NULL, agree_alone, waiter);
    wait_for(&waiter->begun, 1);
    for (n = 0; kvcl_comm_agree(waiter->comm, &flags, 1) != KVCL_ERR_BUSY; ++n) {
        usleep(1000);
    }
    return n;
}

/* Rank 0 frees a communicator while a thread of it waits for the others' agreement, which never comes. */
static void free_meanwhile(const rank_t *r)
{
    uint64_t  flags  = 1;
    waiter_t  waiter = {.begun = 0};
    pthread_t thread;

    copy_world(r, &waiter.comm);
    if (r->rank == 0) {
        (void)let_wait(&thread, &waiter);
        kvcl_comm_free(waiter.comm);
        pthread_join(thread, NULL);
        IS(waiter.status, KVCL_ERR_CANCELED);
        atomic_store(&shared->go, 1);
    } else {
        wait_for(&shared->go, 1);
        kvcl_comm_free(waiter.comm);
    }
    IS(kvcl_comm_agree(r->world, &flags, LONG_NS), KVCL_OK);
}

/* Rank 0 frees a communicator as soon as the others give to what a thread of it waits for. That ends well or is
 * canceled, and uses nothing of the communicator any more. */
static void free_once(const rank_t *r, int round)
{
    waiter_t  waiter = {.shrinks = (round % 2) != 0};
    uint64_t  flags  = 1;
    pthread_t thread;
    int       i, probes;

    copy_world(r, &waiter.comm);
    if (r->rank == 0) {
        atomic_store(&shared->probes, let_wait(&thread, &waiter));
        atomic_store(&shared->go, round);
        usleep((useconds_t)(round * 37 % 500)); /* before they decide, at that moment, or after it */
        kvcl_comm_free(waiter.comm);
        pthread_join(thread, NULL);
        if ((waiter.status != KVCL_OK) && (waiter.status != KVCL_ERR_CANCELED)) {
            fail(r, "an agreement whose communicator is freed", waiter.status);
        }
    } else {
        wait_for(&shared->go, round);
        for (i = 0, probes = atomic_load(&shared->probes); i < probes; ++i) {
            IS(kvcl_comm_agree(waiter.comm, &flags, LONG_NS), KVCL_OK);
        }
        IS(waiter.shrinks ? kvcl_comm_shrink(waiter.comm, LONG_NS, &waiter.shrunk)
                          : kvcl_comm_agree(waiter.comm, &flags, LONG_NS), KVCL_OK);
        kvcl_comm_free(waiter.comm);
    }
    if (waiter.shrunk != NULL) {
        IS(kvcl_comm_size(waiter.shrunk), size);
        IS(kvcl_comm_rank(waiter.shrunk), r->rank);
        kvcl_comm_free(waiter.shrunk);
    }
    IS(kvcl_comm_agree(r->world, &flags, LONG_NS), KVCL_OK);
}

static void free_as_decided(const rank_t *r)
{
    int round;

    for (round = 1; round <= FREES; ++round) {
        free_once(r, round);
    }
}

static bool last_dies(what_t what)
{
    return (what == ABSENT) || (what == DEATH);
}

static int live(const void *arg, int rank)
{
    rank_t        one = {.rank = rank}, *r = &one;
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(4, 4096);
    kvcl_event_t  event  = KVCL_EVENT_INIT;

    (void)arg;
    KVCL_TRY(kvcl_init(NULL, &r->ctx));
    KVCL_TRY(kvcl_comm_world(r->ctx, &r->world));
    KVCL_TRY(kvcl_cache_create(r->ctx, "kv", &layout, NULL, &r->cache));
    while ((kvcl_event_next(r->ctx, &event) != KVCL_OK) || (event.type != KVCL_EVENT_VIEW)) {
        usleep(500);
    }
    atomic_fetch_add(&shared->met, 1);
    wait_for(&shared->met, size);
    switch (shared->what) {
    case CALLS:
        unlike_calls(r);
        break;
    case ORDER:
        unlike_order(r);
        break;
    case DEATH:
        die_between(r);
        break;
    case KINDS:
    case SIZES:
    case EMPTY:
    case LARGE:
    case ROOTS:
        unlike_collectives(r);
        break;
    case ABSENT:
        absent(r);
        break;
    case QUORUM:
        no_quorum(r);
        break;
    case FREED:
        free_meanwhile(r);
        break;
    case DECIDED:
        free_as_decided(r);
        break;
    default:
        hear_nobody(r);
        break;
    }
    atomic_fetch_add(&shared->finished, 1);
    wait_for(&shared->finished, last_dies(shared->what) ? size - 1 : size);
    kvcl_cache_destroy(r->cache);
    kvcl_finalize(r->ctx);
    return 0;
}

static void signal_others(int sig)
{
    int rank;

    for (rank = 1; rank < size; ++rank) {
        kill(pids[rank], sig);
    }
}

static bool run(what_t what, const char *name)
{
    bool right = true;
    int  rank;

    memset(shared, 0, sizeof(*shared));
    shared->what = what;
    start_ranks(size, live, NULL, pids);
    if (what == QUORUM) {
        wait_for(&shared->met, size);
        signal_others(SIGSTOP);
        atomic_store(&shared->go, 1);
        wait_for(&shared->refused, 1);
        signal_others(SIGCONT);
        atomic_store(&shared->go, 2);
    }
    for (rank = 0; rank < size; ++rank) {
        right = (rank_ends_well(pids[rank]) || (last_dies(what) && (rank == size - 1))) && right;
    }
    right = right && (atomic_load(&shared->wrong) == 0) && (atomic_load(&shared->stale) <= (size - 1) / 2);
    printf("%s %s, %d ranks\n", right ? "ok" : "WRONG", name, size);
    fflush(stdout);
    return right;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {
        [CALLS] = "agree and shrink at once are refused on all",
        [ORDER] = "a collective where one rank agrees or shrinks is refused on all",
        [KINDS] = "two collectives at once are refused on all",
        [SIZES] = "a collective of two sizes is refused on all",
        [EMPTY] = "a collective of no bytes on one rank is refused on the others",
        [LARGE] = "a broadcast of much and a barrier at once are refused on all",
        [ROOTS] = "broadcasts of different roots are refused on all",
        [ABSENT] = "operations with a rank that the view does not have",
        [QUORUM] = "no quorum, for as long as the others are silent",
        [DEAF] = "who hears nobody of its host leaves where other queues do not help",
        [FREED] = "a communicator is freed while a thread agrees with it",
        [DECIDED] = "a communicator is freed as what a thread agrees on is decided",
        [DEATH] = "after a death all agree, whatever collectives each has called",
    };
    const char *only = (argc > 2) ? argv[2] : "";
    bool       right = true;
    int        what;

    size   = (argc > 1) ? atoi(argv[1]) : 4;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((size < 2) || (size > RANKS_MAX) || (shared == MAP_FAILED)) {
        fprintf(stderr, "usage: recover_bad RANKS [CASE]\n");
        return 1;
    }
    for (what = CALLS; what <= DEATH; ++what) {
        if ((what == DEAF) && ((getenv("KVCL_PATH") == NULL) || (strcmp(getenv("KVCL_PATH"), "shm") != 0))) {
            continue; /* connections are of two ranks alone */
        }
        if ((strstr(names[what], only) != NULL) && ((what < QUORUM) || (size > 2))) { /* rank 0 is half of two */
            set_views((what < QUORUM) ? PATIENT_MS : STOPPED_MS);
            right = run((what_t)what, names[what]) && right;
        }
    }
    return right ? 0 : 1;
}
