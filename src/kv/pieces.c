/*
 * Lists of pieces (pieces.h): the stream over one, and its form on the wire.
 *
 * Invariants: a list never has more pieces than it was made for, plus the end; its positions rise. No state, no locks.
 */
#include "kv/pieces.h"

#include <stdlib.h>
#include <string.h>

kvcl_pieces_t *kvcl_pieces_new(size_t n)
{
    kvcl_pieces_t *pieces = NULL;

    if (n < (SIZE_MAX - sizeof(*pieces)) / sizeof(pieces->at[0])) {
        pieces = malloc(sizeof(*pieces) + ((n + 1) * sizeof(pieces->at[0])));
    }
    if (pieces != NULL) {
        pieces->given = pieces->n = 0;
        pieces->at[0] = (kvcl_piece_at_t){0, 0};
    }
    return pieces;
}

void kvcl_pieces_move(kvcl_pieces_t *pieces, uintptr_t base)
{
    size_t i;

    for (i = 0; i < pieces->n; ++i) {
        pieces->at[i].addr += base;
    }
}

/* To byte pos, which is in piece i. */
static void piece_to(kvcl_stream_t *s, size_t i, uint64_t pos)
{
    const kvcl_piece_at_t *piece = &s->pieces->at[i];

    s->at_block  = i;
    s->addr      = s->start + piece->addr + (pos - piece->pos);
    s->left      = piece[1].pos - pos;
    s->runs_left = s->total_bytes - piece[1].pos;
}

void kvcl_pieces_next(kvcl_stream_t *s)
{
    piece_to(s, s->at_block + 1, s->pieces->at[s->at_block + 1].pos);
}

/* The last piece that does not begin behind pos. */
void kvcl_pieces_seek(kvcl_stream_t *s, uint64_t pos)
{
    size_t first = 0, end = s->pieces->n, middle;

    while (end - first > 1) {
        middle = first + ((end - first) / 2);
        if (s->pieces->at[middle].pos <= pos) {
            first = middle;
        } else {
            end = middle;
        }
    }
    piece_to(s, first, pos);
}

void kvcl_stream_pieces(kvcl_stream_t *stream, const kvcl_pieces_t *pieces, uintptr_t base)
{
    const uint64_t total = kvcl_pieces_bytes(pieces);

    memset(stream, 0, sizeof(*stream));
    stream->pieces      = pieces;
    stream->start       = base;
    stream->run_bytes   = 1; /* so that runs_left counts the bytes behind the current piece */
    stream->total_bytes = total;
    stream->block_bytes = total / pieces->n;
    stream->order       = KVCL_STREAM_CANONICAL;
    piece_to(stream, 0, 0);
}

void kvcl_pieces_encode(const kvcl_pieces_t *pieces, void *out)
{
    char   *at = out;
    size_t i;

    for (i = 0; i < pieces->n; ++i) {
        kvcl_wire_piece_t one = {.offset = pieces->at[i].addr, .len = pieces->at[i + 1].pos - pieces->at[i].pos};
        memcpy(at + (i * sizeof(one)), &one, sizeof(one)); /* the payload may be unaligned */
    }
}

kvcl_status_t kvcl_pieces_decode(const void *data, size_t len, uint64_t n, uint64_t region_len, uint64_t total,
                                 kvcl_pieces_t **pieces_p)
{
    kvcl_status_t     status = KVCL_OK;
    kvcl_wire_piece_t one;
    kvcl_pieces_t     *pieces;
    size_t            i;

    if ((n == 0) || (n > len / sizeof(one))) {
        return KVCL_ERR_PROTOCOL;
    }
    pieces = kvcl_pieces_new((size_t)n);
    if (pieces == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        memcpy(&one, (const char *)data + (i * sizeof(one)), sizeof(one));
        if (one.len == 0) {
            status = KVCL_ERR_PROTOCOL;
        } else if ((one.offset > region_len) || (one.len > region_len - one.offset)) {
            status = KVCL_ERR_OUT_OF_RANGE;
        } else if (!kvcl_pieces_add(pieces, one.offset, one.len)) {
            status = KVCL_ERR_PROTOCOL;
        }
    }
    if ((status == KVCL_OK) && (kvcl_pieces_bytes(pieces) != total)) {
        status = KVCL_ERR_TRUNCATED;
    }
    if (status != KVCL_OK) {
        free(pieces);
        return status;
    }
    *pieces_p = pieces;
    return KVCL_OK;
}
