/*
 * A rank that leaves the job (kvcl_leave) hands over its stores: first its shards (part.h), then the blocks that only
 * its pool has (copy/drain.c). It stays the home that others look keys up at until its shards have moved, so no get of
 * theirs misses a key. From then on its copies count for nothing: the homes make others (copy/repair.c). It waits for
 * these, for COPIES_NS at most, since a rank that dies while this one goes would take the last copy along.
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
#include "store/pool/pool.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdlib.h>

/* ---- shards ---- */

/* Lock held. Who is to be told that this rank leaves: all others that take part. */
static unsigned mark_others(kvcl_rounds_t *rounds)
{
    const struct kvcl_store *store = rounds->store;
    unsigned                n      = 0;
    uint32_t                i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < store->n_ranks; ++i) {
        rounds->ranks[i].over = (store->views->moves.ranks[i].incarnation == 0);
        n += ((i != store->me) && !rounds->ranks[i].over && !store->views->moves.ranks[i].leaves) ? 1 : 0;
    }
    return n;
}

/* Lock held. After a round: have all taken it? This rank itself does as they do. *alone_p: they leave as well. */
static bool all_took(kvcl_rounds_t *rounds, bool *sure_p, bool *alone_p)
{
    kvcl_store_h store = rounds->store;
    bool         all   = true;
    uint32_t     i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < store->n_ranks; ++i) {
        if (rounds->ranks[i].asked) {
            all      = all && (rounds->ranks[i].status == KVCL_OK);
            *sure_p  = *sure_p || (rounds->ranks[i].status == KVCL_OK);
            *alone_p = *alone_p || (rounds->ranks[i].status == KVCL_ERR_UNSUPPORTED);
        }
    }
    if (!store->views->moves.ranks[store->me].leaves && !*alone_p && (*sure_p || store->views->over)) {
        kvcl_views_rank_comes(store, store->me, store->incarnation, true);
        *sure_p = true;
    }
    return all && store->views->moves.ranks[store->me].leaves;
}

static kvcl_status_t give_shards(kvcl_store_h store, uint64_t deadline_ns, bool *alone_p)
{
    bool          over = false, sure = false, alone = false;
    kvcl_rounds_t rounds;
    kvcl_part_t   part;
    kvcl_status_t status;

    status = kvcl_rounds_open(&rounds, store, deadline_ns);
    if (status != KVCL_OK) {
        return status;
    }
    while (!over && !alone) {
        kvcl_lock(store->ctx);
        alone      = (store->views->view == 0) || (mark_others(&rounds) == 0);
        part       = kvcl_grow_part(store);
        part.flags = KVCL_PART_LEAVES | (sure ? KVCL_PART_SURE : 0u);
        kvcl_unlock(store->ctx);
        if (!alone) {
            (void)kvcl_rounds_ask(&rounds, &part);
            kvcl_lock(store->ctx);
            over = all_took(&rounds, &sure, &alone);
            kvcl_unlock(store->ctx);
        }
        if (!over && !alone && !kvcl_rounds_pause(&rounds)) {
            break;
        }
    }
    kvcl_rounds_close(&rounds);
    *alone_p = alone;
    if (alone || (over && kvcl_rounds_wait_settled(store, deadline_ns))) {
        return KVCL_OK;
    }
    return kvcl_fail(KVCL_ERR_TIMED_OUT, "a store's shards have not moved to the other ranks in the time given: call "
                     "it again, or with more time");
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
    kvcl_rounds_t pause = {.store = store, .deadline_ns = kvcl_deadline_after(COPIES_NS)};
    batch_t       *batch = malloc(sizeof(*batch));
    bool          waits  = (batch != NULL) && (store->views != NULL);
    unsigned      i;

    pause.deadline_ns = (deadline_ns < pause.deadline_ns) ? deadline_ns : pause.deadline_ns;
    for (i = 0; waits && (store->pool != NULL) && (i < store->pool->n); ++i) {
        while (waits && !has_copies(store->pool->owners[i], batch)) {
            waits = kvcl_rounds_pause(&pause);
        }
    }
    if (!waits) {
        kvcl_log_warn("this rank leaves before all blocks of a store have as many copies elsewhere as they had");
    }
    free(batch);
}

/* ---- all stores ---- */

static uint64_t view_of(kvcl_store_h store)
{
    const kvcl_view_t *view;
    uint64_t          number;

    kvcl_lock(store->ctx);
    view   = kvcl_member_view(store->ctx);
    number = (view != NULL) ? view->number : 0;
    kvcl_unlock(store->ctx);
    return number;
}

static kvcl_status_t hand_over(kvcl_store_h store, uint64_t deadline_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    bool               over   = false;
    uint64_t           moved  = 0, left, view;
    kvcl_status_t      status = (store->views != NULL) ? give_shards(store, deadline_ns, &over) : KVCL_OK;

    while ((status == KVCL_OK) && !over) {
        view              = view_of(store);
        left              = kvcl_deadline_left(deadline_ns);
        params.timeout_ns = (left == UINT64_MAX) ? KVCL_WAIT_FOREVER : (left != 0) ? left : 1;
        status            = kvcl_store_drain(store, &moved, &params);
        if (status == KVCL_OK) {
            wait_for_copies(store, deadline_ns);
        }
        kvcl_log_info("%llu blocks of a store have moved to other ranks", (unsigned long long)moved);
        over = (view == view_of(store)); /* if not, other copies of its blocks may have gone meanwhile */
    }
    return status;
}

/* Holds the next store, in the order of opening, after n others. */
static kvcl_store_h hold_next(kvcl_store_room_t *room, kvcl_context_h ctx, unsigned n)
{
    kvcl_store_h store, found = NULL;

    kvcl_lock(ctx);
    kvcl_list_foreach (store, &room->stores, struct kvcl_store, link) {
        if ((found == NULL) && !store->closing && (n-- == 0)) {
            found = store;
            ++store->ops;
        }
    }
    kvcl_unlock(ctx);
    return found;
}

kvcl_status_t kvcl_grow_leave_all(kvcl_context_h ctx, void *state, uint64_t deadline_ns)
{
    kvcl_status_t status = KVCL_OK;
    kvcl_store_h  store;
    unsigned      n;

    for (n = 0; (status == KVCL_OK) && ((store = hold_next(state, ctx, n)) != NULL); ++n) {
        status = hand_over(store, deadline_ns);
        kvcl_store_release(store);
    }
    return status;
}
