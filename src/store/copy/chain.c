/*
 * More copies of blocks that a put brought into this rank's pool: lists the blocks, and requests copies from other
 * ranks.
 *
 * A chain of R - 1 ranks is requested to fetch the blocks (copy/copy_jobs.c): the first rank from here, each other rank
 * from the one before it, so the bytes leave this rank once. Copies that a chain did not make, because a rank had no
 * room or failed, are requested from other ranks in further rounds (chain_rounds.c), until all copies exist or every
 * rank was tried. The request completes when the directory and every chain have answered; a rank lists its copies
 * before it answers. With KVCL_PUT_STAYS the first chain fetches the caller's blocks (put_stays.c).
 */
#include "config.h"
#include "base/error.h"
#include "store/copy/chain_impl.h"
#include "store/home/follow_views.h"
#include "store/home/paths.h"
#include "store/home/ranks.h"
#include "store/place/choose.h"
#include "store/pool/publish.h"
#include "store/pool/publish_own.h"
#include "store/words.h"

#include <stdio.h>
#include <stdlib.h>

/* Lock held. Store the number of copies with the block, for the next put of its key. */
static void store_counts(kvcl_chain_t *chain)
{
    kvcl_slots_t *slots = &chain->pool->slots;
    size_t       i;

    kvcl_assert_locked(chain->store->ctx);
    for (i = 0; i < chain->n; ++i) {
        const kvcl_dir_loc_t *loc = &chain->recs[i].loc;
        unsigned             own = 1;
        if (kvcl_slots_check(slots, loc->slot, loc->gen, &chain->recs[i].key) == KVCL_OK) {
            uint8_t *note = &slots->slots[loc->slot].note;
            *note = (uint8_t)((*note & ~KVCL_NOTE_COPIES) | chain->made[i]);
        } else if (chain->status != KVCL_OK) {
            own = 0; /* it was not listed, so it is not kept */
        }
        if (chain->user != NULL) {
            chain->user[chain->item[i]] = (uint8_t)(chain->made[i] - 1 + own);
        }
    }
}

/* Fewer ranks than copies is no error; fewer copies than the ranks could hold is one. Without a quorum this rank does
 * not know which ranks there are. */
static kvcl_status_t verdict(kvcl_chain_t *chain)
{
    unsigned can = kvcl_store_places(chain->store, kvcl_owner_bytes(chain->pool)) + 1;
    size_t   i;

    can = (can < chain->copies) ? can : chain->copies;
    for (i = 0; (chain->status == KVCL_OK) && (i < chain->n); ++i) {
        if (chain->made[i] < can) {
            if (chain->refused == KVCL_ERR_TIMED_OUT) { /* that is not the put's deadline */
                kvcl_req_why(&chain->req, "block %u of the put has %u of %u copies: rank %u did not make them in time, "
                             "and no other rank takes them; params.copies has the number of each",
                             chain->item[i], chain->made[i], can, chain->refused_by);
            }
            return (chain->refused != KVCL_OK) ? chain->refused : KVCL_ERR_NO_SPACE;
        }
        if ((chain->made[i] < chain->copies) && !kvcl_views_may_own(chain->store)) {
            return KVCL_ERR_NO_QUORUM;
        }
    }
    return chain->status;
}

void kvcl_chain_end_early(kvcl_chain_early_t *early)
{
    if (early != NULL) {
        kvcl_assert_locked(early->owner->store->ctx);
        kvcl_own_hide(early->owner, early->recs, early->n);
        free(early);
    }
}

