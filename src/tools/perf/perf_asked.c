/*
 * The ratios that KVCL asks of itself (contrib/doc/results), as a table, and the row for one measurement. Pure.
 *
 * A list is large from 16 MiB on. "bound": each rank may use one core only; otherwise a second thread may copy too, and
 * the ratio is to a memcpy by two threads.
 */
#include "config.h"
#include "tools/perf/perf_asked.h"

#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define ANY UINT64_MAX

typedef struct row {
    const char   *test;
    bool         mapped;   /* otherwise served over TCP */
    uint64_t     run_max;   /* bytes; the first row whose run_max is not exceeded counts */
    uint64_t     bytes_min;
    perf_asked_t bound;    /* ratio 0: nothing is asked */
    perf_asked_t free;
} row_t;

static const row_t rows[] = {
    {"get", true, 2 * KIB - 1, 16 * MIB, {PERF_BESIDE_MEMCPY, 1.6}, {PERF_BESIDE_MEMCPY2, 1.7}},
    {"get", true, 16 * KIB - 1, 16 * MIB, {PERF_BESIDE_MEMCPY, 1.5}, {PERF_BESIDE_MEMCPY2, 1.5}},
    {"get", true, MIB, 16 * MIB, {PERF_BESIDE_MEMCPY, 1.6}, {PERF_BESIDE_MEMCPY2, 1.6}},
    {"get", true, ANY, 256 * MIB, {PERF_BESIDE_MEMCPY, 1.0}, {PERF_BESIDE_MEMCPY2, 0.95}},
    {"get", true, ANY, 64 * KIB, {PERF_BESIDE_UCX, 0.95}, {PERF_BESIDE_UCX, 0.95}},
    {"get", false, 2 * KIB - 1, 16 * MIB, {PERF_BESIDE_FRAMES, 1.0}, {PERF_BESIDE_FRAMES, 1.0}},
    {"get", false, MIB, 16 * MIB, {PERF_BESIDE_FRAMES, 1.25}, {PERF_BESIDE_FRAMES, 1.25}},
    {"get", false, ANY, 256 * MIB, {PERF_BESIDE_FRAMES, 1.1}, {PERF_BESIDE_FRAMES, 1.1}},
    {"get", false, ANY, 64 * KIB, {PERF_BESIDE_UCX, 0.9}, {PERF_BESIDE_UCX, 0.9}},
    {"store-get", true, 16 * KIB - 1, 4 * MIB, {PERF_BESIDE_MEMCPY, 1.2}, {PERF_BESIDE_MEMCPY, 0}},
    {"store-get", true, ANY, 32 * MIB, {PERF_BESIDE_MEMCPY, 1.4}, {PERF_BESIDE_MEMCPY, 0}},
};

perf_asked_t perf_asked(const char *test, bool mapped, bool bound, uint64_t run, uint64_t bytes)
{
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        if ((strcmp(rows[i].test, test) == 0) && (rows[i].mapped == mapped) && (run <= rows[i].run_max) &&
            (bytes >= rows[i].bytes_min)) {
            return bound ? rows[i].bound : rows[i].free;
        }
    }
    return (perf_asked_t){PERF_BESIDE_UCX, 0};
}

const char *perf_beside_name(perf_beside_what_t what)
{
    static const char *const names[] = {"raw UCX", "raw frames", "memcpy", "memcpy by two threads"};

    return names[what];
}
