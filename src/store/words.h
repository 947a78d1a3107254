/*
 * Error sentences of a store's calls: the block of the call that failed, its key, and what a status means for a store.
 */
#ifndef KVCL_STORE_WORDS_H
#define KVCL_STORE_WORDS_H

#include <kvcl/kvcl_key.h>
#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The first 8 bytes of a key as in its text, for "%016llx". */
unsigned long long kvcl_key_prefix(const kvcl_key_t *key);

/** Writes what a status means for a store's call, and what to do. False: the same as for any request. */
bool kvcl_store_explain(kvcl_status_t status, char *buf, size_t cap);

/** A miss: `absent` of n blocks are absent, the first of them is number `at`, under this key. It is expected on a hot
 * path, so the sentence is made when it is read. what: a static format with these four numbers, such as
 * "kvcl_store_get: %llu of %llu blocks ...". */
kvcl_status_t kvcl_store_absent(const char *what, size_t absent, size_t n, size_t at, const kvcl_key_t *key);

struct kvcl_store;

/** Any thread, no lock. Writes why a get into blocks of this many bytes found none: the store has pools, and none has
 * blocks of that size. False: a pool has them, or there is no pool. */
bool kvcl_store_explain_size(const struct kvcl_store *store, uint64_t bytes, char *buf, size_t cap);

#define KVCL_WORDS_ABSENT "are absent; the first is number %llu of the call, key %016llx...: no rank has it in this " \
                          "size, or it was evicted: compute it and put it"

#endif
