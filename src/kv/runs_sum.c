/*
 * Blocks copied and summed in one pass: what the store does with each block that it gets out of mapped memory, or puts.
 *
 * A checksum is of the canonical order, so the pass goes in it. Where its runs are short and another order has longer
 * ones, or a device has the bytes, they are copied first and summed afterwards. No locks.
 */
#include "kv/runs.h"

#include "base/sum_copy.h"
#include "weave/bulk.h"
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

/* The next four blocks in one loop, if each of them is one run on both sides. @return whether they were copied. */
static bool copy_four(kvcl_runs_t *runs, uint64_t *sums)
{
    const uint64_t block = runs->dst.block_bytes;
    kvcl_runs_t    walk  = *runs;
    uint8_t        *dst[KVCL_SUM_LANES];
    const uint8_t  *src[KVCL_SUM_LANES];
    kvcl_run_t     run;
    size_t         i;

    for (i = 0; i < KVCL_SUM_LANES; ++i) {
        if (!kvcl_runs_next(&walk, block, &run) || (run.len != block)) {
            return false;
        }
        dst[i] = (uint8_t *)run.dst;
        src[i] = (const uint8_t *)run.src;
    }
    if (!kvcl_sum_four(dst, src, block, sums)) {
        return false;
    }
    *runs = walk;
    return true;
}

/* Blocks that cannot be woven follow the others. */
static void four_a_pass(kvcl_runs_t *runs, uint64_t *sums, size_t n)
{
    size_t i = 0;

    while ((n - i >= KVCL_SUM_LANES) && copy_four(runs, sums + i)) {
        i += KVCL_SUM_LANES;
    }
    kvcl_bulk_end();
    one_pass(runs, sums + i, n - i);
}

void kvcl_runs_copy_sums(const kvcl_runs_t *runs, uint64_t first, size_t n, bool large, uint64_t *sums)
{
    const size_t block = (size_t)runs->dst.block_bytes;
    kvcl_runs_t  walk  = *runs;

    kvcl_runs_seek(&walk, first * block);
    if (large && kvcl_bulk_is_woven(block)) {
        four_a_pass(&walk, sums, n);
    } else {
        one_pass(&walk, sums, n);
    }
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
            kvcl_runs_copy_sums(&runs, 0, dst->sel.n_blocks, large, sums);
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
