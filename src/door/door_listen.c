/*
 * kvcl_context_listen (door.h).
 *
 * Owns: nothing; the door and its port belong to the room. Locks: the engine lock, to publish the door. Two threads
 * that listen at the same time: the second one fails, whichever it is.
 */
#include "config.h"
#include "door/door.h"
#include "base/error.h"
#include "handle/handle.h"
#include <kvcl/kvcl_comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kvcl_status_t has_a_door(void)
{
    return kvcl_fail(KVCL_ERR_EXISTS, "kvcl_context_listen: the context has a door already; free that communicator "
                     "first");
}

/* Take the port of a door that was closed, to wait for it: the new door may have the same one. */
static kvcl_status_t clear(kvcl_context_h ctx)
{
    kvcl_door_room_t *room = kvcl_door_room_of(ctx);
    kvcl_sock_port_t *old  = NULL;
    bool             open;

    kvcl_lock(ctx);
    open = (room->door != NULL);
    if (!open) {
        old        = room->port;
        room->port = NULL;
    }
    kvcl_unlock(ctx);
    kvcl_sock_port_close(old);
    return open ? has_a_door() : KVCL_OK;
}

static kvcl_status_t publish(kvcl_comm_h door, kvcl_sock_port_t *port)
{
    kvcl_door_room_t *room = kvcl_door_room_of(door->ctx);
    bool             free_to;

    kvcl_lock(door->ctx);
    free_to = (room->door == NULL) && (room->port == NULL);
    if (free_to) {
        room->door = door;
        room->port = port;
    }
    kvcl_unlock(door->ctx);
    return free_to ? KVCL_OK : has_a_door();
}

/* What the others connect to, as text. */
static kvcl_status_t tell(kvcl_context_h ctx, const char *where, char *buf, size_t cap, size_t *len_p)
{
    if (where[0] == '\0') {
        return kvcl_context_address(ctx, buf, cap, len_p);
    }
    *len_p = strlen(where) + 1;
    if (*len_p > cap) {
        return kvcl_fail(KVCL_ERR_TRUNCATED, "kvcl_context_listen: the address needs %zu bytes, there is room for %zu",
                         *len_p, cap);
    }
    snprintf(buf, cap, "%s", where);
    return KVCL_OK;
}

/* In the port's thread: the context's packed address. */
static void *give_address(void *arg, const void *question, size_t *len_p)
{
    kvcl_context_h ctx   = arg;
    void           *copy = malloc(KVCL_ADDRESS_MAX);

    (void)question;
    if (copy != NULL) {
        kvcl_lock(ctx);
        memcpy(copy, ctx->address, ctx->address_len);
        *len_p = ctx->address_len;
        kvcl_unlock(ctx);
    }
    return copy;
}

kvcl_status_t kvcl_context_listen(kvcl_context_h ctx, const char *at, char *buf, size_t cap, size_t *len_p,
                                  kvcl_comm_h *door_p)
{
    char                    where[KVCL_HOSTPORT_MAX] = "";
    kvcl_sock_port_params_t params = {.what = "kvcl_context_listen", .id = kvcl_door_id,
                                      .answer = give_address, .arg = ctx};
    kvcl_sock_port_t *port  = NULL;
    kvcl_comm_h      door   = NULL;
    kvcl_status_t    status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_context_listen");

    if (status != KVCL_OK) {
        return status;
    }
    if ((len_p == NULL) || (door_p == NULL) || ((buf == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_context_listen: NULL argument");
    }
    status = clear(ctx);
    status = (status == KVCL_OK) ? kvcl_door_comm_make(ctx, KVCL_DOOR_RANKS, &door) : status;
    if (status != KVCL_OK) {
        return status;
    }
    if (at != NULL) {
        params.at     = at;
        params.secret = ctx->secret;
        status        = kvcl_sock_port_open(&params, where, &port);
    }
    status = (status == KVCL_OK) ? tell(ctx, where, buf, cap, len_p) : status;
    status = (status == KVCL_OK) ? publish(door, port) : status;
    if (status != KVCL_OK) {
        kvcl_sock_port_close(port);
        kvcl_comm_free(door);
        return status;
    }
    *door_p = door;
    return KVCL_OK;
}
