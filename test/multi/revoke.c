/*
 * Communicators that are revoked while operations of all kinds wait (kvcl_comm_revoke). Ranks are forked here, and
 * write what they saw into memory that all share.
 *   revoke RANKS [CASE]   prints "ok NAME" for each case; exit 1 if one failed.
 */
#include "start_ranks.h"

#include <kvcl/kvcl.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS_MAX = 16, OPS = 8, BYTES = 4 << 20, RACE_POSTS = 4000, LONG_S = 100 };
#define LONG_NS (LONG_S * UINT64_C(1000000000))

typedef enum { PART, WORLD, KILLED, LATER, RACE } what_t;

typedef struct said {
    _Atomic int waits; /* its operations are in progress */
    _Atomic int heard; /* one has ended */
    _Atomic int wrong, finished;
} said_t;

typedef struct shared {
    what_t what;
    said_t said[RANKS_MAX];
} shared_t;

static shared_t *shared;
static int      size;
static pid_t    pids[RANKS_MAX];

/* ---- a rank ---- */

typedef struct rank {
    int            rank;
    said_t         *said;
    kvcl_context_h ctx;
    kvcl_comm_h    world, comm;
    kvcl_cache_h   cache;
    char           buf[64];
    char           *big, *out;
    kvcl_req_h     reqs[OPS];
    int            n;
} rank_t;

static void fail(rank_t *r, const char *what, int status)
{
    fprintf(stderr, "rank %d: %s: %s: %s\n", r->rank, what, kvcl_status_name((kvcl_status_t)status),
            kvcl_last_error());
    atomic_store(&r->said->wrong, 1);
}

