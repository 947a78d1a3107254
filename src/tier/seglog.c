/*
 * The log's state: the place of each record, the live records, the staged bytes. seglog_io.c orders the writes.
 *
 * An index value is a reference, (segment << 32 | record) + 1. A record that is not live carries KVCL_SEG_DEAD; so does
 * one that is reserved and not committed, so that no lookup finds it.
 */
#include "config.h"

#include "tier/seglog.h"

#include "base/checksum.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void *) >= sizeof(uint64_t), "an index value holds a segment and a record");

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
    kvcl_seglog_evicted_t *gone;
    uint32_t           i;

    for (i = 0; (log->segs != NULL) && (i < log->super.n); ++i) {
        free(log->segs[i].recs);
        free(log->segs[i].buf);
    }
    free(log->segs);
    log->segs = NULL;
    while ((gone = log->gone) != NULL) {
        log->gone = gone->next;
        free(gone->recs);
        free(gone);
    }
    kvcl_map_fini(&log->index);
}

/* The longest record. */
static uint64_t len_max(const kvcl_seglog_t *log)
{
    uint64_t by_segment = log->super.segment / 2, by_chunks = (log->n_chunks - 1) * log->chunk_bytes - KVCL_SEG_ALIGN;

    return (by_segment < by_chunks) ? by_segment : by_chunks;
}

/* ---- the index ---- */

static uint64_t hash_of(const uint8_t *key)
{
    return kvcl_checksum(key, KVCL_SEG_KEY);
}

static kvcl_seg_rec_t *rec_of(const kvcl_seglog_t *log, const void *value, uint32_t *segment_p)
{
    uint64_t ref = (uint64_t)(uintptr_t)value - 1;

    *segment_p = (uint32_t)(ref >> 32);
    return &log->segs[*segment_p].recs[(uint32_t)ref];
}

static kvcl_seg_rec_t *look(const kvcl_seglog_t *log, const uint8_t *key, uint32_t *segment_p)
{
    void           *value = kvcl_map_get(&log->index, hash_of(key));
    kvcl_seg_rec_t *rec;

    if (value == NULL) {
        return NULL;
    }
    rec = rec_of(log, value, segment_p);
    return (memcmp(rec->key, key, KVCL_SEG_KEY) == 0) ? rec : NULL;
}

/* Out of the index: what has this hash, if anything has. */
static void leave(kvcl_seglog_t *log, uint64_t hash)
{
    void           *value = kvcl_map_del(&log->index, hash);
    kvcl_seg_rec_t *rec;
    uint32_t       segment;

    if (value != NULL) {
        rec        = rec_of(log, value, &segment);
        rec->unit |= KVCL_SEG_DEAD;
        --log->segs[segment].live;
        log->live_bytes -= rec->len;
    }
}

void kvcl_seglog_enter(kvcl_seglog_t *log, uint32_t segment, uint32_t i)
{
    kvcl_seglog_seg_t *seg  = &log->segs[segment];
    kvcl_seg_rec_t    *rec  = &seg->recs[i];
    uint64_t          hash  = hash_of(rec->key);
    void              *value = (void *)(uintptr_t)((((uint64_t)segment << 32) | i) + 1);

    leave(log, hash);
    rec->unit &= ~KVCL_SEG_DEAD;
    if (rec->len == 0) {
        return;
    }
    if (kvcl_map_put(&log->index, hash, value) != KVCL_OK) { /* room was made before: cannot be */
        rec->unit |= KVCL_SEG_DEAD;
        return;
    }
    ++seg->live;
    log->live_bytes += rec->len;
}

static kvcl_tier_loc_t loc_of(const kvcl_seglog_t *log, uint32_t segment, const kvcl_seg_rec_t *rec)
{
    return (kvcl_tier_loc_t){.segment  = segment,
                             .unit     = rec->unit & ~KVCL_SEG_DEAD,
                             .gen      = log->segs[segment].use.seq,
                             .len      = rec->len,
                             .checksum = rec->checksum};
}

