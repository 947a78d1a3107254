/*
 * Pieces: a list of (address, length), each of its own length, as a stream (stream.h). For transfers whose pieces lie
 * at any offsets of plain memory, where no layout names them.
 *
 * Owns: the list and its positions, in memory of its own, and the form in which a list is sent. Neighbours that touch
 * are one piece. Pure: the addresses are not accessed. No locks; a finished list is constant, so any number of streams
 * may walk it. It must outlive them.
 */
#ifndef KVCL_KV_PIECES_H
#define KVCL_KV_PIECES_H

#include "kv/stream.h"

#include <stdbool.h>

typedef struct kvcl_piece_at {
    uint64_t addr; /* or an offset, see kvcl_stream_pieces() */
    uint64_t pos;  /* of its first byte in the stream */
} kvcl_piece_at_t;

typedef struct kvcl_pieces {
    size_t given; /* added */
    size_t n;     /* after joining neighbours */
    kvcl_piece_at_t at[]; /* n + 1: the last one's pos is the sum of all lengths */
} kvcl_pieces_t;

/* As it is sent, little-endian. */
typedef struct kvcl_wire_piece {
    uint64_t offset; /* in the region that the message names */
    uint64_t len;    /* > 0 */
} kvcl_wire_piece_t;
_Static_assert(sizeof(kvcl_wire_piece_t) == 16, "wire format");

/** An empty list with room for @a n pieces. NULL: no memory. Free it with free(). */
kvcl_pieces_t *kvcl_pieces_new(size_t n);

/** Append a piece, of @a len > 0. @return false: the sum of the lengths would exceed 63 bits; nothing was added. */
static inline bool kvcl_pieces_add(kvcl_pieces_t *pieces, uint64_t addr, uint64_t len)
{
    kvcl_piece_at_t *end = &pieces->at[pieces->n];
    const uint64_t  pos  = end->pos;

    if (len > (UINT64_MAX / 2) - pos) {
        return false;
    }
    ++pieces->given;
    if ((pieces->n == 0) || (end[-1].addr + (pos - end[-1].pos) != addr)) {
        end->addr = addr;
        ++pieces->n;
        ++end;
    }
    end->pos = pos + len;
    return true;
}

static inline uint64_t kvcl_pieces_bytes(const kvcl_pieces_t *pieces)
{
    return pieces->at[pieces->n].pos;
}

/** Add @a base to each address, which makes offsets addresses. */
void kvcl_pieces_move(kvcl_pieces_t *pieces, uintptr_t base);

/** A stream at position 0 of a list that is not empty; base is added to each address. */
void kvcl_stream_pieces(kvcl_stream_t *stream, const kvcl_pieces_t *pieces, uintptr_t base);

/* For stream.c: to byte pos, before the end; to the next piece, which there is. */
void kvcl_pieces_seek(kvcl_stream_t *stream, uint64_t pos);
void kvcl_pieces_next(kvcl_stream_t *stream);

/** The wire form of a list, kvcl_wire_piece_t each; room for pieces->n at @a out. */
void kvcl_pieces_encode(const kvcl_pieces_t *pieces, void *out);

/**
 * Decode hostile bytes: @a n pieces in the first n * 16 of @a len bytes. Each must lie in a region of @a region_len
 * bytes, and all of them together must have @a total bytes. Their addresses are offsets.
 * @return KVCL_OK: *pieces_p is the caller's. KVCL_ERR_PROTOCOL (more than len, none, a length of 0),
 *         KVCL_ERR_OUT_OF_RANGE, KVCL_ERR_TRUNCATED (another total), KVCL_ERR_NO_MEMORY; without a sentence.
 */
kvcl_status_t kvcl_pieces_decode(const void *data, size_t len, uint64_t n, uint64_t region_len, uint64_t total,
                                 kvcl_pieces_t **pieces_p) KVCL_MUST_CHECK;

#endif