#define IS(_call, _status)                                                                                             \
    do {                                                                                                               \
        kvcl_status_t is_ = (_call);                                                                                   \
        if (is_ != (_status)) {                                                                                        \
            fail(r, #_call, is_);                                                                                      \
        }                                                                                                              \
    } while (0)

static int after(const rank_t *r)
{
    return (r->rank + 1) % size;
}

/* The last rank takes no part in them, so they cannot end. */
static void post_all(rank_t *r)
{
    const uint32_t block   = 0;
    kvcl_sel_t     sel     = {.blocks = &block, .n_blocks = 1};
    kvcl_xfer_params_t p   = KVCL_XFER_PARAMS_INIT;

    p.timeout_ns = LONG_NS;
    r->n         = 0;
    KVCL_TRY(kvcl_recv_bytes(r->comm, KVCL_ANY_SOURCE, 1, r->buf, sizeof(r->buf), &p, &r->reqs[r->n++]));
    KVCL_TRY(kvcl_recv_bytes(r->comm, after(r), 2, r->buf, sizeof(r->buf), &p, &r->reqs[r->n++]));
    KVCL_TRY(kvcl_send(r->comm, after(r), 3, r->cache, &sel, &p, &r->reqs[r->n++]));
    KVCL_TRY(kvcl_barrier(r->comm, &p, &r->reqs[r->n++]));
    KVCL_TRY(kvcl_bcast_bytes(r->comm, size - 1, r->big, BYTES, &p, &r->reqs[r->n++]));
    KVCL_TRY(kvcl_allreduce(r->comm, r->big, r->out, BYTES / 4, KVCL_DTYPE_I32, KVCL_REDUCE_SUM, &p,
                            &r->reqs[r->n++]));
}

static void later_ones_are_refused(rank_t *r)
{
    const uint32_t   block = 0;
    kvcl_sel_t       sel   = {.blocks = &block, .n_blocks = 1};
    kvcl_recv_info_t info  = KVCL_RECV_INFO_INIT;
    kvcl_req_h       req;
    kvcl_comm_h      part;
    uint64_t         lens[RANKS_MAX] = {0};
    int              is = 0;

    IS(kvcl_comm_is_revoked(r->comm, &is), KVCL_OK);
    if (is != 1) {
        fail(r, "is_revoked", is);
    }
    IS(kvcl_get(r->comm, after(r), r->cache, &sel, &sel, NULL, &req), KVCL_ERR_REVOKED);
    IS(kvcl_put(r->comm, after(r), r->cache, &sel, &sel, NULL, &req), KVCL_ERR_REVOKED);
    IS(kvcl_send_bytes(r->comm, after(r), 1, r->buf, 4, NULL, &req), KVCL_ERR_REVOKED);
    IS(kvcl_recv_bytes(r->comm, KVCL_ANY_SOURCE, 1, r->buf, 4, NULL, &req), KVCL_ERR_REVOKED);
    IS(kvcl_notify(r->comm, after(r), "hi", 2, NULL, &req), KVCL_ERR_REVOKED);
    IS(kvcl_notify_recv(r->comm, r->buf, sizeof(r->buf), NULL, 0), KVCL_ERR_REVOKED);
    IS(kvcl_probe(r->comm, KVCL_ANY_SOURCE, KVCL_ANY_TAG, 0, &info), KVCL_ERR_REVOKED);
    IS(kvcl_probe(r->comm, after(r), 1, LONG_NS, &info), KVCL_ERR_REVOKED);
    IS(kvcl_barrier(r->comm, NULL, &req), KVCL_ERR_REVOKED);
    IS(kvcl_bcast(r->comm, 0, r->cache, &sel, NULL, &req), KVCL_ERR_REVOKED);
    IS(kvcl_allgather(r->comm, r->buf, 4, r->out, NULL, &req), KVCL_ERR_REVOKED);
    IS(kvcl_alltoallv(r->comm, r->buf, lens, NULL, r->out, lens, NULL, NULL, &req), KVCL_ERR_REVOKED);
    IS(kvcl_comm_split(r->comm, 0, 0, LONG_NS, &part), KVCL_ERR_REVOKED);
    IS(kvcl_comm_revoke(r->comm), KVCL_OK); /* again */
}

/* Agree and shrink work on it, and what they make works. */
static void go_on(rank_t *r, int left)
{
    uint64_t    flags = 3;
    kvcl_comm_h comm;
    kvcl_req_h  req;
    int         n, is = 1;

    kvcl_status_t status = kvcl_comm_agree(r->comm, &flags, LONG_NS);

    if ((status != KVCL_OK) && (status != KVCL_ERR_RANK_FAILED)) {
        fail(r, "agree", status);
    }
    KVCL_TRY(kvcl_comm_shrink(r->comm, LONG_NS, &comm));
    n = kvcl_comm_size(comm);
    if (n != left) {
        fail(r, "the size of the shrunken one", n);
    }
    IS(kvcl_comm_is_revoked(comm, &is), KVCL_OK);
    if (is != 0) {
        fail(r, "the shrunken one is revoked", is);
    }
    KVCL_TRY(kvcl_barrier(comm, NULL, &req));
    IS(kvcl_req_wait(req, KVCL_WAIT_FOREVER), KVCL_OK);
    kvcl_comm_free(comm);
}

static void all_end(rank_t *r)
{
    kvcl_status_t status;
    int           i;

    for (i = 0; i < r->n; ++i) {
        status = kvcl_req_wait(r->reqs[i], KVCL_WAIT_FOREVER);
        atomic_store(&r->said->heard, 1);
        /* Of a rank that was killed meanwhile the failure may be known first, but not by a recv from any. */
        if ((status != KVCL_ERR_REVOKED) &&
            ((i == 0) || (shared->what != KILLED) || (status != KVCL_ERR_RANK_FAILED))) {
            fail(r, "the end of an operation that waited", status);
        }
    }
}

static void *probe(void *arg)
{
    rank_t           *r   = arg;
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;

    IS(kvcl_probe(r->comm, KVCL_ANY_SOURCE, 9, LONG_NS, &info), KVCL_ERR_REVOKED);
    return NULL;
}

static void *take_notice(void *arg)
{
    rank_t *r = arg;
    char   buf[16];

    IS(kvcl_notify_recv(r->comm, buf, sizeof(buf), NULL, LONG_NS), KVCL_ERR_REVOKED);
    return NULL;
}

static void wait_for(_Atomic int *word)
{
    while (atomic_load(word) == 0) {
        usleep(500);
    }
}

/* All but the last rank wait in everything; it revokes, and in one case is killed when another one has heard. */
static void waiting(rank_t *r)
{
    pthread_t threads[2];
    int       i;

    if (r->rank == size - 1) {
        for (i = 0; i < size - 1; ++i) {
            wait_for(&shared->said[i].waits);
        }
        KVCL_TRY(kvcl_comm_revoke(r->comm));
        if (shared->what == KILLED) {
            wait_for(&shared->said[0].heard);
            raise(SIGKILL);
        }
    } else {
        pthread_create(&threads[0], NULL, probe, r);
        pthread_create(&threads[1], NULL, take_notice, r);
        post_all(r);
        atomic_store(&r->said->waits, 1);
        all_end(r);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
    }
    later_ones_are_refused(r);
    go_on(r, (shared->what == KILLED) ? size - 1 : size);
}

/* Rank 0 makes the communicator after it has heard that it was revoked. */
static void later(rank_t *r, const int *ranks)
{
    kvcl_req_h req;
    int        is = 0;
    char       byte;

    if (r->rank == 0) {
        KVCL_TRY(kvcl_recv_bytes(r->world, 1, 5, &byte, 1, NULL, &req));
        IS(kvcl_req_wait(req, KVCL_WAIT_FOREVER), KVCL_OK);
    }
    KVCL_TRY(kvcl_comm_create(r->world, ranks, size, &r->comm));
    if (r->rank == size - 1) {
        KVCL_TRY(kvcl_comm_revoke(r->comm));
    }
    while ((r->rank != 0) && (is == 0)) {
        KVCL_TRY(kvcl_comm_is_revoked(r->comm, &is));
    }
    if (r->rank == 1) { /* it has told rank 0 before */
        KVCL_TRY(kvcl_send_bytes(r->world, 0, 5, "x", 1, NULL, &req));
        IS(kvcl_req_wait(req, KVCL_WAIT_FOREVER), KVCL_OK);
    }
    later_ones_are_refused(r);
    go_on(r, size);
}

/* Each is refused, or ends. */
static void *post_many(void *arg)
{
    rank_t             *r   = arg;
    kvcl_xfer_params_t p    = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         *all = calloc(RACE_POSTS, sizeof(*all));
    kvcl_status_t      status = KVCL_OK;
    char               byte;
    int                n = 0, i;

    p.timeout_ns = LONG_NS;
    while ((status == KVCL_OK) && (n < RACE_POSTS)) {
        status = kvcl_recv_bytes(r->comm, KVCL_ANY_SOURCE, 77, &byte, 1, &p, &all[n]);
        n += (status == KVCL_OK) ? 1 : 0;
        if (n == 50) {
            atomic_fetch_add(&r->said->waits, 1);
        }
    }
    if ((status != KVCL_OK) && (status != KVCL_ERR_REVOKED)) {
        fail(r, "a recv that is posted while its communicator is revoked", status);
    }
    for (i = 0; i < n; ++i) {
        IS(kvcl_req_wait(all[i], KVCL_WAIT_FOREVER), KVCL_ERR_REVOKED);
    }
    free(all);
    return NULL;
}

static void race(rank_t *r)
{
    pthread_t threads[2];
    int       i;

    for (i = 0; i < 2; ++i) {
        pthread_create(&threads[i], NULL, post_many, r);
    }
    if (r->rank == size - 1) {
        wait_for(&shared->said[0].waits);
        wait_for(&r->said->waits);
        KVCL_TRY(kvcl_comm_revoke(r->comm));
    }
    for (i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
    }
    later_ones_are_refused(r);
    go_on(r, size);
}

static int live(const void *arg, int rank)
{
    rank_t        *r     = calloc(1, sizeof(*r));
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(4, 4096);
    kvcl_event_t  event  = KVCL_EVENT_INIT;
    int           ranks[RANKS_MAX], i;

    (void)arg;
    for (i = 0; i < size; ++i) {
        ranks[i] = i;
    }
    r->rank = rank;
    r->said = &shared->said[rank];
    r->big  = calloc(1, BYTES);
    r->out  = calloc(1, BYTES);
    KVCL_TRY(kvcl_init(NULL, &r->ctx));
    KVCL_TRY(kvcl_comm_world(r->ctx, &r->world));
    KVCL_TRY(kvcl_cache_create(r->ctx, "kv", &layout, NULL, &r->cache));
    while (kvcl_event_next(r->ctx, &event) != KVCL_OK) { /* the first view */
        usleep(1000);
    }
    r->comm = r->world;
    if (shared->what == LATER) {
        later(r, ranks);
    } else {
        if (shared->what != WORLD) {
            KVCL_TRY(kvcl_comm_create(r->world, ranks, size, &r->comm));
        }
        (shared->what == RACE) ? race(r) : waiting(r);
    }
    atomic_store(&r->said->finished, 1);
    kvcl_comm_free(r->comm);
    kvcl_cache_destroy(r->cache);
    kvcl_finalize(r->ctx);
    free(r->big);
    free(r->out);
    free(r);
    return 0;
}

/* ---- the parent ---- */

static bool run(what_t what, const char *name)
{
    bool right = true;
    int  rank, status;

    memset(shared, 0, sizeof(*shared));
    shared->what = what;
    start_ranks(size, live, NULL, pids);
    for (rank = 0; rank < size; ++rank) {
        const bool killed = (what == KILLED) && (rank == size - 1);

        right = (waitpid(pids[rank], &status, 0) == pids[rank]) && right;
        right = right && (atomic_load(&shared->said[rank].wrong) == 0) &&
                (killed ? WIFSIGNALED(status) : (atomic_load(&shared->said[rank].finished) == 1));
    }
    printf("%s %s, %d ranks\n", right ? "ok" : "WRONG", name, size);
    fflush(stdout);
    return right;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {
        [PART]   = "a communicator is revoked while all wait",
        [WORLD]  = "the world is revoked while all wait",
        [KILLED] = "who has revoked is killed, and the others hear of it",
        [LATER]  = "a communicator is revoked before a rank makes it",
        [RACE]   = "threads post while their communicator is revoked",
    };
    const char *only = (argc > 2) ? argv[2] : "";
    bool       right = true;
    int        what;

    size   = (argc > 1) ? atoi(argv[1]) : 4;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((size < 2) || (size > RANKS_MAX) || (shared == MAP_FAILED)) {
        fprintf(stderr, "usage: revoke RANKS [CASE]\n");
        return 1;
    }
    set_views(PATIENT_MS);
    for (what = PART; what <= RACE; ++what) {
        if (strstr(names[what], only) != NULL) {
            right = run((what_t)what, names[what]) && right;
        }
    }
    return right ? 0 : 1;
}
