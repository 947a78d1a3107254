/*
 * The paths by which the ranks of a store are reached, for the latencies of its calls (base/latency.h). Engine lock
 * held.
 */
#ifndef KVCL_STORE_HOME_PATHS_H
#define KVCL_STORE_HOME_PATHS_H

#include "store/home/rpc.h"

/** The path to a rank's memory; of ranks that are not mapped, that of requests. */
kvcl_mem_path_t kvcl_store_path(const struct kvcl_store *store, uint32_t rank);
/** The path by which a query was answered. */
kvcl_mem_path_t kvcl_rpc_path(const kvcl_rpc_t *rpc);
/** Adds the paths to all homes that the scatter has items for to a timed call. */
void            kvcl_scatter_path(const struct kvcl_store *store, const kvcl_scatter_t *scatter, kvcl_timing_t *timing);

#endif
