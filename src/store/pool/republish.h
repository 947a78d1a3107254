/*
 * Homes that were silent receive again the records that they have missed (pool/republish.c). Lock held.
 */
#ifndef KVCL_STORE_POOL_REPUBLISH_H
#define KVCL_STORE_POOL_REPUBLISH_H

#include "store/store.h"

/** The rank answers again: sends it in the background the records of local blocks that it should list. */
void kvcl_republish_start(kvcl_store_h store, uint32_t rank);
void kvcl_republish_stop(kvcl_store_h store); /* the store is being closed */

#endif
