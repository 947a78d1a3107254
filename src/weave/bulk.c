/*
 * The kernel that large copies use: the best one that this processor supports, found at the first copy.
 *
 * Invariant: `kernel` is NULL or a row of kvcl_weave_kernels, always the same. No locks: threads that find it at once
 * find the same row.
 */
#include "config.h"
#include "weave/bulk.h"

#include "base/sanitizers.h"

#include <stdatomic.h>
#include <string.h>

static const kvcl_weave_kernel_t *chosen(void)
{
    static _Atomic(const kvcl_weave_kernel_t *) kernel;
    const kvcl_weave_kernel_t                   *found = atomic_load_explicit(&kernel, memory_order_relaxed);

    if (found == NULL) {
        found = kvcl_weave_best();
        atomic_store_explicit(&kernel, found, memory_order_relaxed);
    }
    return found;
}

void kvcl_bulk_copy(const kvcl_weave_piece_t *pieces, size_t n)
{
    size_t i;

    if (!KVCL_TSAN) {
        kvcl_weave_copy(chosen(), KVCL_WEAVE_MOST, pieces, n);
        return;
    }
    for (i = 0; i < n; ++i) {
        memcpy(pieces[i].dst, pieces[i].src, pieces[i].len);
    }
}

void kvcl_bulk_end(void)
{
    chosen()->end();
}
