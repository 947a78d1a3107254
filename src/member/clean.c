/*
 * What killed processes have left in shared memory (life/leftovers.c) is removed: by the first living rank of the host,
 * a while after a proof, since the kernel first frees the memory of a killed process, and after this rank's start.
 *
 * Owns: room->clean_ns, room->queue_dir. All by the thread of members. Locks: none on entry; the engine lock inside.
 */
#include "config.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "member/member.h"

#include <stdio.h>

#define CLEAN_NS (4 * KVCL_NS_PER_SEC) /* younger files stay (life/leftovers.c) */
#define CLEAN_LATE_NS (15 * KVCL_NS_PER_SEC) /* of many GiB of memory */

void kvcl_member_clean_where(kvcl_member_room_t *room)
{
    const char *dir = kvcl_settings_getenv(NULL, "UCX_POSIX_DIR");

    snprintf(room->queue_dir, sizeof(room->queue_dir), "%s", (dir != NULL) ? dir : "/dev/shm");
}

void kvcl_member_clean_later(kvcl_member_room_t *room, uint64_t now_ns)
{
    room->clean_ns[0] = now_ns + CLEAN_NS;
    room->clean_ns[1] = now_ns + CLEAN_LATE_NS;
}

static bool is_first(kvcl_member_room_t *room)
{
    uint32_t slot;

    kvcl_lock(room->ctx);
    for (slot = 0; slot < room->me; ++slot) {
        const kvcl_member_rank_t *rank = &room->ranks[slot];

        if (rank->near && !rank->ended && (rank->peer != NULL) && (rank->peer->state != KVCL_PEER_FAILED)) {
            break;
        }
    }
    kvcl_unlock(room->ctx);
    return slot == room->me;
}

void kvcl_member_clean(kvcl_member_room_t *room, uint64_t now_ns)
{
    unsigned i, n = 0;

    for (i = 0; i < 2; ++i) {
        if ((room->clean_ns[i] != 0) && (now_ns >= room->clean_ns[i])) {
            room->clean_ns[i] = 0;
            n += is_first(room) ? kvcl_life_clean(room->queue_dir) : 0;
        }
    }
    if (n != 0) {
        kvcl_log_info("%u files that killed processes have left in %s are removed", n, room->queue_dir);
    }
}
