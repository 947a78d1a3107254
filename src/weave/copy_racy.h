/*
 * memcpy of bytes that their owner may be writing at the same time. The caller must check afterwards whether the owner
 * wrote (a generation: dir/slots.h) and drop the copy in that case; no other code may use this function. The race is
 * intended, so ThreadSanitizer does not see these reads; it sees the writes to the destination.
 */
#ifndef KVCL_WEAVE_COPY_RACY_H
#define KVCL_WEAVE_COPY_RACY_H

#include "base/sanitizers.h"

#include <stddef.h>
#include <string.h>

#if KVCL_TSAN

void __tsan_write_range(void *addr, long size);

/* Bytes, volatile: the sanitizer watches every memcpy, and gcc makes one of a plain loop. */
__attribute__((noinline, no_sanitize("thread"))) static void kvcl_copy_racy(void *dst, const void *src, size_t len)
{
    const volatile unsigned char *from = (const volatile unsigned char *)src;
    volatile unsigned char       *to   = (volatile unsigned char *)dst;
    size_t                       i;

    __tsan_write_range(dst, (long)len);
    for (i = 0; i < len; ++i) {
        to[i] = from[i];
    }
}

#else

static inline void kvcl_copy_racy(void *dst, const void *src, size_t len)
{
    memcpy(dst, src, len);
}

#endif

#endif
