/*
 * The map of a store that follows views (follow_views.h), and the steps of ranks while shards move.
 *
 * Invariants: the map has the ranks of the newest view whose part of the store is open; a rank that fails stays in it
 * until the view without it, marked KVCL_AVOID_GONE. The store's incarnations are 0 for ranks that are not in the map,
 * and for those. A step is said again until all ranks have answered with theirs, since a message may be lost with a
 * link. Owns store->views. Engine lock held, except where marked.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "member/lease.h"
#include "store/home/ranks.h"
#include "store/home/timer.h"
#include "store/home/follow_views.h"
#include "store/home/view_maps.h"

#include <stdlib.h>

#define AGAIN_NS (200 * KVCL_NS_PER_MS)

/* ---- MOVED: the steps of a rank ---- */

static void post_moved(kvcl_store_h store, uint32_t rank)
{
    const kvcl_store_views_t *views = store->views;
    kvcl_moved_t             moved  = {.id = views->moves.id, .listed = views->listed, .switched = views->switched};
    kvcl_msg_dir_request_t   out    = {.msg   = {.type = KVCL_MSG_DIR_REQUEST, .flags = KVCL_RPC_MOVED},
                                       .store = store->id, .n = 1, .rank = store->me};
    kvcl_peer_t              *peer  = store->ranks[rank].peer;

    if ((peer->state == KVCL_PEER_READY) &&
        (kvcl_peer_post(peer, &out.msg, sizeof(out), &moved, sizeof(moved)) != KVCL_OK)) {
        kvcl_log_debug("rank %u is not told of moved shards: it is later", rank);
    }
}

static void post_all(kvcl_store_h store)
{
    uint32_t i;

    for (i = 0; i < store->n_ranks; ++i) {
        if ((i != store->me) && (store->views->moves.ranks[i].incarnation != 0)) {
            post_moved(store, i);
        }
    }
}

static void on_timer(void *arg)
{
    kvcl_store_h store = arg;
    uint32_t     i;

    store->views->timer = NULL;
    for (i = 0; (i < store->n_ranks) && !store->closing && !store->views->over; ++i) {
        if ((i != store->me) && (store->views->moves.ranks[i].incarnation != 0)) {
            store->notify->ask_moved(store, i, store->views->moves.id, store->views->listed, store->views->switched);
        }
    }
    if (!store->closing && !store->views->over && (store->views->timer == NULL)) {
        store->views->timer = kvcl_store_timer_start(store, AGAIN_NS, on_timer, store);
    }
}

/* ---- the steps ---- */

static void finish(kvcl_store_h store)
{
    kvcl_store_views_t *views = store->views;
    uint32_t           i;

    for (i = 0; i < store->n_ranks; ++i) {
        store->ranks[i].fresh = false;
    }
    views->over = true;
    kvcl_engine_notify(store->ctx); /* wakes ranks that come or leave */
    kvcl_store_timer_stop(views->timer);
    views->timer = NULL;
    kvcl_log_info("shards have moved: view %llu, %.0f ms", (unsigned long long)views->view,
                  (double)(kvcl_now_ns() - views->begun_ns) / 1e6);
    store->notify->shards_moved(store);
}

/* As many steps as all ranks allow. */
static void go_on(kvcl_store_h store)
{
    kvcl_store_views_t *views = store->views;
    kvcl_store_map_t   *map;

    if (views->listed && !views->switched && kvcl_moves_all(&views->moves, KVCL_MOVES_LISTED)) {
        map = kvcl_view_map_next(store, false);
        if (map == NULL) {
            return;
        }
        kvcl_view_map_set(store, map);
        views->switched = true;
        kvcl_moves_say(&views->moves, store->me, views->moves.id, KVCL_MOVES_SWITCHED);
        post_all(store);
    }
    if (views->switched && !views->over && kvcl_moves_all(&views->moves, KVCL_MOVES_SWITCHED)) {
        map = kvcl_view_map_next(store, true);
        if (map != NULL) {
            kvcl_view_map_set(store, map);
            finish(store);
        }
    }
}

void kvcl_views_listed(kvcl_store_h store)
{
    kvcl_store_views_t *views = store->views;

    kvcl_assert_locked(store->ctx);
    if (!views->listed && !store->closing) {
        views->listed = true;
        kvcl_moves_say(&views->moves, store->me, views->moves.id, KVCL_MOVES_LISTED);
        post_all(store);
        go_on(store);
    }
}

