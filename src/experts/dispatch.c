/*
 * kvcl_ep_dispatch: checks, the route, then the machine's dispatch (step.h). Rows of the rank for itself are copied
 * while the others' travel.
 *
 * Invariant: a call that fails has sent nothing, and the next one has the same step. No lock is held.
 */
#include "config.h"

#include "experts/step.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/structs.h"
#include "weave/pieces.h"

#include <string.h>

static kvcl_status_t check(const struct kvcl_ep *ep, const void *x, const int64_t *ids, uint32_t n_tokens,
                           uint32_t top_k, const kvcl_ep_batch_t *batch)
{
    kvcl_status_t status = KVCL_OK;

    if (batch != NULL) {
        status = kvcl_struct_out_check(batch, KVCL_UP_TO(kvcl_ep_batch_t, ranges), "kvcl_ep_batch_t",
                                       "kvcl_ep_dispatch");
    }
    if (status != KVCL_OK) {
        return status;
    }
    if (ep->turn.phase != KVCL_EP_IDLE) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_dispatch: step %llu has no combine yet",
                         (unsigned long long)ep->turn.step);
    }
    if ((n_tokens != 0) && ((x == NULL) || (ids == NULL))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_dispatch: %s is NULL", (x == NULL) ? "x" : "ids");
    }
    return kvcl_ep_route_check(&ep->dims, ids, n_tokens, top_k);
}

/* The rank's own tokens for its own slots. */
static void keep(kvcl_ep_h ep, const char *x)
{
    const kvcl_ep_dims_t *dims   = &ep->dims;
    const uint32_t       *blocks = kvcl_ep_inbox_blocks(&ep->inbox, dims, dims->self);
    const uint32_t       *tokens = ep->route.tokens + kvcl_ep_route_first(&ep->route, dims, dims->self);
    uint32_t             i;

    for (i = 0; i < ep->inbox.n_from[dims->self]; ++i) {
        kvcl_copy_bytes(kvcl_ep_row(ep, &ep->in, blocks[i]), x + ((size_t)tokens[i] * dims->row_bytes),
                        dims->row_bytes);
    }
}

static void place_own(kvcl_ep_h ep)
{
    const kvcl_ep_dims_t *dims  = &ep->dims;
    const uint32_t       *begin = ep->route.begin + ((size_t)dims->self * dims->local);
    uint32_t             e;

    for (e = 0; e < dims->local; ++e) {
        ep->counts[e] = begin[e + 1] - begin[e];
    }
    kvcl_ep_inbox_place(&ep->inbox, dims, dims->self, ep->counts);
}

/* Rows that a lost rank announced hold any bytes: nobody is to compute with those. */
static void clear_lost(kvcl_ep_h ep)
{
    uint32_t r, i;

    for (r = 0; r < ep->dims.ranks; ++r) {
        if (kvcl_ep_turn_active(&ep->turn, r)) {
            continue;
        }
        for (i = 0; i < ep->inbox.n_from[r]; ++i) {
            memset(kvcl_ep_row(ep, &ep->in, kvcl_ep_inbox_blocks(&ep->inbox, &ep->dims, r)[i]), 0,
                   ep->dims.row_bytes);
        }
    }
}

static void run(kvcl_ep_h ep, const void *x, const int64_t *ids, uint32_t n_tokens, uint32_t top_k)
{
    const uint64_t now_ns = kvcl_now_ns();
    uint32_t       r;

    kvcl_ep_msgs_learn(ep);
    kvcl_ep_masks_show(&ep->masks, &ep->turn, &ep->maps[ep->map]);
    kvcl_ep_route_make(&ep->route, &ep->dims, ids, n_tokens, top_k, ep->masks.mask->active);
    for (r = 0; r < ep->dims.ranks; ++r) {
        ep->rows_to[r] = kvcl_ep_route_rows(&ep->route, &ep->dims, r);
    }
    kvcl_copy_bytes(ep->x.base, x, (size_t)n_tokens * ep->dims.row_bytes);
    kvcl_ep_inbox_clear(&ep->inbox, &ep->dims);
    place_own(ep);
    kvcl_ep_turn_dispatch(&ep->turn, ep->rows_to, now_ns, kvcl_ep_limit(ep, ep->turn.step + 1));
    keep(ep, x);
    kvcl_ep_msgs_run(ep);
    clear_lost(ep);
}

kvcl_status_t kvcl_ep_dispatch(kvcl_ep_h ep, const void *x, const int64_t *ids, uint32_t n_tokens, uint32_t top_k,
                               kvcl_ep_batch_t *batch)
{
    kvcl_status_t   status = kvcl_ep_enter(ep, "kvcl_ep_dispatch");
    kvcl_ep_batch_t out;

    if (status != KVCL_OK) {
        return status;
    }
    status = check(ep, x, ids, n_tokens, top_k, batch);
    if (status == KVCL_OK) {
        run(ep, x, ids, n_tokens, top_k);
        out = (kvcl_ep_batch_t){.size = sizeof(out), .step = ep->turn.step, .experts = ep->dims.local,
                                .rows = ep->dims.rows, .x = ep->in.base, .y = ep->y.base, .counts = ep->inbox.counts,
                                .ranges = ep->inbox.ranges};
        if (batch != NULL) {
            kvcl_struct_out(batch, &out, sizeof(out));
        }
    }
    kvcl_ep_leave(ep);
    return status;
}
