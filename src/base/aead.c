/*
 * AES-128-GCM and ChaCha20-Poly1305 over OpenSSL 3. Owns the fetched ciphers, which live as long as the process:
 * fetching takes longer than sealing a record.
 *
 * A context is initialised with its key once; each message sets only the nonce. The crypto library fails here only
 * when it is broken, and then the process ends (kvcl_crypto_must): bytes that were not encrypted are never sent.
 * Threads: pthread_once for the ciphers; a context is the caller's.
 */
#include "config.h"
#include "base/aead.h"
#include "base/crypto.h"
#include "base/error.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <pthread.h>
#include <string.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

enum { STEP_BYTES = 1 << 30 }; /* the library counts in int */

static pthread_once_t ciphers_once = PTHREAD_ONCE_INIT;
static EVP_CIPHER     *aes128_gcm, *chacha20_poly1305;

static void fetch_once(void)
{
    aes128_gcm        = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    chacha20_poly1305 = EVP_CIPHER_fetch(NULL, "ChaCha20-Poly1305", NULL);
}

kvcl_aead_cipher_t kvcl_aead_preferred(void)
{
#if defined(__x86_64__)
    bool fast = __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
    bool fast = (getauxval(AT_HWCAP) & (HWCAP_AES | HWCAP_PMULL)) == (HWCAP_AES | HWCAP_PMULL);
#else
    bool fast = false;
#endif

    return fast ? KVCL_AEAD_AES128_GCM : KVCL_AEAD_CHACHA20_POLY1305;
}

kvcl_status_t kvcl_aead_create(kvcl_aead_cipher_t cipher, const kvcl_aead_key_t *key, bool seals, kvcl_aead_t *aead)
{
    EVP_CIPHER_CTX   *ctx;
    const EVP_CIPHER *type;

    kvcl_crypto_must(pthread_once(&ciphers_once, fetch_once) == 0, "pthread_once");
    type = (cipher == KVCL_AEAD_AES128_GCM) ? aes128_gcm : chacha20_poly1305;
    if (((cipher != KVCL_AEAD_AES128_GCM) && (cipher != KVCL_AEAD_CHACHA20_POLY1305)) || (type == NULL)) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "libcrypto has no cipher number %d (1: AES-128-GCM, 2: "
                         "ChaCha20-Poly1305): install one with its default provider", (int)cipher);
    }
    ctx = EVP_CIPHER_CTX_new();
    if ((ctx == NULL) || !EVP_CipherInit_ex2(ctx, type, key->key, key->iv, seals ? 1 : 0, NULL)) {
        EVP_CIPHER_CTX_free(ctx);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a cipher context");
    }
    aead->ctx = ctx;
    memcpy(aead->iv, key->iv, sizeof(aead->iv));
    return KVCL_OK;
}

void kvcl_aead_destroy(kvcl_aead_t *aead)
{
    EVP_CIPHER_CTX_free((EVP_CIPHER_CTX *)aead->ctx); /* wipes the key */
    kvcl_wipe(aead, sizeof(*aead));
}

void kvcl_aead_begin(kvcl_aead_t *aead, uint64_t count, const void *aad, size_t aad_len)
{
    uint8_t nonce[KVCL_AEAD_IV_LEN];
    int     i, done;

    memcpy(nonce, aead->iv, sizeof(nonce));
    for (i = 0; i < 8; ++i) {
        nonce[KVCL_AEAD_IV_LEN - 8 + i] ^= (uint8_t)(count >> (8 * i));
    }
    kvcl_crypto_must(EVP_CipherInit_ex2((EVP_CIPHER_CTX *)aead->ctx, NULL, NULL, nonce, -1, NULL), "EVP_CipherInit");
    if (aad_len > 0) {
        kvcl_crypto_must(EVP_CipherUpdate((EVP_CIPHER_CTX *)aead->ctx, NULL, &done, (const unsigned char *)aad,
                                          (int)aad_len), "EVP_CipherUpdate");
    }
}

void kvcl_aead_text(kvcl_aead_t *aead, const void *in, size_t len, void *out)
{
    const unsigned char *from = (const unsigned char *)in;
    unsigned char       *to   = (unsigned char *)out;
    size_t              step;
    int                 done;

    for (; len > 0; len -= step, from += step, to += step) {
        step = (len < STEP_BYTES) ? len : STEP_BYTES;
        kvcl_crypto_must(EVP_CipherUpdate((EVP_CIPHER_CTX *)aead->ctx, to, &done, from, (int)step) &&
                         (done == (int)step), "EVP_CipherUpdate");
    }
}

void kvcl_aead_seal_end(kvcl_aead_t *aead, uint8_t tag[KVCL_AEAD_TAG_LEN])
{
    EVP_CIPHER_CTX *ctx = (EVP_CIPHER_CTX *)aead->ctx;
    uint8_t        none[KVCL_AEAD_TAG_LEN];
    int            done;

    kvcl_crypto_must(EVP_CipherFinal_ex(ctx, none, &done) &&
                     EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, KVCL_AEAD_TAG_LEN, tag), "sealing");
}

bool kvcl_aead_open_end(kvcl_aead_t *aead, const uint8_t tag[KVCL_AEAD_TAG_LEN])
{
    EVP_CIPHER_CTX *ctx = (EVP_CIPHER_CTX *)aead->ctx;
    uint8_t        none[KVCL_AEAD_TAG_LEN];
    int            done, good;

    kvcl_crypto_must(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, KVCL_AEAD_TAG_LEN, (void *)tag),
                     "setting a tag");
    (void)ERR_set_mark(); /* the thread may be the application's, which reads the library's queue of errors */
    good = EVP_CipherFinal_ex(ctx, none, &done);
    (void)ERR_pop_to_mark();
    return good == 1;
}
