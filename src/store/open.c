/*
 * Opening a store: this rank's part, then the meeting with the other ranks.
 *
 * The meeting is one all-gather of kvcl_hello_t and a barrier: it exchanges incarnations and the pools' block sizes,
 * and proves that all ranks open the same store. How a home's table can be read is found out when it is first needed
 * (kvcl_store_learn).
 *
 * Owns nothing: what it makes belongs to the store, which close.c frees. A half-open store is closed in the same way.
 */
#include "config.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/structs.h"
#include "handle/handle.h"
#include "wire/address.h"
#include "store/close.h"
#include "store/cold/cold.h"
#include "store/copy/hot.h"
#include "store/get/uses.h"
#include "store/hello.h"
#include "store/home/ranks.h"
#include "store/home/follow_views.h"
#include "store/pool/pool.h"
#include "store/store.h"
#include <kvcl/kvcl_coll.h>

#include <stdlib.h>

enum { DIR_ENTRIES_DEFAULT = 1 << 20, DIR_ENTRIES_MAX = 1 << 30 };

enum { STORE_FLAGS = KVCL_STORE_NO_CHECKSUM | KVCL_STORE_NO_EVENTS | KVCL_STORE_NVME_FORMAT | KVCL_STORE_ZERO };

/* ---- this rank's part ---- */

static kvcl_status_t check_params(kvcl_comm_h comm, const kvcl_store_params_t *params, kvcl_store_params_t *p)
{
    uint64_t      sizes[KVCL_SLABS_CLASSES_MAX];
    kvcl_status_t status;

    memset(p, 0, sizeof(*p));
    if (params != NULL) {
        status = kvcl_struct_in(p, params, KVCL_UP_TO(kvcl_store_params_t, flags), sizeof(*p), "kvcl_store_params_t");
        if (status != KVCL_OK) {
            return status;
        }
    }
    if ((p->flags & ~(uint64_t)STORE_FLAGS) != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: unknown flags 0x%llx", (unsigned long long)p->flags);
    }
    if (p->cache != NULL) {
        status = kvcl_handle_check(p->cache, KVCL_KIND_CACHE, "kvcl_store_open: params.cache");
        if (status != KVCL_OK) {
            return status;
        }
    }
    if (p->dir_entries > DIR_ENTRIES_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: dir_entries is %llu, at most %d",
                         (unsigned long long)p->dir_entries, DIR_ENTRIES_MAX);
    }
    if ((p->dram_bytes != 0) && (kvcl_pool_sizes(p, sizes) == 0)) {
        return KVCL_ERR_INVALID_PARAM;
    }
    if (p->events > KVCL_EVENTS_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: events is %llu, at most %d",
                         (unsigned long long)p->events, KVCL_EVENTS_MAX);
    }
    if (p->replicas > KVCL_DIR_LOCS_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: replicas is %llu, at most %d",
                         (unsigned long long)p->replicas, KVCL_DIR_LOCS_MAX);
    }
    if ((p->nvme != NULL) && (p->nvme[0] != '\0') && (p->dram_bytes == 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: nvme is set, but there is no pool: set dram_bytes");
    }
    if ((p->cache != NULL) && (p->cache->ctx != comm->ctx)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: the cache belongs to another context");
    }
    return KVCL_OK;
}

static kvcl_status_t open_pool(kvcl_store_h store, const kvcl_store_params_t *p)
{
    const char    *spec  = (p->nvme != NULL) ? p->nvme : store->ctx->config.store_nvme;
    kvcl_status_t status = kvcl_pool_open(store, p);

    if ((status != KVCL_OK) || (spec == NULL) || (spec[0] == '\0')) {
        return status;
    }
    return kvcl_cold_open(store, spec, (p->nvme != NULL) ? "params.nvme" : "KVCL_STORE_NVME",
                          (p->flags & KVCL_STORE_NVME_FORMAT) != 0);
}

