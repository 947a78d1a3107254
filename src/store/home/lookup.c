/*
 * Match and exists: which of these keys are present?
 *
 * A key whose home's table is memory of this rank (its own, or mapped) is read at once, without a lock or an
 * allocation, while the following keys are prefetched. For the others a find (find.h) queries all homes at the same
 * time. The blocking forms wait for the same request, and make none if every key can be read at once.
 *
 * Owns nothing. No lock, except where marked.
 */
#include "config.h"
#include "base/error.h"
#include "store/home/find.h"
#include "store/home/paths.h"
#include "store/home/ranks.h"
#include "store/tenant.h"
#include "xfer/params.h"
#include "weave/pieces.h"

#include <stdlib.h>

enum { ON_STACK = 4096 };

/* One match or exists that needs queries. */
typedef struct lookup {
    kvcl_call_t call;
    kvcl_find_t find;
    size_t      *hit_p;    /* the caller's, of a match; else NULL */
    uint8_t     *present;  /* the caller's, of an exists; else NULL */
    uint8_t     *flags;    /* find.n bytes, part of this allocation */
    kvcl_key_t  keys[];    /* copies, unless the caller waits */
} lookup_t;

/* Lock held. Marks hits in local memory as used in their eviction order, the end of a chain first. */
static void touch(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const uint8_t *flags)
{
    kvcl_owner_node_t *node;

    kvcl_assert_locked(store->ctx);
    while (n-- > 0) {
        node = (flags[n] & KVCL_PRESENT_YOURS) ? kvcl_owner_find(store, &keys[n], NULL) : NULL;
        if (node != NULL) {
            kvcl_owner_touch(node->owner, kvcl_owner_slot(node));
        }
    }
}

/* No lock. Takes the lock only if one of the hits is local. */
static void touch_some(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const uint8_t *flags)
{
    while ((n > 0) && !(flags[n - 1] & KVCL_PRESENT_YOURS)) {
        --n;
    }
    if ((n != 0) && ((store->own != NULL) || (store->pool != NULL))) {
        kvcl_lock(store->ctx);
        touch(store, keys, n, flags);
        kvcl_unlock_quietly(store->ctx);
    }
}

/* All flags are known: writes the caller's result. Returns how many keys are hits in a row, or n for an exists. */
static size_t write_result(const uint8_t *flags, size_t n, size_t *hit_p, uint8_t *present)
{
    size_t i;

    for (i = 0; (hit_p != NULL) && (i < n) && (flags[i] != 0); ++i) {
    }
    if (hit_p != NULL) {
        *hit_p = i;
        return i;
    }
    for (i = 0; i < n; ++i) {
        present[i] = flags[i] & KVCL_PRESENT_SOMEWHERE;
    }
    return n;
}

/* Lock held. Records the paths to the homes of the keys whose tables are mapped. Each query has recorded its own. */
static void note_paths(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_timing_t *timing)
{
    const kvcl_shard_map_t *map = kvcl_store_shards(store);
    kvcl_mem_path_t        path;
    size_t                 i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < n; ++i) {
        path = kvcl_store_path(store, kvcl_store_home(store, map, &keys[i]));
        kvcl_timing_path(timing, (path != KVCL_MEM_PATH_SERVED) ? path : KVCL_MEM_PATH_LOOP);
    }
}

/* No lock. Records the time of a match that ended inside its call. */
static void end_timing(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_timing_t *timing)
{
    kvcl_lock(store->ctx);
    note_paths(store, keys, n, timing);
    kvcl_unlock(store->ctx);
    kvcl_timing_record(&store->ctx->latency, timing);
}

/* ---- lookups that need queries ---- */

static bool next(kvcl_call_t *call)
{
    return kvcl_find_round(&kvcl_container_of(call, lookup_t, call)->find);
}

static kvcl_status_t end(kvcl_call_t *call)
{
    lookup_t      *lookup = kvcl_container_of(call, lookup_t, call);
    kvcl_find_t   *find   = &lookup->find;
    kvcl_status_t status  = (call->stopped != KVCL_OK) ? call->stopped : find->status;

    if (status == KVCL_OK) {
        if (lookup->hit_p != NULL) {
            call->req.timing.op = KVCL_LATENCY_STORE_MATCH;
            note_paths(call->store, find->keys, find->n, &call->req.timing);
        }
        touch(call->store, find->keys, write_result(find->flags, find->n, lookup->hit_p, lookup->present),
              find->flags);
    }
    return status;
}

static void free_lookup(kvcl_call_t *call)
{
    lookup_t *lookup = kvcl_container_of(call, lookup_t, call);

    kvcl_find_free(&lookup->find);
    free(lookup);
}

/* flags are copied, and so are the keys unless the caller waits for the end. */
static kvcl_status_t start_query(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const uint8_t *flags,
                                 size_t *hit_p, uint8_t *present, bool waits, kvcl_call_id_t id,
                                 const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    const size_t copied  = waits ? 0 : n;
    lookup_t     *lookup = malloc(sizeof(*lookup) + (copied * sizeof(*keys)) + n);

    if (lookup == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", kvcl_call_name(id), n);
    }
    memset(lookup, 0, sizeof(*lookup));
    lookup->flags   = (uint8_t *)(lookup->keys + copied);
    lookup->hit_p   = hit_p;
    lookup->present = present;
    memcpy(lookup->keys, keys, copied * sizeof(*keys));
    kvcl_copy_bytes(lookup->flags, flags, n);
    lookup->find      = (kvcl_find_t){.call = &lookup->call, .keys = waits ? keys : lookup->keys, .n = n,
                                      .flags = lookup->flags};
    lookup->call.next = next;
    lookup->call.end  = end;
    lookup->call.free = free_lookup;
    return kvcl_call_start(&lookup->call, store, kvcl_call_name(id), p, req_p);
}

