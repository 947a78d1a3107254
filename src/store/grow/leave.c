/*
 * A rank that leaves the job (kvcl_leave) hands over its stores: first its shards (part.h), then the blocks that only
 * its pool has (drain.c). It stays the home that others look keys up at until its shards have moved, so no get of
 * theirs misses a key. From then on its copies count for nothing: the homes make others (copy/repair.c). It waits for
 * these, for COPIES_NS at most, since a rank that dies while this one goes would take the last copy along.
 *
 * Where that fails, the rank stays: it has its part of the shards again, and its pools take blocks. A rank may use the
 * new map alone as soon as this one has LISTED its blocks (dir/moves.h); from then on the shards move on first, and
 * then back. Blocks that have moved stay where they are.
 *
 * Owns nothing. Locks: none on entry; the engine lock inside.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "member/lease.h"
#include "store/grow/rounds.h"
#include "store/home/find.h"
#include "store/home/follow_views.h"
#include "store/home/ranks.h"
#include "store/place/choose.h"
#include "store/pool/pool.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdio.h>

#define BACK_NS (3 * KVCL_NS_PER_SEC)

/* ---- shards ---- */

/* Lock held. Ranks that take no part are not asked. */
static void mark_others(kvcl_rounds_t *rounds)
{
    const struct kvcl_store *store = rounds->store;
    uint32_t                i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < store->n_ranks; ++i) {
        rounds->ranks[i].over = (store->views->moves.ranks[i].incarnation == 0);
    }
}

/* Lock held. After a round. The first rank that has not taken it; n_ranks: all have. An answer tells whether the other
 * rank leaves as well. If one has taken it, or no shard moves, this rank marks itself, too. */
static uint32_t take_answers(kvcl_rounds_t *rounds, bool leaves, bool *sure_p)
{
    kvcl_store_h store = rounds->store;
    uint32_t     first = store->n_ranks, i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < store->n_ranks; ++i) {
        const kvcl_rounds_rank_t *rank  = &rounds->ranks[i];
        const kvcl_moves_rank_t  *known = &store->views->moves.ranks[i];

        if (!rank->asked) {
            continue;
        }
        *sure_p = *sure_p || ((rank->status == KVCL_OK) && (rank->part.flags & KVCL_PART_SURE));
        if ((rank->status != KVCL_OK) || !*sure_p) {
            first = (first == store->n_ranks) ? i : first;
            continue;
        }
        if ((rank->part.flags & KVCL_PART_LEAVES) && !known->leaves && (known->incarnation != 0) &&
            (rank->part.hello.incarnation == known->incarnation)) { /* the process that takes part, no later one */
            kvcl_views_rank_comes(store, i, known->incarnation, true);
        }
    }
    if ((kvcl_views_leaves(store, store->me) != leaves) && (*sure_p || store->views->over)) {
        kvcl_views_rank_comes(store, store->me, store->incarnation, leaves);
        *sure_p = true;
    }
    return ((kvcl_views_leaves(store, store->me) != leaves) && (first == store->n_ranks)) ? store->me : first;
}

/* Answers that no later one changes. */
static bool is_refusal(kvcl_status_t status)
{
    return (status == KVCL_ERR_UNSUPPORTED) || (status == KVCL_ERR_INVALID_PARAM) || (status == KVCL_ERR_PROTOCOL);
}

static kvcl_status_t not_taken(const kvcl_rounds_t *rounds, uint32_t rank)
{
    const kvcl_status_t status = rounds->ranks[rank].status;

    if (rank == rounds->store->me) {
        return kvcl_fail(KVCL_ERR_TIMED_OUT, "a store's shards still move, and no other rank of this one's view "
                         "answers: call it again, or with more time");
    }
    if (is_refusal(status)) {
        return kvcl_fail(status, "rank %u refuses to take the shards of a store: %s: KVCL_VIEWS and the store's "
                         "parameters must be the same on all ranks", rank, kvcl_status_text(status));
    }
    return kvcl_fail(KVCL_ERR_TIMED_OUT, "a store's shards have not moved in the time given: rank %u has not taken "
                     "them (%s): call it again, or with more time", rank, kvcl_status_text(status));
}

/* No other rank is to have what this one has: all others leave too, this rank still comes to the store or was excluded,
 * or the store is being closed. */
static bool is_alone(kvcl_store_h store)
{
    bool alone;

    kvcl_lock(store->ctx);
    alone = store->closing || kvcl_member_is_excluded(store->ctx) ||
            ((store->views != NULL) && ((store->views->view == 0) || !kvcl_grow_others_stay(store)));
    kvcl_unlock(store->ctx);
    return alone;
}

static bool ends(kvcl_store_h store, bool leaves)
{
    bool closing;

    kvcl_lock(store->ctx);
    closing = store->closing || (store->views->view == 0);
    kvcl_unlock(store->ctx);
    return leaves ? is_alone(store) : closing;
}

