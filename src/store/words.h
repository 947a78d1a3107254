/*
 * How failed calls of a store are worded: which block of the call, under which key, and what a status means here.
 */
#ifndef KVCL_STORE_WORDS_H
#define KVCL_STORE_WORDS_H

#include <kvcl/kvcl_key.h>
#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The first 8 bytes of a key as its text has them: for "%016llx". */
unsigned long long kvcl_key_prefix(const kvcl_key_t *key);

/** What a status of a store's call means, and what to do; false: nothing more than of any request. */
bool kvcl_store_explain(kvcl_status_t status, char *buf, size_t cap);

/** Expected on a hot path, so put together when it is read: this many of n are absent, the first of them is number at,
 * under this key. what: static, "kvcl_store_get: %llu of %llu blocks ..." with those four numbers. */
kvcl_status_t kvcl_store_absent(const char *what, size_t absent, size_t n, size_t at, const kvcl_key_t *key);

#define KVCL_WORDS_ABSENT "are absent; the first is number %llu of the call, key %016llx...: nobody has it in this " \
                          "size, or it was evicted: compute it and put it"

#endif
