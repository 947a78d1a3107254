/*
 * Discarding copies at the request of another rank, which waits for the answer (ops.h): because the block has moved to
 * another rank, or because other bytes replace it (kvcl_store_upsert). In the second case every rank discards all its
 * copies of the keys, listed or not.
 *
 * Owns nothing. The serving functions hold the engine lock; the requesting ones take none.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "member/lease.h"
#include "store/cold/cold.h"
#include "store/admin/ops.h"
#include "store/copy/copy_jobs.h"
#include "store/home/home_answer.h"
#include "store/home/follow_views.h"

#include <stdlib.h>

enum { RECS_MAX = 512 };
#define REFUSED_NS (5 * KVCL_NS_PER_MS) /* until a rank without a lease is asked again */

typedef struct discard_request {
    int64_t  to_rank; /* the rank that has the blocks now; -1: none, and only the keys of the records count */
    uint64_t n;       /* records that follow */
} discard_request_t;

/* ---- the rank that holds copies: lock held ---- */

uint64_t kvcl_discard_key(kvcl_store_h store, const kvcl_key_t *key)
{
    uint64_t          n = 0;
    kvcl_owner_node_t *node;
    kvcl_store_rec_t  discarded;

    kvcl_assert_locked(store->ctx);
    kvcl_copies_discard(store, key);
    while (((node = kvcl_owner_find(store, key, NULL)) != NULL) &&
           (kvcl_owner_withdraw(node->owner, kvcl_owner_slot(node), KVCL_SLOT_FREE, &discarded) == KVCL_OK)) {
        kvcl_store_notify_removed(store, &discarded, 1);
        ++n;
    }
    return n;
}

kvcl_status_t kvcl_op_discard(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    kvcl_store_rec_t  rec, discarded;
    uint64_t          n = 0, i;
    discard_request_t request;

    if (len < sizeof(request)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&request, in, sizeof(request));
    if ((request.n > RECS_MAX) || (len - sizeof(request) != request.n * sizeof(rec)) || (request.to_rank < -1) ||
        (request.to_rank >= (int64_t)store->n_ranks)) {
        return KVCL_ERR_PROTOCOL;
    }
    if ((request.to_rank < 0) && !kvcl_views_may_own(store)) {
        return KVCL_ERR_NO_QUORUM;
    }
    for (i = 0; i < request.n; ++i) {
        kvcl_owner_t *owner;
        memcpy(&rec, (const char *)in + sizeof(request) + (i * sizeof(rec)), sizeof(rec));
        if (request.to_rank < 0) { /* listed or not */
            n += kvcl_discard_key(store, &rec.key);
            kvcl_cold_drop(store->cold, &rec.key);
            continue;
        }
        if (kvcl_loc_is_nvme(&rec.loc)) {
            kvcl_cold_drop(store->cold, &rec.key);
            continue;
        }
        owner = kvcl_owner_by_cache_id(store, rec.loc.cache);
        if ((owner != NULL) && (rec.loc.incarnation == store->incarnation) &&
            (kvcl_slots_check(&owner->slots, rec.loc.slot, rec.loc.gen, &rec.key) == KVCL_OK) &&
            (kvcl_owner_discard(owner, rec.loc.slot, KVCL_SLOT_FREE, KVCL_STORE_MOVED, (int)request.to_rank,
                                &discarded) == KVCL_OK)) {
            kvcl_store_notify_removed(store, &discarded, 1);
            kvcl_cold_drop(store->cold, &rec.key); /* it may be in transit to the tier */
            ++n;
        }
    }
    store->n_moved += (request.to_rank >= 0) ? n : 0;
    memcpy(out->buf, &n, sizeof(n));
    out->len = sizeof(n);
    return KVCL_OK;
}

/* ---- the requesting rank ---- */

/* A rank that does not answer keeps its copies; one that has failed has none. */
static uint64_t send(kvcl_store_h store, uint32_t rank, discard_request_t *request, uint8_t *payload)
{
    uint64_t      n   = 0;
    kvcl_op_out_t out = {.buf = (uint8_t *)&n, .cap = sizeof(n)};
    kvcl_status_t status;

    memcpy(payload, request, sizeof(*request));
    status = kvcl_op_call(store, (int)rank, KVCL_RPC_DISCARD, payload,
                          sizeof(*request) + (request->n * sizeof(kvcl_store_rec_t)), 0, &out, "kvcl_store");
    request->n = 0;
    return ((status == KVCL_OK) && (out.len == sizeof(n))) ? n : 0;
}

static void add(discard_request_t *request, const kvcl_key_t *key, const kvcl_dir_loc_t *loc, uint8_t *payload)
{
    kvcl_store_rec_t rec = {.key = *key};

    rec.loc = (loc != NULL) ? *loc : rec.loc;
    memcpy(payload + sizeof(*request) + (request->n++ * sizeof(rec)), &rec, sizeof(rec));
}

static uint64_t discard_at(kvcl_store_h store, uint32_t rank, const kvcl_key_t *keys, const kvcl_found_t *found,
                           size_t n, int to_rank, uint8_t *payload)
{
    discard_request_t request = {.to_rank = to_rank};
    uint64_t          sum     = 0;
    size_t            i, j;

    for (i = 0; i < n; ++i) {
        for (j = 0; j < found[i].n; ++j) {
            if ((found[i].locs[j].rank == rank) && ((int)rank != to_rank)) {
                add(&request, &keys[i], &found[i].locs[j], payload);
            }
        }
        if (request.n > RECS_MAX - KVCL_DIR_LOCS_MAX) {
            sum += send(store, rank, &request, payload);
        }
    }
    return sum + ((request.n != 0) ? send(store, rank, &request, payload) : 0);
}

