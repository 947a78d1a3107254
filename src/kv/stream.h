/*
 * A stream: the selected bytes of a side as one sequence.
 *
 * Owns: the arithmetic from a position in the sequence to an address and back. A stream is a nest of
 * at most five loops (block list, layer, plane, token, head) around a run of contiguous bytes;
 * loops whose steps are contiguous are folded into the run when the stream is made, so what is left
 * costs a few additions a run. Never allocates, never reads or writes the bytes it walks over
 * (addresses may be a peer's or a device's), has no lock. One thread per stream; a copy by assignment is a second,
 * independent stream at the same position.
 *
 * Adjacent blocks (ids b, b+1, contiguous in memory) become one run when the block loop is the
 * innermost one left: with opaque blocks, with blocks contiguous over all layers, and, in an order that
 * has layer and plane outside of block, where the blocks of a plane lie
 * together. Runs never cross a base, so one run has one registration.
 *
 * Units: where the two ends of a transfer have blocks of different sizes, or a part of a block is
 * selected, the list is walked by units: the most tokens that divide both block sizes and the ends of
 * both ranges (kvcl_sel_unit, kvcl_runs_unit). A unit takes the place of the block in every order. With
 * one unit a block, the usual case, this costs nothing.
 *
 * Pieces: a stream may also walk a list of pieces of any lengths, which lie anywhere (pieces.h).
 *
 * Order: KVCL_STREAM_CANONICAL is what is stored, hashed and sent unless both ends agreed on
 * another; see kvcl_runs_order_pick.
 */
#ifndef KVCL_KV_STREAM_H
#define KVCL_KV_STREAM_H

#include "kv/side.h"

#include <sys/uio.h>

/* Orders that are fixed by name (outermost dimension first, see KVCL_DIM_*); any permutation is one. */
enum {
    KVCL_STREAM_CANONICAL = 0x35421, /* block, layer, plane, token, head */
    KVCL_STREAM_HND = 0x35412        /* block, layer, plane, head, token */
};

enum { KVCL_LOOP_STRIDE = 0, KVCL_LOOP_BLOCKS = 1, KVCL_LOOP_BASES = 2, KVCL_LOOP_UNITS = 3 };

typedef struct kvcl_stream_loop {
    uint64_t count;  /* > 1, but for a block loop */
    uint64_t index;  /* 0 <= index < count */
    uint64_t stride; /* from one step to the next, in bytes or in bases */
    uint32_t kind;   /* KVCL_LOOP_* */
    uint32_t reserved;
} kvcl_stream_loop_t;

struct kvcl_pieces;

typedef struct kvcl_stream {
    /* hot */
    uintptr_t addr;        /* of the next byte */
    uint64_t left;         /* bytes left in the current run */
    uint64_t runs_left;    /* unmerged runs behind the current one */
    uint64_t run_bytes;    /* of an unmerged run */
    uintptr_t run_addr;    /* where the current unmerged run begins */
    uint64_t merge_stride; /* run_bytes if neighbouring blocks (or the units of a block) are contiguous, else 0 */
    const uint32_t *blocks; /* from the first that is touched */
    const uintptr_t *bases; /* of the whole shape */
    uint32_t base;          /* index of the current run's base, in shape->n_bases */
    uint32_t n_loops;
    kvcl_stream_loop_t loops[KVCL_DIMS]; /* [0] innermost */
    /* units: more than one a block, else all 0 */
    uint32_t ratio;        /* units a block */
    uint32_t first_unit;   /* of the first block */
    uint64_t unit_stride;
    uint64_t at_block;     /* index in blocks of the current unit's; with pieces: of the current one */
    uint32_t at_unit;      /* in it */
    uint32_t merge_blocks; /* with merge_stride: the last unit of a block touches the first of its neighbour */
    /* cold */
    uint64_t total_bytes;
    uint64_t block_bytes; /* selected bytes of one whole block; with pieces: of an average one */
    uint64_t start;       /* offset of the selection in a base */
    uint32_t first_base;
    uint32_t order;
    kvcl_copier_t *copier; /* how the bytes are reached; NULL: by the processor */
    const struct kvcl_pieces *pieces; /* in place of loops (pieces.h); NULL: loops */
} kvcl_stream_t;

/** Whether @a order, perhaps from a peer, is one: each dimension once. */
int kvcl_stream_order_valid(uint32_t order);

/**
 * A stream at position 0 of a side that passed kvcl_side_check. @a order: a valid one. The side and
 * its shape may go away afterwards, its bases and blocks may not.
 */
void kvcl_stream_init(kvcl_stream_t *stream, const kvcl_side_t *side, uint32_t order);

/** The same in units of @a unit tokens: a divisor of kvcl_sel_unit(), which is what 0 means. */
void kvcl_stream_init_units(kvcl_stream_t *stream, const kvcl_side_t *side, uint32_t order, uint32_t unit);

