/*
 * kvcl_ep_settle: fetched weights into their slots; the sum of a block; and the arguments of both calls, checked
 * (restore.h). No lock is held.
 */
#include "config.h"

#include "experts/restore.h"

#include "base/error.h"
#include "base/structs.h"
#include "cache/cache.h"
#include "core/comm.h"
#include "handle/handle.h"
#include "kv/stream.h"

#include <stdlib.h>

/* A store's handle, or a tenant's; NULL: there is none. */
static kvcl_status_t check_store(kvcl_store_h store, const char *call)
{
    const bool fine = (store == NULL) || kvcl_handle_is(store, KVCL_KIND_TENANT);

    return fine ? KVCL_OK : kvcl_handle_check(store, KVCL_KIND_STORE, call);
}

static kvcl_status_t take_weights(const kvcl_ep_weights_t *weights, const char *call, kvcl_ep_weights_t *w)
{
    kvcl_status_t status;

    if (weights == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: weights is NULL", call);
    }
    *w     = (kvcl_ep_weights_t)KVCL_EP_WEIGHTS_INIT;
    status = kvcl_struct_in(w, weights, KVCL_UP_TO(kvcl_ep_weights_t, try_ns), sizeof(*w), "kvcl_ep_weights_t");
    if ((status != KVCL_OK) || ((status = kvcl_comm_check_op(w->comm, 0, call)) != KVCL_OK) ||
        ((status = kvcl_handle_check(w->cache, KVCL_KIND_CACHE, call)) != KVCL_OK) ||
        ((status = check_store(w->store, call)) != KVCL_OK)) {
        return status;
    }
    if (w->cache->copier != NULL) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: the cache is device memory: no sum could be verified", call);
    }
    if ((w->flags != 0) || w->comm->inter || (w->sums == NULL) || ((w->store != NULL) && (w->keys == NULL))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %s", call,
                         (w->flags != 0) ? "flags must be 0" : w->comm->inter ? "the communicator is one of two sides"
                         : (w->sums == NULL) ? "sums is NULL: nothing could be verified" : "a store without keys");
    }
    if ((w->timeout_ns == KVCL_WAIT_FOREVER) || (w->try_ns == KVCL_WAIT_FOREVER)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: a timeout is KVCL_WAIT_FOREVER: no source would ever be given up",
                         call);
    }
    w->timeout_ns = kvcl_timeout(w->comm->ctx, (w->timeout_ns == KVCL_WAIT_DEFAULT) ? 0 : w->timeout_ns);
    w->try_ns     = ((w->try_ns == 0) || (w->try_ns == KVCL_WAIT_DEFAULT)) ? (w->timeout_ns / 4) + 1 : w->try_ns;
    return KVCL_OK;
}

kvcl_status_t kvcl_ep_restore_take(const kvcl_ep_params_t *params, const kvcl_ep_weights_t *weights,
                                   const int32_t *old, const kvcl_ep_move_t *moves, size_t stride, size_t n,
                                   const char *call, kvcl_ep_restore_t *r)
{
    kvcl_status_t status;
    uint64_t      blocks, slots;

    *r     = (kvcl_ep_restore_t){.old = old, .moves = moves, .stride = stride, .n = n};
    status = kvcl_ep_take(params, call, &r->shape);
    if ((status != KVCL_OK) || ((status = take_weights(weights, call, &r->w)) != KVCL_OK) ||
        ((old != NULL) && ((status = kvcl_ep_placement_check(&r->shape, old, call, "old")) != KVCL_OK)) ||
        ((status = kvcl_ep_moves_check(&r->shape, moves, stride, n, call)) != KVCL_OK)) {
        return status;
    }
    r->self = (uint32_t)kvcl_comm_rank(r->w.comm);
    blocks  = kvcl_cache_blocks(r->w.cache);
    slots   = (uint64_t)r->shape.layers * r->shape.per_rank;
    if ((uint32_t)kvcl_comm_size(r->w.comm) != r->shape.ranks) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the communicator has %d ranks, the params %u", call,
                         kvcl_comm_size(r->w.comm), r->shape.ranks);
    }
    if (blocks < slots) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the cache has %llu blocks: %u layers of %u slots need %llu, and "
                         "spare ones", call, (unsigned long long)blocks, r->shape.layers, r->shape.per_rank,
                         (unsigned long long)slots);
    }
    r->first_spare = (uint32_t)slots;
    r->spare       = (size_t)(blocks - slots);
    return KVCL_OK;
}

