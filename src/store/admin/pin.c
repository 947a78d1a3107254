/*
 * Pins across ranks: find the copies, then send each rank that holds some a request (ops.h), by which it pins them in
 * its owners (pins.h).
 *
 * Owns nothing. The serving functions and the steps of a call hold the engine lock; the public calls take none.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/admin/ops.h"
#include "store/pool/pool.h"
#include "store/tenant.h"
#include "xfer/params.h"
#include "store/words.h"
#include "weave/pieces.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdlib.h>

enum { KEYS_MAX = 1024, UNPIN = 0x100 };

/* A rank's result for a key. */
enum { PIN_NONE = 0, PIN_DONE = 1, PIN_FULL = 2 };

typedef struct pin_request {
    uint64_t holder;
    uint64_t ttl_ns;
    uint64_t flags; /* KVCL_PIN_*, UNPIN */
    uint64_t n;     /* keys that follow */
} pin_request_t;

/* ---- the rank that holds copies: lock held ---- */

static uint8_t pin_one(kvcl_owner_t *owner, const kvcl_key_t *key, const pin_request_t *request)
{
    kvcl_owner_node_t *node = (owner != NULL) ? kvcl_owner_find(owner->store, key, owner) : NULL;
    kvcl_status_t     status;

    if (node == NULL) {
        return PIN_NONE;
    }
    if (request->flags & UNPIN) {
        return kvcl_pins_drop(owner, kvcl_owner_slot(node), request->holder) ? PIN_DONE : PIN_NONE;
    }
    status = kvcl_pins_set(owner, kvcl_owner_slot(node), request->holder, (request->flags & KVCL_PIN_SOFT) != 0,
                           kvcl_deadline_after(request->ttl_ns));
    return (status == KVCL_OK) ? PIN_DONE : PIN_FULL;
}

kvcl_status_t kvcl_op_pin(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    const kvcl_key_t *keys = (const kvcl_key_t *)(const void *)((const char *)in + sizeof(pin_request_t));
    pin_request_t    request;
    uint8_t          best, one;
    uint64_t         i;
    unsigned         c;

    if (len < sizeof(request)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&request, in, sizeof(request));
    if ((request.n > KEYS_MAX) || (len - sizeof(request) != request.n * sizeof(*keys)) || (request.n > out->cap)) {
        return KVCL_ERR_PROTOCOL;
    }
    for (i = 0; i < request.n; ++i) {
        best = pin_one(store->own, &keys[i], &request);
        for (c = 0; (store->pool != NULL) && (c < store->pool->n); ++c) {
            one  = pin_one(store->pool->owners[c], &keys[i], &request);
            best = ((best == PIN_DONE) || (one == PIN_NONE)) ? best : one;
        }
        out->buf[i] = best;
    }
    out->n   = (uint32_t)request.n;
    out->len = request.n;
    return KVCL_OK;
}

/* ---- the requesting rank ---- */

/* One call. It handles KEYS_MAX keys at a time: it finds their copies, then requests pins of all holders at once. */
typedef struct pin {
    kvcl_op_t     op;
    kvcl_find_t   find;
    pin_request_t request;
    bool          requested;  /* requests for the current keys were sent */
    bool          any_silent; /* a rank did not answer in time */
    size_t        n, at, m;   /* keys; the current ones are at to at + m - 1 */
    kvcl_status_t first;      /* the first failure */
    uint8_t       *user;      /* the caller's count of pinned copies of each key, or NULL */
    kvcl_found_t  found[KEYS_MAX];
    uint8_t       flags[KEYS_MAX];
    uint8_t       copies[KEYS_MAX];
    bool          full[KEYS_MAX];
    uint8_t       payload[sizeof(pin_request_t) + (KEYS_MAX * sizeof(kvcl_key_t))] __attribute__((aligned(8)));
    kvcl_key_t    keys[];
} pin_t;

static bool holds(const kvcl_found_t *found, uint32_t rank)
{
    unsigned i;

    for (i = 0; i < found->n; ++i) {
        if (found->locs[i].rank == rank) {
            return true;
        }
    }
    return false;
}

/* Counts the pins that the rank has made. */
static void on_pinned(kvcl_op_t *op, uint32_t rank, uint64_t tag, kvcl_status_t status, const void *data, size_t len)
{
    pin_t         *pin  = kvcl_container_of(op, pin_t, op);
    const uint8_t *done = data;
    size_t        at    = 0, i;

    (void)tag;
    pin->any_silent = pin->any_silent || (status == KVCL_ERR_TIMED_OUT);
    for (i = 0; (status == KVCL_OK) && (i < pin->m); ++i) { /* in the order of the request */
        if (holds(&pin->found[i], rank) && (at < len)) {
            pin->copies[i] = (uint8_t)(pin->copies[i] + ((done[at] == PIN_DONE) ? 1 : 0));
            pin->full[i]   = pin->full[i] || (done[at] == PIN_FULL);
            ++at;
        }
    }
}

