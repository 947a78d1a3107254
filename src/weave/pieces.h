/*
 * The copies of payload that rooms call: a length that is known only when the program runs is copied here, so that one
 * place decides how (test/check_copies.sh). Lists of large transfers go to kvcl_bulk_copy() (bulk.h).
 *
 * No lock; any thread.
 */
#ifndef KVCL_WEAVE_PIECES_H
#define KVCL_WEAVE_PIECES_H

#include "weave/bulk.h"

#include <string.h>

/** kvcl_copy_bytes() of a transfer that may be large. */
void kvcl_copy_long(void *dst, const void *src, size_t len);

/** Copy @a len bytes that do not overlap: past the caches if they are a large transfer. 0: dst and src may be NULL. */
static inline void kvcl_copy_bytes(void *dst, const void *src, size_t len)
{
    if (kvcl_bulk_how(len) != KVCL_BULK_CACHED) {
        kvcl_copy_long(dst, src, len);
    } else if (len > 0) {
        memcpy(dst, src, len);
    }
}

/** The same where dst and src overlap, of bytes that are no large transfer: the rest of a buffer to its beginning. */
static inline void kvcl_move_bytes(void *dst, const void *src, size_t len)
{
    if (len > 0) {
        memmove(dst, src, len);
    }
}

/* Which first lines of a piece are prefetched while those before it are copied: at pieces of 1 KiB in random order 1.4
 * times as fast; from 16 KiB on the processor's own prefetching suffices. */
typedef enum { KVCL_AHEAD_NONE, KVCL_AHEAD_SRC, KVCL_AHEAD_DST } kvcl_ahead_t;
enum { KVCL_AHEAD = 3, KVCL_AHEAD_BYTES = 512 };

static inline void kvcl_prefetch_piece(const kvcl_weave_piece_t *piece, kvcl_ahead_t ahead)
{
    size_t i, len = (piece->len < KVCL_AHEAD_BYTES) ? piece->len : KVCL_AHEAD_BYTES;

    for (i = 0; i < len; i += KVCL_WEAVE_LINE) {
        if (ahead == KVCL_AHEAD_DST) {
            __builtin_prefetch((char *)piece->dst + i, 1);
        } else {
            __builtin_prefetch((const char *)piece->src + i, 0);
        }
    }
}

/** Copy @a n pieces that are not of a large transfer, one after the other, through the caches. */
static inline void kvcl_copy_pieces(const kvcl_weave_piece_t *pieces, size_t n, kvcl_ahead_t ahead)
{
    size_t i;

    for (i = 0; i < n; ++i) {
        if ((ahead != KVCL_AHEAD_NONE) && (i + KVCL_AHEAD < n)) {
            kvcl_prefetch_piece(&pieces[i + KVCL_AHEAD], ahead);
        }
        memcpy(pieces[i].dst, pieces[i].src, pieces[i].len);
    }
}

#endif
