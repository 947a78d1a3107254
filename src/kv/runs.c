/*
 * Zipping two sides into a run list, and the executor of one: memcpy, or the copiers of device memory.
 *
 * Owns: the rule for which selections may be copied to which (check_same). kvcl_shape_compatible in layout.c compares
 * whole blocks; this rule compares the selected parts, so that ranks of different tensor-parallel size compare only the
 * bytes that they exchange.
 * Invariant: both streams of a kvcl_runs_t are at the same position between calls.
 * Locks: none; a kvcl_runs_t belongs to one thread, kvcl_runs_copy works on a copy of it.
 */
#include "kv/runs.h"

#include "base/error.h"
#include "weave/copy_racy.h"
#include "weave/pieces.h"

enum { RUNS_BATCH = 64 };

typedef enum copy_how { COPY_PLAIN, COPY_RACY } copy_how_t;

static uint32_t length(kvcl_range_t r)
{
    return r.end - r.first;
}

static kvcl_status_t differ(const char *what, uint64_t dst, uint64_t src)
{
    return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "selections differ: %s is %llu on the destination, %llu on the source", what,
                     (unsigned long long)dst, (unsigned long long)src);
}

/* What a token is on both sides. @return what differs, or NULL. */
static const char *token_differs(const kvcl_side_t *dst, const kvcl_side_t *src, uint32_t *dst_p, uint32_t *src_p)
{
    kvcl_token_t d = kvcl_token_of(dst->shape, &dst->sel), s = kvcl_token_of(src->shape, &src->sel);

    return kvcl_token_differs(&d, &s, dst_p, src_p);
}

static uint64_t n_tokens(const kvcl_side_t *side)
{
    kvcl_span_t tokens = kvcl_sel_tokens(side->shape, &side->sel);

    return tokens.end - tokens.first;
}

static int whole_blocks(const kvcl_side_t *side)
{
    return n_tokens(side) == (uint64_t)side->sel.n_blocks * side->shape->tokens;
}

static kvcl_status_t check_same(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    uint32_t d = dst->shape->tokens, s = src->shape->tokens;
    uint32_t in_dst, in_src;
    const char *what = token_differs(dst, src, &in_dst, &in_src);

    if (what != NULL) {
        return differ(what, in_dst, in_src);
    }
    if (((d % s) != 0) && ((s % d) != 0)) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "selections differ: tokens of a block is %u on the destination, %u on "
                         "the source: one must divide the other", d, s);
    }
    if (n_tokens(dst) != n_tokens(src)) {
        return differ("tokens in all", n_tokens(dst), n_tokens(src));
    }
    return KVCL_OK;
}

static int any_opaque(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    return kvcl_shape_is_opaque(dst->shape) || kvcl_shape_is_opaque(src->shape);
}

/* Opaque blocks compare by their bytes. A block of one token compares as a token. */
static int as_bytes(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    return any_opaque(dst, src) && (dst->sel.n_blocks == src->sel.n_blocks) && whole_blocks(dst) && whole_blocks(src) &&
           (kvcl_sel_block_bytes(dst->shape, &dst->sel) == kvcl_sel_block_bytes(src->shape, &src->sel));
}

/* Opaque bytes hold the canonical order of whatever they are copied to or from. */
static int canonical_only(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    return (kvcl_shape_is_opaque(dst->shape) != kvcl_shape_is_opaque(src->shape)) && as_bytes(dst, src);
}

kvcl_status_t kvcl_runs_check(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    uint32_t in_dst, in_src;

    if (as_bytes(dst, src)) {
        return KVCL_OK;
    }
    if (any_opaque(dst, src) && (token_differs(dst, src, &in_dst, &in_src) != NULL)) {
        if (dst->sel.n_blocks != src->sel.n_blocks) {
            return differ("n_blocks", dst->sel.n_blocks, src->sel.n_blocks);
        }
        if (!whole_blocks(dst) || !whole_blocks(src)) {
            return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "selections differ: opaque blocks are taken whole, without tokens");
        }
        return differ("bytes of a block", kvcl_sel_block_bytes(dst->shape, &dst->sel),
                      kvcl_sel_block_bytes(src->shape, &src->sel));
    }
    if ((dst->shape->tokens == src->shape->tokens) && whole_blocks(dst) && whole_blocks(src) &&
        (dst->sel.n_blocks != src->sel.n_blocks)) {
        return differ("n_blocks", dst->sel.n_blocks, src->sel.n_blocks);
    }
    return check_same(dst, src);
}

uint32_t kvcl_runs_unit(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    if (as_bytes(dst, src)) {
        return 0;
    }
    return kvcl_gcd(kvcl_sel_unit(dst->shape, &dst->sel), kvcl_sel_unit(src->shape, &src->sel));
}

