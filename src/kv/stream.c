/*
 * Streams: the arithmetic between positions in a selection and addresses.
 *
 * Owns: the order of loops (add_dim), which loops fold into a run, and the two ways to move:
 * seek (divisions) and load (one step of an odometer).
 * Invariants of a stream: addr lies left bytes before the end of the current, possibly merged, run;
 * run_addr is the address of the unmerged run that the loop indices stand for; left + runs_left *
 * run_bytes is what remains. Address sums wrap modulo 2^64 in between (a step back is the addition
 * of a negative number) but a complete one is inside [base, base + base_bytes) for a checked side.
 * Locks: none; a stream belongs to one thread.
 */
#include "kv/stream.h"

#include "kv/pieces.h"
#include "weave/copy_racy.h"
#include "weave/pieces.h"
#include "weave/sum_copy.h"

#include <string.h>

/* A loop around what is there: folded if contiguous or regular, else pushed. stride counts bytes, or
 * bases from one to the next. */
static void add_loop(kvcl_stream_t *s, uint32_t kind, uint64_t count, uint64_t stride)
{
    kvcl_stream_loop_t *top = (s->n_loops == 0) ? NULL : &s->loops[s->n_loops - 1];
    int listed = (kind == KVCL_LOOP_BLOCKS) || (kind == KVCL_LOOP_UNITS);

    if ((count == 1) && !listed) {
        return;
    }
    if ((top == NULL) && (kind == KVCL_LOOP_STRIDE) && (stride == s->run_bytes)) {
        s->run_bytes *= count;
    } else if ((top != NULL) && (top->kind == kind) && !listed && (stride == top->stride * top->count)) {
        top->count *= count;
    } else {
        s->loops[s->n_loops++] = (kvcl_stream_loop_t){.count = count, .stride = stride, .kind = kind};
    }
}

/* The list, block by block or unit by unit. */
static void add_blocks(kvcl_stream_t *s, const kvcl_shape_t *shape, const kvcl_sel_t *sel, uint32_t unit)
{
    kvcl_span_t tokens = kvcl_sel_tokens(shape, sel);
    uint64_t within = tokens.first % shape->tokens;

    s->blocks = (sel->blocks == NULL) ? NULL : sel->blocks + (tokens.first / shape->tokens);
    if (unit == shape->tokens) {
        s->merge_stride = ((s->n_loops == 0) && (shape->block_stride == s->run_bytes)) ? s->run_bytes : 0;
        add_loop(s, KVCL_LOOP_BLOCKS, (tokens.end - tokens.first) / unit, shape->block_stride);
        return;
    }
    s->ratio = shape->tokens / unit;
    s->first_unit = (uint32_t)(within / unit);
    s->unit_stride = unit * shape->token_stride;
    s->merge_stride = ((s->n_loops == 0) && (s->unit_stride == s->run_bytes)) ? s->run_bytes : 0;
    s->merge_blocks = (shape->block_stride == s->run_bytes * s->ratio);
    add_loop(s, KVCL_LOOP_UNITS, (tokens.end - tokens.first) / unit, shape->block_stride);
}

/* The next dimension outwards. */
static void add_dim(kvcl_stream_t *s, uint32_t dim, const kvcl_shape_t *shape, const kvcl_sel_t *sel, uint32_t unit)
{
    kvcl_range_t layers = kvcl_sel_layers(shape, sel);
    kvcl_range_t heads = kvcl_sel_heads(shape, sel);
    uint32_t layer_bases = shape->n_bases / shape->layers; /* 0: all layers behind one */

    if (dim == KVCL_DIM_HEAD) {
        add_loop(s, KVCL_LOOP_STRIDE, heads.end - heads.first, shape->head_stride);
        s->start += heads.first * shape->head_stride;
    } else if (dim == KVCL_DIM_TOKEN) {
        add_loop(s, KVCL_LOOP_STRIDE, unit, shape->token_stride);
    } else if (dim == KVCL_DIM_BLOCK) {
        add_blocks(s, shape, sel, unit);
    } else if (dim == KVCL_DIM_KV) {
        if (shape->flags == KVCL_LAYOUT_PER_PLANE) {
            add_loop(s, KVCL_LOOP_BASES, shape->kv, 1);
        } else {
            add_loop(s, KVCL_LOOP_STRIDE, shape->kv, shape->kv_stride);
        }
    } else if (shape->flags == 0) {
        add_loop(s, KVCL_LOOP_STRIDE, layers.end - layers.first, shape->layer_stride);
        s->start += layers.first * shape->layer_stride;
    } else {
        add_loop(s, KVCL_LOOP_BASES, layers.end - layers.first, layer_bases);
        s->first_base = layers.first * layer_bases;
    }
}

