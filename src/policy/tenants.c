/*
 * Tenants of a pool (tenants.h). Owns its records and nodes. Invariant: `used` is the bytes of the slots in a record's
 * lists, and a record without slots and without a quota is freed. Lock: the caller's.
 */
#include "config.h"
#include "policy/tenants.h"

#include <stdlib.h>
#include <string.h>

enum { TENANTS_MAX = 1 << 20 };

#define NONE UINT32_MAX

void kvcl_tenants_init(kvcl_tenants_t *tenants)
{
    memset(tenants, 0, sizeof(*tenants));
    kvcl_map_init(&tenants->by_id);
}

kvcl_status_t kvcl_tenants_class(kvcl_tenants_t *tenants, unsigned cls, uint32_t n_slots, uint64_t bytes)
{
    tenants->bytes[cls] = bytes;
    tenants->nodes[cls] = calloc(n_slots, sizeof(*tenants->nodes[cls]));
    return (tenants->nodes[cls] != NULL) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
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
    for (at = 0; at < KVCL_SLABS_CLASSES_MAX; ++at) {
        free(tenants->nodes[at]);
    }
    memset(tenants, 0, sizeof(*tenants));
}

static kvcl_tenant_t *find(const kvcl_tenants_t *tenants, uint64_t id)
{
    return (id != 0) ? kvcl_map_get(&tenants->by_id, id) : NULL;
}

static kvcl_tenant_t *find_or_make(kvcl_tenants_t *tenants, uint64_t id)
{
    kvcl_tenant_t *tenant = find(tenants, id);
    unsigned      i;

    if ((tenant != NULL) || (id == 0) || (kvcl_map_count(&tenants->by_id) >= TENANTS_MAX)) {
        return tenant;
    }
    tenant = malloc(sizeof(*tenant));
    if (tenant != NULL) {
        *tenant = (kvcl_tenant_t){.id = id, .quota = KVCL_TENANT_NO_QUOTA};
        for (i = 0; i < KVCL_SLABS_CLASSES_MAX; ++i) {
            tenant->lists[i] = (kvcl_tenant_list_t){.head = NONE, .tail = NONE};
        }
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

/* ---- the list of a tenant's blocks of a class, youngest first ---- */

static void push(kvcl_tenant_list_t *list, kvcl_tenant_node_t *nodes, uint32_t slot)
{
    nodes[slot].prev = NONE;
    nodes[slot].next = list->head;
    if (list->head == NONE) {
        list->tail = slot;
    } else {
        nodes[list->head].prev = slot;
    }
    list->head = slot;
    ++list->n;
}

static void unlink_node(kvcl_tenant_list_t *list, kvcl_tenant_node_t *nodes, uint32_t slot)
{
    const kvcl_tenant_node_t *node = &nodes[slot];

    if (node->prev == NONE) {
        list->head = node->next;
    } else {
        nodes[node->prev].next = node->next;
    }
    if (node->next == NONE) {
        list->tail = node->prev;
    } else {
        nodes[node->next].prev = node->prev;
    }
    --list->n;
}

void kvcl_tenants_add(kvcl_tenants_t *tenants, unsigned cls, uint32_t slot, uint64_t id)
{
    kvcl_tenant_t *tenant = (tenants->nodes[cls] != NULL) ? find_or_make(tenants, id) : NULL;

    if ((tenant != NULL) && (tenants->nodes[cls][slot].tenant == NULL)) {
        tenants->nodes[cls][slot].tenant = tenant;
        tenant->used += tenants->bytes[cls];
        push(&tenant->lists[cls], tenants->nodes[cls], slot);
    }
}

void kvcl_tenants_del(kvcl_tenants_t *tenants, unsigned cls, uint32_t slot)
{
    kvcl_tenant_t *tenant = (tenants->nodes[cls] != NULL) ? tenants->nodes[cls][slot].tenant : NULL;

    if (tenant != NULL) {
        unlink_node(&tenant->lists[cls], tenants->nodes[cls], slot);
        tenants->nodes[cls][slot].tenant = NULL;
        tenant->used -= tenants->bytes[cls];
        drop_if_idle(tenants, tenant);
    }
}

uint64_t kvcl_tenants_of(const kvcl_tenants_t *tenants, unsigned cls, uint32_t slot)
{
    const kvcl_tenant_t *tenant = (tenants->nodes[cls] != NULL) ? tenants->nodes[cls][slot].tenant : NULL;

    return (tenant != NULL) ? tenant->id : 0;
}

uint64_t kvcl_tenants_used(const kvcl_tenants_t *tenants, uint64_t id)
{
    const kvcl_tenant_t *tenant = find(tenants, id);

    return (tenant != NULL) ? tenant->used : 0;
}

uint32_t kvcl_tenants_blocks(const kvcl_tenants_t *tenants, uint64_t id, unsigned cls)
{
    const kvcl_tenant_t *tenant = find(tenants, id);

    return (tenant != NULL) ? tenant->lists[cls].n : 0;
}

/* ---- quotas ---- */

uint64_t kvcl_tenants_over(const kvcl_tenants_t *tenants, uint64_t id, uint64_t bytes)
{
    const kvcl_tenant_t *tenant = find(tenants, id);

    if ((tenant == NULL) || (tenant->quota == KVCL_TENANT_NO_QUOTA)) {
        return 0;
    }
    if (bytes > tenant->quota) {
        return KVCL_TENANT_NEVER;
    }
    return (tenant->used > tenant->quota - bytes) ? tenant->used - (tenant->quota - bytes) : 0;
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

kvcl_status_t kvcl_tenants_victim(kvcl_tenants_t *tenants, uint64_t id, unsigned cls, kvcl_evict_t *evict,
                                  uint32_t *slot_p)
{
    kvcl_tenant_t      *tenant = find(tenants, id);
    kvcl_tenant_list_t *list   = (tenant != NULL) ? &tenant->lists[cls] : NULL;
    uint64_t           steps   = (list != NULL) ? (uint64_t)list->n * 4 : 0; /* each use is forgiven once */
    kvcl_evict_node_t  *node;
    uint32_t           slot;

    for (; steps > 0; --steps) {
        slot = list->tail;
        node = &evict->nodes[slot];
        if ((node->pins == 0) && (node->uses == 0)) {
            *slot_p = slot;
            return kvcl_evict_remove(evict, slot);
        }
        node->uses = (uint8_t)((node->pins == 0) ? node->uses - 1 : node->uses);
        unlink_node(list, tenants->nodes[cls], slot);
        push(list, tenants->nodes[cls], slot);
    }
    return KVCL_ERR_NOT_FOUND;
}
