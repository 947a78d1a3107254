/*
 * Packing and parsing of the meeting's messages, see boot_wire.h. Pure.
 */
#include "config.h"
#include "boot/boot_wire.h"
#include "base/wirebuf.h"

#include <string.h>

_Static_assert(KVCL_BOOT_HEAD_LEN + 4 + KVCL_BOOT_TEXT_MAX <= KVCL_BOOT_SMALL_MAX, "a refusal is a small frame");

/* The body lengths a type may have. 0 if there is no such type. */
static int length_bounds(uint16_t type, uint32_t *min_p, uint32_t *max_p)
{
    uint32_t fixed = 0, more = 0;

    switch (type) {
    case KVCL_BOOT_HELLO:
    case KVCL_BOOT_CHALLENGE:
        fixed = KVCL_BOOT_NONCE_LEN;
        break;
    case KVCL_BOOT_JOIN:
        fixed = 4 + 4 + KVCL_SHA256_LEN;
        break;
    case KVCL_BOOT_WELCOME:
        fixed = 4 + 4 + 8 + KVCL_SHA256_LEN;
        break;
    case KVCL_BOOT_REFUSE:
        fixed = 4;
        more  = KVCL_BOOT_TEXT_MAX;
        break;
    case KVCL_BOOT_PUT:
        fixed = 8;
        more  = KVCL_BOOT_BLOB_MAX;
        break;
    case KVCL_BOOT_BLOB:
        fixed = 4;
        more  = KVCL_BOOT_BLOB_MAX;
        break;
    case KVCL_BOOT_BYE:
        break;
    default:
        return 0;
    }
    *min_p = fixed;
    *max_p = fixed + more;
    return 1;
}

kvcl_status_t kvcl_boot_head_parse(const void *bytes, kvcl_boot_head_t *head)
{
    uint32_t  magic, min = 0, max = 0;
    kvcl_rd_t rd;

    kvcl_rd_init(&rd, bytes, KVCL_BOOT_HEAD_LEN);
    magic         = kvcl_rd_u32(&rd);
    head->version = kvcl_rd_u16(&rd);
    head->type    = kvcl_rd_u16(&rd);
    head->len     = kvcl_rd_u32(&rd);
    if (magic != KVCL_BOOT_MAGIC) {
        return KVCL_ERR_PROTOCOL;
    }
    if (head->version != KVCL_BOOT_WIRE_VERSION) {
        return KVCL_ERR_VERSION;
    }
    if (!length_bounds(head->type, &min, &max) || (head->len < min) || (head->len > max)) {
        return KVCL_ERR_PROTOCOL;
    }
    return KVCL_OK;
}

/* A refusal is shown to people: nothing in it may move their cursor. */
static void read_text(kvcl_rd_t *rd, char *text)
{
    size_t      len = kvcl_rd_left(rd);
    const char *src = (const char *)kvcl_rd_bytes(rd, len);
    size_t      i;

    for (i = 0; (src != NULL) && (i < len) && (i < KVCL_BOOT_TEXT_MAX); ++i) {
        text[i] = ((src[i] >= ' ') && (src[i] <= '~')) ? src[i] : '?';
    }
    text[i] = '\0';
}

static void read_blob(kvcl_rd_t *rd, kvcl_boot_msg_t *msg)
{
    msg->blob_len = kvcl_rd_left(rd);
    msg->blob     = kvcl_rd_bytes(rd, msg->blob_len);
}

kvcl_status_t kvcl_boot_body_parse(const kvcl_boot_head_t *head, const void *body, kvcl_boot_msg_t *msg)
{
    kvcl_rd_t rd;

    memset(msg, 0, sizeof(*msg));
    msg->type = (kvcl_boot_type_t)head->type;
    kvcl_rd_init(&rd, body, head->len);
    switch (msg->type) {
    case KVCL_BOOT_HELLO:
    case KVCL_BOOT_CHALLENGE:
        kvcl_rd_copy(&rd, msg->nonce, sizeof(msg->nonce));
        break;
    case KVCL_BOOT_JOIN:
    case KVCL_BOOT_WELCOME:
        msg->rank = (int32_t)kvcl_rd_u32(&rd);
        msg->size = kvcl_rd_u32(&rd);
        if (msg->type == KVCL_BOOT_WELCOME) {
            msg->id = kvcl_rd_u64(&rd);
        }
        kvcl_rd_copy(&rd, msg->proof, sizeof(msg->proof));
        break;
    case KVCL_BOOT_REFUSE:
        msg->status = (kvcl_status_t)(int32_t)kvcl_rd_u32(&rd);
        read_text(&rd, msg->text);
        break;
    case KVCL_BOOT_PUT:
        msg->wait_ns = kvcl_rd_u64(&rd);
        read_blob(&rd, msg);
        break;
    case KVCL_BOOT_BLOB:
        msg->rank = (int32_t)kvcl_rd_u32(&rd);
        read_blob(&rd, msg);
        break;
    case KVCL_BOOT_BYE:
        break;
    default:
        return KVCL_ERR_PROTOCOL;
    }
    return kvcl_rd_done(&rd) ? KVCL_OK : KVCL_ERR_PROTOCOL;
}

