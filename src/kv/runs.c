/*
 * Zipping two sides into a run list, and the plain memcpy executor of one.
 *
 * Owns: the rule of which selections may be copied to which (check_same), kept next to
 * kvcl_shape_compatible's in layout.c: that one is about whole blocks, this one about the selected
 * part, so that ranks of different tensor-parallel size compare only what they exchange.
 * Invariant: both streams of a kvcl_runs_t are at the same position between calls.
 * Locks: none; a kvcl_runs_t belongs to one thread, kvcl_runs_copy works on a copy of it.
 */
#include "kv/runs.h"

#include "base/copy_cold.h"
#include "base/copy_racy.h"
#include "base/error.h"

#include <string.h>

enum { RUNS_BATCH = 64 };

typedef enum copy_how { COPY_PLAIN, COPY_COLD, COPY_RACY } copy_how_t;

static uint32_t length(kvcl_range_t r)
{
    return r.end - r.first;
}

static kvcl_status_t differ(const char *what, uint64_t dst, uint64_t src)
{
    return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "selections differ: %s is %llu on the destination, %llu on the source", what,
                     (unsigned long long)dst, (unsigned long long)src);
}

static kvcl_status_t check_same(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    const kvcl_shape_t *d = dst->shape;
    const kvcl_shape_t *s = src->shape;
    const struct {
        const char *name;
        uint64_t dst, src;
    } fields[] = {
        {"layers", length(kvcl_sel_layers(d, &dst->sel)), length(kvcl_sel_layers(s, &src->sel))},
        {"kv", d->kv, s->kv},
        {"tokens", d->tokens, s->tokens},
        {"heads", length(kvcl_sel_heads(d, &dst->sel)), length(kvcl_sel_heads(s, &src->sel))},
        {"head_dim", d->head_dim, s->head_dim},
        {"elem_bytes", d->elem_bytes, s->elem_bytes},
    };
    size_t i;

    for (i = 0; i < sizeof(fields) / sizeof(fields[0]); ++i) {
        if (fields[i].dst != fields[i].src) {
            return differ(fields[i].name, fields[i].dst, fields[i].src);
        }
    }
    return KVCL_OK;
}

static int any_opaque(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    return kvcl_shape_is_opaque(dst->shape) || kvcl_shape_is_opaque(src->shape);
}

/* Opaque bytes hold the canonical order of whatever they are copied to or from. */
static int canonical_only(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    return kvcl_shape_is_opaque(dst->shape) != kvcl_shape_is_opaque(src->shape);
}

kvcl_status_t kvcl_runs_check(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    uint64_t dst_bytes, src_bytes;

    if (dst->sel.n_blocks != src->sel.n_blocks) {
        return differ("n_blocks", dst->sel.n_blocks, src->sel.n_blocks);
    }
    if (!any_opaque(dst, src)) {
        return check_same(dst, src);
    }
    dst_bytes = kvcl_sel_block_bytes(dst->shape, &dst->sel);
    src_bytes = kvcl_sel_block_bytes(src->shape, &src->sel);
    return (dst_bytes == src_bytes) ? KVCL_OK : differ("bytes of a block", dst_bytes, src_bytes);
}

/* Unmerged run length of the zip, plus one if neighbouring blocks can merge on both sides. */
static uint64_t order_score(const kvcl_side_t *dst, const kvcl_side_t *src, uint32_t order)
{
    kvcl_stream_t d, s;
    uint64_t bytes;

    kvcl_stream_init(&d, dst, order);
    kvcl_stream_init(&s, src, order);
    bytes = (d.run_bytes < s.run_bytes) ? d.run_bytes : s.run_bytes;
    return (2 * bytes) + ((d.merge_stride != 0) && (s.merge_stride != 0));
}

uint32_t kvcl_runs_order_pick(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    const uint32_t candidates[] = {KVCL_STREAM_CANONICAL, dst->shape->order, src->shape->order};
    uint64_t score, best_score = 0;
    uint32_t best = KVCL_STREAM_CANONICAL;
    size_t i;

    if (canonical_only(dst, src)) {
        return KVCL_STREAM_CANONICAL;
    }
    if (dst->shape->order == src->shape->order) {
        return dst->shape->order;
    }
    for (i = 0; i < sizeof(candidates) / sizeof(candidates[0]); ++i) {
        score = order_score(dst, src, candidates[i]);
        if (score > best_score) {
            best_score = score;
            best = candidates[i];
        }
    }
    return best;
}

kvcl_status_t kvcl_runs_init(kvcl_runs_t *runs, const kvcl_side_t *dst, const kvcl_side_t *src, uint32_t order)
{
    kvcl_status_t status = kvcl_runs_check(dst, src);

    if (status != KVCL_OK) {
        return status;
    }
    if (order == KVCL_RUNS_ANY_ORDER) {
        order = kvcl_runs_order_pick(dst, src);
    }
    if (!kvcl_stream_order_valid(order)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "0x%x is no order of dimensions", order);
    }
    if (canonical_only(dst, src) && (order != KVCL_STREAM_CANONICAL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "opaque blocks hold the canonical order, not 0x%x", order);
    }
    kvcl_stream_init(&runs->dst, dst, order);
    kvcl_stream_init(&runs->src, src, order);
    return KVCL_OK;
}

uint64_t kvcl_runs_count(const kvcl_runs_t *runs, size_t max)
{
    kvcl_runs_t walk = *runs;
    uint64_t count = 0;
    kvcl_run_t run;

    while (kvcl_runs_next(&walk, max, &run)) {
        ++count;
    }
    return count;
}

/* Runs are drawn in batches, so that copies of small runs do not wait for the walk: at 256
 * bytes a run 1.15 times as fast. Prefetching the next run by hand was measured and gave nothing. */
static void copy(const kvcl_runs_t *runs, uint64_t from, uint64_t to, copy_how_t how)
{
    kvcl_runs_t walk = *runs;
    kvcl_run_t batch[RUNS_BATCH];
    uint64_t left = (to > from) ? to - from : 0;
    size_t n = 1, i;

    kvcl_runs_seek(&walk, from);
    while ((left > 0) && (n > 0)) {
        for (n = 0; (left > 0) && (n < RUNS_BATCH) && kvcl_runs_next(&walk, left, &batch[n]); ++n) {
            left -= batch[n].len;
        }
        for (i = 0; i < n; ++i) {
            if (how == COPY_COLD) {
                kvcl_copy_cold((void *)batch[i].dst, (const void *)batch[i].src, batch[i].len);
            } else if (how == COPY_RACY) {
                kvcl_copy_racy((void *)batch[i].dst, (const void *)batch[i].src, batch[i].len);
            } else {
                memcpy((void *)batch[i].dst, (const void *)batch[i].src, batch[i].len);
            }
        }
    }
}

void kvcl_runs_copy(const kvcl_runs_t *runs, uint64_t from, uint64_t to)
{
    copy(runs, from, to, COPY_PLAIN);
}

void kvcl_runs_copy_racy(const kvcl_runs_t *runs, uint64_t from, uint64_t to)
{
    copy(runs, from, to, COPY_RACY);
}

void kvcl_runs_copy_cold(const kvcl_runs_t *runs, uint64_t from, uint64_t to)
{
    copy(runs, from, to, COPY_COLD);
    kvcl_copy_cold_end();
}
