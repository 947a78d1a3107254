/*
 * Ranks that are killed, stopped or leave, while the others agree on who is a member (kvcl_view.h). They are forked
 * here, since mpirun would end them all. Each writes what it is told into memory that all share.
 *   views RANKS [CASE]   prints "ok NAME" for each case, with the slowest times; exit 1 if one failed
 */
#include "start_ranks.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS_MAX = 16, EVENTS = 64, LONG_S = 60 };
enum { SILENT_MS = 4000, BLOCKS_MS = 6000 }; /* a rank's silence that is death, and how long a callback blocks */

typedef struct told {
    _Atomic int  n;
    kvcl_event_t events[EVENTS];
    _Atomic int  ready;  /* it has met the others */
    _Atomic int  wrong;  /* kvcl_comm_active() and its events differ */
    _Atomic int  put;    /* status of its last send to rank 0 or 1; 1: none ended yet */
    _Atomic int  blocks; /* its callback: 0: it returns at once, 1: it blocks the next time, 2: it does, 3: it did */
} told_t;

typedef struct shared {
    _Atomic int go;    /* 0: on, 1: the leaver leaves, 2: all leave */
    int         leaver;
    told_t      told[RANKS_MAX];
} shared_t;

static shared_t *shared;
static int      size;
static pid_t    pids[RANKS_MAX];
static unsigned dead; /* bits */

/* ---- a rank ---- */

static void on_event(void *arg, const kvcl_event_t *event)
{
    told_t *told = arg;
    int    n     = atomic_load(&told->n);

    if (n < EVENTS) {
        told->events[n] = *event;
        atomic_store(&told->n, n + 1);
    }
    if (atomic_load(&told->blocks) == 1) {
        atomic_store(&told->blocks, 2);
        usleep(BLOCKS_MS * 1000u);
        atomic_store(&told->blocks, 3);
    }
}

/* Odd ranks take events from the queue, even ones by a callback. */
static void take_events(kvcl_context_h ctx, told_t *told)
{
    kvcl_event_t  event = KVCL_EVENT_INIT;
    kvcl_status_t status;

    while ((status = kvcl_event_next(ctx, &event)) == KVCL_OK) {
        on_event(told, &event);
    }
    KVCL_TRY((status == KVCL_INPROGRESS) ? KVCL_OK : status);
}

static void talk(kvcl_comm_h world, told_t *told, int rank)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;

    params.timeout_ns = 100000000;
    status = kvcl_notify(world, (rank == 0) ? 1 : 0, "x", 1, &params, &req);
    status = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    atomic_store(&told->put, status);
}

/* The last view that it was told of is older than what it knows, or the same. */
static void look(kvcl_comm_h world, told_t *told)
{
    int           n = atomic_load(&told->n), i;
    unsigned char active[RANKS_MAX];
    uint64_t      view;

    KVCL_TRY(kvcl_comm_active(world, active, size, &view));
    while ((n > 0) && (told->events[n - 1].type != KVCL_EVENT_VIEW)) {
        --n;
    }
    for (i = 0; (n > 0) && (told->events[n - 1].view == view) && (i < size); ++i) {
        if ((active[i] != 0) != (kvcl_event_has(&told->events[n - 1], i) != 0)) {
            atomic_store(&told->wrong, 1);
        }
    }
    if ((n > 0) && (told->events[n - 1].view > kvcl_comm_view(world))) {
        atomic_store(&told->wrong, 1);
    }
}

static void live_on(kvcl_context_h ctx, kvcl_comm_h world, told_t *told, int rank)
{
    struct pollfd fd = {.events = POLLIN};
    char          byte;
    int           go;

    KVCL_TRY(kvcl_event_fd(ctx, &fd.fd));
    while (((go = atomic_load(&shared->go)) == 0) || ((go == 1) && (rank != shared->leaver))) {
        if (rank % 2 != 0) {
            (void)poll(&fd, 1, 20);
            take_events(ctx, told);
        } else {
            usleep(20000);
        }
        if ((atomic_load(&told->blocks) == 1) || (atomic_load(&told->blocks) == 2)) {
            continue; /* no call of the program makes progress for the callback that blocks */
        }
        talk(world, told, rank);
        look(world, told);
        while (kvcl_notify_recv(world, &byte, 1, NULL, 0) == KVCL_OK) {
        }
    }
}

