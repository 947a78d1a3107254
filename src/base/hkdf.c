/*
 * HKDF over HMAC-SHA256 (hkdf.h). Owns nothing; intermediate keys are wiped.
 */
#include "config.h"
#include "base/hkdf.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

void kvcl_hkdf_extract(const void *salt, size_t salt_len, const struct iovec *parts, size_t count,
                       uint8_t prk[KVCL_SHA256_LEN])
{
    kvcl_hmac_sha256(salt, salt_len, parts, count, prk);
}

void kvcl_hkdf_expand(const uint8_t prk[KVCL_SHA256_LEN], const void *info, size_t info_len, void *out, size_t len)
{
    uint8_t block[KVCL_SHA256_LEN], number = 0;
    uint8_t *to = (uint8_t *)out;
    size_t  n;

    assert(len <= KVCL_HKDF_MAX);
    for (; len > 0; len -= n, to += n) {
        struct iovec parts[] = {{block, (number > 0) ? sizeof(block) : 0}, {(void *)info, info_len}, {&number, 1}};

        ++number;
        kvcl_hmac_sha256(prk, KVCL_SHA256_LEN, parts, 3, block);
        n = (len < sizeof(block)) ? len : sizeof(block);
        memcpy(to, block, n);
    }
    kvcl_wipe(block, sizeof(block));
}

void kvcl_pair_key(const uint8_t secret[32], const char *label, const uint8_t id_a[KVCL_PAIR_ID_LEN],
                   const uint8_t id_b[KVCL_PAIR_ID_LEN], uint8_t key[32])
{
    bool         ordered = memcmp(id_a, id_b, KVCL_PAIR_ID_LEN) <= 0;
    struct iovec parts[] = {{(void *)"kvcl-pair", 10},
                            {(void *)label, strlen(label) + 1},
                            {(void *)(ordered ? id_a : id_b), KVCL_PAIR_ID_LEN},
                            {(void *)(ordered ? id_b : id_a), KVCL_PAIR_ID_LEN}};

    kvcl_hmac_sha256(secret, 32, parts, 4, key);
}
