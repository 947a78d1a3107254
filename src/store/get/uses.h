/*
 * Uses of other ranks' blocks, which their owners learn in batches, so that eviction knows them (get/uses.c).
 */
#ifndef KVCL_STORE_GET_USES_H
#define KVCL_STORE_GET_USES_H

#include "store/store.h"

kvcl_status_t kvcl_uses_open(kvcl_store_h store) KVCL_MUST_CHECK;
/** Notes that the blocks at these locations were got; of a chain, the end first. Any thread; locked: the caller holds
 * the engine lock. */
void          kvcl_uses_note(kvcl_store_h store, const kvcl_dir_loc_t *const *locs, size_t n, bool locked);
/** At the end of a get: notifies the owners of which many uses are noted. */
void          kvcl_uses_send(kvcl_store_h store, bool locked);
/** A row of kinds.c. */
bool          kvcl_uses_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                                   const void *data, size_t len);

#endif