kvcl_status_t kvcl_seglog_find(const kvcl_seglog_t *log, const uint8_t *key, kvcl_tier_loc_t *loc_p)
{
    uint32_t             segment;
    const kvcl_seg_rec_t *rec = look(log, key, &segment);

    if (rec == NULL) {
        return KVCL_ERR_NOT_FOUND;
    }
    *loc_p = loc_of(log, segment, rec);
    return KVCL_OK;
}

bool kvcl_seglog_holds(const kvcl_seglog_t *log, const uint8_t *key, const kvcl_tier_loc_t *loc)
{
    kvcl_tier_loc_t now;

    return (kvcl_seglog_find(log, key, &now) == KVCL_OK) && (now.segment == loc->segment) && (now.unit == loc->unit) &&
           (now.gen == loc->gen) && (now.len == loc->len) && (now.checksum == loc->checksum);
}

void kvcl_seglog_forget(kvcl_seglog_t *log, const uint8_t *key, const kvcl_tier_loc_t *loc)
{
    if (kvcl_seglog_holds(log, key, loc)) {
        leave(log, hash_of(key));
    }
}

bool kvcl_seglog_walk(const kvcl_seglog_t *log, uint64_t *it_p, const uint8_t **key_p, kvcl_tier_loc_t *loc_p)
{
    uint32_t segment = (uint32_t)(*it_p >> 32), i = (uint32_t)*it_p;

    for (; segment < log->super.n; ++segment, i = 0) {
        const kvcl_seglog_seg_t *seg = &log->segs[segment];

        for (; i < seg->n; ++i) {
            if (!(seg->recs[i].unit & KVCL_SEG_DEAD) && (seg->recs[i].len > 0)) {
                *it_p  = (((uint64_t)segment << 32) | i) + 1;
                *key_p = seg->recs[i].key;
                *loc_p = loc_of(log, segment, &seg->recs[i]);
                return true;
            }
        }
    }
    return false;
}

/* ---- a place for a record ---- */

static void close_chunk(kvcl_seglog_t *log)
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

/* The next n bytes of the open segment: from src, or zeros, or (put) the caller's to fill. */
static void advance(kvcl_seglog_t *log, uint64_t n, const uint8_t *src, kvcl_seglog_put_t *put)
{
    while (n > 0) {
        kvcl_seglog_chunk_t *chunk = (log->chunk != NULL) ? log->chunk : take_chunk(log);
        uint64_t            k      = log->chunk_bytes - chunk->len;

        k          = (k < n) ? k : n;
        log->chunk = chunk;
        if (put != NULL) {
            put->frag[put->n++] = (kvcl_seglog_frag_t){.ptr = chunk->buf + chunk->len, .len = k, .chunk = chunk};
            ++chunk->fillers;
        } else if (src != NULL) {
            memcpy(chunk->buf + chunk->len, src, k);
            src += k;
        } else {
            memset(chunk->buf + chunk->len, 0, k);
        }
        chunk->len      += k;
        log->open->used += k;
        n               -= k;
        if (chunk->len == log->chunk_bytes) {
            close_chunk(log);
        }
    }
}

void kvcl_seglog_seal(kvcl_seglog_t *log)
{
    if (log->open != NULL) {
        close_chunk(log);
        log->open->state = KVCL_SEGLOG_DRAINING;
        log->open->last  = log->next_serial;
        log->open        = NULL;
    }
}

