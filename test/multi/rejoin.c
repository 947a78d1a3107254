/*
 * Processes that join a running job (KVCL_JOIN), while others of it are killed or stopped. They are forked here, and do
 * what the parent tells them to by memory that all share.
 *   rejoin RANKS [CASE]   prints "ok NAME" for each case; exit 1 if one failed. TEST_CYCLES: kills and joins in a row.
 */
#include "process_sizes.h"
#include "start_ranks.h"

#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 8, PROCS = 512, EVENTS = 256, LONG_S = 60, NO_RANK = -1, BYTES = 300000 };

typedef enum { NOTHING, BARRIER, TALK, AGREE, SIZES, END } what_t;

/* What a process does and is told. */
typedef struct proc {
    _Atomic int   ready;  /* its kvcl_init() has returned */
    _Atomic int   status; /* what that returned */
    _Atomic int   rank;
    char          sentence[256];
    char          address[64]; /* to join at */
    _Atomic int   n;
    kvcl_event_t  events[EVENTS];
    _Atomic int   asked, done; /* the number of the last task */
    what_t        what;
    uint64_t      among;  /* bits: ranks of the task */
    _Atomic int   result; /* a status */
    long          sizes[3]; /* SIZES: KiB resident, descriptors, threads */
} proc_t;

typedef struct shared {
    proc_t procs[PROCS];
} shared_t;

static shared_t *shared;
static int      size, n_procs;
static pid_t    pids[PROCS];
static int      in_slot[SLOTS]; /* the process of each slot; -1: none */
static char     why[160];

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ((uint64_t)ts.tv_sec * 1000000000u) + (uint64_t)ts.tv_nsec;
}

/* ---- a process ---- */

static void on_event(void *arg, const kvcl_event_t *event)
{
    proc_t *proc = arg;
    int    n     = atomic_load(&proc->n);

    if (n < EVENTS) {
        proc->events[n] = *event;
        atomic_store(&proc->n, n + 1);
    }
}

/* The ranks of the task, as a communicator. */
static kvcl_status_t group(kvcl_comm_h world, uint64_t among, kvcl_comm_h *comm_p)
{
    int ranks[SLOTS], n = 0, i;

    for (i = 0; i < SLOTS; ++i) {
        if ((among >> i) & 1) {
            ranks[n++] = i;
        }
    }
    *comm_p = world;
    return (n == kvcl_comm_size(world)) ? KVCL_OK : kvcl_comm_create(world, ranks, n, comm_p);
}

static kvcl_xfer_params_t limit(void)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.timeout_ns = UINT64_C(20000000000);
    return params;
}

/* A barrier and a sum: over the world if all of its slots take part. */
static kvcl_status_t barrier(kvcl_comm_h world, uint64_t among)
{
    kvcl_xfer_params_t params = limit();
    uint64_t           mine   = UINT64_C(1) << kvcl_comm_rank(world), sum = 0;
    kvcl_comm_h        comm;
    kvcl_req_h         req;
    kvcl_status_t      status = group(world, among, &comm);

    params.timeout_ns = UINT64_C(20000000000);
    status = (status == KVCL_OK) ? kvcl_barrier(comm, &params, &req) : status;
    status = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    status = (status == KVCL_OK)
                 ? kvcl_allreduce(comm, &mine, &sum, 1, KVCL_DTYPE_U64, KVCL_REDUCE_SUM, &params, &req) : status;
    status = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    if (comm != world) {
        kvcl_comm_free(comm);
    }
    return ((status == KVCL_OK) && (sum != among)) ? KVCL_ERR_INTERNAL : status;
}

/* Sends some bytes to each other rank of the world's, and takes theirs. */
static kvcl_status_t talk(kvcl_comm_h world, uint64_t among)
{
    static unsigned char out[BYTES], in[SLOTS][BYTES];
    kvcl_xfer_params_t   params = limit();
    kvcl_req_h           reqs[2 * SLOTS];
    kvcl_status_t        status = KVCL_OK, one;
    int                  me = kvcl_comm_rank(world), i, n = 0;

    memset(out, me + 1, sizeof(out));
    memset(in, 0, sizeof(in));
    for (i = 0; (i < SLOTS) && (status == KVCL_OK); ++i) {
        if ((((among >> i) & 1) != 0) && (i != me)) {
            status = kvcl_recv_bytes(world, i, 7, in[i], BYTES, &params, &reqs[n]);
            n     += (status == KVCL_OK) ? 1 : 0;
        }
    }
    for (i = 0; (i < SLOTS) && (status == KVCL_OK); ++i) {
        if ((((among >> i) & 1) != 0) && (i != me)) {
            status = kvcl_send_bytes(world, i, 7, out, BYTES, &params, &reqs[n]);
            n     += (status == KVCL_OK) ? 1 : 0;
        }
    }
    while (n > 0) {
        one    = kvcl_req_wait(reqs[--n], KVCL_WAIT_FOREVER);
        status = (status == KVCL_OK) ? one : status;
    }
    for (i = 0; (i < SLOTS) && (status == KVCL_OK); ++i) {
        if ((((among >> i) & 1) != 0) && (i != me) && ((in[i][0] != i + 1) || (in[i][BYTES - 1] != i + 1))) {
            status = KVCL_ERR_INTERNAL;
        }
    }
    return status;
}

