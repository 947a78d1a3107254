/*
 * Copying out of local caches and checking checksums, off the engine lock, by whoever has time: the store room's work.
 *
 * A get with something to do is in the room's list; each turn takes one block of it. The source of a local copy is
 * held by its `serves`, as for any reader.
 */
#include "config.h"
#include "store/get.h"

/* Bytes first, then the generation word: equal means that they are that block's. */
static kvcl_status_t copy_local(const kvcl_get_t *get, const kvcl_get_item_t *item)
{
    const kvcl_dir_loc_t *loc = &item->locs[item->cur];
    kvcl_sel_t           from = {.blocks = &loc->slot, .n_blocks = 1};
    kvcl_sel_t           to   = {.blocks = &item->id, .n_blocks = 1};
    kvcl_side_t          src  = kvcl_cache_side(item->src, &from);
    kvcl_side_t          dst  = kvcl_cache_side(get->cache, &to);
    kvcl_runs_t          runs;
    kvcl_status_t        status = kvcl_side_check(&src);

    if ((item->src == get->cache) && (loc->slot == item->id)) {
        return KVCL_OK; /* it is there */
    }
    if (status == KVCL_OK) {
        status = kvcl_runs_init(&runs, &dst, &src, KVCL_RUNS_ANY_ORDER);
    }
    if (status != KVCL_OK) {
        return status;
    }
    status = kvcl_runs_copy_racy(&runs, 0, kvcl_runs_bytes(&runs));
    if (status != KVCL_OK) {
        return status;
    }
    return kvcl_slots_gen_is(&item->src->gens[loc->slot], loc->gen) ? KVCL_OK : KVCL_ERR_STALE;
}

kvcl_status_t kvcl_verify_item(const kvcl_get_t *get, const kvcl_get_item_t *item)
{
    const kvcl_dir_loc_t *loc   = &item->locs[item->cur];
    kvcl_status_t        status = (item->src != NULL) ? copy_local(get, item) : KVCL_OK;

    if ((status == KVCL_OK) && (loc->flags & KVCL_LOC_SUMMED) &&
        (kvcl_store_block_sum(get->cache, item->id) != loc->checksum)) {
        status = KVCL_ERR_IO;
    }
    return status;
}

void kvcl_verify_push(kvcl_get_t *get, uint32_t item)
{
    kvcl_context_h ctx = get->store->ctx;

    if (get->n_todo == 0) {
        kvcl_list_add_tail(&kvcl_store_room(ctx)->verifies, &get->verify_link);
        kvcl_engine_kick(ctx);
    }
    get->todo[get->n_todo++] = item;
    ++get->outstanding;
}

static void let_source_go(kvcl_get_item_t *item)
{
    if (item->src != NULL) {
        --item->src->serves;
        item->src = NULL;
    }
}

void kvcl_verify_drop(kvcl_get_t *get)
{
    while (get->n_todo > 0) {
        let_source_go(&get->items[get->todo[--get->n_todo]]);
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
    pthread_mutex_unlock(&ctx->engine.lock);
    status = kvcl_verify_item(get, item);
    pthread_mutex_lock(&ctx->engine.lock);
    let_source_go(item);
    kvcl_get_result(get, i, status);
    --get->outstanding;
    kvcl_get_advance(get);
    return true;
}
