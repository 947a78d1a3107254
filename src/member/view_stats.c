/*
 * kvcl_view_stats: the numbers of views, and what counts them. Locks: the engine lock.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"
#include "member/member.h"

void kvcl_member_count(kvcl_member_room_t *room, kvcl_views_event_t event, const kvcl_rankset_t *ranks)
{
    const uint64_t now_ns = kvcl_now_ns();
    uint64_t       took_ns;

    kvcl_assert_locked(room->ctx);
    if (event == KVCL_VIEWS_SUSPECT) {
        room->stats.suspicions += kvcl_rankset_count(ranks);
    } else if (event == KVCL_VIEWS_ALIVE_AGAIN) {
        room->stats.false_suspicions += kvcl_rankset_count(ranks);
    } else if ((event == KVCL_VIEWS_FAILED) && (room->wanted_ns == 0)) {
        room->wanted_ns = now_ns;
    } else if (event == KVCL_VIEWS_VIEW) {
        took_ns              = (room->wanted_ns != 0) ? now_ns - room->wanted_ns : 0;
        room->wanted_ns      = 0;
        room->stats.changes += 1;
        room->stats.change_ns += took_ns;
        room->stats.change_max_ns = (took_ns > room->stats.change_max_ns) ? took_ns : room->stats.change_max_ns;
    }
}

static unsigned suspected(const kvcl_member_room_t *room)
{
    uint32_t slot;
    unsigned n = 0;

    for (slot = 0; slot < room->n; ++slot) {
        n += (room->ranks[slot].suspected && kvcl_rankset_has(&room->views.view.members, slot)) ? 1 : 0;
    }
    return n;
}

kvcl_status_t kvcl_view_stats(kvcl_context_h ctx, kvcl_view_stats_t *stats)
{
    static const char  call[] = "kvcl_view_stats";
    kvcl_status_t      status = kvcl_struct_out_check(stats, KVCL_UP_TO(kvcl_view_stats_t, change_max_ns),
                                                      "kvcl_view_stats_t", call);
    kvcl_member_room_t *room;
    kvcl_view_stats_t  now;

    status = (status == KVCL_OK) ? kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, call) : status;
    if (status != KVCL_OK) {
        return status;
    }
    room = kvcl_member_room(ctx);
    if (room == NULL) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: this job has no views: set KVCL_VIEWS=yes on all of its ranks",
                         call);
    }
    kvcl_lock(ctx);
    now           = room->stats;
    now.view      = room->started ? room->views.view.number : 0;
    now.view_id   = room->started ? room->views.view.id : 0;
    now.members   = room->started ? (int)kvcl_rankset_count(&room->views.view.members) : 0;
    now.slots     = (int)room->n;
    now.suspected = (int)suspected(room);
    now.lease     = (room->started && kvcl_views_has_lease(&room->views, kvcl_now_ns())) ? 1 : 0;
    kvcl_unlock(ctx);
    kvcl_struct_out(stats, &now, sizeof(now));
    return KVCL_OK;
}
