/*
 * The messages of a tcp meeting, packed and parsed by pure functions: no I/O, no allocation, no lock.
 *
 * A frame, all little-endian: magic u32, version u16, type u16, length u32, then `length` bytes. A member opens with
 * HELLO and gets CHALLENGE; JOIN proves the secret to the server, WELCOME proves it to the member; REFUSE ends the
 * connection at any time. Then the server answers PUT (a member's blob) by one BLOB a rank; BYE leaves.
 * Input is hostile: parse accepts exactly the documented lengths and returns KVCL_ERR_PROTOCOL otherwise.
 */
#ifndef KVCL_BOOT_WIRE_H
#define KVCL_BOOT_WIRE_H

#include "base/crypto.h"
#include "boot/boot.h"

#define KVCL_BOOT_MAGIC UINT32_C(0x4254564b) /* "KVTB" */

enum {
    KVCL_BOOT_WIRE_VERSION = 1,
    KVCL_BOOT_HEAD_LEN     = 12,
    KVCL_BOOT_NONCE_LEN    = 32,
    KVCL_BOOT_TEXT_MAX     = 240, /* of a refusal, without NUL */
    KVCL_BOOT_SMALL_MAX    = 320, /* any frame but PUT and BLOB fits, head included */
    KVCL_BOOT_FRAME_MAX    = KVCL_BOOT_HEAD_LEN + 8 + KVCL_BOOT_BLOB_MAX
};

typedef enum {
    KVCL_BOOT_HELLO     = 1,  /* nonce */
    KVCL_BOOT_CHALLENGE = 2,  /* nonce */
    KVCL_BOOT_JOIN      = 3,  /* rank (-1: any), size, proof */
    KVCL_BOOT_WELCOME   = 4,  /* rank, size, id, proof */
    KVCL_BOOT_REFUSE    = 5,  /* status, text */
    KVCL_BOOT_PUT       = 6,  /* wait_ns, blob */
    KVCL_BOOT_BLOB      = 7,  /* rank, blob */
    KVCL_BOOT_BYE       = 10  /* nothing; 8 and 9 are retired numbers */
} kvcl_boot_type_t;

typedef struct kvcl_boot_head {
    uint16_t version;
    uint16_t type;
    uint32_t len; /* of what follows the head */
} kvcl_boot_head_t;

/* One message of any type; a type's fields are those named above. */
typedef struct kvcl_boot_msg {
    kvcl_boot_type_t type;
    int32_t          rank;
    uint32_t         size;
    uint64_t         id;
    uint64_t         wait_ns; /* how long the member will wait for the answer */
    kvcl_status_t    status;
    uint8_t          nonce[KVCL_BOOT_NONCE_LEN];
    uint8_t          proof[KVCL_SHA256_LEN];
    char             text[KVCL_BOOT_TEXT_MAX + 1]; /* printable ASCII */
    const void      *blob; /* pack: the caller's; parse: points into the parsed bytes */
    size_t           blob_len;
} kvcl_boot_msg_t;

/**
 * Read a frame's head from KVCL_BOOT_HEAD_LEN bytes.
 * @return KVCL_OK, KVCL_ERR_PROTOCOL (no magic, unknown type, impossible length), KVCL_ERR_VERSION
 *         (head->version names it). Sets no sentence: the caller knows the sender.
 */
kvcl_status_t kvcl_boot_head_parse(const void *bytes, kvcl_boot_head_t *head) KVCL_MUST_CHECK;

/** Read the body of a frame whose head was accepted. @return KVCL_OK, KVCL_ERR_PROTOCOL. */
kvcl_status_t kvcl_boot_body_parse(const kvcl_boot_head_t *head, const void *body, kvcl_boot_msg_t *msg)
        KVCL_MUST_CHECK;

/** Write head and body. Returns the frame's length, 0 if it does not fit in @a cap. */
size_t kvcl_boot_msg_pack(const kvcl_boot_msg_t *msg, void *buf, size_t cap);

/**
 * The proof in JOIN (by the member) or WELCOME (by the server): HMAC-SHA256 under the job secret over the
 * role, the wire version, both nonces and the message's other fields.
 */
void kvcl_boot_prove(const kvcl_boot_msg_t *msg, const uint8_t secret[KVCL_SHA256_LEN],
                     const uint8_t member_nonce[KVCL_BOOT_NONCE_LEN],
                     const uint8_t server_nonce[KVCL_BOOT_NONCE_LEN], uint8_t proof[KVCL_SHA256_LEN]);

#endif