static void request_pins(pin_t *pin, uint32_t rank)
{
    const kvcl_key_t *keys = pin->keys + pin->at;
    size_t           i;

    pin->request.n = 0;
    for (i = 0; i < pin->m; ++i) {
        if (holds(&pin->found[i], rank)) {
            memcpy(pin->payload + sizeof(pin->request) + (pin->request.n++ * sizeof(*keys)), &keys[i], sizeof(*keys));
        }
    }
    memcpy(pin->payload, &pin->request, sizeof(pin->request));
    if (pin->request.n != 0) {
        kvcl_op_rpc(&pin->op, rank, KVCL_RPC_PIN, pin->payload, sizeof(pin->request) + (pin->request.n * sizeof(*keys)),
                    0, 0);
    }
}

/* Starts the next keys: reads the copies that are known without a query. */
static void begin_batch(pin_t *pin)
{
    kvcl_store_h store = pin->op.call.store;
    bool         query;

    pin->m         = (pin->n - pin->at < KEYS_MAX) ? pin->n - pin->at : KEYS_MAX;
    pin->requested = false;
    memset(pin->found, 0, sizeof(pin->found));
    memset(pin->copies, 0, sizeof(pin->copies));
    memset(pin->full, 0, sizeof(pin->full));
    kvcl_find_free(&pin->find);
    (void)kvcl_find_here(store, pin->keys + pin->at, pin->m, false, pin->flags, pin->found, &query);
    pin->find = (kvcl_find_t){.call = &pin->op.call, .keys = pin->keys + pin->at, .n = pin->m, .flags = pin->flags,
                              .found = pin->found};
}

static void end_batch(pin_t *pin)
{
    kvcl_status_t status = pin->find.status;
    size_t        i;

    for (i = 0; (status == KVCL_OK) && !(pin->request.flags & UNPIN) && (i < pin->m); ++i) {
        if (pin->copies[i] == 0) {
            status = pin->full[i] ? KVCL_ERR_NO_SPACE : pin->any_silent ? KVCL_ERR_TIMED_OUT : KVCL_ERR_NOT_FOUND;
        }
    }
    if ((status != KVCL_OK) && (pin->find.status == KVCL_OK)) {
        kvcl_req_why(&pin->op.call.req, "key %016llx... (number %zu of %zu) could not be pinned: %s",
                     kvcl_key_prefix(&pin->keys[pin->at + i - 1]), pin->at + i - 1, pin->n,
                     (status == KVCL_ERR_NO_SPACE) ? "7/8 of a rank's blocks have hard pins, or there are too many "
                                                     "pins: unpin some"
                     : (status == KVCL_ERR_TIMED_OUT) ? "a rank that may hold it does not answer: try again later"
                                                      : "no rank holds a copy that the store manages: put it");
    }
    pin->first = (pin->first == KVCL_OK) ? status : pin->first;
    if (pin->user != NULL) {
        kvcl_copy_bytes(pin->user + pin->at, pin->copies, pin->m);
    }
    pin->at += pin->m;
    pin->m   = 0;
}

static bool next(kvcl_call_t *call)
{
    pin_t    *pin = kvcl_container_of(call, pin_t, op.call);
    uint32_t rank;

    while ((pin->at < pin->n) || (pin->m != 0)) {
        if (pin->m == 0) {
            begin_batch(pin);
        }
        if (!pin->requested && kvcl_find_round(&pin->find)) {
            return true;
        }
        if (!pin->requested && (pin->find.status == KVCL_OK)) {
            pin->requested = true;
            for (rank = 0; rank < call->store->n_ranks; ++rank) {
                request_pins(pin, rank);
            }
            return true;
        }
        end_batch(pin);
    }
    return false;
}

static kvcl_status_t end(kvcl_call_t *call)
{
    pin_t *pin = kvcl_container_of(call, pin_t, op.call);

    if (pin->m != 0) { /* stopped: the pins made so far are reported */
        end_batch(pin);
    }
    return (call->stopped != KVCL_OK) ? call->stopped : pin->first;
}

static void free_pin(kvcl_call_t *call)
{
    pin_t *pin = kvcl_container_of(call, pin_t, op.call);

    kvcl_find_free(&pin->find);
    free(pin);
}

