/*
 * Values: bytes of any length under a key of a store (kvcl_store.h), from and to plain memory.
 *
 * The length of a value decides its cost. B is block_bytes (the first size of a pool of several), the same on all ranks
 * with a pool:
 *   - exactly B bytes: one block under the key itself, as kvcl_store_put makes it; kvcl_store_get finds it too.
 *   - at most B - 96 bytes, also 0: one block, which begins with a head of 96 bytes.
 *   - any other length: ceil(bytes / B) blocks, its parts, and a block for the head. The last part and the head take a
 *     whole block each: a value of B + 1 bytes takes three blocks. So choose B well below the usual length, or equal to
 *     it; whole blocks travel and are checksummed, so values far smaller than B pay for B.
 * The head has a key derived from the value's (kvcl_store_value_key). The parts have keys derived from that, a random
 * number of this put, and their index. The head is published last. So a get finds all parts of one put, or nothing. It
 * never finds parts of two puts, whatever other ranks put, replace or remove meanwhile, and whichever rank fails.
 *
 * Values larger than KVCL_STORE_STRIPE (16 MiB) are spread over the pools of up to KVCL_STORE_STRIPE_RANKS ranks, in
 * runs of 4 MiB, and got from all of them at once. Parts are ordinary blocks. If one is evicted, the value is absent,
 * and the other parts stay until they are evicted or the value is removed.
 *
 * The memory is host memory, registered or not, and need not be aligned.
 */
#ifndef KVCL_STORE_VALUE_H
#define KVCL_STORE_VALUE_H

#include <kvcl/kvcl_store.h>

KVCL_BEGIN_DECLS

#define KVCL_VALUE_PARTS_MAX (UINT64_C(1) << 22) /* blocks of one value, its head not counted */

/* Some of a value's bytes. Fixed for ever, as struct iovec is. */
typedef struct kvcl_extent {
    void   *addr; /* may be NULL if bytes is 0 */
    size_t bytes;
} kvcl_extent_t;

/* A value: its extents, concatenated in order. Fixed for ever: further data for each value is passed in
 * separate arrays, as status is. */
typedef struct kvcl_value {
    const kvcl_extent_t *extents;
    size_t              n_extents;
} kvcl_value_t;

/**
 * Put n values, as kvcl_store_put does n blocks: params replicas, copies, tenant, timeout_ns, KVCL_PUT_WAIT mean the
 * same. A value that this rank's pool already holds, with the same length, as many copies and all of its parts, is a
 * no-op; one that has lost a part is put again. A value with parts, and a put with KVCL_PUT_WAIT, blocks in the call,
 * at most until the deadline: parts have all their copies before it returns, and stay in place until the head is listed
 * with all its copies. The memory and all arrays may change when the call returns.
 *
 * A rank without a pool puts values into other ranks' pools, as kvcl_store_put does blocks; the call then blocks
 * until they are there, and copies is 1 for a value that was there before.
 *
 * Completes when the directory lists all copies of all blocks. copies: the number of copies of each value.
 * @return KVCL_OK; KVCL_ERR_NO_SPACE (there is no room: nothing of any of the values is kept), KVCL_ERR_TIMED_OUT,
 *         KVCL_ERR_INVALID_PARAM (too many parts; an extent is NULL), KVCL_ERR_UNSUPPORTED (no pool anywhere; B is
 *         below the 96 bytes of a head, and a value has not B bytes). Later: as kvcl_store_put.
 */
KVCL_API kvcl_status_t kvcl_store_put_values(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                             const kvcl_value_t *values, const kvcl_xfer_params_t *params,
                                             kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Replace the blocks or values of the keys, as kvcl_store_upsert does: in between the keys are absent,
 * never a mixture. The parts of the old values are removed. Blocks.
 */
KVCL_API kvcl_status_t kvcl_store_upsert_values(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                                const kvcl_value_t *values, const kvcl_xfer_params_t *params,
                                                kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Get n values into memory whose extents give the length of each: a value of another length is KVCL_ERR_NOT_FOUND, and
 * so is one that lacks a part. status (may be NULL): one entry a value, as for kvcl_store_get; params->status is the
 * same. The request is KVCL_OK if all arrived, otherwise the first value's error. The bytes of a failed value are
 * undefined. Keep the memory until the request has completed; the arrays may be freed when the call returns.
 */
KVCL_API kvcl_status_t kvcl_store_get_values(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                             const kvcl_value_t *values, kvcl_status_t *status,
                                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** One value in one piece: as the calls for many. */
KVCL_API kvcl_status_t kvcl_store_put_value(kvcl_store_h store, const kvcl_key_t *key, const void *buf, size_t bytes,
                                            const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_get_value(kvcl_store_h store, const kvcl_key_t *key, void *buf, size_t bytes,
                                            const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/*
 * The three calls below have two forms, as the calls of kvcl_store.h that query other ranks: the plain form blocks, for
 * at most params->timeout_ns; the form ..._post posts the same as a request.
 */

/**
 * The lengths of n values. bytes[i] is 0 where status[i] (may be NULL) is not KVCL_OK. A key of a block that was put or
 * published by kvcl_store.h is a value of B bytes. The call does not check that all parts of a value exist.
 * @return KVCL_OK if all values exist, otherwise the error of the first missing one (KVCL_ERR_NOT_FOUND, ...).
 */
KVCL_API kvcl_status_t kvcl_store_value_sizes(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t *bytes,
                                              kvcl_status_t *status, const kvcl_xfer_params_t *params)
    KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_value_sizes_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                                   uint64_t *bytes, kvcl_status_t *status,
                                                   const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/**
 * The key of a value's head, for a value whose length is not B: a pure function. kvcl_store_exists, match, pin and
 * events identify values by it.
 */
KVCL_API void kvcl_store_value_key(const kvcl_key_t *key, kvcl_key_t *head_p);

/**
 * The keys of all blocks of a value (or the key of a plain block): pass them to kvcl_store_pin, unpin, copy and exists
 * to apply them to the whole value. The head, or the block, is first. *n_p: the value's number of blocks; at most cap
 * keys are written.
 * @return KVCL_OK, KVCL_ERR_NO_SPACE (more than cap), KVCL_ERR_NOT_FOUND, ...
 */
KVCL_API kvcl_status_t kvcl_store_value_keys(kvcl_store_h store, const kvcl_key_t *key, kvcl_key_t *keys, size_t cap,
                                             size_t *n_p, const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_value_keys_post(kvcl_store_h store, const kvcl_key_t *key, kvcl_key_t *keys,
                                                  size_t cap, size_t *n_p, const kvcl_xfer_params_t *params,
                                                  kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** Remove values everywhere: their heads and parts, and blocks of the same keys. (kvcl_store_remove removes blocks
 * only.) Of a value that several ranks have put, all heads are removed and the parts of one; the parts of the others
 * are evicted later. An absent value is no error. A canceled request ends when the removal that it has begun has ended,
 * by its deadline at the latest. */
KVCL_API kvcl_status_t kvcl_store_remove_values(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                                const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_remove_values_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                                     const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
