/*
 * The copies that a failed rank had are made again (copy/repair.c). Lock held.
 */
#ifndef KVCL_STORE_COPY_REPAIR_H
#define KVCL_STORE_COPY_REPAIR_H

#include "store/store.h"

typedef struct kvcl_repair kvcl_repair_t;
void kvcl_repair_start(kvcl_store_h store); /* a rank has failed, and the map is new */
void kvcl_repair_stop(kvcl_store_h store);  /* the store is being closed; its memory is freed with the store's */

#endif
