/*
 * Bytes that follow from 32 bytes of seed: what a tool writes into a block, and how any rank checks a block without a
 * stored copy. Every 8 bytes depend on the seed and on their place, so a block that is swapped, shifted, torn or old
 * is seen. Pure functions; the same bytes on every machine.
 */
#ifndef KVCL_TOOLS_PATTERN_H
#define KVCL_TOOLS_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#define PATTERN_GOOD SIZE_MAX

void pattern_fill(const uint8_t seed[32], void *buf, size_t len);

/* @return PATTERN_GOOD, or the offset of the first byte that differs. */
size_t pattern_check(const uint8_t seed[32], const void *buf, size_t len);

/* A seed from two numbers, for patterns that no key names. */
void pattern_seed(uint64_t a, uint64_t b, uint8_t seed[32]);

#endif
