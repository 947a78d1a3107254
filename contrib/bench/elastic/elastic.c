/*
 * What views cost and how fast they are (KVCL_VIEWS): ranks are forked here, killed or stopped, and their events' times
 * compared with the moment of the signal. One line for each figure: what, p50, p99, the most, samples, what is wanted.
 *   elastic RANKS ROUNDS CASE [MIB]   CASE: one, zero, four, leader, stop, agree, gets, idle (see run beside this)
 *                                     MIB: of the library's memory at each rank, touched, and half of it of malloc's
 */
#include "test/multi/start_ranks.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { RANKS_MAX = 16, SAMPLES = 1 << 16, GETS = 200000, AGREES = 400, IDLE_S = 5 };

typedef struct shared {
    _Atomic int      met, go, done;
    _Atomic uint64_t when[RANKS_MAX][RANKS_MAX][4]; /* told to, of whom: SUSPECT, FAILED, the view without it */
    double           value[RANKS_MAX][AGREES];
} shared_t;

static shared_t   *shared;
static int        size, me;
static size_t     mib;
static const char *what;
static pid_t      pids[RANKS_MAX];

typedef struct samples {
    double v[SAMPLES];
    int    n;
} samples_t;

static samples_t suspected, failed, viewed, other;

static double cpu_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + ((double)ts.tv_nsec / 1e9);
}

static bool is(const char *name)
{
    return strcmp(what, name) == 0;
}

static void wait_for(_Atomic int *word, int value)
{
    while (atomic_load(word) < value) {
        usleep(200);
    }
}

/* ---- a rank ---- */

static void on_event(void *arg, const kvcl_event_t *event)
{
    int rank, kind = (event->type == KVCL_EVENT_SUSPECT) ? 0 : (event->type == KVCL_EVENT_FAILED) ? 1 : 2;

    (void)arg;
    if ((event->type != KVCL_EVENT_SUSPECT) && (event->type != KVCL_EVENT_FAILED) &&
        (event->type != KVCL_EVENT_VIEW)) {
        return;
    }
    for (rank = 0; rank < size; ++rank) {
        if (((kvcl_event_has(event, rank) != 0) == (kind != 2)) && (atomic_load(&shared->when[me][rank][kind]) == 0)) {
            atomic_store(&shared->when[me][rank][kind], event->time_ns);
        }
    }
    if ((event->type == KVCL_EVENT_VIEW) && (event->view == 1)) {
        atomic_fetch_add(&shared->met, 1);
    }
}

static void agree_often(kvcl_comm_h world)
{
    uint64_t flags, from;
    int      i;

    for (i = 0; i < AGREES; ++i) {
        flags = 1;
        from  = kvcl_now_ns();
        KVCL_TRY(kvcl_comm_agree(world, &flags, KVCL_WAIT_DEFAULT));
        shared->value[me][i] = (double)(kvcl_now_ns() - from) / 1e6;
    }
}