static bool have_moved(void *arg)
{
    const struct kvcl_store *store = arg;

    return store->closing || store->views->over || !kvcl_grow_others_stay(store) ||
           kvcl_member_is_excluded(store->ctx);
}

/* Until all others have taken it that this rank leaves, or that it does not. sure: dir/moves.h allows it at once. */
static kvcl_status_t tell(kvcl_store_h store, bool leaves, bool sure, uint64_t deadline_ns, bool *told_p)
{
    uint32_t      left = 0;
    kvcl_rounds_t rounds;
    kvcl_part_t   part;
    kvcl_status_t status;

    status = kvcl_rounds_open(&rounds, store, deadline_ns);
    while ((status == KVCL_OK) && (left != store->n_ranks) && !ends(store, leaves)) {
        kvcl_lock(store->ctx);
        mark_others(&rounds);
        part       = kvcl_grow_part(store);
        part.flags = (leaves ? KVCL_PART_LEAVES : 0u) | (sure ? KVCL_PART_SURE : 0u);
        kvcl_unlock(store->ctx);
        (void)kvcl_rounds_ask(&rounds, &part);
        kvcl_lock(store->ctx);
        left = take_answers(&rounds, leaves, &sure);
        kvcl_unlock(store->ctx);
        if ((left != store->n_ranks) && (is_refusal(rounds.ranks[left].status) || !kvcl_rounds_pause(&rounds))) {
            status = ends(store, leaves) ? KVCL_OK : not_taken(&rounds, left);
            break;
        }
    }
    kvcl_rounds_close(&rounds);
    *told_p = (status == KVCL_OK) && (left == store->n_ranks);
    return status;
}

/* *given_p: the others have the shards; else (KVCL_OK) none of them was to have them. */
static kvcl_status_t give_shards(kvcl_store_h store, uint64_t deadline_ns, bool *given_p)
{
    kvcl_status_t status = tell(store, true, false, deadline_ns, given_p);

    if (*given_p && !kvcl_engine_wait(store->ctx, have_moved, store, deadline_ns)) {
        status = kvcl_fail(KVCL_ERR_TIMED_OUT, "a store's shards have not moved to the other ranks in the time given: "
                           "call it again, or with more time");
    }
    return status;
}

/* This rank stays. */
static void take_back(kvcl_store_h store)
{
    const uint64_t deadline_ns = kvcl_deadline_after(BACK_NS);
    bool           told        = true, listed;

    kvcl_lock(store->ctx);
    if (store->drains_to_leave) {
        store->draining = store->drains_to_leave = false;
    }
    listed = (store->views != NULL) && kvcl_views_leaves(store, store->me) && store->views->listed;
    kvcl_unlock(store->ctx);
    if (listed && (tell(store, true, true, deadline_ns, &told) == KVCL_OK)) {
        (void)kvcl_engine_wait(store->ctx, have_moved, store, deadline_ns);
    }
    if ((store->views != NULL) && (tell(store, false, !listed, deadline_ns, &told) != KVCL_OK)) {
        kvcl_log_warn("this rank has not left, and has no shards of a store all the same: %s", kvcl_last_error());
    }
}

/* ---- copies ---- */

enum { BATCH = 256 };
#define COPIES_NS (10 * KVCL_NS_PER_SEC)

typedef struct batch {
    uint32_t   n;
    kvcl_key_t keys[BATCH];
    unsigned   wanted[BATCH]; /* copies at other ranks */
} batch_t;

/* Lock held. The next blocks that are wanted in several copies. False: there are no more. */
static bool gather(kvcl_owner_t *owner, uint32_t *slot_p, batch_t *batch)
{
    kvcl_store_h   store  = owner->store;
    const unsigned places = kvcl_store_places(store, kvcl_owner_bytes(owner));

    kvcl_assert_locked(store->ctx);
    for (batch->n = 0; (*slot_p < owner->slots.n) && (batch->n < BATCH); ++*slot_p) {
        const kvcl_slot_t *slot   = &owner->array[*slot_p];
        const unsigned    copies = kvcl_loc_copies(slot->flags);

        if ((slot->state == KVCL_SLOT_PUBLISHED) && (copies > 1)) {
            batch->wanted[batch->n] = (copies < places) ? copies : places;
            batch->keys[batch->n++] = slot->key;
        }
    }
    return batch->n != 0;
}

