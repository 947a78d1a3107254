/*
 * The members of a job: a list of packed addresses (wire/address.h) in rank order, each after its length, u32.
 */
#ifndef KVCL_JOIN_MEMBERS_H
#define KVCL_JOIN_MEMBERS_H

#include "core/peer.h"

enum { KVCL_MEMBERS_BYTES_MAX = 4 << 20, KVCL_MEMBERS_MAX = 65536 };

typedef struct kvcl_members {
    void     *buf;
    size_t   len;
    uint32_t n;
} kvcl_members_t;

/** The next address of a list. @return KVCL_ERR_PROTOCOL at its end or if it is cut off. */
kvcl_status_t kvcl_members_next(const kvcl_members_t *members, size_t *at_p, const void **addr_p, size_t *len_p)
    KVCL_MUST_CHECK;
/**
 * A copy of a list of n members that a peer has sent, if it is one: n addresses and nothing else, the first of them the
 * peer's own. members->buf is malloc'ed on KVCL_OK. @return KVCL_OK, KVCL_ERR_PROTOCOL, KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_members_take(uint32_t n, const void *data, size_t len, const kvcl_peer_t *peer,
                                kvcl_members_t *members) KVCL_MUST_CHECK;

#endif
