/*
 * XXH3 checksums, inline (XXH_INLINE_ALL). Against accidents, not against enemies: no MAC.
 * Pure; the streaming state is the caller's and must be aligned to 64 bytes (its type is).
 */
#ifndef KVCL_BASE_CHECKSUM_H
#define KVCL_BASE_CHECKSUM_H

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wshadow"
#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL 1
#endif
#include <xxhash.h>
#pragma GCC diagnostic pop

#include <stddef.h>
#include <stdint.h>

/* Bytes: up to SHORT the sum is another function; longer ones are taken by stripes, whole blocks of them and a rest. */
enum { KVCL_XXH3_SHORT = 240, KVCL_XXH3_STRIPE = 64, KVCL_XXH3_BLOCK = 1024 };

typedef XXH3_state_t kvcl_checksum_state_t;

static inline uint64_t kvcl_checksum(const void *buf, size_t len)
{
    return XXH3_64bits(buf, len);
}

static inline uint64_t kvcl_checksum_seed(const void *buf, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(buf, len, seed);
}

static inline void kvcl_checksum_init(kvcl_checksum_state_t *state)
{
    (void)XXH3_64bits_reset(state);
}

static inline void kvcl_checksum_update(kvcl_checksum_state_t *state, const void *buf, size_t len)
{
    (void)XXH3_64bits_update(state, buf, len);
}

/* Of all bytes so far; more updates may follow. */
static inline uint64_t kvcl_checksum_digest(const kvcl_checksum_state_t *state)
{
    return XXH3_64bits_digest(state);
}

/* The check word of a small struct (a directory entry): XXH3 folded to 32 bits. */
static inline uint32_t kvcl_check32(const void *buf, size_t len)
{
    uint64_t sum = XXH3_64bits(buf, len);

    return (uint32_t)(sum ^ (sum >> 32));
}

#endif
