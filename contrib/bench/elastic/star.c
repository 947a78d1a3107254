/*
 * The floor of kvcl_comm_agree on a busy machine: processes that wake each other in the same shape, without KVCL. All
 * tell the first one, it tells all, and both once more (give, accept, accepted, decided), by eventfd.
 *   star PROCESSES JOBS [LEADER_US OTHERS_US]   prints a line as elastic.c does (run beside this)
 * After each wake-up the first process computes for LEADER_US microseconds of processor time, the others for
 * OTHERS_US: by default not at all. A process that needs more than its share of a busy processor waits for it.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16, JOBS_MOST = 100, ROUNDS = 400, TURNS = 2, LIVES_S = 300 };

typedef struct shared {
    _Atomic int ready;
    double      ms[JOBS_MOST * MOST * ROUNDS];
} shared_t;

static shared_t *shared;
static int      size, to_first, to_other[MOST];
static double   leader_us, others_us;

static double now_us(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return ((double)ts.tv_sec * 1e6) + ((double)ts.tv_nsec / 1e3);
}

static void tell(int fd)
{
    const uint64_t one = 1;

    if (write(fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) {
        _exit(1);
    }
}

static void hear(int fd, double us)
{
    uint64_t word;
    double   until;

    if (read(fd, &word, sizeof(word)) != (ssize_t)sizeof(word)) {
        _exit(1);
    }
    until = now_us(CLOCK_THREAD_CPUTIME_ID) + us;
    while ((us > 0) && (now_us(CLOCK_THREAD_CPUTIME_ID) < until)) {
    }
}

static void live(int me, double *ms)
{
    int round, turn, i;

    alarm(LIVES_S);
    shared->ready += 1;
    while (shared->ready < size) {
        usleep(200);
    }
    for (round = 0; round < ROUNDS; ++round) {
        double from = now_us(CLOCK_MONOTONIC);
        for (turn = 0; turn < TURNS; ++turn) {
            if (me != 0) {
                tell(to_first);
                hear(to_other[me], others_us);
                continue;
            }
            for (i = 1; i < size; ++i) {
                hear(to_first, leader_us);
            }
            for (i = 1; i < size; ++i) {
                tell(to_other[i]);
            }
        }
        ms[round] = (now_us(CLOCK_MONOTONIC) - from) / 1e3;
    }
}

static int by_value(const void *one, const void *other)
{
    const double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    const int jobs = (argc > 2) ? atoi(argv[2]) : 1;
    int       job, i, n;

    size      = (argc > 1) ? atoi(argv[1]) : 0;
    leader_us = (argc > 4) ? atof(argv[3]) : 0;
    others_us = (argc > 4) ? atof(argv[4]) : 0;
    shared    = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    to_first  = eventfd(0, EFD_SEMAPHORE);
    if ((size < 2) || (size > MOST) || (jobs < 1) || (jobs > JOBS_MOST) || (shared == MAP_FAILED) || (to_first < 0)) {
        fprintf(stderr, "usage: star PROCESSES JOBS [LEADER_US OTHERS_US]\n");
        return 1;
    }
    for (i = 0; i < size; ++i) {
        to_other[i] = eventfd(0, EFD_SEMAPHORE);
    }
    for (job = 0; job < jobs; ++job) {
        shared->ready = 0;
        for (i = 0; i < size; ++i) {
            const pid_t pid = fork();
            if (pid == 0) {
                live(i, &shared->ms[((job * size) + i) * ROUNDS]);
                _exit(0);
            }
            if (pid < 0) {
                perror("fork");
                return 1; /* those already started end by their alarm */
            }
        }
        while (wait(NULL) > 0) {
        }
    }
    n = jobs * size * ROUNDS;
    qsort(shared->ms, (size_t)n, sizeof(shared->ms[0]), by_value);
    printf("%-44s %9.2f %9.2f %9.2f %-8s %6d   %s\n",
           (leader_us > 0) ? "a star of eventfds that computes as agree" : "a star of eventfds", shared->ms[n / 2],
           shared->ms[(int)((double)n * 0.99)], shared->ms[n - 1], "ms", n, "");
    return 0;
}
