/*
 * Puts into other ranks' pools: by a rank whose pool has no blocks of this size, or to a rank that the caller names.
 *
 * The blocks stay in the caller's cache. They are readable there, by slot and generation, for any rank that requests
 * them, but no home lists them. Ranks with pools, the nearest first, fetch them as copies (copy/copy_jobs.c), list
 * these, and send them on along the chain. Copies that a rank did not make are requested from others, in rounds. When
 * the request ends the blocks are hidden again: a rank that is late finds a new generation and keeps none of the bytes.
 *
 * A put, but not an upsert, first queries where the keys are: blocks that enough pools hold already are skipped.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/copy/copy_jobs.h"
#include "store/copy/put_far.h"
#include "store/home/find.h"
#include "store/home/ranks.h"
#include "store/home/timer.h"
#include "store/pool/publish_own.h"

#include <stdlib.h>

#define BUSY_PAUSE_NS (5 * KVCL_NS_PER_MS)
#define ROOM_PAUSE_NS (20 * KVCL_NS_PER_MS)

typedef struct far {
    kvcl_call_t        call;
    kvcl_find_t        find;
    kvcl_owner_t       *owner;     /* of the caller's cache */
    uint64_t           bytes;      /* of one block */
    unsigned           copies;     /* wanted */
    uint64_t           tenant;
    int                to_rank;    /* the rank that gets the first copies; -1: the nearest */
    bool               waits;      /* for room (KVCL_PUT_WAIT) */
    bool               shown;      /* the blocks are readable for other ranks */
    bool               counted;    /* made[] counts the copies that existed before */
    bool               busy;       /* a rank was busy in this round */
    kvcl_store_timer_t *pause;
    kvcl_status_t      refused;    /* the last reason why a copy was not made */
    int                refused_by;
    size_t             n;
    uint8_t            *copies_of; /* the user's array, or NULL; each as well */
    kvcl_status_t      *each;
    kvcl_store_rec_t   *recs;      /* n: the readable blocks; all arrays are part of this allocation */
    kvcl_found_t       *found;     /* n; all empty for an upsert */
    kvcl_key_t         *keys;      /* n */
    uint32_t           *order;     /* n: the blocks of this round */
    uint8_t            *flags;     /* n */
    uint8_t            *made;      /* n: copies in pools */
    uint8_t            *tried;     /* one byte a rank */
} far_t;

/* ---- rounds: lock held ---- */

/* How many pools hold it, in this size. */
static unsigned in_pools(const far_t *far, const kvcl_found_t *found)
{
    unsigned n = 0, i, j;

    for (i = 0; i < found->n; ++i) {
        const kvcl_dir_loc_t *loc = &found->locs[i];
        for (j = 0; (j < i) && (found->locs[j].rank != loc->rank); ++j) {
        }
        n += ((j == i) && (loc->len == far->bytes) && ((loc->flags & KVCL_DIR_TIER_MASK) != KVCL_DIR_TIER_CACHE) &&
              ((far->to_rank < 0) || (loc->rank == (unsigned)far->to_rank))) ? 1 : 0;
    }
    return (n < far->copies) ? n : far->copies;
}

/* Which blocks lack copies; *most_p: the most that one of them lacks. */
static uint32_t lacking(far_t *far, unsigned *most_p)
{
    uint32_t n = 0;
    size_t   i;

    *most_p = 0;
    for (i = 0; i < far->n; ++i) {
        if (far->made[i] < far->copies) {
            far->order[n++] = (uint32_t)i;
            *most_p = (far->copies - far->made[i] > *most_p) ? far->copies - far->made[i] : *most_p;
        }
    }
    return n;
}

static void on_copied(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    far_t            *far  = rpc->arg;
    const uint8_t    *made = (const uint8_t *)data + sizeof(kvcl_copy_tail_t);
    kvcl_copy_tail_t tail;
    uint32_t         taken = 0, i;

    (void)len; /* kinds.c: checked lengths */
    if (status == KVCL_OK) {
        memcpy(&tail, data, sizeof(tail));
        for (i = 0; i < rpc->n; ++i) {
            uint8_t *at = &far->made[rpc->order[i]];
            *at = (uint8_t)((made[i] < far->copies - *at) ? *at + made[i] : far->copies);
            taken += (made[i] != 0) ? 1 : 0;
        }
        kvcl_place_took(&far->call.store->places[rpc->rank], taken * far->bytes, tail.pool_free);
        status = (taken < rpc->n) ? KVCL_ERR_NO_SPACE : KVCL_OK;
    } else if (status == KVCL_ERR_BUSY) {
        far->busy             = true;
        far->tried[rpc->rank] = 0;
    } else if ((status == KVCL_ERR_TIMED_OUT) && (far->call.stopped == KVCL_OK)) {
        kvcl_store_suspect(far->call.store, rpc->rank);
    }
    if (status != KVCL_OK) {
        far->refused    = status;
        far->refused_by = (int)rpc->rank;
    }
    kvcl_call_over(&far->call);
}

