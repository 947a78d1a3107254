/*
 * Frames that a meeting's server and members receive from any source (boot_wire.h), and rank 0's invitation. An
 * accepted frame packs to the same bytes. With an even first byte the head is made plausible first.
 */
#include "config.h"
#include "boot/boot_invite.h"
#include "boot/boot_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void frame(const uint8_t *bytes, size_t size)
{
    kvcl_boot_head_t head;
    kvcl_boot_msg_t  msg, again;
    uint8_t          *body, *packed;
    size_t           len;

    if ((size < KVCL_BOOT_HEAD_LEN) || (kvcl_boot_head_parse(bytes, &head) != KVCL_OK)) {
        return;
    }
    must(head.len <= KVCL_BOOT_FRAME_MAX - KVCL_BOOT_HEAD_LEN);
    if (size - KVCL_BOOT_HEAD_LEN < head.len) {
        return; /* the server waits for the rest */
    }
    body = malloc((head.len > 0) ? head.len : 1);
    must(body != NULL);
    memcpy(body, bytes + KVCL_BOOT_HEAD_LEN, head.len);
    memset(&msg, 0, sizeof(msg));
    if (kvcl_boot_body_parse(&head, body, &msg) == KVCL_OK) {
        must(memchr(msg.text, '\0', sizeof(msg.text)) != NULL);
        must((msg.blob_len == 0) || (((const uint8_t *)msg.blob >= body) && (msg.blob_len <= head.len)));
        packed = malloc(KVCL_BOOT_FRAME_MAX);
        must(packed != NULL);
        len = kvcl_boot_msg_pack(&msg, packed, KVCL_BOOT_FRAME_MAX);
        must(len == KVCL_BOOT_HEAD_LEN + (size_t)head.len);
        must((kvcl_boot_head_parse(packed, &head) == KVCL_OK) &&
             (kvcl_boot_body_parse(&head, packed + KVCL_BOOT_HEAD_LEN, &again) == KVCL_OK));
        must((msg.type == KVCL_BOOT_REFUSE) || (memcmp(packed, bytes, len) == 0)); /* a refusal's text is cleaned */
        must(kvcl_boot_msg_pack(&msg, packed, len - 1) == 0);
        free(packed);
    }
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t       *copy = calloc(1, (size > 0) ? size : 1);
    uint8_t       secret[KVCL_SHA256_LEN], pub[KVCL_SHA256_LEN];
    kvcl_invite_t invite = {.secret = secret, .pub = pub};
    uint32_t      len;

    must(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    (void)!kvcl_invite_accept(copy, size, NULL, &invite);
    if (size >= 3) {
        copy[0] = 3;
        copy[1] = 0;
        copy[2] &= 3;
        must((kvcl_invite_accept(copy, size, NULL, &invite) != KVCL_OK) || (size == KVCL_INVITE_LEN));
        memcpy(copy, data, 3);
    }
    if ((size >= KVCL_BOOT_HEAD_LEN) && (copy[0] % 2 == 0)) {
        len = KVCL_BOOT_MAGIC;
        memcpy(copy, &len, sizeof(len));
        copy[4] = KVCL_BOOT_WIRE_VERSION;
        copy[5] = 0;
        copy[6] = (uint8_t)(copy[6] % 12);
        copy[7] = 0;
        len     = (uint32_t)(size - KVCL_BOOT_HEAD_LEN);
        if (copy[8] % 8 != 0) {
            static const uint32_t lens[] = {0, 32, 32, 40, 48, 4, 8, 4, 8, 0, 0, 0}; /* rather short than long */
            len = (lens[copy[6]] < len) && (copy[8] % 4 == 0) ? lens[copy[6]] : len;
        }
        memcpy(copy + 8, &len, sizeof(len));
    }
    frame(copy, size);
    free(copy);
    return 0;
}
