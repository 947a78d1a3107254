/*
 * Whole blocks, several at once (blocks.h): four that are summed run side by side through weave/sum_four.h, and the
 * places of those that are not are pieces of one list. Owns nothing; no locks.
 */
#include "config.h"
#include "weave/blocks.h"
#include "weave/bulk.h"
#include "weave/copy_racy.h"
#include "weave/sum_copy.h"
#include "weave/sum_four.h"

enum { LANES = KVCL_SUM_LANES, BATCH = 32 };

static void copy_one(kvcl_weave_block_t *block)
{
    const uint8_t *src = block->src;
    kvcl_sum_t    sum;
    unsigned      i;

    if (block->summing && (block->n_dst == 1)) {
        block->sum = kvcl_sum_copy_of(block->dst[0].iov_base, src, block->len);
        return;
    }
    if (block->summing) {
        kvcl_sum_init(&sum);
    }
    for (i = 0; i < block->n_dst; src += block->dst[i].iov_len, ++i) {
        if (block->summing) {
            kvcl_sum_copy(&sum, block->dst[i].iov_base, src, block->dst[i].iov_len);
        } else {
            kvcl_copy_racy(block->dst[i].iov_base, src, block->dst[i].iov_len);
        }
    }
    if (block->summing) {
        block->sum = kvcl_sum_end(&sum);
    }
}

/* The blocks at the front that are not summed. @return how many. */
static size_t weave_pieces(const kvcl_weave_block_t *blocks, size_t n)
{
    kvcl_weave_piece_t batch[BATCH];
    size_t             filled = 0, i, k, at;

    for (i = 0; (i < n) && !blocks[i].summing; ++i) {
        for (k = 0, at = 0; k < blocks[i].n_dst; at += blocks[i].dst[k].iov_len, ++k) {
            if (filled == BATCH) {
                kvcl_bulk_copy(batch, filled);
                filled = 0;
            }
            batch[filled++] = (kvcl_weave_piece_t){blocks[i].dst[k].iov_base, blocks[i].src + at,
                                                   blocks[i].dst[k].iov_len};
        }
    }
    kvcl_bulk_copy(batch, filled);
    return i;
}

static bool are_four(const kvcl_weave_block_t *blocks, size_t n)
{
    size_t i;

    for (i = 0; (i < LANES) && (i < n) && blocks[i].summing && (blocks[i].len == blocks[0].len); ++i) {
    }
    return i == LANES;
}

/* Four blocks side by side, as far as the shortest of their places reaches, at a time. `next`: the blocks that follow,
 * or NULL. False: they are not copied. */
static bool weave_four(kvcl_weave_block_t *blocks, const kvcl_weave_block_t *next)
{
    const struct iovec *at[LANES];
    const uint8_t      *src[LANES], *ahead[LANES];
    uint8_t            *dst[LANES];
    size_t             into[LANES] = {0}, left = blocks[0].len, len, i;
    uint64_t           sums[LANES];
    kvcl_sum_four_t    sum;

    kvcl_sum_four_init(&sum);
    for (i = 0; i < LANES; ++i) {
        at[i]  = blocks[i].dst;
        src[i] = blocks[i].src;
    }
    for (;; left -= len) {
        for (len = left, i = 0; i < LANES; ++i) {
            dst[i] = (uint8_t *)at[i]->iov_base + into[i];
            len    = (at[i]->iov_len - into[i] < len) ? at[i]->iov_len - into[i] : len;
        }
        for (i = 0; i < LANES; ++i) {
            ahead[i] = (len < left) ? src[i] + len : ((next != NULL) ? next[i].src : src[i]);
        }
        if (len == left) {
            break;
        }
        if (!kvcl_sum_four_add(&sum, dst, src, len, ahead)) {
            return false;
        }
        for (i = 0; i < LANES; ++i) {
            src[i]  += len;
            into[i] += len;
            if (into[i] == at[i]->iov_len) {
                ++at[i];
                into[i] = 0;
            }
        }
    }
    if (!kvcl_sum_four_end(&sum, dst, src, left, ahead, sums)) {
        return false;
    }
    for (i = 0; i < LANES; ++i) {
        blocks[i].sum = sums[i];
    }
    return true;
}

void kvcl_blocks_copy(kvcl_weave_block_t *blocks, size_t n, bool large)
{
    bool                     woven = large && (n > 0) && kvcl_bulk_is_woven(blocks[0].len), fours = woven;
    const kvcl_weave_block_t *next;
    size_t                   i = 0;

    while (i < n) {
        if (woven && !blocks[i].summing) {
            i += weave_pieces(blocks + i, n - i);
            continue;
        }
        next  = ((n - i > LANES) && are_four(blocks + i + LANES, n - i - LANES)) ? blocks + i + LANES : NULL;
        fours = fours && are_four(blocks + i, n - i) && weave_four(blocks + i, next);
        if (fours) {
            i += LANES;
        } else {
            copy_one(&blocks[i++]);
        }
    }
    if (woven) {
        kvcl_bulk_end();
    }
}