uint64_t kvcl_seglog_flush(kvcl_seglog_t *log)
{
    uint64_t ticket;

    if (log->chunk != NULL) {
        close_chunk(log);
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
 * The oldest goes only when its footer is on the disk, or a crash could bring back a part of it; and the end of the
 * one before it is too, or a crash could bring back that one alone.
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

/* What a segment held is gone: out of the index, to the list that the caller takes. */
static void give_up(kvcl_seglog_t *log, kvcl_seglog_seg_t *seg, kvcl_seglog_evicted_t *gone)
{
    uint32_t i, segment = (uint32_t)(seg - log->segs);

    for (i = 0; i < seg->n; ++i) {
        if (seg->recs[i].unit & KVCL_SEG_DEAD) {
            continue;
        }
        if (seg->recs[i].len == 0) {
            seg->recs[i].unit |= KVCL_SEG_DEAD; /* a tombstone's work is done: what it hid went before it */
            continue;
        }
        (void)kvcl_map_del(&log->index, hash_of(seg->recs[i].key));
        log->live_bytes -= seg->recs[i].len;
    }
    *gone      = (kvcl_seglog_evicted_t){.next = log->gone, .recs = seg->recs, .n = seg->n, .segment = segment,
                                      .seq = seg->use.seq};
    log->gone  = gone;
    seg->recs  = NULL;
    seg->room  = 0;
    seg->n     = 0;
    seg->live  = 0;
}

/* Its trailer says OPEN before any of its tickets is durable, since a flush waits for every lower serial. */
static kvcl_status_t open_segment(kvcl_seglog_t *log, kvcl_seglog_seg_t *seg)
{
    kvcl_seg_trailer_t trailer = {.kind = KVCL_SEG_OPEN, .use = {log->next_seq++, log->life}};
    uint8_t            *buf    = aligned_alloc(KVCL_SEG_ALIGN, KVCL_SEG_ALIGN);
    kvcl_seglog_evicted_t *gone   = (seg->state == KVCL_SEGLOG_SEALED) ? malloc(sizeof(*gone)) : NULL;

    if ((buf == NULL) || ((gone == NULL) && (seg->state == KVCL_SEGLOG_SEALED))) {
        free(buf);
        free(gone);
        return KVCL_ERR_NO_MEMORY;
    }
    if (gone != NULL) {
        give_up(log, seg, gone);
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

/* Chunks that must be free for the stream of a segment to go on from `used` to `end`. */
static bool chunks_suffice(const kvcl_seglog_t *log, bool fresh, uint64_t used, uint64_t end)
{
    uint64_t need = end - used, room = (!fresh && (log->chunk != NULL)) ? log->chunk_bytes - log->chunk->len : 0;

    need = (need > room) ? need - room : 0;
    return (need + log->chunk_bytes - 1) / log->chunk_bytes <= log->free_chunks;
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
        end = kvcl_seg_place(seg->used, len) + len;
        if (kvcl_seg_align(end, KVCL_SEG_ALIGN) + kvcl_seg_footer_bytes(seg->n + 1) <= log->super.segment) {
            *seg_p = seg;
            return chunks_suffice(log, false, seg->used, end) ? make_room(log, seg) : KVCL_ERR_BUSY;
        }
    }
    if (!chunks_suffice(log, true, 0, kvcl_seg_place(0, len) + len)) {
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
    uint8_t           header[KVCL_SEG_UNIT];
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
    kvcl_seg_header_put(&log->super, (uint32_t)(seg - log->segs), seg->use, rec, header);
    advance(log, at - KVCL_SEG_UNIT - seg->used, NULL, NULL);
    advance(log, KVCL_SEG_UNIT, header, NULL);
    put->ticket = log->next_serial;
    if (len > 0) {
        advance(log, len, NULL, put);
        put->ticket = put->frag[put->n - 1].chunk->serial + 1;
    }
    put->loc   = loc_of(log, (uint32_t)(seg - log->segs), rec);
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

void kvcl_seglog_commit(kvcl_seglog_t *log, const kvcl_seglog_put_t *put)
{
    unsigned i;

    for (i = 0; i < put->n; ++i) {
        --put->frag[i].chunk->fillers;
    }
    --log->reserved;
    kvcl_seglog_enter(log, put->loc.segment, put->rec);
}

void kvcl_seglog_abort(kvcl_seglog_t *log, const kvcl_seglog_put_t *put)
{
    kvcl_seg_rec_t *rec = &log->segs[put->loc.segment].recs[put->rec];
    unsigned       i;

    for (i = 0; i < put->n; ++i) {
        --put->frag[i].chunk->fillers;
    }
    --log->reserved;
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
    if (look(log, key, &segment) == NULL) {
        return KVCL_ERR_NOT_FOUND;
    }
    status = place(log, key, 0, 0, &put);
    if (status == KVCL_OK) {
        *ticket_p = put.ticket;
        kvcl_seglog_enter(log, put.loc.segment, put.rec);
    } else if (status == KVCL_ERR_IO) {
        leave(log, hash_of(key)); /* off: memory is all there is */
        status = KVCL_OK;
    }
    return status;
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
