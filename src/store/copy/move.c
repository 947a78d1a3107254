/*
 * kvcl_store_copy: copies and moves of keys to one rank, which fetches them (copy/send.c). A move then removes the
 * other copies, so a key can be found at any time.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "req/timeout.h"
#include "store/words.h"
#include "store/admin/ops.h"
#include "store/copy/send.h"
#include "store/tenant.h"
#include "xfer/params.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdio.h>
#include <stdlib.h>

/* The location to fetch from: not the receiving rank's own, which may be an old entry. That rank checks by itself
 * whether it has the block. */
static const kvcl_dir_loc_t *source(const kvcl_found_t *found, uint32_t to)
{
    unsigned i;

    for (i = 0; (i + 1u < found->n) && (found->locs[i].rank == to); ++i) {
    }
    return &found->locs[i];
}

/* From item *at_p on: the next blocks with one size and number of copies. items[]: their indexes. */
static void gather(const kvcl_key_t *keys, const kvcl_found_t *found, size_t n, uint32_t to, size_t *at_p,
                   kvcl_send_t *batch, size_t *items)
{
    for (batch->n = 0; (*at_p < n) && (batch->n < KVCL_SEND_BATCH); ++*at_p) {
        const kvcl_dir_loc_t *loc = source(&found[*at_p], to);
        if (found[*at_p].n == 0) {
            continue;
        }
        if ((batch->n != 0) && ((loc->len != batch->recs[0].loc.len) ||
                                (kvcl_loc_copies(loc->flags) != kvcl_loc_copies(batch->recs[0].loc.flags)))) {
            return;
        }
        items[batch->n]         = *at_p;
        batch->recs[batch->n++] = (kvcl_store_rec_t){.key = keys[*at_p], .loc = *loc};
    }
}

static kvcl_status_t copy_keys(kvcl_store_h store, uint64_t tenant, const kvcl_key_t *keys, kvcl_found_t *found,
                               size_t n, uint32_t to, uint64_t deadline, uint8_t *made, kvcl_send_t *batch)
{
    kvcl_status_t status = KVCL_OK;
    size_t        items[KVCL_SEND_BATCH], at = 0, i;

    memset(made, 0, n);
    batch->unlisted = false;
    while ((status == KVCL_OK) && (at < n)) {
        gather(keys, found, n, to, &at, batch, items);
        status = (batch->n != 0) ? kvcl_send_batch(store, to, tenant, deadline, batch) : KVCL_OK;
        for (i = 0; (status == KVCL_OK) && (i < batch->n); ++i) {
            made[items[i]] = (batch->made[i] != 0);
        }
    }
    return status;
}

/* Leave blocks that have arrived at that rank only; the others stay where they are. */
static kvcl_status_t leave_others(kvcl_store_h store, const kvcl_key_t *keys, kvcl_found_t *found, size_t n,
                                  uint32_t to, const uint8_t *made)
{
    uint64_t left;
    size_t   i;

    for (i = 0; i < n; ++i) {
        found[i].n = made[i] ? found[i].n : 0;
    }
    return kvcl_discard(store, keys, found, n, (int)to, &left);
}

/* all: the outcome of key at - 1, if any failed. */
static kvcl_status_t copy_error(const kvcl_key_t *keys, size_t n, size_t at, int rank, kvcl_status_t all,
                                kvcl_status_t status)
{
    char why[256];

    if ((all == status) && (status == KVCL_ERR_NOT_FOUND)) {
        return kvcl_fail(status, "kvcl_store_copy to rank %d: key %016llx... (number %zu of %zu): no rank holds it: "
                         "put it", rank, kvcl_key_prefix(&keys[at - 1]), at - 1, n);
    }
    if ((all == status) && (status == KVCL_ERR_NO_SPACE)) {
        return kvcl_fail(status, "kvcl_store_copy to rank %d: its pool could not take key %016llx... (number %zu of "
                         "%zu): unpin or remove blocks there", rank, kvcl_key_prefix(&keys[at - 1]), at - 1, n);
    }
    if (status == KVCL_ERR_UNSUPPORTED) {
        return kvcl_fail(status, "kvcl_store_copy to rank %d: it has no pool (dram_bytes), or none of this size of "
                         "block", rank);
    }
    if (!kvcl_store_explain(status, why, sizeof(why))) {
        snprintf(why, sizeof(why), "%s", kvcl_status_text(status));
    }
    return kvcl_fail(status, "kvcl_store_copy to rank %d of %zu keys: %s", rank, n, why);
}

static kvcl_status_t copy_to(kvcl_store_h store, uint64_t tenant, const kvcl_key_t *keys, size_t n, int rank,
                             uint64_t flags, uint8_t *made, const kvcl_xfer_params_t *params)
{
    kvcl_status_t      status = kvcl_store_check(store, keys, n, "kvcl_store_copy");
    kvcl_status_t      all    = KVCL_OK;
    kvcl_xfer_params_t p;
    kvcl_found_t       *found;
    kvcl_send_t        *batch;
    uint64_t           deadline;
    size_t             i;

    status = (status == KVCL_OK) ? kvcl_xfer_params(params, KVCL_CALL_STORE_COPY, &p) : status;
    if (status != KVCL_OK) {
        return status;
    }
    deadline = kvcl_deadline_after(kvcl_timeout(store->ctx, p.timeout_ns));
    if ((rank < 0) || ((uint32_t)rank >= store->n_ranks)) {
        return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "kvcl_store_copy: rank %d of a store over %u", rank, store->n_ranks);
    }
    if ((flags & ~KVCL_STORE_MOVE) != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_copy: unknown flags 0x%llx", (unsigned long long)flags);
    }
    found = malloc(sizeof(*batch) + ((n + 1) * (sizeof(*found) + 1)));
    if (found == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_copy: no memory for %zu keys", n);
    }
    batch  = (kvcl_send_t *)(void *)(found + n + 1);
    made   = (made != NULL) ? made : (uint8_t *)(batch + 1);
    status = kvcl_locate(store, keys, n, found, p.timeout_ns);
    if (status == KVCL_OK) {
        status = copy_keys(store, tenant, keys, found, n, (uint32_t)rank, deadline, made, batch);
    }
    for (i = 0; (status == KVCL_OK) && (i < n) && (all == KVCL_OK); ++i) {
        all = made[i] ? KVCL_OK : (found[i].n == 0) ? KVCL_ERR_NOT_FOUND : KVCL_ERR_NO_SPACE;
    }
    if ((status == KVCL_OK) && (flags & KVCL_STORE_MOVE)) {
        status = leave_others(store, keys, found, n, (uint32_t)rank, made);
    }
    status = (status == KVCL_OK) ? all : status;
    free(found);
    return (status == KVCL_OK) ? KVCL_OK : copy_error(keys, n, i, rank, all, status);
}

kvcl_status_t kvcl_store_copy(kvcl_store_h store, const kvcl_key_t *keys, size_t n, int rank, uint64_t flags,
                              uint8_t *made, const kvcl_xfer_params_t *params)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, &keys, n, "kvcl_store_copy", &entry);

    if (status == KVCL_OK) {
        status = copy_to(store, kvcl_tenant_of(entry.tenant), keys, n, rank, flags, made, params);
    }
    kvcl_store_leave(&entry);
    return status;
}
