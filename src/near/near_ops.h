/*
 * The part of the transport contract (core/xport.h) for transports that read the memory of a process of this host where
 * it lies, registered or not. Locks and return values as there.
 */
#ifndef KVCL_NEAR_NEAR_OPS_H
#define KVCL_NEAR_NEAR_OPS_H

#include "core/xport.h"

enum { KVCL_NEAR_SELF = 32 }; /* bytes */

typedef struct kvcl_near_ops {
    /* Write KVCL_NEAR_SELF bytes, from which a process of this host finds this one. False: none may read it. */
    bool (*self)(kvcl_xport_t *xport, void *buf);
    /* Is the peer a process of this host that this one could read so far? */
    bool (*reaches)(const kvcl_xport_ep_t *ep);
    /* Read len bytes at addr of the process that self names. Both are the peer's word. self is aligned to 8 and stays
     * untouched until done. Ends with KVCL_ERR_BUSY: a page there is absent, and a copy would wait for it;
     * KVCL_ERR_INVALID_PARAM: buf is not writable memory; another error: the process does not have the address, or may
     * not be read. Bytes of buf may have changed. */
    kvcl_status_t (*get)(kvcl_xport_ep_t *ep, const void *self, uint64_t addr, void *buf, size_t len,
                         kvcl_xport_send_t *send);
    /* End a get: it copies no more bytes, and the next progress ends it with KVCL_ERR_CANCELED. Without effect on one
     * that has ended. */
    void          (*stop)(kvcl_xport_ep_t *ep, const kvcl_xport_send_t *send);
} kvcl_near_ops_t;

#endif
