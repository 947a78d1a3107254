/*
 * Statistics of this rank's part of a store, and of other ranks' parts by a request (ops.h) whose answer is packed
 * (stats_wire.h).
 *
 * Owns nothing. Counters are atomic or read under the engine lock.
 */
#include "config.h"
#include "base/error.h"
#include "base/structs.h"
#include "store/cold/cold.h"
#include "store/admin/ops.h"
#include "store/admin/stats_wire.h"
#include "store/pool/pool.h"
#include "store/tenant.h"
#include "xfer/params.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdlib.h>

#define STATS_FIRST KVCL_UP_TO(kvcl_store_stats_t, lookups)

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)counter, memory_order_relaxed);
}

/* Of the calls of one kind, over all paths. */
static void fill_latency(kvcl_store_h store, kvcl_latency_op_t op, uint64_t *p50_p, uint64_t *p99_p)
{
    *p50_p = kvcl_hist_quantile(store->ctx->latency.hists[op], KVCL_MEM_PATHS, 50);
    *p99_p = kvcl_hist_quantile(store->ctx->latency.hists[op], KVCL_MEM_PATHS, 99);
}

/* Lock held. */
static void fill(kvcl_store_h store, kvcl_store_stats_t *stats)
{
    const kvcl_pool_t *pool = store->pool;
    unsigned          i;

    kvcl_assert_locked(store->ctx);
    *stats = (kvcl_store_stats_t){.size = sizeof(*stats), .blocks = store->n_published, .published = store->n_ever,
                                  .evicted = store->n_evicted, .entries = store->table.count,
                                  .events = store->events.newest, .moved = store->n_moved, .copied = store->n_copied,
                                  .draining = store->draining};
    if (pool != NULL) {
        stats->block_bytes     = kvcl_owner_bytes(pool->owners[0]);
        stats->pool_bytes      = pool->bytes;
        stats->pool_free_bytes = kvcl_pool_all_free_bytes(pool);
        stats->pool_taken      = pool->n_taken;
        stats->n_sizes         = pool->n;
    }
    for (i = 0; (pool != NULL) && (i < pool->n); ++i) {
        const kvcl_owner_t *owner = pool->owners[i];
        stats->sizes[i] = (kvcl_store_size_stats_t){.block_bytes = kvcl_owner_bytes(owner),
                                                    .blocks = kvcl_owner_room(owner), .free = owner->slots.n_free,
                                                    .published = owner->slots.n_published, .pinned = owner->pinned,
                                                    .takes = kvcl_pool_free_bytes(owner) / kvcl_owner_bytes(owner)};
        stats->pool_blocks    += stats->sizes[i].blocks;
        stats->pool_free      += stats->sizes[i].free;
        stats->pool_published += stats->sizes[i].published;
        stats->pinned         += stats->sizes[i].pinned;
    }
    stats->gets       = load(&store->counts.gets);
    stats->hits       = load(&store->counts.hits);
    stats->stale      = load(&store->stale);
    stats->corrupt    = load(&store->corrupt);
    stats->lookups    = load(&store->counts.lookups);
    stats->hits_cache = load(&store->counts.tier_hits[KVCL_DIR_TIER_CACHE]);
    stats->hits_dram  = load(&store->counts.tier_hits[KVCL_DIR_TIER_DRAM]);
    stats->hits_nvme  = load(&store->counts.tier_hits[KVCL_DIR_TIER_NVME]);
    stats->hits_local = load(&store->counts.local_hits);
    stats->bytes_in   = store->ctx->stats.bytes_in;
    stats->bytes_out  = store->ctx->stats.bytes_out;
    stats->bytes_served = store->ctx->stats.bytes_served;
    stats->bytes_native = store->ctx->stats.bytes_native;
    fill_latency(store, KVCL_LATENCY_STORE_GET, &stats->get_p50_ns, &stats->get_p99_ns);
    fill_latency(store, KVCL_LATENCY_STORE_PUT, &stats->put_p50_ns, &stats->put_p99_ns);
    fill_latency(store, KVCL_LATENCY_STORE_MATCH, &stats->match_p50_ns, &stats->match_p99_ns);
}

/* Lock held. What concerns one tenant alone: its blocks, its quota, and the calls by its handles at this rank. */
static void fill_tenant(kvcl_store_h store, uint64_t tenant, kvcl_store_stats_t *stats)
{
    const kvcl_pool_t  *pool = store->pool;
    const kvcl_owner_t *owner;
    unsigned           i;

    kvcl_assert_locked(store->ctx);
    *stats = (kvcl_store_stats_t){.size = sizeof(*stats)};
    kvcl_tenant_counts(store, tenant, stats);
    kvcl_list_foreach (owner, &store->owners, kvcl_owner_t, link) {
        stats->blocks += kvcl_tenants_blocks(owner->tenants, tenant, owner->cls);
    }
    for (i = 0; (pool != NULL) && (i < pool->n); ++i) {
        stats->sizes[i] = (kvcl_store_size_stats_t){.block_bytes = kvcl_owner_bytes(pool->owners[i]),
                                                    .published = kvcl_tenants_blocks(&pool->tenants, tenant, i)};
        stats->pool_published += stats->sizes[i].published;
    }
    stats->n_sizes     = (pool != NULL) ? pool->n : 0;
    stats->block_bytes = stats->sizes[0].block_bytes;
    stats->draining    = store->draining;
    stats->events      = store->events.newest;
}

