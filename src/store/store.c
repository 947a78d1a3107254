/*
 * The store: opening and closing of this rank's part, its statistics, and the room.
 *
 * Opening is one all-gather of 72 bytes a rank: the incarnations, what pools there are, and the proof that everybody
 * means the same store.
 * How a home's table can be read is found out when it is first needed (kvcl_store_learn).
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
#include "store/cold/cold.h"
#include "store/get/get.h"
#include "store/admin/ops.h"
#include "store/kinds.h"
#include "store/pool/pool.h"
#include <kvcl/kvcl_coll.h>

#include <stdlib.h>

enum { DIR_ENTRIES_DEFAULT = 1 << 20, DIR_ENTRIES_MAX = 1 << 30 };

/* ---- who is told what ---- */

static void lost(kvcl_store_h store, const kvcl_key_t *key)
{
    kvcl_cold_drop(store->cold, key);
}

static bool tier_holds(const struct kvcl_store *store, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    return kvcl_cold_holds(store->cold, key, loc);
}

static bool promote(kvcl_store_h store, const kvcl_store_rec_t *rec, unsigned copies, const kvcl_dir_loc_t *source)
{
    kvcl_copy_head_t head = {.copies = (uint8_t)copies};

    return kvcl_copy_here(store, &head, rec, NULL, 1, source) == KVCL_OK;
}

static const kvcl_store_listener_t listener = {
    .published   = kvcl_cold_published,
    .used        = kvcl_cold_used,
    .taken       = kvcl_cold_taken,
    .evicted     = kvcl_cold_evicted,
    .may_release = kvcl_cold_may_release,
    .released    = kvcl_cold_slab_removed,
    .event       = kvcl_follow_event,
    .detached    = kvcl_publish_forget,
    .lost        = lost,
    .removed     = kvcl_relist_removed,
    .tier_holds  = tier_holds,
    .promote     = promote,
    .got         = kvcl_hot_got,
    .rank_failed   = kvcl_repair_start,
    .rank_back   = kvcl_republish_start,
};

/* ---- opening ---- */

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
    if ((p->flags & ~(uint64_t)(KVCL_STORE_NO_CHECKSUM | KVCL_STORE_NO_EVENTS)) != 0) {
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
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: nvme is set, but there is no pool (dram_bytes)");
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
    return kvcl_cold_open(store, spec, (p->nvme != NULL) ? "params.nvme" : "KVCL_STORE_NVME");
}