int kvcl_stream_order_valid(uint32_t order)
{
    uint32_t seen = 0, i;

    for (i = 0; i < KVCL_DIMS; ++i) {
        seen |= 1u << ((order >> (4 * i)) & 15);
    }
    return (seen == 0x3e) && ((order >> (4 * KVCL_DIMS)) == 0);
}

void kvcl_stream_init_units(kvcl_stream_t *stream, const kvcl_side_t *side, uint32_t order, uint32_t unit)
{
    uint32_t i;

    unit = (unit == 0) ? kvcl_sel_unit(side->shape, &side->sel) : unit;
    memset(stream, 0, sizeof(*stream));
    stream->order = order;
    stream->bases = side->bases;
    stream->copier = side->copier;
    stream->block_bytes = kvcl_sel_block_bytes(side->shape, &side->sel);
    stream->total_bytes = kvcl_sel_bytes(side->shape, &side->sel);
    stream->run_bytes = side->shape->head_bytes;
    for (i = 0; i < KVCL_DIMS; ++i) {
        add_dim(stream, (order >> (4 * i)) & 15, side->shape, &side->sel, unit);
    }
    kvcl_stream_seek(stream, 0);
}

void kvcl_stream_init(kvcl_stream_t *stream, const kvcl_side_t *side, uint32_t order)
{
    kvcl_stream_init_units(stream, side, order, 0);
}

/* The bytes from the beginning of a base to the current unit. */
static uint64_t unit_offset(const kvcl_stream_t *s, uint64_t stride)
{
    return (s->blocks[s->at_block] * stride) + (s->at_unit * s->unit_stride);
}

static void unit_seek(kvcl_stream_t *s, uint64_t index)
{
    s->at_block = (index + s->first_unit) / s->ratio;
    s->at_unit = (uint32_t)((index + s->first_unit) % s->ratio);
}

void kvcl_stream_seek(kvcl_stream_t *s, uint64_t pos)
{
    kvcl_stream_loop_t *loop;
    uint64_t run, rest;
    uint32_t i;

    if (pos >= s->total_bytes) {
        s->left = 0;
        s->runs_left = 0;
        return;
    }
    if (s->pieces != NULL) {
        kvcl_pieces_seek(s, pos);
        return;
    }
    run = pos / s->run_bytes;
    rest = pos % s->run_bytes;
    s->runs_left = (s->total_bytes / s->run_bytes) - 1 - run;
    s->left = s->run_bytes - rest;
    s->run_addr = s->start;
    s->base = s->first_base;
    for (i = 0; i < s->n_loops; ++i) {
        loop = &s->loops[i];
        loop->index = (run < loop->count) ? run : run % loop->count;
        run = (run < loop->count) ? 0 : run / loop->count;
        switch (loop->kind) {
        case KVCL_LOOP_BLOCKS:
            s->run_addr += s->blocks[loop->index] * loop->stride;
            break;
        case KVCL_LOOP_BASES:
            s->base += (uint32_t)(loop->index * loop->stride);
            break;
        case KVCL_LOOP_UNITS:
            unit_seek(s, loop->index);
            s->run_addr += unit_offset(s, loop->stride);
            break;
        default:
            s->run_addr += loop->index * loop->stride;
            break;
        }
    }
    s->run_addr += s->bases[s->base];
    s->addr = s->run_addr + rest;
}

