/*
 * Authenticated encryption of one direction of a stream: AES-128-GCM or ChaCha20-Poly1305, with 12-byte nonces and
 * 16-byte tags. The nonce is a counter that the caller keeps: a nonce is never used twice with one key.
 *
 * A context has one key and one direction. It is allocated once; sealing and opening allocate nothing. One thread at a
 * time per context.
 */
#ifndef KVCL_BASE_AEAD_H
#define KVCL_BASE_AEAD_H

#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { KVCL_AEAD_KEY_LEN = 32, KVCL_AEAD_IV_LEN = 12, KVCL_AEAD_TAG_LEN = 16 };

/* Values are wire format. Every build has both. */
typedef enum {
    KVCL_AEAD_AES128_GCM        = 1,
    KVCL_AEAD_CHACHA20_POLY1305 = 2
} kvcl_aead_cipher_t;

/* AES-128-GCM takes the first 16 bytes of key. The nonce is iv, its last 8 bytes XORed with the little-endian count. */
typedef struct kvcl_aead_key {
    uint8_t key[KVCL_AEAD_KEY_LEN];
    uint8_t iv[KVCL_AEAD_IV_LEN];
} kvcl_aead_key_t;

typedef struct kvcl_aead {
    void    *ctx; /* EVP_CIPHER_CTX; NULL: none */
    uint8_t iv[KVCL_AEAD_IV_LEN];
} kvcl_aead_t;

/** The faster cipher on this processor: AES-128-GCM if it has instructions for AES. */
kvcl_aead_cipher_t kvcl_aead_preferred(void);

/**
 * A context that seals, or one that opens. The key is copied: the caller wipes its own.
 * @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_UNSUPPORTED (no such cipher).
 */
kvcl_status_t kvcl_aead_create(kvcl_aead_cipher_t cipher, const kvcl_aead_key_t *key, bool seals,
                               kvcl_aead_t *aead) KVCL_MUST_CHECK;
/** Wipes its key. A zeroed context is accepted. */
void kvcl_aead_destroy(kvcl_aead_t *aead);

/*
 * One message: begin, then text of any lengths in order, then end. The output of text is as long as its input; it may
 * be the same memory. What a context that opens has written is not authentic before kvcl_aead_open_end() is true.
 */
void kvcl_aead_begin(kvcl_aead_t *aead, uint64_t count, const void *aad, size_t aad_len);
void kvcl_aead_text(kvcl_aead_t *aead, const void *in, size_t len, void *out);
void kvcl_aead_seal_end(kvcl_aead_t *aead, uint8_t tag[KVCL_AEAD_TAG_LEN]);
/** @return false: the tag is wrong, and so is the text. */
bool kvcl_aead_open_end(kvcl_aead_t *aead, const uint8_t tag[KVCL_AEAD_TAG_LEN]);

#endif
