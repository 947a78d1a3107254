/*
 * The room of stores in a context, and the listener that connects its lower rooms with the upper ones.
 *
 * Owns the room's state: the list of open stores, the gets whose checksums are pending, and the scratch for answers.
 * Engine lock held, except where the engine calls without it (init, and the first half of fini).
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "store/admin/ops.h"
#include "store/close.h"
#include "store/cold/cold.h"
#include "store/copy/copy_jobs.h"
#include "store/copy/repair.h"
#include "store/get/get.h"
#include "store/get/gets.h"
#include "store/grow/part.h"
#include "store/home/far_table.h"
#include "store/home/home_answer.h"
#include "store/home/mapped.h"
#include "store/home/ranks.h"
#include "store/home/follow_views.h"
#include "store/kinds.h"
#include "store/pool/pool.h"
#include "store/pool/publish.h"
#include "store/pool/rehome.h"
#include "store/pool/republish.h"

#include <stdlib.h>

/* ---- the listener ---- */

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

static void list_tier(kvcl_store_h store)
{
    kvcl_cold_list_again(store->cold);
}

static bool tier_is_listed(const struct kvcl_store *store)
{
    return kvcl_cold_is_listed(store->cold);
}

static void shards_move(kvcl_store_h store)
{
    kvcl_rehome_start(store);
    kvcl_repair_start(store);
}

const kvcl_store_listener_t kvcl_store_listener = {
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
    .rank_failed  = kvcl_repair_start,
    .rank_back    = kvcl_republish_start,
    .shards_move  = shards_move,
    .shards_moved = kvcl_repair_start,
    .ask_moved    = kvcl_grow_ask_moved,
    .list_tier      = list_tier,
    .tier_is_listed = tier_is_listed,
};

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
        kvcl_cold_close(store->cold); /* its thread may take the lock once more */
    }
    kvcl_lock(ctx);
    while (!kvcl_list_is_empty(&room->stores)) {
        store = kvcl_list_head(&room->stores, struct kvcl_store, link);
        kvcl_log_warn("a store with %llu published blocks was not closed before kvcl_finalize: close it first",
                      (unsigned long long)store->n_published);
        kvcl_store_unlink(store);
        kvcl_pool_free(store->pool);
        kvcl_store_free_memory(store);
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

/* Calls fn for the rank of each store that is this peer. */
static void each_rank(kvcl_store_room_t *room, const kvcl_peer_t *peer, void (*fn)(kvcl_store_h store, uint32_t rank))
{
    kvcl_store_h store;
    uint32_t     i;

    kvcl_list_foreach (store, &room->stores, struct kvcl_store, link) {
        for (i = 0; i < store->n_ranks; ++i) {
            if (store->ranks[i].peer == peer) {
                fn(store, i);
            }
        }
    }
}

static void peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    (void)ctx;
    each_rank(state, peer, kvcl_store_rank_failed);
}

/* No rank has failed. */
static void peer_reset(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    (void)ctx;
    each_rank(state, peer, kvcl_far_lost);
}

static void peer_closing(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    kvcl_store_h store;
    uint32_t     i;

    (void)ctx;
    kvcl_list_foreach (store, &((kvcl_store_room_t *)state)->stores, struct kvcl_store, link) {
        for (i = 0; i < store->n_ranks; ++i) {
            kvcl_mapped_close(&store->ranks[i], peer); /* it may be that of a process before */
        }
    }
    each_rank(state, peer, kvcl_far_close);
}

static void room_view(kvcl_context_h ctx, void *state, const struct kvcl_view *view, const struct kvcl_rankset *joined)
{
    kvcl_store_h store;

    (void)ctx;
    (void)joined;
    kvcl_list_foreach (store, &((kvcl_store_room_t *)state)->stores, struct kvcl_store, link) {
        kvcl_views_changed(store, view);
    }
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_DIR_REQUEST, sizeof(kvcl_msg_dir_request_t), kvcl_kinds_on_request},
    {KVCL_MSG_DIR_ANSWER, sizeof(kvcl_msg_dir_answer_t), kvcl_rpc_on_answer},
    {KVCL_MSG_WITHDRAW, sizeof(kvcl_msg_withdraw_t), kvcl_home_on_withdraw},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_store = {
    .name         = "store",
    .handlers     = handlers,
    .init         = room_init,
    .fini         = room_fini,
    .work         = room_work,
    .outstanding  = room_outstanding,
    .peer_failed  = peer_failed,
    .peer_reset   = peer_reset,
    .peer_closing = peer_closing,
    .view         = room_view,
    .leave        = kvcl_grow_leave_all,
};
