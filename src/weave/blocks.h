/*
 * Whole blocks copied out of memory that their owner may be writing, each to one or several places, and summed in the
 * same pass: several at once past the caches where that is faster (bulk.h), otherwise one after the other. The caller
 * checks afterwards whether an owner wrote (copy_racy.h); a sum is of the bytes that were stored.
 *
 * No lock; any thread.
 */
#ifndef KVCL_WEAVE_BLOCKS_H
#define KVCL_WEAVE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

typedef struct kvcl_weave_block {
    const uint8_t      *src;
    const struct iovec *dst;   /* where its bytes go, in order */
    unsigned           n_dst;
    size_t             len;    /* of src, and of all dst together */
    bool               summing;
    uint64_t           sum;    /* set if summing: kvcl_checksum() of the bytes */
} kvcl_weave_block_t;

/** @param large  the blocks are a part of a transfer that kvcl_bulk_how() calls large, and are not read soon. */
void kvcl_blocks_copy(kvcl_weave_block_t *blocks, size_t n, bool large);

#endif
