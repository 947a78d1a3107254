/*
 * The payload of a bundle from a hostile peer: each of its messages is inside the payload, and the walk ends.
 */
#include "config.h"

#include "core/bundle.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t          *copy = malloc(size + 1); /* separate memory, so that ASan detects reads past its end */
    uint8_t          hdr[KVCL_BUNDLE_HDR_MAX];
    volatile uint8_t sink = 0;
    size_t           at = 0, before = 0, hdr_len, len, i;
    const void       *part;
    uint32_t         word;

    must(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    for (i = 0; (size % 2 == 0) && (i + 4 <= size) && (i < 16); i += 4) { /* small lengths, so that some fit */
        memcpy(&word, copy + i, sizeof(word));
        word %= 64;
        memcpy(copy + i, &word, sizeof(word));
    }
    while (kvcl_bundle_next(copy, size, &at, hdr, &hdr_len, &part, &len) == KVCL_OK) {
        must((at > before) && (at <= size) && (hdr_len <= sizeof(hdr)));
        for (i = 0; i < len; ++i) {
            sink = (uint8_t)(sink ^ ((const uint8_t *)part)[i]);
        }
        before = at;
    }
    free(copy);
    return 0;
}