/* tenant: 0, or only its numbers. Lock held, except for those of the tier. */
static void fill_for(kvcl_store_h store, uint64_t tenant, kvcl_store_stats_t *stats)
{
    if (tenant == 0) {
        fill(store, stats);
    } else {
        fill_tenant(store, tenant, stats);
    }
}

kvcl_status_t kvcl_op_stats(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    kvcl_store_stats_t stats;
    uint64_t           tenant = 0;

    if ((len != 0) && (len != sizeof(tenant))) {
        return KVCL_ERR_PROTOCOL;
    }
    if (len != 0) {
        memcpy(&tenant, in, sizeof(tenant));
    }
    fill_for(store, tenant, &stats);
    if (tenant == 0) {
        kvcl_cold_stats(store->cold, &stats);
    }
    out->len = kvcl_stats_pack(&stats, out->buf, out->cap);
    return (out->len != 0) ? KVCL_OK : KVCL_ERR_NO_SPACE;
}

static kvcl_status_t own_stats(kvcl_store_h store, const kvcl_store_tenant_t *tenant, kvcl_store_stats_t *stats)
{
    kvcl_status_t      status = kvcl_struct_out_check(stats, STATS_FIRST, "kvcl_store_stats_t", "kvcl_store_stats");
    kvcl_store_stats_t now;

    if (status == KVCL_OK) {
        status = kvcl_handle_check(store, KVCL_KIND_STORE, "kvcl_store_stats");
    }
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(store->ctx);
    fill_for(store, kvcl_tenant_of(tenant), &now);
    kvcl_unlock_quietly(store->ctx);
    if (tenant == NULL) {
        kvcl_cold_stats(store->cold, &now);
    }
    kvcl_struct_out(stats, &now, sizeof(now));
    return KVCL_OK;
}

kvcl_status_t kvcl_store_stats(kvcl_store_h store, kvcl_store_stats_t *stats)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, "kvcl_store_stats", &entry);

    status = (status == KVCL_OK) ? own_stats(store, entry.tenant, stats) : status;
    kvcl_store_leave(&entry);
    return status;
}

/* ---- other ranks ---- */

/* The statistics of one rank, or of all: stats and status at index i are those of rank first + i. */
typedef struct stats_call {
    kvcl_op_t          op;
    bool               requested;
    uint64_t           tenant;  /* 0: all of the store */
    uint32_t           first, n;
    kvcl_store_stats_t *stats;
    size_t             stride;  /* bytes from one element to the next; 0: a single struct with its own size */
    kvcl_status_t      *status; /* n; NULL: a single rank, whose status is the request's */
    kvcl_status_t      one;     /* the single rank's */
} stats_call_t;

static void write_stats(stats_call_t *call, uint32_t at, kvcl_store_stats_t *now)
{
    if (call->stride == 0) {
        kvcl_struct_out(call->stats, now, sizeof(*now));
    } else {
        now->size = call->stride;
        kvcl_struct_out_at(call->stats, at, call->stride, now, sizeof(*now));
    }
}

static void on_stats(kvcl_op_t *op, uint32_t rank, uint64_t tag, kvcl_status_t status, const void *data, size_t len)
{
    stats_call_t       *call = kvcl_container_of(op, stats_call_t, op);
    uint32_t           at    = rank - call->first;
    kvcl_store_stats_t now;

    (void)tag;
    if ((status == KVCL_OK) && !kvcl_stats_unpack(data, len, &now)) {
        status = KVCL_ERR_PROTOCOL;
    }
    if (status == KVCL_OK) {
        write_stats(call, at, &now);
    }
    *((call->status != NULL) ? &call->status[at] : &call->one) = status;
}

static bool next(kvcl_call_t *base)
{
    stats_call_t *call = kvcl_container_of(base, stats_call_t, op.call);
    uint32_t     i;

    if (call->requested) {
        return false;
    }
    call->requested = true;
    for (i = 0; i < call->n; ++i) {
        kvcl_op_rpc(&call->op, call->first + i, KVCL_RPC_STATS, &call->tenant,
                    (call->tenant != 0) ? sizeof(call->tenant) : 0, 0, 0);
    }
    return true;
}

/* With several ranks each has its own status, also when the call's deadline has passed. */
static kvcl_status_t end(kvcl_call_t *base)
{
    stats_call_t *call = kvcl_container_of(base, stats_call_t, op.call);

    if ((base->stopped != KVCL_OK) && (base->stopped != KVCL_ERR_TIMED_OUT)) {
        return base->stopped;
    }
    return (call->status != NULL) ? KVCL_OK : kvcl_op_why(base, call->one, (int)call->first);
}