/* *requested_p: a request is in flight. Otherwise the result is written already. */
static kvcl_status_t begin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p, uint8_t *present,
                           bool waits, kvcl_call_id_t id, const kvcl_xfer_params_t *p, kvcl_req_h *req_p,
                           bool *requested_p)
{
    uint8_t       few[ON_STACK];
    uint8_t       *flags = (n > sizeof(few)) ? malloc(n) : few;
    kvcl_timing_t timing = {0};
    kvcl_status_t status = KVCL_OK;

    if (flags == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", kvcl_call_name(id), n);
    }
    if (hit_p != NULL) {
        timing = kvcl_timing_sample(&store->ctx->latency, KVCL_LATENCY_STORE_MATCH);
    }
    atomic_fetch_add_explicit(&store->counts.lookups, n, memory_order_relaxed);
    n = kvcl_find_here(store, keys, n, hit_p != NULL, flags, NULL, requested_p);
    if (*requested_p) {
        status = start_query(store, keys, n, flags, hit_p, present, waits, id, p, req_p);
    } else {
        touch_some(store, keys, write_result(flags, n, hit_p, present), flags);
        if (timing.begun_ns != 0) {
            end_timing(store, keys, n, &timing);
        }
    }
    if (flags != few) {
        free(flags);
    }
    return status;
}

/* The params of one lookup: the defaults, or the caller's in own. */
typedef struct lookup_params {
    const kvcl_xfer_params_t *p;
    kvcl_xfer_params_t       own;
} lookup_params_t;

/* waits: the blocking form. Without params nothing is filled in. */
static inline kvcl_status_t check(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const void *out, bool waits,
                                  const kvcl_xfer_params_t *params, kvcl_call_id_t id, lookup_params_t *checked)
{
    kvcl_status_t status = kvcl_store_check(store, keys, n, kvcl_call_name(id));

    if ((status == KVCL_OK) && (out == NULL) && ((n != 0) || (id == KVCL_CALL_STORE_MATCH))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %s is NULL", kvcl_call_name(id),
                           (id == KVCL_CALL_STORE_MATCH) ? "hit_p" : "present");
    }
    checked->p = (params == NULL) ? &kvcl_xfer_defaults : &checked->own;
    if ((status != KVCL_OK) || (params == NULL)) {
        return status;
    }
    return waits ? kvcl_xfer_params_waits(params, id, &checked->own) : kvcl_xfer_params(params, id, &checked->own);
}

static kvcl_status_t post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p, uint8_t *present,
                          kvcl_call_id_t id, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    bool          requested;
    kvcl_status_t status = begin(store, keys, n, hit_p, present, false, id, p, req_p, &requested);

    return ((status == KVCL_OK) && !requested) ? kvcl_req_instant(store->ctx, KVCL_OK, 0, p, req_p) : status;
}

static kvcl_status_t run(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p, uint8_t *present,
                         kvcl_call_id_t id, const kvcl_xfer_params_t *p)
{
    kvcl_req_h    req;
    bool          requested;
    kvcl_status_t status = begin(store, keys, n, hit_p, present, true, id, p, &req, &requested);

    return ((status == KVCL_OK) && requested) ? kvcl_call_wait(KVCL_OK, &req) : status;
}

/* ---- the calls ---- */

static inline kvcl_status_t lookup(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p,
                                   uint8_t *present, bool waits, const kvcl_xfer_params_t *params, kvcl_call_id_t id,
                                   kvcl_req_h *req_p)
{
    const void      *out = (id == KVCL_CALL_STORE_MATCH) ? (const void *)hit_p : (const void *)present;
    lookup_params_t checked;
    kvcl_entry_t    entry;
    kvcl_status_t   status = kvcl_store_enter(&store, &keys, n, kvcl_call_name(id), &entry);

    status = (status == KVCL_OK) ? check(store, keys, n, out, waits, params, id, &checked) : status;
    if ((status == KVCL_OK) && (entry.tenant != NULL)) {
        atomic_fetch_add_explicit(&entry.tenant->counts.lookups, n, memory_order_relaxed);
    }
    if (status == KVCL_OK) {
        status = waits ? run(store, keys, n, hit_p, present, id, checked.p)
                       : post(store, keys, n, hit_p, present, id, checked.p, req_p);
    }
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_match(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p,
                               const kvcl_xfer_params_t *params)
{
    return lookup(store, keys, n, hit_p, NULL, true, params, KVCL_CALL_STORE_MATCH, NULL);
}

kvcl_status_t kvcl_store_match_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p,
                                    const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return lookup(store, keys, n, hit_p, NULL, false, params, KVCL_CALL_STORE_MATCH, req_p);
}

kvcl_status_t kvcl_store_exists(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint8_t *present,
                                const kvcl_xfer_params_t *params)
{
    return lookup(store, keys, n, NULL, present, true, params, KVCL_CALL_STORE_EXISTS, NULL);
}

kvcl_status_t kvcl_store_exists_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint8_t *present,
                                     const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return lookup(store, keys, n, NULL, present, false, params, KVCL_CALL_STORE_EXISTS, req_p);
}
