/*
 * Assigns the pieces of a list to the lanes of a woven copy (weave.h).
 *
 * Invariants: the lanes [0, busy) have a destination that is a multiple of 64 and at least one step left; no byte
 * outside the pieces is read or written. memcpy copies the unaligned head and the tail of a piece, and a piece shorter
 * than KVCL_WEAVE_SHORT. Where no piece is left for a lane, the longest rest is cut in two.
 * No locks.
 */
#include "config.h"
#include "weave/weave.h"

#include <stdint.h>
#include <string.h>

enum {
    CUT_MIN     = 2 * KVCL_WEAVE_STEP, /* a rest is cut if each half has this many bytes */
    AHEAD       = 4,                   /* the first bytes of this piece after the current one are prefetched: pieces */
    AHEAD_BYTES = 256,                 /* of 4 KiB in random order are copied 1.08 times as fast; into the second */
    TO_L2       = 2                    /* cache, which at 1 KiB is 1.05 times as fast as into the first */
};

typedef struct lanes {
    char       *dst[KVCL_WEAVE_MOST];
    const char *src[KVCL_WEAVE_MOST];
    size_t     left[KVCL_WEAVE_MOST];
    unsigned   busy;
} lanes_t;

/* The first lines of a piece, and with them its page's address. */
static inline void prefetch(const kvcl_weave_piece_t *piece)
{
    size_t i, len = (piece->len < AHEAD_BYTES) ? piece->len : AHEAD_BYTES;

    for (i = 0; i < len; i += KVCL_WEAVE_LINE) {
        __builtin_prefetch((const char *)piece->src + i, 0, TO_L2);
    }
}

/* The next piece as a lane, or copied at once if it is short. */
static void take(lanes_t *lanes, const kvcl_weave_piece_t *piece, size_t n_after)
{
    const char *src = (const char *)piece->src;
    char       *dst = (char *)piece->dst;
    size_t     head = (0 - (uintptr_t)dst) & (KVCL_WEAVE_LINE - 1);

    if (n_after >= AHEAD) {
        prefetch(piece + AHEAD);
    }
    if (piece->len < KVCL_WEAVE_SHORT) {
        if (piece->len > 0) {
            memcpy(dst, src, piece->len);
        }
        return;
    }
    if (head > 0) {
        memcpy(dst, src, head);
    }
    lanes->dst[lanes->busy]  = dst + head;
    lanes->src[lanes->busy]  = src + head;
    lanes->left[lanes->busy] = piece->len - head;
    ++lanes->busy;
}
_Static_assert(KVCL_WEAVE_SHORT >= KVCL_WEAVE_STEP + KVCL_WEAVE_LINE, "a lane begins with a whole step");

static void move(lanes_t *lanes, unsigned lane, size_t bytes)
{
    lanes->dst[lane] += bytes;
    lanes->src[lane] += bytes;
    lanes->left[lane] -= bytes;
}

/* Copies the rest of a lane; the last lane takes its place. */
static void finish(const kvcl_weave_kernel_t *kernel, lanes_t *lanes, unsigned lane)
{
    const size_t whole = lanes->left[lane] & ~(size_t)(KVCL_WEAVE_LINE - 1);
    unsigned     last  = --lanes->busy;

    kernel->one(&lanes->dst[lane], &lanes->src[lane], whole);
    move(lanes, lane, whole);
    if (lanes->left[lane] > 0) {
        memcpy(lanes->dst[lane], lanes->src[lane], lanes->left[lane]);
    }
    lanes->dst[lane]  = lanes->dst[last];
    lanes->src[lane]  = lanes->src[last];
    lanes->left[lane] = lanes->left[last];
}

/* Cut the longest rest in two. @return false: it is too short. */
static bool cut(lanes_t *lanes)
{
    unsigned long_one = 0, i;
    size_t   half;

    for (i = 1; i < lanes->busy; ++i) {
        long_one = (lanes->left[i] > lanes->left[long_one]) ? i : long_one;
    }
    half = (lanes->left[long_one] / 2) & ~(size_t)(KVCL_WEAVE_STEP - 1);
    if (half < CUT_MIN) {
        return false;
    }
    lanes->dst[lanes->busy]  = lanes->dst[long_one] + half;
    lanes->src[lanes->busy]  = lanes->src[long_one] + half;
    lanes->left[lanes->busy] = lanes->left[long_one] - half;
    lanes->left[long_one]    = half;
    ++lanes->busy;
    return true;
}

/* All lanes by as many steps as the shortest one has, then the rest of those that are at their ends. */
static void weave(kvcl_weave_fn_t copy, const kvcl_weave_kernel_t *kernel, lanes_t *lanes)
{
    size_t   bytes = lanes->left[0];
    unsigned i;

    for (i = 1; i < lanes->busy; ++i) {
        bytes = (lanes->left[i] < bytes) ? lanes->left[i] : bytes;
    }
    bytes &= ~(size_t)(KVCL_WEAVE_STEP - 1);
    copy(lanes->dst, lanes->src, bytes);
    for (i = lanes->busy; i-- > 0;) {
        move(lanes, i, bytes);
        if (lanes->left[i] < KVCL_WEAVE_STEP) {
            finish(kernel, lanes, i);
        }
    }
}

void kvcl_weave_copy(const kvcl_weave_kernel_t *kernel, unsigned width, const kvcl_weave_piece_t *pieces, size_t n)
{
    kvcl_weave_fn_t copy  = (width >= 4) ? kernel->four : kernel->two;
    lanes_t         lanes = {.busy = 0};
    size_t          next  = 0;

    width = (width >= 4) ? 4 : ((width >= 2) ? 2 : 1);
    for (;;) {
        while ((lanes.busy < width) && (next < n)) {
            take(&lanes, &pieces[next], n - 1 - next);
            ++next;
        }
        while ((lanes.busy > 0) && (lanes.busy < width) && cut(&lanes)) {
        }
        if ((lanes.busy < width) || (width == 1)) {
            break;
        }
        weave(copy, kernel, &lanes);
    }
    for (;;) {
        while (lanes.busy > 0) {
            finish(kernel, &lanes, lanes.busy - 1);
        }
        if (next == n) {
            return;
        }
        take(&lanes, &pieces[next], n - 1 - next);
        ++next;
    }
}
