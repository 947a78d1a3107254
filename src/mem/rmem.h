/*
 * Peers' exported memory as the user holds it (kvcl_rmem_h).
 */
#ifndef KVCL_MEM_RMEM_H
#define KVCL_MEM_RMEM_H

#include "core/comm.h"
#include "mem/region.h"
#include <kvcl/kvcl_xfer.h>

struct kvcl_rmem {
    kvcl_list_t    link; /* kvcl_context_rmems() */
    kvcl_context_h ctx;
    kvcl_peer_t    *peer;
    kvcl_comm_self_t self; /* over the communicator that it was imported by */
    kvcl_rregion_t rregion;
    /* The mapped bytes, while the peer is connected and the processor may copy them: they are copied without the lock.
     * NULL: unknown, or not so. Written with the lock. */
    _Atomic(char *) direct;
};

struct kvcl_mem {
    kvcl_list_t    link; /* kvcl_context_mems() */
    kvcl_context_h ctx;
    kvcl_region_t  *region;
    void           *mapped; /* a file's mapping, to be unmapped */
    size_t         mapped_len;
};

/** The handles that the user holds. With the lock, or once the engine has stopped. */
kvcl_list_t *kvcl_context_mems(kvcl_context_h ctx);
kvcl_list_t *kvcl_context_rmems(kvcl_context_h ctx);
/** The context ends: free what the user did not, and say so. No lock held. */
void         kvcl_mems_fini(kvcl_context_h ctx);
/** Lock held: the peer has failed or is being closed. */
void         kvcl_rmem_peer_lost(kvcl_rmem_h rmem);
/** An access of the user's: handle, range and right. */
kvcl_status_t kvcl_rmem_check(kvcl_rmem_h rmem, uint64_t offset, const void *buf, uint64_t len, unsigned right,
                              const char *call) KVCL_MUST_CHECK;
/** Copy n checked pieces, of bytes in all, inside the call if it is mapped; false: it is not. push: to the peer. */
bool          kvcl_rmem_copy(kvcl_rmem_h rmem, const kvcl_vec_t *pieces, size_t n, uint64_t bytes, bool push,
                             const char *call, kvcl_status_t *status_p);

#endif
