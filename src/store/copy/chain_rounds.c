/*
 * The rounds of a put's further copies: which ranks are requested to make them, and their answers.
 *
 * Invariant: a rank is requested once for each put, unless it answers that it is busy, or the put waits for a member
 * that does not answer; each RPC, and the pause before ranks are tried again, is a part of the put
 * (chain->outstanding). Locks: the engine lock.
 */
#include "config.h"
#include "base/clock.h"
#include "base/log.h"
#include "member/lease.h"
#include "store/copy/chain_impl.h"
#include "store/copy/copy_jobs.h"
#include "store/home/paths.h"
#include "store/home/ranks.h"
#include "store/place/choose.h"

#include <string.h>

#define PAUSE_NS (5 * KVCL_NS_PER_MS)

/* Are the caller's blocks fetched, not yet the pool's? */
static bool is_early(const kvcl_chain_t *chain)
{
    return (chain->early != NULL) && !chain->early->counted;
}

/* The copies of block i of the RPCs under way. */
static uint8_t *made_of(kvcl_chain_t *chain, uint32_t i)
{
    return is_early(chain) ? &chain->early->made[chain->early->items[i]] : &chain->made[i];
}

/* Take over the numbers of copies that were made of the caller's blocks, once. Returns how many blocks, order[0..), the
 * same ranks are still to fetch. */
static uint32_t count_early(kvcl_chain_t *chain)
{
    const bool early = is_early(chain);
    uint32_t   n     = 0, i;

    for (i = 0; early && (i < chain->n); ++i) {
        uint8_t made = chain->early->made[chain->item[i]];
        chain->made[i]  = (made != 0) ? made : 1;
        chain->order[n] = i;
        n += (made == 0) ? 1 : 0;
    }
    if (early) {
        chain->early->counted = true;
    }
    return (early && (chain->early->places != 0)) ? n : 0;
}

static void on_chain(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_chain_t     *chain = rpc->arg;
    const uint8_t    *made  = (const uint8_t *)data + sizeof(kvcl_copy_tail_t);
    kvcl_copy_tail_t tail;
    uint32_t         taken = 0, i;

    (void)len;
    if (status == KVCL_OK) {
        memcpy(&tail, data, sizeof(tail));
        for (i = 0; i < rpc->n; ++i) {
            uint8_t *at = made_of(chain, rpc->order[i]);
            *at = (uint8_t)((made[i] < chain->copies - *at) ? *at + made[i] : chain->copies);
            taken += (made[i] != 0) ? 1 : 0;
        }
        kvcl_place_took(&chain->store->places[rpc->rank], taken * kvcl_owner_bytes(chain->pool), tail.pool_free);
    } else {
        kvcl_log_debug("rank %u takes no copies: %s", rpc->rank, kvcl_status_text(status));
        chain->refused    = status;
        chain->refused_by = rpc->rank;
        if (status == KVCL_ERR_TIMED_OUT) {
            kvcl_store_suspect(chain->store, rpc->rank);
        }
        if (status == KVCL_ERR_BUSY) {
            chain->busy             = true;
            chain->tried[rpc->rank] = 0;
        }
    }
    if ((chain->status == KVCL_OK) && (chain->fill == NULL) && !chain->posting) {
        kvcl_chain_next_round(chain);
    }
    kvcl_chain_part_over(chain);
}

/* Which blocks lack copies; *most_p: the most that one of them lacks. */
static uint32_t lacking(kvcl_chain_t *chain, unsigned *most_p)
{
    uint32_t n = 0;
    size_t   i;

    *most_p = 0;
    for (i = 0; i < chain->n; ++i) {
        if (chain->made[i] < chain->copies) {
            chain->order[n++] = (uint32_t)i;
            *most_p = (chain->copies - chain->made[i] > *most_p) ? chain->copies - chain->made[i] : *most_p;
        }
    }
    return n;
}

/* The smallest number of copies of these n blocks. */
static uint8_t least_made(const kvcl_chain_t *chain, uint32_t n)
{
    uint8_t  least = KVCL_DIR_LOCS_MAX;
    uint32_t i;

    for (i = 0; i < n; ++i) {
        least = (chain->made[chain->order[i]] < least) ? chain->made[chain->order[i]] : least;
    }
    return least;
}