/* Rank 1 gets a block of 4 KiB of rank 0 again and again. */
static void get_often(kvcl_comm_h world, kvcl_cache_h cache)
{
    const uint32_t block = 0;
    const char     *path = getenv("KVCL_PATH");
    const int      gets  = ((path != NULL) && (strcmp(path, "tcp") == 0)) ? GETS / 20 : GETS;
    kvcl_sel_t     sel   = {.blocks = &block, .n_blocks = 1};
    kvcl_req_h     req;
    uint64_t       from = 0;
    int            i;

    for (i = -100; (me == 1) && (i < gets); ++i) {
        from = (i == 0) ? kvcl_now_ns() : from;
        KVCL_TRY(kvcl_get(world, 0, cache, &sel, &sel, NULL, &req));
        KVCL_TRY(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
    }
    shared->value[1][0] = (double)gets * 1e9 / (double)(kvcl_now_ns() - from);
}

static void be_idle(void)
{
    double before = cpu_s();

    sleep(IDLE_S);
    shared->value[me][0] = (cpu_s() - before) / IDLE_S;
}

static int live(const void *arg, int rank)
{
    kvcl_layout_t  layout = KVCL_LAYOUT_BYTES(16, 4096);
    const size_t   bytes  = mib << 20;
    kvcl_mem_h     mem    = NULL;
    kvcl_context_h ctx;
    kvcl_cache_h   cache;
    kvcl_comm_h    world;
    kvcl_req_h     req;
    char           *heap = NULL;

    (void)arg;
    me = rank;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    KVCL_TRY(kvcl_cache_create(ctx, "kv", &layout, NULL, &cache));
    if (bytes != 0) {
        KVCL_TRY(kvcl_mem_alloc(ctx, bytes, NULL, &mem));
        memset(kvcl_mem_addr(mem), 1, bytes);
        heap = malloc(bytes / 2);
        if (heap != NULL) {
            memset(heap, 1, bytes / 2);
        }
    }
    KVCL_TRY(kvcl_barrier(world, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
    if (getenv("KVCL_VIEWS") != NULL) {
        KVCL_TRY(kvcl_on_event(ctx, on_event, NULL));
    } else {
        atomic_fetch_add(&shared->met, 1);
    }
    wait_for(&shared->met, size);
    if (is("agree")) {
        agree_often(world);
    } else if (is("gets")) {
        get_often(world, cache);
    } else if (is("idle")) {
        be_idle();
    }
    atomic_fetch_add(&shared->done, 1);
    wait_for(&shared->go, 1);
    _exit(heap == NULL ? 0 : heap[0] - 1);
}

/* ---- the parent ---- */

static void start(void)
{
    memset(shared, 0, sizeof(*shared));
    start_ranks(size, live, NULL, pids);
    wait_for(&shared->met, size);
}

static void finish(void)
{
    int rank;

    atomic_store(&shared->go, 1);
    for (rank = 0; rank < size; ++rank) {
        kill(pids[rank], SIGKILL);
        (void)rank_ends_well(pids[rank]);
    }
}

static void add(samples_t *to, double value)
{
    if (to->n < SAMPLES) {
        to->v[to->n++] = value;
    }
}

/* When each rank that lives was told this of those, in ms from then. */
static void collect(samples_t *to, int kind, unsigned of, uint64_t from)
{
    int rank, who;

    for (rank = 0; rank < size; ++rank) {
        for (who = 0; (((of >> rank) & 1) == 0) && (who < size); ++who) {
            if (((of >> who) & 1) == 0) {
                continue;
            }
            while (atomic_load(&shared->when[rank][who][kind]) == 0) {
                usleep(500);
            }
            add(to, (double)(int64_t)(atomic_load(&shared->when[rank][who][kind]) - from) / 1e6);
        }
    }
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static void report(samples_t *of, const char *name, const char *unit, const char *wanted)
{
    qsort(of->v, (size_t)of->n, sizeof(*of->v), by_value);
    if (of->n > 0) {
        printf("%-44s %9.2f %9.2f %9.2f %-8s %6d   %s\n", name, of->v[of->n / 2], of->v[(of->n - 1) * 99 / 100],
               of->v[of->n - 1], unit, of->n, wanted);
    }
    fflush(stdout);
    of->n = 0;
}

static void signal_ranks(unsigned who, int sig)
{
    int rank;

    for (rank = 0; rank < size; ++rank) {
        if ((who >> rank) & 1) {
            kill(pids[rank], sig);
        }
    }
}

/* Each round in a new job. first: killed a moment before the others, whose view they then do not see committed. */
static void kills(int rounds, unsigned first, unsigned who, const char *name, const char *wanted_view)
{
    char     line[96];
    uint64_t from;
    int      i;

    for (i = 0; i < rounds; ++i) {
        start();
        usleep(300000); /* each has its lease by now */
        signal_ranks(first, SIGKILL);
        usleep((first != 0) ? (useconds_t)(15000 + (1000 * (i % 15))) : 0); /* deaths within 20 ms go in one view */
        from = kvcl_now_ns();
        signal_ranks(who, SIGKILL);
        collect(&failed, 1, first | who, from);
        collect(&viewed, 2, first | who, from);
        finish();
    }
    snprintf(line, sizeof(line), "SIGKILL of %s to FAILED", name);
    if (first == 0) {
        report(&failed, line, "ms", "10, 50");
    }
    failed.n = 0;
    snprintf(line, sizeof(line), "SIGKILL of %s to the view", name);
    report(&viewed, line, "ms", wanted_view);
}

static void stops(int rounds)
{
    const unsigned who = 1u << (size - 1);
    uint64_t       from;
    int            i;

    for (i = 0; i < rounds; ++i) {
        start();
        usleep(300000);
        from = kvcl_now_ns();
        signal_ranks(who, SIGSTOP);
        collect(&suspected, 0, who, from);
        collect(&failed, 1, who, from);
        collect(&viewed, 2, who, from);
        finish();
    }
    report(&suspected, "SIGSTOP to SUSPECT", "ms", "400");
    report(&failed, "SIGSTOP to FAILED", "ms", "1000 to 1300");
    report(&viewed, "SIGSTOP to the view", "ms", "");
}

static void values(int rounds)
{
    int i, k, rank;

    for (i = 0; i < rounds; ++i) {
        double sum = 0;

        start();
        wait_for(&shared->done, size);
        for (rank = 0; rank < size; ++rank) {
            for (k = 0; is("agree") && (k < AGREES); ++k) {
                add(&other, shared->value[rank][k]);
            }
            sum += is("idle") ? shared->value[rank][0] * 100 : 0;
        }
        if (!is("agree")) {
            add(&other, is("idle") ? sum : shared->value[1][0]);
        }
        finish();
    }
    if (is("agree")) {
        report(&other, "agree, all ranks", "ms", "2, 5");
    } else if (is("idle")) {
        report(&other, (getenv("KVCL_VIEWS") != NULL) ? "all ranks idle, with views" : "all ranks idle, without views",
               "% core", "2 more with views");
    } else {
        report(&other, (getenv("KVCL_VIEWS") != NULL) ? "gets of 4 KiB, with views" : "gets of 4 KiB, without views",
               "a second", "1% less with views");
    }
}

int main(int argc, char **argv)
{
    const int rounds = (argc > 2) ? atoi(argv[2]) : 1;

    size   = (argc > 1) ? atoi(argv[1]) : 0;
    what   = (argc > 3) ? argv[3] : "";
    mib    = (argc > 4) ? (size_t)atoi(argv[4]) : 0;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((size < 3) || (size > RANKS_MAX) || (rounds < 1) || (shared == MAP_FAILED)) {
        fprintf(stderr, "usage: elastic RANKS ROUNDS one|zero|four|leader|stop|agree|gets|idle [MIB]\n");
        return 1;
    }
    if (is("one")) {
        kills(rounds, 0, 1u << (size - 1), (mib != 0) ? "one with memory" : "one", "p99 100");
    } else if (is("zero")) {
        kills(rounds, 0, 1u, "rank 0", "p99 100");
    } else if (is("four")) {
        kills(rounds, 0, 0xfu << (size - 4), "four at once", "p99 150");
    } else if (is("leader")) {
        kills(rounds, 1u << (size - 1), 1u, "the leader in mid-commit", "p99 200");
    } else if (is("stop")) {
        stops(rounds);
    } else {
        values(rounds);
    }
    return 0;
}
