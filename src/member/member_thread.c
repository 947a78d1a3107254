/*
 * The thread of members (member.h): it sleeps until the next tick, or until a process of this host ends. It holds this
 * process's page (life/life.h), so that others see this process end.
 *
 * Owns: the thread, its descriptor, room->ended, room->page and room->life. Invariant: it holds the engine lock for a
 * tick only, and never while it asks boot. Idle it wakes twice a beat, at multiples of half a beat of the host's clock,
 * so that beats of several ranks of a host arrive in one wake-up of their receiver; while a view is being changed, at
 * least every KVCL_TICK_NS.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "member/join/joins.h"
#include "wire/address.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { AGAIN_BEATS = 3 }; /* after which agreements are said again */
enum { PAGE_ASKS = 100 }; /* one a beat, until a rank has answered */
#define KVCL_TICK_NS (10 * KVCL_NS_PER_MS)
#define KVCL_LOOK_NS KVCL_NS_PER_MS /* between two looks at a process that seems to end */

/* ---- meeting ---- */

/* No lock held. KVCL_ERR_RANK_FAILED: nobody has the slot. */
static kvcl_status_t find(kvcl_member_room_t *room, uint32_t slot)
{
    kvcl_context_h ctx = room->ctx;
    kvcl_peer_t    *peer;
    kvcl_status_t  status;
    const void     *address;
    size_t         len;

    pthread_mutex_lock(&ctx->boot_lock);
    status = kvcl_rank_slot_address(ctx, (int)slot, &address, &len);
    if (status == KVCL_OK) {
        kvcl_lock(ctx);
        status = ctx->closing ? kvcl_fail(KVCL_ERR_CANCELED, "the context is closed") /* no session begins any more */
                              : kvcl_peer_by_address(ctx, address, len, &peer);
        if (status == KVCL_OK) {
            kvcl_member_know(room, slot, peer);
        }
        kvcl_unlock(ctx);
    }
    pthread_mutex_unlock(&ctx->boot_lock);
    return status;
}

/* Those that were there at the start, or, where this process joins, those of which it was told. */
static bool find_all(kvcl_member_room_t *room)
{
    kvcl_status_t status;
    uint32_t      slot;

    room->ranks[room->me].incarnation = kvcl_member_incarnation(room->ctx->uuid);
    for (slot = 0; (slot < room->n_first) && !atomic_load(&room->stop); ++slot) {
        status = (slot != room->me) ? find(room, slot) : KVCL_ERR_RANK_FAILED;
        if (room->joining && (status == KVCL_OK)) {
            kvcl_rankset_add(&room->members, slot);
        } else if (!room->joining && (slot != room->me) && (status != KVCL_OK)) {
            kvcl_log_warn("rank %u is not found: this rank has no views: %s", (unsigned)slot, kvcl_last_error());
            return false;
        }
    }
    return true;
}

/* No lock held. The end of processes of this host is watched from when they are known on. */
static void watch(kvcl_member_room_t *room)
{
    kvcl_address_t address;
    uint32_t       slot;
    bool           anew;

    for (slot = 0; slot < room->n; ++slot) {
        kvcl_member_rank_t *rank = &room->ranks[slot];

        kvcl_lock(room->ctx);
        anew = (rank->peer != NULL) && (rank->watched != rank->incarnation) &&
               (kvcl_address_unpack(rank->peer->address, rank->peer->address_len, &address) == KVCL_OK);
        rank->watched = anew ? rank->incarnation : rank->watched;
        kvcl_unlock_quietly(room->ctx);
        if (anew) {
            kvcl_ended_forget(room->ended, slot);
            if (room->life != NULL) {
                kvcl_life_forget(room->life, slot);
            }
        }
        if (anew && (memcmp(address.host, room->host, sizeof(room->host)) == 0)) {
            rank->near      = kvcl_ended_watch(room->ended, slot, address.uuid);
            rank->page_asks = (rank->near && (room->life != NULL)) ? PAGE_ASKS : 0;
            memcpy(rank->uuid, address.uuid, sizeof(rank->uuid));
        }
    }
}

