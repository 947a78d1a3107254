/*
 * Invalidates the keys of freed memory at the NIC: once kvcl_glue_keys_freed() has returned, no peer reads or writes
 * the memory by RDMA, and a peer that tries breaks its own connection for data.
 *
 * UCX keeps the registration of memory that is unmapped in a cache, for the next use of the same addresses, and its key
 * stays valid. Registrations may not be left out of the cache: UCX 1.13 would then register the local buffer of each
 * get and put, and later versions have no setting for it. So the cache may hold no unused registration
 * (RCACHE_MAX_REGIONS=0, glue_side.c). UCX enforces that only when it adds a registration, so a spare page is
 * registered after each free: a sweep.
 *
 * Owns: two spare pages. Invariants: between sweeps a part of one page is registered, and the whole of the other. A
 * sweep registers the whole of the first page, which is never found in the cache and takes the place of the part, and
 * then a part of the other page, whose registration was evicted just before. So no step needs more locked memory than
 * the process has already: RLIMIT_MEMLOCK may be used up by the very memory that was freed. A sweep that fails
 * nevertheless is remembered (stale), and mem_fence returns an error until one succeeds.
 *
 * A registration that a get or put of this rank uses during the sweep is not evicted: the operations posted so far are
 * counted apart (a phase), and the sweep is repeated when they have ended. Locks: the engine lock. With it, no transfer
 * begins to use a registration that is being freed.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define STILL_REACHED "peers may still access memory that was revoked or freed, because no page can be registered: " \
                      KVCL_RAISE_MEMLOCK

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* @return NULL: it cannot be registered. */
static ucp_mem_h map(glue_t *g, char *addr, size_t len)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = addr,
                                   .length     = len};
    ucp_mem_h            memh;

    return (ucp_mem_map(g->data.ctx, &params, &memh) == UCS_OK) ? memh : NULL;
}

static void unmap(glue_t *g, ucp_mem_h *memh)
{
    if (*memh != NULL) {
        (void)ucp_mem_unmap(g->data.ctx, *memh);
        *memh = NULL;
    }
}

static char *page_at(const glue_t *g, unsigned at)
{
    return g->keys.pages + at * page_bytes();
}

static void hold_part(glue_t *g)
{
    g->keys.part = map(g, page_at(g, g->keys.at) + page_bytes() / 4, page_bytes() / 2);
}

static bool sweep(glue_t *g)
{
    glue_keys_t *keys = &g->keys;

    unmap(g, &keys->part);
    unmap(g, &keys->whole);
    keys->whole = map(g, page_at(g, keys->at), page_bytes());
    if (keys->whole == NULL) {
        return false;
    }
    keys->at ^= 1;
    hold_part(g);
    return true;
}

/* The gets and puts that are posted from now on are counted apart from those in flight, whose end is awaited. */
static void next_phase(glue_keys_t *keys)
{
    keys->due   = keys->again;
    keys->again = false;
    keys->phase ^= keys->due;
}

static void sweep_or_warn(glue_t *g)
{
    g->keys.stale = !sweep(g);
    if (g->keys.stale) {
        kvcl_log_warn("RDMA port %s: " STILL_REACHED, g->plan.devices);
    }
}

void kvcl_glue_keys_freed(glue_t *g)
{
    glue_keys_t *keys = &g->keys;

    if (keys->pages == NULL) {
        return;
    }
    sweep_or_warn(g);
    if (keys->moving[0] + keys->moving[1] != 0) {
        keys->again = true;
        if (!keys->due) {
            next_phase(keys);
        }
    }
}

void kvcl_glue_keys_progress(glue_t *g)
{
    if (g->keys.moving[g->keys.phase ^ 1] == 0) {
        sweep_or_warn(g);
        next_phase(&g->keys);
    }
}

kvcl_status_t kvcl_glue_mem_fence(kvcl_xport_t *xport)
{
    glue_t *g = glue_of(xport);

    if (g->keys.stale) {
        g->keys.stale = !sweep(g);
    }
    return g->keys.stale ? kvcl_fail(KVCL_ERR_NO_MEMORY, "RDMA port %s: " STILL_REACHED, g->plan.devices) : KVCL_OK;
}

kvcl_status_t kvcl_glue_keys_open(glue_t *g)
{
    void *pages = mmap(NULL, 2 * page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (pages == MAP_FAILED) {
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, errno, "RDMA port %s: no memory for two pages", g->plan.devices);
    }
    g->keys.pages = pages;
    hold_part(g);
    g->keys.whole = map(g, page_at(g, 1), page_bytes());
    return KVCL_OK;
}

void kvcl_glue_keys_close(glue_t *g)
{
    unmap(g, &g->keys.part);
    unmap(g, &g->keys.whole);
    if (g->keys.pages != NULL) {
        (void)munmap(g->keys.pages, 2 * page_bytes());
        g->keys.pages = NULL;
    }
}
