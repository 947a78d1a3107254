/*
 * Handles of a store for one tenant (tenant.h).
 *
 * Owns the handles, which are linked into their store, and the tenants that they name; a tenant is freed with its last
 * hold. The store outlives every use of tenant->store: requests in flight keep it (store->ops). The list of handles is
 * under the engine lock; a tenant is immutable except for its counts.
 */
#include "config.h"
#include "store/tenant.h"
#include "base/error.h"
#include "base/hkdf.h"
#include "base/key_file.h"
#include "policy/key_perm.h"

#include <stdlib.h>

enum { SECRET_MIN = 16, SECRET_MAX = 64 * 1024 };

typedef struct tenant_handle {
    kvcl_store_tenant_t *tenant;
    kvcl_list_t         link; /* store->tenants */
} tenant_handle_t;

/* ---- holds ---- */

kvcl_store_tenant_t *kvcl_tenant_hold(kvcl_store_tenant_t *tenant)
{
    if (tenant != NULL) {
        atomic_fetch_add_explicit(&tenant->holds, 1, memory_order_relaxed);
    }
    return tenant;
}

void kvcl_tenant_release(kvcl_store_tenant_t *tenant)
{
    if ((tenant != NULL) && (atomic_fetch_sub_explicit(&tenant->holds, 1, memory_order_acq_rel) == 1)) {
        kvcl_key_perm_destroy(tenant->perm);
        free(tenant);
    }
}

/* ---- keys ---- */

void kvcl_tenant_keys(const kvcl_store_tenant_t *tenant, kvcl_key_t *keys, size_t n)
{
    if (tenant != NULL) {
        kvcl_key_perm_apply(tenant->perm, keys, n, keys);
    }
}

void kvcl_tenant_keys_back(const kvcl_store_tenant_t *tenant, kvcl_key_t *keys, size_t n)
{
    if (tenant != NULL) {
        kvcl_key_perm_undo(tenant->perm, keys, n, keys);
    }
}

void kvcl_tenant_keys_at(const kvcl_store_tenant_t *tenant, void *first, size_t stride, size_t n)
{
    kvcl_key_t some[KVCL_ENTRY_KEYS];
    char       *at = first;
    size_t     m, i;

    for (; (tenant != NULL) && (n > 0); n -= m, at += m * stride) {
        m = (n < KVCL_ENTRY_KEYS) ? n : KVCL_ENTRY_KEYS;
        for (i = 0; i < m; ++i) {
            memcpy(&some[i], at + (i * stride), sizeof(some[i]));
        }
        kvcl_key_perm_apply(tenant->perm, some, m, some);
        for (i = 0; i < m; ++i) {
            memcpy(at + (i * stride), &some[i], sizeof(some[i]));
        }
    }
}

/* ---- the entry of a call ---- */

kvcl_status_t kvcl_tenant_enter(kvcl_store_h *store, const kvcl_key_t **keys, size_t n, const char *call,
                                kvcl_entry_t *entry)
{
    kvcl_store_tenant_t *tenant = ((const tenant_handle_t *)(const void *)*store)->tenant;
    kvcl_status_t       status;

    if (keys != NULL) {
        status = kvcl_store_check(tenant->store, *keys, n, call);
        if (status != KVCL_OK) {
            return status;
        }
        entry->mem = (n > KVCL_ENTRY_KEYS) ? malloc(n * sizeof(**keys)) : NULL;
        if ((n > KVCL_ENTRY_KEYS) && (entry->mem == NULL)) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", call, n);
        }
        kvcl_key_perm_apply(tenant->perm, *keys, n, (entry->mem != NULL) ? entry->mem : entry->few);
        *keys = (entry->mem != NULL) ? entry->mem : entry->few;
    } else {
        entry->mem = NULL;
    }
    entry->tenant = kvcl_tenant_hold(tenant);
    *store        = tenant->store;
    return KVCL_OK;
}

