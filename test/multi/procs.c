/*
 * Processes of a job that may be killed and may join (procs.h).
 */
#include "start_ranks.h" /* before the globals, whose names its parameters have */
#include "process_sizes.h"
#include "hole.h"
#include "procs.h"
#include "base/clock.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

shared_t *shared;
int      size, n_procs;
pid_t    pids[PROCS];
int      in_slot[SLOTS];

enum { BYTES = 300000 };
static char     why[160];

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

/* Sums over the world: of longer ones each rank reduces a part. */
static kvcl_status_t sum_on_device(kvcl_comm_h world, uint64_t among)
{
    static uint64_t    mine[4096], sum[4096];
    const size_t       counts[] = {1, 4096};
    kvcl_xfer_params_t params   = limit();
    kvcl_status_t      status   = KVCL_OK;
    kvcl_req_h         req;
    unsigned           i, at;

    params.flags = KVCL_ON_DEVICE;
    for (i = 0; (i < 2) && (status == KVCL_OK); ++i) {
        for (at = 0; at < counts[i]; ++at) {
            mine[at] = UINT64_C(1) << kvcl_comm_rank(world);
        }
        status = kvcl_allreduce(world, mine, sum, counts[i], KVCL_DTYPE_U64, KVCL_REDUCE_SUM, &params, &req);
        status = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
        for (at = 0; (at < counts[i]) && (status == KVCL_OK); ++at) {
            status = (sum[at] == among) ? KVCL_OK : KVCL_ERR_INTERNAL;
        }
    }
    return status;
}

/* Sends some bytes to each other rank of the world's, and takes theirs. No notification is there (GREET). */
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
    if ((status == KVCL_OK) && (kvcl_notify_recv(world, in[me], BYTES, NULL, 0) != KVCL_ERR_WAIT_TIMEOUT)) {
        status = KVCL_ERR_INTERNAL;
    }
    return status;
}

static kvcl_status_t greet(kvcl_comm_h world, uint64_t among)
{
    static const unsigned char word[8]; /* in no rank's TALK */
    kvcl_xfer_params_t         params = limit();
    kvcl_status_t              status = KVCL_OK;
    int                        i;

    for (i = 0; (i < SLOTS) && (status == KVCL_OK); ++i) {
        if ((((among >> i) & 1) != 0) && (i != kvcl_comm_rank(world))) {
            status = kvcl_send_bytes(world, i, 7, word, sizeof(word), &params, NULL);
            status = (status == KVCL_OK) ? kvcl_notify(world, i, word, sizeof(word), &params, NULL) : status;
        }
    }
    return status;
}

/* The view is to have these ranks; or what is pending is awaited. */
static kvcl_status_t change(kvcl_comm_h world, proc_t *proc)
{
    kvcl_view_change_result_t result = KVCL_VIEW_CHANGE_RESULT_INIT;
    int                       ranks[SLOTS], n = 0, i;
    kvcl_status_t             status;

    for (i = 0; i < SLOTS; ++i) {
        if ((proc->among >> i) & 1) {
            ranks[n++] = i;
        }
    }
    status = (proc->what == SYNC) ? kvcl_comm_sync(world, UINT64_C(20000000000), &result)
                                  : kvcl_comm_activate(world, ranks, n, UINT64_C(20000000000), &result);
    proc->dropped = result.dropped[0];
    return ((status == KVCL_OK) && ((result.view != kvcl_comm_view(world)) || (result.view_id == 0)))
               ? KVCL_ERR_INTERNAL : status;
}

