/*
 * Large puts: the call has found room in the pool and returned; a copy job (xfer/copy.h) takes the blocks, evicting
 * others, and fills them, so every idle thread of the context copies a part. Then the blocks are published, listed, and
 * copied by other ranks (chain.h), all as one request.
 *
 * Owns: the promised and the taken blocks until they are published or free again, the arrays of the put, and copies of
 * the caller's keys and ids. Invariant: a put that is stopped reads no byte of the caller's cache once its request has
 * completed. Locks: the engine lock, dropped while a slice is copied.
 *
 * With KVCL_PUT_STAYS the blocks are filled in pieces. When one is filled, other ranks fetch it (put_stays.c).
 */
#include "config.h"
#include "base/error.h"
#include "store/copy/put_work.h"
#include "store/pool/blocks.h"
#include "xfer/copy.h"

#include <stdlib.h>
#include <string.h>

enum {
    TAKE   = 1024, /* at least so many blocks are taken at a time: their homes are notified of evicted ones together */
    PIECES = 8     /* at most, each of KVCL_INLINE_COPY bytes or more */
};

/* Its position is a number of blocks. */
typedef struct later {
    kvcl_copy_t       copy;
    kvcl_chain_fill_t fill;
    kvcl_put_work_t   work;
    kvcl_chain_t      *chain;
    size_t            from, to; /* the piece that is being filled */
    uint8_t           *copies;  /* the user's array, or NULL */
    kvcl_key_t        *keys;
    uint32_t          *ids;
} later_t;

/* Lock held. Take blocks until `to` of them are taken. */
static kvcl_status_t take(kvcl_put_work_t *work, size_t to)
{
    size_t        left = work->n_todo - work->n_taken, n;
    kvcl_status_t status;

    kvcl_assert_locked(work->pool->store->ctx);
    to = (to < work->n_todo) ? to : work->n_todo;
    if (to <= work->n_taken) {
        return KVCL_OK;
    }
    n      = (left < TAKE) ? left : TAKE;
    n      = (to - work->n_taken > n) ? to - work->n_taken : n;
    status = kvcl_owner_take_promised(work->pool, work->tenant, work->n_todo, n, work->slots + work->n_taken);
    work->n_taken += (status == KVCL_OK) ? n : 0;
    return status;
}

/* No lock. */
static kvcl_status_t copy_slice(kvcl_copy_t *copy, uint64_t from, uint64_t to)
{
    kvcl_put_work_t *work = &kvcl_container_of(copy, later_t, copy)->work;
    kvcl_context_h  ctx   = work->pool->store->ctx;
    kvcl_status_t   status;

    kvcl_relock(ctx);
    status = take(work, (size_t)to);
    kvcl_unlock_quietly(ctx);
    return (status == KVCL_OK) ? kvcl_put_fill(work, (size_t)from, (size_t)to) : status;
}

/* Lock held. False: there is no further piece. Without early copies all blocks are one. */
static bool next_piece(later_t *later)
{
    const kvcl_put_work_t *work = &later->work;
    const kvcl_context_h  ctx   = work->pool->store->ctx;
    const size_t          end   = work->n_todo + work->n_held, part = (end / PIECES) + 1;
    const size_t          least = (size_t)(ctx->config.inline_copy / kvcl_owner_bytes(work->pool));
    const size_t          piece = (later->fill.early == NULL) ? end : (part < least) ? least : part;

    kvcl_assert_locked(ctx);
    later->from = later->to;
    later->to   = (end - later->from > piece) ? later->from + piece : end;
    if (later->from < end) {
        kvcl_copy_start(ctx, &later->copy, later->from, later->to);
    }
    return later->from < end;
}

static void on_copied(kvcl_copy_t *copy, kvcl_status_t status)
{
    later_t        *later = kvcl_container_of(copy, later_t, copy);
    kvcl_put_out_t out    = {.n = 0};

    kvcl_assert_locked(later->work.pool->store->ctx);
    if ((status == KVCL_OK) && later->work.pool->store->closing) {
        status = KVCL_ERR_SHUTDOWN;
    }
    if ((status == KVCL_OK) && (later->fill.early != NULL)) {
        kvcl_stays_filled(later->chain, &later->work, later->from, later->to);
    }
    if ((status == KVCL_OK) && next_piece(later)) {
        return;
    }
    if (status == KVCL_OK) {
        status = kvcl_owner_reserve(later->work.pool->store, later->work.n_todo);
    }
    if (status != KVCL_OK) {
        kvcl_put_abort(&later->work);
    } else {
        kvcl_put_publish(&later->work, &out);
        if (later->copies != NULL) {
            kvcl_put_count(&later->work, later->copies);
        }
    }
    kvcl_chain_filled(later->chain, out.recs, out.items, out.n, status);
    free(later->work.arrays);
    free(later);
}

static void stop(kvcl_chain_fill_t *fill, kvcl_status_t status)
{
    kvcl_copy_stop(&kvcl_container_of(fill, later_t, fill)->copy, status);
}

/* The keys and the ids follow, all in one allocation. */
static later_t *make(const kvcl_put_work_t *work)
{
    later_t *later = malloc(sizeof(*later) + (work->n * (sizeof(kvcl_key_t) + sizeof(uint32_t))));

    if (later == NULL) {
        return NULL;
    }
    *later      = (later_t){.work = *work, .copy.part = copy_slice, .copy.done = on_copied, .fill.stop = stop};
    later->keys = (kvcl_key_t *)(void *)(later + 1);
    later->ids  = (uint32_t *)(void *)(later->keys + work->n);
    memcpy(later->keys, work->keys, work->n * sizeof(*later->keys));
    memcpy(later->ids, work->ids, work->n * sizeof(*later->ids));
    later->work.keys = later->keys;
    later->work.ids  = later->ids;
    return later;
}

kvcl_status_t kvcl_put_later(kvcl_put_work_t *work, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_context_h ctx    = work->pool->store->ctx;
    later_t        *later = make(work);
    kvcl_status_t  status = KVCL_OK;

    if (later == NULL) {
        status = kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_put: no memory for %zu blocks", work->n);
    } else if ((p->flags & KVCL_PUT_STAYS) && (work->copies > 1) && (work->n_todo != 0)) {
        status = kvcl_stays_take(work, &later->fill.early);
    }
    kvcl_lock(ctx);
    if (status == KVCL_OK) {
        status = kvcl_chain_open(work->pool, &later->fill, work->n_todo + work->n_held, work->copies, &work->timing, p,
                                 req_p, &later->chain);
    }
    if (status != KVCL_OK) {
        if (later != NULL) {
            kvcl_chain_end_early(later->fill.early);
        }
        kvcl_put_abort(work);
        kvcl_unlock_quietly(ctx);
        free(later);
        return status;
    }
    work->arrays      = NULL;
    later->copies     = p->copies;
    later->copy.slice = kvcl_copy_slice_blocks(kvcl_owner_bytes(work->pool));
    (void)next_piece(later);
    kvcl_unlock(ctx);
    return KVCL_OK;
}
