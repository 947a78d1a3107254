/*
 * Listings of the tier's blocks in flight (cold/listing.c).
 */
#ifndef KVCL_STORE_COLD_LISTING_H
#define KVCL_STORE_COLD_LISTING_H

#include "store/cold/cold.h"

enum { KVCL_COLD_LISTINGS_MAX = 4 };

typedef struct kvcl_cold_listed {
    kvcl_cold_class_t *cls;
    kvcl_store_rec_t  rec;
} kvcl_cold_listed_t;

/* Blocks of the tier whose homes are being notified. */
typedef struct kvcl_cold_listing {
    kvcl_cold_t        *cold;
    size_t             n;        /* pool blocks that become clean at its end, or were evicted meanwhile */
    kvcl_cold_listed_t blocks[]; /* one for each block written, or none */
} kvcl_cold_listing_t;

/** No lock, the thread. List these records; the listing then frees itself at its end. False: not now, the listing stays
 * the caller's. */
bool kvcl_listing_start(kvcl_cold_t *cold, const kvcl_store_rec_t *recs, size_t n,
                        kvcl_cold_listing_t *listing) KVCL_MUST_CHECK;
/** Lock held. The homes have answered, or the store is being closed: its pool blocks are clean, or removed from their
 * homes where they were evicted meanwhile. */
void kvcl_listing_settle(kvcl_cold_t *cold, const kvcl_cold_listing_t *listing);

#endif
