/*
 * The order of the log's writes, and the effect of their completions.
 *
 * A chunk is written as soon as it is closed and filled, in any order, with its segment's OPEN trailer. A footer is
 * written once a sync has covered every write of its segment. A sync is issued when one of these waits for it, and all
 * that it waits for is written: a flush, a draining segment, a newly opened segment, or the oldest segment, which must
 * not be used again before its footer is safe. One sync is in flight at a time; it covers what was written when it
 * began.
 */
#include "config.h"

#include "tier/seglog.h"

#include <stdlib.h>
#include <string.h>

static bool next_trailer(kvcl_seglog_t *log, kvcl_seglog_io_t *io)
{
    kvcl_seglog_seg_t *seg;

    if (kvcl_list_is_empty(&log->due)) {
        return false;
    }
    seg = kvcl_container_of(kvcl_list_pop(&log->due), kvcl_seglog_seg_t, due);
    *io = (kvcl_seglog_io_t){.kind   = KVCL_SEGLOG_WRITE,
                             .buf    = seg->buf,
                             .len    = seg->buf_len,
                             .serial = seg->buf_serial,
                             .seg    = seg};
    io->off = kvcl_seg_base(&log->super, (uint32_t)(seg - log->segs)) + log->super.segment - seg->buf_len;
    return true;
}

static bool next_chunk(kvcl_seglog_t *log, kvcl_seglog_io_t *io)
{
    kvcl_seglog_chunk_t *first = NULL;
    unsigned            i;

    for (i = 0; i < log->n_chunks; ++i) {
        kvcl_seglog_chunk_t *chunk = &log->chunks[i];

        if ((chunk->state == KVCL_CHUNK_CLOSED) && (chunk->fillers == 0) &&
            ((first == NULL) || (chunk->serial < first->serial))) {
            first = chunk;
        }
    }
    if (first == NULL) {
        return false;
    }
    first->state = KVCL_CHUNK_WRITING;
    *io          = (kvcl_seglog_io_t){.kind   = KVCL_SEGLOG_WRITE,
                                      .off    = kvcl_seg_base(&log->super, first->segment) + first->base,
                                      .buf    = first->buf,
                                      .len    = first->len,
                                      .serial = first->serial,
                                      .chunk  = first};
    return true;
}

/* The oldest segment that drains; footers are made in order. */
static kvcl_seglog_seg_t *draining(const kvcl_seglog_t *log)
{
    kvcl_seglog_seg_t *seg;

    kvcl_list_foreach(seg, &log->fifo, kvcl_seglog_seg_t, link) {
        if (seg->state == KVCL_SEGLOG_DRAINING) {
            return seg;
        }
    }
    return NULL;
}

static void make_footers(kvcl_seglog_t *log)
{
    kvcl_seglog_seg_t *seg;

    while (((seg = draining(log)) != NULL) && (log->durable >= seg->last) &&
           (log->next_serial - log->written < KVCL_SEGLOG_WINDOW - 1)) {
        seg->buf = aligned_alloc(KVCL_SEG_ALIGN, kvcl_seg_footer_bytes(seg->n));
        if (seg->buf == NULL) {
            return; /* repeated with the next I/O */
        }
        kvcl_seg_footer_put(&log->super, (uint32_t)(seg - log->segs), seg->use, seg->recs, seg->n, seg->buf,
                            &seg->buf_len);
        seg->state      = KVCL_SEGLOG_CLOSING;
        seg->buf_serial = log->next_serial++;
        kvcl_list_add_tail(&log->due, &seg->due);
    }
}

/* A requested ticket that is written and not durable yet. */
static bool is_due(const kvcl_seglog_t *log, uint64_t ticket)
{
    return (ticket <= log->written) && (ticket > log->durable);
}

static bool next_sync(kvcl_seglog_t *log, kvcl_seglog_io_t *io)
{
    const kvcl_seglog_seg_t *drains = draining(log), *oldest = NULL;

    if (!kvcl_list_is_empty(&log->fifo)) {
        oldest = kvcl_list_head(&log->fifo, kvcl_seglog_seg_t, link);
    }
    if ((log->sync_upto != 0) ||
        !(is_due(log, log->want) || is_due(log, log->opened) || ((drains != NULL) && is_due(log, drains->last)) ||
          ((oldest != NULL) && (oldest->state == KVCL_SEGLOG_SEALED) && is_due(log, oldest->last)))) {
        return false;
    }
    log->sync_upto = log->written;
    *io            = (kvcl_seglog_io_t){.kind = KVCL_SEGLOG_SYNC, .serial = log->written};
    return true;
}

