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
#include "store/home/home_answer.h"
#include "store/home/ranks.h"
#include "store/home/timer.h"
#include "store/home/follow_views.h"

#include <stdlib.h>

#define AGAIN_NS (200 * KVCL_NS_PER_MS)

/* ---- MOVED: the steps of a rank ---- */

static void post_moved(kvcl_store_h store, uint32_t rank, bool asks)
{
    const kvcl_store_views_t *views = store->views;
    kvcl_moved_t             moved  = {.id = views->moves.id, .listed = views->listed, .switched = views->switched,
                                       .asks = asks};
    kvcl_msg_dir_request_t   out    = {.msg   = {.type = KVCL_MSG_DIR_REQUEST, .flags = KVCL_RPC_MOVED},
                                       .store = store->id, .n = 1, .rank = store->me};
    kvcl_peer_t              *peer  = store->ranks[rank].peer;

    if ((peer->state == KVCL_PEER_READY) &&
        (kvcl_peer_post(peer, &out.msg, sizeof(out), &moved, sizeof(moved)) != KVCL_OK)) {
        kvcl_log_debug("rank %u is not told of moved shards: it is later", rank);
    }
}

static void post_all(kvcl_store_h store, bool asks)
{
    uint32_t i;

    for (i = 0; i < store->n_ranks; ++i) {
        if ((i != store->me) && (store->views->moves.ranks[i].incarnation != 0)) {
            post_moved(store, i, asks);
        }
    }
}

static void on_timer(void *arg)
{
    kvcl_store_h store = arg;

    store->views->timer = NULL;
    if (!store->closing && !store->views->over) {
        post_all(store, true);
        store->views->timer = kvcl_store_timer_start(store, AGAIN_NS, on_timer, store);
    }
}

/* ---- maps ---- */

static kvcl_store_map_t *make_map(kvcl_store_h store)
{
    const kvcl_store_views_t *views = store->views;
    kvcl_store_map_t         *map   = calloc(1, sizeof(*map));
    uint32_t                 *ranks = malloc(store->n_ranks * sizeof(*ranks)), n = 0, i;

    for (i = 0; (ranks != NULL) && (i < store->n_ranks); ++i) {
        if (views->moves.ranks[i].incarnation != 0) {
            ranks[n++] = i;
        }
    }
    if ((map != NULL) && ((ranks == NULL) || (kvcl_shard_map_build(&map->shards, 1, ranks, n) != KVCL_OK))) {
        free(map);
        map = NULL;
    }
    free(ranks);
    if (map == NULL) {
        kvcl_log_error("no memory for the shard map of view %llu", (unsigned long long)views->view);
    }
    return map;
}

/* The map from which shards move: that of the last settled state, less the ranks that have gone since. */
static kvcl_shard_map_t *make_old(kvcl_store_h store)
{
    const kvcl_store_map_t *now = atomic_load(&store->map);
    kvcl_shard_map_t       *old = malloc(sizeof(*old));
    uint32_t               i;

    if (old == NULL) {
        return NULL;
    }
    *old = ((now->old != NULL) && !now->switched) ? *now->old : now->shards;
    for (i = 0; i < store->n_ranks; ++i) {
        if (store->views->moves.ranks[i].incarnation == 0) {
            kvcl_moves_drop(old, i);
        }
    }
    return old;
}

static void set_map(kvcl_store_h store, kvcl_store_map_t *map)
{
    kvcl_store_map_set(store, map);
    kvcl_home_adopt(&store->home, &map->shards, map->old, store->incarnations, store->n_ranks);
    if ((map->old == NULL) || map->switched) {
        atomic_store(&store->settled, map);
    }
}

/* A copy of the present map, in a later step. */
static kvcl_store_map_t *next_map(kvcl_store_h store, bool over)
{
    const kvcl_store_map_t *now = atomic_load(&store->map);
    kvcl_store_map_t       *map = malloc(sizeof(*map));

    if (map == NULL) {
        kvcl_log_error("no memory for a shard map: shards go on moving");
        return NULL;
    }
    *map          = *now;
    map->switched = !over;
    map->old      = over ? NULL : malloc(sizeof(*map->old));
    if (map->old != NULL) {
        *map->old = *now->old;
    }
    return map;
}