/* ---- pages: no lock held ---- */

static void open_page(kvcl_member_room_t *room)
{
    if (kvcl_life_page_open(&room->page) != KVCL_OK) {
        kvcl_log_info("%s", kvcl_last_error());
    }
    room->ask.page_fd   = room->page.fd;
    room->ask.page_word = room->page.word;
}

static void close_page(kvcl_member_room_t *room)
{
    room->ask.page_fd = -1;
    kvcl_life_page_close(&room->page);
}

static void ask_pages(kvcl_member_room_t *room)
{
    const uint64_t now_ns = kvcl_now_ns();
    uint32_t       slot;

    if (now_ns - room->paged_ns < room->times.detect.beat_ns) {
        return;
    }
    room->paged_ns = now_ns;
    for (slot = 0; slot < room->n; ++slot) {
        if (room->ranks[slot].page_asks > 0) {
            --room->ranks[slot].page_asks;
            kvcl_ask_page(&room->ask, room->ranks[slot].uuid);
        }
    }
}

static void on_page(void *arg, const uint8_t uuid[16], int fd, uint32_t word)
{
    kvcl_member_room_t *room = arg;
    uint32_t           slot;

    for (slot = 0; slot < room->n; ++slot) {
        kvcl_member_rank_t *rank = &room->ranks[slot];

        if ((rank->page_asks > 0) && (memcmp(rank->uuid, uuid, sizeof(rank->uuid)) == 0)) {
            rank->page_asks = 0;
            if (!kvcl_life_watch(room->life, slot, fd, word)) {
                kvcl_log_info("the page of rank %u is of no use: its end is seen when it has freed its memory",
                              (unsigned)slot);
            }
        }
    }
}

/* Lock held. Each rank has answered, or will not. */
static bool have_met(kvcl_member_room_t *room, uint64_t now_ns)
{
    const bool late = now_ns - room->since_ns >= room->ctx->config.boot_timeout_ns;
    uint32_t   slot;

    kvcl_assert_locked(room->ctx);
    for (slot = 0; slot < room->n_first; ++slot) {
        kvcl_member_rank_t *rank = &room->ranks[slot];

        if ((slot == room->me) || rank->met || rank->ended || (rank->peer->state == KVCL_PEER_FAILED)) {
            continue;
        }
        if (!late) {
            return false;
        }
        kvcl_log_warn("rank %u takes no part in views: is KVCL_VIEWS set there?", (unsigned)slot);
    }
    return true;
}

/* Lock held. */
static void meet(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_msg_t  here = {.type = KVCL_MSG_VIEW, .op = room->me};
    kvcl_peer_t *peer;
    uint32_t    slot;

    kvcl_assert_locked(room->ctx);
    if (room->joining || have_met(room, now_ns)) {
        kvcl_member_start_machine(room, now_ns);
        return;
    }
    if (now_ns - room->beat_ns < room->times.detect.beat_ns / 2) {
        return;
    }
    room->beat_ns = now_ns;
    for (slot = 0; slot < room->n; ++slot) {
        peer = room->ranks[slot].peer;
        if ((peer != NULL) && (peer->state == KVCL_PEER_READY) &&
            (kvcl_peer_post(peer, &here, sizeof(here), NULL, 0) != KVCL_OK)) {
            kvcl_log_debug("%s is not told that this rank is here", peer->name);
        }
    }
}

/* ---- ticks ---- */

