/*
 * Cutting a buffer into a pipeline's pieces. Pure arithmetic.
 *
 * A shape's chunk is a wish: it grows until there are at most KVCL_CHUNKS_MAX pieces, which keeps a
 * plan small for any request. All ranks compute the same.
 */
#ifndef KVCL_COLLECTIVES_PATTERN_CHUNK_H
#define KVCL_COLLECTIVES_PATTERN_CHUNK_H

#include <stdint.h>

enum { KVCL_CHUNKS_MAX = 1024 };

/* Bytes of each piece but the last; len > 0. chunk 0: one piece. */
static inline uint64_t kvcl_chunk_bytes(uint64_t len, uint64_t chunk)
{
    uint64_t least = ((len - 1) / KVCL_CHUNKS_MAX) + 1;

    if ((chunk == 0) || (chunk > len)) {
        return len;
    }
    return (chunk < least) ? least : chunk;
}

#endif