static kvcl_status_t open_table(kvcl_store_h store, uint64_t entries)
{
    const kvcl_mem_params_t params = {.size = sizeof(params), .flags = KVCL_MEM_READ_ONLY};
    size_t        bytes  = kvcl_dir_table_bytes((entries != 0) ? entries : DIR_ENTRIES_DEFAULT);
    kvcl_status_t status = kvcl_region_create(store->ctx, NULL, bytes, &params, &store->table_region);

    if (status == KVCL_OK) {
        status = kvcl_dir_table_format(&store->table, store->table_region->addr, bytes);
    }
    return (status == KVCL_OK) ? kvcl_home_init(&store->home, &store->table, store->me, kvcl_store_shards(store),
                                                store->incarnations, store->n_ranks)
                               : status;
}

static kvcl_status_t find_peers(kvcl_store_h store)
{
    kvcl_status_t status = KVCL_OK;
    uint32_t      i;

    for (i = 0; (i < store->n_ranks) && (status == KVCL_OK); ++i) {
        if (i != store->me) {
            status = kvcl_comm_peer(store->comm, (int)i, &store->ranks[i].peer);
        }
    }
    return status;
}

/* Opens this rank's part. On failure the caller destroys the half-open store. */
static kvcl_status_t open_local(kvcl_store_h store, const kvcl_store_params_t *p)
{
    kvcl_status_t status;

    store->ranks        = calloc(store->n_ranks, sizeof(*store->ranks));
    store->incarnations = calloc(store->n_ranks, sizeof(*store->incarnations));
    store->places       = calloc(store->n_ranks, sizeof(*store->places));
    store->place_ok     = calloc(store->n_ranks, sizeof(*store->place_ok));
    if ((store->ranks == NULL) || (store->incarnations == NULL) || (store->places == NULL) ||
        (store->place_ok == NULL)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a store over %u ranks", store->n_ranks);
    }
    if (!(p->flags & KVCL_STORE_NO_EVENTS) &&
        (kvcl_events_init(&store->events, (p->events != 0) ? p->events : KVCL_EVENTS_DEFAULT) != KVCL_OK)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_open: no memory for events");
    }
    if (((status = kvcl_views_open(store)) != KVCL_OK) || ((status = kvcl_store_map_make(store)) != KVCL_OK) ||
        ((status = find_peers(store)) != KVCL_OK) || ((status = open_table(store, p->dir_entries)) != KVCL_OK)) {
        return status;
    }
    if (p->cache != NULL) {
        kvcl_lock(store->ctx);
        status = (p->cache->store == NULL)
                     ? kvcl_owner_attach(store, p->cache, true, KVCL_DIR_TIER_CACHE, &store->own)
                     : kvcl_fail(KVCL_ERR_BUSY, "cache \"%s\" is used by another store", p->cache->name);
        kvcl_unlock(store->ctx);
    }
    if ((status == KVCL_OK) && (p->dram_bytes != 0)) {
        status = open_pool(store, p);
    }
    if (status == KVCL_OK) {
        status = kvcl_hot_open(store);
    }
    return (status == KVCL_OK) ? kvcl_uses_open(store) : status;
}

/* ---- meeting the other ranks ---- */

static kvcl_hello_t local_hello(kvcl_store_h store, bool ok)
{
    kvcl_hello_t local = {.id = store->id, .incarnation = ok ? store->incarnation : 0,
                          .replicas = (uint16_t)store->replicas, .listing = kvcl_cold_has_any(store->cold)};
    uint8_t      host[16];
    unsigned     i;

    kvcl_host_id(host);
    memcpy(&local.host, host, sizeof(local.host));
    if (ok && (store->pool != NULL)) {
        local.pool_bytes = store->pool->bytes;
        local.n_sizes    = store->pool->n;
        for (i = 0; i < store->pool->n; ++i) {
            local.sizes[i] = (uint32_t)store->pool->caches[i]->shape.block_bytes;
        }
    }
    return local;
}

static kvcl_status_t wait_step(kvcl_status_t posted, kvcl_req_h *req)
{
    kvcl_status_t status = posted;

    if (posted == KVCL_OK) {
        status = kvcl_req_wait(*req, KVCL_WAIT_FOREVER); /* the operation has a deadline */
    }
    return status;
}

