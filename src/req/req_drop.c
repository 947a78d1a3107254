/*
 * The end of a request's memory (req.h): its last holder releases it, and its slot is free again.
 *
 * Owns: nothing. Invariant: a request is released once. Locks: none.
 */
#include "config.h"
#include "req/req.h"
#include "handle/handle.h"

#include <stdlib.h>

void kvcl_req_drop(kvcl_req_t *req)
{
    kvcl_req_slot_t *slot = req->slot;

    if (atomic_fetch_sub_explicit(&req->holders, 1, memory_order_acq_rel) != 1) {
        return;
    }
    kvcl_sentence_free(&req->why);
    if (req->cls->release != NULL) {
        req->cls->release(req);
    } else {
        free(req);
    }
    if (slot != NULL) {
        kvcl_req_slot_put(slot);
    }
}
