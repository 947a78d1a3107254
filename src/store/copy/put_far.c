/*
 * Puts into other ranks' pools: by a rank whose pool has no blocks of this size, or to a rank that the caller names.
 *
 * The blocks stay in the caller's cache. They are readable there, by slot and generation, for any rank that requests
 * them, but no home lists them. Ranks with pools, the nearest first, fetch them as copies (copy/copy_jobs.c), list
 * these, and send them on along the chain. Copies that a rank did not make are requested from others, in rounds. When
 * the request ends the blocks are hidden again: a rank that is late finds a new generation and keeps none of the bytes.
 *
 * The steps: LOOK up where the keys are (a put, not an upsert), FIND by queries what this rank cannot look up, skip the
 * blocks that enough pools hold already, SUM the others, SHOW them, and COPY, in rounds (put_far_rounds.c). Up to
 * KVCL_INLINE_COPY bytes are looked up and summed inside the call; for more a copy job (xfer/copy.h) does both, and the
 * call only takes the blocks.
 *
 * Locks: the engine lock, which a thread that looks up or sums does not hold.
 */
#include "config.h"
#include "base/error.h"
#include "store/copy/put_far.h"
#include "store/copy/put_far_impl.h"
#include "store/home/ranks.h"
#include "store/pool/publish_own.h"

#include <stdlib.h>

enum { LOOK_SLICE = 512 }; /* keys that one thread looks up at a time */

/* ---- the work of a thread: no lock ---- */

static kvcl_status_t look(kvcl_copy_t *copy, uint64_t from, uint64_t to)
{
    kvcl_far_put_t *far = kvcl_container_of(copy, kvcl_far_put_t, work);
    bool  query;

    (void)kvcl_find_here(far->call.store, far->keys + from, (size_t)(to - from), false, far->flags + from,
                         far->found + from, &query);
    return KVCL_OK;
}

static kvcl_status_t sum(kvcl_copy_t *copy, uint64_t from, uint64_t to)
{
    kvcl_far_put_t *far = kvcl_container_of(copy, kvcl_far_put_t, work);

    for (; from < to; ++from) {
        kvcl_dir_loc_t *loc = &far->recs[far->order[from]].loc;
        loc->checksum = kvcl_store_block_sum(far->owner->cache, loc->slot);
    }
    return KVCL_OK;
}

/* Lock held. */
static void on_worked(kvcl_copy_t *copy, kvcl_status_t status)
{
    kvcl_far_put_t *far = kvcl_container_of(copy, kvcl_far_put_t, work);

    kvcl_assert_locked(far->call.store->ctx);
    (void)status; /* of a stopped call, which knows it */
    far->working = false;
    kvcl_call_over(&far->call);
}

/* Lock held. Does fn for [0, n). */
static bool work(kvcl_far_put_t *far, kvcl_status_t (*fn)(kvcl_copy_t *copy, uint64_t from, uint64_t to),
                 uint64_t slice, uint32_t n)
{
    kvcl_assert_locked(far->call.store->ctx);
    far->work    = (kvcl_copy_t){.part = fn, .slice = slice, .done = on_worked};
    far->working = true;
    ++far->call.outstanding;
    kvcl_copy_start(far->call.store->ctx, &far->work, 0, n);
    return true;
}

/* ---- rounds: lock held ---- */

/* How many pools hold it, in this size. */
static unsigned in_pools(const kvcl_far_put_t *far, const kvcl_found_t *found)
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

/* Which of the blocks are to be copied? False: none. */
static bool count(kvcl_far_put_t *far)
{
    unsigned most;
    size_t   i;

    for (i = 0; i < far->n; ++i) {
        far->made[i] = (uint8_t)in_pools(far, &far->found[i]);
    }
    kvcl_far_lacking(far, &most);
    return far->n_order != 0;
}

static bool show(kvcl_far_put_t *far)
{
    far->failed = kvcl_own_show(far->owner, far->recs, far->order, far->n_order, far->call.name);
    if (far->failed != KVCL_OK) {
        kvcl_req_keep_error(&far->call.req);
    }
    return far->failed == KVCL_OK;
}

static bool next(kvcl_call_t *call)
{
    kvcl_far_put_t *far = kvcl_container_of(call, kvcl_far_put_t, call);

    if (far->step == KVCL_FAR_LOOK) {
        far->step = KVCL_FAR_FIND;
        return work(far, look, LOOK_SLICE, (uint32_t)far->n);
    }
    if (far->step == KVCL_FAR_FIND) {
        if (kvcl_find_round(&far->find)) {
            return true;
        }
        if (!count(far)) {
            return false;
        }
        far->step = far->summed ? KVCL_FAR_SHOW : KVCL_FAR_SUM;
    }
    if (far->step == KVCL_FAR_SUM) {
        far->step = KVCL_FAR_SHOW;
        return work(far, sum, kvcl_copy_slice_blocks(far->bytes), far->n_order);
    }
    if (far->step == KVCL_FAR_SHOW) {
        far->step = KVCL_FAR_COPY;
        if (!show(far)) {
            return false;
        }
    }
    return kvcl_far_round(far);
}

