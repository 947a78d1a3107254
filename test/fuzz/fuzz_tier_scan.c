/*
 * Recovery of a tier from a hostile file. A log is made, then the input edits its bytes, and may have the checksum of a
 * header or trailer made again so that its contents are accepted. Recovery stays inside the file, ends, and names only
 * records that are inside their segments. The recovered log works.
 */
#include "config.h"

#include "base/checksum.h"
#include "tier/seglog.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEGMENT = 24 * 1024, CHUNK = 4096, CHUNKS = 8 };

typedef struct file {
    kvcl_seg_super_t super;
    size_t           size;
    uint8_t          *image;
} file_t;

static kvcl_status_t read_file(void *arg, uint64_t off, uint8_t *buf, size_t len)
{
    const file_t *file = arg;

    if ((off > file->size) || (len > file->size - off)) {
        abort();
    }
    memcpy(buf, file->image + off, len);
    return KVCL_OK;
}

static void drain(file_t *file, kvcl_seglog_t *log)
{
    kvcl_seglog_io_t io;

    while (kvcl_seglog_next(log, &io)) {
        if (io.kind == KVCL_SEGLOG_WRITE) {
            if ((io.off > file->size) || (io.len > file->size - io.off)) {
                abort();
            }
            memcpy(file->image + io.off, io.buf, io.len);
        }
        kvcl_seglog_done(log, &io, true);
    }
}

static void put(file_t *file, kvcl_seglog_t *log, uint8_t i, uint32_t len)
{
    uint8_t           key[KVCL_SEG_KEY] = {i}, buf[3000];
    kvcl_seglog_put_t place;
    unsigned          f;

    memset(buf, i, sizeof(buf));
    if (kvcl_seglog_reserve(log, key, len, kvcl_checksum(buf, len), &place) == KVCL_OK) {
        for (f = 0; f < place.n; ++f) {
            memset(place.frag[f].ptr, i, place.frag[f].len);
        }
        kvcl_seglog_commit(log, &place);
    }
    (void)kvcl_seglog_flush(log);
    drain(file, log);
}

/* Three bytes of input: the position (a segment's beginning or end, or a place in it), and the value. */
static void edit(file_t *file, const uint8_t *in)
{
    uint32_t           segment = in[0] % file->super.n;
    uint8_t            *base   = file->image + kvcl_seg_base(&file->super, segment);
    kvcl_seg_trailer_t trailer;
    kvcl_seg_rec_t     rec = {.checksum = in[2], .unit = 1 + in[1] % 64, .len = (uint32_t)in[2] << (in[1] % 24)};
    kvcl_seg_use_t     use = {.seq = 1 + in[1] % 8, .life = 7};

    switch (in[0] / 32) {
    case 0:
    case 1:
        base[(size_t)in[1] * 96 % SEGMENT] ^= in[2];
        break;
    case 2:
    case 3:
        base[SEGMENT - 1 - in[1] % 128] ^= in[2];
        break;
    case 4:
        base[SEGMENT - 2 * KVCL_SEG_ALIGN + in[1] % 128] = in[2];
        break;
    case 5:
        trailer = (kvcl_seg_trailer_t){.kind = KVCL_SEG_SEALED, .use = use, .n = in[2] % 4};
        trailer.sum = kvcl_checksum_seed(base + SEGMENT - kvcl_seg_footer_bytes(trailer.n),
                                         (size_t)trailer.n * KVCL_SEG_ENTRY, file->super.id);
        kvcl_seg_trailer_put(&file->super, segment, &trailer, base + SEGMENT - KVCL_SEG_UNIT);
        break;
    case 6:
        trailer = (kvcl_seg_trailer_t){.kind = KVCL_SEG_OPEN, .use = use};
        kvcl_seg_trailer_put(&file->super, segment, &trailer, base + SEGMENT - KVCL_SEG_UNIT);
        break;
    default:
        kvcl_seg_header_put(&file->super, segment, use, &rec, base + (size_t)(rec.unit - 1) * KVCL_SEG_UNIT);
        break;
    }
}

static void look(const kvcl_seglog_t *log)
{
    const uint8_t   *key;
    kvcl_tier_loc_t loc;
    uint64_t        it = 0;

    while (kvcl_seglog_walk(log, &it, &key, &loc)) {
        if ((loc.segment >= log->super.n) || (loc.len > SEGMENT) ||
            ((uint64_t)loc.unit * KVCL_SEG_UNIT + loc.len > SEGMENT) || !kvcl_seglog_holds(log, key, &loc)) {
            abort();
        }
    }
    if (!kvcl_seglog_check(log)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    file_t             file     = {.size = KVCL_SEG_HEAD + 3 * SEGMENT};
    kvcl_seg_trailer_t trailer  = {.kind = KVCL_SEG_FREE};
    uint8_t            *scratch = aligned_alloc(KVCL_SEG_ALIGN, KVCL_SEGLOG_SCRATCH);
    uint8_t            *staging = aligned_alloc(KVCL_SEG_ALIGN, CHUNKS * CHUNK);
    kvcl_seglog_t      log;
    uint32_t           i, scanned, turn;
    size_t             at;

    if ((scratch == NULL) || (staging == NULL) || (kvcl_seg_divide(file.size, SEGMENT, &file.super) != KVCL_OK)) {
        abort();
    }
    file.super.id = 42;
    file.image    = calloc(1, file.size);
    for (i = 0; i < file.super.n; ++i) {
        kvcl_seg_trailer_put(&file.super, i, &trailer,
                             file.image + kvcl_seg_base(&file.super, i) + SEGMENT - KVCL_SEG_UNIT);
    }
    for (turn = 0; turn < 2; ++turn) {
        if ((kvcl_seglog_init(&log, &file.super, 7, staging, CHUNKS, CHUNK) != KVCL_OK) ||
            (kvcl_seglog_recover(&log, read_file, &file, scratch, &scanned) != KVCL_OK)) {
            abort();
        }
        look(&log);
        drain(&file, &log);
        for (i = 0; i < 9; ++i) {
            put(&file, &log, (uint8_t)(i + turn), 200 + 300 * i);
        }
        look(&log);
        kvcl_seglog_fini(&log);
        for (at = 0; (turn == 0) && (at + 3 <= size); at += 3) {
            edit(&file, data + at);
        }
    }
    free(file.image);
    free(staging);
    free(scratch);
    return 0;
}