/* The next unit, or with index 0 the first. */
static inline void unit_to(kvcl_stream_t *s, uint64_t stride, uint64_t index)
{
    const uint32_t *id = s->blocks + s->at_block;

    if (index == 0) {
        s->run_addr += (s->blocks[0] * stride) + (s->first_unit * s->unit_stride) - unit_offset(s, stride);
        s->at_block = 0;
        s->at_unit = s->first_unit;
    } else if (s->at_unit + 1 < s->ratio) {
        s->run_addr += s->unit_stride;
        ++s->at_unit;
    } else {
        s->run_addr += (((uint64_t)id[1] - id[0]) * stride) - (s->at_unit * s->unit_stride);
        s->at_unit = 0;
        ++s->at_block;
    }
}

/* Set one loop's index, moving run_addr along. */
static inline void loop_to(kvcl_stream_t *s, kvcl_stream_loop_t *loop, uint64_t index)
{
    uint32_t base;

    if (loop->kind == KVCL_LOOP_STRIDE) {
        s->run_addr += (index - loop->index) * loop->stride;
    } else if (loop->kind == KVCL_LOOP_UNITS) {
        unit_to(s, loop->stride, index);
    } else if (loop->kind == KVCL_LOOP_BLOCKS) {
        s->run_addr += ((uint64_t)s->blocks[index] - s->blocks[loop->index]) * loop->stride;
    } else {
        base = s->base + (uint32_t)((index - loop->index) * loop->stride);
        s->run_addr += s->bases[base] - s->bases[s->base];
        s->base = base;
    }
    loop->index = index;
}

/* Of merged units one lies run_bytes behind the other: to the last of the block, or of the list. */
static inline void take_block(kvcl_stream_t *s)
{
    uint64_t n = s->ratio - 1 - s->at_unit, rest = s->loops[0].count - 1 - s->loops[0].index;

    n = (n < rest) ? n : rest;
    s->at_unit += (uint32_t)n;
    s->loops[0].index += n;
    s->run_addr += n * s->run_bytes;
    s->left += n * s->run_bytes;
    s->runs_left -= n;
}

void kvcl_stream_load(kvcl_stream_t *s)
{
    kvcl_stream_loop_t *loop = s->loops;

    if (s->pieces != NULL) {
        kvcl_pieces_next(s);
        return;
    }
    while (loop->index + 1 == loop->count) { /* ends: runs_left says that some loop has a next */
        loop_to(s, loop, 0);
        ++loop;
    }
    loop_to(s, loop, loop->index + 1);
    --s->runs_left;
    s->addr = s->run_addr;
    s->left = s->run_bytes;
    if ((s->merge_stride != 0) && (s->loops[0].kind == KVCL_LOOP_UNITS)) {
        take_block(s);
    }
}

static void extend_units(kvcl_stream_t *s, uint64_t max)
{
    while ((s->left < max) && kvcl_stream_next_unit_touches(s)) {
        if (s->at_unit + 1 == s->ratio) {
            unit_to(s, s->loops[0].stride, ++s->loops[0].index);
            s->left += s->run_bytes;
            --s->runs_left;
        }
        take_block(s);
    }
}

void kvcl_stream_extend(kvcl_stream_t *s, uint64_t max)
{
    kvcl_stream_loop_t *loop = &s->loops[0];
    const uint32_t *ids = s->blocks;
    uint64_t index = loop->index;
    uint64_t left = s->left;

    if (loop->kind == KVCL_LOOP_UNITS) {
        extend_units(s, max);
        return;
    }
    while ((left < max) && (index + 1 < loop->count) && (ids[index + 1] == ids[index] + 1)) {
        ++index;
        left += s->run_bytes;
    }
    s->run_addr += (index - loop->index) * s->merge_stride;
    s->runs_left -= index - loop->index;
    s->left = left;
    loop->index = index;
}

/* Runs are drawn a batch ahead, so that the first lines of those to come can be prefetched. */
enum { BATCH = 32 };