/* Everything of JOIN and WELCOME that the proof covers. */
static void write_claim(kvcl_wr_t *wr, const kvcl_boot_msg_t *msg)
{
    kvcl_wr_u32(wr, (uint32_t)msg->rank);
    kvcl_wr_u32(wr, msg->size);
    if (msg->type == KVCL_BOOT_WELCOME) {
        kvcl_wr_u64(wr, msg->id);
    }
}

static void write_body(kvcl_wr_t *wr, const kvcl_boot_msg_t *msg)
{
    switch (msg->type) {
    case KVCL_BOOT_HELLO:
    case KVCL_BOOT_CHALLENGE:
        kvcl_wr_bytes(wr, msg->nonce, sizeof(msg->nonce));
        break;
    case KVCL_BOOT_JOIN:
    case KVCL_BOOT_WELCOME:
        write_claim(wr, msg);
        kvcl_wr_bytes(wr, msg->proof, sizeof(msg->proof));
        break;
    case KVCL_BOOT_REFUSE:
        kvcl_wr_u32(wr, (uint32_t)(int32_t)msg->status);
        kvcl_wr_bytes(wr, msg->text, strnlen(msg->text, KVCL_BOOT_TEXT_MAX));
        break;
    case KVCL_BOOT_PUT:
        kvcl_wr_u64(wr, msg->wait_ns);
        kvcl_wr_bytes(wr, msg->blob, msg->blob_len);
        break;
    case KVCL_BOOT_BLOB:
        kvcl_wr_u32(wr, (uint32_t)msg->rank);
        kvcl_wr_bytes(wr, msg->blob, msg->blob_len);
        break;
    case KVCL_BOOT_BYE:
    default:
        break;
    }
}

size_t kvcl_boot_msg_pack(const kvcl_boot_msg_t *msg, void *buf, size_t cap)
{
    kvcl_wr_t head, body;

    kvcl_wr_init(&head, buf, cap);
    kvcl_wr_init(&body, buf, cap);
    (void)kvcl_wr_reserve(&body, KVCL_BOOT_HEAD_LEN);
    write_body(&body, msg);
    if (!kvcl_wr_ok(&body)) {
        return 0;
    }
    kvcl_wr_u32(&head, KVCL_BOOT_MAGIC);
    kvcl_wr_u16(&head, KVCL_BOOT_WIRE_VERSION);
    kvcl_wr_u16(&head, (uint16_t)msg->type);
    kvcl_wr_u32(&head, (uint32_t)(kvcl_wr_len(&body) - KVCL_BOOT_HEAD_LEN));
    return kvcl_wr_len(&body);
}

void kvcl_boot_prove(const kvcl_boot_msg_t *msg, const uint8_t secret[KVCL_SHA256_LEN],
                     const uint8_t member_nonce[KVCL_BOOT_NONCE_LEN],
                     const uint8_t server_nonce[KVCL_BOOT_NONCE_LEN], uint8_t proof[KVCL_SHA256_LEN])
{
    uint8_t      claim[64];
    kvcl_wr_t    wr;
    struct iovec parts[3];

    kvcl_wr_init(&wr, claim, sizeof(claim));
    kvcl_wr_bytes(&wr, (msg->type == KVCL_BOOT_JOIN) ? "kvcl boot member" : "kvcl boot server", 16);
    kvcl_wr_u16(&wr, KVCL_BOOT_WIRE_VERSION);
    write_claim(&wr, msg);
    parts[0].iov_base = claim;
    parts[0].iov_len  = kvcl_wr_len(&wr);
    parts[1].iov_base = (void *)(uintptr_t)member_nonce;
    parts[1].iov_len  = KVCL_BOOT_NONCE_LEN;
    parts[2].iov_base = (void *)(uintptr_t)server_nonce;
    parts[2].iov_len  = KVCL_BOOT_NONCE_LEN;
    kvcl_hmac_sha256(secret, KVCL_SHA256_LEN, parts, 3, proof);
}
