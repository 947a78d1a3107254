/*
 * A call: a request of a user's that asks other ranks, in one round or several, and never waits.
 *
 * Whoever makes one embeds kvcl_call_t first. next() posts the questions of a round by kvcl_call_post(); when all of
 * them have ended it is called again, until it posts none: then end() says how the request ends. A deadline, a cancel
 * and the end of the store stop the questions; next() is not called any more, end() is. All under the engine lock but
 * for what is marked otherwise.
 */
#ifndef KVCL_STORE_CALL_H
#define KVCL_STORE_CALL_H

#include "store/store.h"
#include <kvcl/kvcl_xfer.h>

typedef struct kvcl_call kvcl_call_t;
struct kvcl_call {
    kvcl_req_t    req;
    kvcl_store_h  store;
    const char    *name;        /* of the public call: for sentences */
    kvcl_list_t   link;         /* store->calls */
    kvcl_list_t   rpcs;
    unsigned      outstanding;
    kvcl_status_t stopped;      /* why nothing goes on; KVCL_OK: it does */
    uint64_t      deadline_ns;
    bool          (*next)(kvcl_call_t *call); /* true: questions were posted, which may have ended */
    kvcl_status_t (*end)(kvcl_call_t *call);
    void          (*halt)(kvcl_call_t *call); /* stopped: ends what is outstanding and no ask. NULL: nothing is */
    void          (*free)(kvcl_call_t *call); /* no lock; frees the call too. NULL: free() */
};

/** No lock. The call, zeroed but for its functions and its own part, begins; it is released when it is over. An error:
 * it was freed, and nothing has happened. */
kvcl_status_t kvcl_call_start(kvcl_call_t *call, kvcl_store_h store, const char *name, const kvcl_xfer_params_t *p,
                              kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** No lock; blocks. Post as above and wait for the end. */
kvcl_status_t kvcl_call_run(kvcl_call_t *call, kvcl_store_h store, const char *name, const kvcl_xfer_params_t *p)
    KVCL_MUST_CHECK;
/** No lock; blocks. A request that was posted, to its end: what a blocking form does after its post. */
kvcl_status_t kvcl_call_wait(kvcl_status_t posted, kvcl_req_h *req) KVCL_MUST_CHECK;

/** A question of this call: done() ends with kvcl_call_over(). timeout_ns 0: as long as the call has. watched: it ends
 * when the rank is found to be silent. */
void          kvcl_call_post(kvcl_call_t *call, kvcl_rpc_t *rpc, uint64_t timeout_ns, bool watched);
void          kvcl_call_over(kvcl_call_t *call);
uint64_t      kvcl_call_time_left(const kvcl_call_t *call);
/** The store is being closed. */
void          kvcl_calls_stop(kvcl_store_h store);

#endif