static int live(const void *arg, int rank)
{
    told_t         *told = &shared->told[rank];
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_req_h     req;

    (void)arg;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    if (rank % 2 == 0) {
        KVCL_TRY(kvcl_on_event(ctx, on_event, told));
    }
    KVCL_TRY(kvcl_barrier(world, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
    atomic_store(&told->ready, 1);
    live_on(ctx, world, told, rank);
    kvcl_finalize(ctx);
    return 0;
}

/* ---- the parent ---- */

static bool alive(int rank)
{
    return ((dead >> rank) & 1) == 0;
}

/* When this rank was told this of that one, with or without it (VIEW); 0: it was not. */
static uint64_t when(int rank, int type, int of, bool with)
{
    const told_t *told = &shared->told[rank];
    int          n     = atomic_load(&((told_t *)told)->n), i;

    for (i = 0; i < n; ++i) {
        if ((told->events[i].type == type) && ((kvcl_event_has(&told->events[i], of) != 0) == with)) {
            return told->events[i].time_ns;
        }
    }
    return 0;
}

/* All living ranks but one are told this of that rank. @return the slowest, in ms from then; -1: not in time. */
static double all_told(int type, int of, bool with, int but, uint64_t from_ns)
{
    uint64_t last = from_ns, at = 0, end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));
    int      rank;

    for (rank = 0; rank < size; ++rank) {
        while (alive(rank) && (rank != but) && ((at = when(rank, type, of, with)) == 0)) {
            if (kvcl_now_ns() > end) {
                fprintf(stderr, "rank %d was not told event %d of rank %d\n", rank, type, of);
                return -1;
            }
            usleep(2000);
        }
        if (alive(rank) && (rank != but) && (at > last)) {
            last = at;
        }
    }
    return (double)(last - from_ns) / 1e6;
}

static void kill_rank(int rank)
{
    dead |= 1u << rank;
    kill(pids[rank], SIGKILL);
}

/* Failed before the view without it, once; all living ranks have the same views. */
static bool consistent(void)
{
    uint64_t ids[EVENTS] = {0};
    bool     right       = true;
    int      rank, i, r, failed[RANKS_MAX];

    for (rank = 0; rank < size; ++rank) {
        const told_t *told = &shared->told[rank];

        memset(failed, 0, sizeof(failed));
        right = right && (atomic_load(&((told_t *)told)->wrong) == 0);
        for (i = 0; alive(rank) && (i < atomic_load(&((told_t *)told)->n)); ++i) {
            const kvcl_event_t *event = &told->events[i];

            for (r = 0; r < size; ++r) {
                failed[r] += (event->type == KVCL_EVENT_FAILED) && kvcl_event_has(event, r);
                right = right && (failed[r] <= 1);
                right = right && ((event->type != KVCL_EVENT_VIEW) || kvcl_event_has(event, r) || (failed[r] == 1));
            }
            if ((event->type == KVCL_EVENT_VIEW) && (event->view < EVENTS)) {
                right = right && ((ids[event->view] == 0) || (ids[event->view] == event->view_id));
                ids[event->view] = event->view_id;
            }
        }
    }
    return right;
}

static bool start(void)
{
    uint64_t end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));
    int      rank;

    memset(shared, 0, sizeof(*shared));
    dead = 0;
    for (rank = 0; rank < size; ++rank) {
        atomic_store(&shared->told[rank].put, 1);
    }
    start_ranks(size, live, NULL, pids);
    for (rank = 0; rank < size; ++rank) {
        while ((atomic_load(&shared->told[rank].ready) == 0) || (when(rank, KVCL_EVENT_VIEW, 0, true) == 0)) {
            if (kvcl_now_ns() > end) {
                fprintf(stderr, "rank %d does not begin\n", rank);
                return false;
            }
            usleep(1000);
        }
    }
    return true;
}

static bool finish(const char *name, bool right, const char *times)
{
    int rank, status;

    right = consistent() && right;
    atomic_store(&shared->go, 2);
    for (rank = 0; rank < size; ++rank) {
        if (pids[rank] < 0) {
            continue; /* it was waited for */
        }
        kill(pids[rank], SIGCONT);
        if ((waitpid(pids[rank], &status, 0) != pids[rank]) ||
            (alive(rank) && (!WIFEXITED(status) || (WEXITSTATUS(status) != 0)))) {
            fprintf(stderr, "%s: rank %d ended with wait status 0x%x\n", name, rank, status);
            right = false;
        }
    }
    printf("%s %s, %d ranks%s\n", right ? "ok" : "WRONG", name, size, times);
    fflush(stdout);
    return right;
}

