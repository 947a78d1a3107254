/*
 * Ranks that agree and shrink while others of them are killed or stopped (kvcl_recover.h). They are forked here, and
 * write what each call returned into memory that all share, so that what the dead were told counts as well.
 *   recover RANKS [CASE]   prints "ok NAME" for each case; exit 1 if one failed. TEST_SEED repeats the kills.
 */
#include "start_ranks.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS_MAX = 16, ROUNDS = 400, LONG_S = 60 };

typedef enum { AGREE, SHRINK, LATE, MIXED } what_t;

typedef struct said {
    _Atomic int rounds; /* that it has finished */
    struct {
        uint64_t flags;
        int      status;
    } round[ROUNDS];
    _Atomic int ready, stale, shrunk, worked; /* shrunk: the size of the last communicator; worked: it did */
} said_t;

typedef struct shared {
    what_t      what;
    _Atomic int go; /* 1: end */
    said_t      said[RANKS_MAX];
} shared_t;

static shared_t *shared;
static int      size;
static pid_t    pids[RANKS_MAX];
static unsigned dead; /* bits */
static uint64_t rnd;

static unsigned below(unsigned n)
{
    rnd ^= rnd << 13;
    rnd ^= rnd >> 7;
    rnd ^= rnd << 17;
    return (unsigned)(rnd % n);
}

/* ---- a rank ---- */

static uint64_t bit_of(int rank, int round)
{
    return UINT64_C(1) << ((rank + round) % 64);
}

static void acknowledge(kvcl_comm_h comm)
{
    int n, acked;

    KVCL_TRY(kvcl_comm_get_failed(comm, NULL, 0, &n));
    KVCL_TRY(kvcl_comm_ack_failed(comm, n, &acked));
}

static void agree_on(kvcl_comm_h world, said_t *said, int rank)
{
    kvcl_status_t status;
    uint64_t      flags;
    int           i;

    for (i = 0; i < ROUNDS; ++i) {
        flags  = ~bit_of(rank, i);
        status = kvcl_comm_agree(world, &flags, LONG_S * UINT64_C(1000000000));
        if (status == KVCL_ERR_STALE) {
            atomic_store(&said->stale, 1);
            return;
        }
        if ((status != KVCL_OK) && (status != KVCL_ERR_RANK_FAILED)) {
            fprintf(stderr, "rank %d, round %d: %s\n", rank, i, kvcl_last_error());
            return;
        }
        said->round[i].flags  = flags;
        said->round[i].status = status;
        atomic_store(&said->rounds, i + 1);
        acknowledge(world);
    }
}

/* Do all say so? */
static bool all_say(kvcl_comm_h world, bool mine)
{
    uint64_t      flags  = mine ? 1 : 0;
    kvcl_status_t status = kvcl_comm_agree(world, &flags, LONG_S * UINT64_C(1000000000));

    KVCL_TRY((status == KVCL_ERR_RANK_FAILED) ? KVCL_OK : status);
    return flags == 1;
}

/* Shrinks until the new communicator works for all. */
static void shrink(kvcl_comm_h world, said_t *said)
{
    kvcl_comm_h   comm;
    kvcl_status_t status;
    uint32_t      one, sum;
    kvcl_req_h    req;
    bool          over = false;

    while (!over) {
        KVCL_TRY(kvcl_comm_shrink(world, LONG_S * UINT64_C(1000000000), &comm));
        one    = 1;
        status = kvcl_allreduce(comm, &one, &sum, 1, KVCL_DTYPE_U32, KVCL_REDUCE_SUM, NULL, &req);
        status = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
        if (status == KVCL_OK) {
            atomic_store(&said->shrunk, kvcl_comm_size(comm));
            atomic_store(&said->worked, sum == (uint32_t)kvcl_comm_size(comm));
        }
        kvcl_comm_free(comm);
        over = all_say(world, status == KVCL_OK);
    }
}

/* Rank 0's shrink ends before the others have called it; theirs succeeds. Then all have made different numbers of
 * communicators over the same ranks. */
static void shrink_late(kvcl_comm_h world, said_t *said, int rank)
{
    kvcl_comm_h   comm;
    kvcl_status_t status;

    while ((rank != 0) && (atomic_load(&shared->go) == 0)) {
        usleep(1000);
    }
    status = kvcl_comm_shrink(world, (rank == 0) ? 1000000 : LONG_S * UINT64_C(1000000000), &comm);
    said->round[0].status = status;
    atomic_store(&shared->go, 1);
    if (status == KVCL_OK) {
        kvcl_comm_free(comm);
    }
    shrink(world, said);
}

