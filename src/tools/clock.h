/*
 * The clocks of the tools: monotonic time and this process's CPU time, in nanoseconds.
 */
#ifndef KVCL_TOOLS_CLOCK_H
#define KVCL_TOOLS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return ((uint64_t)now.tv_sec * 1000000000u) + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

/* All threads of this process. */
static inline uint64_t clock_cpu_ns(void)
{
    return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
