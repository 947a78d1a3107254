/*
 * One KVCL_RPC_COPY, waited for: the receiving rank fetches the blocks as for a put's copies (copy/copy_jobs.c); this
 * rank, if it is the receiver itself, does so without a message. The caller's thread waits, without the lock.
 */
#include "config.h"
#include "base/clock.h"
#include "store/copy/copy_jobs.h"
#include "store/copy/send.h"
#include "store/pool/pool.h"

#define BUSY_PAUSE_NS (10 * KVCL_NS_PER_MS)

static void on_copied(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_send_t      *batch = rpc->arg;
    kvcl_copy_tail_t tail;

    (void)len; /* kinds.c: checked lengths */
    if (status == KVCL_OK) {
        memcpy(&tail, data, sizeof(tail));
        memcpy(batch->made, (const uint8_t *)data + sizeof(tail), batch->n);
        kvcl_place_took(&rpc->store->places[rpc->rank], batch->n * (uint64_t)batch->recs[0].loc.len, tail.pool_free);
        batch->room = tail.size_free;
    }
    batch->status = status;
    batch->over   = true;
    kvcl_engine_notify(batch->ctx);
}

static bool is_over(void *arg)
{
    return ((const kvcl_send_t *)arg)->over;
}

static bool copies_are_done(void *arg)
{
    return ((const struct kvcl_store *)arg)->n_copying == 0;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void copy_to_self(kvcl_store_h store, const kvcl_copy_head_t *head, kvcl_send_t *batch)
{
    kvcl_owner_t *pool = kvcl_pool_for(store, batch->recs[0].loc.len);
    uint32_t     i;

    kvcl_lock(store->ctx);
    batch->status = (pool != NULL) ? kvcl_copy_here(store, head, batch->recs, NULL, batch->n, NULL)
                                          : KVCL_ERR_UNSUPPORTED;
    kvcl_unlock(store->ctx);
    if (batch->status == KVCL_OK) {
        (void)kvcl_engine_wait(store->ctx, copies_are_done, store,
                               kvcl_deadline_after(kvcl_copy_time(store, batch->n, batch->recs[0].loc.len)));
        kvcl_lock(store->ctx);
        for (i = 0; i < batch->n; ++i) {
            batch->made[i] = kvcl_owner_lists(pool, &batch->recs[i].key) ? 1 : 0;
        }
        kvcl_unlock(store->ctx);
    }
}

static void copy_to(kvcl_store_h store, uint32_t rank, const kvcl_copy_head_t *head, kvcl_send_t *batch)
{
    kvcl_rpc_t *rpc;

    batch->over   = false;
    batch->status = KVCL_ERR_NO_MEMORY;
    kvcl_lock(store->ctx);
    if (store->incarnations[rank] == 0) {
        batch->status = KVCL_ERR_RANK_FAILED;
        batch->over   = true;
    } else if ((rpc = kvcl_copy_request(store, rank, head, batch->recs, NULL, batch->n)) != NULL) {
        rpc->arg  = batch;
        rpc->done = on_copied;
        kvcl_rpc_post_watched(rpc, kvcl_copy_time(store, batch->n, batch->recs[0].loc.len), NULL);
    } else {
        batch->over = true;
    }
    kvcl_unlock(store->ctx);
    while (!kvcl_engine_wait(store->ctx, is_over, batch, kvcl_deadline_after(KVCL_NS_PER_SEC))) {
    }
}

kvcl_status_t kvcl_send_batch(kvcl_store_h store, uint32_t rank, uint64_t tenant, uint64_t deadline_ns,
                              kvcl_send_t *batch)
{
    kvcl_copy_head_t head = {.copies = (uint8_t)kvcl_loc_copies(batch->recs[0].loc.flags), .tenant = tenant,
                             .flags = batch->unlisted ? KVCL_COPY_UNLISTED : 0};

    batch->ctx = store->ctx;
    do {
        memset(batch->made, 0, sizeof(batch->made));
        if (rank == store->me) {
            copy_to_self(store, &head, batch);
        } else {
            copy_to(store, rank, &head, batch);
        }
    } while ((batch->status == KVCL_ERR_BUSY) && !kvcl_deadline_passed(deadline_ns) && !store->closing &&
             !kvcl_engine_wait(store->ctx, never, NULL, kvcl_deadline_after(BUSY_PAUSE_NS)));
    return batch->status;
}
