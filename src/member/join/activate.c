/*
 * Processes that have joined become members by a call (kvcl_comm_activate), and waiting for what is pending
 * (kvcl_comm_sync); which wait (kvcl_comm_waiting): kvcl_recover.h.
 *
 * Owns: rank->activated. Invariant: a process that a call has named becomes a member, however long that takes, while it
 * and this rank live: it asks again and again, and each time the machine is told (joins.c). This rank
 * forgets one that the call has dropped; another rank that leads, and that was told of it before, may propose it all
 * the same. Locks: none is held on entry; the engine lock inside.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/structs.h"
#include "member/join/joins.h"
#include "member/recover.h"
#include "req/timeout.h"
#include <kvcl/kvcl_recover.h>

/* The processes that are to become members. */
typedef struct coming {
    kvcl_member_room_t *room;
    kvcl_rankset_t     slots;
    uint64_t           incarnation[KVCL_SLOTS_MAX];
    unsigned           n_named[KVCL_SLOTS_MAX]; /* of each rank of the call, when it began */
} coming_t;

/* Lock held. */
static void give_result(const kvcl_member_room_t *room, kvcl_view_change_result_t *own,
                        kvcl_view_change_result_t *result)
{
    kvcl_assert_locked(room->ctx);
    own->view    = room->views.view.number;
    own->view_id = room->views.view.id;
    if (result != NULL) {
        kvcl_struct_out(result, own, sizeof(*own));
    }
}

/* No lock held; it is on return. */
static void wait_until(kvcl_member_room_t *room, bool (*done)(void *arg), void *arg, uint64_t deadline_ns)
{
    (void)kvcl_member_wait(room, done, arg, deadline_ns);
    kvcl_lock(room->ctx);
}

/* ---- kvcl_comm_activate ---- */

static bool waits(const kvcl_member_room_t *room, uint32_t slot, uint64_t incarnation)
{
    const kvcl_member_rank_t *rank = &room->ranks[slot];

    return (rank->next != NULL) && (rank->next->state != KVCL_PEER_FAILED) && rank->next_ready &&
           (rank->next_incarnation == incarnation);
}

/* Lock held. Each of them is a member, or has ended and is in no view that is proposed. */
static bool are_settled(void *arg)
{
    const coming_t *coming = arg;
    uint32_t       slot;

    kvcl_assert_locked(coming->room->ctx);
    if (coming->room->excluded) {
        return true;
    }
    KVCL_RANKSET_EACH(&coming->slots, slot) {
        if (!kvcl_view_has(&coming->room->views.view, slot, coming->incarnation[slot]) &&
            (kvcl_views_is_busy(&coming->room->views) || waits(coming->room, slot, coming->incarnation[slot]))) {
            return false;
        }
    }
    return true;
}

/* Lock held. */
static void name(coming_t *coming, uint32_t slot)
{
    kvcl_member_room_t *room = coming->room;
    kvcl_member_rank_t *rank = &room->ranks[slot];

    kvcl_assert_locked(room->ctx);
    kvcl_rankset_add(&coming->slots, slot);
    coming->incarnation[slot] = rank->activated = rank->next_incarnation;
    rank->n_named            += 1;
    room->busy                = true;
    kvcl_views_join(&room->views, slot, rank->activated, kvcl_now_ns());
    room->busy = false;
}

/* Lock held. */
static kvcl_status_t begin(kvcl_comm_h comm, const int *ranks, int n, const char *call, coming_t *coming)
{
    kvcl_member_room_t *room = coming->room;
    uint32_t           slot;
    int                i;

    kvcl_assert_locked(comm->ctx);
    if (room->started && (room->views.state == KVCL_VIEWS_JOINING)) {
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "%s: this process waits itself until a member activates it", call);
    }
    for (i = 0; room->started && !room->excluded && (i < n); ++i) {
        slot = kvcl_recover_slot(comm, ranks[i]);
        if (waits(room, slot, room->ranks[slot].next_incarnation)) {
            name(coming, slot);
        }
        coming->n_named[slot] = room->ranks[slot].n_named;
    }
    kvcl_member_settle(room);
    return KVCL_OK;
}

/* Lock held. Should the process ask again, a call must name it again; another call may have named one meanwhile. A
 * leader that is another rank keeps what it was told. */
static void give_up(const coming_t *coming, uint32_t slot)
{
    kvcl_member_rank_t *rank = &coming->room->ranks[slot];

    kvcl_assert_locked(coming->room->ctx);
    if (rank->n_named == coming->n_named[slot]) {
        kvcl_views_unjoin(&coming->room->views, slot, rank->activated);
        rank->activated = 0;
    }
}

/* Lock held. */
static kvcl_status_t end(kvcl_comm_h comm, const int *ranks, int n, const char *call, coming_t *coming,
                         kvcl_view_change_result_t *result)
{
    kvcl_member_room_t        *room = coming->room;
    kvcl_view_change_result_t own   = KVCL_VIEW_CHANGE_RESULT_INIT;
    uint32_t                  slot;
    int                       i;

    kvcl_assert_locked(comm->ctx);
    if (room->excluded) {
        return kvcl_fail(KVCL_ERR_STALE, "%s: the other ranks have excluded this one", call);
    }
    if (!room->started || !are_settled(coming)) {
        return kvcl_member_late(room, call);
    }
    for (i = 0; i < n; ++i) {
        slot = kvcl_recover_slot(comm, ranks[i]);
        if (kvcl_rankset_has(&coming->slots, slot)
                ? !kvcl_view_has(&room->views.view, slot, coming->incarnation[slot])
                : !kvcl_rankset_has(&room->views.view.members, slot)) {
            kvcl_member_drop(&own, ranks[i]);
            give_up(coming, slot);
        }
    }
    give_result(room, &own, result);
    return KVCL_OK;
}