/* What the calls of a program say that takes no events. */
static kvcl_status_t see_waiting(kvcl_comm_h world, proc_t *proc)
{
    unsigned char waiting[SLOTS] = {0};
    kvcl_status_t status = kvcl_comm_waiting(world, waiting, kvcl_comm_size(world));
    int           i;

    for (i = 0, proc->dropped = 0; i < SLOTS; ++i) {
        proc->dropped |= (uint64_t)waiting[i] << i;
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
    case GREET:
        return greet(world, proc->among);
    case AGREE:
        status = kvcl_comm_agree(world, &flags, UINT64_C(20000000000));
        return (((status == KVCL_OK) || (status == KVCL_ERR_RANK_FAILED)) && (~flags != proc->among))
                   ? KVCL_ERR_INTERNAL : status;
    case DEVICE:
        return sum_on_device(world, proc->among);
    case ACTIVATE:
    case SYNC:
        return change(world, proc);
    case WAITS:
        return see_waiting(world, proc);
    case HOLE:
        return (make_holes() > 0) ? KVCL_OK : KVCL_ERR_NOT_FOUND;
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

bool fail(const char *what, int of)
{
    if (why[0] == '\0') {
        snprintf(why, sizeof(why), "%s (%d)", what, of);
    }
    return false;
}

bool wait_for(_Atomic int *flag, int value)
{
    uint64_t end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));

    while (atomic_load(flag) != value) {
        if (kvcl_now_ns() > end) {
            return false;
        }
        usleep(500);
    }
    return true;
}

uint64_t bits_of(void)
{
    uint64_t bits = 0;
    int      i;

    for (i = 0; i < SLOTS; ++i) {
        bits |= (in_slot[i] >= 0) ? (UINT64_C(1) << i) : 0;
    }
    return bits;
}

bool sees(int proc, uint64_t among)
{
    const proc_t *p  = &shared->procs[proc];
    int          n   = atomic_load(&((proc_t *)p)->n);
    uint64_t     end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));

    for (;;) {
        for (n = atomic_load(&((proc_t *)p)->n); (n > 0) && (p->events[n - 1].type != KVCL_EVENT_VIEW); --n) {
        }
        if ((n > 0) && (p->events[n - 1].ranks[0] == among)) {
            return true;
        }
        if (kvcl_now_ns() > end) {
            return false;
        }
        usleep(500);
    }
}

int times_told(int proc, int type, int rank)
{
    proc_t *p = &shared->procs[proc];
    int    n  = 0, i;

    for (i = 0; i < atomic_load(&p->n); ++i) {
        n += ((p->events[i].type == type) && kvcl_event_has(&p->events[i], rank)) ? 1 : 0;
    }
    return n;
}

bool all_see(uint64_t among)
{
    int i;

    for (i = 0; i < SLOTS; ++i) {
        if ((in_slot[i] >= 0) && !sees(in_slot[i], among)) {
            return fail("a rank's last view is another one: rank", i);
        }
    }
    return true;
}

bool all_do(what_t what)
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

int one_does(int proc, what_t what, uint64_t among)
{
    proc_t *p = &shared->procs[proc];

    p->what  = what;
    p->among = among;
    atomic_fetch_add(&p->asked, 1);
    return wait_for(&p->done, atomic_load(&p->asked)) ? atomic_load(&p->result) : KVCL_ERR_TIMED_OUT;
}

bool all_work(void)
{
    return all_see(bits_of()) && all_do(TALK) && all_do(BARRIER) && all_do(TALK) && all_do(BARRIER) && all_do(AGREE);
}

bool start(int slots)
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

int join_at(const char *addresses, int rank)
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

bool has_joined(int proc)
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

void kill_rank(int rank)
{
    kill(pids[in_slot[rank]], SIGKILL);
    (void)waitpid(pids[in_slot[rank]], NULL, 0);
    pids[in_slot[rank]] = 0;
    in_slot[rank]       = -1;
}

bool end_all(bool right)
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
        pids[i] = 0;
    }
    return right;
}

bool finish(const char *name, bool right, const char *times)
{
    right = end_all(right);
    printf("%s %s, %d ranks%s%s\n", right ? "ok" : "WRONG", name, size, times, right ? "" : why);
    fflush(stdout);
    return right;
}

bool open_shared(int ranks)
{
    size   = ranks;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    set_views(STOPPED_MS); /* a rank that goes, or that nobody has met, is waited for so long */
    setenv("KVCL_JOIN_AT", "127.0.0.1:0", 0);
    return shared != MAP_FAILED;
}
