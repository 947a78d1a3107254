/*
 * The log's state: its segments, and a place for each record. Which segment is open, which one is opened again and
 * loses its records, how a record is reserved, committed or aborted.
 *
 * The bytes on their way to the file are in seglog_chunks.c, the keys in seglog_index.c, the order of writes in
 * seglog_io.c. Invariant: a record that is reserved and not committed carries KVCL_SEG_DEAD, so no lookup finds it.
 * Locks: none; one thread at a time.
 */
#include "config.h"
#include "tier/seglog.h"
#include "tier/seglog_parts.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

kvcl_status_t kvcl_seglog_init(kvcl_seglog_t *log, const kvcl_seg_super_t *super, uint32_t life, uint8_t *staging,
                               unsigned n_chunks, uint64_t chunk_bytes)
{
    uint32_t i;

    memset(log, 0, sizeof(*log));
    if ((n_chunks < 2) || (n_chunks > KVCL_SEGLOG_CHUNKS_MAX) || (chunk_bytes == 0) ||
        (chunk_bytes % KVCL_SEG_ALIGN != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a segment log takes 2 to %d chunks of a multiple of %d bytes",
                         KVCL_SEGLOG_CHUNKS_MAX, KVCL_SEG_ALIGN);
    }
    log->super       = *super;
    log->life        = life;
    log->hash_seed   = super->id ^ (life * UINT64_C(0x9e3779b97f4a7c15));
    log->n_chunks    = n_chunks;
    log->free_chunks = n_chunks;
    log->chunk_bytes = chunk_bytes;
    log->next_seq    = 1;
    log->next_serial = 1;
    log->written     = 1;
    log->durable     = 1;
    kvcl_map_init(&log->index);
    kvcl_list_init(&log->free);
    kvcl_list_init(&log->fifo);
    kvcl_list_init(&log->due);
    log->segs = calloc(super->n, sizeof(*log->segs));
    if (log->segs == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %u segments", super->n);
    }
    for (i = 0; i < super->n; ++i) {
        kvcl_list_init(&log->segs[i].due);
        kvcl_list_add_tail(&log->free, &log->segs[i].link);
    }
    for (i = 0; i < n_chunks; ++i) {
        log->chunks[i].buf = staging + i * chunk_bytes;
    }
    return KVCL_OK;
}

void kvcl_seglog_fini(kvcl_seglog_t *log)
{
    kvcl_seglog_evicted_t *evicted;
    uint32_t              i;

    for (i = 0; (log->segs != NULL) && (i < log->super.n); ++i) {
        free(log->segs[i].recs);
        free(log->segs[i].buf);
    }
    free(log->segs);
    log->segs = NULL;
    while ((evicted = log->evicted) != NULL) {
        log->evicted = evicted->next;
        free(evicted->recs);
        free(evicted);
    }
    kvcl_map_fini(&log->index);
}

/* The longest record. */
static uint64_t len_max(const kvcl_seglog_t *log)
{
    uint64_t by_segment = log->super.segment / 2, by_chunks = (log->n_chunks - 1) * log->chunk_bytes - KVCL_SEG_ALIGN;

    return ((by_segment < by_chunks) ? by_segment : by_chunks) - log->super.tail;
}

void kvcl_seglog_seal(kvcl_seglog_t *log)
{
    if (log->open != NULL) {
        kvcl_seglog_close_chunk(log);
        log->open->state = KVCL_SEGLOG_DRAINING;
        log->open->last  = log->next_serial;
        log->open        = NULL;
    }
}

uint64_t kvcl_seglog_flush(kvcl_seglog_t *log)
{
    uint64_t ticket;

    if (log->chunk != NULL) {
        kvcl_seglog_close_chunk(log);
    }
    ticket = log->next_serial;
    if (ticket > log->durable) {
        if (log->want == 0) {
            log->want = ticket;
        } else {
            log->want_next = ticket;
        }
    }
    return ticket;
}

/*
 * The oldest segment is reused only when its footer is on the disk, otherwise a crash could restore a part of it; and
 * when the end of the segment before it is as well, otherwise a crash could restore that one alone.
 */
static kvcl_seglog_seg_t *next_segment(kvcl_seglog_t *log)
{
    kvcl_seglog_seg_t *seg;

    if (!kvcl_list_is_empty(&log->free)) {
        return kvcl_container_of(kvcl_list_first(&log->free), kvcl_seglog_seg_t, link);
    }
    seg = kvcl_container_of(kvcl_list_first(&log->fifo), kvcl_seglog_seg_t, link);
    return ((seg->state == KVCL_SEGLOG_SEALED) && (log->durable >= seg->last) && (log->durable >= log->opened)) ? seg
                                                                                                                : NULL;
}

