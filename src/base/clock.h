/*
 * Monotonic time in nanoseconds and deadlines. A deadline is an absolute kvcl_now_ns() value;
 * KVCL_DEADLINE_NONE is never reached. No state, no lock.
 */
#ifndef KVCL_BASE_CLOCK_H
#define KVCL_BASE_CLOCK_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

#define KVCL_NS_PER_US     UINT64_C(1000)
#define KVCL_NS_PER_MS     UINT64_C(1000000)
#define KVCL_NS_PER_SEC    UINT64_C(1000000000)
#define KVCL_DEADLINE_NONE UINT64_MAX

static inline uint64_t kvcl_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * KVCL_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* The deadline timeout_ns after now_ns; saturates at KVCL_DEADLINE_NONE. */
static inline uint64_t kvcl_deadline_add(uint64_t now_ns, uint64_t timeout_ns)
{
    return (timeout_ns > UINT64_MAX - now_ns) ? KVCL_DEADLINE_NONE : now_ns + timeout_ns;
}

static inline uint64_t kvcl_deadline_after(uint64_t timeout_ns)
{
    return kvcl_deadline_add(kvcl_now_ns(), timeout_ns);
}

static inline int kvcl_deadline_passed(uint64_t deadline_ns)
{
    return (deadline_ns != KVCL_DEADLINE_NONE) && (kvcl_now_ns() >= deadline_ns);
}

/* What is left until the deadline; 0 when it passed, UINT64_MAX for "never". */
static inline uint64_t kvcl_deadline_left(uint64_t deadline_ns)
{
    uint64_t now_ns;

    if (deadline_ns == KVCL_DEADLINE_NONE) {
        return UINT64_MAX;
    }
    now_ns = kvcl_now_ns();
    return (now_ns >= deadline_ns) ? 0 : deadline_ns - now_ns;
}

/* The remaining time for poll(2): rounded up to milliseconds, -1 for "never". */
static inline int kvcl_deadline_poll_ms(uint64_t deadline_ns)
{
    uint64_t left_ns = kvcl_deadline_left(deadline_ns);

    if (left_ns == UINT64_MAX) {
        return -1;
    }
    if (left_ns / KVCL_NS_PER_MS >= INT_MAX) {
        return INT_MAX;
    }
    return (int)((left_ns + KVCL_NS_PER_MS - 1) / KVCL_NS_PER_MS);
}

#endif
