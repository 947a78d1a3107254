/*
 * One piece that may be a large transfer (pieces.h). Owns nothing; no locks.
 */
#include "config.h"
#include "weave/pieces.h"

void kvcl_copy_long(void *dst, const void *src, size_t len)
{
    kvcl_bulk_how_t    how   = kvcl_bulk_how(len);
    kvcl_weave_piece_t piece = {dst, src, len};
    uint64_t           begun;

    if (how == KVCL_BULK_UNSURE) {
        begun     = kvcl_bulk_part_begin(how);
        piece.len = (len < KVCL_BULK_PROBE) ? len : KVCL_BULK_PROBE;
        kvcl_copy_pieces(&piece, 1, KVCL_AHEAD_NONE);
        how       = kvcl_bulk_part_end(how, piece.len, begun);
        piece     = (kvcl_weave_piece_t){(char *)dst + piece.len, (const char *)src + piece.len, len - piece.len};
    }
    if (how == KVCL_BULK_LARGE) {
        kvcl_bulk_copy(&piece, 1);
        kvcl_bulk_end();
    } else {
        kvcl_copy_pieces(&piece, 1, KVCL_AHEAD_NONE);
    }
}
