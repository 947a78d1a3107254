/*
 * The bytes of the tier's file: super block, record headers, trailers, footers.
 *
 * Little-endian, by cursors. A check word is XXH3 over the bytes before it, seeded with the file's id mixed with the
 * segment; what it covers includes the position and the use (seq) of the segment. Owns nothing, takes no lock.
 */
#include "config.h"

#include "tier/segfmt.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/rand.h"
#include "base/wirebuf.h"

#define SUPER_MAGIC   UINT64_C(0x3165697474c56b4b)
#define UNFINISHED_MAGIC UINT64_C(0x3074616d724f464b)
#define HEADER_MAGIC  UINT32_C(0x3152564b)
#define TRAILER_MAGIC UINT32_C(0x3154564b)

enum {
    SUPER_BODY   = 40,
    HEADER_BODY  = 56,
    TRAILER_BODY = 56,
    SEGMENT_MIN  = 16 * 1024,
    SEGMENTS_MIN = 3
};

#define SEGMENT_MAX (UINT64_C(1) << 30)

kvcl_status_t kvcl_seg_divide(uint64_t size, uint64_t segment, kvcl_seg_super_t *super)
{
    uint64_t room = (size > KVCL_SEG_HEAD) ? size - KVCL_SEG_HEAD : 0;

    if (segment == 0) {
        segment = UINT64_C(256) << 20;
        while ((segment > (UINT64_C(16) << 20)) && (room / segment < 256)) {
            segment /= 2;
        }
        while ((segment > (UINT64_C(1) << 20)) && (room / segment < 8)) {
            segment /= 2;
        }
    }
    if ((segment < SEGMENT_MIN) || (segment > SEGMENT_MAX) || (segment % KVCL_SEG_ALIGN != 0) ||
        (room / segment < SEGMENTS_MIN)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a tier of %llu bytes with segments of %llu cannot be: segments are "
                         "multiples of 4K from 16K to 1G, and at least %d fit", (unsigned long long)size,
                         (unsigned long long)segment, SEGMENTS_MIN);
    }
    super->tail    = 0;
    super->proof   = 0;
    super->segment = segment;
    super->n       = (room / segment > UINT32_MAX / 2) ? UINT32_MAX / 2 : (uint32_t)(room / segment);
    return KVCL_OK;
}

void kvcl_seg_super_put(const kvcl_seg_super_t *super, uint8_t *block)
{
    kvcl_wr_t wr;

    memset(block, 0, KVCL_SEG_ALIGN);
    kvcl_wr_init(&wr, block, KVCL_SEG_ALIGN);
    kvcl_wr_u64(&wr, SUPER_MAGIC);
    kvcl_wr_u64(&wr, super->id);
    kvcl_wr_u64(&wr, super->segment);
    kvcl_wr_u32(&wr, super->n);
    kvcl_wr_u32(&wr, super->tail);
    kvcl_wr_u64(&wr, super->proof);
    kvcl_wr_zero(&wr, SUPER_BODY - kvcl_wr_len(&wr));
    kvcl_wr_u64(&wr, kvcl_checksum(block, SUPER_BODY));
}

void kvcl_seg_unfinished_put(uint8_t *block)
{
    kvcl_wr_t wr;

    memset(block, 0, KVCL_SEG_ALIGN);
    kvcl_wr_init(&wr, block, KVCL_SEG_ALIGN);
    kvcl_wr_u64(&wr, UNFINISHED_MAGIC);
}

bool kvcl_seg_unfinished(const uint8_t *block)
{
    kvcl_rd_t rd;

    kvcl_rd_init(&rd, block, KVCL_SEG_ALIGN);
    return kvcl_rd_u64(&rd) == UNFINISHED_MAGIC;
}