/* While the pool lacks the blocks, its copies are not counted, and no home lists the blocks. */
void kvcl_chain_post(kvcl_chain_t *chain, uint32_t from, uint32_t n, const uint16_t *ranks, unsigned places)
{
    const bool             early  = is_early(chain);
    const kvcl_store_rec_t *recs  = early ? chain->early->recs : chain->recs;
    const uint32_t         *order = early ? chain->early->order : chain->order;
    kvcl_copy_head_t       head   = {.copies = (uint8_t)chain->copies, .tenant = chain->tenant,
                                     .n_next = (uint8_t)(places - 1), .there = early ? 0 : least_made(chain, n),
                                     .flags = early ? KVCL_COPY_UNLISTED : 0};
    const uint32_t         end    = from + n;
    uint32_t               some, i;
    kvcl_rpc_t             *rpc;

    kvcl_assert_locked(chain->store->ctx);
    memcpy(head.next, ranks + 1, head.n_next * sizeof(ranks[0]));
    for (i = 0; i < places; ++i) {
        kvcl_timing_path(&chain->req.timing, kvcl_store_path(chain->store, ranks[i]));
    }
    for (; from < end; from += some) {
        some = (end - from < KVCL_COPY_MAX) ? end - from : KVCL_COPY_MAX;
        rpc  = kvcl_copy_request(chain->store, ranks[0], &head, recs, order + from, some);
        if (rpc == NULL) {
            chain->refused    = KVCL_ERR_NO_MEMORY;
            chain->refused_by = chain->store->me;
            break;
        }
        rpc->arg  = chain;
        rpc->done = on_chain;
        ++chain->outstanding;
        /* the rank makes the copies of one request after those of the requests before */
        kvcl_rpc_post_watched(rpc, places * kvcl_copy_time(chain->store, from + some, kvcl_owner_bytes(chain->pool)),
                              &chain->rpcs);
    }
}

static void after_pause(void *arg)
{
    kvcl_chain_t *chain = arg;

    chain->pause = NULL;
    if (chain->status == KVCL_OK) {
        kvcl_chain_next_round(chain);
    }
    kvcl_chain_part_over(chain);
}

static void pause_round(kvcl_chain_t *chain)
{
    chain->busy         = false;
    chain->pause        = kvcl_store_timer_start(chain->store, PAUSE_NS, after_pause, chain);
    chain->outstanding += (chain->pause != NULL) ? 1 : 0;
}

/* Rpcs that fail at once lead to the next round in this loop. */
void kvcl_chain_next_round(kvcl_chain_t *chain)
{
    uint16_t ranks[KVCL_DIR_LOCS_MAX];
    uint32_t n;
    unsigned most, places, i;

    kvcl_assert_locked(chain->store->ctx);
    if (!kvcl_list_is_empty(&chain->rpcs) || (chain->pause != NULL)) {
        return; /* their end begins the round */
    }
    n = count_early(chain);
    if (n != 0) {
        chain->posting = true;
        kvcl_chain_post(chain, 0, n, chain->early->ranks, chain->early->places);
        chain->posting = false;
        if (!kvcl_list_is_empty(&chain->rpcs)) {
            return;
        }
    }
    if (chain->busy) {
        pause_round(chain);
        return;
    }
    chain->posting = true;
    do {
        n      = lacking(chain, &most);
        places = (n != 0) ? kvcl_store_place(chain->store, kvcl_owner_bytes(chain->pool), chain->tried, most,
                                              ranks) : 0;
        for (i = 0; i < places; ++i) {
            chain->tried[ranks[i]] = 1;
        }
        if (places != 0) {
            kvcl_chain_post(chain, 0, n, ranks, places);
        }
    } while ((places != 0) && !chain->busy && (chain->status == KVCL_OK) && kvcl_list_is_empty(&chain->rpcs));
    chain->posting = false;
    if ((n != 0) && (places == 0) && (chain->status == KVCL_OK) &&
        kvcl_store_awaits_place(chain->store, kvcl_owner_bytes(chain->pool))) {
        memset(chain->tried, 0, chain->store->n_ranks);
        pause_round(chain);
    } else if ((n != 0) && (places == 0) && kvcl_member_is_excluded(chain->store->ctx)) {
        chain->refused = KVCL_ERR_STALE;
    }
}
