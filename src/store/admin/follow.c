/*
 * Events of blocks: adding them to this rank's ring, and serving the ring's followers.
 *
 * A follower requests the events after a number. If there is none yet, its request is kept (FOLLOWERS_MAX at most)
 * until an event occurs or its time is over. The answer follows PAUSE_NS after the event, so that a burst is one
 * answer. Only requests are answered, so a slow follower costs the ring nothing: its next request fails because its
 * events were overwritten.
 *
 * Owns the kept requests (store->followers). Engine lock held, except in the public calls.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/structs.h"
#include "store/admin/events_out.h"
#include "store/admin/ops.h"
#include "store/admin/rows_wire.h"
#include "store/home/home_answer.h"
#include "store/home/timer.h"
#include "store/tenant.h"
#include "xfer/params.h"

#include <stdlib.h>

enum { FOLLOWERS_MAX = 256, BATCH = 32 };
#define PAUSE_NS      (KVCL_NS_PER_MS / 2)
#define BUSY_PAUSE_NS (50 * KVCL_NS_PER_MS)
#define WAIT_MAX_NS   (20 * KVCL_NS_PER_SEC) /* how long a request is kept; a call with more time requests again */

typedef struct events_request {
    uint64_t since;
    uint64_t cap;
    uint64_t wait_ns;
} events_request_t;

/* A kept request: another rank's, or one of a call of this rank about its own events. */
typedef struct follower {
    kvcl_list_t            link;    /* store->followers */
    kvcl_store_h           store;
    kvcl_call_t            *call;   /* a call of this rank; NULL: peer and request are set */
    kvcl_peer_t            *peer;
    kvcl_msg_dir_request_t request; /* the header, for the answer */
    events_request_t       wanted;
    kvcl_store_timer_t     *timer;  /* fires when the request's time is over */
} follower_t;

kvcl_status_t kvcl_op_events(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    kvcl_store_event_t batch[BATCH];
    kvcl_status_t      status;
    events_request_t   request;
    size_t             cap = kvcl_rows_room(out->cap, KVCL_EVENT_ROW), n = 0, got, i;

    if (len != sizeof(request)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&request, in, sizeof(request));
    cap = (request.cap < cap) ? (size_t)request.cap : cap;
    do {
        got    = 0;
        status = kvcl_events_read(&store->events, request.since + n, batch, (cap - n < BATCH) ? cap - n : BATCH, &got);
        for (i = 0; (i < got) && (status == KVCL_OK); ++i) {
            kvcl_rows_put_event(out->buf, n + i, &batch[i]);
        }
        n += got;
    } while ((status == KVCL_OK) && (got == BATCH));
    out->n   = (uint32_t)n;
    out->len = ((status == KVCL_OK) && (n != 0)) ? kvcl_rows_head(out->buf, (uint32_t)n, KVCL_EVENT_ROW) : 0;
    return status;
}

/* ---- followers on other ranks: lock held ---- */

static void answer(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                   const events_request_t *wanted)
{
    kvcl_op_out_t out = {.cap = KVCL_OP_ANSWER_MAX, .buf = kvcl_home_scratch(store->ctx, KVCL_OP_ANSWER_MAX)};
    kvcl_status_t status = KVCL_ERR_NO_MEMORY;

    if (out.buf != NULL) {
        status = kvcl_op_events(store, wanted, sizeof(*wanted), &out);
    }
    kvcl_rpc_answer(peer, in, status, out.n, out.buf, (status == KVCL_OK) ? out.len : 0);
}

/* Answers the kept request, or goes on with its call, and frees it. */
static void release(follower_t *follower)
{
    kvcl_list_del(&follower->link);
    --follower->store->n_followers;
    kvcl_store_timer_stop(follower->timer);
    if (follower->call != NULL) {
        kvcl_call_over(follower->call);
    } else {
        answer(follower->store, follower->peer, &follower->request, &follower->wanted);
    }
    free(follower);
}

static void time_over(void *arg)
{
    follower_t *follower = arg;

    follower->timer = NULL;
    release(follower);
}

static void flush(void *arg)
{
    kvcl_store_h store = arg;
    kvcl_list_t  all;

    store->follow_timer = NULL;
    kvcl_list_init(&all);
    kvcl_list_splice_tail(&all, &store->followers); /* a released follower may follow again at once */
    while (!kvcl_list_is_empty(&all)) {
        release(kvcl_list_head(&all, follower_t, link));
    }
}

static void notify_followers(kvcl_store_h store)
{
    if ((store->n_followers != 0) && (store->follow_timer == NULL)) {
        store->follow_timer = kvcl_store_timer_start(store, PAUSE_NS, flush, store);
    }
}

void kvcl_follow_stop(kvcl_store_h store)
{
    kvcl_store_timer_stop(store->follow_timer);
    flush(store);
}

/* Is the request to be kept, since it has time and no event is newer? */
static bool must_wait(const struct kvcl_store *store, const events_request_t *wanted)
{
    return (wanted->wait_ns != 0) && (wanted->since == store->events.newest) && (store->events.ring != NULL);
}