bool kvcl_views_on_moved(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                         size_t len)
{
    kvcl_moved_t       moved;
    kvcl_store_views_t *views = store->views;

    if ((in->rank >= store->n_ranks) || (len != sizeof(moved))) {
        return false;
    }
    memcpy(&moved, data, sizeof(moved));
    if ((moved.id == 0) || (moved.listed > 1) || (moved.switched > moved.listed) || (moved.asks > 1)) {
        return false;
    }
    if ((views == NULL) || (store->ranks[in->rank].peer != peer)) {
        return true; /* it comes, and this rank has not taken it yet */
    }
    if (moved.listed) {
        kvcl_moves_say(&views->moves, in->rank, moved.id,
                       moved.switched ? KVCL_MOVES_SWITCHED : KVCL_MOVES_LISTED);
    }
    if (moved.asks && (moved.id == views->moves.id) && (views->view != 0)) {
        post_moved(store, in->rank);
    }
    if (views->view != 0) {
        go_on(store);
    }
    return true;
}

static bool is_gone(const struct kvcl_store *store, uint32_t rank)
{
    return (atomic_load_explicit(&store->ranks[rank].avoided, memory_order_relaxed) & KVCL_AVOID_GONE) != 0;
}

/* Shards begin to move, or begin anew. grows: as kvcl_moves_next(). */
static void move(kvcl_store_h store, bool grows)
{
    kvcl_store_views_t *views = store->views;
    kvcl_store_map_t   *map   = kvcl_view_map_move(store, grows);
    uint32_t           i;

    if (map == NULL) {
        return; /* the present one stays: keys of ranks that have gone are not found */
    }
    for (i = 0; i < store->n_ranks; ++i) {
        if ((views->moves.ranks[i].incarnation == 0) || !is_gone(store, i)) {
            store->incarnations[i] = views->moves.ranks[i].incarnation;
            atomic_store_explicit(&store->ranks[i].incarnation, store->incarnations[i], memory_order_release);
        }
    }
    kvcl_moves_begin(&views->moves);
    views->listed = views->switched = views->over = false;
    views->begun_ns = kvcl_now_ns();
    kvcl_view_map_set(store, map);
    if (views->timer == NULL) {
        views->timer = kvcl_store_timer_start(store, AGAIN_NS, on_timer, store);
    }
    kvcl_log_info("shards move: view %llu", (unsigned long long)views->view);
    store->notify->shards_move(store);
}

/* ---- views ---- */

static uint32_t slot_of(const struct kvcl_store *store, uint32_t rank)
{
    return (store->comm->world != NULL) ? (uint32_t)store->comm->world[rank] : rank;
}

/* True: ranks that took part are not in this view. */
static bool take_view(kvcl_store_h store, const kvcl_view_t *view)
{
    kvcl_store_views_t *views  = store->views;
    bool               changed = false;
    uint32_t           i;

    views->view = view->number;
    for (i = 0; !views->known && (i < store->n_ranks); ++i) {
        views->members[i] = view->incarnation[slot_of(store, i)];
    }
    views->known = true;
    for (i = 0; i < store->n_ranks; ++i) {
        if (!kvcl_view_has(view, slot_of(store, i), views->members[i]) && (views->moves.ranks[i].incarnation != 0)) {
            views->moves.ranks[i].incarnation = 0;
            views->moves.ranks[i].leaves      = false;
            store->incarnations[i]            = 0;
            atomic_store_explicit(&store->ranks[i].incarnation, 0, memory_order_relaxed);
            changed = true;
        }
    }
    return changed;
}

void kvcl_views_changed(kvcl_store_h store, const kvcl_view_t *view)
{
    kvcl_assert_locked(store->ctx);
    if ((store->views == NULL) || (store->views->view == 0) || store->closing) {
        return;
    }
    if (take_view(store, view)) {
        move(store, false);
    }
}

void kvcl_views_begin(kvcl_store_h store)
{
    kvcl_store_views_t *views = store->views;
    const kvcl_view_t  *view  = kvcl_member_view(store->ctx);
    uint32_t           i;

    kvcl_assert_locked(store->ctx);
    if (views == NULL) {
        return;
    }
    for (i = 0; i < store->n_ranks; ++i) {
        views->moves.ranks[i].incarnation = store->incarnations[i];
    }
    views->view = 1;
    atomic_store(&store->settled, atomic_load(&store->map));
    kvcl_moves_begin(&views->moves);
    views->listed = views->switched = views->over = true; /* there are no blocks yet */
    if (view != NULL) {
        kvcl_views_changed(store, view);
    }
}

