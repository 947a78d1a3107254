/*
 * The dimensions of a step, and its routes: the choices of tokens, sorted by slot (kvcl_ep_step.h).
 *
 * Invariant of a route: begin rises; the rows of a slot are in the order of their tokens. Pure; no lock.
 */
#include "config.h"

#include "ep/ep_step.h"

#include "base/error.h"

#include <stdlib.h>

static kvcl_status_t limit(const char *what, uint32_t value, uint32_t most)
{
    if ((value == 0) || (value > most)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_open: %s is %u: 1 to %u are possible", what, value, most);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_ep_dims_take(const kvcl_ep_open_params_t *params, uint32_t ranks, uint32_t self,
                                kvcl_ep_dims_t *dims)
{
    kvcl_status_t status;
    uint64_t      rows;

    if (((status = limit("slots", params->slots, KVCL_EP_MAX_SLOTS)) != KVCL_OK) ||
        ((status = limit("the number of ranks", ranks, KVCL_EP_MAX_RANKS)) != KVCL_OK) ||
        ((status = limit("max_tokens", params->max_tokens, KVCL_EP_MAX_TOKENS)) != KVCL_OK) ||
        ((status = limit("top_k", params->top_k, KVCL_EP_MAX_TOP_K)) != KVCL_OK) ||
        ((status = limit("hidden", params->hidden, KVCL_EP_MAX_HIDDEN)) != KVCL_OK)) {
        return status;
    }
    if ((params->dtype != KVCL_DTYPE_BF16) && (params->dtype != KVCL_DTYPE_F32)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_open: dtype %d: KVCL_DTYPE_BF16 and KVCL_DTYPE_F32 are possible",
                         (int)params->dtype);
    }
    if (params->slots % ranks != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_open: %u slots are no multiple of %u ranks: give %u slots, or "
                         "another multiple", params->slots, ranks, params->slots - (params->slots % ranks) + ranks);
    }
    *dims = (kvcl_ep_dims_t){.ranks = ranks, .self = self, .slots = params->slots, .local = params->slots / ranks,
                             .max_tokens = params->max_tokens, .top_k = params->top_k, .hidden = params->hidden,
                             .dtype = params->dtype};
    rows  = (uint64_t)params->slots * params->max_tokens;
    if ((rows > INT32_MAX) || ((uint64_t)params->max_tokens * params->top_k > INT32_MAX)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_open: %u slots for %u tokens of each rank are %llu rows: at most "
                         "%d are possible", params->slots, params->max_tokens, (unsigned long long)rows, INT32_MAX);
    }
    dims->rows      = ranks * params->max_tokens;
    dims->most      = params->max_tokens * ((params->top_k < dims->local) ? params->top_k : dims->local);
    dims->row_bytes = params->hidden * ((params->dtype == KVCL_DTYPE_F32) ? 4 : 2);
    return KVCL_OK;
}

kvcl_status_t kvcl_ep_route_init(kvcl_ep_route_t *route, const kvcl_ep_dims_t *dims)
{
    const size_t choices = (size_t)dims->max_tokens * dims->top_k;

    *route        = (kvcl_ep_route_t){0};
    route->tokens = calloc(choices, sizeof(*route->tokens));
    route->place  = calloc(choices, sizeof(*route->place));
    route->begin  = calloc((size_t)dims->slots + 1, sizeof(*route->begin));
    route->next   = calloc(dims->slots, sizeof(*route->next));
    if ((route->tokens == NULL) || (route->place == NULL) || (route->begin == NULL) || (route->next == NULL)) {
        kvcl_ep_route_fini(route);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_open: no memory for %zu choices", choices);
    }
    return KVCL_OK;
}

void kvcl_ep_route_fini(kvcl_ep_route_t *route)
{
    free(route->tokens);
    free(route->place);
    free(route->begin);
    free(route->next);
    *route = (kvcl_ep_route_t){0};
}

/* The first place of the slot that choice k of a token names again; k: none. */
static uint32_t same_before(const int64_t *ids, uint32_t k)
{
    uint32_t i;

    for (i = 0; (i < k) && (ids[i] != ids[k]); ++i) {
    }
    return i;
}

kvcl_status_t kvcl_ep_route_check(const kvcl_ep_dims_t *dims, const int64_t *ids, uint32_t n_tokens, uint32_t top_k)
{
    const int64_t *of;
    uint32_t      t, k, i;

    if (n_tokens > dims->max_tokens) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "ep_dispatch: %u tokens: at most %u (max_tokens) are possible",
                         n_tokens, dims->max_tokens);
    }
    if ((top_k == 0) || (top_k > dims->top_k)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "ep_dispatch: top_k is %u: 1 to %u (that of kvcl_ep_open) are possible",
                         top_k, dims->top_k);
    }
    for (t = 0; t < n_tokens; ++t) {
        of = ids + ((size_t)t * top_k);
        for (k = 0; k < top_k; ++k) {
            if ((of[k] < KVCL_EP_ID_LOST) || (of[k] >= (int64_t)dims->slots)) {
                return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "ep_dispatch: id %lld at place %u of token %u: slots are 0 to "
                                 "%u, and KVCL_EP_ID_NONE or KVCL_EP_ID_LOST name none", (long long)of[k], k, t,
                                 dims->slots - 1);
            }
            i = (of[k] >= 0) ? same_before(of, k) : k;
            if (i < k) {
                return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_dispatch: token %u names slot %lld twice, at places %u "
                                 "and %u", t, (long long)of[k], i, k);
            }
        }
    }
    return KVCL_OK;
}

void kvcl_ep_route_make(kvcl_ep_route_t *route, const kvcl_ep_dims_t *dims, const int64_t *ids, uint32_t n_tokens,
                        uint32_t top_k, const int32_t *active)
{
    const size_t n = (size_t)n_tokens * top_k;
    uint32_t     s, sum = 0;
    size_t       i;

    route->n_tokens = n_tokens;
    route->top_k    = top_k;
    for (s = 0; s < dims->slots; ++s) {
        route->next[s] = 0;
    }
    for (i = 0; i < n; ++i) {
        if ((ids[i] >= 0) && (active[ids[i] / dims->local] != 0)) {
            ++route->next[ids[i]];
        }
    }
    for (s = 0; s < dims->slots; ++s) {
        route->begin[s] = sum;
        sum            += route->next[s];
        route->next[s]  = route->begin[s];
    }
    route->begin[dims->slots] = sum;
    for (i = 0; i < n; ++i) {
        if (ids[i] == KVCL_EP_ID_NONE) {
            route->place[i] = KVCL_EP_ROW_NONE;
        } else if ((ids[i] < 0) || (active[ids[i] / dims->local] == 0)) {
            route->place[i] = KVCL_EP_ROW_LOST;
        } else {
            route->place[i]                = route->next[ids[i]]++;
            route->tokens[route->place[i]] = (uint32_t)(i / top_k);
        }
    }
}
