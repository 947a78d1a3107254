/*
 * How rank 0 gives another rank the job's secret through a store that others can read: X25519 (base/x25519.h) with a
 * private key of each boot, and the secret sealed under a key of the pair. Both public values, the job's id and the
 * rank are part of that key. Whoever only reads the store learns nothing; whoever writes to it can put own public
 * values in the place of others, and is then between the ranks. Pure but for the random bytes of a private key.
 */
#ifndef KVCL_BOOT_AGREE_H
#define KVCL_BOOT_AGREE_H

#include "base/crypto.h"

enum { KVCL_AGREE_LEN = 32, KVCL_AGREE_SEALED_LEN = KVCL_SHA256_LEN + 16 };

typedef struct kvcl_agree {
    uint8_t priv[KVCL_AGREE_LEN]; /* wiped by kvcl_agree_end */
    uint8_t pub[KVCL_AGREE_LEN];
} kvcl_agree_t;

/** A fresh pair of values. @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_IO. */
kvcl_status_t kvcl_agree_begin(kvcl_agree_t *own) KVCL_MUST_CHECK;
void          kvcl_agree_end(kvcl_agree_t *own);

/** Rank 0: the secret for a rank. @return KVCL_OK, KVCL_ERR_PROTOCOL (its public value is invalid), .._NO_MEMORY. */
kvcl_status_t kvcl_agree_seal(const kvcl_agree_t *own, const uint8_t peer_pub[KVCL_AGREE_LEN], uint64_t id, int rank,
                              const uint8_t secret[KVCL_SHA256_LEN], uint8_t sealed[KVCL_AGREE_SEALED_LEN])
        KVCL_MUST_CHECK;
/** That rank. @return as above; KVCL_ERR_AUTH: the bytes are not what rank 0 sealed for this rank. */
kvcl_status_t kvcl_agree_open(const kvcl_agree_t *own, const uint8_t peer_pub[KVCL_AGREE_LEN], uint64_t id, int rank,
                              const uint8_t sealed[KVCL_AGREE_SEALED_LEN], uint8_t secret[KVCL_SHA256_LEN])
        KVCL_MUST_CHECK;

#endif
