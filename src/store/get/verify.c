/*
 * Copying out of local caches and checking checksums, off the engine lock, by any thread that has time: the work of the
 * store's room.
 *
 * A get with work is in the room's list; each turn takes blocks of it that have the same source, as many as a slice of
 * a copy has (xfer/copy.h). `serves` of the source cache holds a local copy's source, as for any reader.
 */
#include "config.h"
#include "store/get/get.h"
#include "store/get/gets.h"
#include "store/pool/publish_own.h"
#include "xfer/copy.h"

enum { BATCH = 128 };

/* Items of one get, copied out of one cache (src), or verified where they are (src is NULL). */
typedef struct batch {
    kvcl_get_t    *get;
    kvcl_cache_h  src;
    size_t        n;
    uint32_t      items[BATCH];
    kvcl_status_t status[BATCH];
} batch_t;

/* The bytes are not the block's if the generation is another one after the copy. */
static kvcl_status_t check_gen(kvcl_cache_h src, const kvcl_dir_loc_t *loc)
{
    return kvcl_slots_gen_is(&src->gens[loc->slot], loc->gen) ? KVCL_OK : KVCL_ERR_STALE;
}

static bool is_summed(const kvcl_get_item_t *item)
{
    return (kvcl_get_loc(item)->flags & KVCL_LOC_SUMMED) != 0;
}

/* The cache that the item is copied from; NULL: its bytes are at their place. */
static kvcl_cache_h copied_from(const kvcl_get_t *get, const kvcl_get_item_t *item)
{
    return ((item->src == get->cache) && (kvcl_get_loc(item)->slot == item->id)) ? NULL : item->src;
}

/* Copies n blocks; sums: one each. */
static kvcl_status_t copy_blocks(const kvcl_get_t *get, kvcl_cache_h src, const uint32_t *slots, const uint32_t *ids,
                                 size_t n, uint64_t *sums)
{
    const bool    large  = (kvcl_bulk_how(get->n * get->cache->shape.block_bytes) == KVCL_BULK_LARGE);
    kvcl_sel_t    from   = {.blocks = slots, .n_blocks = n};
    kvcl_sel_t    to     = {.blocks = ids, .n_blocks = n};
    kvcl_side_t   source = kvcl_cache_side(src, &from);
    kvcl_side_t   dst    = kvcl_cache_side(get->cache, &to);
    kvcl_status_t status = kvcl_side_check(&source);

    if (status != KVCL_OK) {
        return status;
    }
    if (!large) {
        return kvcl_side_copy_sums(&dst, &source, sums);
    }
    status = kvcl_side_copy_sums_large(&dst, &source, sums);
    kvcl_bulk_end();
    return status;
}

kvcl_status_t kvcl_verify_sum(kvcl_get_item_t *item, uint64_t sum)
{
    item->wrong = (sum != kvcl_get_loc(item)->checksum);
    return item->wrong ? KVCL_ERR_IO : KVCL_OK;
}

kvcl_status_t kvcl_verify_item(const kvcl_get_t *get, kvcl_get_item_t *item)
{
    const kvcl_dir_loc_t *loc   = kvcl_get_loc(item);
    const bool           summed = is_summed(item);
    kvcl_cache_h         src    = copied_from(get, item);
    kvcl_status_t        status = KVCL_OK;
    uint64_t             sum    = 0;

    if (src != NULL) {
        status = copy_blocks(get, src, &loc->slot, &item->id, 1, summed ? &sum : NULL);
        status = (status == KVCL_OK) ? check_gen(src, loc) : status;
    } else if (summed) {
        sum = kvcl_store_block_sum(get->cache, item->id);
    }
    return ((status == KVCL_OK) && summed) ? kvcl_verify_sum(item, sum) : status;
}

