/*
 * Opening a store: this rank's part, then the meeting with the other ranks (meet.h; of a rank that comes to an open
 * store: grow/part.h).
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
#include "member/lease.h"
#include "wire/address.h"
#include "store/close.h"
#include "store/cold/cold.h"
#include "store/copy/hot.h"
#include "store/get/uses.h"
#include "store/grow/part.h"
#include "store/home/follow_views.h"
#include "store/home/ranks.h"
#include "store/meet.h"
#include "store/pool/pool.h"
#include "store/store.h"

#include <stdlib.h>

enum { DIR_ENTRIES_DEFAULT = 1 << 20, DIR_ENTRIES_MAX = 1 << 30 };

enum {
    STORE_FLAGS = KVCL_STORE_NO_CHECKSUM | KVCL_STORE_NO_EVENTS | KVCL_STORE_NVME_FORMAT | KVCL_STORE_ZERO |
                  KVCL_STORE_JOIN
};

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

/* The pool's second tier. For a rank that comes to an open store its file is emptied. */
static kvcl_status_t open_tier(kvcl_store_h store, const kvcl_store_params_t *p)
{
    const char *spec = (p->nvme != NULL) ? p->nvme : store->ctx->config.store_nvme;

    if ((store->pool == NULL) || (spec == NULL) || (spec[0] == '\0')) {
        return KVCL_OK;
    }
    return kvcl_cold_open(store, spec, (p->nvme != NULL) ? "params.nvme" : "KVCL_STORE_NVME", p->flags);
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
    kvcl_peer_t   *peer;
    uint32_t      i;

    store->nobody = (kvcl_peer_t){.ctx = store->ctx, .state = KVCL_PEER_FAILED, .why = KVCL_ERR_RANK_FAILED,
                                  .name = "nobody"};
    kvcl_list_init(&store->nobody.waiters);
    kvcl_list_init(&store->nobody.reqs);
    for (i = 0; (i < store->n_ranks) && (status == KVCL_OK); ++i) {
        if (i != store->me) {
            status = kvcl_comm_peer(store->comm, (int)i, &peer);
            if ((status == KVCL_ERR_RANK_FAILED) && (store->views != NULL)) { /* its slot may have a process later */
                peer   = &store->nobody;
                status = KVCL_OK;
            }
            store->ranks[i].peer = (status == KVCL_OK) ? peer : NULL;
        }
    }
    return status;
}

/* Opens this rank's part, but for its tier. On failure the caller destroys the half-open store. */
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
        status = kvcl_pool_open(store, p);
    }
    if (status == KVCL_OK) {
        status = kvcl_hot_open(store);
    }
    return (status == KVCL_OK) ? kvcl_uses_open(store) : status;
}

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

static void init(kvcl_store_h store, kvcl_comm_h comm, const kvcl_store_params_t *p)
{
    store->ctx      = comm->ctx;
    store->notify   = &kvcl_store_listener;
    store->flags    = p->flags;
    store->replicas = (p->replicas != 0) ? (uint32_t)p->replicas : 1;
    store->me       = (uint32_t)comm->rank;
    store->n_ranks  = (uint32_t)comm->size;
    init_lists(store);
}

/* With all other ranks of comm. params_ok: a failure of the parameters takes part in the meeting. */
static kvcl_status_t open_with_all(kvcl_store_h store, kvcl_comm_h comm, kvcl_status_t params_ok,
                                   const kvcl_store_params_t *p, kvcl_sentence_t *why)
{
    kvcl_status_t status = kvcl_meet_first_failure(KVCL_OK, params_ok, why), found;
    kvcl_comm_h   meeting;

    found = kvcl_meet_find(store->comm, &meeting);
    if (found != KVCL_OK) {
        return kvcl_meet_first_failure(status, found, why);
    }
    kvcl_lock(store->ctx);
    store->id = kvcl_member_has_views(store->ctx)
                    ? kvcl_checksum_seed("store", 5, meeting->id) /* a process that has joined has made fewer stores */
                    : kvcl_comm_new_id(store->ctx, kvcl_checksum_seed("store", 5, comm->id));
    kvcl_unlock(store->ctx);
    status = (status == KVCL_OK) ? kvcl_meet_first_failure(status, open_local(store, p), why) : status;
    status = (status == KVCL_OK) ? kvcl_meet_first_failure(status, open_tier(store, p), why) : status;
    if (status == KVCL_OK) { /* queries may arrive as soon as another rank has met this one */
        kvcl_lock(store->ctx);
        kvcl_list_add_tail(&kvcl_store_room(store->ctx)->stores, &store->link);
        kvcl_unlock(store->ctx);
    }
    status = kvcl_meet_all(store, meeting, status, why);
    if (meeting != store->comm) {
        kvcl_comm_free(meeting);
    }
    return status;
}

/* Each half has KVCL_TIMEOUT; the tier is opened in between, so a call that finds no store leaves the file alone. */
static kvcl_status_t open_alone(kvcl_store_h store, kvcl_comm_h comm, kvcl_status_t params_ok,
                                const kvcl_store_params_t *p, kvcl_sentence_t *why)
{
    const uint64_t timeout = kvcl_timeout(store->ctx, 0);
    kvcl_status_t  status  = params_ok;

    kvcl_lock(store->ctx); /* until it knows the others' */
    store->id = kvcl_comm_new_id(store->ctx, kvcl_checksum_seed("join", 4, comm->id));
    kvcl_unlock(store->ctx);
    status = (status == KVCL_OK) ? open_local(store, p) : status;
    status = (status == KVCL_OK) ? kvcl_grow_seek(store, p->replicas, kvcl_deadline_after(timeout)) : status;
    status = (status == KVCL_OK) ? open_tier(store, p) : status;
    status = (status == KVCL_OK) ? kvcl_grow_join(store, kvcl_deadline_after(timeout)) : status;
    return kvcl_meet_first_failure(KVCL_OK, status, why);
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
    status = check_params(comm, params, &p);
    init(store, comm, &p);
    status = (status == KVCL_OK) ? kvcl_random_bytes(&store->incarnation, sizeof(store->incarnation)) : status;
    store->incarnation |= (store->incarnation == 0) ? 1 : 0;
    status = (p.flags & KVCL_STORE_JOIN) ? open_alone(store, comm, status, &p, &why)
                                         : open_with_all(store, comm, status, &p, &why);
    if (status != KVCL_OK) {
        if ((p.flags & KVCL_STORE_JOIN) && !kvcl_list_is_empty(&store->link)) {
            kvcl_store_close(store); /* others know it, and shards may move to it */
        } else {
            kvcl_store_destroy(store);
        }
        kvcl_sentence_report(&why);
        kvcl_sentence_free(&why);
        return status;
    }
    kvcl_cold_start(store->cold);
    *store_p = store;
    return KVCL_OK;
}
