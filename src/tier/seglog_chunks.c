/*
 * The staging chunks of a log: the bytes of the open segment from their arrival until they are in the file.
 *
 * Owns: the states of the chunks up to CLOSED (seglog_io.c writes and frees them). Invariants: one chunk at most is
 * being filled, log->chunk; a chunk's serial and place are given when it is taken; a closed one is a multiple of
 * KVCL_SEG_ALIGN. Locks: none; one thread at a time.
 */
#include "config.h"
#include "tier/seglog.h"
#include "tier/seglog_parts.h"

#include <string.h>

void kvcl_seglog_close_chunk(kvcl_seglog_t *log)
{
    kvcl_seglog_chunk_t *chunk = log->chunk;
    uint64_t            len;

    if (chunk == NULL) {
        return;
    }
    len = kvcl_seg_align(chunk->len, KVCL_SEG_ALIGN);
    memset(chunk->buf + chunk->len, 0, len - chunk->len);
    chunk->len      = len;
    chunk->state    = KVCL_CHUNK_CLOSED;
    log->open->used = chunk->base + len;
    log->chunk      = NULL;
}

static kvcl_seglog_chunk_t *take_chunk(kvcl_seglog_t *log)
{
    kvcl_seglog_chunk_t *chunk = log->chunks;

    while (chunk->state != KVCL_CHUNK_FREE) {
        ++chunk; /* the caller has counted: there is one */
    }
    --log->free_chunks;
    chunk->state   = KVCL_CHUNK_FILLING;
    chunk->segment = (uint32_t)(log->open - log->segs);
    chunk->fillers = 0;
    chunk->base    = log->open->used;
    chunk->len     = 0;
    chunk->serial  = log->next_serial++;
    return chunk;
}

/* The next n bytes of the open segment: zeros, or (put) the caller's to fill. */
void kvcl_seglog_advance(kvcl_seglog_t *log, uint64_t n, kvcl_seglog_put_t *put)
{
    while (n > 0) {
        kvcl_seglog_chunk_t *chunk = (log->chunk != NULL) ? log->chunk : take_chunk(log);
        uint64_t            k      = log->chunk_bytes - chunk->len;

        k          = (k < n) ? k : n;
        log->chunk = chunk;
        if (put != NULL) {
            put->frag[put->n++] = (kvcl_seglog_frag_t){.ptr = chunk->buf + chunk->len, .len = k, .chunk = chunk};
            ++chunk->fillers;
        } else {
            memset(chunk->buf + chunk->len, 0, k);
        }
        chunk->len      += k;
        log->open->used += k;
        n               -= k;
        if (chunk->len == log->chunk_bytes) {
            kvcl_seglog_close_chunk(log);
        }
    }
}

/* Chunks that must be free for the stream of a segment to go on from `used` to `end`. */
bool kvcl_seglog_chunks_suffice(const kvcl_seglog_t *log, bool fresh, uint64_t used, uint64_t end)
{
    uint64_t need = end - used, room = (!fresh && (log->chunk != NULL)) ? log->chunk_bytes - log->chunk->len : 0;

    need = (need > room) ? need - room : 0;
    return (need + log->chunk_bytes - 1) / log->chunk_bytes <= log->free_chunks;
}

const uint8_t *kvcl_seglog_staged(const kvcl_seglog_t *log, uint32_t segment, uint64_t at, uint64_t *len_p)
{
    unsigned i;

    for (i = 0; i < log->n_chunks; ++i) {
        const kvcl_seglog_chunk_t *chunk = &log->chunks[i];

        if ((chunk->state == KVCL_CHUNK_FREE) || (chunk->segment != segment) || (chunk->base + chunk->len <= at)) {
            continue;
        }
        if (chunk->base <= at) {
            uint64_t len = chunk->base + chunk->len - at;

            *len_p = (len < *len_p) ? len : *len_p;
            return chunk->buf + (at - chunk->base);
        }
        if (chunk->base - at < *len_p) {
            *len_p = chunk->base - at;
        }
    }
    return NULL;
}
