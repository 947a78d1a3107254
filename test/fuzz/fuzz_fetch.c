/*
 * The answer to a lookup that returns blocks, from a hostile home. An accepted answer is inside the message, and as
 * long as its counts state. The first byte is the number of keys requested, the second the size of their blocks. With
 * an even third byte the answer's header is made plausible, so that the bytes after it are reached.
 */
#include "config.h"

#include "store/get/fetch.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = KVCL_DIR_MSG_HEADER_BYTES };

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

/* A header for n keys, with as many locations as there is room for before the blocks. */
static void plausible(uint8_t *msg, size_t len, uint32_t n, uint64_t bytes)
{
    uint32_t head = HEAD + n, i;

    if (head + n > len) {
        return;
    }
    memset(msg, 0, HEAD);
    msg[0] = 0x44;
    msg[1] = 0x4b;
    msg[2] = KVCL_DIR_MSG_VERSION;
    msg[3] = KVCL_DIR_MSG_LOOKUP_REPLY;
    for (i = 0; i < n; ++i) {
        msg[HEAD + i] %= KVCL_DIR_LOCS_MAX + 1;
        if (head + (msg[HEAD + i] * (uint32_t)KVCL_DIR_LOC_BYTES) + n + bytes > len) {
            msg[HEAD + i] = 0;
        }
        head += msg[HEAD + i] * (uint32_t)KVCL_DIR_LOC_BYTES;
    }
    memcpy(msg + 4, &head, sizeof(head));
    memcpy(msg + 24, &n, sizeof(n));
    for (i = 0; i < n; ++i) {
        msg[head + i] %= 2;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint32_t n     = (size > 0) ? data[0] % 8 : 0;
    const uint64_t bytes = (size > 1) ? (uint64_t)(data[1] % 64) : 0;
    const size_t   skip  = (size < 3) ? size : 3;
    uint8_t        *copy = malloc(size - skip + 1); /* separate memory, so that ASan detects reads past its end */
    const uint8_t  *end  = copy + (size - skip);
    volatile uint8_t sink = 0;
    kvcl_fetched_t fetched;
    uint64_t       some = 0, i;

    if ((copy == NULL) || (size == 0)) {
        free(copy);
        return 0;
    }
    memcpy(copy, data + skip, size - skip);
    if ((size > 2) && (data[2] % 2 == 0)) {
        plausible(copy, size - skip, n, bytes);
    }
    if (kvcl_fetch_unpack(&fetched, copy, size - skip, n, bytes) == KVCL_OK) {
        must((fetched.reply.n == n) && (fetched.which >= copy) && (fetched.bytes == fetched.which + n));
        for (i = 0; i < n; ++i) {
            must(fetched.which[i] <= fetched.reply.items[i]);
            some += (fetched.which[i] != 0) ? 1 : 0;
        }
        must(fetched.bytes + (some * bytes) == end);
        for (i = 0; i < some * bytes; ++i) {
            sink = (uint8_t)(sink ^ fetched.bytes[i]);
        }
    }
    free(copy);
    return 0;
}