static kvcl_status_t do_task(kvcl_comm_h world, proc_t *proc)
{
    uint64_t      flags = ~(UINT64_C(1) << kvcl_comm_rank(world));
    kvcl_status_t status;

    switch (proc->what) {
    case BARRIER:
        return barrier(world, proc->among);
    case TALK:
        return talk(world, proc->among);
    case AGREE:
        status = kvcl_comm_agree(world, &flags, UINT64_C(20000000000));
        return (((status == KVCL_OK) || (status == KVCL_ERR_RANK_FAILED)) && (~flags != proc->among))
                   ? KVCL_ERR_INTERNAL : status;
    case SIZES:
        measure(proc->sizes);
        return KVCL_OK;
    default:
        return KVCL_OK;
    }
}

static int run(proc_t *proc)
{
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_status_t  status = kvcl_init(NULL, &ctx);
    size_t         len;
    int            asked;

    snprintf(proc->sentence, sizeof(proc->sentence), "%s", (status == KVCL_OK) ? "" : kvcl_last_error());
    if (status == KVCL_OK) {
        KVCL_TRY(kvcl_comm_world(ctx, &world));
        KVCL_TRY(kvcl_on_event(ctx, on_event, proc));
        KVCL_TRY(kvcl_join_address(ctx, proc->address, sizeof(proc->address), &len));
        atomic_store(&proc->rank, kvcl_comm_rank(world));
    }
    atomic_store(&proc->status, status);
    atomic_store(&proc->ready, 1);
    while (status == KVCL_OK) {
        asked = atomic_load(&proc->asked);
        if (asked == atomic_load(&proc->done)) {
            usleep(500);
            continue;
        }
        if (proc->what == END) {
            kvcl_finalize(ctx);
            break;
        }
        atomic_store(&proc->result, do_task(world, proc));
        if (atomic_load(&proc->result) != KVCL_OK) {
            snprintf(proc->sentence, sizeof(proc->sentence), "%s", kvcl_last_error());
        }
        atomic_store(&proc->done, asked);
    }
    return 0;
}

static int live(const void *arg, int rank)
{
    (void)arg;
    return run(&shared->procs[rank]);
}

/* ---- the parent ---- */

static bool fail(const char *what, int of)
{
    if (why[0] == '\0') {
        snprintf(why, sizeof(why), "%s (%d)", what, of);
    }
    return false;
}

static bool wait_for(_Atomic int *flag, int value)
{
    uint64_t end = now_ns() + (LONG_S * UINT64_C(1000000000));

    while (atomic_load(flag) != value) {
        if (now_ns() > end) {
            return false;
        }
        usleep(500);
    }
    return true;
}

static uint64_t bits_of(void)
{
    uint64_t bits = 0;
    int      i;

    for (i = 0; i < SLOTS; ++i) {
        bits |= (in_slot[i] >= 0) ? (UINT64_C(1) << i) : 0;
    }
    return bits;
}

/* This process's last view has exactly these ranks. */
static bool sees(int proc, uint64_t among)
{
    const proc_t *p  = &shared->procs[proc];
    int          n   = atomic_load(&((proc_t *)p)->n);
    uint64_t     end = now_ns() + (LONG_S * UINT64_C(1000000000));

    for (;;) {
        for (n = atomic_load(&((proc_t *)p)->n); (n > 0) && (p->events[n - 1].type != KVCL_EVENT_VIEW); --n) {
        }
        if ((n > 0) && (p->events[n - 1].ranks[0] == among)) {
            return true;
        }
        if (now_ns() > end) {
            return false;
        }
        usleep(500);
    }
}

