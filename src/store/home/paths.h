/*
 * How the ranks of a store are reached, for the times of its calls (base/latency.h). Engine lock held.
 */
#ifndef KVCL_STORE_HOME_PATHS_H
#define KVCL_STORE_HOME_PATHS_H

#include "store/store.h"

/** How a rank's memory is reached. */
kvcl_mem_path_t kvcl_store_path(const struct kvcl_store *store, uint32_t rank);
/** The homes that a deal asks take part in the call that is timed. */
void       kvcl_scatter_path(const struct kvcl_store *store, const kvcl_scatter_t *scatter, kvcl_timing_t *timing);

#endif
