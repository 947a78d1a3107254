/*
 * The head of a value as it lies in a pool, and the keys that are made from it. Pure functions.
 *
 * A head is read out of another rank's memory, so everything in it is hostile until compared: the check word, the key
 * that it was made for, and lengths that follow from each other. Keys:
 *   head     SHA-256("kvcl-value-head1" || key), bytes 0-1 those of the key, so the heads of a prefix share a home too
 *   seed     SHA-256("kvcl-value-part1" || nonce || key)
 *   part i   the seed, bytes 0-1 mixed with i / 16, i added to bytes 8-15: no two are equal
 */
#include "config.h"
#include "base/checksum.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/rand.h"
#include "value/value.h"

#define HEAD_DOMAIN "kvcl-value-head1"
#define PART_DOMAIN "kvcl-value-part1"
enum { DOMAIN_BYTES = 16, TAG_BYTES = 2, NEIGHBOURS = 16 };

void kvcl_store_value_key(const kvcl_key_t *key, kvcl_key_t *head_p)
{
    uint8_t    in[DOMAIN_BYTES + sizeof(*key)];
    kvcl_key_t out;

    if ((key == NULL) || (head_p == NULL)) {
        (void)kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_value_key: %s is NULL", (key == NULL) ? "key" : "head_p");
        return;
    }
    memcpy(in, HEAD_DOMAIN, DOMAIN_BYTES);
    memcpy(in + DOMAIN_BYTES, key, sizeof(*key));
    kvcl_sha256(in, sizeof(in), out.bytes);
    memcpy(out.bytes, key->bytes, TAG_BYTES);
    *head_p = out;
}

static uint64_t check_of(const kvcl_value_head_t *head)
{
    return kvcl_checksum(head, offsetof(kvcl_value_head_t, check));
}

void kvcl_value_head_make(const kvcl_key_t *key, uint64_t bytes, uint64_t block_bytes,
                          const uint8_t nonce[KVCL_VALUE_NONCE_BYTES], kvcl_value_head_t *head)
{
    *head = (kvcl_value_head_t){.magic = KVCL_VALUE_MAGIC, .version = KVCL_VALUE_VERSION, .bytes = bytes,
                                .part_bytes = block_bytes, .parts = kvcl_value_parts(bytes, block_bytes), .key = *key};
    memcpy(head->nonce, nonce, sizeof(head->nonce));
    head->check = check_of(head);
}

static bool is_head(const kvcl_value_head_t *head, uint64_t block_bytes, const kvcl_key_t *key)
{
    return (head->magic == KVCL_VALUE_MAGIC) && (head->version == KVCL_VALUE_VERSION) && (head->reserved == 0) &&
           (head->check == check_of(head)) && kvcl_key_equal(&head->key, key) && (head->part_bytes == block_bytes) &&
           (head->parts == kvcl_value_parts(head->bytes, block_bytes)) && (head->parts <= KVCL_VALUE_PARTS_MAX);
}

bool kvcl_value_head_read(const void *block, uint64_t block_bytes, const kvcl_key_t *key, kvcl_value_head_t *head)
{
    if (block_bytes >= sizeof(*head)) {
        memcpy(head, block, sizeof(*head));
        if (is_head(head, block_bytes, key)) {
            return true;
        }
    }
    memset(head, 0, sizeof(*head));
    return false;
}

void kvcl_value_seed(const kvcl_value_head_t *head, kvcl_key_t *seed)
{
    uint8_t in[DOMAIN_BYTES + sizeof(head->nonce) + sizeof(head->key)];

    memcpy(in, PART_DOMAIN, DOMAIN_BYTES);
    memcpy(in + DOMAIN_BYTES, head->nonce, sizeof(head->nonce));
    memcpy(in + DOMAIN_BYTES + sizeof(head->nonce), &head->key, sizeof(head->key));
    kvcl_sha256(in, sizeof(in), seed->bytes);
}

void kvcl_value_part_key(const kvcl_key_t *seed, uint64_t i, kvcl_key_t *key)
{
    uint64_t mix, low;

    *key = *seed;
    memcpy(&mix, seed->bytes, sizeof(mix));
    memcpy(&low, seed->bytes + 8, sizeof(low));
    mix += i / NEIGHBOURS;
    mix  = kvcl_splitmix64(&mix);
    low += i;
    memcpy(key->bytes, &mix, TAG_BYTES);
    memcpy(key->bytes + 8, &low, sizeof(low));
}
