/*
 * Shards move: this rank lists its blocks at their new homes (pool/rehome.c). Lock held.
 */
#ifndef KVCL_STORE_POOL_REHOME_H
#define KVCL_STORE_POOL_REHOME_H

#include "store/store.h"

/** Begins the walk, or begins it again. It ends with kvcl_views_listed(). */
void kvcl_rehome_start(kvcl_store_h store);
void kvcl_rehome_stop(kvcl_store_h store); /* the store is being closed */

#endif
