/*
 * A process that joins a running job (joins.h): it meets the members, waits for a view that has it, and begins.
 * Locks: the engine lock, but for the wait.
 */
#include "config.h"
#include "member/join/joins.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/comm.h"

#include <stdio.h>
#include <string.h>

void kvcl_joiner_on_answer(kvcl_member_room_t *room, uint32_t slot, const kvcl_msg_join_t *in,
                           const kvcl_rankset_t *members)
{
    kvcl_assert_locked(room->ctx);
    if (!room->joining || (room->views.state != KVCL_VIEWS_JOINING)) {
        return;
    }
    if (in->view >= room->members_view) {
        room->members_view = in->view;
        room->members      = *members;
    }
    room->waits = room->waits || (in->flags == KVCL_JOIN_WAITS);
    kvcl_rankset_del(&room->welcome, slot);
    if (in->status == KVCL_OK) {
        kvcl_rankset_add(&room->welcome, slot);
    } else if ((in->status != KVCL_ERR_BUSY) || (room->ctx->config.rank < 0) || /* or one that joined in it has died */
               (kvcl_now_ns() - room->since_ns >= 2 * KVCL_JOIN_STALE_NS)) {
        room->refused = (in->status < 0) ? (kvcl_status_t)in->status : KVCL_ERR_PROTOCOL;
        kvcl_engine_notify(room->ctx);
    }
}

/* The first member that has not welcomed this process; KVCL_SLOT_NONE: all have. */
static uint32_t who_lacks(const kvcl_member_room_t *room)
{
    kvcl_rankset_t rest = room->members;

    kvcl_rankset_drop(&rest, &room->welcome);
    kvcl_rankset_del(&rest, room->me);
    return kvcl_rankset_next(&rest, 0);
}

static void ask_all(kvcl_member_room_t *room)
{
    kvcl_msg_join_t out = {.kind = KVCL_JOIN_ASK, .msg = {.type = KVCL_MSG_JOIN, .op = room->me}};
    uint32_t        slot;

    room->ready = (who_lacks(room) == KVCL_SLOT_NONE);
    out.flags   = room->ready ? KVCL_JOIN_READY : 0u;
    if (room->ready && room->waits && !room->waiting) {
        room->waiting = true;
        kvcl_log_info("rank %u waits until a member activates it", (unsigned)room->me);
        kvcl_engine_notify(room->ctx);
    }
    KVCL_RANKSET_EACH(&room->members, slot) {
        kvcl_peer_t *peer = (slot < room->n) ? room->ranks[slot].peer : NULL;

        if ((peer != NULL) && (peer->state == KVCL_PEER_READY) &&
            (kvcl_peer_post(peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK)) {
            kvcl_log_debug("%s is not asked to let this process join", peer->name);
        }
    }
}

/* Is each member of this view in it? One that is silent will not be for long. */
static bool all_are_there(const kvcl_member_room_t *room)
{
    const kvcl_view_t *view = &room->views.view;
    uint32_t          slot;

    KVCL_RANKSET_EACH(&view->members, slot) {
        if ((slot != room->me) && !kvcl_rankset_has(&room->views.detect.proven, slot) &&
            ((room->ranks[slot].peer == NULL) || (room->ranks[slot].view < view->number))) {
            return false;
        }
    }
    return kvcl_rankset_has(&view->members, room->me);
}

void kvcl_joiner_tick(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_assert_locked(room->ctx);
    if (!room->joining || room->begun || room->excluded) {
        return;
    }
    if ((room->views.state == KVCL_VIEWS_JOINING) &&
        (now_ns - room->ask_ns >= (room->waiting ? KVCL_JOIN_IDLE_NS : KVCL_JOIN_AGAIN_NS))) {
        room->ask_ns = now_ns;
        ask_all(room);
    }
    if ((room->views.state == KVCL_VIEWS_MEMBER) && (room->told_view == room->views.view.number) &&
        all_are_there(room)) {
        atomic_store(&room->ctx->slots.quiet, false);
        room->begun = true;
        kvcl_member_event(room, KVCL_EVENT_VIEW, &room->views.view.members);
        kvcl_log_info("rank %u has joined, view %llu", (unsigned)room->me,
                      (unsigned long long)room->views.view.number);
        kvcl_engine_notify(room->ctx);
    }
}

/* ---- settings ---- */

kvcl_status_t kvcl_joiner_take_times(kvcl_member_room_t *room, kvcl_config_t *config, const uint64_t *job)
{
    kvcl_views_times_t times = KVCL_VIEWS_TIMES;
    const char         *wrong;

    if (job != NULL) {
        config->beat_ns    = job[0];
        config->suspect_ns = job[1];
        config->dead_ns    = job[2];
        config->lease_ns   = job[3];
        config->warm_ns    = job[4];
    }
    times.detect = (kvcl_detect_times_t){config->beat_ns, config->suspect_ns, config->dead_ns, config->warm_ns};
    times.lease_ns = config->lease_ns;
    wrong          = kvcl_views_times_wrong(&times);
    if (wrong != NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_BEAT, KVCL_SUSPECT, KVCL_DEAD, KVCL_LEASE, KVCL_WARM: %s",
                         wrong);
    }
    room->times = times;
    return KVCL_OK;
}

