/*
 * Pins across ranks: find the copies, tell each rank that has some (ops.h), which pins them in its owners (pins.h).
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/admin/ops.h"
#include "store/pool/pool.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdlib.h>

enum { KEYS_MAX = 1024, UNPIN = 0x100 };

/* What a rank did with a key. */
enum { PIN_NONE = 0, PIN_DONE = 1, PIN_FULL = 2 };

typedef struct pin_ask {
    uint64_t holder;
    uint64_t ttl_ns;
    uint64_t flags; /* KVCL_PIN_*, UNPIN */
    uint64_t n;     /* keys that follow */
} pin_ask_t;

/* ---- the rank that holds copies: lock held ---- */

static uint8_t pin_one(kvcl_owner_t *owner, const kvcl_key_t *key, const pin_ask_t *ask)
{
    kvcl_owner_node_t *node = (owner != NULL) ? kvcl_owner_find(owner->store, key, owner) : NULL;
    kvcl_status_t     status;

    if (node == NULL) {
        return PIN_NONE;
    }
    if (ask->flags & UNPIN) {
        return kvcl_pins_drop(owner, kvcl_owner_slot(node), ask->holder) ? PIN_DONE : PIN_NONE;
    }
    status = kvcl_pins_set(owner, kvcl_owner_slot(node), ask->holder, (ask->flags & KVCL_PIN_SOFT) != 0,
                           kvcl_deadline_after(ask->ttl_ns));
    return (status == KVCL_OK) ? PIN_DONE : PIN_FULL;
}

kvcl_status_t kvcl_op_pin(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    const kvcl_key_t *keys = (const kvcl_key_t *)(const void *)((const char *)in + sizeof(pin_ask_t));
    pin_ask_t        ask;
    uint8_t          best, one;
    uint64_t         i;
    unsigned         c;

    if (len < sizeof(ask)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&ask, in, sizeof(ask));
    if ((ask.n > KEYS_MAX) || (len - sizeof(ask) != ask.n * sizeof(*keys)) || (ask.n > out->cap)) {
        return KVCL_ERR_PROTOCOL;
    }
    for (i = 0; i < ask.n; ++i) {
        best = pin_one(store->own, &keys[i], &ask);
        for (c = 0; (store->pool != NULL) && (c < store->pool->n); ++c) {
            one  = pin_one(store->pool->owners[c], &keys[i], &ask);
            best = ((best == PIN_DONE) || (one == PIN_NONE)) ? best : one;
        }
        out->buf[i] = best;
    }
    out->n   = (uint32_t)ask.n;
    out->len = ask.n;
    return KVCL_OK;
}

/* ---- whoever wants them pinned ---- */

typedef struct pin_work {
    uint64_t     deadline_ns; /* 0: KVCL_TIMEOUT for each question */
    kvcl_found_t found[KEYS_MAX];
    uint32_t     items[KEYS_MAX]; /* of one rank's question */
    uint8_t      copies[KEYS_MAX];
    bool         full[KEYS_MAX];
    uint8_t      answer[KEYS_MAX];
    uint8_t      payload[sizeof(pin_ask_t) + (KEYS_MAX * sizeof(kvcl_key_t))] __attribute__((aligned(8)));
} pin_work_t;

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

static uint64_t time_left(const pin_work_t *work)
{
    return (work->deadline_ns != 0) ? kvcl_deadline_left(work->deadline_ns) + 1 : 0;
}

