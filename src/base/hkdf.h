/*
 * HKDF-SHA256 (RFC 5869), and the key of a pair of ids. Pure; any thread.
 */
#ifndef KVCL_BASE_HKDF_H
#define KVCL_BASE_HKDF_H

#include "base/crypto.h"

enum { KVCL_HKDF_MAX = 255 * KVCL_SHA256_LEN, KVCL_PAIR_ID_LEN = 16 };

/** The salt may have length 0; the key material is the parts in order. */
void kvcl_hkdf_extract(const void *salt, size_t salt_len, const struct iovec *parts, size_t count,
                       uint8_t prk[KVCL_SHA256_LEN]);

/** len bytes, at most KVCL_HKDF_MAX. */
void kvcl_hkdf_expand(const uint8_t prk[KVCL_SHA256_LEN], const void *info, size_t info_len, void *out, size_t len);

/**
 * The key that two ids share for one purpose, from the secret of their job. The order of the ids does not matter.
 * A key reveals neither the secret nor any other pair's key. label: a short text that names the purpose.
 */
void kvcl_pair_key(const uint8_t secret[32], const char *label, const uint8_t id_a[KVCL_PAIR_ID_LEN],
                   const uint8_t id_b[KVCL_PAIR_ID_LEN], uint8_t key[32]);

#endif
