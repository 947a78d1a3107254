/*
 * A get of parts of blocks (kvcl_store_get_part; get_part.c describes the rounds).
 */
#ifndef KVCL_STORE_GET_PART_H
#define KVCL_STORE_GET_PART_H

#include "cache/cache.h"
#include "store/tenant.h"
#include "xfer/copy.h"

#define KVCL_PART_CALL "kvcl_store_get_part"

/* The arguments of a call. */
typedef struct kvcl_part_args {
    const kvcl_key_t    *keys;
    size_t              n;       /* > 0 */
    const kvcl_layout_t *stored; /* NULL: as the cache */
    const kvcl_sel_t    *wanted; /* NULL: all; its blocks are not looked at */
    kvcl_cache_h        cache;
    const kvcl_sel_t    *local;  /* checked */
    bool                layerwise;
} kvcl_part_args_t;

typedef struct kvcl_part {
    kvcl_req_t          req;
    kvcl_store_h        store;
    kvcl_store_tenant_t *tenant;  /* whose call it is, held; NULL: none */
    uint64_t            deadline_ns;
    kvcl_status_t       *statuses[2]; /* the caller's, or NULL */
    kvcl_cache_h        cache;
    kvcl_sel_t          local;    /* its blocks are owned */
    kvcl_shape_t        stored;   /* a block as it was put, dense and in canonical order; `ring` blocks */
    kvcl_sel_t          wanted;   /* of the n stored blocks; its blocks are ids */
    struct kvcl_cache   buffer;   /* the same memory as opaque blocks */
    uintptr_t           base;
    size_t              n, ring;
    size_t              first, end; /* the blocks of this round */
    size_t              at;       /* the next of them to copy */
    bool                layerwise;
    uint32_t            n_layers, layer; /* layer-wise: how many, and the one that is being copied */
    _Atomic uint32_t    landed;   /* layers that have arrived, the first ones of the selection */
    kvcl_copy_t         copy;
    bool                copying;
    kvcl_req_t          *got;     /* the get of blocks in flight */
    kvcl_status_t       stopping;
    uint32_t            *ids;     /* n: i % ring; these three are one allocation */
    kvcl_status_t       *each;    /* n */
    kvcl_store_rec_t    *recs;    /* n: the keys */
} kvcl_part_t;

/** No lock. On failure *part_p is NULL or half built: kvcl_part_free(). */
kvcl_status_t kvcl_part_make(kvcl_store_h store, const kvcl_part_args_t *args, kvcl_part_t **part_p) KVCL_MUST_CHECK;
void          kvcl_part_free(kvcl_part_t *part); /* NULL is accepted */

/** Pair the stored blocks with the local ones, in canonical order: all selected layers, or part->layer alone. */
kvcl_status_t kvcl_part_runs(const kvcl_part_t *part, bool one_layer, kvcl_runs_t *runs) KVCL_MUST_CHECK;
/** The position of stored block i in the selected bytes, with all layers. */
uint64_t      kvcl_part_position(const kvcl_part_t *part, size_t i);
/** Positions of the next blocks in a row that have arrived, from part->at on, which advances. False: none is left in
 * this round. */
bool          kvcl_part_next(kvcl_part_t *part, uint64_t *from_p, uint64_t *to_p);

#endif
