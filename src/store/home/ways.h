/*
 * How the ranks of a store are reached, for the times of its calls (base/latency.h). Engine lock held.
 */
#ifndef KVCL_STORE_HOME_WAYS_H
#define KVCL_STORE_HOME_WAYS_H

#include "store/store.h"

/** How a rank's memory is reached. */
kvcl_way_t kvcl_store_way(const struct kvcl_store *store, uint32_t rank);
/** The homes that a deal asks take part in the call that is timed. */
void       kvcl_deal_way(const struct kvcl_store *store, const kvcl_deal_t *deal, kvcl_timing_t *timing);

#endif
