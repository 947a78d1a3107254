/*
 * Collectives under failure (kvcl_coll.h, KVCL_VIEWS): a rank is killed at a random moment of a run of one collective.
 * At each survivor every request ends with KVCL_OK or KVCL_ERR_RANK_FAILED within its deadline; what ends with KVCL_OK
 * has the right bytes; the same communicator fails from then on; the collective of the shrunken one works. Ranks are
 * forked here, and write what they saw into memory that all share.
 *   coll_views RANKS KILLS [CASE]   kills that many times for each collective; prints "ok NAME"; exit 1 if one failed.
 *                                   TEST_SEED repeats the moments.
 */
#include "start_ranks.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS_MAX = 8, WORDS = 16384, ROUNDS = 100000, LONG_S = 60 };
#define LONG_NS (LONG_S * UINT64_C(1000000000))

typedef enum { BARRIER, BCAST, BCAST_BLOCKS, ALLGATHER, ALLREDUCE, REDUCE_SCATTER, ALLTOALL, ALLTOALLV, GATHER, SCATTER,
               COLLS } coll_t;

static const char *const names[COLLS] = {"barrier", "bcast", "bcast of blocks", "allgather", "allreduce",
                                         "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter"};

typedef struct shared {
    coll_t      coll;
    int         words;   /* of 4 bytes, for each rank */
    bool        revokes; /* who learns of the death revokes */
    _Atomic int rounds[RANKS_MAX], wrong, shrunk, lost; /* lost: heard nobody any more, and left */
    _Atomic int few;     /* ranks without a quorum: the other half had one that was lost */
    _Atomic uint64_t dead_ns, last_ns; /* when it was killed; when the last survivor learnt it */
} shared_t;

static shared_t *shared;
static int      size;
static uint64_t rnd;
static bool     excluded; /* this rank, by what a collective says */

static unsigned below(unsigned n)
{
    rnd ^= rnd << 13;
    rnd ^= rnd >> 7;
    rnd ^= rnd << 17;
    return (unsigned)(rnd % n);
}

/* ---- a rank ---- */

typedef struct rank {
    kvcl_context_h ctx;
    kvcl_cache_h   cache;
    uint32_t       *in, *out;
    int            rank, size, root, n; /* in the communicator; n: words */
} rank_t;

/* The word that a rank gives. */
static uint32_t word(int rank, int round, int at)
{
    return ((uint32_t)rank * 1000003u) + ((uint32_t)round * 101u) + (uint32_t)at;
}

static kvcl_status_t post(rank_t *r, kvcl_comm_h comm, const kvcl_xfer_params_t *p, kvcl_req_h *req)
{
    const size_t   bytes = (size_t)r->n * 4;
    const uint32_t block = 0;
    kvcl_sel_t     sel   = {.blocks = &block, .n_blocks = 1};
    uint64_t       lens[RANKS_MAX];
    int            i;

    for (i = 0; i < r->size; ++i) {
        lens[i] = bytes;
    }
    switch (shared->coll) {
    case BARRIER:
        return kvcl_barrier(comm, p, req);
    case BCAST:
        return kvcl_bcast_bytes(comm, r->root, (r->rank == r->root) ? r->in : r->out, bytes, p, req);
    case BCAST_BLOCKS:
        return kvcl_bcast(comm, r->root, r->cache, &sel, p, req);
    case ALLGATHER:
        return kvcl_allgather(comm, r->in, bytes, r->out, p, req);
    case ALLREDUCE:
        return kvcl_allreduce(comm, r->in, r->out, (size_t)r->n, KVCL_DTYPE_U32, KVCL_REDUCE_SUM, p, req);
    case REDUCE_SCATTER:
        return kvcl_reduce_scatter(comm, r->in, r->out, (size_t)r->n, KVCL_DTYPE_U32, KVCL_REDUCE_SUM, p, req);
    case ALLTOALL:
        return kvcl_alltoall(comm, r->in, bytes, r->out, p, req);
    case ALLTOALLV:
        return kvcl_alltoallv(comm, r->in, lens, NULL, r->out, lens, NULL, p, req);
    case GATHER:
        return kvcl_gather(comm, r->root, r->in, bytes, r->out, p, req);
    default:
        return kvcl_scatter(comm, r->root, r->in, bytes, r->out, p, req);
    }
}

/* All ranks have the same part of n words at in, for each other rank. */
static void fill(rank_t *r, int round)
{
    int i;

    for (i = 0; i < r->n * r->size; ++i) {
        r->in[i]  = word(r->rank, round, i % r->n);
        r->out[i] = 0;
    }
}