void kvcl_tenant_leave(kvcl_entry_t *entry)
{
    free(entry->mem);
    kvcl_tenant_release(entry->tenant);
}

kvcl_status_t kvcl_tenant_number(const kvcl_store_tenant_t *tenant, uint64_t *number_p, const char *call)
{
    if (tenant == NULL) {
        return KVCL_OK;
    }
    if ((*number_p != 0) && (*number_p != tenant->number)) {
        return kvcl_fail(KVCL_ERR_ACCESS, "%s: tenant is %llu, but this is the handle of tenant %llu: pass 0, or use "
                         "the store's own handle", call, (unsigned long long)*number_p,
                         (unsigned long long)tenant->number);
    }
    *number_p = tenant->number;
    return KVCL_OK;
}

kvcl_status_t kvcl_tenant_refuse(const kvcl_entry_t *entry, const char *call)
{
    return (entry->tenant == NULL)
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_ACCESS, "%s: it concerns the blocks of all tenants, and this is the handle of "
                           "tenant %llu: use the store's own handle", call, (unsigned long long)entry->tenant->number);
}

/* ---- the handles ---- */

static void free_handle(tenant_handle_t *handle)
{
    kvcl_store_tenant_t *tenant = handle->tenant;

    kvcl_list_del(&handle->link);
    kvcl_object_free(handle);
    kvcl_tenant_release(tenant);
}

bool kvcl_tenant_close(kvcl_store_h store)
{
    tenant_handle_t *handle = (tenant_handle_t *)(void *)store;
    kvcl_context_h  ctx;

    if (!kvcl_handle_is(store, KVCL_KIND_TENANT)) {
        return false;
    }
    ctx = handle->tenant->store->ctx;
    kvcl_lock(ctx);
    free_handle(handle);
    kvcl_unlock_quietly(ctx);
    return true;
}

void kvcl_tenants_close(kvcl_store_h store)
{
    while (!kvcl_list_is_empty(&store->tenants)) {
        free_handle(kvcl_list_head(&store->tenants, tenant_handle_t, link));
    }
}

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)counter, memory_order_relaxed);
}

void kvcl_tenant_counts(const struct kvcl_store *store, uint64_t number, kvcl_store_stats_t *stats)
{
    const tenant_handle_t *handle;

    kvcl_assert_locked(store->ctx);
    kvcl_list_foreach (handle, &store->tenants, tenant_handle_t, link) {
        const kvcl_store_counts_t *counts = &handle->tenant->counts;
        if (handle->tenant->number == number) {
            stats->gets       += load(&counts->gets);
            stats->hits       += load(&counts->hits);
            stats->lookups    += load(&counts->lookups);
            stats->hits_cache += load(&counts->tier_hits[KVCL_DIR_TIER_CACHE]);
            stats->hits_dram  += load(&counts->tier_hits[KVCL_DIR_TIER_DRAM]);
            stats->hits_nvme  += load(&counts->tier_hits[KVCL_DIR_TIER_NVME]);
            stats->hits_local += load(&counts->local_hits);
        }
    }
}

/* ---- kvcl_store_tenant ---- */

/* 32 bytes: the SHA-256 of the secret's bytes, whether the caller has them or a file. */
static kvcl_status_t read_secret(kvcl_store_h store, const void *secret, size_t len, uint8_t hash[KVCL_SHA256_LEN])
{
    static const kvcl_key_file_t kind = {"tenant's key file", "head -c 32 /dev/urandom",
                                         ", the same on all ranks of the tenant", SECRET_MIN, SECRET_MAX};
    const char *path = store->ctx->config.store_tenant_key;

    if ((secret == NULL) && (len == 0)) {
        return ((path != NULL) && (path[0] != '\0'))
                   ? kvcl_key_file_digest(&kind, path, hash)
                   : kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_tenant: secret is NULL, and KVCL_STORE_TENANT_KEY "
                               "names no file: pass at least %d secret bytes, or set it", (int)SECRET_MIN);
    }
    if ((secret == NULL) || (len < SECRET_MIN) || (len > SECRET_MAX)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_tenant: secret %s%zu bytes: pass %d to %d random bytes "
                         "that no other tenant knows", (secret == NULL) ? "is NULL, with " : "has ", len,
                         (int)SECRET_MIN, (int)SECRET_MAX);
    }
    kvcl_sha256(secret, len, hash);
    return KVCL_OK;
}

