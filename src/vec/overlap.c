/*
 * The check of overlap.h: pieces in the order of their addresses, so that only neighbours can overlap first. The sort
 * goes by the bytes of the addresses in which they differ, usually three: a few ns a piece. No state.
 */
#include "config.h"
#include "vec/overlap.h"
#include "base/error.h"

#include <stdlib.h>

typedef struct spot {
    uint64_t addr;
    uint32_t index;
} spot_t;

static kvcl_status_t neighbours(const kvcl_vec_t *pieces, size_t a, size_t b, size_t *i_p, size_t *j_p)
{
    if ((uintptr_t)pieces[b].addr - (uintptr_t)pieces[a].addr >= pieces[a].len) {
        return KVCL_OK;
    }
    *i_p = (a < b) ? a : b;
    *j_p = (a < b) ? b : a;
    return KVCL_ERR_INVALID_PARAM;
}

/* By one byte of the addresses; stable. */
static void sort_by(const spot_t *from, spot_t *to, size_t n, unsigned shift)
{
    size_t at[257] = {0}, i;

    for (i = 0; i < n; ++i) {
        ++at[((from[i].addr >> shift) & 255) + 1];
    }
    for (i = 1; i < 256; ++i) {
        at[i] += at[i - 1];
    }
    for (i = 0; i < n; ++i) {
        to[at[(from[i].addr >> shift) & 255]++] = from[i];
    }
}

/* Both have room for n; the sorted one is returned. */
static const spot_t *sort(const kvcl_vec_t *pieces, size_t n, spot_t *from, spot_t *to)
{
    uint64_t differ = 0;
    unsigned shift;
    spot_t   *other;
    size_t   i;

    for (i = 0; i < n; ++i) {
        from[i] = (spot_t){(uintptr_t)pieces[i].addr, (uint32_t)i};
        differ |= from[i].addr ^ from[0].addr;
    }
    for (shift = 0; shift < 64; shift += 8) {
        if (((differ >> shift) & 255) != 0) {
            sort_by(from, to, n, shift);
            other = from;
            from  = to;
            to    = other;
        }
    }
    return from;
}

kvcl_status_t kvcl_vec_overlap(const kvcl_vec_t *pieces, size_t n, size_t *i_p, size_t *j_p)
{
    kvcl_status_t status = KVCL_OK;
    const spot_t  *sorted;
    spot_t        *spots;
    size_t        i;

    for (i = 1; (i < n) && ((uintptr_t)pieces[i - 1].addr <= (uintptr_t)pieces[i].addr); ++i) {
        if ((status = neighbours(pieces, i - 1, i, i_p, j_p)) != KVCL_OK) {
            return status;
        }
    }
    if (i >= n) {
        return KVCL_OK;
    }
    spots = malloc(2 * n * sizeof(*spots));
    if (spots == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %zu pieces", n);
    }
    sorted = sort(pieces, n, spots, spots + n);
    for (i = 1; (i < n) && (status == KVCL_OK); ++i) {
        status = neighbours(pieces, sorted[i - 1].index, sorted[i].index, i_p, j_p);
    }
    free(spots);
    return status;
}
