/*
 * SHA-256 and HMAC over OpenSSL 3. Owns the fetched algorithm (fetched once, kept for the life of the
 * process: fetching costs more than hashing a key) and one digest context per thread, freed at its end.
 *
 * HMAC is made of SHA-256 here (RFC 2104), not of EVP_MAC: no second fetch, no allocation per use.
 * Threads: pthread_once for the algorithm; everything else is the thread's or the caller's own.
 */
#include "config.h"
#include "base/crypto.h"
#include "base/log.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_LEN = 64 };

static pthread_once_t          crypto_once = PTHREAD_ONCE_INIT;
static pthread_key_t           thread_key;
static EVP_MD                 *sha256;
static _Thread_local EVP_MD_CTX *thread_md;

static void free_thread_md(void *md)
{
    thread_md = NULL;
    EVP_MD_CTX_free((EVP_MD_CTX *)md);
}

static void fetch_once(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA2-256", NULL);
    if ((sha256 != NULL) && (pthread_key_create(&thread_key, free_thread_md) != 0)) {
        EVP_MD_free(sha256);
        sha256 = NULL;
    }
}

void kvcl_crypto_must(int ok, const char *what)
{
    if (__builtin_expect(!ok, 0)) {
        kvcl_log_error("libcrypto: %s failed", what);
        abort();
    }
}

static EVP_MD_CTX *own_md(void)
{
    if (__builtin_expect(thread_md == NULL, 0)) {
        kvcl_crypto_must(pthread_once(&crypto_once, fetch_once) == 0 && sha256 != NULL, "fetching SHA2-256");
        thread_md = EVP_MD_CTX_new();
        kvcl_crypto_must(thread_md != NULL, "EVP_MD_CTX_new");
        kvcl_crypto_must(pthread_setspecific(thread_key, thread_md) == 0, "pthread_setspecific");
        kvcl_crypto_must(EVP_DigestInit_ex2(thread_md, sha256, NULL), "EVP_DigestInit");
    }
    return thread_md;
}

/* With the algorithm already set, a NULL type only resets the state: the fast way. */
static void md_begin(EVP_MD_CTX *md)
{
    kvcl_crypto_must(EVP_DigestInit_ex2(md, NULL, NULL), "EVP_DigestInit");
}

static void md_add(EVP_MD_CTX *md, const void *data, size_t len)
{
    if (len > 0) {
        kvcl_crypto_must(EVP_DigestUpdate(md, data, len), "EVP_DigestUpdate");
    }
}

static void md_end(EVP_MD_CTX *md, uint8_t *out)
{
    kvcl_crypto_must(EVP_DigestFinal_ex(md, out, NULL), "EVP_DigestFinal");
}

void kvcl_sha256(const void *data, size_t len, uint8_t out[KVCL_SHA256_LEN])
{
    EVP_MD_CTX *md = own_md();

    md_begin(md);
    md_add(md, data, len);
    md_end(md, out);
}

void kvcl_sha256_iov(const struct iovec *iov, size_t count, uint8_t out[KVCL_SHA256_LEN])
{
    EVP_MD_CTX *md = own_md();
    size_t      i;

    md_begin(md);
    for (i = 0; i < count; ++i) {
        md_add(md, iov[i].iov_base, iov[i].iov_len);
    }
    md_end(md, out);
}

void kvcl_hmac_sha256(const void *key, size_t keylen, const struct iovec *parts, size_t count,
                      uint8_t out[KVCL_SHA256_LEN])
{
    EVP_MD_CTX *md              = own_md();
    uint8_t     pad[BLOCK_LEN]  = {0};
    uint8_t     inner[KVCL_SHA256_LEN];
    size_t      i;

    if (keylen > BLOCK_LEN) {
        kvcl_sha256(key, keylen, pad);
    } else if (keylen > 0) {
        memcpy(pad, key, keylen);
    }
    for (i = 0; i < BLOCK_LEN; ++i) {
        pad[i] ^= 0x36;
    }
    md_begin(md);
    md_add(md, pad, BLOCK_LEN);
    for (i = 0; i < count; ++i) {
        md_add(md, parts[i].iov_base, parts[i].iov_len);
    }
    md_end(md, inner);
    for (i = 0; i < BLOCK_LEN; ++i) {
        pad[i] ^= 0x36 ^ 0x5c;
    }
    md_begin(md);
    md_add(md, pad, BLOCK_LEN);
    md_add(md, inner, sizeof(inner));
    md_end(md, out);
    kvcl_wipe(pad, sizeof(pad));
    kvcl_wipe(inner, sizeof(inner));
}

int kvcl_ct_equal(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}

void kvcl_wipe(void *buf, size_t len)
{
    OPENSSL_cleanse(buf, len);
}