static int live(const void *arg, int rank)
{
    said_t         *said = &shared->said[rank];
    kvcl_event_t   event = KVCL_EVENT_INIT;
    kvcl_context_h ctx;
    kvcl_comm_h    world, comm = NULL;
    uint64_t       flags = 1;

    (void)arg;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    while (kvcl_event_next(ctx, &event) != KVCL_OK) { /* the first view */
        usleep(1000);
    }
    atomic_store(&said->ready, 1);
    if (shared->what == AGREE) {
        agree_on(world, said, rank);
    } else if (shared->what == SHRINK) {
        while (atomic_load(&shared->go) == 0) {
            usleep(1000);
        }
        shrink(world, said);
    } else if (shared->what == LATE) {
        shrink_late(world, said, rank);
    } else if (rank == 0) {
        said->round[0].status = kvcl_comm_shrink(world, LONG_S * UINT64_C(1000000000), &comm);
    } else {
        said->round[0].status = kvcl_comm_agree(world, &flags, LONG_S * UINT64_C(1000000000));
    }
    kvcl_finalize(ctx);
    return 0;
}

/* ---- the parent ---- */

static bool alive(int rank)
{
    return ((dead >> rank) & 1) == 0;
}

static bool start(what_t what)
{
    uint64_t end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));
    int      rank;

    memset(shared, 0, sizeof(*shared));
    shared->what = what;
    dead         = 0;
    start_ranks(size, live, NULL, pids);
    for (rank = 0; rank < size; ++rank) {
        while (atomic_load(&shared->said[rank].ready) == 0) {
            if (kvcl_now_ns() > end) {
                fprintf(stderr, "rank %d does not begin\n", rank);
                return false;
            }
            usleep(1000);
        }
    }
    return true;
}

static void kill_rank(int rank)
{
    dead |= 1u << rank;
    kill(pids[rank], SIGKILL);
}

static bool wait_for_all(void)
{
    bool right = true;
    int  rank, status;

    for (rank = 0; rank < size; ++rank) {
        if ((waitpid(pids[rank], &status, 0) != pids[rank]) ||
            (alive(rank) && (!WIFEXITED(status) || (WEXITSTATUS(status) != 0)))) {
            fprintf(stderr, "rank %d ended with wait status 0x%x\n", rank, status);
            right = false;
        }
    }
    return right;
}

/* Every rank that finished a round, also a dead one, has the same; and no bit that a survivor cleared. */
static bool is_uniform(int stopped)
{
    int  i, rank, first;
    bool right = true;

    for (i = 0; i < ROUNDS; ++i) {
        first = -1;
        for (rank = 0; rank < size; ++rank) {
            const said_t *said = &shared->said[rank];

            if (atomic_load(&((said_t *)said)->rounds) <= i) {
                right = right && (!alive(rank) || (rank == stopped));
                continue;
            }
            first = (first < 0) ? rank : first;
            right = right && (said->round[i].flags == shared->said[first].round[i].flags) &&
                    (said->round[i].status == shared->said[first].round[i].status);
        }
        for (rank = 0; rank < size; ++rank) {
            right = right && (!alive(rank) || (rank == stopped) || (first < 0) ||
                              ((shared->said[first].round[i].flags & bit_of(rank, i)) == 0));
        }
        if (!right) {
            fprintf(stderr, "round %d is not uniform, or lacks a rank\n", i);
            return false;
        }
    }
    return true;
}

static bool say(const char *name, bool right, const char *more)
{
    printf("%s %s, %d ranks%s\n", right ? "ok" : "WRONG", name, size, more);
    fflush(stdout);
    return right;
}

/* kills: how many, one after the other, each at a random time. */
static bool case_agree(const char *name, int kills)
{
    bool     right = start(AGREE);
    uint64_t from  = kvcl_now_ns();
    char     text[64];
    int      rank;

    while (right && (kills > 0)) {
        usleep(below(20000));
        rank = (int)below((unsigned)size);
        if (alive(rank)) {
            kill_rank(rank);
            --kills;
        }
    }
    right = wait_for_all() && right;
    right = is_uniform(-1) && right;
    snprintf(text, sizeof(text), ": %d rounds in %.0f ms", ROUNDS, (double)(kvcl_now_ns() - from) / 1e6);
    return say(name, right, text);
}

