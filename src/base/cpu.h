/*
 * How many cores this process may really use, and the pause of a spin loop. No state, no lock.
 */
#ifndef KVCL_BASE_CPU_H
#define KVCL_BASE_CPU_H

/**
 * Cores usable now: the affinity mask, cut by the cgroup's CPU quota (v2 cpu.max or v1 cfs quota,
 * rounded up). At least 1. Reads files: call it at start-up, not in a loop.
 */
int kvcl_online_cores(void);

static inline void kvcl_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#else
    __asm__ __volatile__("" ::: "memory");
#endif
}

#endif
