/*
 * Blocks copied and summed in one pass: what the store does with each block that it gets out of mapped memory, or puts.
 *
 * A checksum is of the canonical order, so the pass goes in it. Where its runs are short and another order has longer
 * ones, or a device has the bytes, they are copied first and summed afterwards. No locks.
 */
#include "kv/runs.h"

#include "weave/bulk.h"
#include "weave/sum_copy.h"
#include "weave/sum_four.h"

enum { RUN_MIN = 1024 };

int kvcl_runs_can_sum(const kvcl_runs_t *runs)
{
    const kvcl_stream_t *dst = &runs->dst, *src = &runs->src;

    return !kvcl_runs_by_device(runs) && (dst->order == KVCL_STREAM_CANONICAL) && (dst->ratio == 0) &&
           (src->ratio == 0) && (dst->block_bytes == src->block_bytes) && (dst->run_bytes >= RUN_MIN) &&
           (src->run_bytes >= RUN_MIN);
}

static uint64_t copy_block(kvcl_runs_t *runs, uint64_t block)
{
    uint64_t   left = block;
    kvcl_sum_t sum;
    kvcl_run_t run;

    if (!kvcl_runs_next(runs, left, &run)) {
        return 0; /* no block has no bytes */
    }
    if (run.len == left) {
        return kvcl_sum_copy_of((void *)run.dst, (const void *)run.src, run.len);
    }
    kvcl_sum_init(&sum);
    do {
        kvcl_sum_copy(&sum, (void *)run.dst, (const void *)run.src, run.len);
        left -= run.len;
    } while ((left > 0) && kvcl_runs_next(runs, left, &run));
    return kvcl_sum_end(&sum);
}

static void one_pass(kvcl_runs_t *runs, uint64_t *sums, size_t n)
{
    const uint64_t block = runs->dst.block_bytes;
    size_t         i;

    for (i = 0; i < n; ++i) {
        sums[i] = copy_block(runs, block);
    }
}

/* The addresses of four blocks, or of parts of four blocks. */
typedef struct four {
    uint8_t       *dst[KVCL_SUM_LANES];
    const uint8_t *src[KVCL_SUM_LANES];
} four_t;

static void set_lane(four_t *four, size_t lane, const kvcl_run_t *run)
{
    four->dst[lane] = (uint8_t *)run->dst;
    four->src[lane] = (const uint8_t *)run->src;
}

/* The next four blocks, each of them one run on both sides. */
static bool draw_four(kvcl_runs_t *walk, uint64_t block, four_t *four)
{
    kvcl_run_t run;
    size_t     i;

    for (i = 0; i < KVCL_SUM_LANES; ++i) {
        if (!kvcl_runs_next(walk, block, &run) || (run.len != block)) {
            return false;
        }
        set_lane(four, i, &run);
    }
    return true;
}

/* Blocks that are one run each. @return how many were copied: a multiple of four. */
static size_t weave_blocks(kvcl_runs_t *walk, uint64_t *sums, size_t n)
{
    const uint64_t  block = walk->dst.block_bytes;
    four_t          now, next;
    kvcl_sum_four_t sum;
    bool            more;
    size_t          done = 0;

    if ((n < KVCL_SUM_LANES) || !draw_four(walk, block, &now)) {
        return 0;
    }
    do {
        more = (n - done >= 2 * KVCL_SUM_LANES) && draw_four(walk, block, &next);
        kvcl_sum_four_init(&sum);
        if (!kvcl_sum_four_end(&sum, now.dst, now.src, (size_t)block, more ? next.src : NULL, sums + done)) {
            break;
        }
        done += KVCL_SUM_LANES;
        now   = next;
    } while (more);
    return done;
}

/* The next run of each of four blocks: the same length for all. @return it, or 0: they differ. */
static size_t draw_runs(kvcl_runs_t *walks, size_t max, four_t *four)
{
    kvcl_run_t run;
    size_t     len = max, i;

    for (i = 0; i < KVCL_SUM_LANES; ++i) {
        if (!kvcl_runs_next(&walks[i], len, &run) || ((i > 0) && (run.len != len))) {
            return 0;
        }
        len = run.len;
        set_lane(four, i, &run);
    }
    return len;
}

