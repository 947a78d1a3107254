/*
 * Checking and completing kvcl_xfer_params_t, and the checks that all posting calls share.
 */
#ifndef KVCL_XFER_PARAMS_H
#define KVCL_XFER_PARAMS_H

#include "core/comm.h"
#include "cache/cache.h"
#include <kvcl/kvcl_xfer.h>

/** What every posting call begins with: the params completed, a communicator with that rank, the rank's peer. */
kvcl_status_t kvcl_xfer_begin(kvcl_comm_h comm, int rank, const char *call, const kvcl_xfer_params_t *params,
                              kvcl_xfer_params_t *out, kvcl_peer_t **peer_p) KVCL_MUST_CHECK;
kvcl_status_t kvcl_xfer_params(const kvcl_xfer_params_t *params, const char *call, kvcl_xfer_params_t *out)
    KVCL_MUST_CHECK;
/** A selection of the peer's, as far as it can be judged here. */
kvcl_status_t kvcl_xfer_remote(const kvcl_sel_t *sel, const char *call) KVCL_MUST_CHECK;
/** The name of the peer's cache that is meant. */
kvcl_status_t kvcl_xfer_name(const kvcl_xfer_params_t *params, kvcl_cache_h cache, const char *call,
                             const char **name_p) KVCL_MUST_CHECK;
/** A local selection: cache and sel there, of this context, in range. */
kvcl_status_t kvcl_xfer_local(kvcl_context_h ctx, kvcl_cache_h cache, const kvcl_sel_t *sel, const char *call)
    KVCL_MUST_CHECK;

/** An own copy of a selection's block list. */
kvcl_status_t kvcl_own_sel(kvcl_sel_t *to, const kvcl_sel_t *sel) KVCL_MUST_CHECK;

#endif