/* NULL: no memory. */
static follower_t *keep(kvcl_store_h store, const events_request_t *wanted, kvcl_call_t *call)
{
    follower_t *follower = calloc(1, sizeof(*follower));

    if (follower == NULL) {
        return NULL;
    }
    follower->store  = store;
    follower->wanted = *wanted;
    follower->call   = call;
    follower->timer  = kvcl_store_timer_start(store, (wanted->wait_ns < WAIT_MAX_NS) ? wanted->wait_ns : WAIT_MAX_NS,
                                              time_over, follower);
    if (follower->timer == NULL) {
        free(follower);
        return NULL;
    }
    kvcl_list_add_tail(&store->followers, &follower->link);
    ++store->n_followers;
    return follower;
}

bool kvcl_follow_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                            size_t len)
{
    events_request_t wanted;
    follower_t       *follower;
    bool             waits;

    if (len != sizeof(wanted)) {
        return false;
    }
    memcpy(&wanted, data, sizeof(wanted));
    waits = must_wait(store, &wanted);
    if (waits && (store->n_followers >= FOLLOWERS_MAX)) {
        kvcl_rpc_answer(peer, in, KVCL_ERR_BUSY, 0, NULL, 0); /* an empty answer would make it request at once again */
        return true;
    }
    follower = waits ? keep(store, &wanted, NULL) : NULL;
    if (follower == NULL) {
        answer(store, peer, in, &wanted);
        return true;
    }
    follower->peer    = peer;
    follower->request = *in;
    return true;
}

/* ---- adding ---- */

void kvcl_follow_event(kvcl_owner_t *owner, uint32_t slot, kvcl_store_event_kind_t kind, int to_rank)
{
    kvcl_store_event_t event = {.kind = kind, .tier = owner->array[slot].flags & KVCL_DIR_TIER_MASK,
                                .key = owner->array[slot].key, .bytes = (uint32_t)owner->cache->shape.block_bytes,
                                .to_rank = to_rank,
                                .tenant = kvcl_owner_tenant(owner, slot)};

    kvcl_assert_locked(owner->store->ctx);
    if (owner->quiet) {
        return;
    }
    kvcl_events_add(&owner->store->events, &event);
    if (owner->store->n_followers != 0) {
        notify_followers(owner->store);
    }
}

/* ---- following ---- */

/* One call: requests until an event arrives, or its wait is over. */
typedef struct events_call {
    kvcl_op_t          op;
    uint32_t           rank;
    uint64_t           since;   /* of the next request */
    uint64_t           asked;   /* the caller's */
    uint64_t           wait_until_ns;
    bool               over;
    kvcl_store_timer_t *pause;  /* the rank has too many followers: fires when it is requested again */
    follower_t         *local;  /* the call's own kept request, if it waits for events of this rank */
    kvcl_status_t      status;
    kvcl_store_event_t *events; /* the caller's, like the next three */
    size_t             stride;
    size_t             cap;
    size_t             *n_p;
    kvcl_store_tenant_t *tenant; /* whose call it is, held; NULL: none */
} events_call_t;

static void after_pause(void *arg)
{
    events_call_t *call = arg;

    call->pause = NULL;
    kvcl_call_over(&call->op.call);
}

static void pause_call(events_call_t *call)
{
    uint64_t left = kvcl_deadline_left(call->wait_until_ns);

    call->pause = kvcl_store_timer_start(call->op.call.store, ((left < BUSY_PAUSE_NS) ? left : BUSY_PAUSE_NS) + 1,
                                         after_pause, call);
    call->op.call.outstanding += (call->pause != NULL) ? 1 : 0;
}

static void on_events(kvcl_op_t *op, uint32_t rank, uint64_t tag, kvcl_status_t status, const void *data, size_t len)
{
    events_call_t *call = kvcl_container_of(op, events_call_t, op);
    bool          late  = kvcl_deadline_passed(call->wait_until_ns);
    kvcl_rows_t   rows  = {.n = 0};
    uint64_t      last  = call->since;
    size_t        n     = 0;

    (void)rank;
    (void)tag;
    if ((status == KVCL_ERR_BUSY) && !late && (op->call.stopped == KVCL_OK)) {
        pause_call(call);
        return;
    }
    if ((status == KVCL_OK) && (!kvcl_rows_open(data, len, &rows) || (rows.n > call->cap))) {
        status = KVCL_ERR_PROTOCOL;
    }
    if (status == KVCL_OK) {
        n           = kvcl_events_out(&rows, call->tenant, call->events, call->stride, &last);
        call->since = last;
    }
    status = (status == KVCL_ERR_BUSY) ? KVCL_OK : status; /* and the call's wait is over */
    if ((status == KVCL_OK) && late && (n == 0) && (call->tenant != NULL) && (call->since != call->asked)) {
        kvcl_events_skipped(call->tenant, call->since, call->events, call->stride);
        n = 1;
    }
    *call->n_p   = (status == KVCL_OK) ? n : *call->n_p;
    call->status = status;
    call->over   = (status != KVCL_OK) || (n != 0) || late;
}

