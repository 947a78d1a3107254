/*
 * Processes that join a running job (KVCL_JOIN), while others of it are killed or stopped (procs.h).
 *   rejoin RANKS [CASE]   prints "ok NAME" for each case; exit 1 if one failed. TEST_CYCLES: kills and joins in a row.
 */
#include "port.h"
#include "process_sizes.h"
#include "procs.h"
#include "base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static bool case_rejoin(const char *name, int rank, int through)
{
    char     addresses[160], text[64];
    bool     right = start(size) && all_work();
    uint64_t from;
    int      i;

    if (right) {
        snprintf(addresses, sizeof(addresses), "%s,%s", shared->procs[rank].address, shared->procs[through].address);
        kill_rank(rank);
        from  = kvcl_now_ns();
        right = has_joined(join_at(addresses, rank));
        snprintf(text, sizeof(text), ": %.0f ms from kill to join", (double)(kvcl_now_ns() - from) / 1e6);
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
    from  = kvcl_now_ns();
    right = right && refuses(dead, NO_RANK, KVCL_ERR_UNREACHABLE);
    right = right && ((kvcl_now_ns() - from < UINT64_C(10000000000)) || fail("not by the deadline", 0));
    unsetenv("KVCL_BOOT_TIMEOUT");
    right = right && all_work();
    return finish("errors of those that join, members unharmed", right, ": ");
}

/* A rank of a full job is stopped, a process that joins at once waits for its slot, and the rank goes on. */
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
        right = has_joined(join_at(through, NO_RANK)) && (in_slot[rank] >= 0) && all_see(bits_of()) && all_work();
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

/* What a rank has sent before it is killed has arrived, and nobody has taken it when another process has its rank. */
static bool case_sent(void)
{
    bool right = start(size) && all_work();
    int  rank  = size - 1;
    char through[64];

    right = right && ((one_does(in_slot[rank], GREET, bits_of()) == KVCL_OK) || fail("it does not send: rank", rank)) &&
            all_do(BARRIER);
    if (right) {
        usleep(100000);
        kill_rank(rank);
        snprintf(through, sizeof(through), "%s", shared->procs[in_slot[0]].address);
        right = has_joined(join_at(through, rank)) && all_work();
    }
    return finish("what a killed rank has sent is not taken for its successor's", right, ": ");
}

/* Collectives on device memory of the world, before and after: the new process has had none, the others have. */
static bool case_device(void)
{
    bool right = start(size) && all_work() && all_do(DEVICE) && all_do(DEVICE);
    char through[64];
    int  rank;

    for (rank = size - 1; right && (rank >= 0); rank -= size - 1) { /* the last one, then rank 0 */
        snprintf(through, sizeof(through), "%s", shared->procs[in_slot[1]].address);
        kill_rank(rank);
        right = has_joined(join_at(through, rank)) && all_see(bits_of()) && all_do(DEVICE) && all_do(BARRIER) &&
                all_do(DEVICE) && all_do(DEVICE);
    }
    right = right && all_work();
    return finish("collectives on device memory over a joined world", right, ": ");
}

/* Descriptors of the queues that a process may leave behind (ucx_glue/glue_renew.c): eight queues of four. A rank that
 * is killed while it writes into one may cost its reader that queue. */
enum { QUEUES = 8 * 4 };

/* The files that killed processes have left there are removed. A file that is there while a process starts or ends does
 * not count. */
static bool files_vanish(const char *dir, long files, long *left_p)
{
    const uint64_t end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));

    while (((*left_p = count_files(dir) - files) > 0) && (kvcl_now_ns() < end)) {
        usleep(50000);
    }
    return (*left_p <= 0) || fail("files of killed processes are left", (int)*left_p);
}

/* As a process leaves it that is killed while it makes its queue. Mostly UCX has unlinked its file by then. */
static bool leave_file(const char *dir)
{
    char name[64];
    FILE *file;

    snprintf(name, sizeof(name), "%s/ucx_shm_posix_rejoin", dir);
    file = fopen(name, "w");
    return (file != NULL) && (fclose(file) == 0);
}

/* Kill and join again and again: nothing grows with the cycles at those that stay. UCX's files are in a folder of this
 * job's alone. */
static bool case_cycles(int cycles)
{
    long from[3], *to = shared->procs[0].sizes, shm, most = 0, left = 0;
    char text[160], through[64], dir[] = "/dev/shm/kvcl-rejoin-XXXXXX";
    bool right = (mkdtemp(dir) != NULL) && (setenv("UCX_POSIX_DIR", dir, 1) == 0) && start(size) && all_work();
    int  i, rank;

    shm   = count_files(dir);
    right = right && leave_file(dir);
    for (i = 0; right && (i < cycles); ++i) {
        rank = 1 + (i % (size - 1));
        kill_rank(rank);
        snprintf(through, sizeof(through), "%s", shared->procs[in_slot[0]].address);
        right = has_joined(join_at(through, rank)) && all_see(bits_of()) && all_do(BARRIER) && all_do(TALK);
        if (right && (i == ((cycles > 8) ? 4 : 0))) {
            right = all_do(SIZES);
            memcpy(from, to, sizeof(from));
        }
        most = (count_files(dir) > most) ? count_files(dir) : most;
        atomic_store(&shared->procs[0].n, 0); /* the list of events is short */
        atomic_store(&shared->procs[in_slot[(rank == 1) ? ((size > 2) ? 2 : 0) : 1]].n, 0);
    }
    right = right && all_do(SIZES);
    most  = (count_files(dir) > most) ? count_files(dir) : most;
    right = right && files_vanish(dir, shm, &left);
    snprintf(text, sizeof(text), ": %d cycles: +%ld KiB, +%ld descriptors, +%ld threads; files in shared memory: %ld, "
             "at most %ld, %+ld at the end ", cycles, to[0] - from[0], to[1] - from[1], to[2] - from[2], shm, most,
             left);
    right = right && ((to[0] - from[0] < 4096) || fail("memory grows: KiB", (int)(to[0] - from[0])));
    right = right && ((to[1] - from[1] < QUEUES + 8) || fail("descriptors are left", (int)(to[1] - from[1])));
    right = right && ((to[2] == from[2]) || fail("threads are left", (int)(to[2] - from[2])));
    right = finish("kill and join again and again", right, text);
    unsetenv("UCX_POSIX_DIR");
    (void)rmdir(dir); /* only if nothing is left */
    return right;
}

int main(int argc, char **argv)
{
    const char *only   = (argc > 2) ? argv[2] : "";
    const char *cycles = getenv("TEST_CYCLES");
    bool       right   = true;

    if (!open_shared((argc > 1) ? atoi(argv[1]) : 4) || (size < 3) || (size > SLOTS - 2)) {
        fprintf(stderr, "usage: rejoin RANKS [rejoin|zero|grow|errors|zombie|sent|device|cycles]\n");
        return 1;
    }
#define CASE(_name) (strstr(_name, only) != NULL)
    right = (!CASE("rejoin") || case_rejoin("a killed rank joins again, through a member that is not rank 0", size - 1,
                                            size - 2)) && right;
    right = (!CASE("zero") || case_rejoin("rank 0 is killed, and joins again", 0, size - 1)) && right;
    right = (!CASE("grow") || case_grow()) && right;
    right = (!CASE("errors") || case_errors()) && right;
    right = (!CASE("zombie") || case_zombie()) && right;
    right = (!CASE("sent") || case_sent()) && right;
    right = (!CASE("device") || case_device()) && right;
    right = (!CASE("cycles") || case_cycles((cycles != NULL) ? atoi(cycles) : 6)) && right;
    return right ? 0 : 1;
}
