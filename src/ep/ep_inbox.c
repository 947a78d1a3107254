/*
 * Notices, and the places of the rows that they announce (ep_step.h).
 *
 * Invariant of an inbox: a slot has at most max_tokens rows of a rank, so places never leave its rows. Pure; no lock.
 */
#include "config.h"

#include "ep/ep_step.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

void kvcl_ep_notice_write(void *to, const kvcl_ep_dims_t *dims, const kvcl_ep_route_t *route, uint32_t rank,
                          uint64_t number, uint64_t step)
{
    const kvcl_ep_notice_t notice = {.magic = KVCL_EP_MAGIC, .version = KVCL_EP_VERSION, .number = number,
                                     .step = step, .local = dims->local,
                                     .rows = kvcl_ep_route_rows(route, dims, rank)};
    const uint32_t         *begin = route->begin + ((size_t)rank * dims->local);
    char                   *at    = to;
    uint32_t               e, rows;

    memcpy(at, &notice, sizeof(notice));
    for (e = 0, at += sizeof(notice); e < dims->local; ++e, at += sizeof(rows)) {
        rows = begin[e + 1] - begin[e];
        memcpy(at, &rows, sizeof(rows));
    }
}

kvcl_status_t kvcl_ep_notice_read(const void *bytes, size_t len, const kvcl_ep_dims_t *dims, kvcl_ep_notice_t *notice,
                                  uint32_t *counts)
{
    kvcl_ep_notice_t in;
    const char       *at = bytes;
    uint64_t         sum = 0;
    uint32_t         e, rows;

    if (len != kvcl_ep_notice_bytes(dims)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&in, at, sizeof(in));
    if ((in.magic != KVCL_EP_MAGIC) || (in.version != KVCL_EP_VERSION) || (in.local != dims->local) ||
        (in.rows > dims->most)) {
        return KVCL_ERR_PROTOCOL;
    }
    for (e = 0, at += sizeof(in); e < dims->local; ++e, at += sizeof(rows)) {
        memcpy(&rows, at, sizeof(rows));
        if (rows > dims->max_tokens) {
            return KVCL_ERR_PROTOCOL;
        }
        counts[e] = rows;
        sum      += rows;
    }
    if (sum != in.rows) {
        return KVCL_ERR_PROTOCOL;
    }
    *notice = in;
    return KVCL_OK;
}

kvcl_status_t kvcl_ep_inbox_init(kvcl_ep_inbox_t *inbox, const kvcl_ep_dims_t *dims)
{
    inbox->counts = calloc(dims->local, sizeof(*inbox->counts));
    inbox->ranges = calloc(dims->slots, sizeof(*inbox->ranges));
    inbox->n_from = calloc(dims->ranks, sizeof(*inbox->n_from));
    inbox->blocks = calloc((size_t)dims->ranks * dims->most, sizeof(*inbox->blocks));
    if ((inbox->counts == NULL) || (inbox->ranges == NULL) || (inbox->n_from == NULL) || (inbox->blocks == NULL)) {
        kvcl_ep_inbox_fini(inbox);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_open: no memory for the places of %u ranks", dims->ranks);
    }
    return KVCL_OK;
}

void kvcl_ep_inbox_fini(kvcl_ep_inbox_t *inbox)
{
    free(inbox->counts);
    free(inbox->ranges);
    free(inbox->n_from);
    free(inbox->blocks);
    *inbox = (kvcl_ep_inbox_t){0};
}

void kvcl_ep_inbox_clear(kvcl_ep_inbox_t *inbox, const kvcl_ep_dims_t *dims)
{
    memset(inbox->counts, 0, dims->local * sizeof(*inbox->counts));
    memset(inbox->ranges, 0, dims->slots * sizeof(*inbox->ranges));
    memset(inbox->n_from, 0, dims->ranks * sizeof(*inbox->n_from));
}

void kvcl_ep_inbox_place(kvcl_ep_inbox_t *inbox, const kvcl_ep_dims_t *dims, uint32_t rank, const uint32_t *counts)
{
    uint32_t *blocks = inbox->blocks + ((size_t)rank * dims->most);
    uint32_t e, i, n = 0;

    for (e = 0; e < dims->local; ++e) {
        inbox->ranges[((size_t)e * dims->ranks) + rank] = ((int64_t)inbox->counts[e] << 32) | counts[e];
        for (i = 0; i < counts[e]; ++i) {
            blocks[n++] = (e * dims->rows) + inbox->counts[e]++;
        }
    }
    inbox->n_from[rank] = n;
}
