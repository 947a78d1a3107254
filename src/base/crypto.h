/*
 * SHA-256, HMAC-SHA256 and constant-time compare. In this room OpenSSL is used by
 * crypto.c, aead.c, poly1305.c and x25519.c only.
 *
 * A fetched algorithm is global and immutable; a digest context per thread is reused. OpenSSL 3.0
 * allocates its state anew for each hash all the same. Any thread.
 */
#ifndef KVCL_BASE_CRYPTO_H
#define KVCL_BASE_CRYPTO_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { KVCL_SHA256_LEN = 32 };

/* Aborts the process, after a log line, when the crypto library itself is broken or out of memory:
 * there is no useful status for "no hash" on the data path. */
void kvcl_sha256(const void *data, size_t len, uint8_t out[KVCL_SHA256_LEN]);

/** The hash of the parts in order, as if they were one buffer; no allocation. */
void kvcl_sha256_iov(const struct iovec *iov, size_t count, uint8_t out[KVCL_SHA256_LEN]);

/** HMAC-SHA256 of the parts in order. */
void kvcl_hmac_sha256(const void *key, size_t keylen, const struct iovec *parts, size_t count,
                      uint8_t out[KVCL_SHA256_LEN]);

/** Unless ok: a log line, and the process ends. For a crypto library that is broken. */
void kvcl_crypto_must(int ok, const char *what);

/** 1 if equal; the time taken does not depend on where the first difference is. */
int kvcl_ct_equal(const void *a, const void *b, size_t len);

/** Zero a secret so that the compiler cannot drop the store. */
void kvcl_wipe(void *buf, size_t len);

#endif