/* Lock held. */
static void hear(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_member_rank_t *rank;
    uint32_t           slot;

    kvcl_assert_locked(room->ctx);
    for (slot = 0; slot < room->n; ++slot) {
        rank = &room->ranks[slot];
        if ((rank->peer != NULL) && (rank->messages != rank->peer->messages)) {
            rank->messages = rank->peer->messages;
            kvcl_views_heard(&room->views, slot, now_ns);
        }
        if ((rank->held != NULL) && ((rank->ended && (rank->held == rank->peer)) || (now_ns >= rank->held_ns))) {
            kvcl_list_add_tail(&room->ctx->peers.ended, &rank->held->ended_link);
            rank->held = NULL;
        }
    }
}

/* Lock held. The user is told of the first view when this rank has a lease in it. */
static void begin(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_assert_locked(room->ctx);
    if (!room->begun && !room->joining && (room->views.view.number == 1) &&
        kvcl_views_has_lease(&room->views, now_ns)) {
        kvcl_member_event(room, KVCL_EVENT_VIEW, &room->views.view.members);
        room->begun = true;
    }
}

/* Idle: when all ranks of a host tick, and beat; or sooner, where silence has lasted long enough. */
static uint64_t next_tick(const kvcl_member_room_t *room, uint64_t now_ns, uint64_t rest_ns)
{
    const uint64_t in_step_ns = now_ns - (now_ns % rest_ns) + rest_ns;
    const uint64_t due_ns     = kvcl_detect_due(&room->views.detect, now_ns);

    return (due_ns < in_step_ns) ? due_ns : in_step_ns;
}

/* Lock held. @return when to tick again. */
static uint64_t tick(kvcl_member_room_t *room)
{
    const uint64_t half_ns = room->times.detect.beat_ns - (room->times.detect.beat_ns / 2); /* not 0 */
    uint64_t       now_ns, rest_ns = half_ns;

    kvcl_assert_locked(room->ctx);
    kvcl_engine_poll_messages(room->ctx, false);
    now_ns = kvcl_now_ns();
    kvcl_revokes_again(&room->revokes);
    if (!room->started) {
        meet(room, now_ns);
        rest_ns = KVCL_TICK_NS;
    }
    if (room->started) {
        hear(room, now_ns);
        room->busy = true;
        kvcl_views_beat_in_step(&room->views, now_ns);
        kvcl_views_tick(&room->views, now_ns);
        room->wanted_ns = (room->wanted_ns == 0) ? room->views.wanted_ns : room->wanted_ns;
        kvcl_member_heed_silence(room, now_ns);
        room->busy = false;
        kvcl_member_heal(room, now_ns);
        begin(room, now_ns);
        kvcl_joins_tick(room, now_ns);
        kvcl_joiner_tick(room, now_ns);
        if (now_ns - room->again_ns >= AGAIN_BEATS * room->times.detect.beat_ns) {
            room->again_ns = now_ns;
            kvcl_member_recover_again(room);
        }
        kvcl_member_settle(room);
        if (kvcl_member_lease_changed(room, now_ns) || (atomic_load(&room->n_calls) != 0)) {
            kvcl_engine_notify(room->ctx);
        }
        if ((kvcl_views_is_busy(&room->views) || (room->joining && !room->begun && !room->excluded)) &&
            (rest_ns > KVCL_TICK_NS)) {
            rest_ns = KVCL_TICK_NS;
        }
    }
    return (rest_ns == half_ns) ? next_tick(room, now_ns, rest_ns) : now_ns + rest_ns;
}

/* The time left until then, for ppoll; NULL: for ever. poll would round it to milliseconds, in each rank otherwise. */
static const struct timespec *left_until(uint64_t until_ns, struct timespec *left)
{
    const uint64_t left_ns = kvcl_deadline_left(until_ns);

    left->tv_sec  = (time_t)(left_ns / KVCL_NS_PER_SEC);
    left->tv_nsec = (long)(left_ns % KVCL_NS_PER_SEC);
    return (left_ns == UINT64_MAX) ? NULL : left;
}

/* No lock held. Until that time, or until somebody has ended, or seems to. bye: others take no beats of this rank any
 * more, so it does not answer that it lives. */
