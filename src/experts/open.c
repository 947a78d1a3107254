/*
 * kvcl_ep_open and kvcl_ep_close: the handle's memory, and the meeting of all ranks, in which params are compared and
 * every pair of ranks connects.
 *
 * Owns: the handle. Invariant: ranks open it all, or none does. No lock is held.
 */
#include "config.h"

#include "experts/step.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/structs.h"
#include "core/comm.h"
#include "handle/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };
#define TIMEOUT_MAX_NS (UINT64_C(1) << 60) /* 36 years */

/* What each rank tells all others. */
typedef struct hello {
    int32_t  status; /* can it open the handle? */
    uint32_t slots, max_tokens, top_k, hidden, dtype;
} hello_t;

kvcl_status_t kvcl_ep_enter(kvcl_ep_h ep, const char *call)
{
    kvcl_status_t status = kvcl_handle_check(ep, KVCL_KIND_EP, call);

    if ((status == KVCL_OK) && atomic_flag_test_and_set_explicit(&ep->busy, memory_order_acquire)) {
        status = kvcl_fail(KVCL_ERR_BUSY, "%s: another call of this handle has not returned", call);
    }
    return status;
}

/* ---- memory ---- */

static kvcl_status_t make_rows(kvcl_ep_h ep, kvcl_ep_rows_t *rows, const char *what, uint64_t n, bool mapped)
{
    static _Atomic unsigned made;
    const kvcl_layout_t     layout = KVCL_LAYOUT_BYTES(n, ep->dims.row_bytes);
    const size_t            bytes  = ((size_t)n * ep->dims.row_bytes + PAGE - 1) / PAGE * PAGE;
    kvcl_cache_params_t     params = KVCL_CACHE_PARAMS_INIT;
    kvcl_status_t           status;
    char                    name[48];

    if (!mapped) {
        rows->own         = aligned_alloc(PAGE, bytes);
        params.n_bases    = 1;
        params.bases      = &rows->own;
        params.base_bytes = &bytes;
        if (rows->own == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_open: no memory for %llu rows of %u bytes (%s)",
                             (unsigned long long)n, ep->dims.row_bytes, what);
        }
    }
    snprintf(name, sizeof(name), "kvcl_ep.%u.%s", atomic_fetch_add(&made, 1), what);
    status = kvcl_cache_create(ep->comm->ctx, name, &layout, mapped ? NULL : &params, &rows->cache);
    if (status == KVCL_OK) {
        rows->base = kvcl_cache_base(rows->cache, 0);
    }
    return status;
}

static void free_rows(kvcl_ep_rows_t *rows)
{
    kvcl_cache_destroy(rows->cache);
    free(rows->own);
}

static kvcl_status_t make_arrays(kvcl_ep_h ep)
{
    const kvcl_ep_dims_t *dims   = &ep->dims;
    const size_t         choices = (size_t)dims->max_tokens * dims->top_k, ops = (size_t)KVCL_EP_OPS * dims->ranks;
    kvcl_ep_peer_t       *peers  = calloc(dims->ranks, sizeof(*peers));
    size_t               i;

    ep->numbers  = calloc(choices, sizeof(*ep->numbers));
    ep->rows_to  = calloc(dims->ranks, sizeof(*ep->rows_to));
    ep->members  = calloc(dims->ranks, sizeof(*ep->members));
    ep->notices  = calloc(2 * (size_t)dims->ranks, kvcl_ep_notice_bytes(dims));
    ep->counts   = calloc(dims->local, sizeof(*ep->counts));
    ep->infos    = calloc(dims->ranks, sizeof(*ep->infos));
    ep->words    = calloc(3 * (size_t)dims->ranks, sizeof(*ep->words));
    ep->reqs     = calloc(ops, sizeof(*ep->reqs));
    ep->done     = calloc(ops, sizeof(*ep->done));
    ep->statuses = calloc(ops, sizeof(*ep->statuses));
    if ((peers == NULL) || (ep->numbers == NULL) || (ep->rows_to == NULL) || (ep->members == NULL) ||
        (ep->notices == NULL) || (ep->counts == NULL) || (ep->infos == NULL) || (ep->words == NULL) ||
        (ep->reqs == NULL) || (ep->done == NULL) || (ep->statuses == NULL)) {
        free(peers);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_open: no memory for %zu rows and %u ranks", choices, dims->ranks);
    }
    for (i = 0; i < choices; ++i) {
        ep->numbers[i] = (uint32_t)i;
    }
    kvcl_ep_turn_init(&ep->turn, dims->ranks, dims->self, peers, &kvcl_ep_msgs_acts, ep);
    return KVCL_OK;
}