/* Has each block of the pool as many copies elsewhere as it is wanted in? */
static bool has_copies(kvcl_owner_t *owner, batch_t *batch)
{
    kvcl_store_h store = owner->store;
    uint32_t     slot  = 0, i, j;
    kvcl_found_t found[BATCH];
    unsigned     n;
    bool         more;

    for (;;) {
        kvcl_lock(store->ctx);
        more = gather(owner, &slot, batch);
        kvcl_unlock(store->ctx);
        if (!more) {
            return true;
        }
        if (kvcl_locate(store, batch->keys, batch->n, found, 0) != KVCL_OK) {
            return false;
        }
        for (i = 0; i < batch->n; ++i) {
            for (j = 0, n = 0; j < found[i].n; ++j) {
                n += ((found[i].locs[j].rank != store->me) && !kvcl_views_leaves(store, found[i].locs[j].rank)) ? 1 : 0;
            }
            if (n < batch->wanted[i]) {
                return false;
            }
        }
    }
}

static void wait_for_copies(kvcl_store_h store, uint64_t deadline_ns)
{
    const uint64_t until_ns = kvcl_deadline_after(COPIES_NS);
    kvcl_rounds_t  pause    = {.store = store, .deadline_ns = (deadline_ns < until_ns) ? deadline_ns : until_ns};
    bool           waits    = true;
    batch_t        batch;
    unsigned       i;

    for (i = 0; waits && (store->pool != NULL) && (i < store->pool->n); ++i) {
        kvcl_owner_t *owner = store->pool->owners[i];

        while (waits && !is_alone(store) && !has_copies(owner, &batch)) {
            waits = kvcl_rounds_pause(&pause) || has_copies(owner, &batch);
        }
    }
    if (!waits && !is_alone(store)) {
        kvcl_log_warn("this rank leaves before all blocks of a store have as many copies elsewhere as they had");
    }
}

/* ---- all stores ---- */

static uint64_t view_of(kvcl_context_h ctx)
{
    const kvcl_view_t *view;
    uint64_t          number;

    kvcl_lock(ctx);
    view   = kvcl_member_view(ctx);
    number = (view != NULL) ? view->number : 0;
    kvcl_unlock(ctx);
    return number;
}

static kvcl_status_t hand_over(kvcl_store_h store, uint64_t deadline_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           moved  = 0, left;
    bool               given  = true;
    kvcl_status_t      status = (store->views != NULL) ? give_shards(store, deadline_ns, &given) : KVCL_OK;

    if ((status != KVCL_OK) || !given || is_alone(store)) {
        return status;
    }
    left              = kvcl_deadline_left(deadline_ns);
    kvcl_lock(store->ctx);
    store->drains_to_leave = store->drains_to_leave || !store->draining;
    kvcl_unlock(store->ctx);
    params.timeout_ns = (left == UINT64_MAX) ? KVCL_WAIT_FOREVER : (left != 0) ? left : 1;
    status            = kvcl_store_drain(store, &moved, &params);
    if (is_alone(store)) {
        return KVCL_OK; /* the others have gone meanwhile, or begun to */
    }
    kvcl_log_info("%llu blocks of a store have moved to other ranks", (unsigned long long)moved);
    if ((status == KVCL_OK) && (store->views != NULL)) { /* else no copies are made */
        wait_for_copies(store, deadline_ns);
    }
    return status;
}

/* Holds the store that was opened next after `last` (NULL: the first one). Then it releases `last`: the caller's hold
 * has kept that store in the list. */
static kvcl_store_h hold_next(kvcl_store_room_t *room, kvcl_context_h ctx, kvcl_store_h last)
{
    kvcl_store_h store, found = NULL;
    bool         is_later = (last == NULL);

    kvcl_lock(ctx);
    kvcl_list_foreach (store, &room->stores, struct kvcl_store, link) {
        if ((found == NULL) && is_later && !store->closing) {
            found = store;
            ++store->ops;
        }
        is_later = is_later || (store == last);
    }
    kvcl_unlock(ctx);
    if (last != NULL) {
        kvcl_store_release(last);
    }
    return found;
}

/* No lock held. All stores are as they were, but for blocks that have moved. The error sentence stays the leave's. */
static void take_all_back(kvcl_context_h ctx, void *state, kvcl_status_t status)
{
    char         why[KVCL_ERROR_MAX];
    kvcl_store_h store;

    snprintf(why, sizeof(why), "%s", kvcl_last_error());
    for (store = hold_next(state, ctx, NULL); store != NULL; store = hold_next(state, ctx, store)) {
        take_back(store);
    }
    (void)kvcl_fail(status, "%s", why);
}

kvcl_status_t kvcl_grow_leave_all(kvcl_context_h ctx, void *state, uint64_t deadline_ns)
{
    kvcl_status_t status = KVCL_OK;
    kvcl_store_h  store;
    uint64_t      view;

    do { /* with a view, other copies of any store's blocks may have gone */
        view  = view_of(ctx);
        store = hold_next(state, ctx, NULL);
        while (store != NULL) {
            status = (status == KVCL_OK) ? hand_over(store, deadline_ns) : status;
            store  = hold_next(state, ctx, store);
        }
    } while ((status == KVCL_OK) && (view != view_of(ctx)));
    if (status != KVCL_OK) {
        take_all_back(ctx, state, status);
    }
    return status;
}
