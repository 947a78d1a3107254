/*
 * The handshake that authenticates a TCP connection, as a state machine of both sides. A connects, B accepts:
 *
 *   A -> B HELLO      A's purpose, wire and cipher; id_a, id_b, nonce_a, A's X25519 key
 *   B -> A CHALLENGE  the wire and cipher of the connection, nonce_b, B's X25519 key, MAC("B")
 *   A -> B PROOF      MAC("A"): B has proven the secret to A, A proves it to B
 *   B -> A WELCOME    MAC("W")
 *
 * Each message begins with the 8 bytes of kvcl_sock_head_t, which never change, and its length follows from its type.
 * A side that refuses sends REFUSE, which is a head alone and not authenticated, and then closes.
 *
 * MAC = HMAC-SHA256 under the pair's key (kvcl_pair_key(), from the job's secret and both ids), over the role and every
 * byte that was sent before it in both directions. The next MAC therefore detects a changed wire, cipher, key or id,
 * and a MAC of one connection, direction or step is not valid in another. The wire is aead if either side asks for it.
 * B keeps only this struct until it has verified PROOF.
 *
 * The keys of an aead connection, one for each direction, come from the pair's key and the X25519 secret, with the hash
 * of all four messages as salt. A secret that is stolen later does not reveal them.
 *
 * Each rank knows the whole secret: whoever steals it from one rank can pose as any other, with its id, which is in
 * each rank's address. Such a connection does not end those that the rank itself has made (tcp/tcp_conn.c).
 *
 * Pure: no socket, no clock, no allocation of its own, nothing shared. One thread at a time per struct.
 *
 * The caller's loop while kvcl_sock_hs_state() is KVCL_SOCK_HS_GOING: send the bytes of kvcl_sock_hs_out() and report
 * them to kvcl_sock_hs_sent(); read at most *len_p bytes to kvcl_sock_hs_in() and report them to kvcl_sock_hs_took().
 * When the handshake is DONE or FAILED, send the rest of kvcl_sock_hs_out() (WELCOME or REFUSE) before anything else.
 * No byte beyond the handshake is read.
 */
#ifndef KVCL_SOCK_HS_H
#define KVCL_SOCK_HS_H

#include "base/aead.h"

enum {
    KVCL_SOCK_MAGIC   = 0x534c564b, /* "KVLS" in memory */
    KVCL_SOCK_VERSION = 1,
    KVCL_SOCK_ID_LEN  = 16,
    KVCL_SOCK_RANDOM  = 48, /* bytes: a nonce and a private key */
    KVCL_SOCK_MESSAGE = 96  /* bytes of the longest message */
};

/* All values are wire format. */
typedef enum { KVCL_SOCK_MESSAGES = 1, KVCL_SOCK_STREAM = 2 } kvcl_sock_purpose_t;
typedef enum { KVCL_SOCK_PLAIN = 1, KVCL_SOCK_AEAD = 2 } kvcl_sock_wire_t;
typedef enum {
    KVCL_SOCK_HELLO     = 1,
    KVCL_SOCK_CHALLENGE = 2,
    KVCL_SOCK_PROOF     = 3,
    KVCL_SOCK_WELCOME   = 4,
    KVCL_SOCK_REFUSE    = 5
} kvcl_sock_type_t;

typedef struct kvcl_sock_head {
    uint32_t magic;
    uint16_t version;
    uint8_t  type;
    uint8_t  reason; /* REFUSE: -KVCL_ERR_VERSION, _STALE, _AUTH or _PROTOCOL; otherwise 0 */
} kvcl_sock_head_t;
_Static_assert(sizeof(kvcl_sock_head_t) == 8, "wire format");

typedef struct kvcl_sock_hello {
    kvcl_sock_head_t head;
    uint8_t          purpose, wire, cipher;
    uint8_t          reserved[5];
    uint8_t          id_a[KVCL_SOCK_ID_LEN];
    uint8_t          id_b[KVCL_SOCK_ID_LEN];
    uint8_t          nonce[16];
    uint8_t          pub[32];
} kvcl_sock_hello_t;
_Static_assert(sizeof(kvcl_sock_hello_t) == 96, "wire format");

typedef struct kvcl_sock_challenge {
    kvcl_sock_head_t head;
    uint8_t          wire, cipher;
    uint8_t          reserved[6];
    uint8_t          nonce[16];
    uint8_t          pub[32]; /* zeros if the wire is plain */
    uint8_t          mac[32];
} kvcl_sock_challenge_t;
_Static_assert(sizeof(kvcl_sock_challenge_t) == 96, "wire format");

