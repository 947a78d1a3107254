/*
 * Filling blocks of this rank's pool with values. Each byte is copied and summed in one pass: blocks whose bytes lie in
 * one piece of the caller's memory together (weave/blocks.h), and past the caches where that is faster (weave/bulk.h);
 * the others, with a head, cut by extents or shorter, one by one.
 *
 * The blocks are FILLING and belong to the put, so nobody reads them. No lock; nothing allocated.
 */
#include "config.h"
#include "value/value.h"
#include "weave/blocks.h"
#include "weave/bulk.h"
#include "weave/pieces.h"

enum { LOT = 64 }; /* blocks that are described, then copied */

typedef struct filling {
    uint8_t          *base;    /* of the pool */
    uint64_t         stride, block;
    kvcl_store_rec_t *recs;
    bool             summing;
} filling_t;

/* Blocks of one piece each. */
typedef struct pieces {
    size_t             n;
    kvcl_weave_block_t blocks[LOT];
    struct iovec       to[LOT];
    size_t             item[LOT];
} pieces_t;

/* Copy n bytes that lie in a row. */
static void put_bytes(kvcl_sum_t *sum, void *to, const void *from, size_t n)
{
    if (sum != NULL) {
        kvcl_sum_copy(sum, to, from, n);
    } else {
        kvcl_copy_bytes(to, from, n);
    }
}

static void fill_one(const filling_t *filling, size_t i, kvcl_value_holds_t *holds, uint8_t *block)
{
    kvcl_sum_t state, *sum = filling->summing ? &state : NULL;
    uint64_t   used = 0, rest;

    if (sum != NULL) {
        kvcl_sum_init(sum);
    }
    if (holds->head != NULL) {
        used = sizeof(*holds->head);
        put_bytes(sum, block, holds->head, used);
    }
    kvcl_value_read(&holds->at, block + used, holds->bytes, sum);
    used += holds->bytes;
    rest  = filling->block - used;
    memset(block + used, 0, rest);
    if (sum != NULL) {
        kvcl_sum_copy(sum, NULL, block + used, rest);
        filling->recs[i].loc.checksum = kvcl_sum_end(sum);
    }
}

static void add_piece(pieces_t *pieces, const filling_t *filling, size_t i, const void *src, void *block)
{
    const size_t at = pieces->n++;

    pieces->item[at]   = i;
    pieces->to[at]     = (struct iovec){block, filling->block};
    pieces->blocks[at] = (kvcl_weave_block_t){.src = src, .dst = &pieces->to[at], .n_dst = 1, .len = filling->block,
                                              .summing = filling->summing};
}

static void copy_pieces(pieces_t *pieces, const filling_t *filling, kvcl_bulk_how_t *how)
{
    const uint64_t begun = kvcl_bulk_part_begin(*how);
    size_t         i;

    if (pieces->n == 0) {
        return;
    }
    kvcl_blocks_copy(pieces->blocks, pieces->n, *how == KVCL_BULK_LARGE);
    *how = kvcl_bulk_part_end(*how, pieces->n * filling->block, begun);
    for (i = 0; filling->summing && (i < pieces->n); ++i) {
        filling->recs[pieces->item[i]].loc.checksum = pieces->blocks[i].sum;
    }
    pieces->n = 0;
}

/* How many pieces are copied together: few while it is not known where their bytes are. */
static size_t lot(const filling_t *filling, kvcl_bulk_how_t how)
{
    const uint64_t probe = (KVCL_BULK_PROBE + filling->block - 1) / filling->block;

    return ((how == KVCL_BULK_UNSURE) && (probe < LOT)) ? (size_t)probe : LOT;
}

void kvcl_value_fill(kvcl_store_h store, const uint32_t *slots, size_t n, kvcl_value_what_t what, void *arg,
                     kvcl_store_rec_t *recs)
{
    const kvcl_cache_h cache   = store->value_pool->cache;
    filling_t          filling = {.base = (uint8_t *)cache->bases[0], .stride = cache->shape.block_stride,
                                  .block = cache->shape.block_bytes, .recs = recs,
                                  .summing = !(store->flags & KVCL_STORE_NO_CHECKSUM)};
    kvcl_bulk_how_t    how     = kvcl_bulk_how(n * filling.block);
    kvcl_value_holds_t holds;
    pieces_t           pieces;
    const void         *src;
    uint8_t            *block;
    size_t             i;

    filling.stride = (filling.stride != 0) ? filling.stride : filling.block;
    pieces.n       = 0;
    for (i = 0; i < n; ++i) {
        holds = what(arg, i);
        block = filling.base + (slots[i] * filling.stride);
        src   = ((holds.head == NULL) && (holds.bytes == filling.block)) ? kvcl_value_piece(&holds.at, holds.bytes)
                                                                         : NULL;
        if (src == NULL) {
            fill_one(&filling, i, &holds, block);
            continue;
        }
        add_piece(&pieces, &filling, i, src, block);
        if (pieces.n == lot(&filling, how)) {
            copy_pieces(&pieces, &filling, &how);
        }
    }
    copy_pieces(&pieces, &filling, &how);
}
