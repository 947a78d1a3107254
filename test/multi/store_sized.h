/*
 * Shared by the tests of pools with several block sizes: a key determines its size, and every word of a block
 * identifies its key and position. Defined in store_sizes.c.
 */
#ifndef KVCL_TEST_STORE_SIZED_H
#define KVCL_TEST_STORE_SIZED_H

#include "store_test.h"

enum { SIZES = 3, LARGEST = 20488 };

extern const uint64_t sizes[SIZES];

/** A pool of this many bytes for these sizes. */
kvcl_store_params_t sized_params(uint64_t bytes);
/** A cache of some blocks of sizes[s]. */
kvcl_cache_h  make_sized(world_t *w, const char *name, unsigned s);
kvcl_key_t    key_at(uint64_t owner, unsigned s, uint64_t i);
unsigned      size_of(const kvcl_key_t *key);
bool          is_right(kvcl_cache_h cache, uint32_t block, unsigned s, const kvcl_key_t *key);
/** Put the key's own bytes, through the cache's block 0. */
kvcl_status_t put_one(kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *key, uint64_t replicas,
                      uint8_t *copies);
/** Get into the cache's block 1. */
kvcl_status_t get_one(kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *key);

#endif
