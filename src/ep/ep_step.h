/*
 * The pure parts of a step of kvcl_ep_step.h: its dimensions; which token goes to which rank, and in which row
 * (ep_route.c); the notice by which a rank tells another how many rows it gives to each of its slots, and the places of
 * these rows at the receiver (ep_inbox.c); the weighted sum (ep_sum.c).
 *
 * A row is a token for one slot: hidden elements. Nothing here takes a lock, reads a clock or moves payload.
 */
#ifndef KVCL_EP_EP_STEP_H
#define KVCL_EP_EP_STEP_H

#include "kvcl/kvcl_ep_step.h"

/* Checked params. */
typedef struct kvcl_ep_dims {
    uint32_t     ranks, self;
    uint32_t     slots, local;  /* local: of one rank */
    uint32_t     max_tokens, top_k, hidden;
    uint32_t     rows;          /* of a local slot: ranks * max_tokens */
    uint32_t     most;          /* rows from one rank to another: max_tokens * min(top_k, local) */
    kvcl_dtype_t dtype;
    uint32_t     row_bytes;
} kvcl_ep_dims_t;

/** Check the params, defaults applied, for a communicator of that size. */
kvcl_status_t kvcl_ep_dims_take(const kvcl_ep_open_params_t *params, uint32_t ranks, uint32_t self,
                                kvcl_ep_dims_t *dims) KVCL_MUST_CHECK;

/* ---- routes ---- */

/* kvcl_ep_route_t.place: no row. */
#define KVCL_EP_ROW_NONE UINT32_MAX       /* KVCL_EP_ID_NONE */
#define KVCL_EP_ROW_LOST (UINT32_MAX - 1) /* KVCL_EP_ID_LOST, or the slot's rank was not active */

/* Which row each choice of a token became. Rows are numbered by slot, so by rank, then by token. */
typedef struct kvcl_ep_route {
    uint32_t n_tokens, top_k;
    uint32_t *tokens; /* [max_tokens * top_k]: the token of each row */
    uint32_t *place;  /* [n_tokens][top_k]: the row of each choice, or KVCL_EP_ROW_* */
    uint32_t *begin;  /* [slots + 1]: the first row of each slot */
    uint32_t *next;   /* [slots]: scratch */
} kvcl_ep_route_t;

kvcl_status_t kvcl_ep_route_init(kvcl_ep_route_t *route, const kvcl_ep_dims_t *dims) KVCL_MUST_CHECK;
void          kvcl_ep_route_fini(kvcl_ep_route_t *route);
/** Are these ids that kvcl_ep_route_make takes? The sentence names the first that is not. */
kvcl_status_t kvcl_ep_route_check(const kvcl_ep_dims_t *dims, const int64_t *ids, uint32_t n_tokens, uint32_t top_k)
    KVCL_MUST_CHECK;
/** Route checked ids. @a active: [ranks]; slots of others get no rows. */
void kvcl_ep_route_make(kvcl_ep_route_t *route, const kvcl_ep_dims_t *dims, const int64_t *ids, uint32_t n_tokens,
                        uint32_t top_k, const int32_t *active);

/** The first row for a rank; of rank `ranks`: behind all rows. */
static inline uint32_t kvcl_ep_route_first(const kvcl_ep_route_t *route, const kvcl_ep_dims_t *dims, uint32_t rank)
{
    return route->begin[(size_t)rank * dims->local];
}

/** Rows for a rank. */
static inline uint32_t kvcl_ep_route_rows(const kvcl_ep_route_t *route, const kvcl_ep_dims_t *dims, uint32_t rank)
{
    return kvcl_ep_route_first(route, dims, rank + 1) - kvcl_ep_route_first(route, dims, rank);
}

/* ---- notices and places ---- */

enum { KVCL_EP_MAGIC = 0x5045564b /* "KVEP" */, KVCL_EP_VERSION = 1 };

/* On the wire, little-endian; then uint32_t counts[local]: rows for each of the receiver's slots. The rows follow in
 * a message of their own, in the order of slots, if there are any. */
typedef struct kvcl_ep_notice {
    uint32_t magic, version;
    uint64_t number; /* of the activation */
    uint64_t step;
    uint32_t local;
    uint32_t rows;   /* the sum of counts */
} kvcl_ep_notice_t;
_Static_assert(sizeof(kvcl_ep_notice_t) == 32, "wire format");

static inline size_t kvcl_ep_notice_bytes(const kvcl_ep_dims_t *dims)
{
    return sizeof(kvcl_ep_notice_t) + (dims->local * sizeof(uint32_t));
}

/** Write the notice for a rank: kvcl_ep_notice_bytes(). */
void kvcl_ep_notice_write(void *to, const kvcl_ep_dims_t *dims, const kvcl_ep_route_t *route, uint32_t rank,
                          uint64_t number, uint64_t step);
/**
 * Read hostile bytes.
 * @param [out] notice  filled on KVCL_OK, and its counts: at least local entries.
 * @return KVCL_OK; KVCL_ERR_PROTOCOL: no notice with these dimensions, or counts that no rank may send.
 */
kvcl_status_t kvcl_ep_notice_read(const void *bytes, size_t len, const kvcl_ep_dims_t *dims, kvcl_ep_notice_t *notice,
                                  uint32_t *counts) KVCL_MUST_CHECK;

/* Where the rows of a step lie: row r of slot e is block e * rows + r. Ranks get places as their notices arrive. */
typedef struct kvcl_ep_inbox {
    uint32_t *counts; /* [local]: rows of each slot that have a place */
    int64_t  *ranges; /* [local][ranks]: first << 32 | rows */
    uint32_t *n_from; /* [ranks] */
    uint32_t *blocks; /* [ranks][most]: of each rank's rows, in the order in which they are sent */
} kvcl_ep_inbox_t;

kvcl_status_t kvcl_ep_inbox_init(kvcl_ep_inbox_t *inbox, const kvcl_ep_dims_t *dims) KVCL_MUST_CHECK;
void          kvcl_ep_inbox_fini(kvcl_ep_inbox_t *inbox);
void          kvcl_ep_inbox_clear(kvcl_ep_inbox_t *inbox, const kvcl_ep_dims_t *dims);
/** Give places to the rows of a checked notice, the rank's first in this step. */
void          kvcl_ep_inbox_place(kvcl_ep_inbox_t *inbox, const kvcl_ep_dims_t *dims, uint32_t rank,
                                  const uint32_t *counts);

static inline const uint32_t *kvcl_ep_inbox_blocks(const kvcl_ep_inbox_t *inbox, const kvcl_ep_dims_t *dims,
                                                   uint32_t rank)
{
    return inbox->blocks + ((size_t)rank * dims->most);
}

/* ---- sums ---- */

/** out = 0 + weights[0] * rows[0] + weights[1] * rows[1] + ..., in f32 and in this order; n may be 0. */
void kvcl_ep_sum(void *out, kvcl_dtype_t dtype, uint32_t hidden, const void *const *rows, const float *weights,
                 uint32_t n);

#endif
