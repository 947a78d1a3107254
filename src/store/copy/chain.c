/*
 * More copies of blocks that a put brought into this rank's pool: lists the blocks, and requests copies from other
 * ranks.
 *
 * A chain of R - 1 ranks is requested to fetch the blocks (copy/copy_jobs.c): the first rank from here, each other rank
 * from the one before it, so the bytes leave this rank once. Copies that a chain did not make, because a rank had no
 * room or failed, are requested from other ranks in further rounds, until all copies exist or every rank was tried. The
 * request completes when the directory and every chain have answered; a rank lists its copies before it answers.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/copy/chain.h"
#include "store/copy/copy_jobs.h"
#include "store/home/ranks.h"
#include "store/home/timer.h"
#include "store/words.h"
#include "store/store.h"
#include "store/home/paths.h"
#include "store/pool/publish.h"
#include "xfer/params.h"

#include <stdio.h>
#include <stdlib.h>

#define BUSY_PAUSE_NS (5 * KVCL_NS_PER_MS)

typedef struct chain {
    kvcl_req_t         req;
    kvcl_store_h       store;
    kvcl_owner_t       *pool;   /* the class of the pool that holds the blocks */
    kvcl_list_t        rpcs;
    unsigned           outstanding;
    unsigned           copies;  /* wanted, this rank's included */
    uint64_t           tenant;
    bool               posting;
    bool               busy;    /* a rank was busy in this round */
    kvcl_store_timer_t *pause;  /* until the busy ranks are tried again */
    kvcl_status_t      status;  /* of the listing, or why the put was stopped */
    kvcl_status_t      refused; /* the last reason why a copy was not made */
    size_t             n;
    kvcl_store_rec_t   *recs;   /* n: in this rank's pool; all arrays are part of this allocation */
    uint32_t           *item;   /* n: their index in the user's call */
    uint32_t           *order;  /* n: the blocks of this round */
    uint8_t            *made;   /* n: copies, this rank's included */
    uint8_t            *tried;  /* one byte a rank */
    uint8_t            *user;   /* the user's array, or NULL */
} chain_t;

static void next_round(chain_t *chain);

/* Lock held. Store the number of copies with the block, for the next put of its key. */
static void store_counts(chain_t *chain)
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

/* Fewer ranks than copies is no error; fewer copies than the ranks could hold is one. */
static kvcl_status_t verdict(const chain_t *chain)
{
    unsigned can = kvcl_store_places(chain->store, kvcl_owner_bytes(chain->pool)) + 1;
    size_t   i;

    can = (can < chain->copies) ? can : chain->copies;
    for (i = 0; (chain->status == KVCL_OK) && (i < chain->n); ++i) {
        if (chain->made[i] < can) {
            return (chain->refused != KVCL_OK) ? chain->refused : KVCL_ERR_NO_SPACE;
        }
    }
    return chain->status;
}

/* Lock held. A part has ended. */
static void part_over(chain_t *chain)
{
    kvcl_assert_locked(chain->store->ctx);
    if (--chain->outstanding == 0) {
        store_counts(chain);
        kvcl_owner_pin_recs(chain->pool, chain->recs, chain->n, false);
        --chain->store->ops;
        kvcl_req_complete(&chain->req, verdict(chain));
    }
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    chain_t *chain = kvcl_container_of(req, chain_t, req);

    chain->status = (chain->status == KVCL_OK) ? status : chain->status;
    ++chain->outstanding;
    kvcl_rpcs_stop(&chain->rpcs, status);
    if (chain->pause != NULL) {
        kvcl_store_timer_stop(chain->pause);
        chain->pause = NULL;
        --chain->outstanding;
    }
    part_over(chain);
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const chain_t *chain = kvcl_container_of((kvcl_req_t *)req, chain_t, req);
    size_t        i;

    for (i = 0; (i + 1 < chain->n) && (chain->made[i] >= chain->copies); ++i) {
    }
    snprintf(buf, cap, "kvcl_store_put of %zu blocks with %u copies each, number %u of the call, key %016llx..., has "
             "%u", chain->n, chain->copies, chain->item[i], kvcl_key_prefix(&chain->recs[i].key), chain->made[i]);
}

static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    if (status == KVCL_ERR_NO_SPACE) {
        snprintf(buf, cap, "the other ranks' pools have no room for more copies, or not this size of block; "
                 "params.copies has the number of each: unpin or remove blocks there");
        return true;
    }
    (void)req;
    return kvcl_store_explain(status, buf, cap);
}

