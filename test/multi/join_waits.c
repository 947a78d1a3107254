/*
 * Processes that join a running job and wait until a member activates them (KVCL_JOIN_WAITS, kvcl_comm_activate,
 * kvcl_comm_sync), while others are killed (procs.h).
 *   join_waits RANKS   prints "ok NAME" for each case; exit 1 if one failed.
 */
#include "start_ranks.h" /* before the globals, whose names its parameters have */
#include "procs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <unistd.h>

/* A process waits in this slot, as each rank that is there was told. @return its number; -1: it does not. */
static int waiting(int rank)
{
    int before[SLOTS] = {0}, proc, i;

    for (i = 0; i < SLOTS; ++i) {
        before[i] = (in_slot[i] >= 0) ? times_told(in_slot[i], KVCL_EVENT_WAITING, rank) : 0;
    }
    proc = join_at(shared->procs[(in_slot[0] >= 0) ? in_slot[0] : in_slot[1]].address, rank);
    if (!wait_for(&shared->procs[proc].ready, 1) || (atomic_load(&shared->procs[proc].status) != KVCL_OK)) {
        fprintf(stderr, "process %d: %s\n", proc, shared->procs[proc].sentence);
        (void)fail("a process does not come to wait", proc);
        return -1;
    }
    for (i = 0; i < SLOTS; ++i) {
        while ((in_slot[i] >= 0) && (times_told(in_slot[i], KVCL_EVENT_WAITING, rank) == before[i])) {
            usleep(1000); /* the alarm of each process bounds it */
        }
    }
    return proc;
}

static bool is_status(int proc, what_t what, uint64_t among, kvcl_status_t status)
{
    int got = one_does(proc, what, among);

    if (got != (int)status) {
        fprintf(stderr, "process %d, task %d: %s instead of %s: %s\n", proc, (int)what,
                kvcl_status_name((kvcl_status_t)got), kvcl_status_name(status), shared->procs[proc].sentence);
        return fail("another status: process", proc);
    }
    return true;
}

/* It is no part of the job: its operations fail at once, the others' collectives go on, and no view has it. */
static bool is_quiet(int proc, int rank)
{
    return is_status(proc, TALK, bits_of(), KVCL_ERR_RANK_FAILED) && is_status(proc, AGREE, 0, KVCL_ERR_NO_QUORUM) &&
           is_status(proc, ACTIVATE, 1, KVCL_ERR_RANK_FAILED) && all_do(BARRIER) && all_do(TALK) &&
           ((times_told(in_slot[(in_slot[0] >= 0) ? 0 : 1], KVCL_EVENT_JOINED, rank) == 0) ||
            fail("a process that waits is in a view: rank", rank));
}

static bool dropped(int proc, uint64_t bits)
{
    return (shared->procs[proc].dropped == bits) || fail("other dropped ranks", (int)shared->procs[proc].dropped);
}

/* It sees that exactly these processes wait. */
static bool is_told(int proc, uint64_t waiting)
{
    return is_status(proc, WAITS, 0, KVCL_OK) &&
           ((shared->procs[proc].dropped == waiting) || fail("others wait", (int)shared->procs[proc].dropped));
}

/* This process learns that the one that waits in the slot has ended. */
static bool forgets(int proc, int slot)
{
    while (is_status(proc, WAITS, 0, KVCL_OK)) {
        if (((shared->procs[proc].dropped >> slot) & 1) == 0) {
            return true;
        }
        usleep(1000); /* the alarm of each process bounds it */
    }
    return false;
}

/* What a process leaves that is killed while UCX makes its queue; the ranks that live remove it. */
static void leave_queue(char *path, size_t cap)
{
    FILE *file;

    snprintf(path, cap, "/dev/shm/ucx_shm_posix_test%ld", (long)getpid());
    file = fopen(path, "w");
    if (file != NULL) {
        (void)futimens(fileno(file), (const struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}); /* an old one */
        fclose(file);
    }
}

static bool is_removed(const char *path)
{
    int i;

    for (i = 0; (i < LONG_S * 1000) && (access(path, F_OK) == 0); ++i) {
        usleep(1000);
    }
    return (access(path, F_OK) != 0) || fail("what a killed process left is still there", 0);
}

/* A killed rank's slot: its next process waits, is activated by another rank than the one through which it came, and
 * works with all. */