bool kvcl_seg_super_get(const uint8_t *block, kvcl_seg_super_t *super)
{
    kvcl_rd_t rd;
    uint64_t  magic;

    kvcl_rd_init(&rd, block, KVCL_SEG_ALIGN);
    magic          = kvcl_rd_u64(&rd);
    super->id      = kvcl_rd_u64(&rd);
    super->segment = kvcl_rd_u64(&rd);
    super->n       = kvcl_rd_u32(&rd);
    super->tail    = kvcl_rd_u32(&rd);
    super->proof   = kvcl_rd_u64(&rd);
    return (kvcl_rd_u64(&rd) == kvcl_checksum(block, SUPER_BODY)) && (magic == SUPER_MAGIC) &&
           (super->segment >= SEGMENT_MIN) && (super->segment <= SEGMENT_MAX) &&
           (super->segment % KVCL_SEG_ALIGN == 0) && (super->n >= SEGMENTS_MIN) && (super->n <= UINT32_MAX / 2) &&
           ((super->tail == 0) || (super->tail == KVCL_SEG_TAIL)) && ((super->tail == 0) == (super->proof == 0));
}

/* at: for a header, the unit of its data. */
static uint64_t seed(const kvcl_seg_super_t *super, uint32_t segment, uint32_t at)
{
    uint64_t state = super->id ^ (((uint64_t)at << 32) | segment);

    return kvcl_splitmix64(&state);
}

void kvcl_seg_header_put(const kvcl_seg_super_t *super, uint32_t segment, kvcl_seg_use_t use,
                         const kvcl_seg_rec_t *rec, uint8_t *out)
{
    kvcl_wr_t wr;

    kvcl_wr_init(&wr, out, KVCL_SEG_UNIT);
    kvcl_wr_u32(&wr, HEADER_MAGIC);
    kvcl_wr_u32(&wr, use.seq);
    kvcl_wr_u32(&wr, use.life);
    kvcl_wr_u32(&wr, rec->len);
    kvcl_wr_bytes(&wr, rec->key, sizeof(rec->key));
    kvcl_wr_u64(&wr, rec->checksum);
    kvcl_wr_u64(&wr, kvcl_checksum_seed(out, HEADER_BODY, seed(super, segment, rec->unit)));
}

/* Can data of this length stand there? One past the header at least, and before the least footer. */
static bool fits(const kvcl_seg_super_t *super, const kvcl_seg_rec_t *rec)
{
    uint64_t at = (uint64_t)rec->unit * KVCL_SEG_UNIT;

    return (rec->unit > 0) && (at <= super->segment - KVCL_SEG_UNIT) &&
           (kvcl_seg_bytes(super, rec->len) <= super->segment - KVCL_SEG_UNIT - at);
}

bool kvcl_seg_header_get(const kvcl_seg_super_t *super, uint32_t segment, uint32_t unit, const uint8_t *in,
                         kvcl_seg_use_t *use_p, kvcl_seg_rec_t *rec)
{
    kvcl_rd_t rd;

    kvcl_rd_init(&rd, in, KVCL_SEG_UNIT);
    if (kvcl_rd_u32(&rd) != HEADER_MAGIC) {
        return false;
    }
    use_p->seq  = kvcl_rd_u32(&rd);
    use_p->life = kvcl_rd_u32(&rd);
    rec->unit   = unit;
    rec->len    = kvcl_rd_u32(&rd);
    kvcl_rd_copy(&rd, rec->key, sizeof(rec->key));
    rec->checksum = kvcl_rd_u64(&rd);
    return (kvcl_rd_u64(&rd) == kvcl_checksum_seed(in, HEADER_BODY, seed(super, segment, unit))) &&
           (use_p->seq != 0) && fits(super, rec);
}

void kvcl_seg_trailer_put(const kvcl_seg_super_t *super, uint32_t segment, const kvcl_seg_trailer_t *trailer,
                          uint8_t *out)
{
    kvcl_wr_t wr;

    kvcl_wr_init(&wr, out, KVCL_SEG_UNIT);
    kvcl_wr_u32(&wr, TRAILER_MAGIC);
    kvcl_wr_u32(&wr, (uint32_t)trailer->kind);
    kvcl_wr_u32(&wr, trailer->use.seq);
    kvcl_wr_u32(&wr, trailer->use.life);
    kvcl_wr_u32(&wr, trailer->n);
    kvcl_wr_u64(&wr, trailer->sum);
    kvcl_wr_zero(&wr, TRAILER_BODY - kvcl_wr_len(&wr));
    kvcl_wr_u64(&wr, kvcl_checksum_seed(out, TRAILER_BODY, seed(super, segment, TRAILER_MAGIC)));
}

