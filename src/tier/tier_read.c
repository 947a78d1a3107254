/*
 * Reads of the tier: in pieces, straight into the caller's memory or through bounce buffers, verified at the end.
 *
 * A record is walked once, under the lock: bytes that are still staged are copied, the rest becomes pieces. A piece is
 * read directly where the file's offset, the memory's address and the length are multiples of KVCL_SEG_ALIGN (or the
 * file is buffered), and it is long enough; otherwise it uses a bounce buffer, and waits for one if none is free. The
 * thread that ends the last piece computes the checksum, without the lock. The expected one is in the footer with the
 * key, so bytes of another block, or of a later use of the segment, are never returned as this block's. In a file with
 * a key the tail is read behind the data, as if the caller's memory had one more extent, and proves them.
 */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "tier/tier_impl.h"
#include "weave/pieces.h"
#include "weave/sum_copy.h"

#include <stdlib.h>
#include <string.h>

enum { STRAIGHT_MIN = 64 * 1024 };

typedef struct piece {
    kvcl_tio_op_t    op;
    kvcl_list_t      link;    /* tier->starved */
    struct tier_read *read;
    uint8_t          *bounce; /* NULL: straight, or not begun */
    bool             straight;
    uint64_t         at, len; /* of the record */
} piece_t;

typedef struct tier_read {
    kvcl_tier_t     *tier;
    uint8_t         key[KVCL_SEG_KEY];
    kvcl_tier_loc_t loc;
    kvcl_tier_cb_t  cb;
    void            *arg;
    unsigned        left; /* pieces; the walk counts as one */
    bool            failed, summed;
    uint64_t        sum;  /* if summed: of all data, in the pass that copied it */
    piece_t         *pieces;
    unsigned        n, room;
    uint8_t         tail[KVCL_SEG_TAIL];
    unsigned        n_iov; /* of the data; one more is the tail */
    struct iovec    iov[];
} tier_read_t;

/* The destination of the record's byte `at` in the caller's memory, and the bytes that follow there. */
static uint8_t *place_of(const tier_read_t *read, uint64_t at, uint64_t *room_p)
{
    unsigned i;

    for (i = 0; at >= read->iov[i].iov_len; ++i) {
        at -= read->iov[i].iov_len;
    }
    *room_p = read->iov[i].iov_len - at;
    return (uint8_t *)read->iov[i].iov_base + at;
}

/* One piece that has all of the data, the only one then, is summed as it is copied. */
static void copy_out(tier_read_t *read, uint64_t at, const uint8_t *src, uint64_t len)
{
    if ((at == 0) && (len >= read->loc.len) && (read->n_iov == 1)) {
        read->sum    = kvcl_sum_copy_of(read->iov[0].iov_base, src, read->loc.len);
        read->summed = true;
        at           = read->loc.len;
        src         += at;
        len         -= at;
    }
    while (len > 0) {
        uint64_t room;
        uint8_t  *dst = place_of(read, at, &room);

        room = (room < len) ? room : len;
        kvcl_copy_bytes(dst, src, room);
        at  += room;
        src += room;
        len -= room;
    }
}

static uint64_t sum(const tier_read_t *read)
{
    kvcl_sum_t all;
    unsigned   i;

    if (read->summed) {
        return read->sum;
    }
    if (read->n_iov == 1) {
        return kvcl_sum_of(read->iov[0].iov_base, read->iov[0].iov_len);
    }
    kvcl_sum_init(&all);
    for (i = 0; i < read->n_iov; ++i) {
        kvcl_sum_copy(&all, NULL, read->iov[i].iov_base, read->iov[i].iov_len);
    }
    return kvcl_sum_end(&all);
}

static bool is_proven(const tier_read_t *read)
{
    const kvcl_tier_t *tier = read->tier;
    uint8_t           tag[KVCL_TIER_NONCE];

    if (!tier->keyed) {
        return true;
    }
    kvcl_tier_key_tag(&tier->key, &tier->file.super, read->key, &read->loc, read->tail, read->iov, read->n_iov, tag);
    return kvcl_ct_equal(tag, read->tail + KVCL_TIER_NONCE, sizeof(tag));
}

