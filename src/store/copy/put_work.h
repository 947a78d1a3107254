/*
 * A put into this rank's pool, step by step: its pool blocks are taken (put_blocks.c), filled and published
 * (put_fill.c), then listed and copied (chain.h). put_later.c takes and fills them after the call has returned.
 */
#ifndef KVCL_STORE_COPY_PUT_WORK_H
#define KVCL_STORE_COPY_PUT_WORK_H

#include "store/copy/chain.h"
#include "store/pool/pool.h"
#include <kvcl/kvcl_xfer.h>

/* The caller's blocks are items, by their index. All arrays have room for n, and are written as far as the steps have
 * come. */
typedef struct kvcl_put_work {
    kvcl_owner_t     *pool;   /* the class for blocks of this size */
    kvcl_cache_h     cache;
    const kvcl_key_t *keys;
    const uint32_t   *ids;
    size_t           n;
    unsigned         copies;  /* wanted */
    uint64_t         tenant;
    bool             instead; /* an upsert */
    kvcl_timing_t    timing;
    uint32_t         *todo;   /* n_todo items that the pool lacks; from the end on, n_held with too few copies */
    uint32_t         *slots;  /* n_taken: the pool blocks taken for them, FILLING */
    uint32_t         *from;   /* n_todo: their blocks in the cache; once published, the items of recs */
    kvcl_store_rec_t *recs;   /* n_todo, then n_held */
    size_t           n_todo, n_held;
    size_t           n_taken; /* the rest of n_todo is promised (pool/blocks.h) */
    void             *arrays; /* the memory of the arrays */
} kvcl_put_work_t;

/* The blocks to be listed. */
typedef struct kvcl_put_out {
    kvcl_store_rec_t *recs;
    uint32_t         *items;
    size_t           n;
} kvcl_put_out_t;

static inline bool kvcl_put_is_summed(const kvcl_put_work_t *work)
{
    return !(work->pool->store->flags & KVCL_STORE_NO_CHECKSUM);
}

/** No lock; several threads may each have a part. Fills blocks [from, to) of n_todo + n_held, which are taken. */
kvcl_status_t kvcl_put_fill(kvcl_put_work_t *work, size_t from, size_t to) KVCL_MUST_CHECK;
/** Lock held, after all are filled. *out has the blocks to be listed. */
void kvcl_put_publish(kvcl_put_work_t *work, kvcl_put_out_t *out);
/** Lock held. The put ends before its blocks are published: they are free again. */
void kvcl_put_abort(const kvcl_put_work_t *work);
/** Lock held. The number of copies known here for each key. */
void kvcl_put_count(const kvcl_put_work_t *work, uint8_t *copies);

/** No lock. The rest of a put whose blocks are taken or promised, as a request that takes and fills them first. On
 * success the arrays are the request's, and work has none. */
kvcl_status_t kvcl_put_later(kvcl_put_work_t *work, const kvcl_xfer_params_t *p, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** No lock; KVCL_PUT_STAYS. Takes the caller's blocks that the pool lacks. */
kvcl_status_t kvcl_stays_take(const kvcl_put_work_t *work, kvcl_chain_early_t **early_p) KVCL_MUST_CHECK;
/** Lock held. Blocks [from, to) of todo have been filled: other ranks fetch them, from the caller's cache. */
void kvcl_stays_filled(kvcl_chain_t *chain, const kvcl_put_work_t *work, size_t from, size_t to);

#endif
