/*
 * kvcl_ep_combine: the machine's combine (step.h), then the weighted sums and what they lack.
 *
 * Invariant: only rows that have arrived whole are added. No lock is held.
 */
#include "config.h"

#include "experts/step.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/structs.h"
#include "weave/pieces.h"

static kvcl_status_t check(const struct kvcl_ep *ep, const float *weights, const void *out,
                           const kvcl_ep_result_t *result)
{
    kvcl_status_t status = KVCL_OK;

    if (result != NULL) {
        status = kvcl_struct_out_check(result, KVCL_UP_TO(kvcl_ep_result_t, active), "kvcl_ep_result_t",
                                       "kvcl_ep_combine");
    }
    if (status != KVCL_OK) {
        return status;
    }
    if (ep->turn.phase != KVCL_EP_COMPUTE) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_combine: no dispatch before it: the last step, %llu, is over",
                         (unsigned long long)ep->turn.step);
    }
    if ((ep->route.n_tokens != 0) && ((weights == NULL) || (out == NULL))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_combine: %s is NULL", (weights == NULL) ? "weights" : "out");
    }
    return KVCL_OK;
}

/* The caller's outputs for other ranks, into the memory that they read. */
static void stage(kvcl_ep_h ep, const char *y)
{
    const uint32_t *blocks;
    uint32_t       r, i;

    for (r = 0; r < ep->dims.ranks; ++r) {
        if ((r == ep->dims.self) || !kvcl_ep_turn_active(&ep->turn, r)) {
            continue;
        }
        blocks = kvcl_ep_inbox_blocks(&ep->inbox, &ep->dims, r);
        for (i = 0; i < ep->inbox.n_from[r]; ++i) {
            kvcl_copy_bytes(kvcl_ep_row(ep, &ep->y, blocks[i]), y + ((size_t)blocks[i] * ep->dims.row_bytes),
                            ep->dims.row_bytes);
        }
    }
}

typedef struct sums {
    struct kvcl_ep *ep;
    const char     *y;
    const uint32_t *own;  /* the blocks of this rank's rows for itself */
    uint32_t       first; /* of its rows */
    uint32_t       end;
} sums_t;

/* The output of a row; NULL: it is lost. */
static const void *output_of(const sums_t *s, uint32_t row, int64_t rank)
{
    if (row == KVCL_EP_ROW_LOST) {
        return NULL;
    }
    if ((row >= s->first) && (row < s->end)) {
        return s->y + ((size_t)s->own[row - s->first] * s->ep->dims.row_bytes);
    }
    return s->ep->turn.peers[rank].back ? kvcl_ep_row(s->ep, &s->ep->back, row) : NULL;
}

/* Whose row is it? The rows of ranks lie one behind another. */
static uint32_t rank_of(const sums_t *s, uint32_t row)
{
    uint32_t low = 0, high = s->ep->dims.ranks, mid;

    while (high - low > 1) {
        mid = low + ((high - low) / 2);
        if (row >= kvcl_ep_route_first(&s->ep->route, &s->ep->dims, mid)) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low;
}

/* One token. @return the weight that is lost. */
static float sum(const sums_t *s, uint32_t t, const float *weights, void *out, kvcl_ep_result_t *result)
{
    const kvcl_ep_dims_t *dims  = &s->ep->dims;
    const uint32_t       *place = s->ep->route.place + ((size_t)t * s->ep->route.top_k);
    const void           *rows[KVCL_EP_MAX_TOP_K];
    float                kept[KVCL_EP_MAX_TOP_K], lost = 0.0f;
    uint32_t             k, n = 0, missing = 0;

    for (k = 0; k < s->ep->route.top_k; ++k) {
        if (place[k] == KVCL_EP_ROW_NONE) {
            continue;
        }
        rows[n] = output_of(s, place[k], (place[k] == KVCL_EP_ROW_LOST) ? 0 : (int64_t)rank_of(s, place[k]));
        if (rows[n] == NULL) {
            lost += weights[k];
            ++missing;
        } else {
            kept[n++] = weights[k];
        }
    }
    kvcl_ep_sum(out, dims->dtype, dims->hidden, rows, kept, n);
    result->tokens_lost += (missing != 0);
    result->tokens_all  += (missing != 0) && (n == 0);
    return lost;
}

static void sum_all(kvcl_ep_h ep, const char *y, const float *weights, char *out, float *lost,
                    kvcl_ep_result_t *result)
{
    const kvcl_ep_dims_t *dims = &ep->dims;
    const sums_t         s     = {ep, y, kvcl_ep_inbox_blocks(&ep->inbox, dims, dims->self),
                                  kvcl_ep_route_first(&ep->route, dims, dims->self),
                                  kvcl_ep_route_first(&ep->route, dims, dims->self + 1)};
    uint32_t             t;
    float                left_out;

    for (t = 0; t < ep->route.n_tokens; ++t) {
        left_out = sum(&s, t, weights + ((size_t)t * ep->route.top_k), out + ((size_t)t * dims->row_bytes), result);
        if (lost != NULL) {
            lost[t] = left_out;
        }
    }
}

kvcl_status_t kvcl_ep_combine(kvcl_ep_h ep, const void *y, const float *weights, void *out, float *lost,
                              kvcl_ep_result_t *result)
{
    kvcl_ep_result_t said   = KVCL_EP_RESULT_INIT;
    kvcl_status_t    status = kvcl_ep_enter(ep, "kvcl_ep_combine");
    uint64_t         now_ns;

    if (status != KVCL_OK) {
        return status;
    }
    status = check(ep, weights, out, result);
    if (status == KVCL_OK) {
        now_ns = kvcl_now_ns();
        kvcl_ep_msgs_learn(ep);
        if ((y != NULL) && (y != ep->y.base)) {
            stage(ep, y);
        }
        kvcl_ep_turn_combine(&ep->turn, now_ns, kvcl_ep_limit(ep, ep->turn.step));
        kvcl_ep_msgs_run(ep);
        said.step   = ep->turn.step;
        said.active = ep->masks.mask->n_active;
        sum_all(ep, (y != NULL) ? y : ep->y.base, weights, out, lost, &said);
        if (result != NULL) {
            kvcl_struct_out(result, &said, sizeof(said));
        }
    }
    kvcl_ep_leave(ep);
    return status;
}