static kvcl_status_t open_table(kvcl_store_h store, uint64_t entries)
{
    size_t        bytes  = kvcl_dir_table_bytes((entries != 0) ? entries : DIR_ENTRIES_DEFAULT);
    kvcl_status_t status = kvcl_region_create(store->ctx, NULL, bytes, NULL, &store->table_region);

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

/* Everything of mine. What is there on failure, kvcl_store_close's tail frees. */
static kvcl_status_t open_mine(kvcl_store_h store, const kvcl_store_params_t *p)
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
    if (((status = kvcl_store_map_make(store)) != KVCL_OK) || ((status = find_peers(store)) != KVCL_OK) ||
        ((status = open_table(store, p->dir_entries)) != KVCL_OK)) {
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

typedef struct hello {
    uint64_t id;
    uint32_t incarnation; /* 0: this rank could not open its part */
    uint16_t replicas;
    uint16_t listing;     /* its tier has blocks from an earlier time */
    uint64_t pool_bytes;
    uint64_t host;
    uint32_t n_sizes;
    uint32_t sizes[KVCL_SLABS_CLASSES_MAX];
} hello_t;

static hello_t my_hello(kvcl_store_h store, bool ok)
{
    hello_t  mine = {.id = store->id, .incarnation = ok ? store->incarnation : 0,
                     .replicas = (uint16_t)store->replicas, .listing = kvcl_cold_has_any(store->cold)};
    uint8_t  host[16];
    unsigned i;

    kvcl_host_id(host);
    memcpy(&mine.host, host, sizeof(mine.host));
    if (ok && (store->pool != NULL)) {
        mine.pool_bytes = store->pool->bytes;
        mine.n_sizes    = store->pool->n;
        for (i = 0; i < store->pool->n; ++i) {
            mine.sizes[i] = (uint32_t)store->pool->caches[i]->shape.block_bytes;
        }
    }
    return mine;
}

static kvcl_status_t wait_step(kvcl_status_t posted, kvcl_req_h *req)
{
    kvcl_status_t status = posted;

    if (posted == KVCL_OK) {
        status = kvcl_req_wait(*req, KVCL_WAIT_FOREVER); /* the operation's own deadline ends it */
    }
    return status;
}

/* Lock held. The incarnations that count. */
static kvcl_status_t learn_ranks(kvcl_store_h store, const hello_t *all)
{
    uint32_t gone = 0, i;

    kvcl_assert_locked(store->ctx);
    store->value_pool  = (store->pool != NULL) ? store->pool->owners[0] : NULL;
    store->value_block = (store->value_pool != NULL) ? kvcl_owner_bytes(store->value_pool) : 0;
    for (i = 0; i < store->n_ranks; ++i) {
        if (all[i].incarnation == 0) {
            return kvcl_fail(KVCL_ERR_CANCELED, "kvcl_store_open: rank %u could not open its part", i);
        }
        if (all[i].id != store->id) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: rank %u opens another store: the order of "
                             "opening differs", i);
        }
        if (all[i].n_sizes > KVCL_SLABS_CLASSES_MAX) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "kvcl_store_open: rank %u has a pool of %u sizes", i, all[i].n_sizes);
        }
        if ((store->value_block == 0) && (all[i].n_sizes != 0)) {
            store->value_block = all[i].sizes[0];
        }
        if ((all[i].n_sizes != 0) && (all[i].sizes[0] != store->value_block)) {
            kvcl_log_warn("the blocks of values, the first size, are of %u bytes in the pool of rank %u, of %llu %s: "
                          "values put on one side are not found on the other", all[i].sizes[0], i,
                          (unsigned long long)store->value_block, (store->value_pool != NULL) ? "here" : "elsewhere");
        }
        store->replicas         = (all[i].replicas > store->replicas) ? all[i].replicas : store->replicas;
        store->ranks[i].listing = (all[i].listing != 0);
        store->ranks[i].n_sizes = all[i].n_sizes;
        memcpy(store->ranks[i].sizes, all[i].sizes, sizeof(all[i].sizes));
        kvcl_place_init(&store->places[i], all[i].host, all[i].pool_bytes);
        store->places[i].turn = -(int64_t)((i + store->n_ranks - store->me) % store->n_ranks); /* each starts elsewhere */
        if ((i == store->me) || (store->ranks[i].peer->state != KVCL_PEER_FAILED)) {
            store->incarnations[i] = (uint16_t)all[i].incarnation;
            atomic_store(&store->ranks[i].incarnation, all[i].incarnation);
        } else {
            ++gone;
        }
    }
    return (gone != 0) ? kvcl_store_map_make(store) : KVCL_OK;
}

/* Collective: all succeed or all fail. The barrier: nobody publishes to a home that does not know it yet. */
static kvcl_status_t meet(kvcl_store_h store, bool ok)
{
    hello_t       mine = my_hello(store, ok);
    hello_t       *all = calloc(store->n_ranks, sizeof(*all));
    kvcl_status_t status = KVCL_OK, learned = KVCL_OK;
    kvcl_req_h    req;

    if (all == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a store over %u ranks", store->n_ranks);
    }
    all[0] = mine;
    if (store->n_ranks > 1) {
        status = wait_step(kvcl_allgather(store->comm, &mine, sizeof(mine), all, NULL, &req), &req);
    }
    if (status == KVCL_OK) {
        kvcl_lock(store->ctx);
        learned = ok ? learn_ranks(store, all) : KVCL_ERR_CANCELED;
        kvcl_unlock(store->ctx);
        if (store->n_ranks > 1) {
            status = wait_step(kvcl_barrier(store->comm, NULL, &req), &req);
        }
    }
    free(all);
    return (status == KVCL_OK) ? learned : status;
}

/* ---- closing ---- */

/* Lock held. */
static void close_views(kvcl_store_h store)
{
    uint32_t i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; (store->ranks != NULL) && (i < store->n_ranks); ++i) {
        atomic_store(&store->ranks[i].view_state, KVCL_VIEW_BY_MESSAGE);
        kvcl_rregion_close(&store->ranks[i].region);
    }
}

