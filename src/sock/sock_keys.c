/*
 * MACs and keys of a handshake (sock_keys.h). Owns nothing; intermediate keys are wiped.
 */
#include "config.h"
#include "sock/sock_keys.h"
#include "base/hkdf.h"

#include <string.h>

_Static_assert(sizeof(kvcl_aead_key_t) == KVCL_AEAD_KEY_LEN + KVCL_AEAD_IV_LEN, "kvcl_hkdf_expand fills it");

void kvcl_sock_mac(const uint8_t pair_key[32], const char *role, const void *log, size_t log_len, const void *rest,
                   size_t len, uint8_t mac[KVCL_SOCK_MAC_LEN])
{
    struct iovec parts[] = {{(void *)role, strlen(role) + 1}, {(void *)log, log_len}, {(void *)rest, len}};

    kvcl_hmac_sha256(pair_key, 32, parts, 3, mac);
}

void kvcl_sock_direction_keys(const uint8_t pair_key[32], const uint8_t shared[32], const void *log, size_t log_len,
                              kvcl_aead_key_t *a_to_b, kvcl_aead_key_t *b_to_a)
{
    struct iovec parts[] = {{(void *)pair_key, 32}, {(void *)shared, 32}};
    uint8_t      salt[KVCL_SHA256_LEN], prk[KVCL_SHA256_LEN];

    kvcl_sha256(log, log_len, salt);
    kvcl_hkdf_extract(salt, sizeof(salt), parts, 2, prk);
    kvcl_hkdf_expand(prk, "kvcl-sock a>b", 13, a_to_b, sizeof(*a_to_b));
    kvcl_hkdf_expand(prk, "kvcl-sock b>a", 13, b_to_a, sizeof(*b_to_a));
    kvcl_wipe(prk, sizeof(prk));
}
