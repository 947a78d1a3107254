/*
 * Events of views for the user: a queue, its descriptor, and the callback.
 *
 * Owns: the ring of events. Invariants: events leave it in order, each once; while a callback is set one request at
 * most delivers them, so that they come one at a time; the descriptor is readable while the ring is not empty. Locks:
 * the engine lock, not held in the callback.
 */
#include "config.h"
#include "member/member.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structs.h"
#include "handle/handle.h"
#include "req/req.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void set_fd(const kvcl_member_room_t *room)
{
    uint64_t one = 1;

    if ((room->event_fd >= 0) && (write(room->event_fd, &one, sizeof(one)) < 0)) {
        kvcl_log_trace("eventfd %d is full: %m", room->event_fd); /* readable all the same */
    }
}

static void clear_fd(const kvcl_member_room_t *room)
{
    uint64_t count;

    if ((room->event_fd >= 0) && (read(room->event_fd, &count, sizeof(count)) < 0)) {
        return; /* it was clear */
    }
}

static bool pop(kvcl_member_room_t *room, kvcl_event_t *event)
{
    if (room->n_events == 0) {
        return false;
    }
    *event            = room->events[room->first_event];
    event->lost       = room->lost;
    room->lost        = 0;
    room->first_event = (room->first_event + 1) % KVCL_MEMBER_EVENTS;
    room->n_events   -= 1;
    if (room->n_events == 0) {
        clear_fd(room);
    }
    return true;
}

void kvcl_member_event(kvcl_member_room_t *room, int type, const kvcl_rankset_t *ranks)
{
    kvcl_event_t event = KVCL_EVENT_INIT;

    kvcl_assert_locked(room->ctx);
    if (room->n_events == KVCL_MEMBER_EVENTS) {
        room->first_event = (room->first_event + 1) % KVCL_MEMBER_EVENTS;
        room->n_events   -= 1;
        room->lost       += 1;
    }
    event.type    = type;
    event.view    = room->views.view.number;
    event.view_id = room->views.view.id;
    event.time_ns = kvcl_now_ns();
    event.n_ranks = (int)kvcl_rankset_count(ranks);
    _Static_assert(sizeof(event.ranks) == sizeof(ranks->word), "a bit for each slot");
    memcpy(event.ranks, ranks->word, sizeof(event.ranks));
    room->events[(room->first_event + room->n_events) % KVCL_MEMBER_EVENTS] = event;
    room->n_events += 1;
    set_fd(room);
    kvcl_engine_news(room->ctx);
}

/* ---- the callback ---- */

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_req_complete(req, status);
}

static const kvcl_req_class_t delivery_class = {.name = "kvcl_on_event", .stop = stop};

/* No lock held. All that wait, and those that come meanwhile. */
static void deliver(void *arg, kvcl_status_t status)
{
    kvcl_member_room_t *room = arg;
    kvcl_event_cb_t    cb;
    kvcl_event_t       event;
    void               *cb_arg;

    (void)status;
    for (;;) {
        kvcl_lock(room->ctx);
        cb     = room->cb;
        cb_arg = room->cb_arg;
        if ((cb == NULL) || !pop(room, &event)) {
            room->delivering = false;
            kvcl_unlock(room->ctx);
            return;
        }
        kvcl_unlock(room->ctx);
        cb(cb_arg, &event);
    }
}

void kvcl_member_deliver(kvcl_member_room_t *room)
{
    kvcl_req_t *req;

    kvcl_assert_locked(room->ctx);
    if ((room->cb == NULL) || (room->n_events == 0) || room->delivering) {
        return;
    }
    req = calloc(1, sizeof(*req));
    if ((req == NULL) || (kvcl_req_start(req, room->ctx, &delivery_class, 0, deliver, room, false) != KVCL_OK)) {
        free(req); /* with the next tick */
        return;
    }
    room->delivering = true;
    kvcl_req_complete(req, KVCL_OK);
}

/* ---- calls ---- */

static kvcl_status_t check(kvcl_context_h ctx, const char *call)
{
    kvcl_status_t status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, call);

    if ((status == KVCL_OK) && (kvcl_member_room(ctx) == NULL)) {
        status = kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: this job has no views: set KVCL_VIEWS=yes on all of its ranks",
                           call);
    }
    return status;
}

kvcl_status_t kvcl_on_event(kvcl_context_h ctx, kvcl_event_cb_t cb, void *arg)
{
    kvcl_status_t      status = check(ctx, "kvcl_on_event");
    kvcl_member_room_t *room;

    if (status == KVCL_OK) {
        room = kvcl_member_room(ctx);
        kvcl_lock(ctx);
        room->cb     = cb;
        room->cb_arg = arg;
        kvcl_member_deliver(room);
        kvcl_unlock(ctx);
    }
    return status;
}

kvcl_status_t kvcl_event_next(kvcl_context_h ctx, kvcl_event_t *event)
{
    kvcl_status_t status = kvcl_struct_out_check(event, KVCL_UP_TO(kvcl_event_t, ranks), "kvcl_event_t",
                                                 "kvcl_event_next");
    kvcl_event_t  next;
    bool          got;

    status = (status == KVCL_OK) ? check(ctx, "kvcl_event_next") : status;
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(ctx);
    got = pop(kvcl_member_room(ctx), &next);
    kvcl_unlock(ctx);
    if (got) {
        kvcl_struct_out(event, &next, sizeof(next));
    }
    return got ? KVCL_OK : KVCL_INPROGRESS;
}

kvcl_status_t kvcl_event_fd(kvcl_context_h ctx, int *fd_p)
{
    kvcl_status_t      status = check(ctx, "kvcl_event_fd");
    kvcl_member_room_t *room;

    if (status != KVCL_OK) {
        return status;
    }
    if (fd_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_event_fd: fd_p is NULL");
    }
    room = kvcl_member_room(ctx);
    kvcl_lock(ctx);
    if (room->event_fd < 0) {
        room->event_fd = eventfd((room->n_events != 0) ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    *fd_p = room->event_fd;
    kvcl_unlock(ctx);
    return (*fd_p >= 0) ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_IO, errno, "kvcl_event_fd: cannot make an eventfd");
}
