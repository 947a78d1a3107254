/*
 * A rank dies while the others are in a collective with it. All of them end soon with KVCL_ERR_RANK_FAILED (or
 * successfully, if they needed nothing more from it). The ranks are forked here and meet at a rendezvous address, since
 * mpirun would end them all.
 *   coll_death RANKS   prints "ok NAME" for each case; exit 1 if one failed
 */
#include "start_ranks.h"

#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 16, SOON_S = 60, LONG_BYTES = 4 << 20 };

typedef enum { BARRIER, ALLGATHER, BCAST_SMALL, BCAST_LONG, BCAST_BLOCKS, REDUCE_SMALL, REDUCE_LONG, ALLTOALL } what_t;

typedef struct plan {
    const char *name;
    what_t     what;
    int        root;
    int        victim;  /* -1: the last rank */
    int        rounds;  /* rounds of the victim before it dies: after the last one, or in the middle of it: */
    bool       stopped; /* dies without notice while the others already wait for it */
} plan_t;

typedef struct job {
    const plan_t *plan;
    int          size;
} job_t;

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + ((double)ts.tv_nsec / 1e9);
}

typedef struct me {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_cache_h   cache;
    unsigned char  *buf;
    int            rank;
    int            size;
} me_t;

static kvcl_status_t once(const me_t *me, const plan_t *plan)
{
    static const uint32_t ids[] = {3, 1, 2, 0, 7, 5, 6, 4};
    kvcl_sel_t            sel   = {.blocks = ids, .n_blocks = 8};
    kvcl_req_h            req   = NULL;
    kvcl_status_t         status;

    switch (plan->what) {
    case BARRIER:
        status = kvcl_barrier(me->world, NULL, &req);
        break;
    case ALLGATHER:
        status = kvcl_allgather(me->world, me->buf + LONG_BYTES, 40000, me->buf, NULL, &req);
        break;
    case REDUCE_SMALL:
    case REDUCE_LONG:
        status = kvcl_allreduce(me->world, me->buf, me->buf, (plan->what == REDUCE_LONG) ? (LONG_BYTES / 4) : 25,
                                KVCL_DTYPE_U32, KVCL_REDUCE_SUM, NULL, &req);
        break;
    case ALLTOALL:
        status = kvcl_alltoall(me->world, me->buf, LONG_BYTES / RANKS_MAX, me->buf + LONG_BYTES, NULL, &req);
        break;
    case BCAST_BLOCKS:
        status = kvcl_bcast(me->world, plan->root, me->cache, &sel, NULL, &req);
        break;
    default:
        status = kvcl_bcast_bytes(me->world, plan->root, me->buf, (plan->what == BCAST_LONG) ? LONG_BYTES : 100, NULL,
                                  &req);
        break;
    }
    return (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
}

/* One rank. Exit 0: success. */
static int live(const void *arg, int rank)
{
    const job_t   *job   = arg;
    const plan_t  *plan  = job->plan;
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(8, LONG_BYTES / 8);
    int           victim = (plan->victim < 0) ? job->size - 1 : plan->victim, i;
    kvcl_status_t status = KVCL_OK;
    me_t          me     = {.rank = rank, .size = job->size, .buf = calloc(2, LONG_BYTES)};
    double        start;

    KVCL_TRY(kvcl_init(NULL, &me.ctx));
    KVCL_TRY(kvcl_comm_world(me.ctx, &me.world));
    KVCL_TRY(kvcl_cache_create(me.ctx, "c", &layout, NULL, &me.cache));
    for (i = 0; (i < plan->rounds) && (status == KVCL_OK); ++i) {
        status = once(&me, plan);
    }
    /* A victim that dies at once after its last round may not have acknowledged that round to every rank. */
    if ((status != KVCL_OK) &&
        (plan->stopped || (rank == victim) || (i < plan->rounds) || (status != KVCL_ERR_RANK_FAILED))) {
        fprintf(stderr, "rank %d: before the death, in round %d: %s\n", rank, i, kvcl_status_text(status));
        return 1;
    }
    if (rank == victim) {
        if (plan->stopped) {
            usleep(300000);
        }
        raise(SIGKILL);
    }
    start = now_s();
    /* Small broadcasts end at a root that is acknowledged; continue until the death is detected. */
    for (i = 0; (i < 100000) && (status == KVCL_OK) && (now_s() - start < SOON_S); ++i) {
        status = once(&me, plan);
    }
    if (status != KVCL_ERR_RANK_FAILED) {
        fprintf(stderr, "rank %d: %s after %.1f s\n", rank, kvcl_status_text(status), now_s() - start);
        return 1;
    }
    kvcl_cache_destroy(me.cache);
    kvcl_finalize(me.ctx);
    free(me.buf);
    return 0;
}

static bool run(const plan_t *plan, int size)
{
    int   victim = (plan->victim < 0) ? size - 1 : plan->victim, i, status;
    job_t job    = {plan, size};
    pid_t pids[RANKS_MAX], pid;
    bool  right = true;

    start_ranks(size, live, &job, pids);
    for (i = 0; i < size; ++i) { /* in any order: a dead process counts as alive until it is waited for */
        pid = waitpid(-1, &status, 0);
        if ((pid != pids[victim]) && (!WIFEXITED(status) || (WEXITSTATUS(status) != 0))) {
            fprintf(stderr, "%s: process %d ended with wait status 0x%x\n", plan->name, (int)pid, status);
            right = false;
        }
    }
    printf("%s %s, %d ranks\n", right ? "ok" : "WRONG", plan->name, size);
    return right;
}

/* ---- one rank leaves while the others stay ---- */

typedef struct leaving {
    _Atomic int *gone; /* of all processes */
    int         size;
} leaving_t;

static const char *text_of(int fd)
{
    static char text[65536];
    ssize_t     n = pread(fd, text, sizeof(text) - 1, 0);

    text[(n > 0) ? n : 0] = '\0';
    return text;
}

static bool says(int fd, const char *what)
{
    return strstr(text_of(fd), what) != NULL;
}

/* The last rank leaves. The others' contexts answer it by themselves. */
static int leave(const void *arg, int rank)
{
    const leaving_t *leaving = arg;
    FILE            *said    = tmpfile();
    me_t            me       = {.rank = rank, .size = leaving->size};
    plan_t          plan     = {.what = BARRIER};

    if (said == NULL) {
        return 1;
    }
    if (rank == leaving->size - 1) {
        dup2(fileno(said), STDERR_FILENO);
    }
    KVCL_TRY(kvcl_init(NULL, &me.ctx));
    KVCL_TRY(kvcl_comm_world(me.ctx, &me.world));
    if (once(&me, &plan) != KVCL_OK) {
        fprintf(stderr, "rank %d: the barrier before anyone leaves: %s\n", rank, kvcl_last_error());
        return 1;
    }
    while ((rank != leaving->size - 1) && (atomic_load(leaving->gone) == 0)) {
        usleep(1000);
    }
    kvcl_finalize(me.ctx);
    if (rank == leaving->size - 1) {
        atomic_store(leaving->gone, 1);
        if (!says(fileno(said), "kvcl[") || says(fileno(said), "confirmed its BYE")) {
            printf("rank %d logged: %s\n", rank, text_of(fileno(said)));
            return 1;
        }
    }
    return 0;
}

static bool run_leaving(int size)
{
    leaving_t leaving = {.size = size};
    bool      right   = true;
    int       i;

    leaving.gone = mmap(NULL, sizeof(*leaving.gone), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setenv("KVCL_LOG", "debug", 1); /* a rank that leaves logs nothing else */
    start_ranks(size, leave, &leaving, NULL);
    unsetenv("KVCL_LOG");
    for (i = 0; i < size; ++i) {
        right = rank_ends_well(-1) && right;
    }
    munmap(leaving.gone, sizeof(*leaving.gone));
    printf("%s a rank leaves, %d ranks\n", right ? "ok" : "WRONG", size);
    return right;
}

int main(int argc, char **argv)
{
    static const plan_t plans[] = {
        {"barrier, a rank never comes", BARRIER, 0, -1, 0, true},
        {"barrier, a rank dies after some", BARRIER, 0, -1, 20, false},
        {"barrier, rank 0 dies", BARRIER, 0, 0, 3, true},
        {"allgather, a rank dies", ALLGATHER, 0, -1, 3, true},
        {"small bcast, the root dies", BCAST_SMALL, 0, 0, 3, true},
        {"small bcast, a leaf dies", BCAST_SMALL, 0, -1, 3, false},
        {"long bcast, the root dies", BCAST_LONG, 1, 1, 2, true},
        {"long bcast, a rank dies", BCAST_LONG, 0, -1, 2, false},
        {"bcast of blocks, the root dies", BCAST_BLOCKS, 0, 0, 2, true},
        {"bcast of blocks, a rank dies", BCAST_BLOCKS, 0, -1, 2, false},
        {"small allreduce, a rank never comes", REDUCE_SMALL, 0, -1, 0, true},
        {"small allreduce, a rank dies", REDUCE_SMALL, 0, -1, 20, false},
        {"long allreduce, rank 0 dies", REDUCE_LONG, 0, 0, 2, true},
        {"long allreduce, a rank dies", REDUCE_LONG, 0, -1, 2, false},
        {"alltoall, a rank dies", ALLTOALL, 0, -1, 2, false},
    };
    int    size = (argc > 1) ? atoi(argv[1]) : 3;
    size_t i;
    int    bad = 0;

    for (i = 0; i < sizeof(plans) / sizeof(plans[0]); ++i) {
        if ((argc < 3) || (strstr(plans[i].name, argv[2]) != NULL)) {
            bad += run(&plans[i], size) ? 0 : 1;
        }
    }
    if ((argc < 3) || (strcmp(argv[2], "leaves") == 0)) {
        bad += run_leaving(size) ? 0 : 1;
    }
    return (bad == 0) ? 0 : 1;
}
