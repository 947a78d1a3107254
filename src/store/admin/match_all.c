/*
 * match over a group: each rank matches its own keys, then one all-gather of 16 bytes a rank follows, so that all ranks
 * return the same number, or the same error. Owns nothing; no lock.
 */
#include "config.h"
#include "base/error.h"
#include "store/tenant.h"
#include "xfer/params.h"
#include <kvcl/kvcl_coll.h>

#include <stdlib.h>

typedef struct found {
    uint64_t hit;
    int64_t  status;
} found_t;

/* The least number of all ranks; an error of one rank is the error of every rank. */
static kvcl_status_t least(const found_t *all, int size, size_t *hit_p)
{
    uint64_t hit = UINT64_MAX;
    int      i;

    for (i = 0; i < size; ++i) {
        if (all[i].status != KVCL_OK) {
            return kvcl_fail((kvcl_status_t)all[i].status, "kvcl_store_match_all: rank %d of the group: %s", i,
                             kvcl_status_text((kvcl_status_t)all[i].status));
        }
        hit = (all[i].hit < hit) ? all[i].hit : hit;
    }
    *hit_p = (size_t)hit;
    return KVCL_OK;
}

static kvcl_status_t gather(kvcl_comm_h comm, const found_t *mine, found_t *all, const kvcl_xfer_params_t *p)
{
    kvcl_xfer_params_t inner = {.size = sizeof(inner), .timeout_ns = p->timeout_ns};
    kvcl_req_h         req;
    kvcl_status_t      status = kvcl_allgather(comm, mine, sizeof(*mine), all, &inner, &req);

    if (status == KVCL_OK) {
        status = kvcl_req_wait(req, KVCL_WAIT_FOREVER); /* its own deadline ends it */
    }
    return status;
}

/* handle: the caller's, of this store. */
static kvcl_status_t match_all(kvcl_store_h handle, kvcl_store_h store, kvcl_comm_h comm, const kvcl_key_t *keys,
                               size_t n, size_t *hit_p, const kvcl_xfer_params_t *params)
{
    kvcl_xfer_params_t p;
    found_t            mine = {0}, *all;
    kvcl_status_t      status;
    size_t             hit = 0;

    status = kvcl_handle_check(comm, KVCL_KIND_COMM, "kvcl_store_match_all");
    if (status != KVCL_OK) {
        return status;
    }
    if (hit_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_match_all: hit_p is NULL");
    }
    status = kvcl_xfer_params(params, KVCL_CALL_STORE_MATCH_ALL, &p);
    if (status != KVCL_OK) {
        return status;
    }
    if (comm->inter || (comm->ctx != store->ctx)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_match_all: comm is an inter-communicator, or belongs to "
                         "another context than the store");
    }
    all = calloc((size_t)comm->size, sizeof(*all));
    if (all == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_match_all: no memory for %d ranks", comm->size);
    }
    mine.status = kvcl_store_match(handle, keys, n, &hit, params); /* a failure takes part in the all-gather */
    mine.hit    = hit;
    all[0]      = mine;
    status      = (comm->size > 1) ? gather(comm, &mine, all, &p) : KVCL_OK;
    if (status == KVCL_OK) {
        status = least(all, comm->size, hit_p);
    }
    free(all);
    return status;
}

kvcl_status_t kvcl_store_match_all(kvcl_store_h store, kvcl_comm_h comm, const kvcl_key_t *keys, size_t n,
                                   size_t *hit_p, const kvcl_xfer_params_t *params)
{
    kvcl_store_h  handle = store;
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, "kvcl_store_match_all", &entry);

    status = (status == KVCL_OK) ? kvcl_handle_check(store, KVCL_KIND_STORE, "kvcl_store_match_all") : status;
    if (status == KVCL_OK) {
        status = match_all(handle, store, (comm == NULL) ? store->comm : comm, keys, n, hit_p, params);
    }
    kvcl_store_leave(&entry);
    return status;
}