/* ---- waiting ---- */

bool kvcl_joiner_is_over(void *arg)
{
    const kvcl_member_room_t *room = arg;

    kvcl_assert_locked(room->ctx);
    return room->begun || room->excluded || (room->refused != KVCL_OK);
}

static bool is_settled(void *arg)
{
    return kvcl_joiner_is_over(arg) || ((const kvcl_member_room_t *)arg)->waiting;
}

kvcl_status_t kvcl_joiner_failed(const kvcl_member_room_t *room)
{
    const uint32_t slot = who_lacks(room);
    kvcl_peer_t    *peer;
    const char     *why;

    kvcl_assert_locked(room->ctx);
    if (room->refused == KVCL_ERR_BUSY) {
        return kvcl_fail(KVCL_ERR_BUSY, "rank %u: that slot has a living rank, or another process is joining in it",
                         (unsigned)room->me);
    }
    if ((room->refused != KVCL_OK) || room->excluded) {
        return kvcl_fail(room->excluded ? KVCL_ERR_STALE : room->refused, "this process may not join as rank %u: %s",
                         (unsigned)room->me, kvcl_status_text(room->excluded ? KVCL_ERR_STALE : room->refused));
    }
    if ((room->views.state == KVCL_VIEWS_MEMBER) || (slot == KVCL_SLOT_NONE)) {
        return kvcl_fail(KVCL_ERR_TIMED_OUT, "rank %u: the members have not made a view with it in the time given "
                         "(KVCL_BOOT_TIMEOUT): too few of them reach each other", (unsigned)room->me);
    }
    peer = room->ranks[slot].peer;
    why  = (peer != NULL) ? kvcl_peer_why_unreachable(peer) : NULL;
    return kvcl_fail(KVCL_ERR_UNREACHABLE, "this process has not met rank %u of the job in the time given "
                     "(KVCL_BOOT_TIMEOUT)%s%s", (unsigned)slot, (why != NULL) ? ": " : "", (why != NULL) ? why : "");
}

kvcl_status_t kvcl_joiner_wait(kvcl_member_room_t *room)
{
    kvcl_context_h ctx    = room->ctx;
    kvcl_status_t  status = KVCL_OK;

    (void)kvcl_engine_wait(ctx, is_settled, room, ctx->boot->join_until_ns);
    kvcl_lock(ctx);
    if (!room->begun && (!room->waiting || kvcl_joiner_is_over(room))) {
        status = kvcl_joiner_failed(room);
    }
    kvcl_unlock(ctx);
    return status;
}