static void halt(kvcl_call_t *call)
{
    kvcl_far_put_t *far = kvcl_container_of(call, kvcl_far_put_t, call);

    if (far->working) {
        kvcl_copy_stop(&far->work, call->stopped);
    }
    kvcl_far_halt(far);
}

static kvcl_status_t end(kvcl_call_t *call)
{
    kvcl_far_put_t *far   = kvcl_container_of(call, kvcl_far_put_t, call);
    kvcl_status_t  status = (call->stopped != KVCL_OK) ? call->stopped : far->failed;
    size_t         i;

    kvcl_own_hide(far->owner, far->recs, far->n);
    far->taken = false;
    status     = (status == KVCL_OK) ? kvcl_far_verdict(far) : status;
    for (i = 0; i < far->n; ++i) {
        if (far->copies_of != NULL) {
            far->copies_of[i] = far->made[i];
        }
        if (far->each != NULL) {
            far->each[i] = (far->made[i] != 0) ? KVCL_OK : status;
        }
    }
    call->req.timing.bytes = (status == KVCL_OK) ? far->n * far->bytes : 0;
    return status;
}

static void free_far(kvcl_call_t *call)
{
    kvcl_far_put_t *far = kvcl_container_of(call, kvcl_far_put_t, call);

    if (far->taken) { /* the call never started; otherwise the store may be freed */
        kvcl_lock(call->store->ctx);
        kvcl_own_hide(far->owner, far->recs, far->n);
        kvcl_unlock(call->store->ctx);
    }
    kvcl_find_free(&far->find);
    free(far);
}

/* ---- the call ---- */

/* The arrays are written by the steps, but for what every step needs. */
static kvcl_far_put_t *make(const struct kvcl_store *store, const kvcl_key_t *keys, const uint32_t *ids, size_t n)
{
    size_t         each = sizeof(kvcl_store_rec_t) + sizeof(kvcl_found_t) + sizeof(kvcl_key_t) + sizeof(uint32_t) + 2;
    kvcl_far_put_t *far = malloc(sizeof(*far) + (n * each) + store->n_ranks);
    size_t         i;

    if (far == NULL) {
        return NULL;
    }
    memset(far, 0, sizeof(*far));
    far->n     = n;
    far->recs  = (kvcl_store_rec_t *)(void *)(far + 1);
    far->found = (kvcl_found_t *)(void *)(far->recs + n);
    far->keys  = (kvcl_key_t *)(void *)(far->found + n);
    far->order = (uint32_t *)(void *)(far->keys + n);
    far->flags = (uint8_t *)(far->order + n);
    far->made  = far->flags + n;
    far->tried = far->made + n;
    memset(far->flags, 0, (2 * n) + store->n_ranks);
    memcpy(far->keys, keys, n * sizeof(*keys));
    for (i = 0; i < n; ++i) {
        far->recs[i] = (kvcl_store_rec_t){.key = keys[i], .loc.slot = ids[i]};
    }
    return far;
}

/* No lock. The steps that the call does itself, and the first of those that follow. later: as few as possible. */
static void begin(kvcl_far_put_t *far, kvcl_store_h store, bool instead, bool later)
{
    bool   query;
    size_t i;

    far->step   = KVCL_FAR_FIND;
    far->summed = (store->flags & KVCL_STORE_NO_CHECKSUM) != 0;
    for (i = 0; instead && (i < far->n); ++i) {
        far->found[i].n = 0;
    }
    if (later) {
        far->step = instead ? KVCL_FAR_FIND : KVCL_FAR_LOOK;
        return;
    }
    if (!instead) {
        (void)kvcl_find_here(store, far->keys, far->n, false, far->flags, far->found, &query);
    }
    for (i = 0; !far->summed && (i < far->n); ++i) {
        far->recs[i].loc.checksum = kvcl_store_block_sum(far->owner->cache, far->recs[i].loc.slot);
    }
    far->summed = true;
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
    kvcl_status_t  status = check(store, cache->shape.block_bytes, p, name);
    kvcl_far_put_t *far;

    if ((status == KVCL_OK) && (n == 0)) {
        return kvcl_req_instant(store->ctx, KVCL_OK, 0, p, req_p);
    }
    far = (status == KVCL_OK) ? make(store, keys, ids, n) : NULL;
    if (far == NULL) {
        return (status == KVCL_OK) ? kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu blocks", name, n) : status;
    }
    status = kvcl_own_take(store, cache, ids, n, 0, name, &far->owner);
    if (status != KVCL_OK) {
        free(far);
        return status;
    }
    far->taken = true;
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
    begin(far, store, instead, kvcl_req_is_awaited(p, req_p) && /* otherwise nobody waits for the bytes */
                                   (n * far->bytes > store->ctx->config.inline_copy));
    return kvcl_call_start(&far->call, store, name, p, req_p);
}
