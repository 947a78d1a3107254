/*
 * The members' answers to the rooms above (lease.h). Owns room->leased. Engine lock held, except where lease.h says.
 */
#include "config.h"
#include "base/clock.h"
#include "member/lease.h"
#include "member/member.h"

bool kvcl_member_has_views(kvcl_context_h ctx)
{
    return kvcl_member_room(ctx) != NULL;
}

const kvcl_view_t *kvcl_member_view(kvcl_context_h ctx)
{
    const kvcl_member_room_t *room = kvcl_member_room(ctx);

    kvcl_assert_locked(ctx);
    return ((room != NULL) && room->started) ? &room->views.view : NULL;
}

bool kvcl_member_has_lease(kvcl_context_h ctx)
{
    const kvcl_member_room_t *room = kvcl_member_room(ctx);

    kvcl_assert_locked(ctx);
    return (room == NULL) || (room->started && kvcl_views_has_lease(&room->views, kvcl_now_ns()));
}

bool kvcl_member_lease_changed(kvcl_member_room_t *room, uint64_t now_ns)
{
    const bool before = room->leased;

    kvcl_assert_locked(room->ctx);
    room->leased = kvcl_views_has_lease(&room->views, now_ns);
    return room->leased != before;
}

bool kvcl_member_is_excluded(kvcl_context_h ctx)
{
    const kvcl_member_room_t *room = kvcl_member_room(ctx);

    kvcl_assert_locked(ctx);
    return (room != NULL) && room->excluded;
}