static kvcl_status_t post(kvcl_store_h store, const stats_call_t *with, const kvcl_xfer_params_t *params,
                          kvcl_call_id_t id, kvcl_req_h *req_p)
{
    kvcl_store_stats_t none = {0};
    kvcl_xfer_params_t p;
    kvcl_status_t      result = kvcl_xfer_params(params, id, &p);
    stats_call_t       *call;
    uint32_t           i;

    if (result != KVCL_OK) {
        return result;
    }
    call = malloc(sizeof(*call));
    if (call == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for requests to %u ranks", kvcl_call_name(id), with->n);
    }
    *call              = *with;
    call->op.answered  = on_stats;
    call->op.call.next = next;
    call->op.call.end  = end;
    call->one          = KVCL_ERR_TIMED_OUT;
    for (i = 0; (call->status != NULL) && (i < call->n); ++i) {
        write_stats(call, i, &none);
    }
    return kvcl_call_start(&call->op.call, store, kvcl_call_name(id), &p, req_p);
}

static kvcl_status_t rank_stats(kvcl_store_h store, int rank, kvcl_store_stats_t *stats,
                                const kvcl_xfer_params_t *params, kvcl_call_id_t id, kvcl_req_h *req_p)
{
    stats_call_t  with = {.first = (uint32_t)rank, .n = 1, .stats = stats};
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, kvcl_call_name(id), &entry);

    with.tenant = kvcl_tenant_of(entry.tenant);
    status      = (status == KVCL_OK) ? kvcl_store_check(store, stats, 1, kvcl_call_name(id)) : status;
    if (status == KVCL_OK) {
        status = kvcl_struct_out_check(stats, STATS_FIRST, "kvcl_store_stats_t", kvcl_call_name(id));
    }
    status = (status == KVCL_OK) ? kvcl_op_check_rank(store, rank, kvcl_call_name(id)) : status;
    status = (status == KVCL_OK) ? post(store, &with, params, id, req_p) : status;
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_rank_stats_post(kvcl_store_h store, int rank, kvcl_store_stats_t *stats,
                                         const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return rank_stats(store, rank, stats, params, KVCL_CALL_STORE_RANK_STATS, req_p);
}

kvcl_status_t kvcl_store_rank_stats(kvcl_store_h store, int rank, kvcl_store_stats_t *stats,
                                    const kvcl_xfer_params_t *params)
{
    kvcl_req_h    req;
    kvcl_status_t status = kvcl_xfer_params_of_wait(params, KVCL_CALL_STORE_RANK_STATS);

    status = (status == KVCL_OK) ? rank_stats(store, rank, stats, params, KVCL_CALL_STORE_RANK_STATS, &req) : status;
    return kvcl_call_wait(status, &req);
}

static kvcl_status_t all_stats(kvcl_store_h store, size_t n, kvcl_store_stats_t *stats, size_t stride,
                               kvcl_status_t *status, const kvcl_xfer_params_t *params, kvcl_call_id_t id,
                               kvcl_req_h *req_p)
{
    stats_call_t  with   = {.n = (uint32_t)n, .stats = stats, .stride = stride, .status = status};
    kvcl_entry_t  entry;
    kvcl_status_t result = kvcl_store_enter(&store, NULL, 0, kvcl_call_name(id), &entry);

    with.tenant = kvcl_tenant_of(entry.tenant);
    result      = (result == KVCL_OK) ? kvcl_store_check(store, stats, n, kvcl_call_name(id)) : result;
    if (result == KVCL_OK) {
        result = kvcl_stride_check(stride, STATS_FIRST, "kvcl_store_stats_t", kvcl_call_name(id));
    }
    if ((result == KVCL_OK) && (n != store->n_ranks)) {
        result = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: n is %zu, but the store has %u ranks", kvcl_call_name(id), n,
                           store->n_ranks);
    }
    if ((result == KVCL_OK) && (status == NULL)) {
        result = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: status is NULL", kvcl_call_name(id));
    }
    result = (result == KVCL_OK) ? post(store, &with, params, id, req_p) : result;
    kvcl_store_leave(&entry);
    return result;
}

kvcl_status_t kvcl_store_all_stats_post(kvcl_store_h store, size_t n, kvcl_store_stats_t *stats, size_t stride,
                                        kvcl_status_t *status, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return all_stats(store, n, stats, stride, status, params, KVCL_CALL_STORE_ALL_STATS, req_p);
}

kvcl_status_t kvcl_store_all_stats(kvcl_store_h store, size_t n, kvcl_store_stats_t *stats, size_t stride,
                                   kvcl_status_t *status, const kvcl_xfer_params_t *params)
{
    kvcl_req_h    req;
    kvcl_status_t result = kvcl_xfer_params_of_wait(params, KVCL_CALL_STORE_ALL_STATS);

    result = (result == KVCL_OK) ? all_stats(store, n, stats, stride, status, params, KVCL_CALL_STORE_ALL_STATS,
                                             &req) : result;
    return kvcl_call_wait(result, &req);
}
