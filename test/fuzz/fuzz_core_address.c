/*
 * A context's address, as a peer's bytes and as text given to a user. An accepted address points into its bytes, and is
 * unchanged when packed, printed and read again. With an even first byte the head is made plausible.
 */
#include "config.h"
#include "wire/address.h"
#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t secret[32] = {7};

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void unpack(const uint8_t *bytes, size_t len)
{
    kvcl_address_t address, again;
    uint8_t        *packed;
    size_t         n;
    unsigned       i;

    if (kvcl_address_unpack(bytes, len, &address) != KVCL_OK) {
        return;
    }
    for (i = 0; i < 3; ++i) {
        const uint8_t *at = address.part[i].buf;
        must((at == NULL) || ((at >= bytes) && (address.part[i].len <= len) &&
                              ((size_t)(at - bytes) <= len - address.part[i].len)));
    }
    packed = malloc(KVCL_ADDRESS_MAX);
    must(packed != NULL);
    n = kvcl_address_pack(&address, packed, KVCL_ADDRESS_MAX);
    must((n > 0) && (n <= len) && (kvcl_address_unpack(packed, n, &again) == KVCL_OK));
    must(memcmp(again.uuid, address.uuid, 3 * 16) == 0);
    for (i = 0; i < 3; ++i) {
        must((again.part[i].len == address.part[i].len) &&
             ((address.part[i].len == 0) ||
              (memcmp(again.part[i].buf, address.part[i].buf, address.part[i].len) == 0)));
    }
    free(packed);
}

static void parse(const char *text, size_t cap)
{
    uint8_t *buf = malloc(cap + 1);
    size_t  len  = 0;

    must(buf != NULL);
    if (kvcl_address_parse(secret, text, buf, cap, &len) == KVCL_OK) {
        must(len <= cap);
        unpack(buf, len);
    }
    free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t  room  = size * 2 + 64, need, len = 0;
    uint8_t *copy = malloc(size + 1), *back = malloc(size + 1);
    char    *text = malloc(room);

    must((copy != NULL) && (back != NULL) && (text != NULL));
    if (size > 0) {
        memcpy(copy, data, size);
    }
    copy[size] = '\0';
    parse((const char *)copy, size / 2);
    need = kvcl_address_print(secret, copy, size, text, room);
    must((need <= room) && (strlen(text) + 1 == need));
    must((kvcl_address_parse(secret, text, back, size, &len) == KVCL_OK) && (len == size));
    must(memcmp(back, copy, size) == 0);
    must((size == 0) || (kvcl_address_parse(secret, text, back, size - 1, &len) != KVCL_OK));
    memcpy(text + 6, copy, size + 1); /* after the prefix */
    parse(text, KVCL_ADDRESS_MAX);
    if ((size >= 4) && (copy[0] % 2 == 0)) {
        copy[0] = (uint8_t)KVCL_WIRE_MAGIC;
        copy[1] = (uint8_t)(KVCL_WIRE_MAGIC >> 8);
        copy[2] = KVCL_WIRE_VERSION;
        copy[3] = 0;
        if (size > 4) {
            copy[4] &= 3;
        }
    }
    free(text);
    text = malloc((size > 0) ? size : 1); /* of exact length: a sanitizer detects a read past it */
    must(text != NULL);
    memcpy(text, copy, size);
    unpack((const uint8_t *)text, size);
    free(text);
    free(back);
    free(copy);
    return 0;
}