/* The records of a segment leave the index, for the list that the caller takes. */
static void evict(kvcl_seglog_t *log, kvcl_seglog_seg_t *seg, kvcl_seglog_evicted_t *evicted)
{
    uint32_t i, segment = (uint32_t)(seg - log->segs);

    for (i = 0; i < seg->n; ++i) {
        if (seg->recs[i].unit & KVCL_SEG_DEAD) {
            continue;
        }
        if (seg->recs[i].len == 0) {
            seg->recs[i].unit |= KVCL_SEG_DEAD; /* the record that the tombstone hid was evicted before it */
            continue;
        }
        kvcl_seglog_unindex(log, &seg->recs[i]);
    }
    *evicted     = (kvcl_seglog_evicted_t){.next = log->evicted, .recs = seg->recs, .n = seg->n, .segment = segment,
                                           .seq = seg->use.seq};
    log->evicted = evicted;
    seg->recs    = NULL;
    seg->room    = 0;
    seg->n       = 0;
    seg->live    = 0;
}

/* Its trailer says OPEN before any of its tickets is durable, since a flush waits for every lower serial. */
static kvcl_status_t open_segment(kvcl_seglog_t *log, kvcl_seglog_seg_t *seg)
{
    kvcl_seg_trailer_t    trailer  = {.kind = KVCL_SEG_OPEN, .use = {log->next_seq++, log->life}};
    uint8_t               *buf     = aligned_alloc(KVCL_SEG_ALIGN, KVCL_SEG_ALIGN);
    kvcl_seglog_evicted_t *evicted = (seg->state == KVCL_SEGLOG_SEALED) ? malloc(sizeof(*evicted)) : NULL;

    if ((buf == NULL) || ((evicted == NULL) && (seg->state == KVCL_SEGLOG_SEALED))) {
        free(buf);
        free(evicted);
        return KVCL_ERR_NO_MEMORY;
    }
    if (evicted != NULL) {
        evict(log, seg, evicted);
    }
    memset(buf, 0, KVCL_SEG_ALIGN);
    kvcl_seg_trailer_put(&log->super, (uint32_t)(seg - log->segs), &trailer, buf + KVCL_SEG_ALIGN - KVCL_SEG_UNIT);
    kvcl_list_del(&seg->link);
    kvcl_list_add_tail(&log->fifo, &seg->link);
    kvcl_list_add_tail(&log->due, &seg->due);
    seg->buf        = buf;
    seg->buf_len    = KVCL_SEG_ALIGN;
    seg->buf_serial = log->next_serial++;
    seg->state      = KVCL_SEGLOG_OPEN;
    seg->use        = trailer.use;
    seg->used       = 0;
    log->open       = seg;
    log->opened     = seg->buf_serial + 1;
    return KVCL_OK;
}

/* One more record in recs, one more key in the index, one more frame of the serials' window. */
static kvcl_status_t make_room(kvcl_seglog_t *log, kvcl_seglog_seg_t *seg)
{
    uint32_t       room = (seg->room == 0) ? 64 : 2 * seg->room;
    kvcl_seg_rec_t *recs;

    if (kvcl_map_reserve(&log->index, kvcl_map_count(&log->index) + log->reserved + 1) != KVCL_OK) {
        return KVCL_ERR_NO_MEMORY;
    }
    if (seg->n == seg->room) {
        recs = realloc(seg->recs, room * sizeof(*recs));
        if (recs == NULL) {
            return KVCL_ERR_NO_MEMORY;
        }
        seg->recs = recs;
        seg->room = room;
    }
    return KVCL_OK;
}

/* The open segment, if the record fits there, else a new one. */
static kvcl_status_t find_segment(kvcl_seglog_t *log, uint32_t len, kvcl_seglog_seg_t **seg_p)
{
    kvcl_seglog_seg_t *seg = log->open;
    uint64_t          end;
    kvcl_status_t     status;

    if (log->next_serial - log->written > KVCL_SEGLOG_WINDOW - KVCL_SEGLOG_CHUNKS_MAX - 2) {
        return KVCL_ERR_BUSY;
    }
    if (seg != NULL) {
        end = kvcl_seg_place(seg->used, len) + kvcl_seg_bytes(&log->super, len);
        if (kvcl_seg_align(end, KVCL_SEG_ALIGN) + kvcl_seg_footer_bytes(seg->n + 1) <= log->super.segment) {
            *seg_p = seg;
            return kvcl_seglog_chunks_suffice(log, false, seg->used, end) ? make_room(log, seg) : KVCL_ERR_BUSY;
        }
    }
    if (!kvcl_seglog_chunks_suffice(log, true, 0, kvcl_seg_place(0, len) + kvcl_seg_bytes(&log->super, len))) {
        return KVCL_ERR_BUSY;
    }
    kvcl_seglog_seal(log); /* also if there is no other yet: its last chunk must not hold up what that waits for */
    seg = next_segment(log);
    if ((seg == NULL) || (log->next_seq == UINT32_MAX)) {
        return KVCL_ERR_BUSY;
    }
    status = open_segment(log, seg);
    *seg_p = seg;
    return (status == KVCL_OK) ? make_room(log, seg) : status;
}