/* Lock held. Takes over the hellos of all ranks, and makes a new map if one has failed already. */
static kvcl_status_t learn_ranks(kvcl_store_h store, const kvcl_hello_t *all)
{
    uint32_t n_failed = 0, i;

    kvcl_assert_locked(store->ctx);
    store->value_pool  = (store->pool != NULL) ? store->pool->owners[0] : NULL;
    store->value_block = (store->value_pool != NULL) ? kvcl_owner_bytes(store->value_pool) : 0;
    for (i = 0; i < store->n_ranks; ++i) {
        kvcl_status_t status = kvcl_hello_check(&all[i], i, store->id);
        if (status != KVCL_OK) {
            return status;
        }
        if ((store->value_block == 0) && (all[i].n_sizes != 0)) {
            store->value_block = all[i].sizes[0];
        }
        if ((all[i].n_sizes != 0) && (all[i].sizes[0] != store->value_block)) {
            kvcl_log_warn("the first block size, which values use, is %u bytes in the pool of rank %u, but %llu %s: "
                          "values put with one are not found with the other: open all pools with the same first size",
                          all[i].sizes[0], i, (unsigned long long)store->value_block,
                          (store->value_pool != NULL) ? "here" : "elsewhere");
        }
        store->replicas         = (all[i].replicas > store->replicas) ? all[i].replicas : store->replicas;
        store->ranks[i].listing = (all[i].listing != 0);
        store->ranks[i].n_sizes = all[i].n_sizes;
        memcpy(store->ranks[i].sizes, all[i].sizes, sizeof(all[i].sizes));
        kvcl_place_init(&store->places[i], all[i].host, all[i].pool_bytes);
        /* Each rank starts its placements at another rank. */
        store->places[i].turn = -(int64_t)((i + store->n_ranks - store->me) % store->n_ranks);
        if ((i == store->me) || (store->ranks[i].peer->state != KVCL_PEER_FAILED)) {
            store->incarnations[i] = (uint16_t)all[i].incarnation;
            atomic_store(&store->ranks[i].incarnation, all[i].incarnation);
        } else {
            ++n_failed;
        }
    }
    return (n_failed != 0) ? kvcl_store_map_make(store) : KVCL_OK;
}

/* The first failure of a row of steps, and its sentence, which later steps overwrite. */
static kvcl_status_t first_failure(kvcl_status_t before, kvcl_status_t status, kvcl_sentence_t *why)
{
    if ((before == KVCL_OK) && (status != KVCL_OK)) {
        kvcl_sentence_keep(why);
    }
    return (before != KVCL_OK) ? before : status;
}

/* Collective: all ranks succeed or all fail. After the barrier every home knows the ranks that publish to it. A rank
 * that could not open its part takes part as well, and gets the status and the sentence of that failure. */
static kvcl_status_t meet(kvcl_store_h store, kvcl_status_t opened, kvcl_sentence_t *why)
{
    kvcl_hello_t  local  = local_hello(store, opened == KVCL_OK);
    kvcl_hello_t  *all   = calloc(store->n_ranks, sizeof(*all));
    kvcl_status_t status = first_failure(KVCL_OK, opened, why);
    kvcl_status_t met    = KVCL_OK;
    kvcl_req_h    req;

    if (all == NULL) {
        return first_failure(status, kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a store over %u ranks",
                                               store->n_ranks), why);
    }
    all[0] = local;
    if (store->n_ranks > 1) {
        met    = wait_step(kvcl_allgather(store->comm, &local, sizeof(local), all, NULL, &req), &req);
        status = first_failure(status, met, why);
    }
    if ((met == KVCL_OK) && (opened == KVCL_OK)) {
        kvcl_lock(store->ctx);
        status = first_failure(status, learn_ranks(store, all), why);
        kvcl_unlock(store->ctx);
    }
    if ((status == KVCL_OK) && (kvcl_views_wait_to_own(store, kvcl_deadline_after(kvcl_timeout(store->ctx, 0)),
                                                       "kvcl_store_open") != KVCL_OK)) {
        kvcl_log_warn("%s", kvcl_last_error()); /* puts and removals say so too */
    }
    if ((met == KVCL_OK) && (store->n_ranks > 1)) {
        status = first_failure(status, wait_step(kvcl_barrier(store->comm, NULL, &req), &req), why);
    }
    free(all);
    if (status == KVCL_OK) {
        kvcl_lock(store->ctx);
        kvcl_views_begin(store);
        kvcl_unlock(store->ctx);
    }
    return status;
}

