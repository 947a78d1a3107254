/*
 * Blocks of the caller's caches, published where they are (pool/publish_own.c).
 */
#ifndef KVCL_STORE_POOL_PUBLISH_OWN_H
#define KVCL_STORE_POOL_PUBLISH_OWN_H

#include "store/store.h"

uint64_t      kvcl_store_block_sum(kvcl_cache_h cache, uint32_t block); /* no lock */

/** No lock. Publishes n blocks of the caller's cache without listing them: a rank can get them only by slot and
 * generation. The caller sets recs[i].key, the call sets recs[i].loc. Followers get no event. All blocks, or none. */
kvcl_status_t kvcl_own_show(kvcl_store_h store, kvcl_cache_h cache, const uint32_t *ids, size_t n,
                            kvcl_store_rec_t *recs, kvcl_owner_t **owner_p, const char *name) KVCL_MUST_CHECK;
/** kvcl_store_publish for a tenant (0: none). */
kvcl_status_t kvcl_own_publish(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                               const uint32_t *ids, uint64_t tenant, const kvcl_xfer_params_t *params,
                               kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** Lock held. Ends this: no rank can get the blocks any more. */
void          kvcl_own_hide(kvcl_store_h store, kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n);

#endif