static bool case_activate(void)
{
    const int rank = size - 1, by = size - 2;
    bool      right = start(size) && all_work();
    int       proc  = -1;
    char      queue[64];

    leave_queue(queue, sizeof(queue));

    if (right) {
        right = is_status(in_slot[by], ACTIVATE, UINT64_C(1) << rank, KVCL_OK) && dropped(in_slot[by], 0);
        kill_rank(rank);
        right = right && is_status(in_slot[by], SYNC, 0, KVCL_OK) && all_see(bits_of());
        right = right && is_status(in_slot[by], ACTIVATE, UINT64_C(1) << rank, KVCL_OK) &&
                dropped(in_slot[by], UINT64_C(1) << rank);
        proc  = right ? waiting(rank) : -1;
    }
    right = (proc >= 0) && is_quiet(proc, rank) && is_told(in_slot[by], UINT64_C(1) << rank) && is_told(proc, 0);
    if (right) {
        shared->procs[proc].what  = SYNC; /* it waits for: */
        atomic_fetch_add(&shared->procs[proc].asked, 1);
        right = is_status(in_slot[by], ACTIVATE, (UINT64_C(1) << rank) | (UINT64_C(1) << by), KVCL_OK) &&
                dropped(in_slot[by], 0) && wait_for(&shared->procs[proc].done, atomic_load(&shared->procs[proc].asked));
        right = right && ((atomic_load(&shared->procs[proc].result) == KVCL_OK) || fail("kvcl_comm_sync fails", proc));
        in_slot[rank] = proc;
        right = right && dropped(proc, ~bits_of() & ((UINT64_C(1) << size) - 1)) && is_told(in_slot[by], 0) &&
                is_told(proc, 0) && all_work() && is_removed(queue);
    }
    return finish("a process waits until a member activates it", right, ": ");
}

/* Two wait; one is killed meanwhile, and the rank through which they came; the other is activated, the slot is free. */
static bool case_killed(void)
{
    bool right = start(size + 2) && all_work();
    int  a = -1, b = -1, by = 1;

    if (right) {
        a     = waiting(size);
        b     = (a >= 0) ? waiting(size + 1) : -1;
        right = (b >= 0) && is_quiet(b, size + 1) && is_told(in_slot[by], UINT64_C(3) << size);
    }
    if (right) {
        kill(pids[a], SIGKILL);
        (void)waitpid(pids[a], NULL, 0);
        pids[a] = 0;
        kill_rank(0);
        right = is_status(in_slot[by], SYNC, 0, KVCL_OK) && forgets(in_slot[by], size) &&
                is_told(in_slot[by], UINT64_C(2) << size) &&
                is_status(in_slot[by], ACTIVATE, UINT64_C(3) << size, KVCL_OK) && is_status(b, SYNC, 0, KVCL_OK);
        in_slot[size + 1] = b;
        right = right && all_see(bits_of()) && all_do(TALK) && all_do(BARRIER) && is_status(b, SYNC, 0, KVCL_OK) &&
                dropped(b, (UINT64_C(1) << size) | 1);
        a     = right ? waiting(size) : -1;
        right = (a >= 0) && is_status(b, ACTIVATE, UINT64_C(1) << size, KVCL_OK) && dropped(b, 0) &&
                is_status(a, SYNC, 0, KVCL_OK);
        in_slot[size] = a;
        right = right && all_see(bits_of()) && all_do(TALK) && all_do(BARRIER);
    }
    return finish("of two that wait one is killed, and the member that let them in", right, ": ");
}

/* The member that activates is killed at that moment: the process waits on, or is a member; another call settles it. */
static bool case_caller_killed(void)
{
    bool right = start(size + 1) && all_work();
    int  a     = right ? waiting(size) : -1;

    right = (a >= 0);
    if (right) {
        shared->procs[in_slot[1]].what  = ACTIVATE;
        shared->procs[in_slot[1]].among = UINT64_C(1) << size;
        atomic_fetch_add(&shared->procs[in_slot[1]].asked, 1);
        kill_rank(1);
        right = is_status(in_slot[2], ACTIVATE, UINT64_C(1) << size, KVCL_OK) && dropped(in_slot[2], 0) &&
                is_status(a, SYNC, 0, KVCL_OK);
        in_slot[size] = a;
        right = right && all_see(bits_of()) && all_do(TALK) && all_do(BARRIER);
    }
    return finish("the member that activates is killed meanwhile", right, ": ");
}

