/*
 * atomic_thread_fence. ThreadSanitizer does not know fences, and gcc refuses them in code that it watches: there a full
 * fence in a function that it does not watch stands in. What the fence orders must be atomic, or hidden as well.
 */
#ifndef KVCL_BASE_FENCE_H
#define KVCL_BASE_FENCE_H

#include "base/sanitizers.h"

#include <stdatomic.h>

#if KVCL_TSAN
#define kvcl_fence(_order) kvcl_fence_hidden()
__attribute__((noinline, no_sanitize("thread"))) static void kvcl_fence_hidden(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}
#else
#define kvcl_fence(_order) atomic_thread_fence(_order)
#endif

#endif
