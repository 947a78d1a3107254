/*
 * One ncclComm of KVCL's own, and the stream on which its collectives run. It does not block: making it and each call
 * return at once, and kvcl_nccl_poll() says how far it is.
 *
 * One thread uses a communicator at a time. Nothing here waits, but kvcl_nccl_close() (for what is under way to stop,
 * at most 2 s, and as long as ncclCommAbort takes) and the loading of the library.
 */
#ifndef KVCL_NCCL_NCCL_COMM_H
#define KVCL_NCCL_NCCL_COMM_H

#include "collectives/coll.h"
#include "device/copier.h"

enum { KVCL_NCCL_ID_BYTES = 128, KVCL_NCCL_GPU_BYTES = 16 };

typedef struct kvcl_nccl kvcl_nccl_t;

/* A collective; as kvcl_coll_shape_t. A broadcast uses out alone. */
typedef struct kvcl_nccl_call {
    kvcl_coll_kind_t        kind;
    uint32_t                rank, size, root;
    const void              *in;
    void                    *out;
    uint64_t                len;
    uint32_t                elem;
    uint32_t                reduction;
    const kvcl_coll_parts_t *parts;
} kvcl_nccl_call_t;

/** Does NCCL have this collective, type and operation? Pure: the same on all ranks. */
bool     kvcl_nccl_has(kvcl_coll_kind_t kind, uint32_t reduction);
/** The version code of the library, which is loaded if it was not; 0: there is none. */
uint32_t kvcl_nccl_version(void);
/** The PCI address of a copier's device, zeros behind it. */
kvcl_status_t kvcl_nccl_gpu(const kvcl_copier_t *copier, char gpu[KVCL_NCCL_GPU_BYTES]) KVCL_MUST_CHECK;

/** An id for a new communicator, which one rank gives to all. */
kvcl_status_t kvcl_nccl_id(char id[KVCL_NCCL_ID_BYTES]) KVCL_MUST_CHECK;

/** Begin to make the communicator, on the device of @a copier, which stays open. @return KVCL_OK, KVCL_ERR_IO, ... */
kvcl_status_t kvcl_nccl_open(const kvcl_copier_t *copier, uint32_t rank, uint32_t size,
                             const char id[KVCL_NCCL_ID_BYTES], kvcl_nccl_t **nccl_p) KVCL_MUST_CHECK;
/** Aborts what is under way; then neither NCCL nor the stream uses any memory. NULL is allowed.
 * @return whether that is so; false: the stream has not become idle in time. */
bool kvcl_nccl_close(kvcl_nccl_t *nccl);

/** Begin a collective; none is under way. After an error the communicator is of no use. */
kvcl_status_t kvcl_nccl_run(kvcl_nccl_t *nccl, const kvcl_nccl_call_t *call) KVCL_MUST_CHECK;
/** @return KVCL_OK: made, or the collective is over and the result in place; KVCL_INPROGRESS; KVCL_ERR_IO. */
kvcl_status_t kvcl_nccl_poll(kvcl_nccl_t *nccl);
/** Is the communicator on the device of this copier? */
bool kvcl_nccl_is_on(const kvcl_nccl_t *nccl, const kvcl_copier_t *copier);

#endif
