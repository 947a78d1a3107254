/*
 * Bytes derived from a seed of 32 bytes: a tool writes them into a block, and any rank checks a block by them without a
 * stored copy. Every 8 bytes depend on the seed and on their place, so a swapped, shifted, torn or old block is
 * detected. Pure functions; the same bytes on every machine.
 */
#ifndef KVCL_TOOLS_PATTERN_H
#define KVCL_TOOLS_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#define PATTERN_GOOD SIZE_MAX

void pattern_fill(const uint8_t seed[32], void *buf, size_t len);

/* @return PATTERN_GOOD, or the offset of the first byte that differs. */
size_t pattern_check(const uint8_t seed[32], const void *buf, size_t len);

/* A seed from two numbers, for patterns without a key. */
void pattern_seed(uint64_t a, uint64_t b, uint8_t seed[32]);

#endif
