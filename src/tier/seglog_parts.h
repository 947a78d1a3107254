/*
 * What the parts of a log (seglog.h) have of one another: its index and its staging chunks. Pure; one thread at a time.
 */
#ifndef KVCL_TIER_SEGLOG_PARTS_H
#define KVCL_TIER_SEGLOG_PARTS_H

#include "tier/seglog.h"

/* ---- seglog_index.c ---- */

/** The live record of a key, or NULL. */
kvcl_seg_rec_t *kvcl_seglog_look(const kvcl_seglog_t *log, const uint8_t *key, uint32_t *segment_p);
/** The record i of a segment is live, and replaces the one that had its key. */
void            kvcl_seglog_enter(kvcl_seglog_t *log, uint32_t segment, uint32_t i);
/** The record of a key, if there is one, is dead. */
void            kvcl_seglog_remove(kvcl_seglog_t *log, const uint8_t *key);
/** A live record is no longer found, and stays as it is: its segment is opened again. */
void            kvcl_seglog_unindex(kvcl_seglog_t *log, const kvcl_seg_rec_t *rec);
kvcl_tier_loc_t kvcl_seglog_loc(const kvcl_seglog_t *log, uint32_t segment, const kvcl_seg_rec_t *rec);

/* ---- seglog_chunks.c ---- */

/** The next n bytes of the open segment: zeros, or (put) the caller's to fill. */
void kvcl_seglog_advance(kvcl_seglog_t *log, uint64_t n, kvcl_seglog_put_t *put);
/** The chunk that is being filled, if there is one, is padded, and written next. */
void kvcl_seglog_close_chunk(kvcl_seglog_t *log);
/** Enough chunks are free for the stream of a segment to go on from `used` to `end`. fresh: in a chunk of its own. */
bool kvcl_seglog_chunks_suffice(const kvcl_seglog_t *log, bool fresh, uint64_t used, uint64_t end);

#endif
