/*
 * Events of blocks: adding them to this rank's ring, and those who follow it.
 *
 * A follower asks for what comes after a number. If there is nothing yet its question is kept, at most FOLLOWERS_MAX of
 * them, until something comes (answered PAUSE_NS later, so that a burst is one answer) or its time is over. Nobody is
 * sent anything that was not asked for, and a slow follower costs the ring nothing: it is told that it came too late.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/admin/ops.h"

#include <stdlib.h>

enum { FOLLOWERS_MAX = 256 };
#define PAUSE_NS    (KVCL_NS_PER_MS / 2)
#define BUSY_PAUSE_NS (50 * KVCL_NS_PER_MS)
#define WAIT_MAX_NS (20 * KVCL_NS_PER_SEC) /* of a question that is kept; whoever wants more asks again */

typedef struct events_ask {
    uint64_t since;
    uint64_t cap;
    uint64_t wait_ns;
} events_ask_t;

/* A question that is kept. */
typedef struct follower {
    kvcl_list_t        link; /* store->followers */
    kvcl_store_h       store;
    kvcl_peer_t        *peer;
    kvcl_msg_dir_ask_t ask;
    events_ask_t       what;
    kvcl_store_timer_t *timer; /* the end of its time */
} follower_t;

kvcl_status_t kvcl_op_events(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    events_ask_t  ask;
    size_t        cap = out->cap / sizeof(kvcl_store_event_t), n = 0;
    kvcl_status_t status;

    if (len != sizeof(ask)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&ask, in, sizeof(ask));
    cap      = (ask.cap < cap) ? (size_t)ask.cap : cap;
    status   = kvcl_events_read(&store->events, ask.since, (kvcl_store_event_t *)(void *)out->buf, cap, &n);
    out->n   = (uint32_t)n;
    out->len = n * sizeof(kvcl_store_event_t);
    return status;
}

/* ---- followers on other ranks: lock held ---- */

static void answer(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_ask_t *in, const events_ask_t *what)
{
    kvcl_op_out_t out = {.cap = KVCL_OP_ANSWER_MAX, .buf = kvcl_home_scratch(store->ctx, KVCL_OP_ANSWER_MAX)};
    kvcl_status_t status = (out.buf != NULL) ? kvcl_op_events(store, what, sizeof(*what), &out) : KVCL_ERR_NO_MEMORY;

    kvcl_ask_answer(peer, in, status, out.n, out.buf, (status == KVCL_OK) ? out.len : 0);
}

static void let_go(follower_t *follower)
{
    kvcl_list_del(&follower->link);
    --follower->store->n_followers;
    kvcl_store_timer_stop(follower->timer);
    answer(follower->store, follower->peer, &follower->ask, &follower->what);
    free(follower);
}

static void time_over(void *arg)
{
    follower_t *follower = arg;

    follower->timer = NULL;
    let_go(follower);
}

static void flush(void *arg)
{
    kvcl_store_h store = arg;

    store->follow_timer = NULL;
    while (!kvcl_list_is_empty(&store->followers)) {
        let_go(kvcl_list_head(&store->followers, follower_t, link));
    }
}

static void tell_followers(kvcl_store_h store)
{
    kvcl_engine_notify(store->ctx); /* my own threads that follow */
    if ((store->n_followers != 0) && (store->follow_timer == NULL)) {
        store->follow_timer = kvcl_store_timer_start(store, PAUSE_NS, flush, store);
    }
}

void kvcl_follow_stop(kvcl_store_h store)
{
    kvcl_store_timer_stop(store->follow_timer);
    flush(store);
}

bool kvcl_follow_on_ask(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_ask_t *in, const void *data,
                        size_t len)
{
    events_ask_t what;
    follower_t   *follower;
    bool         waits;

    if (len != sizeof(what)) {
        return false;
    }
    memcpy(&what, data, sizeof(what));
    waits = (what.wait_ns != 0) && (what.since == store->events.newest) && (store->events.ring != NULL);
    if (waits && (store->n_followers >= FOLLOWERS_MAX)) {
        kvcl_ask_answer(peer, in, KVCL_ERR_BUSY, 0, NULL, 0); /* or it would ask all the time */
        return true;
    }
    follower = waits ? calloc(1, sizeof(*follower)) : NULL;
    if (follower == NULL) {
        answer(store, peer, in, &what);
        return true;
    }
    follower->store = store;
    follower->peer  = peer;
    follower->ask   = *in;
    follower->what  = what;
    kvcl_list_add_tail(&store->followers, &follower->link);
    ++store->n_followers;
    follower->timer = kvcl_store_timer_start(store, (what.wait_ns < WAIT_MAX_NS) ? what.wait_ns : WAIT_MAX_NS,
                                             time_over, follower);
    if (follower->timer == NULL) {
        let_go(follower);
    }
    return true;
}