kvcl_status_t kvcl_ep_weights_sum(kvcl_cache_h cache, uint32_t block, uint64_t *sum_p)
{
    const kvcl_sel_t sel    = kvcl_sel_of(&block, 1);
    kvcl_status_t    status = kvcl_handle_check(cache, KVCL_KIND_CACHE, "kvcl_ep_weights_sum");
    kvcl_stream_t    stream;
    kvcl_side_t      side;

    if ((status != KVCL_OK) || ((status = kvcl_cache_check_sel(cache, &sel, "kvcl_ep_weights_sum")) != KVCL_OK)) {
        return status;
    }
    if ((sum_p == NULL) || (cache->copier != NULL)) {
        return kvcl_fail((sum_p == NULL) ? KVCL_ERR_INVALID_PARAM : KVCL_ERR_UNSUPPORTED, "ep_weights_sum: %s",
                         (sum_p == NULL) ? "sum_p is NULL" : "the cache is device memory");
    }
    side = kvcl_cache_side(cache, &sel);
    kvcl_stream_init(&stream, &side, KVCL_STREAM_CANONICAL);
    *sum_p = kvcl_stream_checksum(&stream, kvcl_cache_block_bytes(cache));
    return KVCL_OK;
}

/* The two lists of a local copy. @return how many. */
static size_t lists(const kvcl_ep_restore_t *r, const uint32_t *blocks, uint32_t *from, uint32_t *to)
{
    const kvcl_ep_move_t *move;
    size_t               i, n = 0;

    for (i = 0; i < r->n; ++i) {
        move = kvcl_ep_move_at(r->moves, r->stride, i);
        if (kvcl_ep_restore_is_mine(r, move) && (blocks[i] < KVCL_EP_BLOCK_MISSING)) {
            from[n] = blocks[i];
            to[n++] = (move->layer * r->shape.per_rank) + (move->destination % r->shape.per_rank);
        }
    }
    return n;
}

static kvcl_status_t copy(const kvcl_ep_restore_t *r, const uint32_t *from, const uint32_t *to, size_t n)
{
    const kvcl_sel_t   remote = kvcl_sel_of(from, n), local = kvcl_sel_of(to, n);
    kvcl_xfer_params_t p      = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;

    p.timeout_ns = r->w.timeout_ns;
    status       = kvcl_get(r->w.comm, (int)r->self, r->w.cache, &remote, &local, &p, &req);
    return (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
}

kvcl_status_t kvcl_ep_settle(const kvcl_ep_params_t *params, const kvcl_ep_weights_t *weights,
                             const kvcl_ep_move_t *moves, size_t stride, size_t n, const uint32_t *blocks)
{
    kvcl_ep_restore_t r;
    kvcl_status_t     status = kvcl_ep_restore_take(params, weights, NULL, moves, stride, n, "ep_settle", &r);
    uint32_t          *from, *to;
    size_t            i, some;

    if ((status == KVCL_OK) && (blocks == NULL) && (n != 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_settle: blocks is NULL");
    }
    for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
        if ((blocks[i] < KVCL_EP_BLOCK_MISSING) &&
            ((blocks[i] < r.first_spare) || (blocks[i] - r.first_spare >= r.spare))) {
            status = kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "ep_settle: block %u of move %zu is no spare block: give what "
                               "kvcl_ep_restore gave", blocks[i], i);
        }
    }
    if (status != KVCL_OK) {
        return status;
    }
    from = calloc((2 * n) + 1, sizeof(*from));
    if (from == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_settle: no memory for %zu moves", n);
    }
    to     = from + n;
    some   = lists(&r, blocks, from, to);
    status = (some != 0) ? copy(&r, from, to, some) : KVCL_OK;
    free(from);
    return status;
}
