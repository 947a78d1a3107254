/*
 * Requests to connect that no accept has taken yet: a list, in the order of their arrival, bounded in all and of one
 * peer. Engine lock held everywhere.
 */
#ifndef KVCL_JOIN_HELD_H
#define KVCL_JOIN_HELD_H

#include "join/members.h"

typedef struct kvcl_held_request {
    kvcl_list_t    link;
    kvcl_peer_t    *peer;
    uint64_t       op;      /* the peer's */
    kvcl_members_t members; /* owned */
} kvcl_held_request_t;

/** @return KVCL_OK, KVCL_ERR_BUSY (too many are held), KVCL_ERR_PROTOCOL, KVCL_ERR_NO_MEMORY (of the list, see
 *  kvcl_members_take). */
kvcl_status_t kvcl_held_add(kvcl_list_t *held, kvcl_peer_t *peer, uint64_t op, uint32_t n, const void *data,
                            size_t len) KVCL_MUST_CHECK;
/** Drop the one that its peer withdraws, if it is still held. */
void          kvcl_held_withdraw(kvcl_list_t *held, const kvcl_peer_t *peer, uint64_t op);
/** Drop all of a peer. NULL: of every peer. */
void          kvcl_held_drop_all(kvcl_list_t *held, const kvcl_peer_t *peer);
/** Frees it, with its members unless they were taken (buf NULL). */
void          kvcl_held_drop(kvcl_held_request_t *request);

#endif
