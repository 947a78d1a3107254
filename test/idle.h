/*
 * Detects whether processes are idle: an event to wait for, instead of an amount of processor time in a fixed period. A
 * process that spins never has three successive windows below a tenth of a core, whatever its share of the machine. A
 * process that sleeps has them soon, whatever the load.
 */
#ifndef KVCL_TEST_IDLE_H
#define KVCL_TEST_IDLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum { IDLE_WINDOW_NS = 20000000, IDLE_WINDOWS = 3, IDLE_DEADLINE_S = 60, IDLE_PIDS_MAX = 16 };

static inline uint64_t idle_ns_of(clockid_t clock)
{
    struct timespec ts = {0};

    (void)clock_gettime(clock, &ts);
    return ((uint64_t)ts.tv_sec * 1000000000u) + (uint64_t)ts.tv_nsec;
}

static inline uint64_t idle_spent(const clockid_t *clocks, int n)
{
    uint64_t sum = 0;
    int      i;

    for (i = 0; i < n; ++i) {
        sum += idle_ns_of(clocks[i]);
    }
    return sum;
}

/** @return whether these processes (0: this one), at most IDLE_PIDS_MAX, with all of their threads, become idle within
 * IDLE_DEADLINE_S. */
static inline bool falls_idle(const pid_t *pids, int n)
{
    const struct timespec window = {0, IDLE_WINDOW_NS};
    clockid_t             clocks[IDLE_PIDS_MAX];
    uint64_t              end = idle_ns_of(CLOCK_MONOTONIC) + (IDLE_DEADLINE_S * 1000000000ull), began, spent;
    int                   i, quiet = 0;

    for (i = 0; i < n; ++i) {
        if ((i >= IDLE_PIDS_MAX) || (clock_getcpuclockid(pids[i], &clocks[i]) != 0)) {
            return false;
        }
    }
    while ((quiet < IDLE_WINDOWS) && (idle_ns_of(CLOCK_MONOTONIC) < end)) {
        began = idle_ns_of(CLOCK_MONOTONIC);
        spent = idle_spent(clocks, n);
        nanosleep(&window, NULL);
        spent = idle_spent(clocks, n) - spent;
        quiet = (spent * 10 < idle_ns_of(CLOCK_MONOTONIC) - began) ? quiet + 1 : 0;
    }
    return quiet == IDLE_WINDOWS;
}

#endif