/* Four blocks of several runs each, a cursor at the beginning of each. */
static bool weave_runs(kvcl_runs_t *walks, uint64_t *sums)
{
    size_t          left = (size_t)walks->dst.block_bytes, len, after;
    kvcl_sum_four_t sum;
    four_t          now, next;

    kvcl_sum_four_init(&sum);
    len = draw_runs(walks, left, &now);
    while ((len > 0) && (len < left)) {
        left -= len;
        after = draw_runs(walks, left, &next);
        if ((after == 0) || !kvcl_sum_four_add(&sum, now.dst, now.src, len, next.src)) {
            return false;
        }
        now = next;
        len = after;
    }
    return (len > 0) && kvcl_sum_four_end(&sum, now.dst, now.src, len, NULL, sums);
}

/* Blocks of several runs. @return as weave_blocks(). */
static size_t weave_parts(const kvcl_runs_t *runs, uint64_t first, uint64_t *sums, size_t n)
{
    const uint64_t block = runs->dst.block_bytes;
    kvcl_runs_t    walks[KVCL_SUM_LANES];
    size_t         done, i;

    for (done = 0; n - done >= KVCL_SUM_LANES; done += KVCL_SUM_LANES) {
        for (i = 0; i < KVCL_SUM_LANES; ++i) {
            walks[i] = *runs;
            kvcl_runs_seek(&walks[i], (first + done + i) * block);
        }
        if (!weave_runs(walks, sums + done)) {
            break;
        }
    }
    return done;
}

/* @return how many blocks were copied: all but the last ones, or none if they cannot be woven. */
static size_t four_a_pass(const kvcl_runs_t *runs, uint64_t first, uint64_t *sums, size_t n)
{
    const uint64_t block = runs->dst.block_bytes;
    kvcl_runs_t    walk  = *runs;
    size_t         done;

    if ((runs->dst.run_bytes == block) && (runs->src.run_bytes == block)) {
        kvcl_runs_seek(&walk, first * block);
        done = weave_blocks(&walk, sums, n);
    } else {
        done = weave_parts(runs, first, sums, n);
    }
    return done;
}

/* walk is at block `first`, and is moved. */
static inline void copy_from(kvcl_runs_t *walk, uint64_t first, size_t n, bool large, uint64_t *sums)
{
    const uint64_t block = walk->dst.block_bytes;
    size_t         done  = 0;

    if (large && kvcl_bulk_is_woven((size_t)block)) {
        done = four_a_pass(walk, first, sums, n);
        if (done < n) {
            kvcl_runs_seek(walk, (first + done) * block);
        }
    }
    one_pass(walk, sums + done, n - done);
}

void kvcl_runs_copy_sums(const kvcl_runs_t *runs, uint64_t first, size_t n, bool large, uint64_t *sums)
{
    kvcl_runs_t walk = *runs;

    kvcl_runs_seek(&walk, first * walk.dst.block_bytes);
    copy_from(&walk, first, n, large, sums);
}

static void sum_after(const kvcl_side_t *dst, uint64_t *sums, size_t n)
{
    kvcl_stream_t stream;
    size_t        i;

    kvcl_stream_init(&stream, dst, KVCL_STREAM_CANONICAL);
    for (i = 0; i < n; ++i) {
        sums[i] = kvcl_stream_checksum(&stream, stream.block_bytes);
    }
}

static kvcl_status_t copy_sums(const kvcl_side_t *dst, const kvcl_side_t *src, uint64_t *sums, bool large)
{
    kvcl_runs_t   runs;
    kvcl_status_t status;

    if (sums != NULL) {
        status = kvcl_runs_init(&runs, dst, src, KVCL_STREAM_CANONICAL);
        if (status != KVCL_OK) {
            return status;
        }
        if (kvcl_runs_can_sum(&runs)) {
            copy_from(&runs, 0, dst->sel.n_blocks, large, sums);
            return KVCL_OK;
        }
    }
    status = kvcl_runs_init(&runs, dst, src, KVCL_RUNS_ANY_ORDER);
    if (status == KVCL_OK) {
        status = kvcl_runs_copy_racy(&runs, 0, kvcl_runs_bytes(&runs));
    }
    if ((status == KVCL_OK) && (sums != NULL)) {
        sum_after(dst, sums, dst->sel.n_blocks);
    }
    return status;
}

kvcl_status_t kvcl_side_copy_sums(const kvcl_side_t *dst, const kvcl_side_t *src, uint64_t *sums)
{
    return copy_sums(dst, src, sums, false);
}

kvcl_status_t kvcl_side_copy_sums_large(const kvcl_side_t *dst, const kvcl_side_t *src, uint64_t *sums)
{
    return copy_sums(dst, src, sums, true);
}
