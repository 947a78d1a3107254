/*
 * Copiers: the access to bytes of a memory kind. Host memory by memcpy; device memory by its driver, many pieces in one
 * call, since a call costs microseconds for any size.
 *
 * A side of a transfer carries its copier (kv/side.h): NULL is memory that the processor reads and writes. Only the
 * copier accesses the bytes of a side that has one. A copier is opened for a region, is shared by all memory of one
 * device, and exists until the last region has closed it.
 *
 * Locks: none is needed; many threads may use a copier at once. A copy returns when the bytes have arrived.
 */
#ifndef KVCL_DEVICE_COPIER_H
#define KVCL_DEVICE_COPIER_H

#include <kvcl/kvcl_mem.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KVCL_COPIER_BATCH = 1024 }; /* pieces that are worth a call, and few enough for a stack */

/* One piece of a copy. The kernel of device/cuda_kernel.cu reads arrays of these. */
typedef struct kvcl_piece {
    uint64_t dst;
    uint64_t src;
    uint64_t len;
} kvcl_piece_t;

typedef struct kvcl_copier kvcl_copier_t;

typedef struct kvcl_copier_ops {
    kvcl_mem_kind_t kind;
    /* dst, src: the sides of the addresses; at least one of them has these ops, the other may be NULL. Pieces may
     * touch or share a source, their destinations do not overlap. KVCL_ERR_IO: the device failed; the
     * contents of the destinations are undefined. */
    kvcl_status_t (*copy)(kvcl_copier_t *dst, kvcl_copier_t *src, const kvcl_piece_t *pieces, size_t n);
    void          (*close)(kvcl_copier_t *copier);
} kvcl_copier_ops_t;

struct kvcl_copier {
    const kvcl_copier_ops_t *ops;
};

/**
 * The copier of [addr, addr + len) of the given kind; *copier_p is NULL for host memory. KVCL_MEM_AUTO asks the driver,
 * if the process has loaded it.
 * @return KVCL_OK; KVCL_ERR_UNSUPPORTED (not built in, or no driver here), KVCL_ERR_INVALID_PARAM (no such kind, or the
 *         memory is of another one), KVCL_ERR_IO.
 */
kvcl_status_t kvcl_copier_open(kvcl_mem_kind_t kind, const void *addr, size_t len, kvcl_copier_t **copier_p)
    KVCL_MUST_CHECK;
/** NULL is allowed. */
void          kvcl_copier_close(kvcl_copier_t *copier);

static inline kvcl_mem_kind_t kvcl_copier_kind(const kvcl_copier_t *copier)
{
    return (copier == NULL) ? KVCL_MEM_HOST : copier->ops->kind;
}

/** Copy the pieces; either copier may be NULL, and both: then it is memcpy. */
kvcl_status_t kvcl_copier_copy(kvcl_copier_t *dst, kvcl_copier_t *src, const kvcl_piece_t *pieces, size_t n)
    KVCL_MUST_CHECK;

/**
 * Call fn once, from any thread, when @a stream (a CUstream of the engine's, in the caller's context) has done what it
 * was given so far. fn calls no driver and does not wait.
 * @return KVCL_INPROGRESS: fn will be called, unless the device fails. KVCL_OK: it has done all already; fn is not
 *         called, as with errors: KVCL_ERR_UNSUPPORTED, KVCL_ERR_INVALID_PARAM (it is being captured), KVCL_ERR_IO.
 */
kvcl_status_t kvcl_copier_after(void *stream, void (*fn)(void *arg), void *arg) KVCL_MUST_CHECK;

/* Device memory, device/cuda_device.c and _stream.c; without it built in, copier.c has what refuses. The shapes of
 * kvcl_copier_open and kvcl_copier_after. */
kvcl_status_t kvcl_cuda_after(void *stream, void (*fn)(void *arg), void *arg) KVCL_MUST_CHECK;
kvcl_status_t kvcl_cuda_copier_open(const void *addr, size_t len, bool automatic, kvcl_copier_t **copier_p)
    KVCL_MUST_CHECK;

#endif
