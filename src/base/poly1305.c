/*
 * Poly1305 by OpenSSL, fetched once. Owns the fetched algorithm, for the life of the process.
 */
#include "config.h"
#include "base/poly1305.h"
#include "base/crypto.h"

#include <openssl/evp.h>

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static EVP_MAC        *mac;

static void fetch(void)
{
    mac = EVP_MAC_fetch(NULL, "POLY1305", NULL);
}

void kvcl_poly1305(const uint8_t key[KVCL_POLY1305_KEY_LEN], const struct iovec *parts, size_t count,
                   uint8_t tag[KVCL_POLY1305_TAG_LEN])
{
    EVP_MAC_CTX *ctx;
    size_t      i, len = 0;

    pthread_once(&once, fetch);
    kvcl_crypto_must(mac != NULL, "EVP_MAC_fetch of POLY1305");
    ctx = EVP_MAC_CTX_new(mac);
    kvcl_crypto_must((ctx != NULL) && (EVP_MAC_init(ctx, key, KVCL_POLY1305_KEY_LEN, NULL) == 1), "EVP_MAC_init");
    for (i = 0; i < count; ++i) {
        kvcl_crypto_must(EVP_MAC_update(ctx, parts[i].iov_base, parts[i].iov_len) == 1, "EVP_MAC_update");
    }
    kvcl_crypto_must((EVP_MAC_final(ctx, tag, &len, KVCL_POLY1305_TAG_LEN) == 1) && (len == KVCL_POLY1305_TAG_LEN),
                     "EVP_MAC_final");
    EVP_MAC_CTX_free(ctx);
}
