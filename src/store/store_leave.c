/*
 * Giving up copies for somebody else's sake, who waits until it is done (ops.h): because the block has moved to another
 * rank, or because other bytes take its place (kvcl_store_upsert).
 */
#include "config.h"
#include "base/error.h"
#include "store/nvme.h"
#include "store/ops.h"

#include <stdlib.h>

enum { RECS_MAX = 512 };

typedef struct leave_ask {
    int64_t  to_rank; /* who has the blocks now; -1: nobody */
    uint64_t n;       /* records that follow */
} leave_ask_t;

/* ---- the rank that has them: lock held ---- */

kvcl_status_t kvcl_op_leave(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    kvcl_store_rec_t rec, gone;
    uint64_t         left = 0, i;
    leave_ask_t      ask;

    if (len < sizeof(ask)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&ask, in, sizeof(ask));
    if ((ask.n > RECS_MAX) || (len - sizeof(ask) != ask.n * sizeof(rec)) || (ask.to_rank < -1) ||
        (ask.to_rank >= (int64_t)store->n_ranks)) {
        return KVCL_ERR_PROTOCOL;
    }
    for (i = 0; i < ask.n; ++i) {
        kvcl_owner_t *owner;
        memcpy(&rec, (const char *)in + sizeof(ask) + (i * sizeof(rec)), sizeof(rec));
        if (kvcl_loc_is_nvme(&rec.loc)) {
            kvcl_nvme_drop(store->nvme, &rec.key);
            continue;
        }
        owner = kvcl_owner_by_cache_id(store, rec.loc.cache);
        if ((owner != NULL) && (rec.loc.incarnation == store->incarnation) &&
            (kvcl_slots_check(&owner->slots, rec.loc.slot, rec.loc.gen, &rec.key) == KVCL_OK) &&
            (kvcl_owner_give_up(owner, rec.loc.slot, KVCL_SLOT_FREE, (ask.to_rank >= 0) ? KVCL_STORE_MOVED :
                                KVCL_STORE_REMOVED, (int)ask.to_rank, &gone) == KVCL_OK)) {
            kvcl_store_tell_removed(store, &gone, 1);
            kvcl_nvme_drop(store->nvme, &rec.key); /* it may be on its way there */
            ++left;
        }
    }
    store->n_moved += (ask.to_rank >= 0) ? left : 0;
    memcpy(out->buf, &left, sizeof(left));
    out->len = sizeof(left);
    return KVCL_OK;
}

/* ---- whoever wants it ---- */

/* A rank that does not answer keeps them; one that is gone has none. */
static uint64_t ask_rank(kvcl_store_h store, uint32_t rank, const kvcl_key_t *keys, const kvcl_found_t *found, size_t n,
                         int to_rank, uint8_t *payload)
{
    leave_ask_t      ask = {.to_rank = to_rank};
    uint64_t         left = 0, sum = 0;
    kvcl_store_rec_t rec;
    size_t           i, j;

    for (i = 0; i <= n; ++i) {
        for (j = 0; (i < n) && (j < found[i].n); ++j) {
            if ((found[i].locs[j].rank == rank) && ((int)rank != to_rank)) {
                rec = (kvcl_store_rec_t){.key = keys[i], .loc = found[i].locs[j]};
                memcpy(payload + sizeof(ask) + (ask.n++ * sizeof(rec)), &rec, sizeof(rec));
            }
        }
        if ((ask.n > RECS_MAX - KVCL_DIR_LOCS_MAX) || ((i == n) && (ask.n != 0))) {
            kvcl_op_out_t out = {.buf = (uint8_t *)&left, .cap = sizeof(left)};
            memcpy(payload, &ask, sizeof(ask));
            if ((kvcl_op_call(store, (int)rank, KVCL_ASK_LEAVE, payload, sizeof(ask) + (ask.n * sizeof(rec)), 0, &out,
                              "kvcl_store") == KVCL_OK) && (out.len == sizeof(left))) {
                sum += left;
            }
            ask.n = 0;
        }
    }
    return sum;
}

kvcl_status_t kvcl_leave(kvcl_store_h store, const kvcl_key_t *keys, const kvcl_found_t *found, size_t n, int to_rank,
                         uint64_t *left_p)
{
    uint8_t  *payload = malloc(sizeof(leave_ask_t) + (RECS_MAX * sizeof(kvcl_store_rec_t)));
    uint32_t rank;

    *left_p = 0;
    if (payload == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to name %zu blocks", n);
    }
    for (rank = 0; rank < store->n_ranks; ++rank) {
        *left_p += ask_rank(store, rank, keys, found, n, to_rank, payload);
    }
    free(payload);
    return KVCL_OK;
}

/* ---- other bytes ---- */

kvcl_status_t kvcl_store_upsert(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_status_t status = kvcl_store_check(store, keys, n, "kvcl_store_upsert");
    kvcl_found_t  *found;
    kvcl_req_h    removed;
    uint64_t      left;

    if (status != KVCL_OK) {
        return status;
    }
    found = malloc((n + 1) * sizeof(*found));
    if (found == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_upsert: no memory for %zu keys", n);
    }
    status = kvcl_locate(store, keys, n, found);
    if (status == KVCL_OK) {
        status = kvcl_leave(store, keys, found, n, -1, &left);
    }
    free(found);
    if (status == KVCL_OK) { /* what a tier still holds is listed no more */
        status = kvcl_store_remove(store, keys, n, NULL, &removed);
    }
    if (status == KVCL_OK) {
        do {
            status = kvcl_req_wait(removed, 0); /* its own deadline ends it */
        } while (status == KVCL_INPROGRESS);
    }
    return (status == KVCL_OK) ? kvcl_store_put(store, keys, n, cache, ids, params, req_p) : status;
}
