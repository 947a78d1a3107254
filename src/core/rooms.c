/*
 * The rooms that keep state in a context, in the order of their init; fini runs in reverse.
 */
#include "config.h"
#include "core/context.h"

extern const kvcl_room_t kvcl_room_comm;  /* join/connect.c */
extern const kvcl_room_t kvcl_room_mem;   /* mem/mem.c */
extern const kvcl_room_t kvcl_room_lane;  /* lane/lane.c */
extern const kvcl_room_t kvcl_room_gate;  /* gate/gate.c */
extern const kvcl_room_t kvcl_room_xfer;  /* xfer/xfer.c */
extern const kvcl_room_t kvcl_room_serve; /* serve/serve_room.c */
extern const kvcl_room_t kvcl_room_notify; /* notify/notify_room.c */
extern const kvcl_room_t kvcl_room_p2p;   /* p2p/p2p_room.c */
extern const kvcl_room_t kvcl_room_coll;  /* coll/coll_room.c */
extern const kvcl_room_t kvcl_room_store; /* store/store.c */

extern const kvcl_link_ops_t kvcl_link_ops; /* link/link.c */
const kvcl_link_ops_t *const kvcl_links = &kvcl_link_ops;

const kvcl_room_t *const kvcl_rooms[KVCL_ROOMS] = {
    [KVCL_ROOM_COMM] = &kvcl_room_comm, [KVCL_ROOM_MEM] = &kvcl_room_mem,     [KVCL_ROOM_LANE] = &kvcl_room_lane,
    [KVCL_ROOM_GATE] = &kvcl_room_gate, [KVCL_ROOM_XFER] = &kvcl_room_xfer,   [KVCL_ROOM_SERVE] = &kvcl_room_serve,
    [KVCL_ROOM_NOTIFY] = &kvcl_room_notify,
    [KVCL_ROOM_P2P] = &kvcl_room_p2p,   [KVCL_ROOM_COLL] = &kvcl_room_coll,   [KVCL_ROOM_STORE] = &kvcl_room_store,
};
