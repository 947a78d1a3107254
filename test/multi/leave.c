/*
 * Living ranks that go: one leaves, all leave, one is deactivated (kvcl_leave, kvcl_comm_deactivate); or all end after
 * a barrier, at once. Ranks are forked here, and write what they saw into memory that all share.
 *   leave RANKS [CASE]   prints "ok NAME" for each case; exit 1 if one failed.
 */
#include "start_ranks.h"

#include <kvcl/kvcl.h>

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS_MAX = 16, LONG_S = 100 };
#define LONG_NS (LONG_S * UINT64_C(1000000000))

typedef enum { LEAVE, ALL, DEACTIVATE, BARRIER } what_t;

typedef struct shared {
    what_t      what;
    _Atomic int met, gone, wrong, finished, left;
} shared_t;

static shared_t *shared;
static int      size;

typedef struct rank {
    int            rank;
    kvcl_context_h ctx;
    kvcl_comm_h    world;
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

static void wait_for(_Atomic int *word, int value)
{
    while (atomic_load(word) != value) {
        usleep(500);
    }
}

/* The next event but suspicions, which a busy machine may cause. */
static kvcl_event_t next(const rank_t *r)
{
    kvcl_event_t  event = KVCL_EVENT_INIT;
    kvcl_status_t status;

    do {
        status = kvcl_event_next(r->ctx, &event);
        if (status == KVCL_INPROGRESS) {
            usleep(500);
        }
    } while ((status == KVCL_INPROGRESS) || (event.type == KVCL_EVENT_SUSPECT) ||
             (event.type == KVCL_EVENT_ALIVE_AGAIN));
    return event;
}

static void is_next(const rank_t *r, int type, int n, int rank, int has)
{
    kvcl_event_t event = next(r);

    if ((event.type != type) || (event.n_ranks != n) || (kvcl_event_has(&event, rank) != has)) {
        fprintf(stderr, "rank %d: event %d of %d ranks, not %d of %d\n", r->rank, event.type, event.n_ranks, type, n);
        atomic_store(&shared->wrong, 1);
    }
}

static kvcl_status_t say(const rank_t *r, int to)
{
    kvcl_req_h    req;
    kvcl_status_t status = kvcl_notify(r->world, to, "x", 1, NULL, &req);

    return (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
}

static kvcl_status_t gather_all(const rank_t *r)
{
    char          bytes[RANKS_MAX];
    kvcl_req_h    req;
    kvcl_status_t status = kvcl_allgather(r->world, "x", 1, bytes, NULL, &req);

    return (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
}

/* The last rank has gone; the others have no failure in it. */
static void stay(const rank_t *r)
{
    const int     who = size - 1;
    unsigned char active[RANKS_MAX];
    uint64_t      view, flags = 1;
    kvcl_comm_h   comm;
    kvcl_req_h    req;
    int           n = 0;

    is_next(r, KVCL_EVENT_DRAINED, 1, who, 1);
    is_next(r, KVCL_EVENT_VIEW, size - 1, who, 0);
    IS(kvcl_comm_active(r->world, active, size, &view), KVCL_OK);
    IS(active[who], 0);
    IS((int)view, 2);
    IS(say(r, who), KVCL_ERR_RANK_FAILED);
    IS(gather_all(r), KVCL_ERR_RANK_FAILED);
    IS(kvcl_comm_get_failed(r->world, NULL, 0, &n), KVCL_OK);
    IS(n, 1);
    IS(kvcl_comm_agree(r->world, &flags, LONG_NS), KVCL_ERR_RANK_FAILED);
    KVCL_TRY(kvcl_comm_shrink(r->world, LONG_NS, &comm));
    IS(kvcl_comm_size(comm), size - 1);
    IS(kvcl_barrier(comm, NULL, &req), KVCL_OK);
    IS(kvcl_req_wait(req, KVCL_WAIT_FOREVER), KVCL_OK);
    kvcl_comm_free(comm);
    atomic_fetch_add(&shared->gone, 1);
    wait_for(&shared->gone, size); /* nobody's kvcl_finalize before */
}

static void is_out(const rank_t *r)
{
    is_next(r, KVCL_EVENT_EXCLUDED, 1, r->rank, 1);
    IS(say(r, 0), KVCL_ERR_STALE);
    IS(gather_all(r), KVCL_ERR_STALE);
    atomic_fetch_add(&shared->gone, 1);
    wait_for(&shared->gone, size);
}

static void deactivate(const rank_t *r)
{
    kvcl_view_change_result_t result = KVCL_VIEW_CHANGE_RESULT_INIT;
    const int                 who = size - 1, none = size, all[] = {who, who};

    IS(kvcl_comm_deactivate(r->world, &none, 1, LONG_NS, &result), KVCL_ERR_UNKNOWN_RANK);
    IS(kvcl_comm_deactivate(r->world, &r->rank, 1, LONG_NS, &result), KVCL_ERR_INVALID_PARAM);
    IS(kvcl_comm_deactivate(r->world, NULL, 1, LONG_NS, &result), KVCL_ERR_INVALID_PARAM);
    IS(kvcl_comm_deactivate(r->world, all, 2, LONG_NS, &result), KVCL_OK);
    IS(result.n_dropped, 0);
    IS((int)result.view, 2);
    IS(kvcl_comm_deactivate(r->world, all, 2, LONG_NS, &result), KVCL_OK);
    IS(result.n_dropped, 1);
    IS((int)(result.dropped[0] >> who), 1);
}

/* No rank waits for the others before its kvcl_finalize(): what it has sent still reaches them. The round before makes
 * sure that all of them have a view. */
static void end_after_barrier(const rank_t *r)
{
    uint64_t   flags = 1;
    kvcl_req_h req;

    IS(kvcl_comm_agree(r->world, &flags, LONG_NS), KVCL_OK);
    IS(kvcl_barrier(r->world, NULL, &req), KVCL_OK);
    IS(kvcl_req_wait(req, KVCL_WAIT_FOREVER), KVCL_OK);
}

static int live(const void *arg, int rank)
{
    rank_t one = {.rank = rank}, *r = &one;

    (void)arg;
    KVCL_TRY(kvcl_init(NULL, &r->ctx));
    KVCL_TRY(kvcl_comm_world(r->ctx, &r->world));
    is_next(r, KVCL_EVENT_VIEW, size, rank, 1);
    atomic_fetch_add(&shared->met, 1);
    wait_for(&shared->met, size);
    if (shared->what == BARRIER) {
        end_after_barrier(r);
    } else if (shared->what == ALL) {
        IS(kvcl_leave(r->ctx, LONG_NS), KVCL_OK);
        is_next(r, KVCL_EVENT_DRAINED, 1, rank, 1);
        atomic_fetch_add(&shared->left, 1);
        wait_for(&shared->left, size);
    } else if (rank < size - 1) {
        if ((rank == 0) && (shared->what == DEACTIVATE)) {
            deactivate(r);
        }
        stay(r);
    } else {
        if (shared->what == LEAVE) {
            IS(kvcl_leave(r->ctx, LONG_NS), KVCL_OK);
            is_next(r, KVCL_EVENT_DRAINED, 1, rank, 1);
            IS(kvcl_leave(r->ctx, LONG_NS), KVCL_ERR_STALE);
        }
        is_out(r);
    }
    atomic_fetch_add(&shared->finished, 1);
    kvcl_finalize(r->ctx);
    return 0;
}

static bool run(what_t what, const char *name)
{
    pid_t pids[RANKS_MAX];
    bool  right = true;
    int   rank;

    memset(shared, 0, sizeof(*shared));
    shared->what = what;
    start_ranks(size, live, NULL, pids);
    for (rank = 0; rank < size; ++rank) {
        right = rank_ends_well(pids[rank]) && right;
    }
    right = right && (atomic_load(&shared->wrong) == 0) && (atomic_load(&shared->finished) == size);
    printf("%s %s, %d ranks\n", right ? "ok" : "WRONG", name, size);
    fflush(stdout);
    return right;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {[LEAVE] = "a rank leaves", [ALL] = "all leave at once",
                                        [DEACTIVATE] = "a rank is deactivated",
                                        [BARRIER] = "all end after a barrier"};
    const char *only = (argc > 2) ? argv[2] : "";
    bool       right = true;
    int        what, i;

    size   = (argc > 1) ? atoi(argv[1]) : 4;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((size < 2) || (size > RANKS_MAX) || (shared == MAP_FAILED)) {
        fprintf(stderr, "usage: leave RANKS [CASE]\n");
        return 1;
    }
    set_views(STOPPED_MS); /* leaving takes about as long */
    for (what = LEAVE; what <= BARRIER; ++what) {
        for (i = 0; (i < ((what == BARRIER) ? 5 : 1)) && (strstr(names[what], only) != NULL); ++i) {
            right = run((what_t)what, names[what]) && right;
        }
    }
    return right ? 0 : 1;
}
