/*
 * What a rank knows of the members: kvcl_comm_view, kvcl_comm_active; and its phase. Locks: the engine lock.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/comm.h"
#include "handle/handle.h"
#include "member/member.h"

#include <string.h>

/* The room, if the communicator's ranks are those of this job and their views have begun. */
static kvcl_member_room_t *begun(kvcl_comm_h comm)
{
    kvcl_member_room_t *room = kvcl_member_room(comm->ctx);
    const bool         ours  = !comm->inter && ((comm->world != NULL) || (comm == comm->ctx->world));

    kvcl_assert_locked(comm->ctx);
    return ((room != NULL) && room->started && ours) ? room : NULL;
}

uint64_t kvcl_comm_view(kvcl_comm_h comm)
{
    kvcl_member_room_t *room;
    uint64_t           number;

    if (kvcl_handle_check(comm, KVCL_KIND_COMM, "kvcl_comm_view") != KVCL_OK) {
        return 0;
    }
    if (kvcl_member_room(comm->ctx) == NULL) {
        return 1;
    }
    kvcl_lock(comm->ctx);
    room   = begun(comm);
    number = (room != NULL) ? room->views.view.number : 1;
    kvcl_unlock(comm->ctx);
    return number;
}

kvcl_status_t kvcl_comm_active(kvcl_comm_h comm, unsigned char *active, int n, uint64_t *view_p)
{
    kvcl_status_t      status = kvcl_handle_check(comm, KVCL_KIND_COMM, "kvcl_comm_active");
    kvcl_member_room_t *room;
    int                i, slot;

    if (status != KVCL_OK) {
        return status;
    }
    if ((active == NULL) || (n != comm->size) || comm->inter) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_comm_active: active is NULL, a communicator of another job, or "
                         "%d bytes for %d ranks", n, (int)comm->size);
    }
    kvcl_lock(comm->ctx);
    room = begun(comm);
    for (i = 0; i < n; ++i) {
        slot      = (comm->world != NULL) ? comm->world[i] : i;
        active[i] = ((room != NULL) ? kvcl_rankset_has(&room->views.view.members, (uint32_t)slot)
                                    : (slot < comm->ctx->boot->size)) ? 1 : 0;
    }
    if (view_p != NULL) {
        *view_p = (room != NULL) ? room->views.view.number : 1;
    }
    kvcl_unlock(comm->ctx);
    return KVCL_OK;
}

kvcl_status_t kvcl_phase(kvcl_context_h ctx, kvcl_phase_t phase)
{
    kvcl_status_t      status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_phase");
    kvcl_member_room_t *room;

    if (status != KVCL_OK) {
        return status;
    }
    if ((phase != KVCL_PHASE_SERVING) && (phase != KVCL_PHASE_WARM_UP)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_phase: %d is no phase", (int)phase);
    }
    room = kvcl_member_room(ctx);
    if (room == NULL) {
        return KVCL_OK;
    }
    kvcl_lock(ctx);
    room->warm = (phase == KVCL_PHASE_WARM_UP);
    if (room->started) {
        kvcl_views_warm(&room->views, room->warm, kvcl_now_ns());
    }
    kvcl_unlock(ctx);
    return KVCL_OK;
}