/* Of keys[0..n) those that the rank holds. What a rank does not do is not counted. */
static void ask_rank(kvcl_store_h store, uint32_t rank, const kvcl_key_t *keys, size_t n, pin_ask_t *ask,
                     pin_work_t *work, const char *call)
{
    kvcl_op_out_t out = {.buf = work->answer, .cap = sizeof(work->answer)};
    size_t        i;

    ask->n = 0;
    for (i = 0; i < n; ++i) {
        if (holds(&work->found[i], rank)) {
            work->items[ask->n] = (uint32_t)i;
            memcpy(work->payload + sizeof(*ask) + (ask->n++ * sizeof(*keys)), &keys[i], sizeof(*keys));
        }
    }
    memcpy(work->payload, ask, sizeof(*ask));
    if ((ask->n == 0) || (kvcl_op_call(store, (int)rank, KVCL_ASK_PIN, work->payload, sizeof(*ask) +
                                       (ask->n * sizeof(*keys)), time_left(work), &out, call) != KVCL_OK) ||
        (out.len != ask->n)) {
        return;
    }
    for (i = 0; i < ask->n; ++i) {
        work->copies[work->items[i]] = (uint8_t)(work->copies[work->items[i]] + (work->answer[i] == PIN_DONE ? 1 : 0));
        work->full[work->items[i]]   = work->full[work->items[i]] || (work->answer[i] == PIN_FULL);
    }
}

static kvcl_status_t some(kvcl_store_h store, const kvcl_key_t *keys, size_t n, pin_ask_t *ask, pin_work_t *work,
                          const char *call)
{
    kvcl_status_t status = kvcl_locate(store, keys, n, work->found, time_left(work));
    uint32_t      rank;
    size_t        i;

    memset(work->copies, 0, sizeof(work->copies));
    memset(work->full, 0, sizeof(work->full));
    for (rank = 0; (status == KVCL_OK) && (rank < store->n_ranks); ++rank) {
        ask_rank(store, rank, keys, n, ask, work, call);
    }
    for (i = 0; (status == KVCL_OK) && !(ask->flags & UNPIN) && (i < n); ++i) {
        if (work->copies[i] == 0) {
            status = work->full[i] ? KVCL_ERR_NO_SPACE : KVCL_ERR_NOT_FOUND;
        }
    }
    return status;
}

static kvcl_status_t pin_all(kvcl_store_h store, const kvcl_key_t *keys, size_t n, pin_ask_t *ask, uint8_t *copies,
                             uint64_t deadline_ns, const char *call)
{
    pin_work_t    *work = malloc(sizeof(*work));
    kvcl_status_t first = KVCL_OK, status;
    size_t        at, m;

    if (work == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", call, n);
    }
    work->deadline_ns = deadline_ns;
    for (at = 0; at < n; at += m) {
        m      = (n - at < KEYS_MAX) ? n - at : KEYS_MAX;
        status = some(store, keys + at, m, ask, work, call);
        first  = (first == KVCL_OK) ? status : first;
        if (copies != NULL) {
            memcpy(copies + at, work->copies, m);
        }
    }
    free(work);
    return first;
}

kvcl_status_t kvcl_store_pin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder, uint64_t ttl_ns,
                             uint64_t flags, uint8_t *copies)
{
    kvcl_status_t status = kvcl_store_check(store, keys, n, "kvcl_store_pin");
    pin_ask_t     ask    = {.holder = holder, .ttl_ns = ttl_ns, .flags = flags};

    if (status != KVCL_OK) {
        return status;
    }
    if ((ttl_ns == 0) || ((flags & ~KVCL_PIN_SOFT) != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_pin: ttl_ns is 0, or unknown flags 0x%llx",
                         (unsigned long long)flags);
    }
    return pin_all(store, keys, n, &ask, copies, 0, "kvcl_store_pin");
}

kvcl_status_t kvcl_store_unpin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder)
{
    kvcl_status_t status = kvcl_store_check(store, keys, n, "kvcl_store_unpin");
    pin_ask_t     ask    = {.holder = holder, .flags = UNPIN};

    return (status == KVCL_OK) ? pin_all(store, keys, n, &ask, NULL, 0, "kvcl_store_unpin") : status;
}

kvcl_status_t kvcl_pin_until(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder, uint64_t ttl_ns,
                             uint64_t deadline_ns)
{
    pin_ask_t ask = {.holder = holder, .ttl_ns = ttl_ns, .flags = (ttl_ns == 0) ? UNPIN : 0};

    return pin_all(store, keys, n, &ask, NULL, deadline_ns, "kvcl_store_put_values");
}
