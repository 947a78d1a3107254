/*
 * Small blocks that come with the answer of a lookup (DIR_REQUEST/FETCH): one round trip in place of two for a get
 * whose keys' home holds them as well. The asker takes of it what it would have fetched from there, the rest as ever.
 */
#ifndef KVCL_STORE_GET_FETCH_H
#define KVCL_STORE_GET_FETCH_H

#include "store/get/get.h"

/* An answer: pointers into the message. */
typedef struct kvcl_fetched {
    kvcl_dir_msg_t reply;  /* the lookup's */
    const uint8_t  *which; /* reply.n: whose bytes there are, see store_wire.h */
    const uint8_t  *bytes; /* of those, in order */
} kvcl_fetched_t;

/** Pure. Check an answer to a question about n keys of blocks of `bytes` bytes: KVCL_ERR_PROTOCOL, KVCL_ERR_VERSION. */
kvcl_status_t kvcl_fetch_unpack(kvcl_fetched_t *fetched, const void *data, size_t len, uint32_t n,
                                uint64_t bytes) KVCL_MUST_CHECK;

/** KVCL_RPC_FETCH, or KVCL_RPC_LOOKUP where the blocks that are dealt to this home are too many, or its memory is
 * mapped here, or may be. Lock held. */
uint8_t       kvcl_fetch_kind(const kvcl_get_t *get, uint32_t home);
/** The end of the question: how large the blocks are. Its payload has room for 8 bytes more. */
void          kvcl_fetch_finish_rpc(kvcl_rpc_t *rpc, uint64_t bytes);
uint64_t      kvcl_fetch_requested(const kvcl_rpc_t *rpc);

/* A row of kinds.c. */
bool          kvcl_fetch_fits(const kvcl_rpc_t *rpc, const void *data, size_t len);
bool          kvcl_fetch_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                                    const void *data, size_t len);
/** Lock held: the items of this ask, READY with their locations, for which good bytes came are DONE afterwards. */
void          kvcl_fetch_take(kvcl_get_t *get, const kvcl_rpc_t *rpc, const kvcl_fetched_t *fetched);

#endif
