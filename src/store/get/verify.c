/*
 * Copying out of local caches and checking checksums, off the engine lock, by any thread that has time: the work of the
 * store's room.
 *
 * A get with work is in the room's list; each turn takes one block of it. `serves` of the source cache holds a local
 * copy's source, as for any reader.
 */
#include "config.h"
#include "store/get/get.h"
#include "store/get/gets.h"
#include "store/pool/publish_own.h"

/* Bytes and their checksum first, then the generation: if it is equal, the bytes are that block's. */
static kvcl_status_t copy_local(const kvcl_get_t *get, const kvcl_get_item_t *item, uint64_t *sum)
{
    const kvcl_dir_loc_t *loc   = kvcl_get_loc(item);
    kvcl_sel_t           from   = {.blocks = &loc->slot, .n_blocks = 1};
    kvcl_sel_t           to     = {.blocks = &item->id, .n_blocks = 1};
    kvcl_side_t          src    = kvcl_cache_side(item->src, &from);
    kvcl_side_t          dst    = kvcl_cache_side(get->cache, &to);
    kvcl_status_t        status = kvcl_side_check(&src);

    if (status == KVCL_OK) {
        status = kvcl_side_copy_sums(&dst, &src, sum);
    }
    if (status != KVCL_OK) {
        return status;
    }
    return kvcl_slots_gen_is(&item->src->gens[loc->slot], loc->gen) ? KVCL_OK : KVCL_ERR_STALE;
}

kvcl_status_t kvcl_verify_item(const kvcl_get_t *get, kvcl_get_item_t *item)
{
    const kvcl_dir_loc_t *loc     = kvcl_get_loc(item);
    bool                 summed   = (loc->flags & KVCL_LOC_SUMMED);
    bool                 in_place = (item->src == get->cache) && (loc->slot == item->id); /* it need not be copied */
    kvcl_status_t        status   = KVCL_OK;
    uint64_t             sum      = 0;

    if ((item->src != NULL) && !in_place) {
        status = copy_local(get, item, summed ? &sum : NULL);
    } else if (summed) {
        sum = kvcl_store_block_sum(get->cache, item->id);
    }
    item->wrong = (status == KVCL_OK) && summed && (sum != loc->checksum);
    return item->wrong ? KVCL_ERR_IO : status;
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

bool kvcl_verify_work(kvcl_context_h ctx)
{
    kvcl_list_t     *verifies = &kvcl_store_room(ctx)->verifies;
    kvcl_get_t      *get;
    kvcl_get_item_t *item;
    kvcl_status_t   status;
    uint32_t        i;

    if (kvcl_list_is_empty(verifies)) {
        return false;
    }
    get  = kvcl_list_head(verifies, kvcl_get_t, verify_link);
    i    = get->todo[--get->n_todo];
    item = &get->items[i];
    if (get->n_todo == 0) {
        kvcl_list_del(&get->verify_link);
    }
    kvcl_unlock_quietly(ctx);
    status = kvcl_verify_item(get, item);
    kvcl_relock(ctx);
    release_source(item);
    kvcl_get_result(get, i, status);
    --get->outstanding;
    get->advance(get);
    return true;
}