/* ---- adding ---- */

void kvcl_follow_event(kvcl_owner_t *owner, uint32_t slot, kvcl_store_event_kind_t kind, int to_rank)
{
    kvcl_store_event_t event = {.kind = kind, .tier = owner->array[slot].flags & KVCL_DIR_TIER_MASK,
                                .key = owner->array[slot].key, .bytes = (uint32_t)owner->cache->shape.block_bytes,
                                .to_rank = to_rank,
                                .tenant = kvcl_owner_tenant(owner, slot)};

    kvcl_events_add(&owner->store->events, &event);
    if ((owner->store->n_followers != 0) || (owner->store->n_waiting != 0)) {
        tell_followers(owner->store);
    }
}

/* ---- following ---- */

typedef struct wait_arg {
    kvcl_store_h store;
    uint64_t     since;
} wait_arg_t;

static bool is_news(void *arg)
{
    const wait_arg_t *wait = arg;

    return (wait->store->events.newest != wait->since) || wait->store->closing;
}

/* My own: no message, no copy of the question is kept. */
static void wait_for_mine(kvcl_store_h store, uint64_t since, uint64_t wait_ns)
{
    wait_arg_t arg = {.store = store, .since = since};

    kvcl_lock(store->ctx);
    ++store->n_waiting;
    kvcl_unlock(store->ctx);
    (void)kvcl_engine_wait(store->ctx, is_news, &arg, kvcl_deadline_after(wait_ns));
    kvcl_lock(store->ctx);
    --store->n_waiting;
    kvcl_unlock(store->ctx);
}

static kvcl_status_t one_question(kvcl_store_h store, int rank, const events_ask_t *ask, kvcl_op_out_t *out)
{
    uint64_t timeout_ns = ask->wait_ns + kvcl_timeout(store->ctx, 0);

    if ((rank >= 0) && ((uint32_t)rank == store->me) && (ask->wait_ns != 0)) {
        wait_for_mine(store, ask->since, ask->wait_ns);
    }
    return kvcl_op_call(store, rank, KVCL_ASK_EVENTS, ask, sizeof(*ask), timeout_ns, out, "kvcl_store_events");
}

static bool is_closing(void *arg)
{
    return ((const struct kvcl_store *)arg)->closing;
}

/* Until there is something, or the time is over. */
static kvcl_status_t follow(kvcl_store_h store, int rank, uint64_t since, uint64_t wait_ns, size_t cap,
                            kvcl_op_out_t *out)
{
    uint64_t      deadline = kvcl_deadline_after(wait_ns), left;
    kvcl_status_t status   = kvcl_store_hold(store);
    events_ask_t  ask;

    if (status != KVCL_OK) {
        return status;
    }
    do {
        left   = kvcl_deadline_left(deadline);
        ask    = (events_ask_t){.since = since, .cap = cap, .wait_ns = (left < WAIT_MAX_NS) ? left : WAIT_MAX_NS};
        status = one_question(store, rank, &ask, out);
        if (status == KVCL_ERR_BUSY) { /* too many follow it: not at once again */
            left   = kvcl_deadline_after(BUSY_PAUSE_NS);
            (void)kvcl_engine_wait(store->ctx, is_closing, store, (left < deadline) ? left : deadline);
            status = KVCL_OK;
        }
    } while ((status == KVCL_OK) && (out->len == 0) && !store->closing && (kvcl_deadline_left(deadline) != 0));
    kvcl_store_let_go(store);
    return status;
}

kvcl_status_t kvcl_store_events(kvcl_store_h store, int rank, uint64_t since, uint64_t wait_ns,
                                kvcl_store_event_t *events, size_t cap, size_t *n_p)
{
    kvcl_status_t status = kvcl_store_check(store, events, cap, "kvcl_store_events");
    kvcl_op_out_t out    = {.cap = KVCL_OP_ANSWER_MAX};

    if (status != KVCL_OK) {
        return status;
    }
    if ((n_p == NULL) || (cap == 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_events: n_p is NULL or cap is 0");
    }
    out.buf = malloc(out.cap);
    if (out.buf == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_events: no memory for an answer");
    }
    status = follow(store, rank, since, wait_ns, cap, &out);
    if ((status == KVCL_OK) && ((out.len % sizeof(*events) != 0) || (out.len / sizeof(*events) > cap))) {
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "kvcl_store_events: rank %d gave events that make no sense", rank);
    }
    if (status == KVCL_OK) {
        *n_p = out.len / sizeof(*events);
        memcpy(events, out.buf, out.len);
    }
    free(out.buf);
    return status;
}
