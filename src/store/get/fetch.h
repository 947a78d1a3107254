/*
 * Small blocks in the answer of a lookup (DIR_REQUEST/FETCH): one round trip instead of two for a get whose keys' home
 * holds the blocks as well. The getter takes from the answer the blocks that it would have fetched from that rank, and
 * fetches the others as usual.
 */
#ifndef KVCL_STORE_GET_FETCH_H
#define KVCL_STORE_GET_FETCH_H

#include "store/get/get.h"

/* An answer; the pointers point into the message. */
typedef struct kvcl_fetched {
    kvcl_dir_msg_t reply;  /* the lookup's reply */
    const uint8_t  *which; /* reply.n: for each key, which location's bytes the answer has (store_wire.h) */
    const uint8_t  *bytes; /* the blocks' bytes, in order of the keys */
} kvcl_fetched_t;

/** Pure. Check an answer for n keys of blocks of `bytes` bytes: KVCL_ERR_PROTOCOL, KVCL_ERR_VERSION. */
kvcl_status_t kvcl_fetch_unpack(kvcl_fetched_t *fetched, const void *data, size_t len, uint32_t n,
                                uint64_t bytes) KVCL_MUST_CHECK;

/** KVCL_RPC_FETCH; KVCL_RPC_LOOKUP if the blocks scattered to this home are too many for one answer, or if its memory
 * is mapped here or may be. Lock held. */
uint8_t       kvcl_fetch_kind(const kvcl_get_t *get, uint32_t home);
/** Append the size of the blocks to the request. Its payload must have room for 8 more bytes. */
void          kvcl_fetch_finish_rpc(kvcl_rpc_t *rpc, uint64_t bytes);
uint64_t      kvcl_fetch_requested(const kvcl_rpc_t *rpc);

/* Row of kinds.c. */
bool          kvcl_fetch_fits(const kvcl_rpc_t *rpc, const void *data, size_t len);
bool          kvcl_fetch_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                                    const void *data, size_t len);
/** Lock held. Items of this rpc that are READY with their locations, and whose bytes arrived intact, are DONE
 * afterwards. */
void          kvcl_fetch_take(kvcl_get_t *get, const kvcl_rpc_t *rpc, const kvcl_fetched_t *fetched);

#endif