/* Lock held. Bad bytes and refusals cost this block; many refusals in a row, the tier. */
static kvcl_status_t judge(kvcl_tier_t *tier, const tier_read_t *read, bool fits)
{
    ++tier->stats.reads;
    if (!read->failed && fits) {
        tier->strikes = 0;
        return KVCL_OK;
    }
    if (!kvcl_seglog_holds(&tier->log, read->key, &read->loc)) {
        return KVCL_ERR_STALE;
    }
    kvcl_seglog_forget(&tier->log, read->key, &read->loc);
    if (!read->failed) {
        ++tier->stats.bad;
        if (!tier->log.off && ((tier->stats.bad & (tier->stats.bad - 1)) == 0)) { /* off: some were never written */
            kvcl_log_warn("tier %s: bytes in the file are not what was written; %llu blocks so far are forgotten",
                          tier->path, (unsigned long long)tier->stats.bad);
        }
        return KVCL_ERR_IO;
    }
    ++tier->stats.failed;
    if ((++tier->strikes == KVCL_TIER_STRIKES) && !tier->blind) {
        tier->blind   = true;
        tier->log.off = true;
        kvcl_log_warn("tier %s: %d reads in a row failed; it is off", tier->path, KVCL_TIER_STRIKES);
    }
    return KVCL_ERR_IO;
}

static void finish(tier_read_t *read)
{
    kvcl_tier_t   *tier = read->tier;
    bool          fits  = !read->failed && (sum(read) == read->loc.checksum) && is_proven(read);
    kvcl_status_t status;

    pthread_mutex_lock(&tier->lock);
    status = judge(tier, read, fits);
    pthread_mutex_unlock(&tier->lock);
    read->cb(read->arg, status);
    free(read->pieces);
    free(read);
    pthread_mutex_lock(&tier->lock); /* close may free the tier from here on */
    --tier->n_reads;
    pthread_cond_broadcast(&tier->idle);
    pthread_mutex_unlock(&tier->lock);
}

static void on_piece(kvcl_tio_op_t *op, int64_t result);

/* Lock held: submit a piece, or queue it for a bounce buffer. */
static void start(kvcl_tier_t *tier, piece_t *piece)
{
    uint64_t off = kvcl_seg_base(&tier->file.super, piece->read->loc.segment) +
                   (uint64_t)piece->read->loc.unit * KVCL_SEG_UNIT + piece->at;
    uint64_t room, end = kvcl_seg_align(off + piece->len, KVCL_SEG_ALIGN);

    piece->op.kind = KVCL_TIO_READ;
    piece->op.done = on_piece;
    if (piece->straight) {
        piece->op.off = off;
        piece->op.buf = place_of(piece->read, piece->at, &room);
        piece->op.len = piece->len;
    } else if (tier->n_bounces == 0) {
        kvcl_list_add_tail(&tier->starved, &piece->link);
        return;
    } else {
        piece->bounce = tier->bounces[--tier->n_bounces];
        piece->op.off = off / KVCL_SEG_ALIGN * KVCL_SEG_ALIGN;
        piece->op.buf = piece->bounce;
        piece->op.len = end - piece->op.off;
    }
    tier->io->ops->submit(tier->io, &piece->op);
}

/* The bounce buffer is free: submit the next piece that waits for one. */
static void give_back(kvcl_tier_t *tier, piece_t *piece)
{
    tier->bounces[tier->n_bounces++] = piece->bounce;
    piece->bounce                    = NULL;
    if (!kvcl_list_is_empty(&tier->starved)) {
        start(tier, kvcl_container_of(kvcl_list_pop(&tier->starved), piece_t, link));
    }
}

static void on_piece(kvcl_tio_op_t *op, int64_t result)
{
    piece_t     *piece = kvcl_container_of(op, piece_t, op);
    tier_read_t *read  = piece->read;
    kvcl_tier_t *tier  = read->tier;
    int64_t     rc     = kvcl_tier_continue(tier, op, result);
    bool        last;

    if (rc > 0) {
        return;
    }
    if ((rc == 0) && (piece->bounce != NULL)) {
        uint64_t off = (uint64_t)read->loc.unit * KVCL_SEG_UNIT + piece->at;

        copy_out(read, piece->at, piece->bounce + off % KVCL_SEG_ALIGN, piece->len);
    }
    pthread_mutex_lock(&tier->lock);
    read->failed = read->failed || (rc < 0);
    if (piece->bounce != NULL) {
        give_back(tier, piece);
    }
    last = --read->left == 0;
    pthread_mutex_unlock(&tier->lock);
    if (last) {
        finish(read);
    }
}

