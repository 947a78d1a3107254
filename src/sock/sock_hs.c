/*
 * The handshake's state machine (protocol: sock_hs.h). Owns nothing; all state is the caller's struct.
 *
 * Invariants: a message is processed only when it is whole, and its head is checked before its body is read. Each field
 * of a head has one valid value for its type, and the MACs cover all other bytes, so that no bit of a message changes
 * unnoticed. Both ends of a handshake wipe its secrets. The keys of the session are made after the peer's last MAC was
 * verified.
 */
#include "config.h"
#include "sock/sock_hs.h"
#include "sock/sock_keys.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/hkdf.h"
#include "base/x25519.h"
#include "weave/pieces.h"

#include <string.h>

enum { HEAD = sizeof(kvcl_sock_head_t), MAC_LEN = KVCL_SOCK_MAC_LEN, NONCE_LEN = 16 };

static const uint8_t message_len[] = {[KVCL_SOCK_HELLO]     = sizeof(kvcl_sock_hello_t),
                                      [KVCL_SOCK_CHALLENGE] = sizeof(kvcl_sock_challenge_t),
                                      [KVCL_SOCK_PROOF]     = sizeof(kvcl_sock_proof_t),
                                      [KVCL_SOCK_WELCOME]   = sizeof(kvcl_sock_proof_t)};

static kvcl_sock_head_t head_of(kvcl_sock_type_t type)
{
    return (kvcl_sock_head_t){.magic = KVCL_SOCK_MAGIC, .version = KVCL_SOCK_VERSION, .type = (uint8_t)type};
}

static void send_bytes(kvcl_sock_hs_t *hs, const void *bytes, size_t len)
{
    kvcl_copy_bytes(hs->out + hs->out_len, bytes, len);
    hs->out_len += (uint32_t)len;
}

static void log_bytes(kvcl_sock_hs_t *hs, const void *bytes, size_t len)
{
    kvcl_copy_bytes(hs->log + hs->log_len, bytes, len);
    hs->log_len += (uint32_t)len;
}

static void await(kvcl_sock_hs_t *hs, kvcl_sock_type_t type)
{
    hs->expect  = (uint8_t)type;
    hs->in_len  = 0;
    hs->in_need = HEAD;
}

static void forget_keys(kvcl_sock_hs_t *hs)
{
    kvcl_wipe(hs->pair_key, sizeof(hs->pair_key));
    kvcl_wipe(hs->side.random, sizeof(hs->side.random));
    hs->side.secret = NULL;
}

/* The sentence is set. */
static kvcl_status_t fail(kvcl_sock_hs_t *hs, kvcl_status_t status)
{
    forget_keys(hs);
    hs->state   = KVCL_SOCK_HS_FAILED;
    hs->in_need = hs->in_len;
    return status;
}

/* As fail, and the peer is sent the reason, unless it may be DONE already: then it expects no more messages. */
static kvcl_status_t refuse(kvcl_sock_hs_t *hs, kvcl_status_t status)
{
    kvcl_sock_head_t head = head_of(KVCL_SOCK_REFUSE);

    head.reason = (uint8_t)-status;
    if (hs->expect != KVCL_SOCK_WELCOME) {
        send_bytes(hs, &head, sizeof(head));
    }
    return fail(hs, status);
}

static void mac_of(const kvcl_sock_hs_t *hs, const char *role, const void *rest, size_t len, uint8_t mac[MAC_LEN])
{
    kvcl_sock_mac(hs->pair_key, role, hs->log, hs->log_len, rest, len, mac);
}

static void prove(kvcl_sock_hs_t *hs, kvcl_sock_type_t type, const char *role)
{
    kvcl_sock_proof_t proof = {.head = head_of(type)};

    mac_of(hs, role, &proof.head, sizeof(proof.head), proof.mac);
    send_bytes(hs, &proof, sizeof(proof));
    log_bytes(hs, &proof, sizeof(proof));
}

/* Has the received PROOF or WELCOME the right MAC? */
static bool is_proven(kvcl_sock_hs_t *hs, const char *role)
{
    kvcl_sock_proof_t proof;
    uint8_t           mac[MAC_LEN];

    memcpy(&proof, hs->in, sizeof(proof));
    mac_of(hs, role, &proof.head, sizeof(proof.head), mac);
    log_bytes(hs, &proof, sizeof(proof));
    return kvcl_ct_equal(mac, proof.mac, sizeof(mac));
}