static kvcl_status_t post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const pin_request_t *request,
                          uint8_t *copies, const kvcl_xfer_params_t *p, kvcl_call_id_t id, kvcl_req_h *req_p)
{
    pin_t *pin = calloc(1, sizeof(*pin) + ((n + 1) * sizeof(*keys)));

    if (pin == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", kvcl_call_name(id), n);
    }
    pin->request      = *request;
    pin->n            = n;
    pin->user         = copies;
    pin->op.answered  = on_pinned;
    pin->op.call.next = next;
    pin->op.call.end  = end;
    pin->op.call.free = free_pin;
    if (n != 0) {
        memcpy(pin->keys, keys, n * sizeof(*keys));
    }
    if (copies != NULL) {
        memset(copies, 0, n);
    }
    return kvcl_call_start(&pin->op.call, store, kvcl_call_name(id), p, req_p);
}

static kvcl_status_t check_pin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t ttl_ns, uint64_t flags,
                               const kvcl_xfer_params_t *params, kvcl_call_id_t id, kvcl_xfer_params_t *p)
{
    kvcl_status_t status = kvcl_store_check(store, keys, n, kvcl_call_name(id));

    if ((status == KVCL_OK) && ((ttl_ns == 0) || ((flags & ~KVCL_PIN_SOFT) != 0))) {
        status = (ttl_ns == 0) ? kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: ttl_ns is 0: give the time that the pin lasts",
                                           kvcl_call_name(id))
                               : kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: flags are 0x%llx, but only KVCL_PIN_SOFT is "
                                           "known", kvcl_call_name(id), (unsigned long long)flags);
    }
    return (status == KVCL_OK) ? kvcl_xfer_params(params, id, p) : status;
}

static kvcl_status_t pin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const pin_request_t *request,
                         uint8_t *copies, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_entry_t       entry;
    kvcl_status_t      status = kvcl_store_enter(&store, &keys, n, kvcl_call_name(KVCL_CALL_STORE_PIN), &entry);

    if (status == KVCL_OK) {
        status = check_pin(store, keys, n, request->ttl_ns, request->flags, params, KVCL_CALL_STORE_PIN, &p);
    }
    status = (status == KVCL_OK) ? post(store, keys, n, request, copies, &p, KVCL_CALL_STORE_PIN, req_p) : status;
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_pin_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                                  uint64_t ttl_ns, uint64_t flags, uint8_t *copies, const kvcl_xfer_params_t *params,
                                  kvcl_req_h *req_p)
{
    pin_request_t request = {.holder = holder, .ttl_ns = ttl_ns, .flags = flags};

    return pin(store, keys, n, &request, copies, params, req_p);
}

kvcl_status_t kvcl_store_pin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder, uint64_t ttl_ns,
                             uint64_t flags, uint8_t *copies, const kvcl_xfer_params_t *params)
{
    pin_request_t request = {.holder = holder, .ttl_ns = ttl_ns, .flags = flags};
    kvcl_status_t status  = kvcl_xfer_params_of_wait(params, KVCL_CALL_STORE_PIN);
    kvcl_req_h    req;

    status = (status == KVCL_OK) ? pin(store, keys, n, &request, copies, params, &req) : status;
    return kvcl_call_wait(status, &req);
}

static kvcl_status_t unpin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                           const kvcl_xfer_params_t *params, kvcl_call_id_t id, kvcl_req_h *req_p)
{
    pin_request_t      request = {.holder = holder, .flags = UNPIN};
    kvcl_xfer_params_t p;
    kvcl_entry_t       entry;
    kvcl_status_t      status = kvcl_store_enter(&store, &keys, n, kvcl_call_name(id), &entry);

    status = (status == KVCL_OK) ? kvcl_store_check(store, keys, n, kvcl_call_name(id)) : status;
    status = (status == KVCL_OK) ? kvcl_xfer_params(params, id, &p) : status;
    status = (status == KVCL_OK) ? post(store, keys, n, &request, NULL, &p, id, req_p) : status;
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_unpin_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                                    const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return unpin(store, keys, n, holder, params, KVCL_CALL_STORE_UNPIN, req_p);
}

kvcl_status_t kvcl_store_unpin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                               const kvcl_xfer_params_t *params)
{
    kvcl_req_h    req;
    kvcl_status_t status = kvcl_xfer_params_of_wait(params, KVCL_CALL_STORE_UNPIN);

    status = (status == KVCL_OK) ? unpin(store, keys, n, holder, params, KVCL_CALL_STORE_UNPIN, &req) : status;
    return kvcl_call_wait(status, &req);
}

kvcl_status_t kvcl_pin_until(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder, uint64_t ttl_ns,
                             uint64_t deadline_ns)
{
    pin_request_t      request = {.holder = holder, .ttl_ns = ttl_ns, .flags = (ttl_ns == 0) ? UNPIN : 0};
    kvcl_xfer_params_t p       = {.size = sizeof(p), .timeout_ns = kvcl_deadline_left(deadline_ns) + 1};
    kvcl_req_h         req;
    kvcl_status_t      status = post(store, keys, n, &request, NULL, &p, KVCL_CALL_STORE_PUT_VALUES, &req);

    return kvcl_call_wait(status, &req);
}
