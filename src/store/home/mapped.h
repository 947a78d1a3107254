/*
 * Tables of other ranks that are mapped here: of each rank the present one, and those of processes that had its slot
 * before, which readers without the lock may still use. Engine lock held.
 */
#ifndef KVCL_STORE_HOME_MAPPED_H
#define KVCL_STORE_HOME_MAPPED_H

#include "store/store.h"

/** The rank's region is that of its table, which is mapped: it is kept. */
kvcl_status_t kvcl_mapped_keep(kvcl_store_rank_t *rank) KVCL_MUST_CHECK;
/** Closes the regions in this peer's memory (NULL: all), whose endpoint is about to be closed. */
void          kvcl_mapped_close(kvcl_store_rank_t *rank, const kvcl_peer_t *peer);
void          kvcl_mapped_free(kvcl_store_h store); /* the store is freed */

#endif