typedef struct kvcl_sock_proof { /* WELCOME as well */
    kvcl_sock_head_t head;
    uint8_t          mac[32];
} kvcl_sock_proof_t;
_Static_assert(sizeof(kvcl_sock_proof_t) == 40, "wire format");

/* The caller's side. secret is not copied: it must outlive the handshake. */
typedef struct kvcl_sock_side {
    const uint8_t      *secret;                  /* 32 bytes: the job's */
    uint8_t            id[KVCL_SOCK_ID_LEN];     /* this transport instance */
    kvcl_sock_wire_t   wire;                     /* KVCL_SOCK_AEAD: no other is accepted */
    kvcl_aead_cipher_t cipher;                   /* kvcl_aead_preferred() */
    uint8_t            random[KVCL_SOCK_RANDOM]; /* from the kernel, new for each connection */
} kvcl_sock_side_t;

/* The result of a handshake. The keys are zero if the wire is plain. */
typedef struct kvcl_sock_session {
    kvcl_sock_purpose_t purpose;
    kvcl_sock_wire_t    wire;
    kvcl_aead_cipher_t  cipher;
    uint8_t             peer_id[KVCL_SOCK_ID_LEN];
    kvcl_aead_key_t     tx, rx;
} kvcl_sock_session_t;

typedef enum { KVCL_SOCK_HS_GOING, KVCL_SOCK_HS_DONE, KVCL_SOCK_HS_FAILED } kvcl_sock_hs_state_t;

/* Fixed size, about 700 bytes; the fields are the machine's own. */
typedef struct kvcl_sock_hs {
    kvcl_sock_hs_state_t state;
    bool                 connects;
    uint8_t              expect;      /* the type of the next message, kvcl_sock_type_t */
    uint8_t              in[KVCL_SOCK_MESSAGE];
    uint32_t             in_len, in_need;
    uint8_t              out[KVCL_SOCK_MESSAGE + sizeof(kvcl_sock_proof_t)];
    uint32_t             out_len, out_sent;
    uint8_t              log[2 * KVCL_SOCK_MESSAGE + 2 * sizeof(kvcl_sock_proof_t)]; /* all messages so far */
    uint32_t             log_len;
    uint8_t              pair_key[32];
    kvcl_sock_side_t     side;
    kvcl_sock_session_t  session;
} kvcl_sock_hs_t;

/**
 * Begin as the side that connects, to the transport instance peer_id. HELLO is in kvcl_sock_hs_out() afterwards.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (peer_id is this side's own), KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_sock_hs_connect(kvcl_sock_hs_t *hs, const kvcl_sock_side_t *side,
                                   const uint8_t peer_id[KVCL_SOCK_ID_LEN],
                                   kvcl_sock_purpose_t purpose) KVCL_MUST_CHECK;
/** Begin as the side that accepts. Nothing is calculated before HELLO is complete. */
void kvcl_sock_hs_accept(kvcl_sock_hs_t *hs, const kvcl_sock_side_t *side);
/** Wipe all keys, in every state; the struct is zeroed. The session ends with it. */
void kvcl_sock_hs_wipe(kvcl_sock_hs_t *hs);

static inline kvcl_sock_hs_state_t kvcl_sock_hs_state(const kvcl_sock_hs_t *hs)
{
    return hs->state;
}

/** Where to put the peer's next bytes. *len_p: the number that the next step needs; 0: the handshake has ended. */
void *kvcl_sock_hs_in(kvcl_sock_hs_t *hs, size_t *len_p);
/**
 * n bytes were put there, 1 <= n <= *len_p.
 * @return KVCL_OK (see kvcl_sock_hs_state()). Otherwise the handshake has FAILED, and the sentence says why:
 *         KVCL_ERR_AUTH (another secret, or bytes were changed on the way), KVCL_ERR_VERSION, KVCL_ERR_STALE (B's id is
 *         not id_b: that transport instance has ended), KVCL_ERR_PROTOCOL (not this protocol), KVCL_ERR_NO_MEMORY. A
 *         reason that the peer's REFUSE gives is not authenticated.
 */
kvcl_status_t kvcl_sock_hs_took(kvcl_sock_hs_t *hs, size_t n) KVCL_MUST_CHECK;

/** The bytes to send; *len_p 0: none. */
const void *kvcl_sock_hs_out(const kvcl_sock_hs_t *hs, size_t *len_p);
void        kvcl_sock_hs_sent(kvcl_sock_hs_t *hs, size_t n);

/** Of a handshake that is DONE; until kvcl_sock_hs_wipe(). */
static inline const kvcl_sock_session_t *kvcl_sock_hs_session(const kvcl_sock_hs_t *hs)
{
    return &hs->session;
}

#endif
