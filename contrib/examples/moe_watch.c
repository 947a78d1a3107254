/*
 * Lines about the ranks of moe.c (moe_watch.h). Owns: what the line before has shown.
 */
#include "moe_watch.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((uint64_t)t.tv_sec * UINT64_C(1000000000)) + (uint64_t)t.tv_nsec;
}

/* A line of what all ranks have done since the one before it. */
static void print_line(const shared_t *shared, unsigned ranks)
{
    static uint64_t tokens, lost;
    uint64_t        all = 0, lacking = 0, wrong = 0;
    const shown_t   *first = &shared->ranks[0];
    unsigned        r;

    for (r = 0; r < ranks; ++r) {
        all     += atomic_load(&shared->ranks[r].tokens);
        lacking += atomic_load(&shared->ranks[r].lost_ppm);
        wrong   += atomic_load(&shared->ranks[r].wrong);
        first    = (atomic_load(&shared->ranks[r].steps) > atomic_load(&first->steps)) ? &shared->ranks[r] : first;
    }
    printf("step %6llu  view %llu  alive %llu of %u  %6llu tokens/s  lost %.4f of a token's weight  wrong %llu\n",
           (unsigned long long)atomic_load(&first->steps), (unsigned long long)atomic_load(&first->view),
           (unsigned long long)atomic_load(&first->alive),
           (unsigned)atomic_load(&first->ranks), (unsigned long long)(all - tokens),
           (all > tokens) ? (double)(lacking - lost) / 1e6 / (double)(all - tokens) : 0.0, (unsigned long long)wrong);
    fflush(stdout);
    tokens = all;
    lost   = lacking;
}

void print_end(const shared_t *shared, const plan_t *plan)
{
    const uint64_t killed = atomic_load(&shared->killed_ns);
    uint64_t       next = 0, restored = 0, tokens = 0, wrong = 0, lacking = 0;
    unsigned       r;

    for (r = 0; r < plan->ranks; ++r) {
        const shown_t *shown = &shared->ranks[r];

        next     = (atomic_load(&shown->next_ns) > next) ? atomic_load(&shown->next_ns) : next;
        restored = (atomic_load(&shown->restored_ns) > restored) ? atomic_load(&shown->restored_ns) : restored;
        tokens  += atomic_load(&shown->tokens);
        lacking += atomic_load(&shown->lost_ppm);
        wrong   += atomic_load(&shown->wrong);
    }
    if (killed != 0) {
        printf("rank %d was killed in a step: the next dispatch and combine of all others ended %.1f ms later, %llu "
               "experts were restored and active after %.1f ms\n", plan->kill, (double)(next - killed) / 1e6,
               (unsigned long long)atomic_load(&shared->ranks[(plan->kill == 0) ? 1 : 0].restored),
               (double)(restored - killed) / 1e6);
    }
    printf("%llu tokens, the weight of %.2f was lost, wrong %llu\n", (unsigned long long)tokens, (double)lacking / 1e6,
           (unsigned long long)wrong);
}

/* Where processes may join through these ranks. */
static void print_addresses(const shared_t *shared, unsigned ranks, const bool *ended)
{
    const char *comma = "";
    unsigned   r;

    for (r = 0; r < ranks; ++r) {
        if (!ended[r] && (atomic_load(&shared->ranks[r].has_address) != 0)) {
            printf("%s%s", comma, shared->ranks[r].address);
            comma = ",";
        }
    }
    printf("\n");
    fflush(stdout);
}

/* A process has ended. @return whether that is a failure. */
static bool has_ended(const pid_t *pids, const plan_t *plan, const shared_t *shared, pid_t pid, int status, bool *ended)
{
    unsigned r;

    for (r = 0; (r < plan->ranks) && (pids[r] != pid); ++r) {
    }
    if (r == plan->ranks) {
        return false; /* no rank */
    }
    ended[r] = true;
    if (!WIFSIGNALED(status)) {
        return WEXITSTATUS(status) != 0;
    }
    if (plan->join != NULL) {
        printf("pid %d was killed\n", (int)pid);
    } else if (plan->steps == 0) {
        printf("rank %u, pid %d, was killed; to bring it back: moe --join ", r, (int)pid);
        print_addresses(shared, plan->ranks, ended);
    }
    return WTERMSIG(status) != SIGKILL;
}

int watch(const pid_t *pids, const plan_t *plan, shared_t *shared)
{
    const struct timespec nap = {0, 20000000};
    bool                  ended[RANKS_MAX] = {false}, told = (plan->steps != 0);
    uint64_t              line_ns = now_ns();
    unsigned              left = plan->ranks, bad = 0, r;
    pid_t                 pid;
    int                   status;

    while (left > 0) {
        pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0) {
            bad  += has_ended(pids, plan, shared, pid, status, ended) ? 1 : 0;
            left -= 1;
            continue;
        }
        nanosleep(&nap, NULL);
        for (r = 0; (r < plan->ranks) && (atomic_load(&shared->ranks[r].has_address) != 0); ++r) {
        }
        if (!told && (r == plan->ranks)) {
            printf("processes may join at ");
            print_addresses(shared, plan->ranks, ended);
            told = true;
        }
        if ((plan->steps == 0) && (now_ns() - line_ns >= UINT64_C(1000000000))) {
            line_ns += UINT64_C(1000000000);
            print_line(shared, plan->ranks);
        }
    }
    return (int)bad;
}
