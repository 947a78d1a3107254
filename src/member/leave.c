/*
 * Living ranks that go: kvcl_leave (kvcl_view.h) and kvcl_comm_deactivate (kvcl_recover.h).
 *
 * Owns: room->n_calls. Invariants: the rooms have drained before this rank asks to go; a rank that has asked goes,
 * however long that takes. Locks: none is held on entry, and none while rooms drain; the engine lock inside.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"
#include "member/recover.h"
#include "req/callback.h"
#include "req/timeout.h"
#include <kvcl/kvcl_recover.h>

#include <string.h>

/* ---- both ---- */

/* A thread that waits while another one polls looks again when it is woken: by each tick, while a call is in here. */
bool kvcl_member_wait(kvcl_member_room_t *room, bool (*done)(void *arg), void *arg, uint64_t deadline_ns)
{
    bool ok;

    atomic_fetch_add(&room->n_calls, 1);
    ok = kvcl_engine_wait(room->ctx, done, arg, deadline_ns);
    atomic_fetch_sub(&room->n_calls, 1);
    return ok;
}

/* The processes that are to go. */
typedef struct going {
    kvcl_member_room_t *room;
    kvcl_rankset_t     slots;
    uint64_t           incarnation[KVCL_SLOTS_MAX];
    bool               self; /* this rank goes */
} going_t;

/* All members that live are to go: they stay in their view, which ends with the job. */
static bool nobody_stays(const kvcl_views_t *views)
{
    kvcl_rankset_t stay = views->view.members;

    kvcl_rankset_drop(&stay, &views->leaving);
    kvcl_rankset_drop(&stay, &views->detect.proven);
    return kvcl_rankset_is_empty(&stay);
}

/* Lock held. */
static bool are_gone(void *arg)
{
    const going_t      *going = arg;
    const kvcl_views_t *views = &going->room->views;
    uint32_t           slot;

    kvcl_assert_locked(going->room->ctx);
    if (going->room->excluded || !going->room->started) {
        return going->room->excluded;
    }
    if (going->self) {
        return nobody_stays(views);
    }
    KVCL_RANKSET_EACH(&going->slots, slot) {
        if (kvcl_view_has(&views->view, slot, going->incarnation[slot])) {
            return false;
        }
    }
    return true;
}

/* Lock held. It is a member: it is to go. */
static bool send_off(kvcl_member_room_t *room, uint32_t slot, going_t *going)
{
    kvcl_assert_locked(room->ctx);
    if (!room->started || !kvcl_rankset_has(&room->views.view.members, slot)) {
        return false;
    }
    kvcl_rankset_add(&going->slots, slot);
    going->incarnation[slot] = room->views.view.incarnation[slot];
    kvcl_views_leave(&room->views, slot, kvcl_now_ns());
    kvcl_member_settle(room);
    return true;
}

kvcl_status_t kvcl_member_late(const kvcl_member_room_t *room, const char *call)
{
    kvcl_assert_locked(room->ctx);
    if (!room->started) {
        return kvcl_fail(KVCL_ERR_TIMED_OUT, "%s: the ranks of the job have not met in the time given", call);
    }
    return kvcl_views_has_quorum(&room->views)
               ? kvcl_fail(KVCL_ERR_TIMED_OUT, "%s: there was no new view in the time given; it comes later", call)
               : kvcl_fail(KVCL_ERR_NO_QUORUM, "%s: this rank reaches too few others to decide anything", call);
}

/* ---- this rank ---- */

/* No lock held: the rooms hand over what only this rank has. */
static kvcl_status_t drain(kvcl_context_h ctx, uint64_t deadline_ns)
{
    kvcl_status_t status = KVCL_OK;
    unsigned      i;

    for (i = 0; (i < ctx->n_rooms) && (status == KVCL_OK); ++i) {
        if (kvcl_rooms[i]->leave != NULL) {
            status = kvcl_rooms[i]->leave(ctx, ctx->rooms[i], deadline_ns);
        }
    }
    return status;
}

/* One that waits to become a member would become one later, though it has left. */
static kvcl_status_t check_member(const kvcl_member_room_t *room, const char *call)
{
    bool waits;

    kvcl_lock(room->ctx);
    waits = room->started && (room->views.state == KVCL_VIEWS_JOINING);
    kvcl_unlock(room->ctx);
    return waits ? kvcl_fail(KVCL_ERR_RANK_FAILED, "%s: this process waits until a member activates it, and is in no "
                             "view that it could leave: kvcl_finalize ends its waiting", call) : KVCL_OK;
}

/* Lock held. */
static kvcl_status_t begin_to_go(kvcl_member_room_t *room, going_t *going, const char *call)
{
    kvcl_rankset_t me = {{0}};

    kvcl_assert_locked(room->ctx);
    if (room->excluded) {
        return kvcl_fail(KVCL_ERR_STALE, "%s: the other ranks have excluded this one", call);
    }
    kvcl_rankset_add(&me, room->me);
    if (!room->left) { /* else it has asked before, in vain so far */
        room->left = true;
        kvcl_member_event(room, KVCL_EVENT_DRAINED, &me);
    }
    (void)send_off(room, room->me, going);
    return KVCL_OK;
}

static kvcl_status_t room_of(kvcl_context_h ctx, const char *call, kvcl_member_room_t **room_p)
{
    kvcl_status_t status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, call);

    if (status != KVCL_OK) {
        return status;
    }
    if (kvcl_callback_inside(ctx)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: it would block in a callback of the context", call);
    }
    *room_p = kvcl_member_room(ctx);
    return (*room_p != NULL) ? KVCL_OK : kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: this job has no views: set "
                                                   "KVCL_VIEWS=yes on all of its ranks", call);
}

