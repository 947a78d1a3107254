/*
 * Plain memory as a stream of one run, so that transfers handle streams only.
 */
#ifndef KVCL_KV_FLAT_H
#define KVCL_KV_FLAT_H

#include "kv/runs.h"

static inline void kvcl_stream_flat(kvcl_stream_t *stream, const void *buf, uint64_t len)
{
    static const uintptr_t zero;

    *stream = (kvcl_stream_t){.bases = &zero, .run_bytes = len, .total_bytes = len, .block_bytes = len,
                              .start = (uintptr_t)buf, .order = KVCL_STREAM_CANONICAL};
    kvcl_stream_seek(stream, 0);
}

#endif
