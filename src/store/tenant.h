/*
 * Handles of a store for one tenant (kvcl_store_tenant), and the entry of every public call that takes a store.
 *
 * A tenant's handle is a kvcl_store_h of its own kind, so a call by the store's own handle pays one comparison.
 * kvcl_store_enter() replaces a tenant's handle by its store, and the caller's keys by the tenant's: a permutation of
 * all keys (policy/key_perm.h). The rooms below the calls know only the store and its keys. The calls translate keys
 * back where they return some, and pass the tenant's number with the blocks that they put.
 *
 * A tenant is counted: its handle, each call in progress and each request that needs it later hold it. Any thread, no
 * lock, except where marked.
 */
#ifndef KVCL_STORE_TENANT_H
#define KVCL_STORE_TENANT_H

#include "handle/handle.h"
#include "store/store.h"

typedef struct kvcl_store_tenant {
    kvcl_store_h         store;
    uint64_t             number;
    struct kvcl_key_perm *perm;
    _Atomic unsigned     holds;
    kvcl_store_counts_t  counts; /* of calls by its handle */
} kvcl_store_tenant_t;

enum { KVCL_ENTRY_KEYS = 64 };

/* A call in progress. */
typedef struct kvcl_entry {
    kvcl_store_tenant_t *tenant; /* NULL: by the store's own handle */
    kvcl_key_t          *mem;    /* more keys than few has room for */
    kvcl_key_t          few[KVCL_ENTRY_KEYS];
} kvcl_entry_t;

/* For the two functions below. keys: NULL if the call has none. */
kvcl_status_t kvcl_tenant_enter(kvcl_store_h *store, const kvcl_key_t **keys, size_t n, const char *call,
                                kvcl_entry_t *entry) KVCL_MUST_CHECK;
void          kvcl_tenant_leave(kvcl_entry_t *entry);

/** First of a public call. With a tenant's handle: *store becomes its store, and *keys (n of them) the tenant's keys,
 * valid until kvcl_store_leave(). Any other handle is left for kvcl_store_check(). */
static inline kvcl_status_t kvcl_store_enter(kvcl_store_h *store, const kvcl_key_t **keys, size_t n, const char *call,
                                             kvcl_entry_t *entry)
{
    entry->tenant = NULL;
    return kvcl_handle_is(*store, KVCL_KIND_TENANT) ? kvcl_tenant_enter(store, keys, n, call, entry) : KVCL_OK;
}

/** Last of a public call, also of one whose entry failed. */
static inline void kvcl_store_leave(kvcl_entry_t *entry)
{
    if (entry->tenant != NULL) {
        kvcl_tenant_leave(entry);
    }
}

/** The tenant's number; NULL: 0, no tenant's. */
static inline uint64_t kvcl_tenant_of(const kvcl_store_tenant_t *tenant)
{
    return (tenant != NULL) ? tenant->number : 0;
}

/** NULL is accepted, and is returned. */
kvcl_store_tenant_t *kvcl_tenant_hold(kvcl_store_tenant_t *tenant);
void                 kvcl_tenant_release(kvcl_store_tenant_t *tenant);

/** In place: the tenant's keys for the caller's, and back. NULL: the keys stay. */
void kvcl_tenant_keys(const kvcl_store_tenant_t *tenant, kvcl_key_t *keys, size_t n);
void kvcl_tenant_keys_back(const kvcl_store_tenant_t *tenant, kvcl_key_t *keys, size_t n);
/** n keys from first on, each at the start of `stride` bytes, become the tenant's keys in place. */
void kvcl_tenant_keys_at(const kvcl_store_tenant_t *tenant, void *first, size_t stride, size_t n);

/** The number that a call names, or 0: *number_p becomes the tenant's. KVCL_ERR_ACCESS: it is another one. */
kvcl_status_t kvcl_tenant_number(const kvcl_store_tenant_t *tenant, uint64_t *number_p,
                                 const char *call) KVCL_MUST_CHECK;
/** KVCL_ERR_ACCESS: the call concerns all tenants, and this is the handle of one. */
kvcl_status_t kvcl_tenant_refuse(const kvcl_entry_t *entry, const char *call) KVCL_MUST_CHECK;

/** kvcl_store_close of a tenant's handle. False: it is none. */
bool kvcl_tenant_close(kvcl_store_h handle);
/** The store is freed: its tenants' handles are dead. */
void kvcl_tenants_close(kvcl_store_h store);

/** Lock held. Adds the counts of all open handles of this number. */
void kvcl_tenant_counts(const struct kvcl_store *store, uint64_t number, kvcl_store_stats_t *stats);

#endif
