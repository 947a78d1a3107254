/*
 * Tenants of a pool (tenants.h). Owns its records and nodes. Invariant: a record's list has `used` slots, and a record
 * without slots and without a quota is freed. Lock: the caller's.
 */
#include "config.h"
#include "store/tenants.h"

#include <stdlib.h>
#include <string.h>

enum { TENANTS_MAX = 1 << 20 };

#define NONE UINT32_MAX

kvcl_status_t kvcl_tenants_init(kvcl_tenants_t *tenants, uint32_t n_slots)
{
    memset(tenants, 0, sizeof(*tenants));
    kvcl_map_init(&tenants->by_id);
    tenants->n     = n_slots;
    tenants->nodes = calloc(n_slots, sizeof(*tenants->nodes));
    return (tenants->nodes != NULL) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
}

void kvcl_tenants_fini(kvcl_tenants_t *tenants)
{
    uint64_t id;
    void     *tenant;
    size_t   at;

    kvcl_map_foreach (&tenants->by_id, at, id, tenant) {
        free(tenant);
    }
    kvcl_map_fini(&tenants->by_id);
    free(tenants->nodes);
    memset(tenants, 0, sizeof(*tenants));
}

static kvcl_tenant_t *find(const kvcl_tenants_t *tenants, uint64_t id)
{
    return (id != 0) ? kvcl_map_get(&tenants->by_id, id) : NULL;
}

static kvcl_tenant_t *find_or_make(kvcl_tenants_t *tenants, uint64_t id)
{
    kvcl_tenant_t *tenant = find(tenants, id);

    if ((tenant != NULL) || (id == 0) || (kvcl_map_count(&tenants->by_id) >= TENANTS_MAX)) {
        return tenant;
    }
    tenant = malloc(sizeof(*tenant));
    if (tenant != NULL) {
        *tenant = (kvcl_tenant_t){.id = id, .quota = KVCL_TENANT_NO_QUOTA, .head = NONE, .tail = NONE};
        if (kvcl_map_put(&tenants->by_id, id, tenant) != KVCL_OK) {
            free(tenant);
            tenant = NULL;
        }
    }
    return tenant;
}

static void drop_if_idle(kvcl_tenants_t *tenants, kvcl_tenant_t *tenant)
{
    if ((tenant->used == 0) && (tenant->quota == KVCL_TENANT_NO_QUOTA)) {
        (void)kvcl_map_del(&tenants->by_id, tenant->id);
        free(tenant);
    }
}

kvcl_status_t kvcl_tenants_quota(kvcl_tenants_t *tenants, uint64_t id, uint64_t quota)
{
    kvcl_tenant_t *tenant;

    if (id == 0) {
        return KVCL_ERR_INVALID_PARAM;
    }
    tenant = find_or_make(tenants, id);
    if (tenant == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    tenants->n_quotas += (quota != KVCL_TENANT_NO_QUOTA) ? 1 : 0;
    tenants->n_quotas -= (tenant->quota != KVCL_TENANT_NO_QUOTA) ? 1 : 0;
    tenant->quota = quota;
    drop_if_idle(tenants, tenant);
    return KVCL_OK;
}

/* ---- the list of a tenant, youngest first ---- */

static void push(kvcl_tenants_t *tenants, kvcl_tenant_t *tenant, uint32_t slot)
{
    kvcl_tenant_node_t *node = &tenants->nodes[slot];

    node->prev = NONE;
    node->next = tenant->head;
    if (tenant->head == NONE) {
        tenant->tail = slot;
    } else {
        tenants->nodes[tenant->head].prev = slot;
    }
    tenant->head = slot;
}

static void unlink_node(kvcl_tenants_t *tenants, kvcl_tenant_t *tenant, uint32_t slot)
{
    kvcl_tenant_node_t *node = &tenants->nodes[slot];

    if (node->prev == NONE) {
        tenant->head = node->next;
    } else {
        tenants->nodes[node->prev].next = node->next;
    }
    if (node->next == NONE) {
        tenant->tail = node->prev;
    } else {
        tenants->nodes[node->next].prev = node->prev;
    }
}

void kvcl_tenants_add(kvcl_tenants_t *tenants, uint32_t slot, uint64_t id)
{
    kvcl_tenant_t *tenant = find_or_make(tenants, id);

    if ((tenant != NULL) && (tenants->nodes[slot].tenant == NULL)) {
        tenants->nodes[slot].tenant = tenant;
        ++tenant->used;
        push(tenants, tenant, slot);
    }
}

void kvcl_tenants_del(kvcl_tenants_t *tenants, uint32_t slot)
{
    kvcl_tenant_t *tenant = tenants->nodes[slot].tenant;

    if (tenant != NULL) {
        unlink_node(tenants, tenant, slot);
        tenants->nodes[slot].tenant = NULL;
        --tenant->used;
        drop_if_idle(tenants, tenant);
    }
}

uint64_t kvcl_tenants_of(const kvcl_tenants_t *tenants, uint32_t slot)
{
    return (tenants->nodes[slot].tenant != NULL) ? tenants->nodes[slot].tenant->id : 0;
}

uint64_t kvcl_tenants_used(const kvcl_tenants_t *tenants, uint64_t id)
{
    const kvcl_tenant_t *tenant = find(tenants, id);

    return (tenant != NULL) ? tenant->used : 0;
}

/* ---- quotas ---- */

uint64_t kvcl_tenants_over(const kvcl_tenants_t *tenants, uint64_t id, uint64_t n)
{
    const kvcl_tenant_t *tenant = find(tenants, id);

    if ((tenant == NULL) || (tenant->quota == KVCL_TENANT_NO_QUOTA)) {
        return 0;
    }
    if (n > tenant->quota) {
        return (uint64_t)tenants->n + 1;
    }
    return (tenant->used > tenant->quota - n) ? tenant->used - (tenant->quota - n) : 0;
}

uint64_t kvcl_tenants_any_over(const kvcl_tenants_t *tenants)
{
    uint64_t id;
    void     *value;
    size_t   at;

    if (tenants->n_quotas != 0) {
        kvcl_map_foreach (&tenants->by_id, at, id, value) {
            if (((kvcl_tenant_t *)value)->used > ((kvcl_tenant_t *)value)->quota) {
                return id;
            }
        }
    }
    return 0;
}

kvcl_status_t kvcl_tenants_victim(kvcl_tenants_t *tenants, uint64_t id, kvcl_evict_t *evict, uint32_t *slot_p)
{
    kvcl_tenant_t     *tenant = find(tenants, id);
    uint64_t          steps   = (tenant != NULL) ? (uint64_t)tenant->used * 4 : 0; /* each use is forgiven once */
    kvcl_evict_node_t *node;
    uint32_t          slot;

    for (; steps > 0; --steps) {
        slot = tenant->tail;
        node = &evict->nodes[slot];
        if ((node->pins == 0) && (node->uses == 0)) {
            *slot_p = slot;
            return kvcl_evict_remove(evict, slot);
        }
        node->uses = (uint8_t)((node->pins == 0) ? node->uses - 1 : node->uses);
        unlink_node(tenants, tenant, slot);
        push(tenants, tenant, slot);
    }
    return KVCL_ERR_NOT_FOUND;
}