bool kvcl_seglog_next(kvcl_seglog_t *log, kvcl_seglog_io_t *io)
{
    if (log->off) {
        return false;
    }
    make_footers(log);
    if (next_trailer(log, io) || next_chunk(log, io)) {
        log->bytes_out += io->len;
        return true;
    }
    return next_sync(log, io);
}

static void sync_done(kvcl_seglog_t *log, bool ok)
{
    if (ok) {
        log->durable = log->sync_upto;
        if ((log->want != 0) && (log->want <= log->durable)) {
            log->want      = (log->want_next > log->durable) ? log->want_next : 0;
            log->want_next = 0;
        }
    }
    log->sync_upto = 0;
}

void kvcl_seglog_done(kvcl_seglog_t *log, const kvcl_seglog_io_t *io, bool ok)
{
    log->off = log->off || !ok;
    if (io->kind == KVCL_SEGLOG_SYNC) {
        sync_done(log, ok);
        return;
    }
    if (io->chunk != NULL) {
        io->chunk->state = KVCL_CHUNK_FREE;
        ++log->free_chunks;
    } else {
        free(io->seg->buf);
        io->seg->buf = NULL;
        if (io->seg->state == KVCL_SEGLOG_CLOSING) {
            io->seg->state = KVCL_SEGLOG_SEALED;
            io->seg->last  = io->serial + 1;
        }
    }
    if (log->off) {
        return; /* the log stops: bytes written so far stay valid, and no further ones are written */
    }
    log->ended[io->serial % KVCL_SEGLOG_WINDOW] = 1;
    while (log->ended[log->written % KVCL_SEGLOG_WINDOW]) {
        log->ended[log->written % KVCL_SEGLOG_WINDOW] = 0;
        ++log->written;
    }
}

bool kvcl_seglog_idle(const kvcl_seglog_t *log)
{
    const kvcl_seglog_seg_t *seg;
    unsigned                i;

    kvcl_list_foreach(seg, &log->fifo, kvcl_seglog_seg_t, link) {
        if ((seg->buf != NULL) || (seg->state == KVCL_SEGLOG_DRAINING)) {
            return false;
        }
    }
    for (i = 0; i < log->n_chunks; ++i) {
        if (log->chunks[i].state >= KVCL_CHUNK_CLOSED) {
            return false;
        }
    }
    return (log->sync_upto == 0) && (log->want == 0);
}

bool kvcl_seglog_check(const kvcl_seglog_t *log)
{
    uint64_t live = 0, live_bytes = 0;
    uint32_t i, j, n_live, n_free = 0;

    for (i = 0; i < log->n_chunks; ++i) {
        n_free += log->chunks[i].state == KVCL_CHUNK_FREE;
    }
    for (i = 0; i < log->super.n; ++i) {
        const kvcl_seglog_seg_t *seg = &log->segs[i];
        uint64_t                at   = 0;

        for (j = 0, n_live = 0; j < seg->n; ++j) {
            const kvcl_seg_rec_t *rec  = &seg->recs[j];
            uint64_t             begin = (uint64_t)(rec->unit & ~KVCL_SEG_DEAD) * KVCL_SEG_UNIT;
            kvcl_tier_loc_t      loc;

            if (begin < at + KVCL_SEG_UNIT) {
                return false;
            }
            at = begin + kvcl_seg_bytes(&log->super, rec->len);
            if (!(rec->unit & KVCL_SEG_DEAD) && (rec->len > 0)) {
                ++n_live;
                live_bytes += rec->len;
                if ((kvcl_seglog_find(log, rec->key, &loc) != KVCL_OK) || (loc.segment != i) ||
                    (loc.unit != rec->unit)) {
                    return false;
                }
            }
        }
        live += n_live;
        if ((n_live != seg->live) ||
            (kvcl_seg_align(at, KVCL_SEG_ALIGN) + kvcl_seg_footer_bytes(seg->n) > log->super.segment)) {
            return false;
        }
    }
    return (live == kvcl_map_count(&log->index)) && (live_bytes == log->live_bytes) && (n_free == log->free_chunks) &&
           (log->durable <= log->written) && (log->written <= log->next_serial);
}
