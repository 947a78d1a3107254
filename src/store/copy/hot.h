/*
 * Counts of blocks that are got often, which the pool then copies (copy/hot.c).
 */
#ifndef KVCL_STORE_COPY_HOT_H
#define KVCL_STORE_COPY_HOT_H

#include "store/store.h"

/** No lock: with KVCL_STORE_HOT and a pool, starts to count blocks that are got often (copy/hot.c). */
kvcl_status_t kvcl_hot_open(kvcl_store_h store) KVCL_MUST_CHECK;

#endif
