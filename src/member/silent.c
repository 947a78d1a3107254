/*
 * What a rank does about silence beyond the views' own rules: KVCL_FENCE, and a rank that hears nobody.
 *
 * Owns: ranks[].killed, room->deaf_ns. Invariants: only a rank with a lease kills, so one that merely hears nobody
 * kills nobody; a process is killed by a descriptor that was opened for the process at its own socket, so never another one.
 * Locks: the engine lock; kvcl_ended_kill on the members' thread.
 */
#include "config.h"
#include "base/log.h"
#include "member/member.h"

/* A silent process of this host, of the same user, becomes one that has ended: that is proof. */
static void fence_silent(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_rankset_t silent = room->views.detect.silent;
    uint32_t       slot;

    if ((room->ctx->config.fence != KVCL_FENCE_KILL) || kvcl_rankset_is_empty(&silent) ||
        !kvcl_views_has_lease(&room->views, now_ns)) {
        return;
    }
    kvcl_rankset_keep(&silent, &room->views.view.members);
    kvcl_rankset_drop(&silent, &room->views.detect.proven);
    KVCL_RANKSET_EACH(&silent, slot) {
        if (!room->ranks[slot].killed && kvcl_ended_kill(room->ended, slot)) {
            kvcl_log_warn("rank %u of this host is silent, and is killed (KVCL_FENCE=kill)", (unsigned)slot);
            room->ranks[slot].killed = true;
            room->stats.fenced += 1;
        }
    }
}

/* Does this rank hear none of the others, while the kernel shows that some of this host live? The messages of a host go
 * through memory that all of its ranks write to: one that is killed while it writes can leave a hole behind which
 * nothing is read any more. The others hear this rank, so they do not exclude it. */
static bool hears_nobody(const kvcl_member_room_t *room)
{
    kvcl_rankset_t others = room->views.view.members, there;
    uint32_t       slot;

    kvcl_rankset_drop(&others, &room->views.detect.proven);
    kvcl_rankset_del(&others, room->me);
    kvcl_detect_there(&room->views.detect, &there);
    kvcl_rankset_keep(&there, &others);
    if (!kvcl_rankset_is_empty(&there) || kvcl_views_has_quorum(&room->views)) {
        return false;
    }
    KVCL_RANKSET_EACH(&others, slot) {
        if (room->ranks[slot].near && !room->ranks[slot].ended) {
            return true;
        }
    }
    return false;
}

void kvcl_member_heed_silence(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_assert_locked(room->ctx);
    if (room->views.state != KVCL_VIEWS_MEMBER) {
        return;
    }
    fence_silent(room, now_ns);
    if (!hears_nobody(room)) {
        room->deaf_ns = 0;
    } else if (room->deaf_ns == 0) {
        room->deaf_ns = now_ns;
    } else if (now_ns - room->deaf_ns >= KVCL_MEMBER_HOLD_NS) {
        kvcl_log_error("rank %u has heard none of the others for %llu s, though processes of its host live: it leaves",
                       (unsigned)room->me, (unsigned long long)(KVCL_MEMBER_HOLD_NS / 1000000000));
        kvcl_views_leave(&room->views, room->me, now_ns);
        kvcl_views_give_up(&room->views);
    }
}