/* One that ends by itself while it waits leaves nothing. */
static bool case_gives_up(void)
{
    bool right = start(size + 1) && all_work();
    int  a     = right ? waiting(size) : -1;

    right = (a >= 0);
    if (right) {
        shared->procs[a].what = END;
        atomic_fetch_add(&shared->procs[a].asked, 1);
        right = (waitpid(pids[a], NULL, 0) == pids[a]);
        pids[a] = 0;
        right = right && is_status(in_slot[0], ACTIVATE, UINT64_C(1) << size, KVCL_OK) &&
                dropped(in_slot[0], UINT64_C(1) << size) && is_status(in_slot[0], SYNC, 0, KVCL_OK) && all_work();
        a     = right ? waiting(size) : -1;
        right = (a >= 0) && is_status(in_slot[0], ACTIVATE, UINT64_C(1) << size, KVCL_OK) &&
                dropped(in_slot[0], 0) && is_status(a, SYNC, 0, KVCL_OK);
        in_slot[size] = a;
        right = right && all_work();
    }
    return finish("a process that waits gives up, and another one takes the slot", right, ": ");
}

static void stop_others(int by, int proc, int sig)
{
    int i;

    for (i = 0; i < size; ++i) {
        if (i != by) {
            kill(pids[in_slot[i]], sig);
        }
    }
    kill(pids[proc], sig);
}

/* It was dropped, and asks again: as a process that waits. It may be a member all the same where another rank leads,
 * which was told of it before. */
static bool waits_again(int by, int proc, int rank, int before)
{
    while ((times_told(in_slot[by], KVCL_EVENT_WAITING, rank) == before) &&
           ((by == 0) || (times_told(in_slot[by], KVCL_EVENT_JOINED, rank) == 0))) {
        usleep(1000); /* the alarm of each process bounds it */
    }
    return ((by != 0) || is_quiet(proc, rank)) &&
           is_status(in_slot[by], ACTIVATE, UINT64_C(1) << rank, KVCL_OK) && dropped(in_slot[by], 0);
}

/* It is stopped while member `by` activates it, and so are all others, for longer than a process may be silent that
 * waits. It is a member afterwards, or was dropped, and is none until another call names it if `by` leads. */
static bool case_silent(int by)
{
    bool right;
    int  a, before;

    set_views(30000); /* the members that are stopped stay members */
    right = start(size + 1) && all_work();
    a     = right ? waiting(size) : -1;
    right = (a >= 0);
    if (right) {
        proc_t *caller = &shared->procs[in_slot[by]];

        before = times_told(in_slot[by], KVCL_EVENT_WAITING, size);
        stop_others(by, a, SIGSTOP);
        caller->what  = ACTIVATE;
        caller->among = UINT64_C(1) << size;
        atomic_fetch_add(&caller->asked, 1);
        usleep(3500000);
        stop_others(by, a, SIGCONT);
        right = wait_for(&caller->done, atomic_load(&caller->asked)) && (atomic_load(&caller->result) == KVCL_OK);
        right = (right || fail("kvcl_comm_activate fails", atomic_load(&caller->result))) &&
                ((caller->dropped == 0) || waits_again(by, a, size, before)) && is_status(a, SYNC, 0, KVCL_OK);
        in_slot[size] = a;
        right = right && all_see(bits_of()) && all_do(TALK) && all_do(BARRIER);
    }
    set_views(STOPPED_MS);
    return finish((by == 0) ? "a process that is silent while it is activated"
                            : "a process that is silent while a rank activates it that does not lead", right, ": ");
}

int main(int argc, char **argv)
{
    bool right;

    if (!open_shared((argc > 1) ? atoi(argv[1]) : 4) || (size < 3) || (size > SLOTS - 2)) {
        fprintf(stderr, "usage: join_waits RANKS\n");
        return 1;
    }
    setenv("KVCL_JOIN_WAITS", "yes", 1);
    right = case_activate();
    right = case_killed() && right;
    right = case_caller_killed() && right;
    right = case_gives_up() && right;
    right = case_silent(0) && right;
    right = case_silent(1) && right;
    return right ? 0 : 1;
}
