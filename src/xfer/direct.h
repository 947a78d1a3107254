/*
 * Transfers that need no engine: both sides mapped, few bytes, copied inside the posting call.
 */
#ifndef KVCL_XFER_DIRECT_H
#define KVCL_XFER_DIRECT_H

#include "cache/cache.h"
#include "xfer/prepare.h"

/** The ready, mapped cache of a peer if bytes are few enough to copy inside the post; else NULL. No lock held. */
kvcl_rcache_t *kvcl_direct_rcache(kvcl_context_h ctx, kvcl_peer_t *peer, uint64_t key, uint64_t bytes);
/** Copy local <- remote, or (push) local -> remote. Checks the remote selection. No lock held. */
kvcl_status_t  kvcl_direct_copy(kvcl_cache_h cache, const kvcl_sel_t *local_sel, kvcl_rcache_t *rcache,
                                const kvcl_sel_t *remote_sel, bool push) KVCL_MUST_CHECK;
/** After a failure: sets the complete sentence for the request. No lock held. @return status. */
kvcl_status_t  kvcl_direct_fail(const kvcl_xfer_plan_t *plan, const kvcl_sel_t *local, const kvcl_sel_t *remote,
                                bool push, kvcl_status_t status);
/** As kvcl_direct_copy, and records its latency. */
kvcl_status_t  kvcl_direct_copy_timed(kvcl_cache_h cache, const kvcl_sel_t *local_sel, kvcl_rcache_t *rcache,
                                      const kvcl_sel_t *remote_sel, bool push) KVCL_MUST_CHECK;
void           kvcl_set_statuses(kvcl_status_t *statuses, size_t n, kvcl_status_t status);

#endif
