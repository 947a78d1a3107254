/*
 * Kills in the middle of joining: of the process that joins, of the member through which it joins, of the leader
 * (procs.h). The others go on, the slot is free again, and the process joins by another member or gets an error. Over
 * shared memory also beside a rank that is deaf, as a kill may leave it.
 *   join_kills RANKS   prints "ok NAME" for each case; exit 1 if one failed. TEST_SEED; TEST_KILLS: of each case.
 */
#include "procs.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed, dice;
static int      kills = 5;

/* xorshift64 */
static uint64_t below(uint64_t n)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return dice % n;
}

/* Up to about as long as joining takes on an idle machine, in steps that grow: the first moments are short. */
static void wait_a_moment(void)
{
    usleep((useconds_t)below((uint64_t)1 << (6 + below(12)))); /* any moment is right: nothing is waited for */
}

/* What all that live can do without a slot that is free or whose process has not begun. */
static bool go_on(void)
{
    return all_do(TALK) && all_do(BARRIER);
}

/* It has ended with an error that a process which joins may get. */
static bool failed_rightly(int proc)
{
    const int status = atomic_load(&shared->procs[proc].status);

    if ((status != KVCL_ERR_UNREACHABLE) && (status != KVCL_ERR_TIMED_OUT) && (status != KVCL_ERR_BUSY) &&
        (status != KVCL_ERR_NO_SPACE) && (status != KVCL_ERR_RANK_FAILED)) {
        fprintf(stderr, "process %d: %s\n", proc, shared->procs[proc].sentence);
        return fail("a process that joins gets another error", status);
    }
    return (shared->procs[proc].sentence[0] != '\0') || fail("an error without a sentence", proc);
}

static void reap(int proc)
{
    kill(pids[proc], SIGKILL);
    (void)waitpid(pids[proc], NULL, 0);
    pids[proc] = 0;
}

/* The process that joins is killed; the next one gets its slot, by its number or without one. */
static bool case_joiner(void)
{
    bool right = start(size + 1) && all_work();
    int  i, proc, whom;

    for (i = 0; right && (i < kills); ++i) {
        whom = (int)below((uint64_t)size);
        proc = join_at(shared->procs[in_slot[whom]].address, (below(2) == 0) ? size : NO_RANK);
        wait_a_moment();
        reap(proc);
        right = go_on();
        if (right && (i % 2 != 0)) {
            proc  = join_at(shared->procs[in_slot[whom]].address, (below(2) == 0) ? size : NO_RANK);
            right = has_joined(proc) && all_work();
            if (right) {
                kill_rank(size);
                right = all_see(bits_of()) && go_on();
            }
        }
    }
    right = right && all_see(bits_of());
    return finish("processes that join are killed meanwhile", right, ": ");
}

/* The member that it has asked first is killed: a rank, or the leader. */
static bool case_member(const char *name, bool leader)
{
    char addresses[2 * sizeof(shared->procs[0].address)];
    bool right = true;
    int  i, proc, whom, other;

    for (i = 0; right && (i < kills); ++i) {
        right = start(size + 1) && all_do(TALK);
        whom  = leader ? 0 : 1 + (int)below((uint64_t)size - 1);
        other = (whom == 1) ? 2 : 1;
        if (!right) {
            break;
        }
        snprintf(addresses, sizeof(addresses), "%s,%s", shared->procs[in_slot[whom]].address,
                 shared->procs[in_slot[other]].address);
        proc = join_at(addresses, (below(2) == 0) ? size : NO_RANK);
        wait_a_moment();
        kill_rank(whom);
        right = wait_for(&shared->procs[proc].ready, 1) || fail("a process neither joins nor fails", proc);
        if (right && (atomic_load(&shared->procs[proc].status) != KVCL_OK)) {
            right = failed_rightly(proc);
        } else {
            right = right && has_joined(proc);
        }
        right = right && all_see(bits_of()) && go_on();
        if (i + 1 < kills) {
            right = end_all(right) && right;
        }
    }
    return finish(name, right, ": ");
}

/* What a kill may leave: a rank that is deaf. A process that joins is given its address before it has another queue. */
static bool case_deaf(void)
{
    bool right = start(size + 1) && all_do(TALK);
    int  proc;

    right = right && ((one_does(in_slot[size - 1], HOLE, 0) == KVCL_OK) || fail("no queue is found", size - 1));
    if (right) {
        proc  = join_at(shared->procs[in_slot[1]].address, NO_RANK);
        right = has_joined(proc) && all_work();
    }
    return finish("a process joins beside a rank that is deaf", right, ": ");
}

int main(int argc, char **argv)
{
    const char *text = getenv("TEST_SEED"), *n = getenv("TEST_KILLS");
    const char *path = getenv("KVCL_PATH");
    bool       right;

    if (!open_shared((argc > 1) ? atoi(argv[1]) : 4) || (size < 3) || (size > SLOTS - 2)) {
        fprintf(stderr, "usage: join_kills RANKS\n");
        return 1;
    }
    kills = (n != NULL) ? atoi(n) : kills;
    seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    dice  = (seed * UINT64_C(0x9e3779b97f4a7c15)) | 1;
    printf("seed %llu\n", (unsigned long long)seed);
    right = case_joiner();
    right = case_member("the member that lets a process in is killed meanwhile", false) && right;
    right = case_member("the leader is killed while a process joins", true) && right;
    if ((path == NULL) || (strcmp(path, "tcp") != 0)) {
        right = case_deaf() && right;
    }
    return right ? 0 : 1;
}
