/*
 * The paths by which the ranks of a store are reached, for the latencies of its calls (base/latency.h). Engine lock
 * held.
 */
#ifndef KVCL_STORE_HOME_PATHS_H
#define KVCL_STORE_HOME_PATHS_H

#include "store/store.h"

/** The path to a rank's memory. */
kvcl_mem_path_t kvcl_store_path(const struct kvcl_store *store, uint32_t rank);
/** Adds the paths to all homes that the scatter has items for to a timed call. */
void            kvcl_scatter_path(const struct kvcl_store *store, const kvcl_scatter_t *scatter, kvcl_timing_t *timing);

#endif