/* Unmerged run length of the zip, plus one if neighbouring blocks can merge on both sides. */
static uint64_t order_score(const kvcl_side_t *dst, const kvcl_side_t *src, uint32_t order, uint32_t unit)
{
    kvcl_stream_t d, s;
    uint64_t bytes;

    kvcl_stream_init_units(&d, dst, order, unit);
    kvcl_stream_init_units(&s, src, order, unit);
    bytes = (d.run_bytes < s.run_bytes) ? d.run_bytes : s.run_bytes;
    return (2 * bytes) + ((d.merge_stride != 0) && (s.merge_stride != 0));
}

uint32_t kvcl_runs_order_pick(const kvcl_side_t *dst, const kvcl_side_t *src)
{
    /* The last two are for units: what a block has of a head, or of all, in one run again. */
    const uint32_t candidates[] = {KVCL_STREAM_CANONICAL, dst->shape->order, src->shape->order, 0x54321, 0x54132};
    uint64_t score, best_score = 0;
    uint32_t best = KVCL_STREAM_CANONICAL, unit;
    size_t i, n;

    if (canonical_only(dst, src)) {
        return KVCL_STREAM_CANONICAL;
    }
    unit = kvcl_runs_unit(dst, src);
    n = ((unit == 0) || ((unit == dst->shape->tokens) && (unit == src->shape->tokens))) ? 3 : 5;
    if ((n == 3) && (dst->shape->order == src->shape->order)) {
        return dst->shape->order;
    }
    for (i = 0; i < n; ++i) {
        score = order_score(dst, src, candidates[i], unit);
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
    uint32_t unit;

    if (status != KVCL_OK) {
        return status;
    }
    unit = kvcl_runs_unit(dst, src);
    if (order == KVCL_RUNS_ANY_ORDER) {
        order = kvcl_runs_order_pick(dst, src);
    }
    if (!kvcl_stream_order_valid(order)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "0x%x is no order of dimensions", order);
    }
    if (canonical_only(dst, src) && (order != KVCL_STREAM_CANONICAL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "opaque blocks hold the canonical order, not 0x%x", order);
    }
    kvcl_stream_init_units(&runs->dst, dst, order, unit);
    kvcl_stream_init_units(&runs->src, src, order, unit);
    return KVCL_OK;
}

/* One unit of packed bytes as a cache of one block. */
static kvcl_status_t packed_shape(const kvcl_side_t *dst, uint32_t unit, kvcl_shape_t *shape)
{
    kvcl_layout_t l = {.size = sizeof(l),
                       .layers = length(kvcl_sel_layers(dst->shape, &dst->sel)),
                       .kv = dst->shape->kv,
                       .blocks = 1,
                       .tokens = unit,
                       .heads = length(kvcl_sel_heads(dst->shape, &dst->sel)),
                       .head_dim = dst->shape->head_dim,
                       .elem_bytes = dst->shape->elem_bytes};

    return kvcl_shape_init(shape, &l); /* dense, and of one block: canonical */
}

kvcl_status_t kvcl_runs_unpack(const kvcl_side_t *dst, const void *data, uint32_t unit)
{
    static const uint32_t first_block;
    kvcl_span_t tokens = kvcl_sel_tokens(dst->shape, &dst->sel);
    uintptr_t at = (uintptr_t)data;
    kvcl_side_t part = *dst, from = {.bases = &at, .sel = {.blocks = &first_block, .n_blocks = 1}};
    uint32_t both = kvcl_gcd(unit, kvcl_sel_unit(dst->shape, &dst->sel));
    kvcl_status_t status;
    kvcl_shape_t shape;
    kvcl_runs_t runs;

    if ((((tokens.end - tokens.first) % unit) != 0) || (tokens.end > UINT32_MAX)) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "%llu tokens are no multiple of %u, or too many",
                         (unsigned long long)(tokens.end - tokens.first), unit);
    }
    status = packed_shape(dst, unit, &shape);
    from.shape = &shape;
    for (; (status == KVCL_OK) && (tokens.first < tokens.end); tokens.first += unit) {
        part.sel.tokens = (kvcl_range_t){(uint32_t)tokens.first, (uint32_t)(tokens.first + unit)};
        kvcl_stream_init_units(&runs.dst, &part, KVCL_STREAM_CANONICAL, both);
        kvcl_stream_init_units(&runs.src, &from, KVCL_STREAM_CANONICAL, both);
        status = kvcl_runs_copy(&runs, 0, kvcl_runs_bytes(&runs));
        at += shape.block_bytes;
    }
    return status;
}