/* A rank is stopped until it is excluded: the others go on, and it is told. */
static bool case_stop(void)
{
    const int who   = size - 1;
    bool      right = start(AGREE);
    int       rounds;
    bool      excluded;

    kill(pids[who], SIGSTOP);
    rounds = atomic_load(&shared->said[0].rounds);
    excluded = rounds < ROUNDS - 2; /* else they may end without it */
    if (excluded) {
        while (atomic_load(&shared->said[0].rounds) < rounds + 3) {
            usleep(1000);
        }
    }
    kill(pids[who], SIGCONT);
    right = wait_for_all() && right;
    right = is_uniform(who) && right && (!excluded || (atomic_load(&shared->said[who].stale) == 1));
    return say("a rank is stopped while all agree", right, "");
}

static bool case_shrink(const char *name, unsigned who)
{
    bool right = start(SHRINK);
    int  rank, left = 0;

    for (rank = 0; rank < size; ++rank) {
        if ((who >> rank) & 1) {
            kill_rank(rank);
        } else {
            ++left;
        }
    }
    atomic_store(&shared->go, 1); /* at once: the others may not know yet */
    right = wait_for_all() && right;
    for (rank = 0; rank < size; ++rank) {
        right = right && (!alive(rank) || ((atomic_load(&shared->said[rank].shrunk) == left) &&
                                           (atomic_load(&shared->said[rank].worked) == 1)));
    }
    return say(name, right, "");
}

static bool case_late(void)
{
    bool right = start(LATE);
    int  rank;

    right = wait_for_all() && right;
    for (rank = 0; rank < size; ++rank) {
        right = right && (shared->said[rank].round[0].status == ((rank == 0) ? KVCL_ERR_TIMED_OUT : KVCL_OK)) &&
                (atomic_load(&shared->said[rank].worked) == 1);
    }
    return say("one rank's shrink ends early, and the next one of all works", right, "");
}

static bool case_mixed(void)
{
    bool right = start(MIXED);
    int  rank;

    right = wait_for_all() && right;
    for (rank = 0; rank < size; ++rank) {
        right = right && (shared->said[rank].round[0].status == KVCL_ERR_INVALID_PARAM);
    }
    return say("ranks that make different calls are told so", right, "");
}

int main(int argc, char **argv)
{
    const char *only = (argc > 2) ? argv[2] : "", *seed = getenv("TEST_SEED");
    bool       right = true;
    int        i;

    size   = (argc > 1) ? atoi(argv[1]) : 4;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((size < 2) || (size > RANKS_MAX) || (shared == MAP_FAILED)) {
        fprintf(stderr, "usage: recover RANKS [agree|stop|shrink|mixed]\n");
        return 1;
    }
    rnd = (seed != NULL) ? strtoull(seed, NULL, 0) : kvcl_now_ns();
    rnd |= 1;
    printf("TEST_SEED=%" PRIu64 "\n", rnd);
    set_views(PATIENT_MS);
#define CASE(_name) (strstr(_name, only) != NULL)
    right = (!CASE("agree") || case_agree("all agree", 0)) && right;
    for (i = 0; CASE("agree") && (i < 5); ++i) {
        right = case_agree("ranks are killed while all agree", 1 + (int)below((unsigned)size - 1)) && right;
    }
    if ((size > 2) && CASE("stop")) { /* of two, nobody has a quorum without rank 0 */
        set_views(STOPPED_MS);
        right = case_stop() && right;
        set_views(PATIENT_MS);
    }
    right = (!CASE("shrink") || case_shrink("nobody is dead, and all shrink", 0)) && right;
    right = (!CASE("shrink") || case_shrink("rank 0 dies, and the others shrink", 1u)) && right;
    right = (!CASE("shrink") || case_shrink("half die, and the others shrink", (1u << (size / 2)) - 1)) && right;
    right = (!CASE("shrink") || case_shrink("all but one die", (1u << (size - 1)) - 1)) && right;
    right = (!CASE("shrink") || case_late()) && right;
    right = (!CASE("mixed") || case_mixed()) && right;
    return right ? 0 : 1;
}