static bool all_see(uint64_t among)
{
    int i;

    for (i = 0; i < SLOTS; ++i) {
        if ((in_slot[i] >= 0) && !sees(in_slot[i], among)) {
            return fail("a rank's last view is another one: rank", i);
        }
    }
    return true;
}

/* All ranks that are there do this. */
static bool all_do(what_t what)
{
    int i;

    for (i = 0; i < SLOTS; ++i) {
        if (in_slot[i] >= 0) {
            proc_t *proc = &shared->procs[in_slot[i]];

            proc->what  = what;
            proc->among = bits_of();
            atomic_fetch_add(&proc->asked, 1);
        }
    }
    for (i = 0; i < SLOTS; ++i) {
        if (in_slot[i] >= 0) {
            proc_t *proc = &shared->procs[in_slot[i]];

            if (!wait_for(&proc->done, atomic_load(&proc->asked))) {
                return fail("a rank does not end its task: rank", i);
            }
            if (atomic_load(&proc->result) != KVCL_OK) {
                fprintf(stderr, "rank %d, task %d: %s: %s\n", i, (int)what,
                        kvcl_status_name((kvcl_status_t)atomic_load(&proc->result)), proc->sentence);
                return fail("a rank's task fails: rank", i);
            }
        }
    }
    return true;
}

static bool all_work(void)
{
    return all_see(bits_of()) && all_do(TALK) && all_do(BARRIER) && all_do(TALK) && all_do(BARRIER) && all_do(AGREE);
}

static bool start(int slots)
{
    char text[16];
    int  i;

    memset(shared, 0, sizeof(*shared));
    snprintf(text, sizeof(text), "%d", slots);
    setenv("KVCL_SLOTS", text, 1);
    why[0] = '\0';
    n_procs = size;
    start_ranks(size, live, NULL, pids);
    for (i = 0; i < SLOTS; ++i) {
        in_slot[i] = (i < size) ? i : -1;
    }
    for (i = 0; i < size; ++i) {
        if (!wait_for(&shared->procs[i].ready, 1) || (atomic_load(&shared->procs[i].status) != KVCL_OK)) {
            return fail(shared->procs[i].sentence, i);
        }
    }
    return all_see(bits_of());
}

/* @return the number of a process that joins through these addresses, as this rank. */
static int join_at(const char *addresses, int rank)
{
    char  text[16];
    pid_t pid = fork();
    int   n   = n_procs++;

    if (pid == 0) {
        snprintf(text, sizeof(text), "%d", rank);
        setenv("KVCL_RANK", text, 1);
        setenv("KVCL_JOIN", addresses, 1);
        alarm(RANK_LIVES_S);
        _exit(run(&shared->procs[n]));
    }
    pids[n] = pid;
    return n;
}

/* It has joined, and everything works with it. */
static bool has_joined(int proc)
{
    proc_t *p = &shared->procs[proc];

    if (!wait_for(&p->ready, 1) || (atomic_load(&p->status) != KVCL_OK)) {
        fprintf(stderr, "process %d: %s\n", proc, p->sentence);
        return fail("a process does not join", proc);
    }
    if ((atomic_load(&p->rank) < 0) || (in_slot[atomic_load(&p->rank)] >= 0)) {
        return fail("a process has another's slot", atomic_load(&p->rank));
    }
    in_slot[atomic_load(&p->rank)] = proc;
    return true;
}

static void kill_rank(int rank)
{
    kill(pids[in_slot[rank]], SIGKILL);
    (void)waitpid(pids[in_slot[rank]], NULL, 0);
    pids[in_slot[rank]] = 0;
    in_slot[rank]       = -1;
}

/* Each survivor was told of the joining before the view with it, and of a failure before the view without it. */
static bool in_order(int proc, int rank)
{
    const proc_t *p = &shared->procs[proc];
    int          i, n = atomic_load(&((proc_t *)p)->n), there = 1;

    for (i = 0; i < n; ++i) {
        if (p->events[i].type == KVCL_EVENT_FAILED) {
            there = kvcl_event_has(&p->events[i], rank) ? 0 : there;
        } else if (p->events[i].type == KVCL_EVENT_JOINED) {
            there = kvcl_event_has(&p->events[i], rank) ? 1 : there;
        } else if ((p->events[i].type == KVCL_EVENT_VIEW) && (kvcl_event_has(&p->events[i], rank) != there)) {
            return fail("events in another order: process", proc);
        }
    }
    return true;
}