bool kvcl_member_has_begun(void *arg)
{
    const kvcl_member_room_t *room = arg;

    return room->started || room->excluded;
}

kvcl_status_t kvcl_leave(kvcl_context_h ctx, uint64_t timeout_ns)
{
    static const char  call[] = "kvcl_leave";
    kvcl_member_room_t *room;
    kvcl_status_t      status = room_of(ctx, call, &room);
    going_t            going  = {.self = true};
    uint64_t           deadline_ns;

    status = (status == KVCL_OK) ? kvcl_call_timeout(ctx, timeout_ns, call, &timeout_ns) : status;
    if (status != KVCL_OK) {
        return status;
    }
    deadline_ns = kvcl_deadline_after(timeout_ns);
    going.room  = room;
    if (kvcl_member_wait(room, kvcl_member_has_begun, room, deadline_ns)) {
        status = check_member(room, call);
        status = (status == KVCL_OK) ? drain(ctx, deadline_ns) : status;
    } else {
        kvcl_lock(ctx);
        status = kvcl_member_late(room, call);
        kvcl_unlock(ctx);
    }
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(ctx);
    status = begin_to_go(room, &going, call);
    kvcl_unlock(ctx);
    if ((status == KVCL_OK) && !kvcl_member_wait(room, are_gone, &going, deadline_ns)) {
        kvcl_lock(ctx);
        status = kvcl_member_late(room, call);
        kvcl_unlock(ctx);
    }
    return status;
}

/* ---- others ---- */

static kvcl_status_t check_ranks(kvcl_comm_h comm, const int *ranks, int n, const char *call)
{
    int i;

    if ((n <= 0) || (ranks == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: ranks is NULL, or n is %d", call, n);
    }
    for (i = 0; i < n; ++i) {
        if ((ranks[i] < 0) || (ranks[i] >= comm->size)) {
            return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "%s: rank %d is not in a communicator of %d ranks", call,
                             ranks[i], (int)comm->size);
        }
        if (ranks[i] == comm->rank) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: rank %d is the caller: it goes by kvcl_leave", call,
                             ranks[i]);
        }
    }
    return KVCL_OK;
}

void kvcl_member_drop(kvcl_view_change_result_t *result, int rank)
{
    uint64_t bit = UINT64_C(1) << (rank % 64);

    result->n_dropped += ((result->dropped[rank / 64] & bit) == 0) ? 1 : 0;
    result->dropped[rank / 64] |= bit;
}

kvcl_status_t kvcl_member_check_change(kvcl_comm_h comm, const char *call, const kvcl_view_change_result_t *result,
                                       kvcl_member_room_t **room_p)
{
    kvcl_status_t status = kvcl_recover_check(comm, call, room_p);

    if ((status == KVCL_OK) && kvcl_callback_inside(comm->ctx)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: it would block in a callback of the context", call);
    }
    return ((status == KVCL_OK) && (result != NULL))
               ? kvcl_struct_out_check(result, KVCL_UP_TO(kvcl_view_change_result_t, dropped),
                                       "kvcl_view_change_result_t", call) : status;
}

/* Lock held. Those that are no members are dropped from the change. */
static void begin_deactivation(kvcl_comm_h comm, const int *ranks, int n, going_t *going, kvcl_view_change_result_t *r)
{
    uint32_t slot;
    int      i;

    kvcl_assert_locked(comm->ctx);
    for (i = 0; i < n; ++i) {
        slot = kvcl_recover_slot(comm, ranks[i]);
        if (!kvcl_rankset_has(&going->slots, slot) && !send_off(going->room, slot, going)) {
            kvcl_member_drop(r, ranks[i]);
        }
    }
}

kvcl_status_t kvcl_comm_deactivate(kvcl_comm_h comm, const int *ranks, int n, uint64_t timeout_ns,
                                   kvcl_view_change_result_t *result)
{
    static const char         call[] = "kvcl_comm_deactivate";
    kvcl_member_room_t        *room;
    kvcl_status_t             status  = kvcl_member_check_change(comm, call, result, &room);
    kvcl_view_change_result_t own     = KVCL_VIEW_CHANGE_RESULT_INIT;
    going_t                   going   = {.self = false};
    uint64_t                  deadline_ns;

    status = (status == KVCL_OK) ? check_ranks(comm, ranks, n, call) : status;
    status = (status == KVCL_OK) ? kvcl_call_timeout(comm->ctx, timeout_ns, call, &timeout_ns) : status;
    if (status != KVCL_OK) {
        return status;
    }
    deadline_ns = kvcl_deadline_after(timeout_ns);
    going.room  = room;
    (void)kvcl_member_wait(room, kvcl_member_has_begun, room, deadline_ns);
    kvcl_lock(comm->ctx);
    begin_deactivation(comm, ranks, n, &going, &own);
    kvcl_unlock(comm->ctx);
    (void)kvcl_member_wait(room, are_gone, &going, deadline_ns);
    kvcl_lock(comm->ctx);
    own.view    = room->views.view.number;
    own.view_id = room->views.view.id;
    if (room->excluded) {
        status = kvcl_fail(KVCL_ERR_STALE, "%s: the other ranks have excluded this one", call);
    } else if (!are_gone(&going)) {
        status = kvcl_member_late(room, call);
    }
    kvcl_unlock(comm->ctx);
    if ((status == KVCL_OK) && (result != NULL)) {
        kvcl_struct_out(result, &own, sizeof(own));
    }
    return status;
}
