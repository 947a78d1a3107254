/*
 * Transfers that need no engine: both sides mapped, few bytes, copied inside the posting call.
 */
#ifndef KVCL_XFER_DIRECT_H
#define KVCL_XFER_DIRECT_H

#include "cache/cache.h"
#include "xfer/prepare.h"

/** The ready, mapped cache of a peer if bytes are few enough to copy inside the post; else NULL. No lock held. */
kvcl_rcache_t *kvcl_direct_rcache(kvcl_context_h ctx, kvcl_peer_t *peer, uint64_t key, uint64_t bytes);
/** Copy local <- remote, or (push) local -> remote, and end the request. Checks the remote selection. No lock held. */
kvcl_status_t  kvcl_direct_post(const kvcl_xfer_plan_t *plan, const kvcl_sel_t *local, kvcl_rcache_t *rcache,
                                const kvcl_sel_t *remote, bool push, const kvcl_xfer_params_t *p,
                                kvcl_req_h *req_p) KVCL_MUST_CHECK;
void           kvcl_set_statuses(kvcl_status_t *statuses, size_t n, kvcl_status_t status);

#endif
