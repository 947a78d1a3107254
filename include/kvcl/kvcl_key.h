/*
 * Keys: 32 bytes that name the content of a KV block.
 *
 * Owns: kvcl_key_t and the definition of how keys are computed. A chained key covers the
 * tenant's salt, the model, and every token from the first of the prompt to the last of its block:
 * equal key means equal prefix. Pure functions of their arguments: any thread, any callback, no
 * lock, no state. The formulas fix the byte order, so all machines compute the same keys.
 *
 * Formulas (SHA-256; || joins; domains are 16 ASCII bytes; numbers little-endian):
 *   root       = SHA-256("kvcl-key-root-01" || u64 salt length || salt || model)
 *   block i    = SHA-256("kvcl-key-block01" || key of block i-1, or root || u32 tokens of block i)
 *                and then bytes 0-1 replaced by those of the previous key, unless i % 16 == 0
 *   string key = SHA-256("kvcl-key-string1" || bytes)
 *   bytes' key = SHA-256("kvcl-key-bytes01" || u64 salt length || salt || bytes), or 32 bytes as they are
 * So bytes 0-1 of a key, its *tag*, are those of its ancestor at the last multiple of 16 blocks:
 * blocks 0..15 of a chain share the tag of block 0, 16..31 that of block 16. The directory places
 * keys by tag, so a prefix of n blocks queries n/16 homes.
 */
#ifndef KVCL_KEY_H
#define KVCL_KEY_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

KVCL_BEGIN_DECLS

/* Fixed for ever: 32 bytes, sent between ranks and stored in files unchanged. */
typedef struct kvcl_key {
    uint8_t bytes[32];
} kvcl_key_t;

#define KVCL_KEY_TAG_BLOCKS 16u /* blocks of a chain that share one tag */
#define KVCL_KEY_HEX_SIZE   65u /* bytes that kvcl_key_format writes, including the NUL */

/**
 * The root of all chains of one tenant on one model. @a salt: any bytes that keep tenants apart, a
 * secret if they must not guess each other's keys; NULL with length 0: none. @a model: all that
 * decides a block's bytes besides tokens, by the caller's convention, for example
 * "llama-3-8b/bf16/16/tp8:3" (weights, type, tokens per block, slice); NULL is "".
 */
KVCL_API void kvcl_key_root(const void *salt, size_t salt_len, const char *model, kvcl_key_t *root_p);

/**
 * Keys of the full blocks of a token sequence; tokens after the last full block are ignored.
 * To start a prompt, @a parent is the root and @a first_block 0. To continue a chain, @a parent is
 * the key of its block first_block-1, and tokens start with those of block first_block; a wrong
 * first_block gives keys that match no block, never another block's.
 * Writes n_tokens / tokens_per_block keys (*n_p of them). With keys NULL and cap 0 only counts.
 * @a parent may lie inside @a keys.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM if tokens_per_block is 0 or a needed pointer NULL;
 *         KVCL_ERR_NO_SPACE if @a cap is too small: nothing is written but the needed count in *n_p.
 */
KVCL_API kvcl_status_t kvcl_key_chain(const kvcl_key_t *parent, uint64_t first_block, const uint32_t *tokens,
                                      size_t n_tokens, size_t tokens_per_block, kvcl_key_t *keys, size_t cap,
                                      size_t *n_p) KVCL_MUST_CHECK;

/** The key of an arbitrary name (a file, a checkpoint piece, a user's own block id). */
KVCL_API void kvcl_key_from_string(const void *bytes, size_t len, kvcl_key_t *key_p);

/** A key out of 32 bytes that are a good hash already (an engine's own block hash), taken as is. */
KVCL_API void kvcl_key_from_hash32(const uint8_t hash[32], kvcl_key_t *key_p);

/**
 * A key out of whatever another program names its blocks by. Without a salt (NULL, 0), 32 bytes are a good hash already
 * and taken as they are (vLLM's block hashes); any other length is hashed: 36 bytes (a block hash and the number of a
 * group), 8, a string. Different bytes, or lengths, give different keys. A @a salt keeps tenants apart: everything is
 * hashed with it, 32 bytes too, so that one tenant neither finds nor guesses another's keys. @a bytes may be NULL if
 * @a len is 0.
 */
KVCL_API void kvcl_key_from_bytes(const void *salt, size_t salt_len, const void *bytes, size_t len, kvcl_key_t *key_p);

/** 64 hex digits and a NUL into @a buf. @return buf, for use in a printf argument. */
KVCL_API const char *kvcl_key_format(const kvcl_key_t *key, char buf[KVCL_KEY_HEX_SIZE]);

/* Nonzero if equal. Keys are no secrets to their holders: not constant-time. */
static inline int kvcl_key_equal(const kvcl_key_t *a, const kvcl_key_t *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* The tag as a number, byte 0 the high one: it reads like the first four hex digits. */
static inline uint16_t kvcl_key_tag(const kvcl_key_t *key)
{
    return (uint16_t)(((unsigned)key->bytes[0] << 8) | (unsigned)key->bytes[1]);
}

KVCL_END_DECLS

#endif
