/*
 * Puts with KVCL_PUT_STAYS: other ranks fetch the caller's blocks while this rank's pool is still filled.
 *
 * The call takes the blocks that the pool lacks (pool/publish_own.h). When a piece of them has been filled, its sums
 * are known: its blocks are shown, readable by slot and generation but listed by no home, and one chain of ranks is
 * requested to copy them. Blocks that cannot be shown, and those that the pool had before, are copied from the pool by
 * the same ranks, and what these ranks refuse by others, in rounds (chain_rounds.c), when all are filled and the
 * requests have ended. Invariant: before the put completes the blocks are hidden again; a rank that is late finds a new
 * generation, and keeps none of the bytes.
 */
#include "config.h"
#include "base/error.h"
#include "store/copy/chain_impl.h"
#include "store/copy/put_work.h"
#include "store/home/ranks.h"
#include "store/place/choose.h"
#include "store/pool/publish_own.h"

#include <stdlib.h>
#include <string.h>

/* order[] has the blocks' ids, for the call that takes them. */
static kvcl_chain_early_t *make(const kvcl_put_work_t *work)
{
    const size_t       n      = work->n_todo, each = sizeof(kvcl_store_rec_t) + (2 * sizeof(uint32_t));
    kvcl_chain_early_t *early = malloc(sizeof(*early) + (n * each) + work->n);
    size_t             i;

    if (early == NULL) {
        return NULL;
    }
    *early       = (kvcl_chain_early_t){.n = n};
    early->recs  = (kvcl_store_rec_t *)(void *)(early + 1);
    early->items = (uint32_t *)(void *)(early->recs + n);
    early->order = early->items + n;
    early->made  = (uint8_t *)(early->order + n);
    memset(early->made, 0, work->n);
    for (i = 0; i < n; ++i) {
        early->items[i] = work->todo[i];
        early->made[work->todo[i]] = 1;
        early->order[i] = work->ids[work->todo[i]];
        early->recs[i]  = (kvcl_store_rec_t){.key = work->keys[work->todo[i]], .loc.slot = early->order[i]};
    }
    return early;
}

kvcl_status_t kvcl_stays_take(const kvcl_put_work_t *work, kvcl_chain_early_t **early_p)
{
    kvcl_chain_early_t *early = make(work);
    kvcl_status_t      status;
    size_t             i;

    if (early == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_put: no memory for copies of %zu blocks", work->n);
    }
    status = kvcl_own_take(work->pool->store, work->cache, early->order, early->n, 0, "kvcl_store_put", &early->owner);
    if (status != KVCL_OK) {
        free(early);
        return status;
    }
    for (i = 0; i < early->n; ++i) {
        early->order[i] = (uint32_t)i;
    }
    *early_p = early;
    return KVCL_OK;
}

/* Lock held. The ranks of the chain, the same for all pieces. False: there are none. */
static bool choose(kvcl_chain_t *chain)
{
    kvcl_chain_early_t *early = chain->early;
    unsigned           i;

    kvcl_assert_locked(chain->store->ctx);
    if (early->places == 0) {
        early->places = kvcl_store_place(chain->store, kvcl_owner_bytes(chain->pool), chain->tried, chain->copies - 1,
                                         early->ranks);
        for (i = 0; i < early->places; ++i) {
            chain->tried[early->ranks[i]] = 1;
        }
    }
    return early->places != 0;
}

void kvcl_stays_filled(kvcl_chain_t *chain, const kvcl_put_work_t *work, size_t from, size_t to)
{
    kvcl_chain_early_t *early = chain->early;
    size_t             i;

    kvcl_assert_locked(chain->store->ctx);
    to = (to < early->n) ? to : early->n;
    for (i = from; i < to; ++i) {
        early->recs[i].loc.checksum = work->recs[i].loc.checksum;
    }
    if ((from < to) && choose(chain) && (kvcl_own_show(early->owner, early->recs, early->order + from, to - from,
                                                       "kvcl_store_put") == KVCL_OK)) {
        kvcl_chain_post(chain, (uint32_t)from, (uint32_t)(to - from), early->ranks, early->places);
        return;
    }
    for (i = from; i < to; ++i) {
        early->made[early->items[i]] = 0;
    }
}