/* These ranks are killed at once. */
static bool case_kill(const char *name, unsigned who)
{
    bool     right = start();
    uint64_t from;
    double   failed = 0, viewed = 0, ms;
    char     text[96];
    int      rank;

    from = kvcl_now_ns();
    for (rank = 0; right && (rank < size); ++rank) {
        if ((who >> rank) & 1) {
            kill_rank(rank);
        }
    }
    for (rank = 0; right && (rank < size); ++rank) {
        if ((who >> rank) & 1) {
            ms     = all_told(KVCL_EVENT_FAILED, rank, true, -1, from);
            failed = (ms > failed) ? ms : failed;
            right  = right && (ms >= 0);
            ms     = all_told(KVCL_EVENT_VIEW, rank, false, -1, from);
            viewed = (ms > viewed) ? ms : viewed;
            right  = right && (ms >= 0);
        }
    }
    snprintf(text, sizeof(text), ": failed after %.1f ms, the view after %.1f ms", failed, viewed);
    return finish(name, right, text);
}

/* A rank is stopped until it is suspected. */
static bool case_pause(void)
{
    const int who = size - 1;
    bool      right = start();
    uint64_t  from  = kvcl_now_ns();
    double    ms;
    char      text[96];

    kill(pids[who], SIGSTOP);
    ms = all_told(KVCL_EVENT_SUSPECT, who, true, who, from);
    kill(pids[who], SIGCONT);
    right = right && (ms >= 0) && (all_told(KVCL_EVENT_ALIVE_AGAIN, who, true, who, from) >= 0);
    right = right && (when(0, KVCL_EVENT_FAILED, who, true) == 0) && (when(0, KVCL_EVENT_VIEW, who, false) == 0);
    snprintf(text, sizeof(text), ": suspected after %.1f ms", ms);
    return finish("a rank that stops for a moment is suspected, and stays", right, text);
}

/* How many ranks were told that another one had died, and how many that one but this may have. */
static void count_told(int but, int *deaths_p, int *suspicions_p)
{
    int rank, of;

    *deaths_p = *suspicions_p = 0;
    for (rank = 0; rank < size; ++rank) {
        for (of = 0; of < size; ++of) {
            *deaths_p     += (when(rank, KVCL_EVENT_FAILED, of, true) != 0) ||
                             (when(rank, KVCL_EVENT_VIEW, of, false) != 0) ||
                             (when(rank, KVCL_EVENT_EXCLUDED, of, true) != 0);
            *suspicions_p += (of != but) && (when(rank, KVCL_EVENT_SUSPECT, of, true) != 0);
        }
    }
}

/* A rank is suspected, and the callbacks that are told so block for longer than a rank may be silent. */
static bool case_callback(void)
{
    const int who = 1;
    uint64_t  from, end;
    bool      right;
    int       deaths, suspicions, rank;
    char      text[128];

    set_views(SILENT_MS);
    setenv("KVCL_SUSPECT", "2s", 1);
    right = start();
    unsetenv("KVCL_SUSPECT");
    for (rank = 0; rank < size; rank += 2) {
        atomic_store(&shared->told[rank].blocks, 1);
    }
    usleep(100000); /* calls that they are in have ended */
    from = kvcl_now_ns();
    end  = from + (LONG_S * UINT64_C(1000000000));
    kill(pids[who], SIGSTOP);
    right = right && (all_told(KVCL_EVENT_SUSPECT, who, true, who, from) >= 0);
    kill(pids[who], SIGCONT);
    for (rank = 0; right && (rank < size); rank += 2) {
        while (right && (atomic_load(&shared->told[rank].blocks) != 3)) {
            right = kvcl_now_ns() < end;
            usleep(2000);
        }
    }
    usleep(500000); /* what each has made of the others' silence is told now */
    count_told(who, &deaths, &suspicions);
    snprintf(text, sizeof(text), ": blocked for %d ms, dead after %d: %d deaths, %d suspicions", BLOCKS_MS, SILENT_MS,
             deaths, suspicions);
    return finish("a callback that blocks delays no beat", right && (deaths == 0) && (suspicions == 0), text);
}