kvcl_status_t kvcl_comm_activate(kvcl_comm_h comm, const int *ranks, int n, uint64_t timeout_ns,
                                 kvcl_view_change_result_t *result)
{
    static const char call[] = "kvcl_comm_activate";
    coming_t          coming = {.room = NULL};
    kvcl_status_t     status = kvcl_member_check_change(comm, call, result, &coming.room);
    uint64_t          deadline_ns;
    int               i;

    if ((status == KVCL_OK) && ((ranks == NULL) || (n <= 0))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: ranks is NULL, or n is %d", call, n);
    }
    for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
        status = kvcl_comm_check(comm, ranks[i], call);
    }
    status = (status == KVCL_OK) ? kvcl_call_timeout(comm->ctx, timeout_ns, call, &timeout_ns) : status;
    if (status != KVCL_OK) {
        return status;
    }
    deadline_ns = kvcl_deadline_after(timeout_ns);
    (void)kvcl_member_wait(coming.room, kvcl_member_has_begun, coming.room, deadline_ns);
    kvcl_lock(comm->ctx);
    status = begin(comm, ranks, n, call, &coming);
    kvcl_unlock(comm->ctx);
    if (status != KVCL_OK) {
        return status;
    }
    wait_until(coming.room, are_settled, &coming, deadline_ns);
    status = end(comm, ranks, n, call, &coming, result);
    kvcl_unlock(comm->ctx);
    return status;
}

kvcl_status_t kvcl_comm_waiting(kvcl_comm_h comm, unsigned char *waiting, int n)
{
    kvcl_member_room_t *room;
    kvcl_status_t      status = kvcl_recover_check(comm, "kvcl_comm_waiting", &room);
    uint32_t           slot;
    int                i;

    if (status != KVCL_OK) {
        return status;
    }
    if (waiting == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_comm_waiting: waiting is NULL: it takes a byte for each rank");
    }
    if (n != comm->size) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_comm_waiting: %d bytes for %d ranks: n must be "
                         "kvcl_comm_size(comm)", n, (int)comm->size);
    }
    kvcl_lock(comm->ctx);
    for (i = 0; i < n; ++i) {
        slot       = kvcl_recover_slot(comm, i);
        waiting[i] = (comm->ctx->config.join_waits && waits(room, slot, room->ranks[slot].next_incarnation)) ? 1 : 0;
    }
    kvcl_unlock(comm->ctx);
    return KVCL_OK;
}

/* ---- kvcl_comm_sync ---- */

/* Is something pending in this slot: a failure, or a process that a call has named? */
static bool is_pending(const kvcl_member_room_t *room, uint32_t slot)
{
    const kvcl_member_rank_t *rank = &room->ranks[slot];

    if ((rank->activated != 0) && waits(room, slot, rank->activated)) {
        return true;
    }
    return kvcl_rankset_has(&room->views.view.members, slot) && (rank->peer != NULL) &&
           (rank->ended || (rank->peer->state == KVCL_PEER_FAILED));
}

/* Lock held. */
static bool is_in_sync(void *arg)
{
    const kvcl_member_room_t *room = arg;
    kvcl_rankset_t           lost;
    uint32_t                 slot;

    kvcl_assert_locked(room->ctx);
    if (room->excluded || !room->started) {
        return room->excluded;
    }
    if (room->joining && !room->begun) {
        return kvcl_joiner_is_over(arg);
    }
    lost = room->views.detect.proven;
    kvcl_rankset_join(&lost, &room->views.detect.silent);
    kvcl_rankset_join(&lost, &room->views.leaving);
    kvcl_rankset_keep(&lost, &room->views.view.members);
    if (!kvcl_rankset_is_empty(&lost) || kvcl_views_is_busy(&room->views) ||
        (room->told_view != room->views.view.number)) {
        return false;
    }
    for (slot = 0; (slot < room->n) && !is_pending(room, slot); ++slot) {
    }
    return slot == room->n;
}

/* Lock held. */
static kvcl_status_t end_sync(kvcl_comm_h comm, kvcl_member_room_t *room, const char *call,
                              kvcl_view_change_result_t *result)
{
    kvcl_view_change_result_t own = KVCL_VIEW_CHANGE_RESULT_INIT;
    int                       i;

    kvcl_assert_locked(comm->ctx);
    if (room->excluded) {
        return kvcl_fail(KVCL_ERR_STALE, "%s: the other ranks have excluded this one", call);
    }
    if (room->joining && !room->begun) {
        return kvcl_joiner_is_over(room)
                   ? kvcl_joiner_failed(room)
                   : kvcl_fail(KVCL_ERR_TIMED_OUT, "%s: no member has activated this process in the time given "
                               "(kvcl_comm_activate)", call);
    }
    if (!is_in_sync(room)) {
        return kvcl_member_late(room, call);
    }
    for (i = 0; i < comm->size; ++i) {
        if (!kvcl_rankset_has(&room->views.view.members, kvcl_recover_slot(comm, i))) {
            kvcl_member_drop(&own, i);
        }
    }
    give_result(room, &own, result);
    return KVCL_OK;
}

kvcl_status_t kvcl_comm_sync(kvcl_comm_h comm, uint64_t timeout_ns, kvcl_view_change_result_t *result)
{
    static const char  call[] = "kvcl_comm_sync";
    kvcl_member_room_t *room;
    kvcl_status_t      status = kvcl_member_check_change(comm, call, result, &room);

    if (status != KVCL_OK) {
        return status;
    }
    wait_until(room, is_in_sync, room, kvcl_wait_deadline(comm->ctx, timeout_ns));
    status = end_sync(comm, room, call, result);
    kvcl_unlock(comm->ctx);
    return status;
}
