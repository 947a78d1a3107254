/*
 * The end of native gets and puts that the network does not end, and of those to memory that was unregistered; a
 * store's gets, whose generations are read natively after the bytes: cases of conform_fence, over loop with its faults
 * (CF_NATIVE).
 */
#include "conform_native.h"
#include "loop/xport_loop.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- a network that moves no bytes */

enum { STALL_BYTES = 300000 };

static bool all_are(const char *buf, char c, size_t len)
{
    return (buf[0] == c) && (memcmp(buf, buf + 1, len - 1) == 0);
}

typedef struct calls {
    const char *op, *path;
    uint64_t   n;
} calls_t;

static void add_calls(void *arg, const kvcl_latency_info_t *info)
{
    calls_t *calls = arg;

    calls->n += ((strcmp(info->op, calls->op) == 0) && (strcmp(info->path, calls->path) == 0)) ? info->count : 0;
}

uint64_t cf_calls(cf_t *cf, const char *op, const char *path)
{
    calls_t calls = {op, path, 0};

    CF_OK(cf, kvcl_query_latency(cf->ctx, add_calls, &calls));
    return calls.n;
}

/* The gets of this rank that moved their bytes natively. */
static uint64_t native_gets(cf_t *cf)
{
    return cf_calls(cf, "get", "native");
}

static kvcl_status_t get_whole(cf_t *cf, kvcl_cache_h cache, const kvcl_sel_t *sel, const kvcl_xfer_params_t *params)
{
    kvcl_req_h req;

    CF_OK(cf, kvcl_get(cf->world, 1 - cf->rank, cache, sel, sel, params, &req));
    return cf_end(cf, req);
}

/* It ends by its deadline, or by a cancel, and no byte arrives afterwards. */
static void stalled(cf_t *cf, kvcl_rmem_h rmem, bool is_put, bool cancel)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    char               *buf   = malloc(STALL_BYTES);
    kvcl_req_h         req;
    unsigned           i;

    memset(buf, 2, STALL_BYTES);
    params.timeout_ns = cancel ? 0 : 20 * KVCL_NS_PER_MS;
    CF_OK(cf, is_put ? kvcl_put_bytes(rmem, 0, buf, STALL_BYTES, &params, &req)
                     : kvcl_get_bytes(rmem, 0, buf, STALL_BYTES, &params, &req));
    if (cancel) {
        cf_sleep_us(cf, 1000);
        kvcl_req_cancel(req);
    }
    CF_IS(cf, cf_end(cf, req), cancel ? KVCL_ERR_CANCELED : KVCL_ERR_TIMED_OUT);
    memset(buf, 3, STALL_BYTES); /* the caller's again */
    for (i = 0; i < 20; ++i) {
        (void)kvcl_progress(cf->ctx);
    }
    CF_CHECK(cf, all_are(buf, 3, STALL_BYTES));
    free(buf);
}

/* The end of one transfer ends the native operations of another with that rank, which its owner then serves. */
static void beside_a_stalled_one(cf_t *cf, kvcl_rmem_h rmem)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    char               *bufs  = malloc(2ul * STALL_BYTES);
    kvcl_req_h         first, second;

    params.timeout_ns = 20 * KVCL_NS_PER_MS;
    CF_OK(cf, kvcl_get_bytes(rmem, 0, bufs, STALL_BYTES, NULL, &first));
    CF_OK(cf, kvcl_get_bytes(rmem, 0, bufs + STALL_BYTES, STALL_BYTES, &params, &second));
    CF_IS(cf, cf_end(cf, second), KVCL_ERR_TIMED_OUT);
    CF_OK(cf, cf_end(cf, first));
    CF_CHECK(cf, all_are(bufs, 1, STALL_BYTES));
    free(bufs);
}

