/*
 * A log from what a file holds after a stop of any kind. Every byte is hostile.
 *
 * A segment that is SEALED and whose entries fit their sum is known by its footer alone. Any other that is not FREE is
 * scanned: at every unit a header may begin; it counts if its check fits and its data has the checksum it names, and
 * the next is looked for behind it, else one unit on. So a torn or flipped record costs itself. Where the trailer is
 * good only its use of the segment counts, else the latest that is found. Then the segments are entered in the order
 * of their use, which lets a later record of a key, or a tombstone, win.
 *
 * The work is linear in the bytes of the file. Data whose checksum differs are paid for by a budget of one segment's
 * bytes for each segment, so that headers that name one another's bytes cannot make the scan quadratic. The scans of a
 * file read KVCL_SEGLOG_SCAN_MAX bytes of segments at most; the segments beyond are left out.
 */
#include "config.h"

#include "tier/seglog.h"
#include "tier/seglog_parts.h"

#include "base/error.h"
#include "weave/sum_copy.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of one segment by windows over the caller's scratch memory. */
typedef struct window {
    kvcl_seglog_t      *log;
    kvcl_seglog_read_t read;
    void               *arg;
    uint8_t            *buf;
    uint64_t           base; /* of the segment in the file */
    uint64_t           at;   /* what buf holds of the segment */
    uint64_t           len;
    uint64_t           vain; /* bytes of data that may still fail their checksum in this segment */
    uint64_t           left; /* bytes of segments that may still be scanned */
} window_t;

/* Bytes at `at`, *have_p of them (at least up to the next bound of KVCL_SEG_ALIGN); NULL: they cannot be read. */
static const uint8_t *fetch(window_t *w, uint64_t at, uint64_t *have_p)
{
    uint64_t size = w->log->super.segment;

    if ((at < w->at) || (at - w->at >= w->len)) {
        w->at  = at / KVCL_SEG_ALIGN * KVCL_SEG_ALIGN;
        w->len = (size - w->at < KVCL_SEGLOG_SCRATCH) ? size - w->at : KVCL_SEGLOG_SCRATCH;
        if (w->read(w->arg, w->base + w->at, w->buf, w->len) != KVCL_OK) {
            w->len = KVCL_SEG_ALIGN;
            if (w->read(w->arg, w->base + w->at, w->buf, w->len) != KVCL_OK) {
                w->len = 0;
                return NULL;
            }
        }
    }
    *have_p = w->at + w->len - at;
    return w->buf + (at - w->at);
}

/* Does the data have the checksum that the header names? */
static bool sum_fits(window_t *w, const kvcl_seg_rec_t *rec)
{
    uint64_t   at = (uint64_t)rec->unit * KVCL_SEG_UNIT, left = rec->len, have;
    kvcl_sum_t sum;

    if (left == 0) {
        return rec->checksum == 0;
    }
    kvcl_sum_init(&sum);
    while (left > 0) {
        const uint8_t *bytes = fetch(w, at, &have);

        if (bytes == NULL) {
            return false;
        }
        have = (have < left) ? have : left;
        kvcl_sum_copy(&sum, NULL, bytes, have);
        at   += have;
        left -= have;
    }
    return kvcl_sum_end(&sum) == rec->checksum;
}

/* A failure is charged to the budget. */
static bool data_fits(window_t *w, const kvcl_seg_rec_t *rec)
{
    bool fits = sum_fits(w, rec);

    if (!fits) {
        w->vain -= (rec->len < w->vain) ? rec->len : w->vain;
    }
    return fits;
}

static kvcl_status_t keep(kvcl_seglog_seg_t *seg, const kvcl_seg_rec_t *rec)
{
    uint32_t       room = (seg->room == 0) ? 64 : 2 * seg->room;
    kvcl_seg_rec_t *recs;

    if (seg->n == seg->room) {
        recs = realloc(seg->recs, room * sizeof(*recs));
        if (recs == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the records of a segment");
        }
        seg->recs = recs;
        seg->room = room;
    }
    seg->recs[seg->n++] = *rec;
    return KVCL_OK;
}

static bool same(kvcl_seg_use_t a, kvcl_seg_use_t b)
{
    return (a.seq == b.seq) && (a.life == b.life);
}

/* only: the use that counts, or none for the latest. A record that would leave no room for the footer ends the scan,
 * and so does a spent budget. */
static kvcl_status_t scan(window_t *w, uint32_t segment, kvcl_seg_use_t only)
{
    kvcl_seglog_seg_t *seg = &w->log->segs[segment];
    uint64_t          size = w->log->super.segment, at = 0, end, have;
    kvcl_status_t     status;

    seg->use = only;
    w->vain  = size;
    while ((at + 2 * KVCL_SEG_UNIT <= size) && (w->vain > 0)) {
        const uint8_t  *bytes = fetch(w, at, &have);
        kvcl_seg_rec_t rec;
        kvcl_seg_use_t use;
        uint32_t       unit = (uint32_t)(at / KVCL_SEG_UNIT) + 1;

        at += KVCL_SEG_UNIT;
        if (bytes == NULL) {
            at = kvcl_seg_align(at, KVCL_SEG_ALIGN);
            continue;
        }
        if (!kvcl_seg_header_get(&w->log->super, segment, unit, bytes, &use, &rec) ||
            ((only.seq != 0) ? !same(use, only) : (use.seq < seg->use.seq)) || !data_fits(w, &rec)) {
            continue;
        }
        if (!same(use, seg->use)) {
            seg->use = use;
            seg->n   = 0;
        }
        end = at + kvcl_seg_bytes(&w->log->super, rec.len);
        if (kvcl_seg_align(end, KVCL_SEG_ALIGN) + kvcl_seg_footer_bytes(seg->n + 1) > size) {
            break;
        }
        status = keep(seg, &rec);
        if (status != KVCL_OK) {
            return status;
        }
        at = kvcl_seg_align(end, KVCL_SEG_UNIT);
    }
    return KVCL_OK;
}