/* Post one chain: these n blocks (order[]), these ranks. */
static void post_chain(far_t *far, uint32_t n, const uint16_t *ranks, unsigned places)
{
    kvcl_copy_head_t head = {.copies = (uint8_t)far->copies, .tenant = far->tenant, .n_next = (uint8_t)(places - 1),
                             .flags = KVCL_COPY_UNLISTED};
    uint32_t         from, some;
    kvcl_rpc_t       *rpc;

    memcpy(head.next, ranks + 1, head.n_next * sizeof(ranks[0]));
    for (from = 0; from < n; from += some) {
        some = (n - from < KVCL_COPY_MAX) ? n - from : KVCL_COPY_MAX;
        rpc  = kvcl_copy_request(far->call.store, ranks[0], &head, far->recs, far->order + from, some);
        if (rpc == NULL) {
            far->refused    = KVCL_ERR_NO_MEMORY;
            far->refused_by = (int)ranks[0];
            break;
        }
        rpc->arg  = far;
        rpc->done = on_copied;
        kvcl_call_post(&far->call, rpc, places * kvcl_copy_time(far->call.store, some, far->bytes), true);
    }
}

static void after_pause(void *arg)
{
    far_t *far = arg;

    far->pause = NULL;
    kvcl_call_over(&far->call);
}

static bool pause_for(far_t *far, uint64_t pause_ns)
{
    far->busy  = false;
    far->pause = kvcl_store_timer_start(far->call.store, pause_ns, after_pause, far);
    far->call.outstanding += (far->pause != NULL) ? 1 : 0;
    return far->pause != NULL;
}

/* Choose the ranks of the next chain. A named rank is the first, and no other rank replaces it. */
static unsigned choose(far_t *far, unsigned most, uint16_t *ranks)
{
    kvcl_store_h store = far->call.store;

    most = (most < KVCL_DIR_LOCS_MAX - 1) ? most : KVCL_DIR_LOCS_MAX - 1;
    if (far->to_rank < 0) {
        return kvcl_store_place_near(store, far->bytes, far->tried, most, ranks);
    }
    if (far->tried[far->to_rank]) {
        return 0;
    }
    far->tried[far->to_rank] = 1;
    ranks[0]                 = (uint16_t)far->to_rank;
    return 1 + ((most > 1) ? kvcl_store_place(store, far->bytes, far->tried, most - 1, ranks + 1) : 0);
}

static bool next(kvcl_call_t *call)
{
    far_t    *far = kvcl_container_of(call, far_t, call);
    uint16_t ranks[KVCL_DIR_LOCS_MAX];
    unsigned most, places, i;
    uint32_t n;
    size_t   k;

    if (!far->counted && kvcl_find_round(&far->find)) {
        return true;
    }
    for (k = 0; !far->counted && (k < far->n); ++k) {
        far->made[k] = (uint8_t)in_pools(far, &far->found[k]);
    }
    far->counted = true;
    n            = lacking(far, &most);
    if (n == 0) {
        return false;
    }
    if (far->busy) {
        return pause_for(far, BUSY_PAUSE_NS);
    }
    places = choose(far, most, ranks);
    if ((places == 0) && far->waits && (far->refused == KVCL_ERR_NO_SPACE)) {
        memset(far->tried, 0, call->store->n_ranks);
        return pause_for(far, ROOM_PAUSE_NS);
    }
    for (i = 0; i < places; ++i) {
        far->tried[ranks[i]] = 1;
    }
    if (places != 0) {
        post_chain(far, n, ranks, places);
    }
    return places != 0;
}

static void halt(kvcl_call_t *call)
{
    far_t *far = kvcl_container_of(call, far_t, call);

    if (far->pause != NULL) {
        kvcl_store_timer_stop(far->pause);
        after_pause(far);
    }
}

/* Fewer ranks than copies is no error; fewer copies than the ranks could hold is one. */
static kvcl_status_t verdict(far_t *far)
{
    unsigned can = kvcl_store_places(far->call.store, far->bytes);
    size_t   i;

    can = (can < far->copies) ? can : far->copies;
    can = (can == 0) ? 1 : can;
    for (i = 0; i < far->n; ++i) {
        if (far->made[i] < can) {
            if (far->refused_by < 0) {
                kvcl_req_why(&far->call.req, "no rank that has a pool for such blocks answers");
            } else {
                kvcl_req_why(&far->call.req, "block %zu of the put has %u of %u copies; rank %d refused one: %s", i,
                             far->made[i], can, far->refused_by, kvcl_status_text(far->refused));
            }
            return (far->refused != KVCL_OK) ? far->refused : KVCL_ERR_NO_SPACE;
        }
    }
    return KVCL_OK;
}

static kvcl_status_t end(kvcl_call_t *call)
{
    far_t         *far   = kvcl_container_of(call, far_t, call);
    kvcl_status_t status = (call->stopped != KVCL_OK) ? call->stopped : verdict(far);
    size_t        i;

    kvcl_own_hide(call->store, far->owner, far->recs, far->n);
    far->shown = false;
    for (i = 0; i < far->n; ++i) {
        if (far->copies_of != NULL) {
            far->copies_of[i] = far->made[i];
        }
        if (far->each != NULL) {
            far->each[i] = (far->made[i] != 0) ? KVCL_OK : status;
        }
    }
    return status;
}