/* A network that no longer moves bytes: the deadline of a get or put holds, and afterwards native transfers work. */
void cf_deadline_native(cf_t *cf)
{
    cf_mem_t   mem  = cf_mem(cf, STALL_BYTES, false, KVCL_READ_WRITE);
    char       *buf = malloc(STALL_BYTES);
    uint64_t   native;
    kvcl_req_h req;

    memset(mem.addr, 1, STALL_BYTES);
    cf_fence(cf);
    if (cf->rank == 0) { /* once before, so that the memory is known to be native */
        CF_OK(cf, kvcl_get_bytes(mem.of[1], 0, buf, STALL_BYTES, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    cf_fence(cf);
    if (cf->rank == 0) {
        cf_stall(cf, true);
        stalled(cf, mem.of[1], false, false);
        stalled(cf, mem.of[1], false, true);
        stalled(cf, mem.of[1], true, false);
        stalled(cf, mem.of[1], true, true);
        beside_a_stalled_one(cf, mem.of[1]);
        cf_stall(cf, false);
    }
    cf_fence(cf);
    if (cf->rank == 0) {
        native = native_gets(cf);
        CF_OK(cf, kvcl_get_bytes(mem.of[1], 0, buf, STALL_BYTES, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_CHECK(cf, all_are(buf, 1, STALL_BYTES));
        CF_CHECK(cf, native_gets(cf) == native + 1);
    }
    cf_mem_end(cf, &mem);
    free(buf);
}

/* ---------------------------------------------------------------- a description of memory that is gone */

/* One of an owner's two caches is destroyed under a reader that knows its description. Later the reader finds that out
 * without an access to the memory; at once, the access ends the native operations of both, and no rank fails: the other
 * cache's get is served, and the one after it is native. */
void cf_a_stale_description(cf_t *cf)
{
    static const uint32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7};
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(8, 100000);
    uint64_t      seed = cf_same(cf), breaks, native;
    cf_cache_t    here = cf_cache(cf, "here", &layout, true), left = cf_cache(cf, "left", &layout, false), cache;
    kvcl_xfer_params_t stale = KVCL_XFER_PARAMS_INIT, good = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t    sel = cf_sel(ids, 8);
    kvcl_req_h    reqs[4];
    unsigned      round, i;

    stale.remote_cache = "stale";
    good.remote_cache  = "left";
    cf_fill(cf, left.h, seed + (uint64_t)cf->rank);
    for (round = 0; round < 6; ++round) {
        cache = cf_cache(cf, "stale", &layout, false);
        cf_fence(cf);
        CF_OK(cf, get_whole(cf, here.h, &sel, &stale));
        CF_OK(cf, get_whole(cf, here.h, &sel, &good));
        cf_fence(cf);
        cf_cache_end(&cache);
        cf_fence(cf);
        breaks = kvcl_loop_breaks();
        if (round & 1) {
            cf_sleep_us(cf, 3000); /* longer than the word of an earlier get counts */
        }
        cf_fence(cf);
        for (i = 0; i < 4; ++i) {
            CF_OK(cf, kvcl_get(cf->world, 1 - cf->rank, here.h, &sel, &sel, (i & 1) ? &stale : &good, &reqs[i]));
        }
        for (i = 0; i < 4; ++i) {
            CF_IS(cf, cf_end(cf, reqs[i]), (i & 1) ? KVCL_ERR_NOT_REGISTERED : KVCL_OK);
        }
        cf_fence(cf);
        CF_CHECK(cf, !(round & 1) || (kvcl_loop_breaks() == breaks));
        native = native_gets(cf);
        CF_OK(cf, get_whole(cf, here.h, &sel, &good));
        cf_fence(cf);
        cf_block_is(cf, here.h, 7, seed + (uint64_t)(1 - cf->rank), 7);
        CF_CHECK(cf, native_gets(cf) == native + 1);
        cf_fence(cf);
    }
    cf_cache_end(&here);
    cf_cache_end(&left);
}

/* ---------------------------------------------------------------- blocks with generations */

/* Larger than what a home sends with the reply to a lookup; several runs a block. */
enum { STORE_BYTES = 300000, STORE_SLOTS = 80, STORE_KEYS = 24, STORE_REUSES = 400, STORE_TWO = 2 };

static kvcl_key_t key_of(cf_t *cf, uint64_t i)
{
    uint64_t   name[2] = {cf_same(cf), i};
    kvcl_key_t key;

    kvcl_key_from_string(name, sizeof(name), &key);
    return key;
}

static void fill_block(cf_t *cf, kvcl_cache_h cache, uint32_t id, uint64_t i)
{
    cf_bytes(cf_same(cf) + i, 0, (char *)cf_see(cache, 0) + ((size_t)id * STORE_BYTES), STORE_BYTES);
}

static bool block_holds(cf_t *cf, kvcl_cache_h cache, uint32_t id, uint64_t i)
{
    return cf_bytes_are(cf_same(cf) + i, 0, (char *)cf_see(cache, 0) + ((size_t)id * STORE_BYTES), STORE_BYTES);
}

static kvcl_store_h open_store(cf_t *cf)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_store_h        store;

    params.dir_entries = 4096;
    params.flags       = KVCL_STORE_NO_CHECKSUM; /* generations alone must suffice */
    CF_OK(cf, kvcl_store_open(cf->world, &params, &store));
    return store;
}

/* Gets the other rank's blocks into slots from 26 on. True if neither rank has served a byte of it; both ranks agree.
 * */
static bool got_natively(cf_t *cf, cf_cache_t *cache, kvcl_store_h store)
{
    uint32_t             other = (uint32_t)(1 - cf->rank) * STORE_KEYS, ids[STORE_KEYS], i;
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;
    kvcl_key_t           keys[STORE_KEYS];
    uint64_t             served;
    kvcl_req_h           req;

    for (i = 0; i < STORE_KEYS; ++i) {
        keys[i] = key_of(cf, i + other);
        ids[i]  = 26 + i;
    }
    CF_OK(cf, kvcl_context_stats(cf->ctx, &stats));
    served = stats.bytes_served;
    cf_fence(cf);
    CF_OK(cf, kvcl_store_get(store, keys, STORE_KEYS, cache->h, ids, NULL, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    for (i = 0; i < STORE_KEYS; ++i) {
        CF_CHECK(cf, block_holds(cf, cache->h, ids[i], i + other));
    }
    cf_fence(cf);
    CF_OK(cf, kvcl_context_stats(cf->ctx, &stats));
    atomic_store(cf_word(cf, (unsigned)cf->rank), stats.bytes_served == served);
    cf_fence(cf);
    return atomic_load(cf_word(cf, 0)) && atomic_load(cf_word(cf, 1));
}

/*
 * Each rank publishes blocks in slots far apart and close together, and gets the other's: no owner serves bytes. It may
 * while an endpoint for native transfers is opened, which the cases before this one have made necessary.
 */
void cf_store_gets_native(cf_t *cf)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(STORE_SLOTS, STORE_BYTES);
    cf_cache_t    cache  = cf_cache(cf, "native", &layout, true);
    kvcl_store_h  store  = open_store(cf);
    kvcl_key_t    keys[STORE_KEYS];
    uint32_t      ids[STORE_KEYS], i;
    kvcl_req_h    req;

    for (i = 0; i < STORE_KEYS; ++i) {
        keys[i] = key_of(cf, i + (uint32_t)cf->rank * STORE_KEYS);
        ids[i]  = (i < STORE_KEYS / 2) ? i : STORE_SLOTS - 1 - (2 * (i - STORE_KEYS / 2));
        fill_block(cf, cache.h, ids[i], i + (uint32_t)cf->rank * STORE_KEYS);
    }
    CF_OK(cf, kvcl_store_publish(store, keys, STORE_KEYS, cache.h, ids, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    cf_fence(cf);
    while (!got_natively(cf, &cache, store)) {
    }
    kvcl_store_close(store);
    cf_cache_end(&cache);
}

/* Rank 1 fills two slots again and again while rank 0 gets their blocks: a miss, or the block's own bytes. */
void cf_store_reuses_slots(cf_t *cf)
{
    kvcl_layout_t    layout = KVCL_LAYOUT_BYTES(4, STORE_BYTES);
    cf_cache_t       cache  = cf_cache(cf, "reused", &layout, true);
    kvcl_store_h     store  = open_store(cf);
    _Atomic uint64_t *newest = cf_word(cf, 0);
    uint32_t         id, at, hits = 0, tries = 0;
    kvcl_status_t    status;
    kvcl_key_t       key;
    kvcl_req_h       req;

    atomic_store(newest, 0);
    cf_fence(cf);
    for (at = 0; (cf->rank == 1) && (at < STORE_REUSES); ++at) {
        id  = at % STORE_TWO;
        key = key_of(cf, at);
        CF_OK(cf, kvcl_store_withdraw(store, cache.h, &id, 1));
        fill_block(cf, cache.h, id, at);
        CF_OK(cf, kvcl_store_publish(store, &key, 1, cache.h, &id, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        atomic_store(newest, at + 1);
    }
    id = 3;
    while ((cf->rank == 0) && ((atomic_load(newest) < STORE_REUSES) || (tries < 100) || (hits == 0))) {
        at  = (uint32_t)atomic_load(newest);
        at -= (at < STORE_TWO) ? 0 : (uint32_t)kvcl_rand_below(&cf->rnd, STORE_TWO);
        key = key_of(cf, (at == 0) ? 0 : at - 1);
        CF_OK(cf, kvcl_store_get(store, &key, 1, cache.h, &id, NULL, NULL, &req));
        status = cf_end(cf, req);
        CF_CHECK(cf, (status == KVCL_OK) || (status == KVCL_ERR_NOT_FOUND));
        CF_CHECK(cf, (status != KVCL_OK) || block_holds(cf, cache.h, id, (at == 0) ? 0 : at - 1));
        hits += (status == KVCL_OK);
        ++tries;
    }
    cf_fence(cf);
    kvcl_store_close(store);
    cf_cache_end(&cache);
}
