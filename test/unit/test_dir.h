/*
 * Keys and locations for the directory's tests: key i is a hash of i, location i is made of i.
 */
#ifndef TEST_DIR_H
#define TEST_DIR_H

#include "base/rand.h"
#include "dir/entry.h"

#include <string.h>

static inline kvcl_key_t test_key(uint64_t i)
{
    uint64_t   state = i * UINT64_C(0x9e3779b97f4a7c15) + 1, word;
    kvcl_key_t key;
    size_t     at;

    for (at = 0; at < sizeof(key.bytes); at += sizeof(word)) {
        word = kvcl_splitmix64(&state);
        memcpy(key.bytes + at, &word, sizeof(word));
    }
    return key;
}

static inline kvcl_dir_loc_t test_loc(uint16_t rank, uint32_t slot, uint32_t gen)
{
    return (kvcl_dir_loc_t){.rank        = rank,
                            .incarnation = 1,
                            .cache       = 2,
                            .flags       = KVCL_DIR_TIER_DRAM,
                            .slot        = slot,
                            .len         = 4096 + slot,
                            .gen         = gen,
                            .checksum    = ((uint64_t)gen << 32) + slot * 31u + rank};
}

static inline int test_loc_equal(const kvcl_dir_loc_t *a, const kvcl_dir_loc_t *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

#endif