static const kvcl_req_class_t chain_class = {
    .name = "store-put", .stop = stop, .describe = describe, .explain = explain};

static void on_listed(void *arg, kvcl_status_t status)
{
    chain_t        *chain = arg;
    kvcl_context_h ctx    = chain->store->ctx;

    kvcl_lock(ctx);
    if ((status < 0) && (chain->status == KVCL_OK)) {
        kvcl_req_keep_sentence(&chain->req); /* the listing's, passed to this callback */
    }
    chain->status = (chain->status == KVCL_OK) ? status : chain->status;
    part_over(chain);
    kvcl_unlock(ctx);
}

static void on_chain(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    chain_t          *chain = rpc->arg;
    const uint8_t    *made  = (const uint8_t *)data + sizeof(kvcl_copy_tail_t);
    kvcl_copy_tail_t tail;
    uint32_t         taken = 0, i;

    (void)len;
    if (status == KVCL_OK) {
        memcpy(&tail, data, sizeof(tail));
        for (i = 0; i < rpc->n; ++i) {
            uint8_t *at = &chain->made[rpc->order[i]];
            *at = (uint8_t)((made[i] < chain->copies - *at) ? *at + made[i] : chain->copies);
            taken += (made[i] != 0) ? 1 : 0;
        }
        kvcl_place_took(&chain->store->places[rpc->rank], taken * kvcl_owner_bytes(chain->pool), tail.pool_free);
    } else {
        kvcl_log_debug("rank %u takes no copies: %s", rpc->rank, kvcl_status_text(status));
        chain->refused = status;
        if (status == KVCL_ERR_TIMED_OUT) {
            kvcl_store_suspect(chain->store, rpc->rank);
        }
        if (status == KVCL_ERR_BUSY) {
            chain->busy             = true;
            chain->tried[rpc->rank] = 0;
        }
    }
    if ((chain->status == KVCL_OK) && kvcl_list_is_empty(&chain->rpcs) && !chain->posting) {
        next_round(chain);
    }
    part_over(chain);
}

/* Which blocks lack copies; *most_p: the most that one of them lacks. */
static uint32_t lacking(chain_t *chain, unsigned *most_p)
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
static uint8_t least_made(const chain_t *chain, uint32_t n)
{
    uint8_t  least = KVCL_DIR_LOCS_MAX;
    uint32_t i;

    for (i = 0; i < n; ++i) {
        least = (chain->made[chain->order[i]] < least) ? chain->made[chain->order[i]] : least;
    }
    return least;
}

/* Lock held. Post one chain: these n blocks (order[]), these ranks. */
static void post_chain(chain_t *chain, uint32_t n, const uint16_t *ranks, unsigned places)
{
    kvcl_copy_head_t head = {.copies = (uint8_t)chain->copies, .tenant = chain->tenant,
                             .n_next = (uint8_t)(places - 1), .there = least_made(chain, n)};
    uint32_t         from, some;
    kvcl_rpc_t       *rpc;

    kvcl_assert_locked(chain->store->ctx);
    memcpy(head.next, ranks + 1, head.n_next * sizeof(ranks[0]));
    for (from = 0; from < places; ++from) {
        kvcl_timing_path(&chain->req.timing, kvcl_store_path(chain->store, ranks[from]));
    }
    for (from = 0; from < n; from += some) {
        some = (n - from < KVCL_COPY_MAX) ? n - from : KVCL_COPY_MAX;
        rpc  = kvcl_copy_request(chain->store, ranks[0], &head, chain->recs, chain->order + from, some);
        if (rpc == NULL) {
            chain->refused = KVCL_ERR_NO_MEMORY;
            break;
        }
        rpc->arg  = chain;
        rpc->done = on_chain;
        ++chain->outstanding;
        kvcl_rpc_post_watched(rpc, places * kvcl_copy_time(some, kvcl_owner_bytes(chain->pool)), &chain->rpcs);
    }
}

static void after_pause(void *arg)
{
    chain_t *chain = arg;

    chain->pause = NULL;
    if (chain->status == KVCL_OK) {
        next_round(chain);
    }
    part_over(chain);
}

