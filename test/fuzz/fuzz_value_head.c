/*
 * The head of a value, read from another rank's memory. An accepted head has lengths that match, and belongs to the
 * requested key; the keys of its parts differ. With an even first byte the rest is made plausible first.
 */
#include "config.h"

#include "base/checksum.h"
#include "value/value.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void plausible(uint8_t *block, uint64_t block_bytes, const kvcl_key_t *key)
{
    kvcl_value_head_t head;

    memcpy(&head, block, sizeof(head));
    head.magic    = KVCL_VALUE_MAGIC;
    head.version  = KVCL_VALUE_VERSION;
    head.reserved = 0;
    head.key      = *key;
    if (head.nonce[0] % 4 != 0) {
        head.part_bytes = block_bytes;
    }
    if (head.nonce[0] % 8 > 2) {
        head.bytes >>= head.nonce[1] % 64;
        head.parts = kvcl_value_parts(head.bytes, block_bytes);
    }
    head.check = kvcl_checksum(&head, offsetof(kvcl_value_head_t, check));
    memcpy(block, &head, sizeof(head));
}

static void check_head(const kvcl_value_head_t *head, uint64_t block_bytes, const kvcl_key_t *key)
{
    kvcl_key_t seed, a, b;
    uint64_t   last;

    must(kvcl_key_equal(&head->key, key));
    must((head->part_bytes == block_bytes) && (head->parts <= KVCL_VALUE_PARTS_MAX));
    if (head->parts == 0) {
        must(head->bytes <= block_bytes - sizeof(*head));
        return;
    }
    must((head->bytes <= head->parts * block_bytes) && (head->bytes > (head->parts - 1) * block_bytes));
    last = head->parts - 1;
    kvcl_value_seed(head, &seed);
    kvcl_value_part_key(&seed, 0, &a);
    kvcl_value_part_key(&seed, last, &b);
    must((last == 0) || !kvcl_key_equal(&a, &b));
    kvcl_value_part_key(&seed, last / 2, &b);
    must((last / 2 == 0) || !kvcl_key_equal(&a, &b));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t sizes[] = {96, 97, 128, 4096, 65536, 1 << 20};
    kvcl_value_head_t     head;
    kvcl_key_t            key = {{1, 2, 3}};
    uint64_t              block_bytes;
    uint8_t               *block;

    if (size < 2) {
        return 0;
    }
    block_bytes = sizes[data[1] % (sizeof(sizes) / sizeof(sizes[0]))];
    if (size - 2 < sizeof(head)) { /* a block too small for a head */
        block = malloc(size);
        memcpy(block, data, size);
        must(!kvcl_value_head_read(block, size, &key, &head) && (head.parts == 0) && (head.bytes == 0));
        free(block);
        return 0;
    }
    block = malloc(sizeof(head)); /* separate memory, so that ASan detects reads past a head */
    memcpy(block, data + 2, sizeof(head));
    if (data[0] % 2 == 0) {
        plausible(block, block_bytes, &key);
    }
    if (kvcl_value_head_read(block, block_bytes, &key, &head)) {
        check_head(&head, block_bytes, &key);
        key.bytes[31] ^= 1;
        must(!kvcl_value_head_read(block, block_bytes, &key, &head)); /* another value's */
    } else {
        must((head.magic == 0) && (head.parts == 0) && (head.bytes == 0));
    }
    free(block);
    return 0;
}