static bool finish(const char *name, bool right, const char *times)
{
    int i, status;

    for (i = 0; i < n_procs; ++i) {
        if (pids[i] <= 0) {
            continue;
        }
        shared->procs[i].what = END;
        atomic_fetch_add(&shared->procs[i].asked, 1);
        if (!right) {
            kill(pids[i], SIGKILL);
        }
    }
    for (i = 0; i < n_procs; ++i) {
        if ((pids[i] > 0) && ((waitpid(pids[i], &status, 0) != pids[i]) || !WIFEXITED(status) ||
                              (WEXITSTATUS(status) != 0)) && right) {
            right = fail("a process ends badly", i);
        }
    }
    printf("%s %s, %d ranks%s%s\n", right ? "ok" : "WRONG", name, size, times, right ? "" : why);
    fflush(stdout);
    return right;
}

static bool case_rejoin(const char *name, int rank, int through)
{
    char     addresses[160], text[64];
    bool     right = start(size) && all_work();
    uint64_t from;
    int      i;

    if (right) {
        snprintf(addresses, sizeof(addresses), "%s,%s", shared->procs[rank].address, shared->procs[through].address);
        kill_rank(rank);
        from  = now_ns();
        right = has_joined(join_at(addresses, rank));
        snprintf(text, sizeof(text), ": %.0f ms from kill to join", (double)(now_ns() - from) / 1e6);
        right = right && (in_slot[rank] >= 0) && all_work();
    }
    for (i = 0; right && (i < size); ++i) {
        right = (i == rank) || in_order(i, rank);
    }
    return finish(name, right, right ? text : ": ");
}

/* Two processes join a job at once, through different members; slots are free, but one, then none. */
static bool case_grow(void)
{
    bool right = start(size + 2) && all_work();
    int  a, b;

    if (right) {
        a     = join_at(shared->procs[0].address, NO_RANK);
        b     = join_at(shared->procs[1].address, NO_RANK);
        right = has_joined(a) && has_joined(b) && all_work();
    }
    if (right) {
        a     = join_at(shared->procs[0].address, NO_RANK);
        right = wait_for(&shared->procs[a].ready, 1) && (atomic_load(&shared->procs[a].status) == KVCL_ERR_NO_SPACE);
        right = (right || fail("a full job", atomic_load(&shared->procs[a].status))) && all_work();
    }
    return finish("two join in free slots, and a third finds none", right, ": ");
}

static bool refuses(const char *addresses, int rank, kvcl_status_t status)
{
    int n = join_at(addresses, rank);

    if (!wait_for(&shared->procs[n].ready, 1) || (atomic_load(&shared->procs[n].status) != status) ||
        (shared->procs[n].sentence[0] == '\0')) {
        fprintf(stderr, "instead of %s: %s: %s\n", kvcl_status_name(status),
                kvcl_status_name((kvcl_status_t)atomic_load(&shared->procs[n].status)), shared->procs[n].sentence);
        return fail("another answer", n);
    }
    return true;
}

static bool case_errors(void)
{
    const char *secret = getenv("KVCL_SECRET_FILE");
    char       other[272], keep[256], dead[64];
    bool       right = start(size + 1);
    uint64_t   from;

    snprintf(keep, sizeof(keep), "%s", (secret != NULL) ? secret : "");
    snprintf(other, sizeof(other), "%s.other", keep);
    right = right && refuses(shared->procs[0].address, 1, KVCL_ERR_BUSY);
    right = right && refuses(shared->procs[0].address, SLOTS + 100, KVCL_ERR_UNKNOWN_RANK);
    right = right && refuses("127.0.0.1", NO_RANK, KVCL_ERR_INVALID_PARAM);
    setenv("KVCL_SECRET_FILE", other, 1);
    right = right && refuses(shared->procs[0].address, NO_RANK, KVCL_ERR_AUTH);
    setenv("KVCL_SECRET_FILE", keep, 1);
    snprintf(dead, sizeof(dead), "127.0.0.1:%d,127.0.0.1:%d", next_port(), next_port());
    setenv("KVCL_BOOT_TIMEOUT", "1500ms", 1);
    from  = now_ns();
    right = right && refuses(dead, NO_RANK, KVCL_ERR_UNREACHABLE);
    right = right && ((now_ns() - from < UINT64_C(10000000000)) || fail("not by the deadline", 0));
    unsetenv("KVCL_BOOT_TIMEOUT");
    right = right && all_work();
    return finish("errors of those that join, members unharmed", right, ": ");
}

