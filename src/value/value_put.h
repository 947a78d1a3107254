/*
 * A put of values into this rank's pool, inside its call (value_put.c), and what its keys named before (value_old.c).
 */
#ifndef KVCL_VALUE_PUT_H
#define KVCL_VALUE_PUT_H

#include "value/value.h"

typedef struct kvcl_value_work {
    kvcl_value_put_t         put;
    const char               *call;
    const kvcl_value_t       *values;
    size_t                   n;
    bool                     instead;
    uint64_t                 block;
    uint8_t                  *skip;   /* n: the pool holds it already */
    kvcl_value_head_t        *heads;  /* n: of the new values; magic 0: plain blocks */
    kvcl_value_head_t        *before; /* n: the head that the key named, if it has parts; else parts is 0 */
    kvcl_status_t            *found;  /* n */
    kvcl_store_rec_t         *recs;   /* n: the first n_new are used, also of the next two */
    uint32_t                 *item;   /* index of the value */
    uint32_t                 *slots;
    size_t                   n_new;
} kvcl_value_work_t;

/** The key under which value i is found: the block's. */
static inline void kvcl_value_own_key(const kvcl_value_work_t *work, size_t i, kvcl_key_t *key)
{
    if (kvcl_value_is_plain(&work->heads[i])) {
        *key = work->heads[i].key;
    } else {
        kvcl_store_value_key(&work->heads[i].key, key);
    }
    kvcl_tenant_keys(work->put.for_tenant, key, 1);
}

/** No lock; blocks until the deadline. For a put: which values the pool holds already (skip), and the heads of those
 * that are put again (before). */
void          kvcl_value_check_pool(kvcl_value_work_t *work);
/** No lock; blocks until the deadline. For an upsert: the heads that it replaces (before). If a head cannot be
 * read, its parts are left to eviction. */
void          kvcl_value_read_before(kvcl_value_work_t *work, const kvcl_key_t *keys);
/** No lock; blocks until the deadline. Remove at every rank the blocks under the keys of values that are replaced;
 * for an upsert also plain blocks. */
kvcl_status_t kvcl_value_leave_old(kvcl_value_work_t *work) KVCL_MUST_CHECK;
/** Lock held. Remove the local block of the key, whose value lacks a part or copies. */
void          kvcl_value_withdraw(kvcl_store_h store, const kvcl_key_t *key);
/** No lock. The new heads are published: the parts of the old ones are removed, in the background. */
void          kvcl_value_drop_old(kvcl_value_work_t *work);

#endif
