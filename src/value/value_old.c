/*
 * What the keys of a put named before: values that the pool holds already are skipped; those that are replaced are
 * removed, heads before the new ones are published, parts after that, so no head names parts that are missing.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/admin/ops.h"
#include "store/cold/cold.h"
#include "store/home/home_answer.h"
#include "value/value_put.h"

#include <stdlib.h>

/* Does the local pool hold it, with the same length and as many copies? *head: the head that it holds. */
static bool pool_holds(const kvcl_value_work_t *work, size_t i, kvcl_value_head_t *head)
{
    kvcl_store_h      store = work->put.store;
    uint64_t          bytes = work->heads[i].bytes;
    kvcl_owner_node_t *node;
    kvcl_slot_t       *slot;
    kvcl_key_t        key;
    bool              held  = false;

    kvcl_value_own_key(work, i, &key);
    memset(head, 0, sizeof(*head));
    kvcl_lock(store->ctx);
    node = kvcl_owner_find(store, &key, store->value_pool);
    if (node != NULL) {
        slot = &store->value_pool->array[kvcl_owner_slot(node)];
        held = (slot->note & KVCL_NOTE_LISTED) &&
               ((work->put.copies == 1) || ((slot->note & KVCL_NOTE_COPIES) >= work->put.copies));
        kvcl_owner_touch(store->value_pool, kvcl_owner_slot(node));
    }
    if ((node != NULL) && !kvcl_value_is_plain(&work->heads[i])) {
        const uint8_t *base = (const uint8_t *)store->value_pool->cache->bases[0];
        held = kvcl_value_head_read(base + (kvcl_owner_slot(node) * work->block), work->block, &work->heads[i].key,
                                    head) && (head->bytes == bytes) && held;
    }
    kvcl_unlock(store->ctx);
    return held;
}

void kvcl_value_check_pool(kvcl_value_work_t *work)
{
    kvcl_value_head_t head;
    size_t            i;

    for (i = 0; !work->instead && (i < work->n); ++i) {
        work->skip[i] = pool_holds(work, i, &head) &&
                        kvcl_value_has_parts(work->put.store, work->put.for_tenant, &head, work->put.deadline_ns);
        if (!work->skip[i] && (head.parts != 0)) {
            work->before[i] = head; /* it is put again: what is left of it is removed */
        }
    }
}

void kvcl_value_read_before(kvcl_value_work_t *work, const kvcl_key_t *keys)
{
    size_t i;

    if (work->instead && (kvcl_value_heads(work->put.store, work->put.for_tenant, keys, work->n, work->before,
                                           work->found, work->put.deadline_ns) != KVCL_OK)) {
        for (i = 0; i < work->n; ++i) {
            work->before[i].parts = 0;
        }
    }
}

/* ---- removal ---- */

/* For a put: must an old head of the value be removed at every rank, lest it counts as a copy of the new one? True for
 * a known one, and for one that other ranks may have where no checksums tell them apart (copy/copy_jobs.c). */
static bool is_stale(const kvcl_value_work_t *work, size_t i)
{
    bool unsummed = (work->put.store->flags & KVCL_STORE_NO_CHECKSUM) && (work->put.copies > 1);

    return !work->skip[i] && !kvcl_value_is_plain(&work->heads[i]) && ((work->before[i].parts != 0) || unsummed);
}

kvcl_status_t kvcl_value_leave_old(kvcl_value_work_t *work)
{
    kvcl_key_t    *keys  = malloc(2 * work->n * sizeof(*keys));
    kvcl_status_t status = KVCL_OK;
    size_t        n      = 0, i;

    if (keys == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", work->call, work->n);
    }
    for (i = 0; i < work->n; ++i) {
        if (work->instead) {
            keys[n++] = work->heads[i].key;
        }
        if (work->instead || is_stale(work, i)) {
            kvcl_store_value_key(&work->heads[i].key, &keys[n++]);
        }
    }
    if (n != 0) {
        kvcl_tenant_keys(work->put.for_tenant, keys, n);
        status = kvcl_discard_all(work->put.store, keys, n, kvcl_deadline_left(work->put.deadline_ns) + 1);
    }
    free(keys);
    return (status == KVCL_OK)
               ? KVCL_OK
               : kvcl_value_puts_failed(status, work->call, "the removal of old blocks", work->n);
}

void kvcl_value_withdraw(kvcl_store_h store, const kvcl_key_t *key)
{
    kvcl_owner_node_t *node = kvcl_owner_find(store, key, store->value_pool);
    kvcl_store_rec_t  removed;

    kvcl_assert_locked(store->ctx);
    if ((node != NULL) &&
        (kvcl_owner_withdraw(store->value_pool, kvcl_owner_slot(node), KVCL_SLOT_FREE, &removed) == KVCL_OK)) {
        kvcl_store_notify_removed(store, &removed, 1);
    }
    kvcl_cold_drop(store->cold, key);
}

void kvcl_value_drop_old(kvcl_value_work_t *work)
{
    size_t i;

    for (i = 0; i < work->n; ++i) {
        if (!work->skip[i] && (work->before[i].parts != 0)) {
            kvcl_value_drop_parts(work->put.store, work->put.for_tenant, &work->before[i]);
        }
    }
}