/* The permutation's secret, from the job's secret, the tenant's, and its number. */
static kvcl_status_t make_perm(kvcl_store_h store, uint64_t number, uint8_t hash[KVCL_SHA256_LEN],
                               struct kvcl_key_perm **perm_p)
{
    static char   label[] = "kvcl store: a tenant's keys";
    uint8_t       bytes[8], prk[KVCL_SHA256_LEN], job[KVCL_SHA256_LEN];
    struct iovec  parts[] = {{job, sizeof(job)}, {bytes, sizeof(bytes)}, {hash, KVCL_SHA256_LEN}};
    kvcl_status_t status;
    unsigned      i;

    for (i = 0; i < sizeof(bytes); ++i) {
        bytes[i] = (uint8_t)(number >> (8 * i));
    }
    memcpy(job, store->ctx->secret, sizeof(job));
    kvcl_hkdf_extract(label, sizeof(label), parts, sizeof(parts) / sizeof(parts[0]), prk);
    status = kvcl_key_perm_create(prk, perm_p);
    kvcl_wipe(job, sizeof(job));
    kvcl_wipe(prk, sizeof(prk));
    kvcl_wipe(hash, KVCL_SHA256_LEN);
    return status;
}

static kvcl_status_t make_tenant(kvcl_store_h store, uint64_t number, const void *secret, size_t len,
                                 kvcl_store_tenant_t **tenant_p)
{
    kvcl_store_tenant_t *tenant = calloc(1, sizeof(*tenant));
    uint8_t             hash[KVCL_SHA256_LEN];
    kvcl_status_t       status;

    if (tenant == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_tenant: no memory");
    }
    *tenant = (kvcl_store_tenant_t){.store = store, .number = number};
    atomic_store(&tenant->holds, 1);
    status = read_secret(store, secret, len, hash);
    status = (status == KVCL_OK) ? make_perm(store, number, hash, &tenant->perm) : status;
    if (status != KVCL_OK) {
        kvcl_tenant_release(tenant);
        return status;
    }
    *tenant_p = tenant;
    return KVCL_OK;
}

kvcl_status_t kvcl_store_tenant(kvcl_store_h store, uint64_t tenant, const void *secret, size_t secret_len,
                                kvcl_store_h *tenant_p)
{
    kvcl_store_tenant_t *made = NULL;
    tenant_handle_t     *handle;
    kvcl_status_t       status;

    if (kvcl_handle_is(store, KVCL_KIND_TENANT)) {
        return kvcl_fail(KVCL_ERR_ACCESS, "kvcl_store_tenant: the store is a tenant's handle: use the store's own");
    }
    status = kvcl_store_check(store, NULL, 0, "kvcl_store_tenant");
    if ((status == KVCL_OK) && ((tenant == 0) || (tenant_p == NULL))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_tenant: %s", (tenant_p == NULL)
                               ? "tenant_p is NULL" : "tenant is 0, which means no tenant: pass 1 or more");
    }
    status = (status == KVCL_OK) ? make_tenant(store, tenant, secret, secret_len, &made) : status;
    if (status != KVCL_OK) {
        return status;
    }
    handle = kvcl_object_alloc(KVCL_KIND_TENANT, sizeof(*handle));
    if (handle == NULL) {
        kvcl_tenant_release(made);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_tenant: no memory");
    }
    handle->tenant = made;
    kvcl_lock(store->ctx);
    kvcl_list_add_tail(&store->tenants, &handle->link);
    kvcl_unlock_quietly(store->ctx);
    *tenant_p = (kvcl_store_h)(void *)handle;
    return KVCL_OK;
}