static kvcl_status_t wrong_secret(void)
{
    return kvcl_fail(KVCL_ERR_AUTH, "it does not prove that it knows the job's secret (or its bytes were changed on "
                     "the way): give all ranks the same secret");
}

/* The log holds all four messages. */
static void finish(kvcl_sock_hs_t *hs, const uint8_t shared[32])
{
    kvcl_sock_session_t *session = &hs->session;

    if (session->wire == KVCL_SOCK_AEAD) {
        kvcl_sock_direction_keys(hs->pair_key, shared, hs->log, hs->log_len,
                                 hs->connects ? &session->tx : &session->rx,
                                 hs->connects ? &session->rx : &session->tx);
    }
    forget_keys(hs);
    hs->state   = KVCL_SOCK_HS_DONE;
    hs->in_need = hs->in_len;
}

/* The X25519 secret with the peer's key, if the wire needs it. */
static kvcl_status_t agree(const kvcl_sock_hs_t *hs, const uint8_t pub[32], uint8_t shared[32])
{
    memset(shared, 0, 32);
    return (hs->session.wire == KVCL_SOCK_AEAD) ? kvcl_x25519(hs->side.random + NONCE_LEN, pub, shared) : KVCL_OK;
}

/* ---- the side that accepts ---- */

static bool is_zero(const uint8_t *bytes, size_t len)
{
    uint8_t any = 0;

    for (; len > 0; --len) {
        any |= bytes[len - 1];
    }
    return any == 0;
}

static bool is_valid(uint8_t wire, uint8_t cipher)
{
    return ((wire == KVCL_SOCK_PLAIN) || (wire == KVCL_SOCK_AEAD)) &&
           ((cipher == KVCL_AEAD_AES128_GCM) || (cipher == KVCL_AEAD_CHACHA20_POLY1305));
}

static kvcl_status_t check_hello(const kvcl_sock_hs_t *hs, const kvcl_sock_hello_t *hello)
{
    if (memcmp(hello->id_b, hs->side.id, KVCL_SOCK_ID_LEN) != 0) {
        return kvcl_fail(KVCL_ERR_STALE, "it asks for another transport instance: the rank that it knew at this "
                         "address has ended");
    }
    if (memcmp(hello->id_a, hs->side.id, KVCL_SOCK_ID_LEN) == 0) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "its HELLO has this rank's own id");
    }
    if (((hello->purpose != KVCL_SOCK_MESSAGES) && (hello->purpose != KVCL_SOCK_STREAM)) ||
        !is_valid(hello->wire, hello->cipher) || !is_zero(hello->reserved, sizeof(hello->reserved))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "its HELLO has purpose %u, wire %u, cipher %u or set reserved bytes",
                         hello->purpose, hello->wire, hello->cipher);
    }
    return KVCL_OK;
}

/* aead if either side asks for it; AES only if both sides prefer it. */
static void decide(kvcl_sock_hs_t *hs, const kvcl_sock_hello_t *hello)
{
    bool aead = (hello->wire == KVCL_SOCK_AEAD) || (hs->side.wire == KVCL_SOCK_AEAD);
    bool aes  = (hello->cipher == KVCL_AEAD_AES128_GCM) && (hs->side.cipher == KVCL_AEAD_AES128_GCM);

    hs->session.purpose = (kvcl_sock_purpose_t)hello->purpose;
    hs->session.wire    = aead ? KVCL_SOCK_AEAD : KVCL_SOCK_PLAIN;
    hs->session.cipher  = aes ? KVCL_AEAD_AES128_GCM : KVCL_AEAD_CHACHA20_POLY1305;
    memcpy(hs->session.peer_id, hello->id_a, KVCL_SOCK_ID_LEN);
}

static kvcl_status_t on_hello(kvcl_sock_hs_t *hs)
{
    kvcl_sock_challenge_t out    = {.head = head_of(KVCL_SOCK_CHALLENGE)};
    kvcl_sock_hello_t     hello;
    kvcl_status_t         status;

    memcpy(&hello, hs->in, sizeof(hello));
    status = check_hello(hs, &hello);
    if (status != KVCL_OK) {
        return refuse(hs, status);
    }
    decide(hs, &hello);
    out.wire   = (uint8_t)hs->session.wire;
    out.cipher = (uint8_t)hs->session.cipher;
    memcpy(out.nonce, hs->side.random, NONCE_LEN);
    status = (hs->session.wire == KVCL_SOCK_AEAD) ? kvcl_x25519_public(hs->side.random + NONCE_LEN, out.pub) : KVCL_OK;
    if (status != KVCL_OK) {
        return fail(hs, status);
    }
    kvcl_pair_key(hs->side.secret, "sock", hello.id_a, hello.id_b, hs->pair_key);
    log_bytes(hs, &hello, sizeof(hello));
    mac_of(hs, "B", &out, offsetof(kvcl_sock_challenge_t, mac), out.mac);
    send_bytes(hs, &out, sizeof(out));
    log_bytes(hs, &out, sizeof(out));
    await(hs, KVCL_SOCK_PROOF);
    return KVCL_OK;
}

