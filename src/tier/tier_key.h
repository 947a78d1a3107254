/*
 * The key of a tier's file, and what it proves: that a block's bytes were put under its key, at this place of this
 * file, by a process that has the key. Bytes that anyone else wrote are not returned, whatever checksums they have. It
 * does not prove that they are the latest: a process that can write to the file can put back what the file once held at
 * that place, and can remove blocks.
 *
 * A block's data are followed by its tail: a nonce and a tag. The tag is Poly1305 of the data, under a key that
 * HMAC-SHA256 makes from the file's key, the nonce, the file's id, the place and the use of the segment, the block's
 * key, length and checksum. So that key is never used twice. Pure but for the file that holds the key.
 */
#ifndef KVCL_TIER_TIER_KEY_H
#define KVCL_TIER_TIER_KEY_H

#include "base/crypto.h"
#include "tier/seglog.h"

enum { KVCL_TIER_NONCE = KVCL_SEG_TAIL / 2, KVCL_TIER_KEY_FILE_MIN = 32 };

typedef struct kvcl_tier_key {
    uint8_t bytes[KVCL_SHA256_LEN];
} kvcl_tier_key_t;

/**
 * The SHA-256 of a key file (base/key_file.h) of 32 bytes to 64 KiB.
 * @return KVCL_OK, KVCL_ERR_NOT_FOUND, KVCL_ERR_ACCESS, KVCL_ERR_IO, with a sentence.
 */
kvcl_status_t kvcl_tier_key_read(const char *path, kvcl_tier_key_t *key) KVCL_MUST_CHECK;

/** Of a file's id: which key the file has. */
uint64_t kvcl_tier_key_proof(const kvcl_tier_key_t *key, uint64_t id);

/** The tag of a block with this nonce. */
void kvcl_tier_key_tag(const kvcl_tier_key_t *key, const kvcl_seg_super_t *super, const uint8_t *block_key,
                       const kvcl_tier_loc_t *loc, const uint8_t nonce[KVCL_TIER_NONCE], const struct iovec *data,
                       size_t n, uint8_t tag[KVCL_TIER_NONCE]);

#endif
