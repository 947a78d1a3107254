/*
 * A rank's part of a store (ASK and TAKE), from hostile bytes: what is read has known flags alone, and a hello that is
 * accepted has numbers that may be used. With an odd first byte the bytes are made a plausible part, so that the checks
 * behind the length are reached.
 */
#include "config.h"

#include "dir/entry.h"
#include "store/grow/part.h"

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

static void read_part(const uint8_t *bytes, size_t len)
{
    kvcl_part_t part;
    uint32_t    i;

    if (!kvcl_part_read(bytes, len, &part)) {
        return;
    }
    must((len == sizeof(part)) && (part.flags <= (KVCL_PART_SURE | KVCL_PART_LEAVES)) && (part.reserved == 0));
    if (kvcl_hello_check(&part.hello, 3, part.hello.id) != KVCL_OK) {
        return;
    }
    must((part.hello.incarnation != 0) && (part.hello.incarnation <= UINT16_MAX) && (part.hello.listing <= 1));
    must((part.hello.replicas != 0) && (part.hello.replicas <= KVCL_DIR_LOCS_MAX));
    must(part.hello.n_sizes <= KVCL_SLABS_CLASSES_MAX);
    for (i = 0; i < part.hello.n_sizes; ++i) {
        must(part.hello.sizes[i] != 0);
    }
    must(kvcl_hello_check(&part.hello, 3, part.hello.id + 1) != KVCL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t     *copy = calloc(1, size + 1); /* separate memory, so that ASan detects reads past its end */
    kvcl_part_t part  = {.hello = {.id = 7, .incarnation = 1, .replicas = 2, .pool_bytes = 1 << 20,
                                 .n_sizes = 1, .sizes = {4096}}};
    size_t      i;

    must(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    read_part(copy, size);
    if ((size > 3) && (data[0] % 2 != 0)) { /* changes a valid part at up to three places */
        for (i = 2; (i + 1 < size) && (i < 4 + (2u * (data[1] % 3))); i += 2) {
            ((uint8_t *)&part)[data[i] % sizeof(part)] ^= data[i + 1];
        }
        read_part((const uint8_t *)&part, sizeof(part));
    }
    free(copy);
    return 0;
}