static kvcl_status_t on_proof(kvcl_sock_hs_t *hs)
{
    uint8_t       shared[32];
    kvcl_status_t status;

    if (!is_proven(hs, "A")) {
        return refuse(hs, wrong_secret());
    }
    status = agree(hs, hs->log + offsetof(kvcl_sock_hello_t, pub), shared);
    if (status != KVCL_OK) {
        return (status == KVCL_ERR_PROTOCOL) ? refuse(hs, status) : fail(hs, status);
    }
    prove(hs, KVCL_SOCK_WELCOME, "W");
    finish(hs, shared);
    kvcl_wipe(shared, sizeof(shared));
    return KVCL_OK;
}

/* ---- the side that connects ---- */

static kvcl_status_t on_challenge(kvcl_sock_hs_t *hs)
{
    kvcl_sock_challenge_t in;
    uint8_t               mac[MAC_LEN];

    memcpy(&in, hs->in, sizeof(in));
    mac_of(hs, "B", &in, offsetof(kvcl_sock_challenge_t, mac), mac);
    if (!kvcl_ct_equal(mac, in.mac, sizeof(mac))) {
        return refuse(hs, wrong_secret());
    }
    if (!is_valid(in.wire, in.cipher) || ((hs->side.wire == KVCL_SOCK_AEAD) && (in.wire != KVCL_SOCK_AEAD))) {
        return refuse(hs, kvcl_fail(KVCL_ERR_PROTOCOL, "its CHALLENGE has wire %u and cipher %u, which this rank does "
                                    "not accept", in.wire, in.cipher));
    }
    hs->session.wire   = (kvcl_sock_wire_t)in.wire;
    hs->session.cipher = (kvcl_aead_cipher_t)in.cipher;
    log_bytes(hs, &in, sizeof(in));
    prove(hs, KVCL_SOCK_PROOF, "A");
    await(hs, KVCL_SOCK_WELCOME);
    return KVCL_OK;
}

static kvcl_status_t on_welcome(kvcl_sock_hs_t *hs)
{
    uint8_t       shared[32];
    kvcl_status_t status;

    if (!is_proven(hs, "W")) {
        return fail(hs, wrong_secret());
    }
    status = agree(hs, hs->log + sizeof(kvcl_sock_hello_t) + offsetof(kvcl_sock_challenge_t, pub), shared);
    if (status != KVCL_OK) {
        return fail(hs, status);
    }
    finish(hs, shared);
    kvcl_wipe(shared, sizeof(shared));
    return KVCL_OK;
}

/* ---- both ---- */

static kvcl_status_t other_version(const kvcl_sock_head_t *head)
{
    return kvcl_fail(KVCL_ERR_VERSION, "it has version %u of the connection's protocol, this library has %u: use the "
                     "same version of KVCL on all ranks", head->version, (unsigned)KVCL_SOCK_VERSION);
}

static kvcl_status_t on_refuse(kvcl_sock_hs_t *hs, const kvcl_sock_head_t *head)
{
    kvcl_status_t why = (kvcl_status_t)-(int)head->reason;

    if (why == KVCL_ERR_VERSION) {
        return fail(hs, other_version(head));
    }
    if (why == KVCL_ERR_STALE) {
        return fail(hs, kvcl_fail(why, "another rank answers at its address: the rank that was there has ended"));
    }
    if (why == KVCL_ERR_AUTH) {
        return fail(hs, kvcl_fail(why, "it refuses this rank's proof of the job's secret: give all ranks the same "
                                  "secret"));
    }
    return fail(hs, kvcl_fail(KVCL_ERR_PROTOCOL, "it refuses this rank's handshake as malformed (reason %u)",
                              head->reason));
}

