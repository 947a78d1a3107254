/*
 * The ends of a store, for the files that open it (open.c) and that finalize its context (store.c).
 */
#ifndef KVCL_STORE_CLOSE_H
#define KVCL_STORE_CLOSE_H

#include <kvcl/kvcl_store.h>

/** No lock; nothing is in flight. Frees a store, which may be half-open. */
void kvcl_store_destroy(kvcl_store_h store);
/** Lock held. The store can no longer be found, and uses no cache or mapped memory of others. */
void kvcl_store_unlink(kvcl_store_h store);
/** The rest of an unlinked store whose pool is freed: its own memory. */
void kvcl_store_free_memory(kvcl_store_h store);

#endif