/* The entries of a SEALED segment. KVCL_ERR_PROTOCOL: they cannot be read, or are not what was written. */
static kvcl_status_t load(window_t *w, uint32_t segment, const kvcl_seg_trailer_t *trailer)
{
    kvcl_seglog_seg_t *seg   = &w->log->segs[segment];
    uint64_t          footer = kvcl_seg_footer_bytes(trailer->n), bytes = footer - KVCL_SEG_ALIGN;
    uint8_t           *buf   = aligned_alloc(KVCL_SEG_ALIGN, footer);
    kvcl_seg_rec_t    *recs  = malloc((trailer->n + 1) * sizeof(*recs));
    kvcl_status_t     status = KVCL_ERR_PROTOCOL;

    if ((buf == NULL) || (recs == NULL)) {
        status = kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the footer of a segment");
    } else if ((w->read(w->arg, w->base + w->log->super.segment - footer, buf, bytes) == KVCL_OK) &&
               kvcl_seg_entries_get(&w->log->super, trailer, buf, recs)) {
        seg->recs = recs;
        seg->n    = trailer->n;
        seg->room = trailer->n + 1;
        seg->use  = trailer->use;
        recs      = NULL;
        status    = KVCL_OK;
    }
    free(recs);
    free(buf);
    return status;
}

/* This number has been used. */
static void see(kvcl_seglog_t *log, uint32_t seq)
{
    if (seq >= log->next_seq) {
        log->next_seq = (seq < UINT32_MAX) ? seq + 1 : UINT32_MAX;
    }
}

static kvcl_status_t recover_segment(window_t *w, uint32_t segment, uint32_t *scanned_p)
{
    kvcl_seglog_seg_t  *seg    = &w->log->segs[segment];
    kvcl_seg_trailer_t trailer = {.kind = KVCL_SEG_OPEN};
    uint64_t           size    = w->log->super.segment;
    kvcl_status_t      status;

    w->base = kvcl_seg_base(&w->log->super, segment);
    w->len  = 0;
    if ((w->read(w->arg, w->base + size - KVCL_SEG_ALIGN, w->buf, KVCL_SEG_ALIGN) != KVCL_OK) ||
        !kvcl_seg_trailer_get(&w->log->super, segment, w->buf + KVCL_SEG_ALIGN - KVCL_SEG_UNIT, &trailer)) {
        trailer = (kvcl_seg_trailer_t){.kind = KVCL_SEG_OPEN};
    }
    see(w->log, trailer.use.seq);
    if (trailer.kind == KVCL_SEG_FREE) {
        return KVCL_OK;
    }
    if (trailer.kind == KVCL_SEG_SEALED) {
        status = load(w, segment, &trailer);
        if (status != KVCL_ERR_PROTOCOL) {
            seg->state = KVCL_SEGLOG_SEALED;
            return status;
        }
    }
    if (w->left < size) {
        ++w->log->left_out;
        return KVCL_OK;
    }
    ++*scanned_p;
    w->left   -= size;
    status     = scan(w, segment, trailer.use);
    seg->state = (seg->n > 0) ? KVCL_SEGLOG_DRAINING : KVCL_SEGLOG_FREE;
    seg->last  = w->log->next_serial;
    return status;
}

static int by_seq(const void *a, const void *b)
{
    const kvcl_seglog_seg_t *x = *(kvcl_seglog_seg_t *const *)a, *y = *(kvcl_seglog_seg_t *const *)b;

    return (x->use.seq > y->use.seq) - (x->use.seq < y->use.seq);
}

/* All that was found, into the index and the order of reuse. */
static kvcl_status_t enter_all(kvcl_seglog_t *log)
{
    kvcl_seglog_seg_t **order = malloc(log->super.n * sizeof(kvcl_seglog_seg_t *));
    uint64_t          n = 0;
    uint32_t          i, j, used = 0;

    for (i = 0; (order != NULL) && (i < log->super.n); ++i) {
        if (log->segs[i].state != KVCL_SEGLOG_FREE) {
            n            += log->segs[i].n;
            order[used++] = &log->segs[i];
        }
    }
    if ((order == NULL) || (kvcl_map_reserve(&log->index, n + 1) != KVCL_OK)) {
        free(order);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the index of a tier");
    }
    qsort(order, used, sizeof(*order), by_seq);
    for (i = 0; i < used; ++i) {
        kvcl_list_del(&order[i]->link);
        kvcl_list_add_tail(&log->fifo, &order[i]->link);
        for (j = 0; j < order[i]->n; ++j) {
            order[i]->recs[j].unit |= KVCL_SEG_DEAD;
            kvcl_seglog_enter(log, (uint32_t)(order[i] - log->segs), j);
        }
        see(log, order[i]->use.seq);
    }
    free(order);
    return KVCL_OK;
}

kvcl_status_t kvcl_seglog_recover(kvcl_seglog_t *log, kvcl_seglog_read_t read, void *arg, uint8_t *scratch,
                                  uint32_t *scanned_p)
{
    window_t      w = {.log = log, .read = read, .arg = arg, .buf = scratch, .left = KVCL_SEGLOG_SCAN_MAX};
    kvcl_status_t status;
    uint32_t      i;

    /* One serial that is written and not durable: the footers of scanned segments wait for a sync. */
    log->next_serial = 2;
    log->written     = 2;
    *scanned_p       = 0;
    for (i = 0; i < log->super.n; ++i) {
        status = recover_segment(&w, i, scanned_p);
        if (status != KVCL_OK) {
            return status;
        }
    }
    return enter_all(log);
}