/* The next runs, of at most *left bytes, which it lowers by theirs. */
static size_t draw(kvcl_runs_t *walk, kvcl_weave_piece_t *batch, uint64_t *left)
{
    kvcl_run_t run;
    size_t n;

    for (n = 0; (*left > 0) && (n < RUNS_BATCH) && kvcl_runs_next(walk, *left, &run); ++n) {
        batch[n] = (kvcl_weave_piece_t){(void *)run.dst, (const void *)run.src, run.len};
        *left -= run.len;
    }
    return n;
}

/* Runs are drawn in batches, so that copies of small runs do not wait for the walk: at 256
 * bytes a run 1.15 times as fast. Prefetching the next run by hand was measured and gave nothing. */
static void copy(const kvcl_runs_t *runs, uint64_t from, uint64_t to, copy_how_t how)
{
    kvcl_runs_t walk = *runs;
    kvcl_weave_piece_t batch[RUNS_BATCH];
    uint64_t left = (to > from) ? to - from : 0;
    size_t n = 1, i;

    kvcl_runs_seek(&walk, from);
    while ((left > 0) && (n > 0)) {
        n = draw(&walk, batch, &left);
        if (how == COPY_PLAIN) {
            kvcl_copy_pieces(batch, n, KVCL_AHEAD_NONE);
        }
        for (i = 0; (how == COPY_RACY) && (i < n); ++i) {
            kvcl_copy_racy(batch[i].dst, batch[i].src, batch[i].len);
        }
    }
}

/* A batch at a time, so that several runs are copied side by side. */
static void copy_cold(const kvcl_runs_t *runs, uint64_t from, uint64_t to)
{
    kvcl_runs_t walk = *runs;
    kvcl_weave_piece_t batch[RUNS_BATCH];
    uint64_t left = (to > from) ? to - from : 0;
    size_t n = 1;

    kvcl_runs_seek(&walk, from);
    while ((left > 0) && (n > 0)) {
        n = draw(&walk, batch, &left);
        kvcl_bulk_copy(batch, n);
    }
    kvcl_bulk_end();
}

/* Many runs a call: each call waits for the device. */
static kvcl_status_t copy_by_device(const kvcl_runs_t *runs, uint64_t from, uint64_t to)
{
    kvcl_runs_t walk = *runs;
    kvcl_piece_t batch[KVCL_COPIER_BATCH];
    uint64_t left = (to > from) ? to - from : 0;
    kvcl_status_t status = KVCL_OK;
    kvcl_run_t run;
    size_t n = 1;

    kvcl_runs_seek(&walk, from);
    while ((left > 0) && (n > 0) && (status == KVCL_OK)) {
        for (n = 0; (left > 0) && (n < KVCL_COPIER_BATCH) && kvcl_runs_next(&walk, left, &run); ++n) {
            batch[n] = (kvcl_piece_t){run.dst, run.src, run.len};
            left -= run.len;
        }
        status = kvcl_copier_copy(walk.dst.copier, walk.src.copier, batch, n);
    }
    return status;
}

kvcl_status_t kvcl_runs_copy(const kvcl_runs_t *runs, uint64_t from, uint64_t to)
{
    if (kvcl_runs_by_device(runs)) {
        return copy_by_device(runs, from, to);
    }
    copy(runs, from, to, COPY_PLAIN);
    return KVCL_OK;
}

kvcl_status_t kvcl_runs_copy_racy(const kvcl_runs_t *runs, uint64_t from, uint64_t to)
{
    if (kvcl_runs_by_device(runs)) {
        return copy_by_device(runs, from, to);
    }
    copy(runs, from, to, COPY_RACY);
    return KVCL_OK;
}

kvcl_status_t kvcl_runs_copy_cold(const kvcl_runs_t *runs, uint64_t from, uint64_t to)
{
    if (kvcl_runs_by_device(runs)) {
        return copy_by_device(runs, from, to);
    }
    copy_cold(runs, from, to);
    return KVCL_OK;
}

kvcl_status_t kvcl_runs_copy_all(const kvcl_runs_t *runs)
{
    const uint64_t  bytes  = kvcl_runs_bytes(runs);
    kvcl_bulk_how_t how    = kvcl_bulk_how(bytes);
    kvcl_status_t   status = KVCL_OK;
    uint64_t        at     = 0, end, begun;

    do {
        end    = ((how == KVCL_BULK_UNSURE) && (bytes - at > KVCL_BULK_PROBE)) ? at + KVCL_BULK_PROBE : bytes;
        begun  = kvcl_bulk_part_begin(how);
        status = (how == KVCL_BULK_LARGE) ? kvcl_runs_copy_cold(runs, at, end) : kvcl_runs_copy(runs, at, end);
        how    = kvcl_bulk_part_end(how, end - at, begun);
        at     = end;
    } while ((at < bytes) && (status == KVCL_OK));
    return status;
}
