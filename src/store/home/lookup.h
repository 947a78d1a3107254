/*
 * Lookups in other ranks' mapped tables (home/lookup.c). No lock.
 */
#ifndef KVCL_STORE_HOME_LOOKUP_H
#define KVCL_STORE_HOME_LOOKUP_H

#include "store/store.h"

/** The mapped table of a key's home or, if that has failed, of its backup. NULL: a query is needed (*failed_p: no rank
 * would answer it). */
const kvcl_dir_view_t *kvcl_store_view(kvcl_store_h store, const kvcl_key_t *key, bool *failed_p);

/** Of lists of keys this many are prefetched before they are read. */
enum { KVCL_LOOKUP_AHEAD = 8 };
/** The first entries of a key in its table, if that is mapped, will be read soon. */
void kvcl_store_prefetch(kvcl_store_h store, const kvcl_key_t *key);

#endif
