/*
 * Publishing: records of blocks are sent to their homes, and keys are removed from theirs. Both are one request
 * (publish.c); publish_result.c keeps the results of the homes.
 */
#ifndef KVCL_STORE_POOL_PUBLISH_H
#define KVCL_STORE_POOL_PUBLISH_H

#include "store/store.h"
#include <kvcl/kvcl_xfer.h>

typedef struct kvcl_publish kvcl_publish_t;

/** No lock. Lists n blocks that are PUBLISHED in owner at their homes; recs is copied. p->status (may be NULL): one
 * status a block. timing: of the call that this request ends, or NULL: not timed. */
kvcl_status_t kvcl_publish_start(kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n,
                                 const kvcl_timing_t *timing, const kvcl_xfer_params_t *p,
                                 kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** Lock held: is the published block withdrawn if a publish of it that is in flight fails? */
bool          kvcl_publish_may_fail(const struct kvcl_store *store, const kvcl_owner_t *owner, uint32_t slot);
/** Lock held: the owner is detached; publishes in flight count its blocks as withdrawn. */
void          kvcl_publish_forget(kvcl_owner_t *owner);

#endif
