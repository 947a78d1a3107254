/*
 * The index of a log: which record of which segment a key has, if it has a live one.
 *
 * Owns: the map, and the counters of live records. A value of the map is a reference, (segment << 32 | record) + 1,
 * under the hash of the key, seeded by the log's random life. Invariants: a record that is not live carries
 * KVCL_SEG_DEAD; each live record with bytes is in the map, and nothing else is. Locks: none; one thread at a time.
 */
#include "config.h"
#include "tier/seglog.h"
#include "tier/seglog_parts.h"

#include "base/checksum.h"

#include <string.h>

_Static_assert(sizeof(void *) >= sizeof(uint64_t), "an index value holds a segment and a record");

static uint64_t hash_of(const kvcl_seglog_t *log, const uint8_t *key)
{
    return kvcl_checksum_seed(key, KVCL_SEG_KEY, log->hash_seed);
}

static kvcl_seg_rec_t *rec_of(const kvcl_seglog_t *log, const void *value, uint32_t *segment_p)
{
    uint64_t ref = (uint64_t)(uintptr_t)value - 1;

    *segment_p = (uint32_t)(ref >> 32);
    return &log->segs[*segment_p].recs[(uint32_t)ref];
}

kvcl_seg_rec_t *kvcl_seglog_look(const kvcl_seglog_t *log, const uint8_t *key, uint32_t *segment_p)
{
    void           *value = kvcl_map_get(&log->index, hash_of(log, key));
    kvcl_seg_rec_t *rec;

    if (value == NULL) {
        return NULL;
    }
    rec = rec_of(log, value, segment_p);
    return (memcmp(rec->key, key, KVCL_SEG_KEY) == 0) ? rec : NULL;
}

/* The record with this hash, if there is one. */
static void remove_hash(kvcl_seglog_t *log, uint64_t hash)
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

void kvcl_seglog_remove(kvcl_seglog_t *log, const uint8_t *key)
{
    remove_hash(log, hash_of(log, key));
}

void kvcl_seglog_unindex(kvcl_seglog_t *log, const kvcl_seg_rec_t *rec)
{
    (void)kvcl_map_del(&log->index, hash_of(log, rec->key));
    log->live_bytes -= rec->len;
}

void kvcl_seglog_enter(kvcl_seglog_t *log, uint32_t segment, uint32_t i)
{
    kvcl_seglog_seg_t *seg   = &log->segs[segment];
    kvcl_seg_rec_t    *rec   = &seg->recs[i];
    uint64_t          hash   = hash_of(log, rec->key);
    void              *value = (void *)(uintptr_t)((((uint64_t)segment << 32) | i) + 1);

    remove_hash(log, hash);
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

kvcl_tier_loc_t kvcl_seglog_loc(const kvcl_seglog_t *log, uint32_t segment, const kvcl_seg_rec_t *rec)
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
    const kvcl_seg_rec_t *rec = kvcl_seglog_look(log, key, &segment);

    if (rec == NULL) {
        return KVCL_ERR_NOT_FOUND;
    }
    *loc_p = kvcl_seglog_loc(log, segment, rec);
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
        remove_hash(log, hash_of(log, key));
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
                *loc_p = kvcl_seglog_loc(log, segment, &seg->recs[i]);
                return true;
            }
        }
    }
    return false;
}
