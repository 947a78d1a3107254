/*
 * A query about values in progress: a call of home/call.h that value_query.c runs and value_ops.c begins.
 */
#ifndef KVCL_VALUE_QUERY_H
#define KVCL_VALUE_QUERY_H

#include "store/home/find.h"
#include "value/value.h"

typedef enum {
    KVCL_VQUERY_HEADS,  /* the heads, for other files of this room */
    KVCL_VQUERY_SIZES,
    KVCL_VQUERY_KEYS,   /* of all blocks of one value */
    KVCL_VQUERY_REMOVE
} kvcl_vquery_about_t;
typedef enum {
    KVCL_VQUERY_BEGIN,  /* the next keys */
    KVCL_VQUERY_GOT,    /* the gets of their head blocks have ended */
    KVCL_VQUERY_FIND,   /* find which of the others are plain blocks */
    KVCL_VQUERY_REMOVAL,
    KVCL_VQUERY_OVER
} kvcl_vquery_state_t;

typedef struct kvcl_vquery {
    kvcl_call_t         call;
    kvcl_find_t         find;
    kvcl_view_t         view;
    kvcl_vquery_about_t about;
    kvcl_vquery_state_t state;
    kvcl_req_t          *get;    /* in flight, or NULL */
    kvcl_status_t       failed;  /* of the whole call */
    size_t              n, at, some, most; /* keys; at .. at + some - 1 are in flight, at most most */
    kvcl_key_t          *keys;   /* n, the caller's; part of this allocation, as are the arrays down to both */
    kvcl_value_head_t   *heads;  /* n */
    kvcl_status_t       *status; /* n; where KVCL_OK, heads[i] is set */
    kvcl_store_rec_t    *recs;   /* most elements, as the next three */
    kvcl_found_t        *found;
    uint32_t            *ids;
    uint8_t             *flags;
    kvcl_key_t          *both;   /* 2 n, for a removal: the blocks' keys of the keys and of their heads */
    kvcl_key_t          *plain;  /* most, for a tenant: the blocks' keys of those in flight */
    kvcl_store_tenant_t *tenant; /* whose call it is, held; NULL: none */
    uint8_t             *buf;    /* most blocks */
    kvcl_value_head_t   *user_heads; /* the caller's, or NULL, as the following */
    kvcl_status_t       *user_status;
    uint64_t            *user_bytes;
    kvcl_key_t          *user_keys;
    size_t              cap, *n_p;
} kvcl_vquery_t;

/** No lock. NULL: no memory. The caller sets where the results go, and begins the call (kvcl_call_start, _run). Where
 * no rank has a pool there are no values: all are absent. */
kvcl_vquery_t *kvcl_vquery_new(kvcl_store_h store, kvcl_store_tenant_t *tenant, const kvcl_key_t *keys, size_t n,
                               kvcl_vquery_about_t about);

#endif