/* Lock held: nobody finds it any more, and it uses nobody's cache or memory. */
static void unlink_store(kvcl_store_h store)
{
    kvcl_assert_locked(store->ctx);
    kvcl_list_del(&store->link);
    close_views(store);
    while (!kvcl_list_is_empty(&store->owners)) {
        kvcl_owner_detach(kvcl_list_head(&store->owners, kvcl_owner_t, link));
    }
}

/* What is left of an unlinked store, whose pool is gone: its own memory. */
static void free_store(kvcl_store_h store)
{
    kvcl_map_fini(&store->index);
    kvcl_store_maps_free(store);
    kvcl_events_fini(&store->events);
    free(store->hot);
    free(store->uses);
    free(store->repair);
    free(store->incarnations);
    free(store->places);
    free(store->place_ok);
    free(store->ranks);
    kvcl_object_free(store);
}

/* Takes half-open stores. No lock held, nothing in flight. */
static void destroy(kvcl_store_h store)
{
    kvcl_cold_close(store->cold);
    kvcl_lock(store->ctx);
    unlink_store(store);
    kvcl_unlock(store->ctx);
    kvcl_pool_close(store->pool);
    kvcl_cache_destroy(store->stage);
    if (store->table_region != NULL) {
        kvcl_region_destroy(store->table_region);
    }
    kvcl_comm_free(store->comm);
    free_store(store);
}

/* Lock held. In pieces, so that no list of all blocks is needed. */
static void withdraw_all(kvcl_store_h store)
{
    enum { PIECE = 64 };
    kvcl_store_rec_t recs[PIECE];
    kvcl_owner_t     *owner;
    size_t           n;
    uint32_t         slot;

    kvcl_assert_locked(store->ctx);
    kvcl_list_foreach (owner, &store->owners, kvcl_owner_t, link) {
        n = 0;
        for (slot = 0; slot < owner->slots.n; ++slot) {
            if (kvcl_owner_withdraw(owner, slot, KVCL_SLOT_FREE, &recs[n]) == KVCL_OK) {
                ++n;
            }
            if ((n == PIECE) || (slot + 1 == owner->slots.n)) {
                kvcl_store_notify_removed(store, recs, n);
                n = 0;
            }
        }
    }
}

static bool no_ops(void *arg)
{
    return ((kvcl_store_h)arg)->ops == 0;
}

void kvcl_store_close(kvcl_store_h store)
{
    if (!kvcl_handle_may_free(store, KVCL_KIND_STORE, "kvcl_store_close")) {
        return;
    }
    kvcl_cold_drain(store->cold);
    kvcl_lock(store->ctx);
    store->closing = true;
    kvcl_cold_stop(store->cold);
    kvcl_copies_stop(store);
    kvcl_calls_stop(store);
    kvcl_silence_stop(store);
    kvcl_republish_stop(store);
    kvcl_rpcs_stop(&store->probes, KVCL_ERR_SHUTDOWN);
    kvcl_rpcs_stop(&store->op_rpcs, KVCL_ERR_SHUTDOWN);
    kvcl_repair_stop(store);
    withdraw_all(store);
    kvcl_follow_stop(store);
    kvcl_engine_notify(store->ctx); /* those who wait for my events, or for room */
    kvcl_unlock(store->ctx);
    if (!kvcl_engine_wait(store->ctx, no_ops, store, kvcl_deadline_after(5 * KVCL_NS_PER_SEC))) {
        kvcl_log_error("a store has %u operations in flight after 5 s and is not closed", store->ops);
        return;
    }
    destroy(store);
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
    kvcl_list_init(&store->link);
    kvcl_map_init(&store->index);
}