static void rest(kvcl_member_room_t *room, uint64_t until_ns, bool bye)
{
    struct pollfd   fds[4] = {{.fd = room->wake_fd, .events = POLLIN},
                              {.fd = kvcl_ended_fd(room->ended), .events = POLLIN},
                              {.fd = bye ? -1 : room->ask.fd, .events = POLLIN},
                              {.fd = (room->life != NULL) ? kvcl_life_fd(room->life) : -1, .events = POLLIN}};
    const bool      unsure = kvcl_ended_is_unsure(room->ended);
    struct timespec left;
    uint32_t        slot;

    if (room->life != NULL) {
        kvcl_life_look(room->life);
    }
    if (unsure) {
        until_ns = kvcl_now_ns() + KVCL_LOOK_NS;
    }
    if ((ppoll(fds, 4, left_until(until_ns, &left), NULL) <= 0) && !unsure) {
        return;
    }
    if (((fds[2].revents & POLLIN) != 0) && kvcl_ask_take(&room->ask)) {
        room->n_answers += 1;
    }
    while ((fds[3].revents & POLLIN) && ((slot = kvcl_life_take(room->life)) != KVCL_LIFE_NONE)) {
        kvcl_ended_sign(room->ended, slot);
    }
    while ((slot = kvcl_ended_take(room->ended)) != KVCL_ENDED_NONE) {
        kvcl_lock(room->ctx);
        kvcl_engine_poll_messages(room->ctx, true); /* what it sent before its end, as that this rank is excluded */
        if (room->ranks[slot].watched == room->ranks[slot].incarnation) { /* not the slot's process before that */
            room->ranks[slot].ended = true;
            kvcl_rankset_add(&room->gone, slot);
        }
        kvcl_engine_kick(room->ctx); /* a thread that sleeps has to arm the transports again */
        kvcl_unlock(room->ctx);
        kvcl_member_clean_later(room, kvcl_now_ns());
    }
}

static void *run(void *arg)
{
    kvcl_member_room_t *room = arg;
    uint64_t           next_ns;
    bool               over, bye;

    room->since_ns    = kvcl_now_ns();
    kvcl_member_clean_later(room, room->since_ns);
    room->ask.on_page = on_page;
    room->ask.arg     = room;
    if (!find_all(room)) {
        return NULL;
    }
    open_page(room);
    while (!atomic_load(&room->stop)) {
        kvcl_ended_admit(room->ended);
        watch(room);
        ask_pages(room);
        kvcl_lock(room->ctx);
        over    = room->ctx->closing;
        bye     = room->ctx->peers.bye;
        next_ns = over ? KVCL_DEADLINE_NONE : tick(room);
        kvcl_unlock(room->ctx);
        rest(room, next_ns, bye);
        kvcl_member_clean(room, kvcl_now_ns());
    }
    close_page(room);
    return NULL;
}

kvcl_status_t kvcl_member_thread_start(kvcl_member_room_t *room)
{
    int err;

    kvcl_member_clean_where(room);
    kvcl_host_id(room->host);
    room->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (room->wake_fd < 0) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot make the descriptor of the thread for views");
    }
    err = kvcl_thread_start(&room->thread, "kvcl-views", run, room);
    if (err != 0) {
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, err, "cannot start the thread for views");
    }
    room->has_thread = true;
    return KVCL_OK;
}

void kvcl_member_thread_stop(kvcl_member_room_t *room)
{
    uint64_t one = 1;

    if (room->has_thread) {
        atomic_store(&room->stop, true);
        if (write(room->wake_fd, &one, sizeof(one)) < 0) {
            kvcl_log_trace("eventfd %d is full: %m", room->wake_fd); /* readable all the same */
        }
        pthread_join(room->thread, NULL);
        room->has_thread = false;
    }
    if (room->wake_fd >= 0) {
        close(room->wake_fd);
        room->wake_fd = -1;
    }
}
