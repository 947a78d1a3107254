/*
 * Where: the copies of keys that their homes list.
 *
 * A key whose home's table is memory of this rank is read at once. A find (find.h) queries the homes of the other keys,
 * all at the same time, one batch for each. If no key needs a query, the call makes no request.
 *
 * Owns nothing. No lock, except where marked.
 */
#include "config.h"
#include "base/error.h"
#include "base/structs.h"
#include "store/home/find.h"
#include "store/home/ranks.h"
#include "store/tenant.h"
#include "xfer/params.h"
#include "weave/pieces.h"
#include <kvcl/kvcl_comm.h>
#include <kvcl/kvcl_store_events.h>

#include <stdlib.h>

_Static_assert(sizeof(kvcl_store_place_t) == 16, "fixed for ever");
_Static_assert((int)KVCL_STORE_PLACES == (int)KVCL_DIR_LOCS_MAX, "each location of a key has a place");
_Static_assert(((int)KVCL_STORE_TIER_CACHE == (int)KVCL_DIR_TIER_CACHE) &&
                   ((int)KVCL_STORE_TIER_DRAM == (int)KVCL_DIR_TIER_DRAM) &&
                   ((int)KVCL_STORE_TIER_NVME == (int)KVCL_DIR_TIER_NVME),
               "the public tiers are the directory's");

/* The caller's array. */
typedef struct results {
    kvcl_store_places_t *array;
    size_t              stride;
} results_t;

typedef struct where {
    kvcl_call_t  call;
    kvcl_find_t  find;
    results_t    results;
    kvcl_found_t *found;  /* find.n; these and the flags are part of this allocation */
    uint8_t      *flags;
    kvcl_key_t   keys[];
} where_t;

static void add(const struct kvcl_store *store, const kvcl_dir_loc_t *loc, kvcl_store_places_t *places)
{
    const unsigned tier = loc->flags & KVCL_DIR_TIER_MASK;

    if (tier <= KVCL_DIR_TIER_NVME) { /* a later version's home may list others */
        places->at[places->n++] = (kvcl_store_place_t){
            .rank  = loc->rank,
            .tier  = (uint16_t)tier,
            .state = kvcl_store_suspects(store, loc->rank) ? KVCL_RANK_SUSPECT : KVCL_RANK_ALIVE,
            .bytes = loc->len};
    }
}

/* This rank's own copies first. */
static void write_places(const struct kvcl_store *store, const kvcl_found_t *found, size_t n, const results_t *results)
{
    kvcl_store_places_t places;
    unsigned            own, j;
    size_t              i;

    for (i = 0; i < n; ++i) {
        places = (kvcl_store_places_t){0};
        for (own = 2; own-- > 0;) {
            for (j = 0; j < found[i].n; ++j) {
                if ((found[i].locs[j].rank == store->me) == (own != 0)) {
                    add(store, &found[i].locs[j], &places);
                }
            }
        }
        kvcl_struct_out_at(results->array, i, results->stride, &places, sizeof(places));
    }
}

static bool next(kvcl_call_t *call)
{
    return kvcl_find_round(&kvcl_container_of(call, where_t, call)->find);
}

static kvcl_status_t end(kvcl_call_t *call)
{
    where_t       *where = kvcl_container_of(call, where_t, call);
    kvcl_status_t status = (call->stopped != KVCL_OK) ? call->stopped : where->find.status;

    if (status == KVCL_OK) {
        write_places(call->store, where->found, where->find.n, &where->results);
    }
    return status;
}

static void free_where(kvcl_call_t *call)
{
    where_t *where = kvcl_container_of(call, where_t, call);

    kvcl_find_free(&where->find);
    free(where);
}

/* *requested_p: a request is in flight. Otherwise the result is written already. */
static kvcl_status_t begin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const results_t *results,
                           const kvcl_xfer_params_t *p, kvcl_req_h *req_p, bool *requested_p)
{
    where_t *where = malloc(sizeof(*where) + (n * (sizeof(*keys) + sizeof(kvcl_found_t) + 1)));

    *requested_p = false;
    if (where == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_where: no memory for %zu keys", n);
    }
    memset(where, 0, sizeof(*where));
    where->results = *results;
    where->found   = (kvcl_found_t *)(void *)(where->keys + n);
    where->flags   = (uint8_t *)(where->found + n);
    kvcl_copy_bytes(where->keys, keys, n * sizeof(*keys));
    atomic_fetch_add_explicit(&store->counts.lookups, n, memory_order_relaxed);
    (void)kvcl_find_here(store, where->keys, n, false, where->flags, where->found, requested_p);
    if (!*requested_p) {
        write_places(store, where->found, n, results);
        free(where);
        return KVCL_OK;
    }
    where->find      = (kvcl_find_t){.call = &where->call, .keys = where->keys, .n = n, .flags = where->flags,
                                     .found = where->found};
    where->call.next = next;
    where->call.end  = end;
    where->call.free = free_where;
    return kvcl_call_start(&where->call, store, "kvcl_store_where", p, req_p);
}

static kvcl_status_t check(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const results_t *results)
{
    static const char call[] = "kvcl_store_where";
    kvcl_status_t     status = kvcl_store_check(store, keys, n, call);

    if ((status == KVCL_OK) && (results->array == NULL) && (n != 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: places is NULL: give an array of %zu", call, n);
    }
    return (status == KVCL_OK) ? kvcl_stride_check(results->stride, KVCL_UP_TO(kvcl_store_places_t, at),
                                                   "kvcl_store_places_t", call)
                               : status;
}

/* waits: the blocking form. */
static kvcl_status_t find_places(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const results_t *results,
                                 bool waits, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_entry_t       entry;
    kvcl_req_h         own;
    bool               requested = false;
    kvcl_status_t      status    = kvcl_store_enter(&store, &keys, n, "kvcl_store_where", &entry);

    status = (status == KVCL_OK) ? check(store, keys, n, results) : status;
    if (status == KVCL_OK) {
        status = waits ? kvcl_xfer_params_waits(params, KVCL_CALL_STORE_WHERE, &p)
                       : kvcl_xfer_params(params, KVCL_CALL_STORE_WHERE, &p);
    }
    if (status == KVCL_OK) {
        if (entry.tenant != NULL) {
            atomic_fetch_add_explicit(&entry.tenant->counts.lookups, n, memory_order_relaxed);
        }
        status = begin(store, keys, n, results, &p, waits ? &own : req_p, &requested);
    }
    if ((status == KVCL_OK) && waits && requested) {
        status = kvcl_call_wait(KVCL_OK, &own);
    } else if ((status == KVCL_OK) && !waits && !requested) {
        status = kvcl_req_instant(store->ctx, KVCL_OK, 0, &p, req_p);
    }
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_where(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_store_places_t *places,
                               size_t stride, const kvcl_xfer_params_t *params)
{
    return find_places(store, keys, n, &(results_t){places, stride}, true, params, NULL);
}

kvcl_status_t kvcl_store_where_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_store_places_t *places,
                                    size_t stride, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return find_places(store, keys, n, &(results_t){places, stride}, false, params, req_p);
}
