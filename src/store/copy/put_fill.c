/*
 * The middle of a put: the bytes are copied into pool blocks and summed, then the blocks are published.
 *
 * Owns: the records from a slot's checksum until the block is listed. Locks: as put_work.h says.
 */
#include "config.h"
#include "store/admin/ops.h"
#include "store/copy/put_work.h"
#include "store/pool/blocks.h"
#include "store/pool/publish_own.h"
#include "store/pool/room.h"
#include "weave/bulk.h"
#include "xfer/copy.h"

#include <string.h>

enum { PIECE = 64 };

/* The item of a block that the pool had before. */
static uint32_t held_item(const kvcl_put_work_t *work, size_t i)
{
    return work->todo[work->n - 1 - i];
}

/* Copy the bytes of at most PIECE blocks, in canonical order, and compute their checksums. Their part of recs and from
 * is written here, not in the call, which touches little memory. */
static kvcl_status_t copy_piece(kvcl_put_work_t *work, size_t at, size_t n, kvcl_bulk_how_t *how)
{
    uint64_t      sums[PIECE];
    kvcl_sel_t    from_sel = {.blocks = work->from + at, .n_blocks = n};
    kvcl_sel_t    to_sel   = {.blocks = work->slots + at, .n_blocks = n};
    kvcl_side_t   src      = kvcl_cache_side(work->cache, &from_sel);
    kvcl_side_t   dst      = kvcl_cache_side(work->pool->cache, &to_sel);
    bool          summed   = kvcl_put_is_summed(work);
    uint64_t      begun    = kvcl_bulk_part_begin(*how);
    kvcl_status_t status;
    size_t        i;

    for (i = at; i < at + n; ++i) {
        work->from[i] = work->ids[work->todo[i]];
        work->recs[i] = (kvcl_store_rec_t){.key = work->keys[work->todo[i]]};
    }
    status = (*how == KVCL_BULK_LARGE) ? kvcl_side_copy_sums_large(&dst, &src, summed ? sums : NULL)
                                       : kvcl_side_copy_sums(&dst, &src, summed ? sums : NULL);
    *how   = kvcl_bulk_part_end(*how, n * kvcl_owner_bytes(work->pool), begun);
    for (i = 0; summed && (i < n) && (status == KVCL_OK); ++i) {
        work->recs[at + i].loc.checksum = sums[i];
    }
    return status;
}

kvcl_status_t kvcl_put_fill(kvcl_put_work_t *work, size_t from, size_t to)
{
    size_t          end    = (to < work->n_todo) ? to : work->n_todo, n;
    kvcl_bulk_how_t how    = kvcl_bulk_how(work->n_todo * kvcl_owner_bytes(work->pool));
    kvcl_status_t   status = KVCL_OK;

    for (; (from < end) && (status == KVCL_OK); from += n) {
        n      = (end - from < PIECE) ? end - from : PIECE;
        status = copy_piece(work, from, n, &how);
    }
    if (how == KVCL_BULK_LARGE) {
        kvcl_bulk_end();
    }
    for (; (from < to) && (status == KVCL_OK); ++from) {
        work->recs[from].loc.checksum = !kvcl_put_is_summed(work) ? 0
            : kvcl_store_block_sum(work->cache, work->ids[held_item(work, from - work->n_todo)]);
    }
    return status;
}

/* A block that another thread has put meanwhile is not put twice. Returns how many recs, the last ones of n_todo, are
 * to be listed. */
static size_t publish_new(kvcl_put_work_t *work)
{
    kvcl_store_h     store  = work->pool->store;
    kvcl_store_rec_t *recs  = work->recs;
    size_t           i      = work->n_todo, kept = work->n_todo;

    while (i-- > 0) { /* the end of a chain first */
        if ((kvcl_owner_find(store, &recs[i].key, work->pool) != NULL) ||
            (kvcl_owner_publish(work->pool, work->slots[i], &recs[i].key, recs[i].loc.checksum,
                                kvcl_put_is_summed(work), work->copies, work->tenant, &recs[i].loc) != KVCL_OK)) {
            (void)!kvcl_slots_abort(&work->pool->slots, work->slots[i]);
            kvcl_store_freed(store);
            continue;
        }
        recs[--kept]     = recs[i];
        work->todo[kept] = work->todo[i];
    }
    return work->n_todo - kept;
}

/* Make the record of a block that the pool had before; it is listed again, as one of more copies. False: the pool has
 * it no more. */
static bool publish_held(const kvcl_put_work_t *work, const kvcl_key_t *key, uint64_t sum, kvcl_store_rec_t *rec)
{
    kvcl_owner_t      *pool = work->pool;
    kvcl_owner_node_t *node = kvcl_owner_find(pool->store, key, pool);
    kvcl_slot_t       *slot;

    if (node == NULL) {
        return false;
    }
    slot        = &pool->array[kvcl_owner_slot(node)];
    slot->flags = (uint8_t)((slot->flags & ~KVCL_LOC_COPIES_MASK) | ((work->copies - 1) << KVCL_LOC_COPIES_SHIFT));
    rec->key    = *key;
    rec->loc    = (kvcl_dir_loc_t){.rank = pool->slots.rank, .incarnation = pool->slots.incarnation,
                                   .cache = pool->slots.cache, .flags = slot->flags, .slot = kvcl_owner_slot(node),
                                   .len = (uint32_t)kvcl_owner_bytes(pool),
                                   .gen = kvcl_slots_gen(&pool->slots, kvcl_owner_slot(node)), .checksum = sum};
    return true;
}

void kvcl_put_publish(kvcl_put_work_t *work, kvcl_put_out_t *out)
{
    size_t i, end = work->n_todo, first;

    kvcl_assert_locked(work->pool->store->ctx);
    for (i = 0; work->instead && (i < work->n_todo); ++i) { /* blocks that were published here since */
        (void)kvcl_discard_key(work->pool->store, &work->keys[i]);
    }
    first = work->n_todo - publish_new(work);
    for (i = 0; i < work->n_held; ++i) {
        uint32_t item = held_item(work, i);
        if (publish_held(work, &work->keys[item], work->recs[work->n_todo + i].loc.checksum, &work->recs[end])) {
            work->from[end++] = item;
        }
    }
    memcpy(work->from + first, work->todo + first, (work->n_todo - first) * sizeof(*work->from));
    *out = (kvcl_put_out_t){.recs = work->recs + first, .items = work->from + first, .n = end - first};
}

void kvcl_put_abort(const kvcl_put_work_t *work)
{
    kvcl_store_h store = work->pool->store;
    size_t       i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < work->n_taken; ++i) {
        (void)!kvcl_slots_abort(&work->pool->slots, work->slots[i]);
        kvcl_store_freed(store);
    }
    kvcl_owner_unpromise(work->pool, work->n_todo - work->n_taken);
}

void kvcl_put_count(const kvcl_put_work_t *work, uint8_t *copies)
{
    kvcl_store_h      store = work->pool->store;
    kvcl_owner_node_t *node;
    unsigned          note;
    size_t            i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < work->n; ++i) {
        node      = kvcl_owner_find(store, &work->keys[i], work->pool);
        note      = (node != NULL) ? work->pool->array[kvcl_owner_slot(node)].note & KVCL_NOTE_COPIES : 0;
        copies[i] = (uint8_t)((node == NULL) ? 0 : (note > 1) ? note : 1);
    }
}