void kvcl_chain_part_over(kvcl_chain_t *chain)
{
    kvcl_status_t final;

    kvcl_assert_locked(chain->store->ctx);
    if (--chain->outstanding == 0) {
        store_counts(chain);
        kvcl_chain_end_early(chain->early);
        chain->early = NULL;
        kvcl_owner_pin_recs(chain->pool, chain->recs, chain->n, false);
        --chain->store->ops;
        final = verdict(chain);
        chain->req.timing.bytes = (final == KVCL_OK) ? chain->req.timing.bytes : 0;
        kvcl_req_complete(&chain->req, final);
    }
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_chain_t *chain = kvcl_container_of(req, kvcl_chain_t, req);

    chain->status = (chain->status == KVCL_OK) ? status : chain->status;
    ++chain->outstanding;
    if (chain->fill != NULL) {
        chain->fill->stop(chain->fill, status);
    }
    kvcl_rpcs_stop(&chain->rpcs, status);
    if (chain->pause != NULL) {
        kvcl_store_timer_stop(chain->pause);
        chain->pause = NULL;
        --chain->outstanding;
    }
    kvcl_chain_part_over(chain);
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const kvcl_chain_t *chain = kvcl_container_of((kvcl_req_t *)req, kvcl_chain_t, req);
    size_t             i;

    if (chain->n == 0) {
        snprintf(buf, cap, "kvcl_store_put of %zu blocks, which are being copied into this rank's pool",
                 chain->n_asked);
        return;
    }
    for (i = 0; (i + 1 < chain->n) && (chain->made[i] >= chain->copies); ++i) {
    }
    snprintf(buf, cap, "kvcl_store_put of %zu blocks with %u copies each, number %u of the call, key %016llx..., has "
             "%u", chain->n, chain->copies, chain->item[i], kvcl_key_prefix(&chain->recs[i].key), chain->made[i]);
}

static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    const kvcl_chain_t *chain = kvcl_container_of((kvcl_req_t *)req, kvcl_chain_t, req);

    if ((status == KVCL_ERR_NO_SPACE) && (chain->n == 0)) {
        snprintf(buf, cap, "the pool had room for them when the call was made, but blocks were pinned since; no block "
                 "was put into it: unpin or remove blocks, or open the store with more dram_bytes");
        return true;
    }
    if (status == KVCL_ERR_NO_SPACE) {
        snprintf(buf, cap, "the other ranks' pools have no room for more copies, or not this size of block; "
                 "params.copies has the number of each: unpin or remove blocks there");
        return true;
    }
    if ((status == KVCL_ERR_TIMED_OUT) && (chain->n == 0)) {
        snprintf(buf, cap, "its deadline has passed; no block was put into this rank's pool: raise params.timeout_ns "
                 "(0: KVCL_TIMEOUT)");
        return true;
    }
    return kvcl_store_explain(status, buf, cap);
}

static const kvcl_req_class_t chain_class = {
    .name = "store-put", .stop = stop, .describe = describe, .explain = explain};

static void on_listed(void *arg, kvcl_status_t status)
{
    kvcl_chain_t        *chain = arg;
    kvcl_context_h ctx    = chain->store->ctx;

    kvcl_lock(ctx);
    if ((status < 0) && (chain->status == KVCL_OK)) {
        kvcl_req_keep_sentence(&chain->req); /* the listing's, passed to this callback */
    }
    chain->status = (chain->status == KVCL_OK) ? status : chain->status;
    kvcl_chain_part_over(chain);
    kvcl_unlock(ctx);
}

static kvcl_chain_t *make(kvcl_owner_t *pool, size_t n, unsigned copies, const kvcl_xfer_params_t *p)
{
    const size_t block  = sizeof(kvcl_store_rec_t) + (2 * sizeof(uint32_t)) + 1;
    kvcl_chain_t *chain = malloc(sizeof(*chain) + (n * block) + pool->store->n_ranks);

    if (chain == NULL) {
        return NULL;
    }
    memset(chain, 0, sizeof(*chain)); /* set_blocks() writes the blocks, which may be many, after the call */
    kvcl_list_init(&chain->rpcs);
    chain->store      = pool->store;
    chain->pool       = pool;
    chain->copies     = copies;
    chain->tenant     = p->tenant;
    chain->n_asked    = n;
    chain->recs       = (kvcl_store_rec_t *)(void *)(chain + 1);
    chain->item       = (uint32_t *)(void *)(chain->recs + n);
    chain->order      = chain->item + n;
    chain->made       = (uint8_t *)(chain->order + n);
    chain->tried      = chain->made + n;
    memset(chain->tried, 0, pool->store->n_ranks);
    chain->user       = p->copies;
    chain->timeout_ns = p->timeout_ns;
    return chain;
}