/* No lock. False: the copy failed, and no item was changed. */
static bool verify_copied(batch_t *batch)
{
    kvcl_get_t      *get = batch->get;
    uint32_t        slots[BATCH], ids[BATCH];
    uint64_t        sums[BATCH];
    bool            summed = false;
    kvcl_get_item_t *item;
    size_t          i;

    for (i = 0; i < batch->n; ++i) {
        item     = &get->items[batch->items[i]];
        slots[i] = kvcl_get_loc(item)->slot;
        ids[i]   = item->id;
        summed   = summed || is_summed(item);
    }
    if (copy_blocks(get, batch->src, slots, ids, batch->n, summed ? sums : NULL) != KVCL_OK) {
        return false;
    }
    for (i = 0; i < batch->n; ++i) {
        item             = &get->items[batch->items[i]];
        batch->status[i] = check_gen(batch->src, kvcl_get_loc(item));
        if ((batch->status[i] == KVCL_OK) && is_summed(item)) {
            batch->status[i] = kvcl_verify_sum(item, sums[i]);
        }
    }
    return true;
}

/* No lock. One by one where a copy of all fails, so that one block's failure is not another's. */
static void verify_batch(batch_t *batch)
{
    size_t i;

    if ((batch->src != NULL) && verify_copied(batch)) {
        return;
    }
    for (i = 0; i < batch->n; ++i) {
        batch->status[i] = kvcl_verify_item(batch->get, &batch->get->items[batch->items[i]]);
    }
}

void kvcl_verify_push(kvcl_get_t *get, uint32_t item)
{
    kvcl_context_h ctx = get->store->ctx;

    kvcl_assert_locked(ctx);
    if (get->n_todo == 0) {
        kvcl_list_add_tail(&kvcl_store_room(ctx)->verifies, &get->verify_link);
    }
    get->todo[get->n_todo++] = item;
    ++get->outstanding;
    if ((get->n_todo == 1) && ctx->engine.polling && (ctx->engine.calling == 0)) {
        kvcl_engine_notify(ctx); /* a waiting thread takes it: to wake the other one costs more than a block */
    } else {
        kvcl_engine_kick(ctx);
    }
}

static void release_source(kvcl_get_item_t *item)
{
    if (item->src != NULL) {
        --item->src->serves;
        item->src = NULL;
    }
}

void kvcl_verify_drop(kvcl_get_t *get)
{
    kvcl_assert_locked(get->store->ctx);
    while (get->n_todo > 0) {
        release_source(&get->items[get->todo[--get->n_todo]]);
        --get->outstanding;
    }
    kvcl_list_del(&get->verify_link);
}

/* Lock held. The next blocks of a get, which has some. */
static void take_batch(kvcl_get_t *get, batch_t *batch)
{
    size_t most = kvcl_copy_slice_blocks(get->cache->shape.block_bytes);

    kvcl_assert_locked(get->store->ctx);
    most       = (most < BATCH) ? most : BATCH;
    batch->get = get;
    batch->n   = 0;
    batch->src = copied_from(get, &get->items[get->todo[get->n_todo - 1]]);
    while ((get->n_todo > 0) && (batch->n < most) &&
           (copied_from(get, &get->items[get->todo[get->n_todo - 1]]) == batch->src)) {
        batch->items[batch->n++] = get->todo[--get->n_todo];
    }
    if (get->n_todo == 0) {
        kvcl_list_del(&get->verify_link);
    }
}

bool kvcl_verify_work(kvcl_context_h ctx)
{
    kvcl_list_t *verifies = &kvcl_store_room(ctx)->verifies;
    kvcl_get_t  *get;
    batch_t     batch;
    size_t      i;

    if (kvcl_list_is_empty(verifies)) {
        return false;
    }
    get = kvcl_list_head(verifies, kvcl_get_t, verify_link);
    take_batch(get, &batch);
    kvcl_unlock_quietly(ctx);
    verify_batch(&batch);
    kvcl_relock(ctx);
    for (i = 0; i < batch.n; ++i) {
        release_source(&get->items[batch.items[i]]);
        kvcl_get_result(get, batch.items[i], batch.status[i]);
        --get->outstanding;
    }
    get->advance(get);
    return true;
}
