/*
 * The keys of store_grow.c, and the bytes of their blocks.
 */
#ifndef KVCL_TEST_GROW_KEYS_H
#define KVCL_TEST_GROW_KEYS_H

#include "base/rand.h"

#include <kvcl/kvcl.h>

#include <stdio.h>
#include <string.h>

enum { BLOCK = 4096, WORDS = BLOCK / 8 };

static inline kvcl_key_t key_of(int proc, unsigned i)
{
    kvcl_key_t key;
    char       name[48];
    int        len = snprintf(name, sizeof(name), "grow/%d/%u", proc, i);

    kvcl_key_from_string(name, (size_t)len, &key);
    return key;
}

static inline void expected(const kvcl_key_t *key, uint64_t *words)
{
    kvcl_rand_t rnd;
    uint64_t    seed;
    unsigned    i;

    memcpy(&seed, key->bytes + 8, sizeof(seed));
    kvcl_rand_seed(&rnd, seed);
    for (i = 0; i < WORDS; ++i) {
        words[i] = kvcl_rand_next(&rnd);
    }
}

static inline kvcl_status_t wait_for(kvcl_status_t posted, kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted;
}

#endif