static kvcl_status_t place(kvcl_seglog_t *log, const uint8_t *key, uint32_t len, uint64_t checksum,
                           kvcl_seglog_put_t *put)
{
    kvcl_seglog_seg_t *seg;
    kvcl_seg_rec_t    *rec;
    uint64_t          at;
    kvcl_status_t     status;

    if (log->off) {
        return KVCL_ERR_IO;
    }
    status = find_segment(log, len, &seg);
    if (status != KVCL_OK) {
        return status;
    }
    at        = kvcl_seg_place(seg->used, len);
    put->rec  = seg->n++;
    put->n    = 0;
    rec       = &seg->recs[put->rec];
    *rec      = (kvcl_seg_rec_t){.checksum = checksum, .unit = (uint32_t)(at / KVCL_SEG_UNIT), .len = len};
    memcpy(rec->key, key, KVCL_SEG_KEY);
    kvcl_seglog_advance(log, at - KVCL_SEG_UNIT - seg->used, NULL);
    kvcl_seglog_advance(log, KVCL_SEG_UNIT, put); /* one piece: a chunk has whole units */
    put->header = put->frag[0];
    put->n      = 0;
    put->ticket = log->next_serial;
    kvcl_seg_header_put(&log->super, (uint32_t)(seg - log->segs), seg->use, rec, put->header.ptr);
    if (len == 0) {
        --put->header.chunk->fillers;
    } else {
        kvcl_seglog_advance(log, kvcl_seg_bytes(&log->super, len), put);
        put->ticket = put->frag[put->n - 1].chunk->serial + 1;
    }
    put->loc   = kvcl_seglog_loc(log, (uint32_t)(seg - log->segs), rec);
    rec->unit |= KVCL_SEG_DEAD;
    return KVCL_OK;
}

kvcl_status_t kvcl_seglog_reserve(kvcl_seglog_t *log, const uint8_t *key, uint32_t len, uint64_t checksum,
                                  kvcl_seglog_put_t *put)
{
    kvcl_status_t status;

    if ((len == 0) || (len > len_max(log))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a block of %u bytes: a tier takes 1 to %llu", len,
                         (unsigned long long)len_max(log));
    }
    status = place(log, key, len, checksum, put);
    if (status == KVCL_OK) {
        ++log->reserved;
        log->bytes_in += len;
    }
    return status;
}

/* Its chunks may be written, as far as this record is concerned. */
static void filled(kvcl_seglog_t *log, const kvcl_seglog_put_t *put)
{
    unsigned i;

    --put->header.chunk->fillers;
    for (i = 0; i < put->n; ++i) {
        --put->frag[i].chunk->fillers;
    }
    --log->reserved;
}

void kvcl_seglog_commit(kvcl_seglog_t *log, const kvcl_seglog_put_t *put)
{
    kvcl_seglog_seg_t *seg = &log->segs[put->loc.segment];
    kvcl_seg_rec_t    *rec = &seg->recs[put->rec];

    if (rec->checksum != put->loc.checksum) { /* rec is DEAD until the index has it; its header is not */
        kvcl_seg_rec_t final = *rec;

        final.checksum = rec->checksum = put->loc.checksum;
        final.unit    &= ~KVCL_SEG_DEAD;
        kvcl_seg_header_put(&log->super, put->loc.segment, seg->use, &final, put->header.ptr);
    }
    filled(log, put);
    kvcl_seglog_enter(log, put->loc.segment, put->rec);
}

void kvcl_seglog_abort(kvcl_seglog_t *log, const kvcl_seglog_put_t *put)
{
    kvcl_seg_rec_t *rec = &log->segs[put->loc.segment].recs[put->rec];

    filled(log, put);
    log->bytes_in -= rec->len;
    memset(rec->key, 0, sizeof(rec->key));
    rec->checksum = 0;
    rec->len      = 0;
    rec->unit    |= KVCL_SEG_DEAD;
}

kvcl_status_t kvcl_seglog_drop(kvcl_seglog_t *log, const uint8_t *key, uint64_t *ticket_p)
{
    kvcl_seglog_put_t put;
    kvcl_status_t     status;
    uint32_t          segment;

    *ticket_p = log->next_serial;
    if (kvcl_seglog_look(log, key, &segment) == NULL) {
        return KVCL_ERR_NOT_FOUND;
    }
    status = place(log, key, 0, 0, &put);
    if (status == KVCL_OK) {
        *ticket_p = put.ticket;
        kvcl_seglog_enter(log, put.loc.segment, put.rec);
    } else if (status == KVCL_ERR_IO) {
        kvcl_seglog_remove(log, key); /* off: the records are in memory only */
        status = KVCL_OK;
    }
    return status;
}
