/*
 * Requests to connect that wait: for an accept, or, answered by an accept that has ended since, for CONFIRM and the
 * next accept. Lists in the order of arrival, bounded in all and of one peer. Engine lock held everywhere.
 */
#ifndef KVCL_JOIN_HELD_H
#define KVCL_JOIN_HELD_H

#include "base/crypto.h"
#include "join/members.h"

typedef struct kvcl_held_request {
    kvcl_list_t    link;
    kvcl_peer_t    *peer;
    uint64_t       op;      /* the peer's */
    kvcl_members_t members; /* owned */
    uint64_t       answer;  /* of the accept that has ended; 0: none has answered */
    uint64_t       id;      /* that it has given */
    uint8_t        by[KVCL_SHA256_LEN]; /* whose members it has sent: a sum of them */
    bool           confirmed;
} kvcl_held_request_t;

/** @return KVCL_OK, KVCL_ERR_BUSY (too many are held), KVCL_ERR_PROTOCOL, KVCL_ERR_NO_MEMORY (of the list, see
 *  kvcl_members_take). */
kvcl_status_t kvcl_held_add(kvcl_list_t *held, kvcl_peer_t *peer, uint64_t op, uint32_t n, const void *data,
                            size_t len) KVCL_MUST_CHECK;
/**
 * Keep a request that an accept of these ranks (local) had answered when it ended. Takes the members. One that is lost
 * here is as one whose CONFIRM never came.
 */
void          kvcl_held_keep(kvcl_list_t *held, const kvcl_held_request_t *request, kvcl_members_t *members,
                             const kvcl_members_t *local);
/** CONFIRM has come. False: no such request is kept. */
bool          kvcl_held_confirm(kvcl_list_t *held, const kvcl_peer_t *peer, uint64_t answer);
/** The first one that is confirmed, and that an accept of the same ranks had answered. NULL: there is none. */
kvcl_held_request_t *kvcl_held_confirmed(kvcl_list_t *held, const kvcl_members_t *local);
/** Drop the one that its peer withdraws, if it is still held. */
void          kvcl_held_withdraw(kvcl_list_t *held, const kvcl_peer_t *peer, uint64_t op);
/** Drop all of a peer. NULL: of every peer. */
void          kvcl_held_drop_all(kvcl_list_t *held, const kvcl_peer_t *peer);
/** Frees it, with its members unless they were taken (buf NULL). */
void          kvcl_held_drop(kvcl_held_request_t *request);

#endif
