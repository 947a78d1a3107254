/*
 * Gets of blocks, for the rooms above and beside (get/get_now.c, get/get_rounds.c, get/verify.c).
 */
#ifndef KVCL_STORE_GET_GETS_H
#define KVCL_STORE_GET_GETS_H

#include "store/store.h"
#include "store/tenant.h"

/** No lock. True: the get has ended, statuses are written and *final_p is its status. timing, tenant: of the call, or
 * NULL. */
bool kvcl_get_now(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache, const uint32_t *ids,
                  kvcl_status_t *statuses[2], kvcl_timing_t *timing, kvcl_store_tenant_t *tenant,
                  kvcl_status_t *final_p);
bool kvcl_verify_work(kvcl_context_h ctx);
/** Lock held. Fetches the blocks that recs name into cache's blocks ids[], from the location of the record or from any
 * other copy (gen 0: the locations are looked up). recs and ids are copied. status: one each, the caller's. from (one
 * each, or NULL): of each block that arrives, its source as it is listed. If loc.source is not 0 (and gen is 0), a copy
 * with this tag, or with loc's checksum, is not used. user: hits are counted, and for the tenant (or NULL). cb runs
 * without the lock. *req_p is valid until cb has run. */
kvcl_status_t kvcl_get_recs(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n, kvcl_cache_h cache,
                            const uint32_t *ids, kvcl_status_t *status, kvcl_dir_loc_t *from, uint64_t timeout_ns,
                            bool user, kvcl_store_tenant_t *tenant, kvcl_req_cb_t cb, void *cb_arg,
                            kvcl_req_t **req_p) KVCL_MUST_CHECK;

#endif
