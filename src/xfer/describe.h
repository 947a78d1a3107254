/*
 * How failed transfers are worded (kvcl_req_class_t.describe): selections, peers, and what two sides have against each
 * other. Pure, but that ranks' names need the engine lock.
 */
#ifndef KVCL_XFER_DESCRIBE_H
#define KVCL_XFER_DESCRIBE_H

#include "core/peer.h"
#include "cache/cache.h"
#include "xfer/xfer_wire.h"

/** "3 blocks (7, 9, 12), layers 2 to 5": at most four ids; ranges only where they are not everything. */
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
/** Lock held. What a status of such a transfer means, where it means more than for any request; false: it does not. */
bool        kvcl_explain_transfer(const kvcl_transfer_words_t *words, kvcl_status_t status, char *buf, size_t cap);

/** Lock held. The same of bytes of a peer's exported memory. */
bool        kvcl_explain_access(const kvcl_peer_t *peer, kvcl_status_t status, char *buf, size_t cap);

/** A send against the recv that it matched, of blocks whose shapes differ: both sides' numbers, and what must be equal.
 */
const char *kvcl_describe_layouts(const kvcl_msg_send_t *msg, kvcl_cache_h cache, const kvcl_sel_t *sel, char *buf,
                                  size_t cap);
/** The same, of sizes that differ. cache NULL: plain memory with room for this many bytes. */
const char *kvcl_describe_sizes(const kvcl_msg_send_t *msg, kvcl_cache_h cache, const kvcl_sel_t *sel, uint64_t bytes,
                                char *buf, size_t cap);

/** "rank 1" (lock held), or "any rank" without a peer. */
const char *kvcl_describe_peer(const kvcl_peer_t *peer, char *buf, size_t cap);

#endif