static bool add_piece(tier_read_t *read, uint64_t at, uint64_t len, bool straight)
{
    unsigned room = (read->room == 0) ? 8 : 2 * read->room;
    piece_t  *pieces;

    if (read->n == read->room) {
        pieces = realloc(read->pieces, room * sizeof(*pieces));
        if (pieces == NULL) {
            return false;
        }
        read->pieces = pieces;
        read->room   = room;
    }
    read->pieces[read->n++] = (piece_t){.at = at, .len = len, .straight = straight};
    return true;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

/* Lock held: copy what is staged, make pieces of the rest. */
static bool walk(const kvcl_tier_t *tier, tier_read_t *read)
{
    uint64_t at = 0, base = (uint64_t)read->loc.unit * KVCL_SEG_UNIT, len, room;
    uint64_t end = kvcl_seg_bytes(&tier->file.super, read->loc.len);

    for (; at < end; at += len) {
        const uint8_t *staged;
        uint8_t       *dst = place_of(read, at, &room);
        bool          straight = !tier->file.direct;

        len    = end - at;
        staged = kvcl_seglog_staged(&tier->log, read->loc.segment, base + at, &len);
        if (staged != NULL) {
            copy_out(read, at, staged, len);
            continue;
        }
        len = least(len, KVCL_TIER_PIECE);
        if (straight) {
            len = least(len, room);
        } else if (((base + at) % KVCL_SEG_ALIGN == 0) && ((uintptr_t)dst % KVCL_SEG_ALIGN == 0) &&
                   (least(len, room) >= STRAIGHT_MIN)) {
            len      = least(len, room) / KVCL_SEG_ALIGN * KVCL_SEG_ALIGN;
            straight = true;
        } else if (room >= STRAIGHT_MIN) {
            len = least(len, room);
        }
        if (!add_piece(read, at, len, straight)) {
            return false;
        }
    }
    return true;
}

/* A read whose bytes were all staged completes like any other, on an I/O thread. */
static void start_all(kvcl_tier_t *tier, tier_read_t *read)
{
    unsigned i, n = read->n;

    read->left = n;
    for (i = 0; i < n; ++i) {
        read->pieces[i].read = read;
        if (read->pieces[i].len == 0) {
            read->pieces[i].op = (kvcl_tio_op_t){.kind = KVCL_TIO_NOP, .done = on_piece};
            tier->io->ops->submit(tier->io, &read->pieces[i].op);
        } else {
            start(tier, &read->pieces[i]);
        }
    }
}

static tier_read_t *new_read(kvcl_tier_t *tier, const uint8_t *key, const kvcl_tier_loc_t *loc, const struct iovec *iov,
                             unsigned n_iov)
{
    tier_read_t *read = calloc(1, sizeof(*read) + (n_iov + 1) * sizeof(*iov));

    if (read != NULL) {
        read->tier  = tier;
        read->loc   = *loc;
        read->n_iov = n_iov;
        memcpy(read->key, key, sizeof(read->key));
        memcpy(read->iov, iov, n_iov * sizeof(*iov));
        read->iov[n_iov] = (struct iovec){read->tail, sizeof(read->tail)};
    }
    return read;
}

kvcl_status_t kvcl_tier_read(kvcl_tier_t *tier, const uint8_t *key, const kvcl_tier_loc_t *loc, const struct iovec *iov,
                             unsigned n_iov, kvcl_tier_cb_t cb, void *arg)
{
    kvcl_status_t status = KVCL_OK;
    tier_read_t   *read;
    uint64_t      bytes = 0;
    unsigned      i;

    for (i = 0; i < n_iov; ++i) {
        bytes += iov[i].iov_len;
    }
    if (bytes != loc->len) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a read of %llu bytes from a tier's block of %u",
                         (unsigned long long)bytes, loc->len);
    }
    read = new_read(tier, key, loc, iov, n_iov);
    if (read == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a read");
    }
    read->cb  = cb;
    read->arg = arg;
    pthread_mutex_lock(&tier->lock);
    if (tier->blind || !kvcl_seglog_holds(&tier->log, key, loc)) {
        status = KVCL_ERR_NOT_FOUND;
    } else if (tier->closing || (tier->n_reads >= KVCL_TIER_READS_MAX)) {
        status = KVCL_ERR_BUSY;
    } else if (!walk(tier, read) || ((read->n == 0) && !add_piece(read, 0, 0, true))) {
        status = KVCL_ERR_NO_MEMORY;
    } else {
        ++tier->n_reads;
        start_all(tier, read);
    }
    pthread_mutex_unlock(&tier->lock);
    if (status != KVCL_OK) {
        free(read->pieces);
        free(read);
    }
    return status;
}