bool kvcl_seg_trailer_get(const kvcl_seg_super_t *super, uint32_t segment, const uint8_t *in,
                          kvcl_seg_trailer_t *trailer)
{
    kvcl_rd_t rd;
    uint32_t  magic, kind;

    kvcl_rd_init(&rd, in, KVCL_SEG_UNIT);
    magic             = kvcl_rd_u32(&rd);
    kind              = kvcl_rd_u32(&rd);
    trailer->use.seq  = kvcl_rd_u32(&rd);
    trailer->use.life = kvcl_rd_u32(&rd);
    trailer->n        = kvcl_rd_u32(&rd);
    trailer->sum      = kvcl_rd_u64(&rd);
    (void)kvcl_rd_bytes(&rd, TRAILER_BODY - 28);
    if ((magic != TRAILER_MAGIC) || (kind < KVCL_SEG_FREE) || (kind > KVCL_SEG_SEALED) ||
        (kvcl_rd_u64(&rd) != kvcl_checksum_seed(in, TRAILER_BODY, seed(super, segment, TRAILER_MAGIC)))) {
        return false;
    }
    trailer->kind = (kvcl_seg_kind_t)kind;
    return ((kind == KVCL_SEG_FREE) == (trailer->use.seq == 0)) &&
           (kvcl_seg_footer_bytes(trailer->n) <= super->segment);
}

void kvcl_seg_footer_put(const kvcl_seg_super_t *super, uint32_t segment, kvcl_seg_use_t use,
                         const kvcl_seg_rec_t *recs, uint32_t n, uint8_t *out, uint64_t *bytes_p)
{
    kvcl_seg_trailer_t trailer = {.kind = KVCL_SEG_SEALED, .use = use, .n = n};
    kvcl_wr_t          wr;
    uint32_t           i;

    *bytes_p = kvcl_seg_footer_bytes(n);
    memset(out, 0, *bytes_p);
    kvcl_wr_init(&wr, out, (size_t)n * KVCL_SEG_ENTRY);
    for (i = 0; i < n; ++i) {
        kvcl_wr_bytes(&wr, recs[i].key, sizeof(recs[i].key));
        kvcl_wr_u64(&wr, recs[i].checksum);
        kvcl_wr_u32(&wr, recs[i].unit & ~KVCL_SEG_DEAD);
        kvcl_wr_u32(&wr, recs[i].len);
    }
    trailer.sum = kvcl_checksum_seed(out, kvcl_wr_len(&wr), super->id);
    kvcl_seg_trailer_put(super, segment, &trailer, out + *bytes_p - KVCL_SEG_UNIT);
}

bool kvcl_seg_entries_get(const kvcl_seg_super_t *super, const kvcl_seg_trailer_t *trailer, const uint8_t *entries,
                          kvcl_seg_rec_t *recs)
{
    uint64_t  end = super->segment - kvcl_seg_footer_bytes(trailer->n), at = 0;
    size_t    len = (size_t)trailer->n * KVCL_SEG_ENTRY;
    kvcl_rd_t rd;
    uint32_t  i;

    if (kvcl_checksum_seed(entries, len, super->id) != trailer->sum) {
        return false;
    }
    kvcl_rd_init(&rd, entries, len);
    for (i = 0; i < trailer->n; ++i) {
        kvcl_rd_copy(&rd, recs[i].key, sizeof(recs[i].key));
        recs[i].checksum = kvcl_rd_u64(&rd);
        recs[i].unit     = kvcl_rd_u32(&rd);
        recs[i].len      = kvcl_rd_u32(&rd);
        if (!fits(super, &recs[i]) || ((uint64_t)recs[i].unit * KVCL_SEG_UNIT < at + KVCL_SEG_UNIT)) {
            return false;
        }
        at = (uint64_t)recs[i].unit * KVCL_SEG_UNIT + kvcl_seg_bytes(super, recs[i].len);
        if (at > end) {
            return false;
        }
    }
    return kvcl_rd_done(&rd);
}