static kvcl_status_t on_head(kvcl_sock_hs_t *hs)
{
    kvcl_sock_head_t head;

    memcpy(&head, hs->in, sizeof(head));
    if (head.magic != KVCL_SOCK_MAGIC) {
        return fail(hs, kvcl_fail(KVCL_ERR_PROTOCOL, "its first bytes are not those of a KVCL handshake"));
    }
    if ((head.type == KVCL_SOCK_REFUSE) && (hs->expect != KVCL_SOCK_HELLO)) {
        return on_refuse(hs, &head);
    }
    if (head.version != KVCL_SOCK_VERSION) {
        return refuse(hs, other_version(&head));
    }
    if ((head.type != hs->expect) || (head.reason != 0)) {
        return refuse(hs, kvcl_fail(KVCL_ERR_PROTOCOL, "its message has type %u and reason %u, but type %u and reason "
                                    "0 are due", head.type, head.reason, hs->expect));
    }
    hs->in_need = message_len[hs->expect];
    return KVCL_OK;
}

static kvcl_status_t on_message(kvcl_sock_hs_t *hs)
{
    switch (hs->expect) {
    case KVCL_SOCK_HELLO:
        return on_hello(hs);
    case KVCL_SOCK_CHALLENGE:
        return on_challenge(hs);
    case KVCL_SOCK_PROOF:
        return on_proof(hs);
    default:
        return on_welcome(hs);
    }
}

kvcl_status_t kvcl_sock_hs_connect(kvcl_sock_hs_t *hs, const kvcl_sock_side_t *side,
                                   const uint8_t peer_id[KVCL_SOCK_ID_LEN], kvcl_sock_purpose_t purpose)
{
    kvcl_sock_hello_t hello = {.head   = head_of(KVCL_SOCK_HELLO), .purpose = (uint8_t)purpose,
                               .wire   = (uint8_t)side->wire,      .cipher  = (uint8_t)side->cipher};
    kvcl_status_t     status;

    if (memcmp(side->id, peer_id, KVCL_SOCK_ID_LEN) == 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a transport does not connect to itself");
    }
    memset(hs, 0, sizeof(*hs));
    status = kvcl_x25519_public(side->random + NONCE_LEN, hello.pub);
    if (status != KVCL_OK) {
        return status;
    }
    hs->side            = *side;
    hs->connects        = true;
    hs->session.purpose = purpose;
    memcpy(hs->session.peer_id, peer_id, KVCL_SOCK_ID_LEN);
    memcpy(hello.id_a, side->id, KVCL_SOCK_ID_LEN);
    memcpy(hello.id_b, peer_id, KVCL_SOCK_ID_LEN);
    memcpy(hello.nonce, side->random, NONCE_LEN);
    kvcl_pair_key(side->secret, "sock", hello.id_a, hello.id_b, hs->pair_key);
    send_bytes(hs, &hello, sizeof(hello));
    log_bytes(hs, &hello, sizeof(hello));
    await(hs, KVCL_SOCK_CHALLENGE);
    return KVCL_OK;
}

void kvcl_sock_hs_accept(kvcl_sock_hs_t *hs, const kvcl_sock_side_t *side)
{
    memset(hs, 0, sizeof(*hs));
    hs->side = *side;
    await(hs, KVCL_SOCK_HELLO);
}

void kvcl_sock_hs_wipe(kvcl_sock_hs_t *hs)
{
    kvcl_wipe(hs, sizeof(*hs));
}

void *kvcl_sock_hs_in(kvcl_sock_hs_t *hs, size_t *len_p)
{
    *len_p = hs->in_need - hs->in_len;
    return hs->in + hs->in_len;
}

kvcl_status_t kvcl_sock_hs_took(kvcl_sock_hs_t *hs, size_t n)
{
    if ((hs->state != KVCL_SOCK_HS_GOING) || (n == 0) || (n > hs->in_need - hs->in_len)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%zu bytes, but the handshake needs %u", n, hs->in_need - hs->in_len);
    }
    hs->in_len += (uint32_t)n;
    if (hs->in_len < hs->in_need) {
        return KVCL_OK;
    }
    return (hs->in_len == HEAD) ? on_head(hs) : on_message(hs);
}

const void *kvcl_sock_hs_out(const kvcl_sock_hs_t *hs, size_t *len_p)
{
    *len_p = hs->out_len - hs->out_sent;
    return hs->out + hs->out_sent;
}

void kvcl_sock_hs_sent(kvcl_sock_hs_t *hs, size_t n)
{
    hs->out_sent += (uint32_t)n;
}