kvcl_status_t kvcl_store_open(kvcl_comm_h comm, const kvcl_store_params_t *params, kvcl_store_h *store_p)
{
    kvcl_store_params_t p;
    kvcl_status_t       status, met;
    kvcl_store_h        store;

    status = kvcl_handle_check(comm, KVCL_KIND_COMM, "kvcl_store_open");
    if (status != KVCL_OK) {
        return status;
    }
    if ((store_p == NULL) || comm->inter) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: NULL argument, or an inter-communicator");
    }
    if (comm->size >= (int)KVCL_DIR_RANK_NONE) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "kvcl_store_open: at most %u ranks", KVCL_DIR_RANK_NONE - 1);
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
    status          = check_params(comm, params, &p); /* if bad the others must hear of it: we meet all the same */
    store->ctx      = comm->ctx;
    store->notify     = &listener;
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
    status = (status == KVCL_OK) ? open_mine(store, &p) : status;
    if (status == KVCL_OK) { /* questions may come as soon as another rank has met us */
        kvcl_lock(store->ctx);
        kvcl_list_add_tail(&kvcl_store_room(store->ctx)->stores, &store->link);
        kvcl_unlock(store->ctx);
    }
    met = meet(store, status == KVCL_OK);
    if ((status != KVCL_OK) || (met != KVCL_OK)) {
        destroy(store);
        return (status != KVCL_OK) ? status : met;
    }
    kvcl_cold_start(store->cold);
    *store_p = store;
    return KVCL_OK;
}

/* ---- the room ---- */

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    kvcl_store_room_t *room = calloc(1, sizeof(*room));

    (void)ctx;
    if (room == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for stores");
    }
    kvcl_list_init(&room->stores);
    kvcl_list_init(&room->verifies);
    room->kinds = kvcl_rpc_kinds();
    *state_p = room;
    return KVCL_OK;
}

/* The engine has stopped and operations have ended; regions and caches are freed by their own rooms. */
static void room_fini(kvcl_context_h ctx, void *state)
{
    kvcl_store_room_t *room = state;
    kvcl_store_h      store;

    kvcl_list_foreach (store, &room->stores, struct kvcl_store, link) {
        kvcl_cold_close(store->cold); /* its thread may want the lock once more */
    }
    kvcl_lock(ctx);
    while (!kvcl_list_is_empty(&room->stores)) {
        store = kvcl_list_head(&room->stores, struct kvcl_store, link);
        kvcl_log_warn("a store with %llu published blocks was not closed before kvcl_finalize",
                      (unsigned long long)store->n_published);
        unlink_store(store);
        kvcl_pool_free(store->pool);
        free_store(store);
    }
    kvcl_unlock(ctx);
    free(room->scratch);
    free(room);
}

static bool room_work(kvcl_context_h ctx, void *state)
{
    (void)state;
    return kvcl_verify_work(ctx);
}

static bool room_outstanding(kvcl_context_h ctx, void *state)
{
    const kvcl_store_room_t *room = state;

    (void)ctx;
    return !kvcl_list_is_empty(&room->verifies);
}

static void peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    kvcl_store_room_t *room = state;
    kvcl_store_h      store;
    uint32_t          i;

    (void)ctx;
    kvcl_list_foreach (store, &room->stores, struct kvcl_store, link) {
        for (i = 0; i < store->n_ranks; ++i) {
            if (store->ranks[i].peer == peer) {
                kvcl_store_rank_failed(store, i);
            }
        }
    }
}

static void peer_closing(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    kvcl_store_room_t *room = state;
    kvcl_store_h      store;
    uint32_t          i;

    (void)ctx;
    kvcl_list_foreach (store, &room->stores, struct kvcl_store, link) {
        for (i = 0; i < store->n_ranks; ++i) {
            if (store->ranks[i].peer == peer) {
                atomic_store(&store->ranks[i].view_state, KVCL_VIEW_BY_MESSAGE);
                kvcl_rregion_close(&store->ranks[i].region);
            }
        }
    }
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_DIR_REQUEST, sizeof(kvcl_msg_dir_request_t), kvcl_kinds_on_request},
    {KVCL_MSG_DIR_ANSWER, sizeof(kvcl_msg_dir_answer_t), kvcl_rpc_on_answer},
    {KVCL_MSG_WITHDRAW, sizeof(kvcl_msg_withdraw_t), kvcl_home_on_withdraw},
    {0, 0, NULL},
};

extern const kvcl_room_t kvcl_room_store;
const kvcl_room_t kvcl_room_store = {
    .name         = "store",
    .handlers     = handlers,
    .init         = room_init,
    .fini         = room_fini,
    .work         = room_work,
    .outstanding  = room_outstanding,
    .peer_failed  = peer_failed,
    .peer_closing = peer_closing,
};
