/*
 * The tenants of a pool's blocks: the bytes of each tenant, its quota, and its next victim. A pool's blocks have
 * classes (slabs.h), each of one size; slots are numbered within a class.
 *
 * A tenant is a number of the caller's choice; 0 means no tenant and has no quota. A tenant over its quota evicts its
 * own blocks before any other block is evicted: its oldest, except that a block used since it was inserted (or since it
 * was last passed over) is passed over once more. Pure: no lock, no clock.
 */
#ifndef KVCL_POLICY_TENANTS_H
#define KVCL_POLICY_TENANTS_H

#include "base/map.h"
#include "policy/evict.h"
#include "policy/slabs.h"

#define KVCL_TENANT_NO_QUOTA UINT64_MAX
#define KVCL_TENANT_NEVER    UINT64_MAX

/* Its blocks of one class. */
typedef struct kvcl_tenant_list {
    uint32_t n;
    uint32_t head; /* youngest */
    uint32_t tail;
} kvcl_tenant_list_t;

typedef struct kvcl_tenant {
    uint64_t           id;
    uint64_t           quota; /* bytes */
    uint64_t           used;
    kvcl_tenant_list_t lists[KVCL_SLABS_CLASSES_MAX];
} kvcl_tenant_t;

/* A slot's place among its tenant's. */
typedef struct kvcl_tenant_node {
    kvcl_tenant_t *tenant; /* NULL: no tenant's */
    uint32_t      prev;
    uint32_t      next;
} kvcl_tenant_node_t;

typedef struct kvcl_tenants {
    kvcl_map_t         by_id;
    kvcl_tenant_node_t *nodes[KVCL_SLABS_CLASSES_MAX]; /* by slot; NULL: there is no such class */
    uint64_t           bytes[KVCL_SLABS_CLASSES_MAX];  /* of a block */
    uint32_t           n_quotas;
} kvcl_tenants_t;

/** Without any class yet. */
void          kvcl_tenants_init(kvcl_tenants_t *tenants);
kvcl_status_t kvcl_tenants_class(kvcl_tenants_t *tenants, unsigned cls, uint32_t n_slots, uint64_t bytes)
    KVCL_MUST_CHECK;
void          kvcl_tenants_fini(kvcl_tenants_t *tenants); /* zeroed or initialized */
static inline bool kvcl_tenants_has(const kvcl_tenants_t *tenants, unsigned cls)
{
    return tenants->nodes[cls] != NULL;
}

/** quota: bytes, or KVCL_TENANT_NO_QUOTA. @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_INVALID_PARAM (id 0). */
kvcl_status_t kvcl_tenants_quota(kvcl_tenants_t *tenants, uint64_t id, uint64_t quota) KVCL_MUST_CHECK;

/** Assign a slot without a tenant to this tenant. Without memory, or without this class, it stays without one. */
void          kvcl_tenants_add(kvcl_tenants_t *tenants, unsigned cls, uint32_t slot, uint64_t id);
void          kvcl_tenants_del(kvcl_tenants_t *tenants, unsigned cls, uint32_t slot);
uint64_t      kvcl_tenants_of(const kvcl_tenants_t *tenants, unsigned cls, uint32_t slot);
uint64_t      kvcl_tenants_used(const kvcl_tenants_t *tenants, uint64_t id); /* bytes */
uint32_t      kvcl_tenants_blocks(const kvcl_tenants_t *tenants, uint64_t id, unsigned cls);

/** The bytes of its own that the tenant must evict before it may add this many; KVCL_TENANT_NEVER: it never may. */
uint64_t      kvcl_tenants_over(const kvcl_tenants_t *tenants, uint64_t id, uint64_t bytes);
/** One that has more than its quota (it was lowered), or 0. */
uint64_t      kvcl_tenants_any_over(const kvcl_tenants_t *tenants);

/** Take the tenant's next victim of a class out of the class's order of eviction; it stays the tenant's until
 * kvcl_tenants_del(). @return KVCL_OK, KVCL_ERR_NOT_FOUND: it has none that is not pinned. */
kvcl_status_t kvcl_tenants_victim(kvcl_tenants_t *tenants, uint64_t id, unsigned cls, kvcl_evict_t *evict,
                                  uint32_t *slot_p) KVCL_MUST_CHECK;

#endif
