/*
 * Runs: a destination and a source stream zipped into (dst, src, length), the unit of a memcpy or of
 * an RMA operation.
 *
 * Owns: the check that two sides mean the same bytes, and the lazy merging of what is adjacent on
 * both. A run list is never materialised: a kvcl_runs_t is a few cache lines whatever the number of
 * blocks, and a copy by assignment is an independent cursor, so threads split a list by copying it
 * and seeking. No allocation, no lock, one thread per copy.
 */
#ifndef KVCL_KV_RUNS_H
#define KVCL_KV_RUNS_H

#include "kv/stream.h"

typedef struct kvcl_run {
    uintptr_t dst;
    uintptr_t src;
    size_t len;
    uint32_t dst_base; /* index of the base behind which the bytes lie: which rkey to use */
    uint32_t src_base;
} kvcl_run_t;

typedef struct kvcl_runs {
    kvcl_stream_t dst;
    kvcl_stream_t src;
} kvcl_runs_t;

/* For kvcl_runs_init: kvcl_runs_order_pick() chooses. */
enum { KVCL_RUNS_ANY_ORDER = 0 };

/**
 * Whether two selections may be copied to each other. They need equal counts of layers, planes, tokens in all and
 * heads, and equal head vectors (indices may differ: heads 0..3 on one side, 4..7 on the other). One block size must
 * divide the other. An opaque side needs as many bytes a block as the other, and whole blocks.
 * @return KVCL_OK; KVCL_ERR_BAD_LAYOUT, naming what differs and both values.
 */
kvcl_status_t kvcl_runs_check(const kvcl_side_t *dst, const kvcl_side_t *src) KVCL_MUST_CHECK;

/**
 * The order with the longest runs, for a transfer where only the final place of bytes matters (never
 * for what is stored or hashed). Two equal memories are walked as they lie. Canonical if one side only
 * is opaque. Bases are not looked at. Both ends of a served transfer use the order that the request names.
 */
uint32_t kvcl_runs_order_pick(const kvcl_side_t *dst, const kvcl_side_t *src);

/** The unit of tokens by which both sides go, see stream.h; 0: each by its own. They passed kvcl_runs_check. */
uint32_t kvcl_runs_unit(const kvcl_side_t *dst, const kvcl_side_t *src);

/**
 * Zip two sides that each passed kvcl_side_check. @a order: a KVCL_STREAM_* order, canonical if one
 * side only is opaque, or KVCL_RUNS_ANY_ORDER.
 * @return as kvcl_runs_check; KVCL_ERR_INVALID_PARAM for an order that is none or not canonical when
 *         it must be.
 */
kvcl_status_t kvcl_runs_init(kvcl_runs_t *runs, const kvcl_side_t *dst, const kvcl_side_t *src,
                             uint32_t order) KVCL_MUST_CHECK;

/**
 * Scatter into @a dst, which passed kvcl_side_check, all of its bytes from @a data, where they lie in canonical order
 * by units of @a unit tokens (> 0), which need not divide dst's. For bytes that come from a sender with other blocks.
 * @return KVCL_OK; KVCL_ERR_BAD_LAYOUT if the tokens of dst are no multiple of unit: nothing was written. As
 *         kvcl_runs_copy where dst is a device's.
 */
kvcl_status_t kvcl_runs_unpack(const kvcl_side_t *dst, const void *data, uint32_t unit) KVCL_MUST_CHECK;

/** Is one side at least device memory? */
static inline int kvcl_runs_by_device(const kvcl_runs_t *r)
{
    return (r->dst.copier != NULL) || (r->src.copier != NULL);
}

/** Bytes of the whole list. */
static inline uint64_t kvcl_runs_bytes(const kvcl_runs_t *r)
{
    return r->src.total_bytes;
}