/* Accepts a half-made handle. */
static void fini(kvcl_ep_h ep)
{
    free_rows(&ep->x);
    free_rows(&ep->in);
    free_rows(&ep->y);
    free_rows(&ep->back);
    kvcl_ep_route_fini(&ep->route);
    kvcl_ep_inbox_fini(&ep->inbox);
    kvcl_ep_masks_fini(&ep->masks);
    kvcl_ep_map_fini(&ep->maps[0]);
    kvcl_ep_map_fini(&ep->maps[1]);
    free(ep->turn.peers);
    free(ep->numbers);
    free(ep->rows_to);
    free(ep->members);
    free(ep->notices);
    free(ep->counts);
    free(ep->infos);
    free(ep->words);
    free(ep->reqs);
    free(ep->done);
    free(ep->statuses);
    kvcl_comm_free(ep->comm);
    kvcl_object_free(ep);
}

static kvcl_status_t make(kvcl_ep_h ep)
{
    const kvcl_ep_dims_t *dims  = &ep->dims;
    kvcl_status_t        status = make_arrays(ep);

    if ((status != KVCL_OK) || ((status = kvcl_ep_masks_init(&ep->masks, dims->ranks)) != KVCL_OK) ||
        ((status = kvcl_ep_route_init(&ep->route, dims)) != KVCL_OK) ||
        ((status = kvcl_ep_inbox_init(&ep->inbox, dims)) != KVCL_OK) ||
        ((status = make_rows(ep, &ep->x, "x", dims->max_tokens, true)) != KVCL_OK) ||
        ((status = make_rows(ep, &ep->y, "y", (uint64_t)dims->local * dims->rows, true)) != KVCL_OK) ||
        ((status = make_rows(ep, &ep->in, "in", (uint64_t)dims->local * dims->rows, false)) != KVCL_OK)) {
        return status;
    }
    return make_rows(ep, &ep->back, "back", (uint64_t)dims->max_tokens * dims->top_k, false);
}

/* ---- meeting ---- */

static kvcl_status_t wait_for(kvcl_status_t posted, kvcl_req_h req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : posted;
}

static kvcl_status_t compare(const hello_t *all, uint32_t ranks, uint32_t self)
{
    const hello_t *mine = &all[self], *of;
    uint32_t      r;

    for (r = 0; r < ranks; ++r) {
        of = &all[r];
        if ((of->status != KVCL_OK) && (r != self)) {
            return kvcl_fail((kvcl_status_t)of->status, "ep_open: rank %u cannot open it: %s", r,
                             kvcl_status_text((kvcl_status_t)of->status));
        }
        if (memcmp(&of->slots, &mine->slots, sizeof(*of) - offsetof(hello_t, slots)) != 0) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_open: rank %u has slots %u, max_tokens %u, top_k %u, hidden "
                             "%u, dtype %u; rank %u has %u, %u, %u, %u, %u: give the same on all ranks", r, of->slots,
                             of->max_tokens, of->top_k, of->hidden, of->dtype, self, mine->slots, mine->max_tokens,
                             mine->top_k, mine->hidden, mine->dtype);
        }
    }
    return KVCL_OK;
}

/* All ranks learn whether all can open it; then every pair connects. */
static kvcl_status_t meet(kvcl_comm_h comm, const kvcl_ep_open_params_t *params, kvcl_status_t made)
{
    const uint32_t     ranks = (uint32_t)kvcl_comm_size(comm), self = (uint32_t)kvcl_comm_rank(comm);
    const hello_t      mine  = {(int32_t)made, params->slots, params->max_tokens, params->top_k, params->hidden,
                                (uint32_t)params->dtype};
    hello_t            *all  = calloc(ranks, 2 * sizeof(*all)); /* the second half: any bytes */
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status;
    kvcl_req_h         req = NULL;

    if (all == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_open: no memory to meet %u ranks", ranks);
    }
    p.timeout_ns = params->first_timeout_ns;
    status       = kvcl_allgather(comm, &mine, sizeof(mine), all, &p, &req);
    status       = wait_for(status, req);
    if ((status == KVCL_OK) && (made == KVCL_OK)) {
        status = compare(all, ranks, self);
    }
    if ((status == KVCL_OK) && (made == KVCL_OK)) {
        status = kvcl_alltoall(comm, all, sizeof(*all), all + ranks, &p, &req);
        status = wait_for(status, req);
    }
    free(all);
    return (made == KVCL_OK) ? status : made;
}

