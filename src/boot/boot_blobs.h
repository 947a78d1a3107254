/*
 * The blobs of the other ranks, by rank, fetched when first needed; used by pmix, tcp and oob.
 *
 * Owns every blob that was put, until fini. The boot's rule of one thread at a time protects it.
 */
#ifndef KVCL_BOOT_BLOBS_H
#define KVCL_BOOT_BLOBS_H

#include "base/map.h"

typedef struct kvcl_blobs {
    kvcl_map_t by_rank;
} kvcl_blobs_t;

void kvcl_blobs_init(kvcl_blobs_t *blobs);
void kvcl_blobs_fini(kvcl_blobs_t *blobs);

/** Keep a copy of a rank's blob. @return KVCL_OK, KVCL_ERR_EXISTS, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_blobs_put(kvcl_blobs_t *blobs, int rank, const void *blob, size_t len) KVCL_MUST_CHECK;

/** KVCL_OK or KVCL_ERR_NOT_FOUND (without a sentence: the caller fetches it). */
kvcl_status_t kvcl_blobs_get(const kvcl_blobs_t *blobs, int rank, const void **blob_p, size_t *len_p)
        KVCL_MUST_CHECK;

#endif