kvcl_status_t kvcl_discard(kvcl_store_h store, const kvcl_key_t *keys, const kvcl_found_t *found, size_t n, int to_rank,
                           uint64_t *discarded_p)
{
    uint8_t  *payload = malloc(sizeof(discard_request_t) + (RECS_MAX * sizeof(kvcl_store_rec_t)));
    uint32_t rank;

    *discarded_p = 0;
    if (payload == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a request to discard %zu blocks", n);
    }
    for (rank = 0; rank < store->n_ranks; ++rank) {
        *discarded_p += discard_at(store, rank, keys, found, n, to_rank, payload);
    }
    free(payload);
    return KVCL_OK;
}

/* ---- discarding every copy of keys ---- */

/* Clears the status of each rank that is to be asked again, since it has no lease and has dropped nothing, and returns
 * the first of them; n_ranks: there is none. again: they were asked before; a rank that does not answer then may still
 * have no lease. */
static uint32_t take_refusals(const struct kvcl_store *store, kvcl_status_t *statuses, bool again)
{
    uint32_t first = store->n_ranks, i;

    for (i = store->n_ranks; i-- > 0;) {
        if ((statuses[i] == KVCL_ERR_NO_QUORUM) || (again && (statuses[i] == KVCL_ERR_TIMED_OUT))) {
            statuses[i] = KVCL_OK;
            first       = i;
        }
    }
    return first;
}

static bool is_closed(void *arg)
{
    return ((const struct kvcl_store *)arg)->closing;
}

static bool is_excluded(kvcl_store_h store)
{
    bool is;

    kvcl_lock(store->ctx);
    is = kvcl_member_is_excluded(store->ctx);
    kvcl_unlock(store->ctx);
    return is;
}

/* One request, to all ranks at once. A rank that has failed to answer gets no further request. */
static kvcl_status_t ask_all(kvcl_store_h store, const uint8_t *payload, size_t len, uint64_t timeout_ns,
                             uint64_t deadline_ns, kvcl_op_out_t *outs, kvcl_status_t *statuses)
{
    kvcl_status_t status;
    uint32_t      rank;
    bool          again = false;

    for (;; again = true) {
        status = kvcl_op_call_all(store, KVCL_RPC_DISCARD, payload, len, timeout_ns, outs, statuses);
        rank   = (status == KVCL_OK) ? take_refusals(store, statuses, again) : store->n_ranks;
        if (rank == store->n_ranks) {
            return status;
        }
        if (is_excluded(store)) {
            return kvcl_fail(KVCL_ERR_STALE, "kvcl_store_upsert: the other ranks have excluded this one");
        }
        if (kvcl_deadline_passed(deadline_ns)) {
            return kvcl_fail(KVCL_ERR_NO_QUORUM, "kvcl_store_upsert: too few ranks answer rank %u, so it keeps its "
                             "blocks of the keys, which are absent: call it again", rank);
        }
        (void)kvcl_engine_wait(store->ctx, is_closed, store, kvcl_deadline_after(REFUSED_NS));
        timeout_ns = kvcl_deadline_left(deadline_ns) + 1;
    }
}

/* RECS_MAX keys at a time. */
static kvcl_status_t discard_everywhere(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t timeout_ns,
                                        uint64_t deadline_ns)
{
    size_t            each     = sizeof(uint64_t) + sizeof(kvcl_op_out_t) + sizeof(kvcl_status_t);
    uint64_t          *counts  = calloc(store->n_ranks, each);
    uint8_t           *payload = malloc(sizeof(discard_request_t) + (RECS_MAX * sizeof(kvcl_store_rec_t)));
    kvcl_status_t     status   = KVCL_OK, *statuses;
    discard_request_t request  = {.to_rank = -1};
    kvcl_op_out_t     *outs;
    size_t            at = 0;
    uint32_t          i;

    if ((counts == NULL) || (payload == NULL)) {
        free(counts);
        free(payload);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a request to discard %zu blocks", n);
    }
    outs     = (kvcl_op_out_t *)(void *)(counts + store->n_ranks);
    statuses = (kvcl_status_t *)(void *)(outs + store->n_ranks);
    while ((status == KVCL_OK) && (at < n)) {
        for (request.n = 0; (at < n) && (request.n < RECS_MAX); ++at) {
            add(&request, &keys[at], NULL, payload);
        }
        memcpy(payload, &request, sizeof(request));
        for (i = 0; i < store->n_ranks; ++i) {
            outs[i] = (kvcl_op_out_t){.buf = (uint8_t *)&counts[i], .cap = sizeof(counts[i])};
        }
        status = ask_all(store, payload, sizeof(request) + (request.n * sizeof(kvcl_store_rec_t)), timeout_ns,
                         deadline_ns, outs, statuses);
    }
    free(counts);
    free(payload);
    return status;
}

kvcl_status_t kvcl_discard_all(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t timeout_ns)
{
    kvcl_xfer_params_t p        = KVCL_XFER_PARAMS_INIT;
    uint64_t           deadline = kvcl_deadline_after(kvcl_timeout(store->ctx, timeout_ns));
    kvcl_status_t      status   = kvcl_views_wait_to_own(store, deadline, "kvcl_store_upsert");
    kvcl_req_h         removed;

    status = (status == KVCL_OK) ? discard_everywhere(store, keys, n, timeout_ns, deadline) : status;
    if (status == KVCL_OK) { /* copies of ranks that did not answer must not stay listed */
        p.timeout_ns = timeout_ns;
        status       = kvcl_store_remove(store, keys, n, &p, &removed);
    }
    if (status == KVCL_OK) {
        status = kvcl_req_wait(removed, KVCL_WAIT_FOREVER); /* its own deadline ends it */
    }
    return status;
}