static kvcl_status_t take(kvcl_comm_h comm, const kvcl_ep_open_params_t *params, kvcl_ep_open_params_t *p)
{
    kvcl_status_t status = kvcl_comm_check_op(comm, 0, "kvcl_ep_open");

    if (status != KVCL_OK) {
        return status;
    }
    if (comm->inter || (params == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_open: %s", (params == NULL) ? "params is NULL"
                         : "the communicator is one of two sides: give one whose ranks are all members");
    }
    status = kvcl_struct_in(p, params, KVCL_UP_TO(kvcl_ep_open_params_t, first_timeout_ns), sizeof(*p),
                            "kvcl_ep_open_params_t");
    if (status != KVCL_OK) {
        return status;
    }
    if ((p->flags != 0) || (p->timeout_ns == KVCL_WAIT_FOREVER) || (p->first_timeout_ns == KVCL_WAIT_FOREVER)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_open: %s", (p->flags != 0) ? "flags must be 0"
                         : "a timeout is KVCL_WAIT_FOREVER: no rank would ever be late");
    }
    p->first_steps = (p->first_steps == 0) ? 1 : p->first_steps;
    return KVCL_OK;
}

/* Bounded, so that no sum of times wraps around. */
static uint64_t timeout_of(const kvcl_context_h ctx, uint64_t timeout_ns)
{
    const uint64_t ns = kvcl_timeout(ctx, (timeout_ns == KVCL_WAIT_DEFAULT) ? 0 : timeout_ns);

    return (ns < TIMEOUT_MAX_NS) ? ns : TIMEOUT_MAX_NS;
}

/* A communicator of the handle's own. */
static kvcl_status_t same_ranks(kvcl_comm_h comm, kvcl_comm_h *comm_p)
{
    const int     size = kvcl_comm_size(comm);
    int           *all = calloc((size_t)size, sizeof(*all)), r;
    kvcl_status_t status;

    if (all == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_open: no memory for a communicator");
    }
    for (r = 0; r < size; ++r) {
        all[r] = r;
    }
    status = kvcl_comm_create(comm, all, size, comm_p);
    free(all);
    return status;
}

kvcl_status_t kvcl_ep_open(kvcl_comm_h comm, const kvcl_ep_open_params_t *params, kvcl_ep_h *ep_p)
{
    kvcl_ep_open_params_t p = KVCL_EP_OPEN_PARAMS_INIT;
    kvcl_status_t         status = take(comm, params, &p);
    kvcl_ep_h             ep;

    if ((status == KVCL_OK) && (ep_p == NULL)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_open: ep_p is NULL");
    }
    if (status != KVCL_OK) {
        return status;
    }
    ep = kvcl_object_alloc(KVCL_KIND_EP, sizeof(*ep));
    if (ep == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_open: no memory for a handle");
    }
    status = same_ranks(comm, &ep->comm);
    if (status != KVCL_OK) {
        kvcl_object_free(ep);
        return status;
    }
    ep->timeout_ns       = timeout_of(comm->ctx, p.timeout_ns);
    ep->first_timeout_ns = timeout_of(comm->ctx, p.first_timeout_ns);
    ep->first_steps      = p.first_steps;
    status = kvcl_ep_dims_take(&p, (uint32_t)kvcl_comm_size(comm), (uint32_t)kvcl_comm_rank(comm), &ep->dims);
    if (status == KVCL_OK) {
        status = make(ep);
    }
    status = meet(ep->comm, &p, status);
    if (status != KVCL_OK) {
        fini(ep);
        return status;
    }
    kvcl_ep_turn_activate(&ep->turn, 0, NULL);
    kvcl_ep_msgs_listen(ep);
    kvcl_ep_masks_show(&ep->masks, &ep->turn, &ep->maps[ep->map]);
    *ep_p = ep;
    return KVCL_OK;
}

void kvcl_ep_close(kvcl_ep_h ep)
{
    if (!kvcl_handle_may_free(ep, KVCL_KIND_EP, "kvcl_ep_close")) {
        return;
    }
    kvcl_ep_msgs_stop(ep, true);
    fini(ep);
}
