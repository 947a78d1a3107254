/*
 * Blocks of the caller's caches, published where they are (pool/publish_own.c).
 */
#ifndef KVCL_STORE_POOL_PUBLISH_OWN_H
#define KVCL_STORE_POOL_PUBLISH_OWN_H

#include "store/store.h"

uint64_t      kvcl_store_block_sum(kvcl_cache_h cache, uint32_t block); /* no lock */

/** No lock. Takes n blocks of the caller's cache, each once: no other call can publish or free them. All, or none. */
kvcl_status_t kvcl_own_take(kvcl_store_h store, kvcl_cache_h cache, const uint32_t *ids, size_t n, uint64_t tenant,
                            const char *name, kvcl_owner_t **owner_p) KVCL_MUST_CHECK;
/** Lock held. Publishes taken blocks without listing them, and pins them: a rank can get them only by slot and
 * generation. The caller sets key, loc.slot and loc.checksum of recs[order[0..n)], the call the rest of loc. Followers
 * get no event. On an error they all stay taken. */
kvcl_status_t kvcl_own_show(kvcl_owner_t *owner, kvcl_store_rec_t *recs, const uint32_t *order, size_t n,
                            const char *name) KVCL_MUST_CHECK;
/** Lock held. Ends both, for blocks that are shown (loc.gen is not 0) or only taken: they are the caller's again. */
void          kvcl_own_hide(kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n);
/** kvcl_store_publish for a tenant (0: none). */
kvcl_status_t kvcl_own_publish(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                               const uint32_t *ids, uint64_t tenant, const kvcl_xfer_params_t *params,
                               kvcl_req_h *req_p) KVCL_MUST_CHECK;

#endif