void kvcl_views_rank_comes(kvcl_store_h store, uint32_t rank, uint16_t incarnation, bool leaves)
{
    kvcl_store_views_t *views = store->views;
    const kvcl_view_t  *view  = kvcl_member_view(store->ctx);

    kvcl_assert_locked(store->ctx);
    views->moves.ranks[rank].incarnation = incarnation;
    views->moves.ranks[rank].leaves      = leaves;
    if (views->view != 0) {
        if (view != NULL) { /* else the first view names all members (take_view) */
            views->members[rank] = view->incarnation[slot_of(store, rank)];
        }
        move(store, true);
    }
}

void kvcl_views_come(kvcl_store_h store)
{
    kvcl_store_views_t *views = store->views;
    uint32_t           i;

    kvcl_assert_locked(store->ctx);
    views->moves.ranks[store->me].incarnation = store->incarnation;
    store->ranks[store->me].fresh             = true;
    for (i = 0; i < store->n_ranks; ++i) {
        if ((i != store->me) && (store->ranks[i].peer->state != KVCL_PEER_READY)) {
            views->moves.ranks[i].incarnation = 0;
        }
    }
    (void)take_view(store, kvcl_member_view(store->ctx));
    move(store, true);
}

bool kvcl_views_has(const struct kvcl_store *store, uint32_t rank)
{
    const kvcl_view_t *view = kvcl_member_view(store->ctx);

    return (view != NULL) && kvcl_rankset_has(&view->members, slot_of(store, rank));
}

bool kvcl_views_rank_failed(kvcl_store_h store, uint32_t rank)
{
    kvcl_store_views_t *views = store->views;

    kvcl_assert_locked(store->ctx);
    if ((views == NULL) || (views->view == 0)) {
        return false;
    }
    if (store->closing) {
        return true;
    }
    if (store->ranks[rank].peer->state == KVCL_PEER_FAILED) { /* the view without it comes, if there is a quorum */
        store->ranks[rank].silent_since_ns = 0;
        atomic_fetch_or_explicit(&store->ranks[rank].avoided, KVCL_AVOID_GONE, memory_order_relaxed);
        kvcl_silence_found(store);
        return true;
    }
    views->moves.ranks[rank].incarnation = 0; /* it has closed its part: it owns nothing any more */
    views->moves.ranks[rank].leaves      = false;
    move(store, false);
    return true;
}

/* ---- owning ---- */

bool kvcl_views_may_own(const struct kvcl_store *store)
{
    return (store->views == NULL) || kvcl_member_has_lease(store->ctx);
}

static bool owns(void *arg)
{
    const struct kvcl_store *store = arg;

    return store->closing || kvcl_views_may_own(store);
}

kvcl_status_t kvcl_views_wait_to_own(kvcl_store_h store, uint64_t deadline_ns, const char *call)
{
    if ((store->views == NULL) || kvcl_engine_wait(store->ctx, owns, store, deadline_ns)) {
        return KVCL_OK;
    }
    return kvcl_fail(KVCL_ERR_NO_QUORUM, "%s: too few ranks answer this one to decide: it works again when the others "
                     "can be reached", call);
}

/* ---- opening and closing ---- */

kvcl_status_t kvcl_views_open(kvcl_store_h store)
{
    kvcl_store_views_t *views;

    if (!kvcl_member_has_views(store->ctx) || ((store->comm->world == NULL) && (store->comm != store->ctx->world))) {
        return KVCL_OK;
    }
    views = calloc(1, sizeof(*views) + (store->n_ranks * (sizeof(views->moves.ranks[0]) + sizeof(views->members[0]))));
    if (views == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the views of a store");
    }
    views->moves.ranks   = (kvcl_moves_rank_t *)(void *)(views + 1);
    views->moves.n_ranks = store->n_ranks;
    views->members       = (uint64_t *)(void *)(views->moves.ranks + store->n_ranks);
    store->views         = views;
    return KVCL_OK;
}

void kvcl_views_free(kvcl_store_h store)
{
    free(store->views);
    store->views = NULL;
}

void kvcl_views_stop(kvcl_store_h store)
{
    if (store->views != NULL) {
        kvcl_store_timer_stop(store->views->timer);
        store->views->timer = NULL;
    }
}