static void free_far(kvcl_call_t *call)
{
    far_t          *far = kvcl_container_of(call, far_t, call);
    kvcl_context_h ctx  = call->store->ctx;

    if (far->shown) { /* the call never started */
        kvcl_lock(ctx);
        kvcl_own_hide(call->store, far->owner, far->recs, far->n);
        kvcl_unlock(ctx);
    }
    kvcl_find_free(&far->find);
    free(far);
}

/* ---- the call ---- */

static far_t *make(kvcl_store_h store, const kvcl_key_t *keys, size_t n)
{
    size_t each = sizeof(kvcl_store_rec_t) + sizeof(kvcl_found_t) + sizeof(kvcl_key_t) + sizeof(uint32_t) + 2;
    far_t  *far = calloc(1, sizeof(*far) + (n * each) + store->n_ranks);
    size_t i;

    if (far == NULL) {
        return NULL;
    }
    far->n     = n;
    far->recs  = (kvcl_store_rec_t *)(void *)(far + 1);
    far->found = (kvcl_found_t *)(void *)(far->recs + n);
    far->keys  = (kvcl_key_t *)(void *)(far->found + n);
    far->order = (uint32_t *)(void *)(far->keys + n);
    far->flags = (uint8_t *)(far->order + n);
    far->made  = far->flags + n;
    far->tried = far->made + n;
    for (i = 0; i < n; ++i) {
        far->keys[i]     = keys[i];
        far->recs[i].key = keys[i];
    }
    return far;
}

bool kvcl_put_is_far(const struct kvcl_store *store, uint64_t bytes, const kvcl_xfer_params_t *p)
{
    uint32_t i;

    if (p->flags & KVCL_PUT_TO) {
        return p->to_rank != store->me;
    }
    for (i = 0; (store->pool != NULL) && (i < store->n_ranks) && !kvcl_store_takes(store, i, bytes); ++i) {
    }
    return (kvcl_pool_for(store, bytes) == NULL) && (i < store->n_ranks); /* else no rank has such blocks */
}

static kvcl_status_t check(kvcl_store_h store, uint64_t bytes, const kvcl_xfer_params_t *p, const char *name)
{
    uint32_t i;

    if ((p->flags & KVCL_PUT_TO) && (p->to_rank >= store->n_ranks)) {
        return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "%s: to_rank is %llu, of a store over %u ranks", name,
                         (unsigned long long)p->to_rank, store->n_ranks);
    }
    if ((p->flags & KVCL_PUT_TO) && !kvcl_store_takes(store, (uint32_t)p->to_rank, bytes)) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: rank %llu has no pool with blocks of %llu bytes", name,
                         (unsigned long long)p->to_rank, (unsigned long long)bytes);
    }
    for (i = 0; (i < store->n_ranks) && !kvcl_store_takes(store, i, bytes); ++i) {
    }
    return (i < store->n_ranks)
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: no rank of the store has a pool with blocks of %llu bytes: open "
                           "one with dram_bytes and this block size", name, (unsigned long long)bytes);
}

kvcl_status_t kvcl_put_far(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                           const uint32_t *ids, const kvcl_xfer_params_t *p, bool instead, const char *name,
                           kvcl_req_h *req_p)
{
    kvcl_status_t status = check(store, cache->shape.block_bytes, p, name);
    far_t         *far;
    bool          query   = false;

    if ((status == KVCL_OK) && (n == 0)) {
        return kvcl_req_instant(store->ctx, KVCL_OK, p->cb, p->cb_arg, req_p);
    }
    far = (status == KVCL_OK) ? make(store, keys, n) : NULL;
    if (far == NULL) {
        return (status == KVCL_OK) ? kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu blocks", name, n) : status;
    }
    status = kvcl_own_show(store, cache, ids, n, far->recs, &far->owner, name);
    if (status != KVCL_OK) {
        free(far);
        return status;
    }
    if (!instead) {
        (void)kvcl_find_here(store, far->keys, n, false, far->flags, far->found, &query);
    }
    far->shown = true;
    far->find  = (kvcl_find_t){.call = &far->call, .keys = far->keys, .n = n, .flags = far->flags, .found = far->found};
    far->bytes      = cache->shape.block_bytes;
    far->copies     = (unsigned)((p->replicas != 0) ? p->replicas : store->replicas);
    far->tenant     = p->tenant;
    far->to_rank    = (p->flags & KVCL_PUT_TO) ? (int)p->to_rank : -1;
    far->waits      = (p->flags & KVCL_PUT_WAIT) != 0;
    far->refused_by = -1;
    far->copies_of  = p->copies;
    far->each       = p->status;
    far->call.next  = next;
    far->call.end   = end;
    far->call.halt  = halt;
    far->call.free  = free_far;
    return kvcl_call_start(&far->call, store, name, p, req_p);
}
