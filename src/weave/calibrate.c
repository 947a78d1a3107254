/*
 * Measures the ways to copy (calibrate.h).
 *
 * Each measurement copies 2 MiB in pieces of one length, sources and destinations in orders of their own. Both are
 * flushed from the caches before, since a large transfer finds few of its bytes there. The ways alternate, and the best
 * measurement of each counts. The second part finds which transfers are large: whole transfers of pieces of 4 KiB are
 * copied and then read, as by a receiver that uses the bytes at once. Owns its memory for the length of the call. No
 * locks.
 */
#include "config.h"
#include "weave/calibrate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { AREA = 8 << 20, PART = 2 << 20, ROUNDS = 3, BATCH = 64, PAGE = 4096, DST_STRIDE = 997, SRC_STRIDE = 389 };

static const uint64_t BUDGET_NS       = 8000000;  /* no round begins later: a round takes 6 ms at 7 GB/s */
static const uint64_t LARGE_BUDGET_NS = 15000000; /* as well, of the second part: 4 ms */

static uint64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return ((uint64_t)t.tv_sec * 1000000000u) + (uint64_t)t.tv_nsec;
}

/* Each piece is a stride behind the one before, modulo the number of pieces, which is a power of two. */
static size_t list(kvcl_weave_piece_t *pieces, char *dst, const char *src, size_t total, size_t bytes)
{
    size_t n = total / bytes, i;

    for (i = 0; i < n; ++i) {
        pieces[i] = (kvcl_weave_piece_t){dst + (((i * DST_STRIDE) % n) * bytes),
                                         src + (((i * SRC_STRIDE) % n) * bytes), bytes};
    }
    return n;
}

static void copy(unsigned way, const kvcl_weave_kernel_t *kernel, const kvcl_weave_piece_t *pieces, size_t n)
{
    size_t i;

    for (i = 0; i < n; i += BATCH) {
        kvcl_copy_by(way, kernel, pieces + i, (n - i < BATCH) ? n - i : BATCH);
    }
    kernel->end();
}

/* Into *most_p, the highest so far: MB/s of what began at this time and ends now. */
static void keep(uint32_t *most_p, size_t bytes, uint64_t begin)
{
    uint64_t ns   = cpu_ns() - begin;
    uint64_t mbps = ((uint64_t)bytes * 1000) / ((ns > 0) ? ns : 1);

    mbps    = (mbps == 0) ? 1 : ((mbps > KVCL_COPY_MBPS_MAX) ? KVCL_COPY_MBPS_MAX : mbps);
    *most_p = (mbps > *most_p) ? (uint32_t)mbps : *most_p;
}

static void measure_ways(const kvcl_weave_kernel_t *kernel, char *area, kvcl_weave_piece_t *pieces,
                         kvcl_copy_table_t *table)
{
    uint64_t begin = cpu_ns(), start;
    size_t   at = 0, i, n;
    unsigned round, row, way;

    for (round = 0; (round < ROUNDS) && ((round == 0) || (cpu_ns() - begin < BUDGET_NS)); ++round) {
        for (i = 0; i < KVCL_COPY_ROWS * KVCL_COPY_N_WAYS; ++i) {
            row = (unsigned)(i / KVCL_COPY_N_WAYS);
            way = (unsigned)(i % KVCL_COPY_N_WAYS);
            n   = list(pieces, area + AREA + at, area + at, PART, kvcl_copy_row_bytes[row]);
            kernel->flush(area + at, PART);
            kernel->flush(area + AREA + at, PART);
            start = cpu_ns();
            copy(way, kernel, pieces, n);
            keep(&table->mbps[row][way], PART, start);
            at = (at + PART) % AREA;
        }
    }
}

/* What a receiver does: each line once. */
static uint64_t read_all(const char *at, size_t bytes)
{
    uint64_t sum = 0, word;
    size_t   i;

    for (i = 0; i < bytes; i += KVCL_WEAVE_LINE) {
        memcpy(&word, at + i, sizeof(word));
        sum += word;
    }
    return sum;
}

static void measure_large(const kvcl_weave_kernel_t *kernel, char *area, kvcl_weave_piece_t *pieces,
                          kvcl_copy_table_t *table)
{
    const unsigned    chosen = kvcl_copy_choose(table).way[1];
    const unsigned    ways[] = {KVCL_COPY_MEMCPY, (chosen != KVCL_COPY_MEMCPY) ? chosen : KVCL_COPY_WEAVE4};
    uint64_t          begin  = cpu_ns(), start;
    volatile uint64_t seen   = 0;
    size_t            i, n, bytes;
    unsigned          round;

    for (round = 0; (round < ROUNDS) && ((round == 0) || (cpu_ns() - begin < LARGE_BUDGET_NS - BUDGET_NS)); ++round) {
        for (i = 0; i < KVCL_COPY_LARGE_ROWS * 2; ++i) {
            bytes = kvcl_copy_large_bytes[i / 2];
            n     = list(pieces, area + AREA, area, bytes, kvcl_copy_row_bytes[1]);
            kernel->flush(area, bytes);
            kernel->flush(area + AREA, bytes);
            start = cpu_ns();
            copy(ways[i % 2], kernel, pieces, n);
            seen = seen + read_all(area + AREA, bytes);
            keep(&table->large[i / 2][i % 2], bytes, start);
        }
    }
}

static void measure(const kvcl_weave_kernel_t *kernel, char *area, kvcl_weave_piece_t *pieces, kvcl_copy_table_t *table)
{
    size_t i;

    for (i = 0; i < 2 * AREA; i += PAGE) {
        area[i] = 1;
    }
    measure_ways(kernel, area, pieces, table);
    measure_large(kernel, area, pieces, table);
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