/** Go to @a pos, at most total_bytes. A few divisions, whatever the length of the list. */
void kvcl_stream_seek(kvcl_stream_t *stream, uint64_t pos);

/* Bytes from here to the end. */
static inline uint64_t kvcl_stream_left(const kvcl_stream_t *s)
{
    return s->left + (s->runs_left * s->run_bytes);
}

static inline uint64_t kvcl_stream_pos(const kvcl_stream_t *s)
{
    return s->total_bytes - kvcl_stream_left(s);
}

/* Internal to the inline functions of this room: load the next run, or extend the current one over
 * neighbouring blocks until it has max bytes. */
void kvcl_stream_load(kvcl_stream_t *stream);
void kvcl_stream_extend(kvcl_stream_t *stream, uint64_t max);

/* The next unit is one of the same block, or the first of a block that lies behind this one. */
static inline int kvcl_stream_next_unit_touches(const kvcl_stream_t *s)
{
    const uint32_t *id = s->blocks + s->at_block;

    return (s->loops[0].index + 1 < s->loops[0].count) &&
           ((s->at_unit + 1 < s->ratio) || ((s->merge_blocks != 0) && (id[1] == id[0] + 1)));
}

/* The run to come is the next block's and lies behind the current one. Only if merge_stride is set. */
static inline int kvcl_stream_next_touches(const kvcl_stream_t *s)
{
    const uint32_t *id = s->blocks + s->loops[0].index;

    if (s->loops[0].kind == KVCL_LOOP_UNITS) {
        return kvcl_stream_next_unit_touches(s);
    }
    return (s->loops[0].index + 1 < s->loops[0].count) && (id[1] == id[0] + 1);
}

/* Make left > 0 and as long as merging allows, up to about max. 0 at the end. */
static inline int kvcl_stream_fill(kvcl_stream_t *s, uint64_t max)
{
    if (s->left == 0) {
        if (s->runs_left == 0) {
            return 0;
        }
        kvcl_stream_load(s);
    }
    if ((s->merge_stride != 0) && (s->left < max) && kvcl_stream_next_touches(s)) {
        kvcl_stream_extend(s, max);
    }
    return 1;
}

static inline void kvcl_stream_skip(kvcl_stream_t *s, uint64_t len)
{
    s->addr += len;
    s->left -= len;
}

/**
 * The next run: at most @a max (> 0) bytes at *addr_p, behind base s->base.
 * @return its length, 0 at the end of the stream.
 */
static inline size_t kvcl_stream_next(kvcl_stream_t *s, size_t max, uintptr_t *addr_p)
{
    size_t len;

    if (!kvcl_stream_fill(s, max)) {
        return 0;
    }
    len = (s->left < max) ? (size_t)s->left : max;
    *addr_p = s->addr;
    kvcl_stream_skip(s, len);
    return len;
}

/**
 * Move the next @a len bytes of the stream to, or from, a plain buffer, and go on behind them. The
 * stream's addresses must be mapped here, or reached by its copier.
 * @return bytes moved: less than len at the end of the stream, or where a device failed: then the
 *         bytes there are not to be used.
 */
size_t kvcl_stream_gather(kvcl_stream_t *stream, void *buf, size_t len);
size_t kvcl_stream_scatter(kvcl_stream_t *stream, const void *buf, size_t len);
/** Scatter past the caches (weave/bulk.h): for parts of transfers that are larger than these. */
size_t kvcl_stream_scatter_cold(kvcl_stream_t *stream, const void *buf, size_t len);
/** Gather from blocks that their owner may withdraw meanwhile: the caller checks generations afterwards
 * (weave/copy_racy.h). */
size_t kvcl_stream_gather_racy(kvcl_stream_t *stream, void *buf, size_t len);

/**
 * The next runs, for the kernel to read from or to write to: at most @a max of together at most @a bytes, and the
 * stream goes on behind them. @return pieces written to @a iov; *len_p is their sum.
 */
int kvcl_stream_iov(kvcl_stream_t *stream, struct iovec *iov, int max, size_t bytes, size_t *len_p);

/**
 * XXH3-64 of the next @a len bytes: what kvcl_checksum() says of them gathered. A block's checksum
 * is that of its kvcl_stream_t.block_bytes canonical bytes. Where a device fails it is a number that
 * no other call gives.
 */
uint64_t kvcl_stream_checksum(kvcl_stream_t *stream, uint64_t len);

/* The same for a stream with a copier (stream_device.c). push: from the buffer. */
size_t kvcl_stream_by_device(kvcl_stream_t *stream, uintptr_t buf, size_t len, int push);
uint64_t kvcl_stream_checksum_by_device(kvcl_stream_t *stream, uint64_t len);

#endif