/* A rank is stopped until the others have excluded it, and goes on. */
static bool case_stop(int who, useconds_t longer_us)
{
    uint64_t from, end;
    bool     right = start();
    double   failed, viewed;
    char     text[96];

    from = kvcl_now_ns();
    kill(pids[who], SIGSTOP);
    failed = all_told(KVCL_EVENT_FAILED, who, true, who, from);
    viewed = all_told(KVCL_EVENT_VIEW, who, false, who, from);
    right  = right && (failed >= 0) && (viewed >= 0);
    usleep(longer_us);
    kill(pids[who], SIGCONT);
    end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));
    while (right && ((when(who, KVCL_EVENT_EXCLUDED, who, true) == 0) ||
                     (atomic_load(&shared->told[who].put) != KVCL_ERR_STALE))) {
        if (kvcl_now_ns() > end) {
            fprintf(stderr, "rank %d is not told that it was excluded; it sends with %s\n", who,
                    kvcl_status_name((kvcl_status_t)atomic_load(&shared->told[who].put)));
            right = false;
        }
        usleep(2000);
    }
    snprintf(text, sizeof(text), ": failed after %.0f ms, the view after %.0f ms", failed, viewed);
    return finish((who == 0) ? "rank 0 stops, is excluded, and is fenced" : "a rank stops, is excluded, and is fenced",
                  right, text);
}

/* A stopped rank is killed by another one, which proves its end. */
static bool case_fence(void)
{
    const int who = size - 1;
    uint64_t  from;
    bool      right;
    int       status;

    setenv("KVCL_FENCE", "kill", 1);
    right = start();
    unsetenv("KVCL_FENCE");
    from = kvcl_now_ns();
    kill(pids[who], SIGSTOP);
    right = right && (waitpid(pids[who], &status, 0) == pids[who]) && WIFSIGNALED(status) &&
            (WTERMSIG(status) == SIGKILL);
    dead |= 1u << who;
    pids[who] = -1;
    right = right && (all_told(KVCL_EVENT_FAILED, who, true, who, from) >= 0) &&
            (all_told(KVCL_EVENT_VIEW, who, false, who, from) >= 0);
    return finish("a silent rank is killed (KVCL_FENCE)", right, "");
}

static bool case_leave(void)
{
    uint64_t from;
    bool     right = start();

    from           = kvcl_now_ns();
    shared->leaver = size - 1;
    atomic_store(&shared->go, 1);
    right = right && (all_told(KVCL_EVENT_FAILED, size - 1, true, size - 1, from) >= 0) &&
            (all_told(KVCL_EVENT_VIEW, size - 1, false, size - 1, from) >= 0);
    return finish("a rank leaves", right, "");
}

int main(int argc, char **argv)
{
    const char *only = (argc > 2) ? argv[2] : "";
    bool       right = true;

    size   = (argc > 1) ? atoi(argv[1]) : 4;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((size < 2) || (size > RANKS_MAX) || (shared == MAP_FAILED)) {
        fprintf(stderr, "usage: views RANKS [kill|zero|half|most|pause|callback|stop|fence|leave]\n");
        return 1;
    }
    set_views(PATIENT_MS);
#define CASE(_name) (strstr(_name, only) != NULL)
    right = (!CASE("kill") || case_kill("one is killed", 1u << (size - 1))) && right;
    right = (!CASE("zero") || case_kill("rank 0 is killed", 1u)) && right;
    right = (!CASE("half") || case_kill("half are killed at once", (1u << (size / 2)) - 1)) && right;
    right = (!CASE("most") || case_kill("all but one are killed at once", (1u << (size - 1)) - 1)) && right;
    right = (!CASE("pause") || case_pause()) && right;
    right = (!CASE("callback") || case_callback()) && right;
    set_views(STOPPED_MS);
    if (size > 2) { /* of two, nobody has a quorum without rank 0 */
        right = (!CASE("stop") || case_stop(size - 1, 500000)) && right;
        right = (!CASE("stop") || case_stop(0, 3000000)) && right;
    }
    right = (!CASE("fence") || case_fence()) && right;
    set_views(PATIENT_MS);
    right = (!CASE("leave") || case_leave()) && right;
    return right ? 0 : 1;
}