/* Lock held. The timed call includes the homes of its blocks; post_chain() adds the ranks of its chains. */
static void note_homes(kvcl_chain_t *chain)
{
    const kvcl_shard_map_t *map = kvcl_store_shards(chain->store);
    size_t                 i;

    kvcl_assert_locked(chain->store->ctx);
    for (i = 0; i < chain->n; ++i) {
        kvcl_timing_path(&chain->req.timing,
                         kvcl_store_path(chain->store, kvcl_store_home(chain->store, map, &chain->recs[i].key)));
    }
}

/* Lock held. */
static void set_blocks(kvcl_chain_t *chain, const kvcl_store_rec_t *recs, const uint32_t *item, size_t n)
{
    size_t i;

    kvcl_assert_locked(chain->store->ctx);
    for (i = 0; i < n; ++i) {
        chain->recs[i] = recs[i];
        chain->item[i] = item[i];
        chain->made[i] = 1;
    }
    chain->n    = n;
    chain->fill = NULL;
    kvcl_owner_pin_recs(chain->pool, chain->recs, n, true); /* until they have been fetched */
    if (chain->req.timing.begun_ns != 0) {
        note_homes(chain);
    }
}

/* No lock on entry, lock held on return. chain->outstanding counts the listing, and this call. */
static void run(kvcl_chain_t *chain)
{
    kvcl_xfer_params_t inner  = {.size = sizeof(inner), .timeout_ns = chain->timeout_ns, .cb = on_listed,
                                 .cb_arg = chain};
    kvcl_status_t      status = kvcl_publish_start(chain->pool, chain->recs, chain->n, NULL, &inner, NULL);

    kvcl_relock(chain->store->ctx);
    if (status != KVCL_OK) {
        chain->status = (chain->status == KVCL_OK) ? status : chain->status;
        kvcl_chain_part_over(chain);
    }
    if (chain->status == KVCL_OK) {
        kvcl_chain_next_round(chain);
    }
    kvcl_chain_part_over(chain);
}

kvcl_status_t kvcl_chain_open(kvcl_owner_t *pool, kvcl_chain_fill_t *fill, size_t n, unsigned copies,
                              const kvcl_timing_t *timing, const kvcl_xfer_params_t *p, kvcl_req_h *req_p,
                              kvcl_chain_t **chain_p)
{
    kvcl_context_h ctx    = pool->store->ctx;
    kvcl_chain_t   *chain = make(pool, n, copies, p);

    kvcl_assert_locked(ctx);
    if ((chain == NULL) || (kvcl_req_post(&chain->req, ctx, &chain_class, p, req_p) != KVCL_OK)) {
        free(chain);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_put: no memory for copies of %zu blocks", n);
    }
    if (timing != NULL) {
        chain->req.timing = *timing;
    }
    chain->fill        = fill;
    chain->early       = (fill != NULL) ? fill->early : NULL;
    chain->outstanding = 1;
    ++pool->store->ops;
    *chain_p = chain;
    return KVCL_OK;
}

void kvcl_chain_filled(kvcl_chain_t *chain, const kvcl_store_rec_t *recs, const uint32_t *item, size_t n,
                       kvcl_status_t status)
{
    kvcl_assert_locked(chain->store->ctx);
    set_blocks(chain, recs, item, n);
    if (status != KVCL_OK) {
        chain->status = (chain->status == KVCL_OK) ? status : chain->status;
    } else if (n != 0) {
        ++chain->outstanding;
        kvcl_unlock_quietly(chain->store->ctx);
        run(chain);
        return;
    }
    kvcl_chain_part_over(chain);
}

kvcl_status_t kvcl_chain_start(kvcl_owner_t *pool, const kvcl_store_rec_t *recs, const uint32_t *item, size_t n,
                               unsigned copies, const kvcl_timing_t *timing, const kvcl_xfer_params_t *p,
                               kvcl_req_h *req_p)
{
    kvcl_chain_t  *chain;
    kvcl_status_t status;

    kvcl_assert_locked(pool->store->ctx);
    status = kvcl_chain_open(pool, NULL, n, copies, timing, p, req_p, &chain);
    if (status == KVCL_OK) {
        kvcl_chain_filled(chain, recs, item, n, KVCL_OK);
    }
    return status;
}
