/*
 * The members' answers to the rooms above (lease.h). Owns room->leased. Engine lock held, except where lease.h says.
 */
#include "config.h"
#include "base/clock.h"
#include "base/log.h"
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

void kvcl_member_take_lease(kvcl_member_room_t *room, uint32_t slot, const kvcl_peer_t *peer, const kvcl_msg_t *msg,
                            size_t hdr_len)
{
    kvcl_msg_view_t in = {.lease_ns = 0};

    kvcl_assert_locked(room->ctx);
    if ((hdr_len < sizeof(in)) || (room->ranks[slot].peer != peer)) {
        return; /* a rank of an older version does not say it */
    }
    memcpy(&in, msg, sizeof(in));
    if (kvcl_views_lease_of(&room->views, slot, in.lease_ns) && (in.lease_ns >= room->times.detect.dead_ns)) {
        kvcl_log_warn("rank %u has a KVCL_LEASE of %llu ms, this rank a KVCL_DEAD of %llu ms: that rank is excluded as "
                      "much later; set both to the same values on all ranks", (unsigned)slot,
                      (unsigned long long)(in.lease_ns / KVCL_NS_PER_MS),
                      (unsigned long long)(room->times.detect.dead_ns / KVCL_NS_PER_MS));
    }
}
