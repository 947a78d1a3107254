/*
 * The rooms that keep state in a context (KVCL_ROOM_MAP).
 */
#include "config.h"
#include "core/context.h"

extern const kvcl_link_ops_t kvcl_link_ops; /* link/link.c */
const kvcl_link_ops_t *const kvcl_links = &kvcl_link_ops;

#define ROW(_name, _room) &kvcl_room_##_room,
const kvcl_room_t *const kvcl_rooms[KVCL_ROOMS] = {KVCL_ROOM_MAP(ROW)};
