/*
 * The state of the room of memory (mem_state.h): the table of regions, the words of the control page, lists.
 *
 * Owns: which id a region has, and the control word of each. Invariants: an id names one region at most; the word of an
 * id is the epoch of its live region, or a value that no description names. Locks: the engine lock.
 */
#include "config.h"
#include "mem/mem_state.h"
#include "base/error.h"
#include "cache/cache.h"
#include "mem/rmem.h"

kvcl_list_t *kvcl_context_caches(kvcl_context_h ctx)
{
    return &kvcl_mem_state(ctx)->caches;
}

kvcl_list_t *kvcl_context_mems(kvcl_context_h ctx)
{
    return &kvcl_mem_state(ctx)->mems;
}

kvcl_list_t *kvcl_context_rmems(kvcl_context_h ctx)
{
    return &kvcl_mem_state(ctx)->rmems;
}

void kvcl_ctl_set(kvcl_region_t *region, uint64_t value)
{
    _Atomic uint64_t *words = kvcl_mem_state(region->ctx)->ctl.addr;

    atomic_store_explicit(&words[region->id], value, memory_order_seq_cst);
}

uint64_t kvcl_revoked(kvcl_context_h ctx)
{
    _Atomic uint64_t *words = kvcl_mem_state(ctx)->ctl.addr;

    return atomic_load(&words[KVCL_CTL_REVOKED]);
}

const void *kvcl_revoked_at(kvcl_context_h ctx)
{
    const _Atomic uint64_t *words = kvcl_mem_state(ctx)->ctl.addr;

    return &words[KVCL_CTL_REVOKED];
}

void kvcl_revoke(kvcl_context_h ctx)
{
    _Atomic uint64_t *words = kvcl_mem_state(ctx)->ctl.addr;

    (void)atomic_fetch_add(&words[KVCL_CTL_REVOKED], 1);
}

kvcl_status_t kvcl_region_enter(kvcl_region_t *region)
{
    kvcl_mem_state_t *mem = kvcl_mem_state(region->ctx);
    uint32_t         i, id;

    for (i = 0; i < KVCL_CTL_PAGE; ++i) {
        id = (mem->next + i) % KVCL_CTL_PAGE;
        if (mem->regions[id] == NULL) {
            mem->regions[id] = region;
            mem->next        = id + 1;
            region->id       = id;
            return KVCL_OK;
        }
    }
    return kvcl_fail(KVCL_ERR_NO_SPACE, "more than %d registered regions in a context", KVCL_CTL_PAGE);
}

size_t kvcl_ctl_pack(kvcl_context_h ctx, void *buf, size_t cap)
{
    kvcl_assert_locked(ctx);
    return kvcl_region_pack(&kvcl_mem_state(ctx)->ctl, KVCL_READ, buf, cap);
}

kvcl_status_t kvcl_region_check(kvcl_context_h ctx, uint32_t id, uint64_t key, unsigned right, uint64_t offset,
                                uint64_t len, kvcl_region_t **region_p)
{
    kvcl_region_t *region = (id < KVCL_REGIONS_MAX) ? kvcl_mem_state(ctx)->regions[id] : NULL;

    kvcl_assert_locked(ctx);
    if ((region == NULL) || region->revoked || (key == 0) || (region->keys[(right == KVCL_WRITE) ? 1 : 0] != key)) {
        return KVCL_ERR_ACCESS;
    }
    if ((offset > region->len) || (len > region->len - offset)) {
        return KVCL_ERR_OUT_OF_RANGE;
    }
    *region_p = region;
    return KVCL_OK;
}
