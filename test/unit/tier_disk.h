/*
 * A disk made of memory, for the segment log. Writes stay in its cache until a sync that began after they ended, and a
 * crash keeps any of the cache's sectors, each independently. Contents derive from numbers, so that every byte can be
 * verified.
 */
#ifndef TEST_TIER_DISK_H
#define TEST_TIER_DISK_H

#include "base/checksum.h"
#include "base/rand.h"
#include "tier/seglog.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* An assertion for loops of millions: Check's own writes a record each time. */
#define MUST(_cond)                         \
    do {                                    \
        if (!(_cond)) {                     \
            ck_abort_msg("%s", #_cond);     \
        }                                   \
    } while (0)

enum { DISK_SECTOR = 512, DISK_FLIGHT = 256 };

typedef struct disk_op {
    kvcl_seglog_io_t io;
    uint8_t          *bytes; /* of a write */
    bool             ended, before; /* the log was notified; before the sync in flight began */
} disk_op_t;

typedef struct disk {
    uint8_t   *image; /* the bytes that survive */
    uint64_t  size;
    disk_op_t ops[DISK_FLIGHT]; /* in the order they were issued */
    unsigned  n;
} disk_t;

static inline void disk_open(disk_t *disk, uint64_t size)
{
    memset(disk, 0, sizeof(*disk));
    disk->size  = size;
    disk->image = calloc(1, size);
    ck_assert_ptr_nonnull(disk->image);
}

static inline void disk_forget(disk_t *disk, unsigned i)
{
    free(disk->ops[i].bytes);
    memmove(&disk->ops[i], &disk->ops[i + 1], (disk->n - i - 1) * sizeof(disk->ops[0]));
    --disk->n;
}

static inline void disk_close(disk_t *disk)
{
    while (disk->n > 0) {
        disk_forget(disk, 0);
    }
    free(disk->image);
}

/* Take the operations that the log requests. */
static inline void disk_take(disk_t *disk, kvcl_seglog_t *log)
{
    kvcl_seglog_io_t io;
    unsigned         i;

    while ((disk->n < DISK_FLIGHT) && kvcl_seglog_next(log, &io)) {
        disk_op_t *op = &disk->ops[disk->n];

        *op = (disk_op_t){.io = io};
        if (io.kind == KVCL_SEGLOG_WRITE) {
            MUST(io.off + io.len <= disk->size);
            MUST(io.off % KVCL_SEG_ALIGN == 0);
            MUST(io.len % KVCL_SEG_ALIGN == 0);
            op->bytes = malloc(io.len);
            memcpy(op->bytes, io.buf, io.len);
        } else {
            for (i = 0; i < disk->n; ++i) {
                disk->ops[i].before = disk->ops[i].ended;
            }
        }
        ++disk->n;
    }
}

/* Complete one I/O in flight successfully. False: there is none. */
static inline bool disk_step(disk_t *disk, kvcl_seglog_t *log, kvcl_rand_t *rnd)
{
    unsigned i, flying = 0, pick;

    for (i = 0; i < disk->n; ++i) {
        flying += !disk->ops[i].ended;
    }
    if (flying == 0) {
        return false;
    }
    pick = (unsigned)kvcl_rand_below(rnd, flying);
    for (i = 0; disk->ops[i].ended || (pick-- > 0); ++i) {
    }
    disk->ops[i].ended = true;
    kvcl_seglog_done(log, &disk->ops[i].io, true);
    if (disk->ops[i].io.kind == KVCL_SEGLOG_SYNC) {
        disk_forget(disk, i);
        for (i = 0; i < disk->n;) {
            if (disk->ops[i].before) {
                memcpy(disk->image + disk->ops[i].io.off, disk->ops[i].bytes, disk->ops[i].io.len);
                disk_forget(disk, i);
            } else {
                ++i;
            }
        }
    }
    return true;
}

/* A power failure: of every 100 sectors in the cache about `kept` reach the image. */
static inline void disk_crash(disk_t *disk, kvcl_rand_t *rnd, unsigned kept)
{
    uint64_t at;

    while (disk->n > 0) {
        const disk_op_t *op = &disk->ops[0];

        for (at = 0; (op->bytes != NULL) && (at < op->io.len); at += DISK_SECTOR) {
            if (kvcl_rand_below(rnd, 100) < kept) {
                memcpy(disk->image + op->io.off + at, op->bytes + at, DISK_SECTOR);
            }
        }
        disk_forget(disk, 0);
    }
}

static inline kvcl_status_t disk_read(void *arg, uint64_t off, uint8_t *buf, size_t len)
{
    const disk_t *disk = arg;

    MUST(off + len <= disk->size);
    MUST(off % KVCL_SEG_ALIGN == 0);
    MUST(len % KVCL_SEG_ALIGN == 0);
    memcpy(buf, disk->image + off, len);
    return KVCL_OK;
}

/* All segments FREE, as a fresh file has them. */
static inline void disk_format(disk_t *disk, const kvcl_seg_super_t *super)
{
    kvcl_seg_trailer_t trailer = {.kind = KVCL_SEG_FREE};
    uint32_t           i;

    for (i = 0; i < super->n; ++i) {
        kvcl_seg_trailer_put(super, i, &trailer,
                             disk->image + kvcl_seg_base(super, i) + super->segment - KVCL_SEG_UNIT);
    }
}

static inline void disk_key(uint64_t i, uint8_t *key)
{
    uint64_t state = i + 1, word;
    size_t   at;

    for (at = 0; at < KVCL_SEG_KEY; at += sizeof(word)) {
        word = kvcl_splitmix64(&state);
        memcpy(key + at, &word, sizeof(word));
    }
}

/* Version v of a block: its first bytes encode v, so that bytes found can be verified without other information. */
static inline void disk_fill(uint64_t v, uint8_t *buf, size_t len)
{
    kvcl_rand_t rnd;
    uint64_t    word;
    size_t      at, k;

    kvcl_rand_seed(&rnd, v);
    for (at = 0; at < len; at += k) {
        word = kvcl_rand_next(&rnd);
        k    = (len - at < sizeof(word)) ? len - at : sizeof(word);
        memcpy(buf + at, &word, k);
    }
}

static inline void disk_copy_in(const kvcl_seglog_put_t *put, const uint8_t *buf)
{
    unsigned i;

    for (i = 0; i < put->n; ++i) {
        memcpy(put->frag[i].ptr, buf, put->frag[i].len);
        buf += put->frag[i].len;
    }
}

#endif