static bool next(kvcl_call_t *base)
{
    events_call_t    *call   = kvcl_container_of(base, events_call_t, op.call);
    uint64_t         left    = kvcl_deadline_left(call->wait_until_ns);
    events_request_t request = {.since = call->since, .cap = call->cap,
                                .wait_ns = (left < WAIT_MAX_NS) ? left : WAIT_MAX_NS};

    call->local = NULL;
    if (call->over) {
        return false;
    }
    if ((call->rank == base->store->me) && must_wait(base->store, &request)) {
        call->local = keep(base->store, &request, base);
        base->outstanding += (call->local != NULL) ? 1 : 0;
    }
    if (call->local == NULL) {
        kvcl_op_rpc(&call->op, call->rank, KVCL_RPC_EVENTS, &request, sizeof(request), 0, request.wait_ns);
    }
    return true;
}

static void halt(kvcl_call_t *base)
{
    events_call_t *call = kvcl_container_of(base, events_call_t, op.call);

    if (call->pause != NULL) {
        kvcl_store_timer_stop(call->pause);
        after_pause(call);
    } else if (call->local != NULL) {
        release(call->local);
        call->local = NULL;
    }
}

static kvcl_status_t end(kvcl_call_t *base)
{
    events_call_t *call = kvcl_container_of(base, events_call_t, op.call);

    return (base->stopped != KVCL_OK) ? base->stopped : kvcl_op_why(base, call->status, (int)call->rank);
}

static void free_call(kvcl_call_t *base)
{
    events_call_t *call = kvcl_container_of(base, events_call_t, op.call);

    kvcl_tenant_release(call->tenant);
    free(call);
}

/* with: the caller's arguments. */
static kvcl_status_t start(kvcl_store_h store, int rank, uint64_t wait_ns, const events_call_t *with,
                           const kvcl_xfer_params_t *params, kvcl_call_id_t id, kvcl_req_h *req_p)
{
    kvcl_status_t      status = kvcl_store_check(store, with->events, with->cap, kvcl_call_name(id));
    kvcl_xfer_params_t p;
    events_call_t      *call;

    if (status == KVCL_OK) {
        status = kvcl_stride_check(with->stride, KVCL_UP_TO(kvcl_store_event_t, key), "kvcl_store_event_t",
                                   kvcl_call_name(id));
    }
    if ((status == KVCL_OK) && ((with->n_p == NULL) || (with->cap == 0))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: n_p is NULL or cap is 0", kvcl_call_name(id));
    }
    status = (status == KVCL_OK) ? kvcl_op_check_rank(store, rank, kvcl_call_name(id)) : status;
    status = (status == KVCL_OK) ? kvcl_xfer_params(params, id, &p) : status;
    if (status != KVCL_OK) {
        return status;
    }
    call = malloc(sizeof(*call));
    if (call == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for a request", kvcl_call_name(id));
    }
    *call               = *with;
    call->op            = (kvcl_op_t){.call = {.next = next, .end = end, .halt = halt, .free = free_call},
                                      .answered = on_events};
    call->rank          = (uint32_t)rank;
    call->asked         = with->since;
    call->wait_until_ns = kvcl_deadline_after(wait_ns);
    (void)kvcl_tenant_hold(call->tenant);
    p.timeout_ns = kvcl_timeout(store->ctx, p.timeout_ns);
    p.timeout_ns = (p.timeout_ns > UINT64_MAX - wait_ns) ? UINT64_MAX : p.timeout_ns + wait_ns;
    return kvcl_call_start(&call->op.call, store, kvcl_call_name(id), &p, req_p);
}

static kvcl_status_t post(kvcl_store_h store, int rank, uint64_t since, uint64_t wait_ns, kvcl_store_event_t *events,
                          size_t stride, size_t cap, size_t *n_p, const kvcl_xfer_params_t *params, kvcl_call_id_t id,
                          kvcl_req_h *req_p)
{
    events_call_t with = {.since = since, .events = events, .stride = stride, .cap = cap, .n_p = n_p};
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, kvcl_call_name(id), &entry);

    with.tenant = entry.tenant;
    status      = (status == KVCL_OK) ? start(store, rank, wait_ns, &with, params, id, req_p) : status;
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_events_post(kvcl_store_h store, int rank, uint64_t since, uint64_t wait_ns,
                                     kvcl_store_event_t *events, size_t stride, size_t cap, size_t *n_p,
                                     const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return post(store, rank, since, wait_ns, events, stride, cap, n_p, params, KVCL_CALL_STORE_EVENTS, req_p);
}

kvcl_status_t kvcl_store_events(kvcl_store_h store, int rank, uint64_t since, uint64_t wait_ns,
                                kvcl_store_event_t *events, size_t stride, size_t cap, size_t *n_p,
                                const kvcl_xfer_params_t *params)
{
    kvcl_req_h    req;
    kvcl_status_t status = kvcl_xfer_params_of_wait(params, KVCL_CALL_STORE_EVENTS);

    status = (status == KVCL_OK) ? post(store, rank, since, wait_ns, events, stride, cap, n_p, params,
                                        KVCL_CALL_STORE_EVENTS, &req) : status;
    return kvcl_call_wait(status, &req);
}
