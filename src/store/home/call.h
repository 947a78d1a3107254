/*
 * A call: a user's request that queries other ranks, in one round or several, without blocking.
 *
 * The caller embeds kvcl_call_t as its first member. next() posts the queries of one round with kvcl_call_post(). When
 * all of them have ended, next() is called again; when it posts none, end() returns the status of the request. A
 * deadline, a cancel and the closing of the store stop the queries; next() is then not called again, but end() is.
 * Engine lock held, except where marked.
 */
#ifndef KVCL_STORE_CALL_H
#define KVCL_STORE_CALL_H

#include "store/store.h"
#include <kvcl/kvcl_xfer.h>

typedef struct kvcl_call kvcl_call_t;
struct kvcl_call {
    kvcl_req_t    req;
    kvcl_store_h  store;
    const char    *name;        /* name of the public call, for error sentences */
    kvcl_list_t   link;         /* store->calls */
    kvcl_list_t   rpcs;
    unsigned      outstanding;  /* queries that have not ended */
    kvcl_status_t stopped;      /* why the call was stopped; KVCL_OK: it was not */
    uint64_t      deadline_ns;
    bool          (*next)(kvcl_call_t *call); /* true: it posted queries, which may have ended already */
    kvcl_status_t (*end)(kvcl_call_t *call);
    void          (*halt)(kvcl_call_t *call); /* on a stop: ends outstanding work that is no query; NULL: none exists */
    void          (*free)(kvcl_call_t *call); /* no lock; frees the call as well. NULL: free() */
};

/** No lock. Starts the call, in which only the functions and the caller's own members are set; the rest is zero. The
 * call is released when it has ended. On failure the call is freed, and nothing has happened. */
kvcl_status_t kvcl_call_start(kvcl_call_t *call, kvcl_store_h store, const char *name, const kvcl_xfer_params_t *p,
                              kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** No lock; blocks. Starts the call as above and waits for its end. */
kvcl_status_t kvcl_call_run(kvcl_call_t *call, kvcl_store_h store, const char *name, const kvcl_xfer_params_t *p)
    KVCL_MUST_CHECK;
/** No lock; blocks. Waits for a posted request: the second half of every blocking form. posted: the post's status. */
kvcl_status_t kvcl_call_wait(kvcl_status_t posted, kvcl_req_h *req) KVCL_MUST_CHECK;

/** Posts a query of this call; its done() must end with kvcl_call_over(). timeout_ns: 0 means the call's deadline.
 * watched: the query ends when its rank is found to be silent. */
void          kvcl_call_post(kvcl_call_t *call, kvcl_rpc_t *rpc, uint64_t timeout_ns, bool watched);
void          kvcl_call_over(kvcl_call_t *call);
uint64_t      kvcl_call_time_left(const kvcl_call_t *call); /* in ns, never 0 */
/** Stops all calls of a store that is being closed. */
void          kvcl_calls_stop(kvcl_store_h store);

#endif