/** Both streams to byte @a pos, at most kvcl_runs_bytes. */
static inline void kvcl_runs_seek(kvcl_runs_t *r, uint64_t pos)
{
    kvcl_stream_seek(&r->dst, pos);
    kvcl_stream_seek(&r->src, pos);
}

/** The next run of at most @a max (> 0) bytes. @return 0 at the end. */
static inline int kvcl_runs_next(kvcl_runs_t *r, size_t max, kvcl_run_t *run_p)
{
    uint64_t len;

    if (!kvcl_stream_fill(&r->dst, max) || !kvcl_stream_fill(&r->src, max)) {
        return 0;
    }
    len = (r->dst.left < r->src.left) ? r->dst.left : r->src.left;
    len = (len < max) ? len : max;
    run_p->dst = r->dst.addr;
    run_p->src = r->src.addr;
    run_p->len = (size_t)len;
    run_p->dst_base = r->dst.base;
    run_p->src_base = r->src.base;
    kvcl_stream_skip(&r->dst, len);
    kvcl_stream_skip(&r->src, len);
    return 1;
}

/**
 * Copy bytes [from, to) of the list (positions, not runs): by memcpy, or by the sides' copiers; both
 * sides mapped here and not overlapping. Does not move *runs, so threads may copy disjoint parts of
 * one list at once.
 * @return KVCL_OK, always for host memory; KVCL_ERR_IO, KVCL_ERR_NO_MEMORY: a device failed, and what
 *         is at the destination is not known.
 */
kvcl_status_t kvcl_runs_copy(const kvcl_runs_t *runs, uint64_t from, uint64_t to) KVCL_MUST_CHECK;
/** The same past the caches (weave/bulk.h): for parts of lists that are larger than these. */
kvcl_status_t kvcl_runs_copy_cold(const kvcl_runs_t *runs, uint64_t from, uint64_t to) KVCL_MUST_CHECK;
/** The whole list, past the caches if it is large (kvcl_bulk_how). */
kvcl_status_t kvcl_runs_copy_all(const kvcl_runs_t *runs) KVCL_MUST_CHECK;
/** As kvcl_runs_copy() for blocks that their owner may withdraw meanwhile: the caller checks their generations
 *  afterwards, and drops the copy if one has changed (weave/copy_racy.h). */
kvcl_status_t kvcl_runs_copy_racy(const kvcl_runs_t *runs, uint64_t from, uint64_t to) KVCL_MUST_CHECK;

/**
 * Whether one pass copies and sums the list: whole blocks in canonical order, in runs that are not short, of memory
 * that the processor reaches.
 */
int kvcl_runs_can_sum(const kvcl_runs_t *runs);
/**
 * Copy @a n blocks of a list for which kvcl_runs_can_sum() holds, as kvcl_runs_copy_racy does; sums: one for each of
 * these blocks, of what it then has. large: as for kvcl_side_copy_sums_large(). Does not move *runs.
 */
void kvcl_runs_copy_sums(const kvcl_runs_t *runs, uint64_t first, size_t n, bool large, uint64_t *sums);

/**
 * Copy whole blocks from @a src to @a dst as kvcl_runs_copy_racy does, and say the checksum of what each block of dst
 * then has, as kvcl_stream_checksum() does: in one pass over the bytes where runs are long (weave/sum_copy.h). Both
 * sides passed kvcl_side_check. @a sums: one for each block, or NULL.
 * @return as kvcl_runs_check and kvcl_runs_copy.
 */
kvcl_status_t kvcl_side_copy_sums(const kvcl_side_t *dst, const kvcl_side_t *src, uint64_t *sums) KVCL_MUST_CHECK;
/**
 * The same for a part of a list that is larger than the caches: past them, four blocks in turn (weave/sum_four.h). Call
 * kvcl_bulk_end() after the last part.
 */
kvcl_status_t kvcl_side_copy_sums_large(const kvcl_side_t *dst, const kvcl_side_t *src,
                                        uint64_t *sums) KVCL_MUST_CHECK;

#endif
