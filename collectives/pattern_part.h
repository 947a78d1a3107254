/*
 * Cutting elements into one part for each rank, and a part into pieces. Pure arithmetic; all ranks compute the same.
 *
 * Parts differ by one element at most. Pieces are whole elements, of at most the shape's chunk, unless that makes more
 * than kvcl_part_most() of them: that bounds a plan of many ranks.
 */
#ifndef KVCL_COLLECTIVES_PATTERN_PART_H
#define KVCL_COLLECTIVES_PATTERN_PART_H

#include "collectives/coll.h"

#include <stdint.h>

enum { KVCL_PART_PIECES = 4096, KVCL_PART_PIECES_LEAST = 64 };

/* At most so many pieces a part: the fewer, the more ranks. */
static inline uint64_t kvcl_part_most(uint32_t size)
{
    const uint64_t most = 2 * KVCL_PART_PIECES / size;

    return (most < KVCL_PART_PIECES_LEAST) ? KVCL_PART_PIECES_LEAST
                                           : ((most < KVCL_PART_PIECES) ? most : KVCL_PART_PIECES);
}

typedef struct kvcl_part {
    uint64_t off;
    uint64_t len;
    uint64_t piece; /* bytes of each piece but the last */
} kvcl_part_t;

/* len bytes at off, cut into pieces. */
static inline kvcl_part_t kvcl_part_cut(const kvcl_coll_shape_t *shape, uint64_t off, uint64_t len)
{
    uint64_t elem  = (shape->elem > 0) ? shape->elem : 1;
    uint64_t n    = (shape->chunk == 0) ? 1 : ((len / shape->chunk) + (len % shape->chunk > 0));
    uint64_t most = kvcl_part_most(shape->size), all = len / elem;

    n = (n > most) ? most : ((n > 0) ? n : 1);
    return (kvcl_part_t){.off = off, .len = len, .piece = ((all / n) + (all % n > 0)) * elem};
}

/* The part of rank i of a buffer of shape->len bytes. */
static inline kvcl_part_t kvcl_part_of(const kvcl_coll_shape_t *shape, uint32_t i)
{
    uint64_t elem = (shape->elem > 0) ? shape->elem : 1;
    uint64_t n = shape->len / elem, each = n / shape->size, more = n % shape->size;
    uint64_t from = (each * i) + ((i < more) ? i : more);

    return kvcl_part_cut(shape, from * elem, (each + (i < more)) * elem);
}

static inline uint32_t kvcl_part_pieces(const kvcl_part_t *part)
{
    return (part->len == 0) ? 0 : (uint32_t)(((part->len - 1) / part->piece) + 1);
}

/* Piece j, below kvcl_part_pieces. */
static inline uint64_t kvcl_part_piece(const kvcl_part_t *part, uint32_t j, uint64_t *off_p)
{
    uint64_t at = j * part->piece;

    *off_p = part->off + at;
    return (part->len - at < part->piece) ? (part->len - at) : part->piece;
}

#endif