/* A rank is stopped, another process takes its slot, and it goes on. */
static bool case_zombie(void)
{
    bool right  = start(size) && all_work();
    int  rank   = size - 1, zombie = in_slot[rank], i;
    bool stale  = false;
    char through[64];

    if (right) {
        kill(pids[zombie], SIGSTOP);
        in_slot[rank] = -1;
        snprintf(through, sizeof(through), "%s", shared->procs[0].address);
        right = all_see(bits_of()) && has_joined(join_at(through, rank)) && all_work();
        shared->procs[zombie].what  = TALK;
        shared->procs[zombie].among = bits_of();
        atomic_fetch_add(&shared->procs[zombie].asked, 1);
        kill(pids[zombie], SIGCONT);
        right = right && (wait_for(&shared->procs[zombie].done, atomic_load(&shared->procs[zombie].asked)) ||
                          fail("the excluded does not end its task", zombie));
        shared->procs[zombie].among = bits_of(); /* once more, when it surely knows */
        for (i = 0; right && !stale && (i < 2000); ++i) {
            atomic_fetch_add(&shared->procs[zombie].asked, 1);
            right = wait_for(&shared->procs[zombie].done, atomic_load(&shared->procs[zombie].asked)) ||
                    fail("the excluded does not end its task", zombie);
            stale = (atomic_load(&shared->procs[zombie].result) == KVCL_ERR_STALE);
            usleep(5000);
        }
        right = right && (stale || fail("the excluded is not fenced", atomic_load(&shared->procs[zombie].result)));
        right = right && all_work();
    }
    return finish("a stopped rank whose slot another process has is fenced", right, ": ");
}

/* Kill and join again and again: nothing grows at those that stay. */
static bool case_cycles(int cycles)
{
    long from[3], *to = shared->procs[0].sizes, shm;
    bool right = start(size) && all_work();
    char text[128], through[64];
    int  i, rank;

    shm = 0;
    for (i = 0; right && (i < cycles); ++i) {
        rank = 1 + (i % (size - 1));
        kill_rank(rank);
        snprintf(through, sizeof(through), "%s", shared->procs[in_slot[0]].address);
        right = has_joined(join_at(through, rank)) && all_see(bits_of()) && all_do(BARRIER) && all_do(TALK);
        if (right && (i == ((cycles > 8) ? 4 : 0))) {
            right = all_do(SIZES);
            memcpy(from, to, sizeof(from));
            shm = count_files("/dev/shm");
        }
        atomic_store(&shared->procs[0].n, 0); /* the list of events is short */
        atomic_store(&shared->procs[in_slot[(rank == 1) ? ((size > 2) ? 2 : 0) : 1]].n, 0);
    }
    right = right && all_do(SIZES);
    snprintf(text, sizeof(text), ": %d cycles: +%ld KiB, +%ld descriptors, +%ld threads, +%ld files in /dev/shm ",
             cycles, to[0] - from[0], to[1] - from[1], to[2] - from[2], count_files("/dev/shm") - shm);
    right = right && ((to[0] - from[0] < 4096) || fail("memory grows: KiB", (int)(to[0] - from[0])));
    right = right && ((to[1] - from[1] < 8) || fail("descriptors are left", (int)(to[1] - from[1])));
    right = right && ((to[2] == from[2]) || fail("threads are left", (int)(to[2] - from[2])));
    return finish("kill and join again and again", right, text);
}

int main(int argc, char **argv)
{
    const char *only   = (argc > 2) ? argv[2] : "";
    const char *cycles = getenv("TEST_CYCLES");
    bool       right   = true;

    size   = (argc > 1) ? atoi(argv[1]) : 4;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((size < 3) || (size > SLOTS - 2) || (shared == MAP_FAILED)) {
        fprintf(stderr, "usage: rejoin RANKS [rejoin|zero|grow|errors|zombie|cycles]\n");
        return 1;
    }
    setenv("KVCL_VIEWS", "yes", 0);
    setenv("KVCL_JOIN_AT", "127.0.0.1:0", 0);
#define CASE(_name) (strstr(_name, only) != NULL)
    right = (!CASE("rejoin") || case_rejoin("a killed rank joins again, through a member that is not rank 0", size - 1,
                                            size - 2)) && right;
    right = (!CASE("zero") || case_rejoin("rank 0 is killed, and joins again", 0, size - 1)) && right;
    right = (!CASE("grow") || case_grow()) && right;
    right = (!CASE("errors") || case_errors()) && right;
    right = (!CASE("zombie") || case_zombie()) && right;
    right = (!CASE("cycles") || case_cycles((cycles != NULL) ? atoi(cycles) : 6)) && right;
    return right ? 0 : 1;
}
