/*
 * The room of memory: its state in a context and its list of message handlers.
 *
 * Owns: the table of regions, the control page, the lists of caches and of handles of memory (mem_state.h). Invariant:
 * what the user did not free is freed, with a warning, before the transports close. Locks: the engine lock.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "cache/cache.h"
#include "mem/mem_state.h"
#include "mem/rmem.h"

#include <stdlib.h>

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    kvcl_mem_state_t *mem = calloc(1, sizeof(*mem));
    kvcl_status_t    status;
    uint64_t         revoked;

    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the table of regions");
    }
    if (kvcl_mem_numa_init(&mem->numa, (kvcl_numa_mode_t)ctx->config.numa) != 0) {
        free(mem);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a mutex");
    }
    kvcl_list_init(&mem->caches);
    kvcl_list_init(&mem->mems);
    kvcl_list_init(&mem->rmems);
    status = kvcl_random_bytes(&revoked, sizeof(revoked));
    if (status != KVCL_OK) {
        kvcl_mem_numa_fini(&mem->numa);
        free(mem);
        return status;
    }
    mem->ctl.ctx       = ctx;
    mem->ctl.id        = KVCL_CTL_PAGE;
    mem->ctl.epoch     = 1;
    mem->ctl.len       = KVCL_REGIONS_MAX * sizeof(uint64_t);
    mem->ctl.read_only = true;
    status = kvcl_region_attach(&mem->ctl, false);
    kvcl_lock(ctx);
    if (status != KVCL_OK) {
        kvcl_region_detach(&mem->ctl);
    }
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        kvcl_mem_numa_fini(&mem->numa);
        free(mem);
        return status;
    }
    atomic_store((_Atomic uint64_t *)mem->ctl.addr + KVCL_CTL_PAGE, mem->ctl.epoch); /* no peer yet */
    /* Whoever read an earlier context's count at this address must not take this one for it. */
    atomic_store((_Atomic uint64_t *)mem->ctl.addr + KVCL_CTL_REVOKED, revoked);
    *state_p = mem;
    return KVCL_OK;
}

static void room_fini(kvcl_context_h ctx, void *state)
{
    kvcl_mem_state_t *mem = state;
    uint32_t         id;

    kvcl_caches_fini(ctx);
    kvcl_mems_fini(ctx);
    kvcl_lock(ctx);
    for (id = 0; id < KVCL_REGIONS_MAX; ++id) {
        if (mem->regions[id] != NULL) {
            kvcl_log_warn("a region of %zu bytes was not freed before kvcl_finalize", mem->regions[id]->len);
            kvcl_region_detach(mem->regions[id]);
            kvcl_region_free(mem->regions[id]);
        }
    }
    kvcl_region_detach(&mem->ctl);
    kvcl_unlock(ctx);
    kvcl_mem_numa_fini(&mem->numa);
    free(mem);
}

static void peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    kvcl_rmem_h rmem;

    (void)state;
    kvcl_caches_peer_failed(ctx, peer);
    kvcl_list_foreach (rmem, kvcl_context_rmems(ctx), struct kvcl_rmem, link) {
        if (rmem->peer == peer) {
            kvcl_rmem_peer_lost(rmem);
        }
    }
}

static void peer_reset(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    kvcl_rmem_h rmem;

    (void)state;
    kvcl_caches_peer_reset(peer);
    kvcl_list_foreach (rmem, kvcl_context_rmems(ctx), struct kvcl_rmem, link) {
        if (rmem->peer == peer) {
            kvcl_rregion_lost(&rmem->rregion);
        }
    }
}

static void peer_closing(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    kvcl_rmem_h rmem;

    (void)state;
    kvcl_rcaches_close(peer);
    kvcl_list_foreach (rmem, kvcl_context_rmems(ctx), struct kvcl_rmem, link) {
        if (rmem->peer == peer) {
            kvcl_rmem_peer_lost(rmem);
            kvcl_rregion_close(&rmem->rregion);
        }
    }
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_DESCRIBE, sizeof(kvcl_msg_describe_t), kvcl_rcache_on_describe},
    {KVCL_MSG_DESCRIPTION, sizeof(kvcl_msg_description_t), kvcl_rcache_on_description},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_mem = {
    .name        = "mem",
    .handlers    = handlers,
    .init        = room_init,
    .fini        = room_fini,
    .peer_failed = peer_failed,
    .peer_reset  = peer_reset,
    .peer_closing = peer_closing,
};
