/*
 * Silence, beyond the views' own rules: KVCL_FENCE ends silent processes, and a rank that gets no message gets another
 * queue, or leaves. The messages of a host go through memory that all of its ranks write to: one that is killed while
 * it writes can leave a hole behind which nothing is read any more (link/heal.c).
 *
 * Owns: ranks[].killed, room->asked_ns, n_answers, n_before, deaf_ns and unhealed. Invariants: only a rank with a lease
 * kills, so one that merely gets no message kills no process; a process is killed by a descriptor that was opened for
 * the process at its own socket, so never another one. A rank heals, or leaves, only if others of its host answer
 * questions that do not travel as messages: stopped ones do not answer. Locks: the engine lock; kvcl_ended_kill on the
 * members' thread.
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

/* Do others of this host live, as far as is known, and none of them was heard for KVCL_SUSPECT? */
static bool hears_no_near(const kvcl_member_room_t *room)
{
    bool     some = false;
    uint32_t slot;

    KVCL_RANKSET_EACH(&room->views.view.members, slot) {
        if ((slot == room->me) || !room->ranks[slot].near || room->ranks[slot].ended ||
            kvcl_rankset_has(&room->views.detect.proven, slot)) {
            continue;
        }
        if (!kvcl_rankset_has(&room->views.detect.suspects, slot)) {
            return false;
        }
        some = true;
    }
    return some;
}

/* Does this rank hear none of the others at all, without a quorum? The others hear it, so they do not exclude it; if it
 * is the lowest, it leads them. */
static bool hears_nobody(const kvcl_member_room_t *room)
{
    kvcl_rankset_t there;

    kvcl_detect_there(&room->views.detect, &there);
    kvcl_rankset_del(&there, room->me);
    return kvcl_rankset_is_empty(&there) && !kvcl_views_has_quorum(&room->views);
}

/* Ask all of this host, one question a beat. Answers are counted by the thread (kvcl_member_answered). */
static void ask(kvcl_member_room_t *room, uint64_t now_ns)
{
    uint32_t slot;

    if ((room->asked_ns != 0) && (now_ns - room->asked_ns < room->times.detect.beat_ns)) {
        return;
    }
    room->asked_ns = now_ns;
    kvcl_ask_next(&room->ask);
    KVCL_RANKSET_EACH(&room->views.view.members, slot) {
        if (room->ranks[slot].near && !room->ranks[slot].ended && (room->ranks[slot].peer != NULL)) {
            kvcl_ask_put(&room->ask, room->ranks[slot].peer->uuid);
        }
    }
}

/* It leaves if another queue has not helped, or there is none. */
static void leave(kvcl_member_room_t *room, uint64_t now_ns)
{
    if (!hears_nobody(room)) {
        room->n_before = room->n_answers;
    } else if (room->n_answers - room->n_before >= KVCL_MEMBER_ANSWERS) {
        kvcl_log_error("rank %u hears none of the others, though ranks of its host answer otherwise: it leaves the "
                       "job. A process was killed, or is stopped, while it wrote into the queue in shared memory from "
                       "which this rank reads", (unsigned)room->me);
        kvcl_views_leave(&room->views, room->me, now_ns);
        kvcl_views_give_up(&room->views);
    }
}

/* The rank must stay deaf for a beat after the answers: ranks that were stopped and go on answer first, and are heard
 * soon after. */
static void heal(kvcl_member_room_t *room, uint64_t now_ns)
{
    if ((room->n_answers < KVCL_MEMBER_HEAL_ANSWERS) || room->unhealed) {
        return;
    }
    if (!kvcl_links->is_deaf(room->ctx)) {
        room->deaf_ns = 0;
        return;
    }
    room->deaf_ns = (room->deaf_ns == 0) ? now_ns : room->deaf_ns;
    if (now_ns - room->deaf_ns < room->times.detect.beat_ns) {
        return;
    }
    room->deaf_ns  = 0;
    room->unhealed = !kvcl_links->heal(room->ctx);
    if (!room->unhealed) {
        kvcl_log_warn("rank %u does not hear the ranks of its host, which answer otherwise: it gets another queue in "
                      "shared memory. A process was killed, or is stopped, while it wrote into the one before",
                      (unsigned)room->me);
    }
}

void kvcl_member_heed_silence(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_assert_locked(room->ctx);
    if (room->views.state != KVCL_VIEWS_MEMBER) {
        return;
    }
    fence_silent(room, now_ns);
    if (!hears_no_near(room)) {
        room->asked_ns  = 0;
        room->n_answers = room->n_before = 0;
        room->deaf_ns   = 0;
        room->unhealed  = false;
        return;
    }
    ask(room, now_ns);
    leave(room, now_ns);
}

void kvcl_member_heal(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_assert_locked(room->ctx);
    if ((room->views.state == KVCL_VIEWS_MEMBER) && (room->asked_ns != 0)) {
        heal(room, now_ns);
    }
}
