/*
 * Puts into other ranks' pools (put_far.c).
 */
#ifndef KVCL_STORE_PUT_FAR_H
#define KVCL_STORE_PUT_FAR_H

#include "store/pool/pool.h"
#include <kvcl/kvcl_xfer.h>

/** Any thread. Does a put of such blocks go to other ranks' pools, because this rank's pool has none, or because the
 * caller names another rank? */
bool kvcl_put_is_far(const struct kvcl_store *store, uint64_t bytes, const kvcl_xfer_params_t *p);

/** No lock; does not wait. The blocks must not change until the request ends. instead: the caller has already removed
 * the blocks that the keys named. */
kvcl_status_t kvcl_put_far(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                           const uint32_t *ids, const kvcl_xfer_params_t *p, bool instead, const char *name,
                           kvcl_req_h *req_p) KVCL_MUST_CHECK;

#endif
