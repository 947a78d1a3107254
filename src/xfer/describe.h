/*
 * The error sentences of transfers (kvcl_req_class_t.describe, explain): selections, peers, and the differences between
 * two sides. Pure, except that ranks' names need the engine lock.
 */
#ifndef KVCL_XFER_DESCRIBE_H
#define KVCL_XFER_DESCRIBE_H

#include "core/peer.h"
#include "cache/cache.h"
#include "kv/pieces.h"
#include "xfer/xfer_wire.h"

/** "3 blocks (7, 9, 12), layers 2 to 5": at most four ids; a range only where it is not the whole. */
const char *kvcl_describe_sel(const kvcl_sel_t *sel, char *buf, size_t cap);

/* A get or put of blocks. */
typedef struct kvcl_transfer_words {
    bool              push;
    const kvcl_peer_t *peer;
    const char        *name;   /* of the peer's cache */
    const kvcl_sel_t  *remote;
    kvcl_cache_h      cache;   /* here; NULL: plain memory */
    const kvcl_sel_t  *local;
} kvcl_transfer_words_t;

/** Lock held. "kvcl_get of 2 blocks (3, 4) of rank 1's cache \"kv\" into 2 blocks (0, 1) of \"kv\"". */
const char *kvcl_describe_transfer(const kvcl_transfer_words_t *words, char *buf, size_t cap);
/** Lock held. The meaning of a status for such a transfer; false: none beyond its general one. */
bool        kvcl_explain_transfer(const kvcl_transfer_words_t *words, kvcl_status_t status, char *buf, size_t cap);

/** The same two for bytes of a peer's exported memory: kvcl_get_bytes and kvcl_put_bytes (push); with pieces:
 * kvcl_get_vec and kvcl_put_vec. */
void        kvcl_describe_bytes(bool push, const kvcl_peer_t *peer, const kvcl_pieces_t *pieces, uint64_t bytes,
                                uint64_t offset, char *buf, size_t cap);
bool        kvcl_explain_access(const kvcl_peer_t *peer, kvcl_status_t status, char *buf, size_t cap);

/** "rank 1" (lock held), or "any rank" without a peer. */
const char *kvcl_describe_peer(const kvcl_peer_t *peer, char *buf, size_t cap);

#endif