/* ---- the call ---- */

/* A communicator of the store's own: its collectives must not be counted among the user's. */
static kvcl_status_t own_comm(kvcl_comm_h comm, kvcl_comm_h *own_p)
{
    int           *ranks = malloc((size_t)comm->size * sizeof(*ranks));
    kvcl_status_t status;
    int           i;

    if (ranks == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_open: no memory");
    }
    for (i = 0; i < comm->size; ++i) {
        ranks[i] = i;
    }
    status = kvcl_comm_create(comm, ranks, comm->size, own_p);
    free(ranks);
    return status;
}

static void init_lists(kvcl_store_h store)
{
    kvcl_list_init(&store->owners);
    kvcl_list_init(&store->publishes);
    kvcl_list_init(&store->copies);
    kvcl_list_init(&store->calls);
    kvcl_list_init(&store->watched);
    kvcl_list_init(&store->probes);
    kvcl_list_init(&store->op_rpcs);
    kvcl_list_init(&store->followers);
    kvcl_list_init(&store->tenants);
    kvcl_list_init(&store->link);
    kvcl_map_init(&store->index);
}

kvcl_status_t kvcl_store_open(kvcl_comm_h comm, const kvcl_store_params_t *params, kvcl_store_h *store_p)
{
    kvcl_store_params_t p;
    kvcl_sentence_t     why = {0};
    kvcl_status_t       status;
    kvcl_store_h        store;

    status = kvcl_handle_check(comm, KVCL_KIND_COMM, "kvcl_store_open");
    if (status != KVCL_OK) {
        return status;
    }
    if ((store_p == NULL) || comm->inter) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: store_p is NULL, or comm is an inter-communicator");
    }
    if (comm->size >= (int)KVCL_DIR_RANK_NONE) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "kvcl_store_open: comm has %d ranks, a store takes at most %u",
                         comm->size, KVCL_DIR_RANK_NONE - 1);
    }
    store = kvcl_object_alloc(KVCL_KIND_STORE, sizeof(*store));
    if (store == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_open: no memory");
    }
    status = own_comm(comm, &store->comm);
    if (status != KVCL_OK) {
        kvcl_object_free(store);
        return status;
    }
    status          = check_params(comm, params, &p); /* a failure takes part in meet() */
    store->ctx      = comm->ctx;
    store->notify   = &kvcl_store_listener;
    store->flags    = p.flags;
    store->replicas = (p.replicas != 0) ? (uint32_t)p.replicas : 1;
    store->me       = (uint32_t)comm->rank;
    store->n_ranks  = (uint32_t)comm->size;
    init_lists(store);
    kvcl_lock(store->ctx);
    store->id = kvcl_comm_new_id(store->ctx, kvcl_checksum_seed("store", 5, comm->id));
    kvcl_unlock(store->ctx);
    status = (status == KVCL_OK) ? kvcl_random_bytes(&store->incarnation, sizeof(store->incarnation)) : status;
    store->incarnation |= (store->incarnation == 0) ? 1 : 0;
    status = (status == KVCL_OK) ? open_local(store, &p) : status;
    if (status == KVCL_OK) { /* queries may arrive as soon as another rank has met this one */
        kvcl_lock(store->ctx);
        kvcl_list_add_tail(&kvcl_store_room(store->ctx)->stores, &store->link);
        kvcl_unlock(store->ctx);
    }
    status = meet(store, status, &why);
    if (status != KVCL_OK) {
        kvcl_store_destroy(store);
        kvcl_sentence_report(&why);
        kvcl_sentence_free(&why);
        return status;
    }
    kvcl_cold_start(store->cold);
    *store_p = store;
    return KVCL_OK;
}