/* Lock held. Every rpc of the round before has ended. Rpcs that fail at once lead to the next round in this loop. */
static void next_round(chain_t *chain)
{
    uint16_t ranks[KVCL_DIR_LOCS_MAX];
    uint32_t n;
    unsigned most, places, i;

    kvcl_assert_locked(chain->store->ctx);
    if (chain->busy) {
        chain->busy         = false;
        chain->pause        = kvcl_store_timer_start(chain->store, BUSY_PAUSE_NS, after_pause, chain);
        chain->outstanding += (chain->pause != NULL) ? 1 : 0;
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
            post_chain(chain, n, ranks, places);
        }
    } while ((places != 0) && !chain->busy && (chain->status == KVCL_OK) && kvcl_list_is_empty(&chain->rpcs));
    chain->posting = false;
}

static chain_t *make(kvcl_owner_t *pool, const kvcl_store_rec_t *recs, const uint32_t *item, size_t n, unsigned copies,
                     const kvcl_xfer_params_t *p)
{
    chain_t *chain = calloc(1, sizeof(*chain) + (n * (sizeof(*recs) + (2 * sizeof(*item)) + 1)) + pool->store->n_ranks);
    size_t  i;

    if (chain == NULL) {
        return NULL;
    }
    kvcl_list_init(&chain->rpcs);
    chain->store       = pool->store;
    chain->pool        = pool;
    chain->copies      = copies;
    chain->tenant      = p->tenant;
    chain->n           = n;
    chain->recs        = (kvcl_store_rec_t *)(void *)(chain + 1);
    chain->item        = (uint32_t *)(void *)(chain->recs + n);
    chain->order       = chain->item + n;
    chain->made        = (uint8_t *)(chain->order + n);
    chain->tried       = chain->made + n;
    chain->user        = p->copies;
    for (i = 0; i < n; ++i) {
        chain->recs[i] = recs[i];
        chain->item[i] = item[i];
        chain->made[i] = 1;
    }
    return chain;
}

/* Lock held. The timed call includes the homes of its blocks; post_chain() adds the ranks of its chains. */
static void note_homes(chain_t *chain)
{
    const kvcl_shard_map_t *map = kvcl_store_shards(chain->store);
    size_t                 i;

    kvcl_assert_locked(chain->store->ctx);
    for (i = 0; i < chain->n; ++i) {
        kvcl_timing_path(&chain->req.timing,
                         kvcl_store_path(chain->store, kvcl_store_home(chain->store, map, &chain->recs[i].key)));
    }
}

kvcl_status_t kvcl_chain_start(kvcl_owner_t *pool, const kvcl_store_rec_t *recs, const uint32_t *item, size_t n,
                               unsigned copies, const kvcl_timing_t *timing, const kvcl_xfer_params_t *p,
                               kvcl_req_h *req_p)
{
    kvcl_store_h       store  = pool->store;
    kvcl_context_h     ctx    = store->ctx;
    chain_t            *chain = (n != 0) ? make(pool, recs, item, n, copies, p) : NULL;
    kvcl_xfer_params_t inner  = {.size = sizeof(inner), .timeout_ns = p->timeout_ns, .cb = on_listed, .cb_arg = chain};
    kvcl_status_t      status;

    if (n == 0) {
        if (timing != NULL) {
            kvcl_timing_end(&ctx->latency, timing);
        }
        return kvcl_req_instant(ctx, KVCL_OK, p->cb, p->cb_arg, req_p);
    }
    if (chain == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_put: no memory for copies of %zu blocks", n);
    }
    kvcl_lock(ctx);
    status = kvcl_req_start(&chain->req, ctx, &chain_class, p->timeout_ns, p->cb, p->cb_arg, req_p != NULL);
    if (status != KVCL_OK) {
        kvcl_unlock(ctx);
        free(chain);
        return kvcl_fail(status, "kvcl_store_put: no memory for a request");
    }
    if (timing != NULL) {
        chain->req.timing = *timing;
        note_homes(chain);
    }
    ++store->ops;
    chain->outstanding = 2; /* the listing, and this call */
    kvcl_owner_pin_recs(pool, chain->recs, n, true); /* until they have been fetched */
    if (req_p != NULL) {
        *req_p = kvcl_req_handle(&chain->req);
    }
    kvcl_unlock(ctx);
    status = kvcl_publish_start(pool, chain->recs, n, NULL, &inner, NULL);
    kvcl_lock(ctx);
    if (status != KVCL_OK) {
        chain->status = (chain->status == KVCL_OK) ? status : chain->status;
        part_over(chain);
    }
    if (chain->status == KVCL_OK) {
        next_round(chain);
    }
    part_over(chain);
    kvcl_unlock(ctx);
    return KVCL_OK;
}
