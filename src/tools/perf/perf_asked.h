/*
 * Which ratio is asked of a measurement with --floor, and beside what (perf_asked.c).
 */
#ifndef KVCL_TOOLS_PERF_PERF_ASKED_H
#define KVCL_TOOLS_PERF_PERF_ASKED_H

#include <stdbool.h>
#include <stdint.h>

typedef enum perf_beside_what {
    PERF_BESIDE_UCX,
    PERF_BESIDE_FRAMES,
    PERF_BESIDE_MEMCPY,
    PERF_BESIDE_MEMCPY2
} perf_beside_what_t;

typedef struct perf_asked {
    perf_beside_what_t beside;
    double             ratio; /* of median times, the other's by KVCL's, at least; 0: nothing is asked */
} perf_asked_t;

/* run: bytes of a run, on average; bytes: of one iteration. */
perf_asked_t perf_asked(const char *test, bool mapped, bool bound, uint64_t run, uint64_t bytes);
const char  *perf_beside_name(perf_beside_what_t what);

#endif
