/*
 * Addresses as bytes and as text, from anywhere: what is accepted packs and prints to itself, and its parts lie inside.
 */
#include "core/address.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok)
{
    if (!ok) {
        abort();
    }
}

static void try_bytes(const uint8_t *data, size_t size)
{
    static uint8_t again[KVCL_ADDRESS_MAX], parsed[KVCL_ADDRESS_MAX];
    static char    text[2 * KVCL_ADDRESS_MAX];
    kvcl_address_t address, twin;
    size_t         len, need, i;

    if (kvcl_address_unpack(data, size, &address) != KVCL_OK) {
        return;
    }
    for (i = 0; i < 3; ++i) {
        const uint8_t *part = address.part[i].buf;
        require((part == NULL) || ((part >= data) && (part + address.part[i].len <= data + size)));
    }
    len = kvcl_address_pack(&address, again, sizeof(again));
    require((len > 0) && (kvcl_address_unpack(again, len, &twin) == KVCL_OK));
    require(memcmp(twin.uuid, address.uuid, 16) == 0);
    need = kvcl_address_print(again, len, text, sizeof(text));
    require((need <= sizeof(text)) && (text[need - 1] == '\0'));
    require(kvcl_address_parse(text, parsed, sizeof(parsed), &need) == KVCL_OK);
    require((need == len) && (memcmp(parsed, again, len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t start[] = {0x56, 0x4b, 1, 0};
    uint8_t              *copy   = malloc(size + 8);
    uint8_t              out[256];
    size_t               len;

    try_bytes(data, size);
    if (size >= 4) { /* right in front, so that the rest is reached too */
        memcpy(copy, data, size);
        memcpy(copy, start, sizeof(start));
        copy[4] %= 4;
        try_bytes(copy, size);
    }
    memcpy(copy + 6, data, size);
    memcpy(copy, "kvcl1:", 6);
    copy[size + 6] = '\0';
    (void)!kvcl_address_parse((const char *)copy, out, sizeof(out), &len);
    free(copy);
    return 0;
}