/* The next runs of the stream, at most `left` bytes; flat: the other side of the copy. */
static size_t draw(kvcl_stream_t *stream, kvcl_weave_piece_t *pieces, size_t left, char *flat, bool scatter)
{
    uintptr_t addr = 0;
    size_t    n = 0, len;

    while ((n < BATCH) && (left > 0) && ((len = kvcl_stream_next(stream, left, &addr)) > 0)) {
        pieces[n++] = scatter ? (kvcl_weave_piece_t){(void *)addr, flat, len}
                              : (kvcl_weave_piece_t){flat, (const void *)addr, len};
        flat += len;
        left -= len;
    }
    return n;
}

static size_t bytes_of(const kvcl_weave_piece_t *pieces, size_t n)
{
    size_t bytes = 0, i;

    for (i = 0; i < n; ++i) {
        bytes += pieces[i].len;
    }
    return bytes;
}

size_t kvcl_stream_gather(kvcl_stream_t *stream, void *buf, size_t len)
{
    kvcl_weave_piece_t pieces[BATCH];
    size_t done = 0, n;

    if (stream->copier != NULL) {
        return kvcl_stream_by_device(stream, (uintptr_t)buf, len, 0);
    }
    while ((n = draw(stream, pieces, len - done, (char *)buf + done, false)) > 0) {
        kvcl_copy_pieces(pieces, n, KVCL_AHEAD_SRC);
        done += bytes_of(pieces, n);
    }
    return done;
}

size_t kvcl_stream_gather_racy(kvcl_stream_t *stream, void *buf, size_t len)
{
    uint8_t *to = (uint8_t *)buf;
    size_t done = 0;
    uintptr_t addr;
    size_t n;

    if (stream->copier != NULL) {
        return kvcl_stream_by_device(stream, (uintptr_t)buf, len, 0);
    }
    while ((done < len) && ((n = kvcl_stream_next(stream, len - done, &addr)) > 0)) {
        kvcl_copy_racy(to + done, (const void *)addr, n);
        done += n;
    }
    return done;
}

size_t kvcl_stream_scatter(kvcl_stream_t *stream, const void *buf, size_t len)
{
    kvcl_weave_piece_t pieces[BATCH];
    size_t done = 0, n;

    if (stream->copier != NULL) {
        return kvcl_stream_by_device(stream, (uintptr_t)buf, len, 1);
    }
    while ((n = draw(stream, pieces, len - done, (char *)(uintptr_t)buf + done, true)) > 0) {
        kvcl_copy_pieces(pieces, n, KVCL_AHEAD_DST);
        done += bytes_of(pieces, n);
    }
    return done;
}

size_t kvcl_stream_scatter_cold(kvcl_stream_t *stream, const void *buf, size_t len)
{
    kvcl_weave_piece_t pieces[BATCH];
    size_t done = 0, n;

    if (stream->copier != NULL) {
        return kvcl_stream_by_device(stream, (uintptr_t)buf, len, 1);
    }
    while ((n = draw(stream, pieces, len - done, (char *)(uintptr_t)buf + done, true)) > 0) {
        kvcl_bulk_copy(pieces, n);
        done += bytes_of(pieces, n);
    }
    kvcl_bulk_end();
    return done;
}

uint64_t kvcl_stream_checksum(kvcl_stream_t *stream, uint64_t len)
{
    kvcl_sum_t sum;
    uint64_t done = 0;
    uintptr_t addr = 0;
    size_t n = 0;

    if (stream->copier != NULL) {
        return kvcl_stream_checksum_by_device(stream, len);
    }
    if (len > 0) {
        n = kvcl_stream_next(stream, len, &addr);
    }
    if (n == len) { /* one run: no streaming state */
        return kvcl_sum_of((n == 0) ? (const void *)"" : (const void *)addr, n);
    }
    kvcl_sum_init(&sum);
    while (n > 0) {
        kvcl_sum_copy(&sum, NULL, (const void *)addr, n);
        done += n;
        n = (done < len) ? kvcl_stream_next(stream, len - done, &addr) : 0;
    }
    return kvcl_sum_end(&sum);
}