static bool is_right(const rank_t *r, int round)
{
    uint32_t sum;
    int      part, i, k, parts = 1, from;

    switch (shared->coll) {
    case BARRIER:
    case BCAST_BLOCKS:
        return true;
    case ALLGATHER:
    case ALLTOALL:
    case ALLTOALLV:
        parts = r->size;
        break;
    case GATHER:
        parts = (r->rank == r->root) ? r->size : 0;
        break;
    case BCAST:
        parts = (r->rank == r->root) ? 0 : 1;
        break;
    default:
        break;
    }
    for (part = 0; part < parts; ++part) {
        for (i = 0; i < r->n; ++i) {
            from = (parts > 1) ? part : r->root;
            sum  = word(from, round, i);
            if ((shared->coll == ALLREDUCE) || (shared->coll == REDUCE_SCATTER)) {
                for (sum = 0, k = 0; k < r->size; ++k) {
                    sum += word(k, round, i);
                }
            }
            if (r->out[(part * r->n) + i] != sum) {
                return false;
            }
        }
    }
    return true;
}

/* may: be revoked. */
static kvcl_status_t step(rank_t *r, kvcl_comm_h comm, int round, bool may)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    const uint64_t     from = kvcl_now_ns();
    kvcl_req_h         req;
    kvcl_status_t      status;
    bool               known;

    p.timeout_ns = LONG_NS;
    r->root      = round % r->size;
    r->n         = shared->words;
    fill(r, round);
    status = post(r, comm, &p, &req);
    status = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    known  = (status == KVCL_OK) || (status == KVCL_ERR_RANK_FAILED) || (may && (status == KVCL_ERR_REVOKED)) ||
            (status == KVCL_ERR_STALE);
    excluded = excluded || (status == KVCL_ERR_STALE);
    if (!known || (kvcl_now_ns() - from > LONG_NS) || ((status == KVCL_OK) && !is_right(r, round))) {
        fprintf(stderr, "rank %d: %s %d: %s: %s\n", r->rank, names[shared->coll], round, kvcl_status_name(status),
                (status == KVCL_OK) ? "wrong bytes, or late" : kvcl_last_error());
        atomic_store(&shared->wrong, 1);
    }
    return status;
}

static void note_time(void)
{
    uint64_t now = kvcl_now_ns(), last = atomic_load(&shared->last_ns);

    while ((now > last) && !atomic_compare_exchange_weak(&shared->last_ns, &last, now)) {
    }
}

/* Shrink until it works for all. Without revoke each learns of the death by itself. */
static void recover(rank_t *r, kvcl_comm_h world)
{
    kvcl_comm_h   comm;
    uint64_t      all;
    kvcl_status_t status;
    int           i;

    if (shared->revokes) {
        KVCL_TRY(kvcl_comm_revoke(world));
    }
    do {
        status = kvcl_comm_shrink(world, LONG_NS, &comm);
        if (status == KVCL_ERR_STALE) { /* the death of one that was writing to it over shared memory: design, 6e */
            atomic_fetch_add(&shared->lost, 1);
            return;
        }
        if (status == KVCL_ERR_NO_QUORUM) {
            atomic_fetch_add(&shared->few, 1);
            return;
        }
        KVCL_TRY(status);
        if (excluded) {
            fprintf(stderr, "rank %d: a collective of a member ended with KVCL_ERR_STALE\n", r->rank);
            atomic_store(&shared->wrong, 1);
        }
        r->rank = kvcl_comm_rank(comm);
        r->size = kvcl_comm_size(comm);
        for (i = 0, status = KVCL_OK; (i < 3) && (status == KVCL_OK); ++i) {
            status = step(r, comm, i, false);
        }
        kvcl_comm_free(comm);
        all    = (status == KVCL_OK) ? 1 : 0;
        status = kvcl_comm_agree(world, &all, LONG_NS);
        KVCL_TRY((status == KVCL_ERR_RANK_FAILED) ? KVCL_OK : status);
    } while (all != 1);
    if (r->size == size - 1 - atomic_load(&shared->lost)) {
        atomic_fetch_add(&shared->shrunk, 1);
    }
}

