/*
 * Measures the ways to copy (calibrate.h).
 *
 * Each measurement copies 2 MiB in pieces of one length, sources and destinations in orders of their own. Both are
 * flushed from the caches before, since a large transfer finds few of its bytes there. The ways alternate, and the best
 * measurement of each counts. Owns its memory for the length of the call. No locks.
 */
#include "config.h"
#include "weave/calibrate.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { AREA = 8 << 20, PART = 2 << 20, ROUNDS = 3, BATCH = 64, PAGE = 4096, DST_STRIDE = 997, SRC_STRIDE = 389 };

static const uint64_t BUDGET_NS = 11000000; /* no round begins later: a round takes 6 ms at 7 GB/s */

static uint64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return ((uint64_t)t.tv_sec * 1000000000u) + (uint64_t)t.tv_nsec;
}

/* Each piece is a stride behind the one before, modulo the number of pieces, which is a power of two. */
static size_t list(kvcl_weave_piece_t *pieces, char *dst, const char *src, size_t bytes)
{
    size_t n = PART / bytes, i;

    for (i = 0; i < n; ++i) {
        pieces[i] = (kvcl_weave_piece_t){dst + (((i * DST_STRIDE) % n) * bytes),
                                         src + (((i * SRC_STRIDE) % n) * bytes), bytes};
    }
    return n;
}

/* @return MB/s. */
static uint32_t speed(unsigned way, const kvcl_weave_kernel_t *kernel, const kvcl_weave_piece_t *pieces, size_t n)
{
    uint64_t begin = cpu_ns(), ns, mbps;
    size_t   i;

    for (i = 0; i < n; i += BATCH) {
        kvcl_copy_by(way, kernel, pieces + i, (n - i < BATCH) ? n - i : BATCH);
    }
    kernel->end();
    ns   = cpu_ns() - begin;
    mbps = ((uint64_t)PART * 1000) / ((ns > 0) ? ns : 1);
    return (mbps == 0) ? 1 : ((mbps > KVCL_COPY_MBPS_MAX) ? KVCL_COPY_MBPS_MAX : (uint32_t)mbps);
}

static void measure(const kvcl_weave_kernel_t *kernel, char *area, kvcl_weave_piece_t *pieces, kvcl_copy_table_t *table)
{
    uint64_t begin = cpu_ns();
    size_t   at = 0, i, n;
    unsigned round, row, way;
    uint32_t mbps;

    for (i = 0; i < 2 * AREA; i += PAGE) {
        area[i] = 1;
    }
    for (round = 0; (round < ROUNDS) && ((round == 0) || (cpu_ns() - begin < BUDGET_NS)); ++round) {
        for (i = 0; i < KVCL_COPY_ROWS * KVCL_COPY_N_WAYS; ++i) {
            row = (unsigned)(i / KVCL_COPY_N_WAYS);
            way = (unsigned)(i % KVCL_COPY_N_WAYS);
            n   = list(pieces, area + AREA + at, area + at, kvcl_copy_row_bytes[row]);
            kernel->flush(area + at, PART);
            kernel->flush(area + AREA + at, PART);
            mbps                  = speed(way, kernel, pieces, n);
            table->mbps[row][way] = (mbps > table->mbps[row][way]) ? mbps : table->mbps[row][way];
            at                    = (at + PART) % AREA;
        }
    }
    table->when_s = (int64_t)time(NULL);
}

bool kvcl_copy_calibrate(const kvcl_weave_kernel_t *kernel, kvcl_copy_table_t *table)
{
    kvcl_copy_table_t  measured = {.when_s = 0};
    kvcl_weave_piece_t *pieces;
    void               *area;

    if (kernel->flush == NULL) {
        return false;
    }
    area = mmap(NULL, 2 * AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) {
        return false;
    }
    pieces = malloc((PART / kvcl_copy_row_bytes[0]) * sizeof(*pieces));
    if (pieces != NULL) {
        (void)madvise(area, 2 * AREA, MADV_HUGEPAGE);
        measure(kernel, (char *)area, pieces, &measured);
        *table = measured;
    }
    free(pieces);
    (void)munmap(area, 2 * AREA);
    return pieces != NULL;
}