/* ---- the steps ---- */

static void finish(kvcl_store_h store)
{
    kvcl_store_views_t *views = store->views;

    views->over = true;
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
        map = next_map(store, false);
        if (map == NULL) {
            return;
        }
        set_map(store, map);
        views->switched = true;
        kvcl_moves_say(&views->moves, store->me, views->moves.id, KVCL_MOVES_SWITCHED);
        post_all(store, false);
    }
    if (views->switched && !views->over && kvcl_moves_all(&views->moves, KVCL_MOVES_SWITCHED)) {
        map = next_map(store, true);
        if (map != NULL) {
            set_map(store, map);
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
        post_all(store, false);
        go_on(store);
    }
}

bool kvcl_views_on_moved(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                         size_t len)
{
    kvcl_moved_t       moved;
    kvcl_store_views_t *views = store->views;

    if ((in->rank >= store->n_ranks) || (store->ranks[in->rank].peer != peer) || (len != sizeof(moved)) ||
        (in->msg.op != 0)) {
        return false;
    }
    memcpy(&moved, data, sizeof(moved));
    if ((moved.id == 0) || (moved.listed > 1) || (moved.switched > moved.listed) || (moved.asks > 1)) {
        return false;
    }
    if (views == NULL) {
        return true;
    }
    if (moved.listed) {
        kvcl_moves_say(&views->moves, in->rank, moved.id,
                       moved.switched ? KVCL_MOVES_SWITCHED : KVCL_MOVES_LISTED);
    }
    if (moved.asks && (moved.id == views->moves.id) && (views->view != 0)) {
        post_moved(store, in->rank, false);
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

/* Shards begin to move, or begin anew. */
static void move(kvcl_store_h store)
{
    kvcl_store_views_t *views = store->views;
    kvcl_store_map_t   *map   = make_map(store);
    uint32_t           i;

    if ((map == NULL) || ((map->old = make_old(store)) == NULL)) {
        free(map); /* the present one stays: keys of ranks that have gone are not found */
        return;
    }
    for (i = 0; i < store->n_ranks; ++i) {
        if ((views->moves.ranks[i].incarnation == 0) || !is_gone(store, i)) {
            store->incarnations[i] = views->moves.ranks[i].incarnation;
            atomic_store_explicit(&store->ranks[i].incarnation, store->incarnations[i], memory_order_relaxed);
        }
    }
    kvcl_moves_begin(&views->moves);
    views->listed = views->switched = views->over = false;
    views->begun_ns = kvcl_now_ns();
    set_map(store, map);
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

void kvcl_views_changed(kvcl_store_h store, const kvcl_view_t *view)
{
    kvcl_store_views_t *views  = store->views;
    bool               changed = false;
    uint32_t           i;

    kvcl_assert_locked(store->ctx);
    if ((views == NULL) || (views->view == 0) || store->closing) {
        return;
    }
    views->view = view->number;
    for (i = 0; !views->known && (i < store->n_ranks); ++i) {
        views->members[i] = view->incarnation[slot_of(store, i)];
    }
    views->known = true;
    for (i = 0; i < store->n_ranks; ++i) {
        if (!kvcl_view_has(view, slot_of(store, i), views->members[i]) && (views->moves.ranks[i].incarnation != 0)) {
            views->moves.ranks[i].incarnation = 0;
            store->incarnations[i]            = 0;
            atomic_store_explicit(&store->ranks[i].incarnation, 0, memory_order_relaxed);
            changed = true;
        }
    }
    if (changed) {
        move(store);
    } else {
        kvcl_log_debug("view %llu has the same ranks of a store", (unsigned long long)view->number);
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
    kvcl_moves_begin(&views->moves);
    views->listed = views->switched = views->over = true; /* there are no blocks yet */
    if (view != NULL) {
        kvcl_views_changed(store, view);
    }
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
    move(store);
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
