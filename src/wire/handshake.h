/*
 * The handshake's messages and MACs (protocol: peer.h). Pure, but for kvcl_hs_nonce(), which any thread may call.
 */
#ifndef KVCL_WIRE_HANDSHAKE_H
#define KVCL_WIRE_HANDSHAKE_H

#include "wire/wire.h"
#include <kvcl/kvcl_status.h>
#include <stdbool.h>
#include <stddef.h>

/* What both sides mix into every MAC. */
typedef struct kvcl_hs_ids {
    uint8_t uuid_a[16];
    uint8_t uuid_b[16];
    uint8_t nonce_a[16];
    uint8_t nonce_b[16];
} kvcl_hs_ids_t;

/* One struct for all five types; HELLO leaves nonce_b and mac zero. PROOF carries A's packed address as payload. */
typedef struct kvcl_hs_msg {
    kvcl_msg_t    msg;
    kvcl_hs_ids_t ids;
    uint32_t      index;  /* PROOF: A's index for B; WELCOME: B's for A; REFUSE: the reason, a kvcl_status_t */
    uint32_t      window; /* CHALLENGE, PROOF: which cookie */
    uint32_t      part;   /* HELLO, PROOF: the part of A's address by which A sends, and B reaches it */
    uint32_t      session; /* PROOF, WELCOME: rises each time that the link between the two is made again */
    uint8_t       mac[32];
} kvcl_hs_msg_t;
_Static_assert(sizeof(kvcl_hs_msg_t) == 144, "wire format");

/** A new nonce_a: 8 bytes, little-endian, that rise with each handshake of this process, then 8 random ones. */
kvcl_status_t kvcl_hs_nonce(uint8_t nonce_a[16]) KVCL_MUST_CHECK;
/** The part that rises: B accepts a PROOF of A only if it is above that of A's last one. */
uint64_t      kvcl_hs_nonce_order(const uint8_t nonce_a[16]);

/** B's nonce for what A said, under B's own cookie key; window counts half minutes. */
void kvcl_hs_cookie(const uint8_t cookie_key[32], const kvcl_hs_ids_t *ids, uint32_t window, uint8_t nonce_b[16]);
/**
 * role: "B" (challenge), "A" (proof), "W" (welcome); index, part, session and payload are covered. The MAC's key is
 * that of the pair, from the job's secret and both uuids (kvcl_pair_key()).
 */
void kvcl_hs_mac(const uint8_t secret[32], const char *role, const kvcl_hs_ids_t *ids, uint32_t index, uint32_t part,
                 uint32_t session, const void *payload, size_t len, uint8_t mac[32]);
/** The session token from A to B (a_to_b) or back. */
uint64_t kvcl_hs_token(const uint8_t secret[32], const kvcl_hs_ids_t *ids, bool a_to_b);

#endif