static int live(const void *arg, int rank)
{
    rank_t        *r     = calloc(1, sizeof(*r));
    kvcl_event_t  event  = KVCL_EVENT_INIT;
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(1, 65536);
    kvcl_status_t status;
    kvcl_comm_h   world;
    kvcl_req_h    req;
    int           i;

    (void)arg;
    r->rank = rank;
    r->size = size;
    r->in   = calloc((size_t)WORDS * RANKS_MAX, 4);
    r->out  = calloc((size_t)WORDS * RANKS_MAX, 4);
    KVCL_TRY(kvcl_init(NULL, &r->ctx));
    KVCL_TRY(kvcl_comm_world(r->ctx, &world));
    KVCL_TRY(kvcl_cache_create(r->ctx, "kv", &layout, NULL, &r->cache));
    while (kvcl_event_next(r->ctx, &event) != KVCL_OK) { /* the first view */
        usleep(500);
    }
    for (i = 0; (i < ROUNDS) && (step(r, world, i, shared->revokes) == KVCL_OK); ++i) {
        atomic_store(&shared->rounds[rank], i + 1);
    }
    note_time();
    if (!shared->revokes && (post(r, world, NULL, &req) == KVCL_OK)) { /* the dead is still in it */
        status = kvcl_req_wait(req, KVCL_WAIT_FOREVER);
        if ((status != KVCL_ERR_RANK_FAILED) && (status != KVCL_ERR_STALE)) {
            fprintf(stderr, "rank %d: a second one: %s\n", rank, kvcl_last_error());
            atomic_store(&shared->wrong, 1);
        }
    }
    recover(r, world);
    kvcl_cache_destroy(r->cache);
    kvcl_finalize(r->ctx);
    free(r->in);
    free(r->out);
    free(r);
    return 0;
}

/* ---- the parent ---- */

/* A rank that only gives may be ahead of those that have learnt of the death and stopped: it hears of it by revoke. */
static bool has_root(coll_t coll)
{
    return (coll == BCAST) || (coll == BCAST_BLOCKS) || (coll == GATHER) || (coll == SCATTER);
}

static bool run(coll_t coll, int words, bool revokes, double *ms, int *lost)
{
    pid_t       pids[RANKS_MAX];
    bool        right = true;
    const int   who   = (int)below((unsigned)size), begun = 1 + (int)below(20);
    int         rank, status;

    memset(shared, 0, sizeof(*shared));
    shared->coll  = coll;
    shared->words = words;
    shared->revokes = revokes;
    start_ranks(size, live, NULL, pids);
    while ((atomic_load(&shared->rounds[who]) < begun) && (waitpid(pids[who], &status, WNOHANG) == 0)) {
        usleep(50); /* the ranks need the core */
    }
    usleep(below(300));
    atomic_store(&shared->dead_ns, kvcl_now_ns());
    kill(pids[who], SIGKILL);
    for (rank = 0; rank < size; ++rank) {
        right = (rank_ends_well(pids[rank]) || (rank == who)) && right;
    }
    *ms   = (double)(atomic_load(&shared->last_ns) - atomic_load(&shared->dead_ns)) / 1e6;
    right = right && (atomic_load(&shared->wrong) == 0) && (atomic_load(&shared->lost) <= 1) &&
            (atomic_load(&shared->shrunk) + atomic_load(&shared->lost) + atomic_load(&shared->few) == size - 1);
    right = right && ((atomic_load(&shared->few) == 0) || ((atomic_load(&shared->lost) == 1) && (size <= 4)));
    *lost += atomic_load(&shared->lost);
    if (!right) {
        fprintf(stderr, "%s of %d words: rank %d was killed after %d rounds; %d shrank\n", names[coll], words, who,
                begun, atomic_load(&shared->shrunk));
    }
    return right;
}

int main(int argc, char **argv)
{
    static const int words[] = {2, 4096, WORDS};
    const char *only = (argc > 3) ? argv[3] : "", *seed = getenv("TEST_SEED");
    const int  kills = (argc > 2) ? atoi(argv[2]) : 3;
    bool       right = true, this_one;
    double     ms, worst;
    int        coll, i, lost = 0;

    size   = (argc > 1) ? atoi(argv[1]) : 4;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((size < 3) || (size > RANKS_MAX) || (shared == MAP_FAILED)) {
        fprintf(stderr, "usage: coll_views RANKS KILLS [CASE]\n");
        return 1;
    }
    rnd = ((seed != NULL) ? strtoull(seed, NULL, 0) : kvcl_now_ns()) | 1;
    printf("TEST_SEED=%" PRIu64 "\n", rnd);
    set_views(STOPPED_MS); /* who hears nobody any more leaves after this time */
    for (coll = 0; coll < COLLS; ++coll) {
        if (strstr(names[coll], only) == NULL) {
            continue;
        }
        for (i = 0, worst = 0, this_one = true; i < kills; ++i) {
            this_one = run((coll_t)coll, words[i % 3], has_root((coll_t)coll) || ((i / 3) % 2 != 0), &ms,
                           &lost) && this_one;
            worst    = (ms > worst) ? ms : worst;
        }
        right = right && this_one;
        printf("%s %s, a rank killed at %d random moments, %d ranks: known to the last after %.1f ms at most\n",
               this_one ? "ok" : "WRONG", names[coll], kills, size, worst);
        fflush(stdout);
    }
    printf("   %d ranks heard nobody any more, and left\n", lost);
    return right ? 0 : 1;
}
