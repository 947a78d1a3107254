/*
 * Regions (region.h): local memory that is registered with every transport, its keys and its control word.
 *
 * Owns: a region, with its copier and what the transports keep of it. Invariants: a region has an id before it has
 * keys, so no peer can request one that is half made; once it is revoked, neither its keys nor its epoch are valid.
 * The table of regions and the control page are in mem_state.c, the memory itself is in segment.c. Locks: the engine
 * lock; gigabytes are zeroed and registered without it.
 */
#include "config.h"
#include "mem/region.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/wirebuf.h"
#include "wire/address.h"
#include "mem/mem_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Allocations from this size on request huge pages and are placed on NUMA nodes. With 4 KiB pages each block in random
 * order costs a walk of the page table: over tcp, blocks of 1 KiB took a quarter more processor time, and blocks of
 * 4 KiB a seventh. */
enum { LARGE_MIN = 4 * 1024 * 1024 };

/* Fresh keys and epoch: earlier exports no longer count. */
static kvcl_status_t renew(kvcl_region_t *region)
{
    kvcl_status_t status = kvcl_random_bytes(region->keys, sizeof(region->keys));

    if (status != KVCL_OK) {
        return status;
    }
    region->epoch += 2; /* odd while live */
    region->epoch |= 1;
    region->revoked = false;
    kvcl_ctl_set(region, region->epoch);
    return KVCL_OK;
}

/* Device memory that the transport does not register is reached by messages. */
static kvcl_status_t register_device(const kvcl_region_t *region, kvcl_xport_t *xport, kvcl_xport_mem_t **xmem_p)
{
    if ((xport->ops->mem_register_device == NULL) ||
        (xport->ops->mem_register_device(xport, region->addr, region->len, xmem_p) != KVCL_OK)) {
        *xmem_p = NULL;
    }
    return KVCL_OK;
}

/* Memory that an RDMA port does not register is served, unless KVCL_PATH=rdma demands RDMA. */
static kvcl_status_t register_host(const kvcl_region_t *region, kvcl_xport_t *xport, kvcl_xport_mem_t **xmem_p)
{
    kvcl_context_h ctx    = region->ctx;
    kvcl_status_t  status = xport->ops->mem_register(xport, region->addr, region->len, xmem_p);
    char           why[KVCL_ERROR_MAX / 2];

    if ((status == KVCL_OK) || !xport->ops->links) {
        return status;
    }
    *xmem_p = NULL;
    if (ctx->config.path == KVCL_PATH_RDMA) {
        snprintf(why, sizeof(why), "%s", kvcl_last_error());
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "KVCL_PATH=rdma: %s: " KVCL_RAISE_MEMLOCK ", or use another KVCL_PATH, "
                         "where such memory is served", why);
    }
    if (!atomic_exchange(&ctx->warned_served, true)) {
        kvcl_log_warn("%s; this memory is served, and so is other memory that cannot be registered: "
                      KVCL_RAISE_MEMLOCK, kvcl_last_error());
    }
    return KVCL_OK;
}

/* No lock: it may take seconds. On failure too, xmem has the registrations that were made. */
static kvcl_status_t register_all(const kvcl_region_t *region, kvcl_xport_mem_t *xmem[KVCL_ENGINE_XPORTS])
{
    kvcl_engine_t *eng   = &region->ctx->engine;
    kvcl_status_t status = KVCL_OK;
    unsigned      i;

    for (i = 0; (i < eng->n_xports) && (status == KVCL_OK); ++i) {
        if (!eng->xports[i]->ops->messages_only) {
            status = (region->copier != NULL) ? register_device(region, eng->xports[i], &xmem[i])
                                              : register_host(region, eng->xports[i], &xmem[i]);
        }
    }
    return status;
}

/* Lock held. @return KVCL_OK: no transport's peer reaches it, nor what was unregistered before. */
static kvcl_status_t unregister_all(kvcl_context_h ctx, kvcl_xport_mem_t *xmem[KVCL_ENGINE_XPORTS])
{
    kvcl_status_t status = KVCL_OK;
    unsigned      i;

    kvcl_assert_locked(ctx);
    for (i = 0; i < ctx->engine.n_xports; ++i) {
        kvcl_xport_t *xport = ctx->engine.xports[i];

        if (xmem[i] != NULL) {
            xport->ops->mem_free(xmem[i]);
            xmem[i] = NULL;
        }
        if ((status == KVCL_OK) && (xport->ops->mem_fence != NULL)) {
            status = xport->ops->mem_fence(xport);
        }
    }
    return status;
}

static kvcl_status_t allocate(kvcl_region_t *region, bool huge)
{
    int           path  = region->ctx->config.path;
    unsigned      flags = (huge ? KVCL_SEGMENT_HUGE : 0) | (region->read_only ? KVCL_SEGMENT_READ_ONLY : 0);
    kvcl_status_t status;

    if ((path == KVCL_PATH_TCP) || (path == KVCL_PATH_LOOP) || (path == KVCL_PATH_RDMA)) { /* no peer may map it */
        flags |= KVCL_SEGMENT_PRIVATE;
    }
    status       = kvcl_segment_create(&region->segment, region->len, flags);
    region->addr = region->segment.addr;
    return status;
}

/* No lock: gigabytes are zeroed here. Make the memory known to every transport that can do something with it. */
kvcl_status_t kvcl_region_attach(kvcl_region_t *region, bool huge)
{
    bool          alloc  = (region->addr == NULL);
    kvcl_status_t status = alloc ? allocate(region, huge) : KVCL_OK;

    if (status == KVCL_OK) {
        status = register_all(region, region->xmem);
    }
    region->kind = alloc ? KVCL_REGION_ALLOCATED : KVCL_REGION_REGISTERED;
    return status;
}

/* As kvcl_region_attach(); allocated memory is placed on the chosen NUMA nodes. */
static kvcl_status_t attach_placed(kvcl_region_t *region, const kvcl_mem_params_t *params)
{
    uint64_t       flags = (params != NULL) ? params->flags : 0;
    bool           large = (region->len >= LARGE_MIN);
    kvcl_placing_t placing;
    kvcl_status_t  status;

    if ((region->addr != NULL) || (!large && !(flags & KVCL_MEM_NUMA))) {
        return kvcl_region_attach(region, large || (flags & KVCL_MEM_HUGE));
    }
    kvcl_mem_numa_begin(&kvcl_mem_state(region->ctx)->numa, params, &placing);
    status = kvcl_region_attach(region, large || (flags & KVCL_MEM_HUGE));
    kvcl_mem_numa_end(&placing, (status == KVCL_OK) ? region->addr : NULL, region->len);
    return status;
}

void kvcl_region_detach(kvcl_region_t *region)
{
    (void)unregister_all(region->ctx, region->xmem); /* revoked before, or no peer knows it */
    kvcl_segment_destroy(&region->segment);
}

void kvcl_region_free(kvcl_region_t *region)
{
    kvcl_copier_close(region->copier);
    free(region);
}

/* All of the memory that the processor is to read and write must be mapped: msync with MS_ASYNC only checks that. */
static kvcl_status_t check_mapped(const void *addr, size_t len)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)addr & ~(page - 1);

    if ((msync((void *)first, ((uintptr_t)addr - first) + len, MS_ASYNC) != 0) && (errno == ENOMEM)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%zu bytes at %p are not all memory of this process", len, addr);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_region_create(kvcl_context_h ctx, void *addr, size_t len, const kvcl_mem_params_t *params,
                                 kvcl_region_t **region_p)
{
    return kvcl_region_create_kind(ctx, addr, len, KVCL_MEM_HOST, params, region_p);
}

kvcl_status_t kvcl_region_create_kind(kvcl_context_h ctx, void *addr, size_t len, kvcl_mem_kind_t kind,
                                      const kvcl_mem_params_t *params, kvcl_region_t **region_p)
{
    kvcl_mem_state_t *mem = kvcl_mem_state(ctx);
    kvcl_region_t    *region;
    kvcl_status_t    status;

    if ((len == 0) || ((addr != NULL) && ((uintptr_t)addr + len < (uintptr_t)addr))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a region of %zu bytes at %p is empty or wraps around", len, addr);
    }
    region = calloc(1, sizeof(*region));
    if (region == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a region");
    }
    region->ctx       = ctx;
    region->addr      = addr;
    region->len       = len;
    region->read_only = (params != NULL) && ((params->flags & KVCL_MEM_READ_ONLY) != 0);
    kvcl_list_init(&region->link);
    kvcl_list_init(&region->users);
    status = kvcl_copier_open(kind, addr, len, &region->copier);
    if ((status == KVCL_OK) && (addr != NULL) && (region->copier == NULL)) {
        status = check_mapped(addr, len);
    }
    if (status != KVCL_OK) {
        free(region);
        return status;
    }
    kvcl_lock(ctx);
    status = kvcl_region_enter(region); /* without keys yet: no peer can request it */
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        kvcl_region_free(region);
        return status;
    }
    status = attach_placed(region, params);
    kvcl_lock(ctx);
    if (status == KVCL_OK) {
        region->epoch = (uint64_t)kvcl_now_ns() << 8; /* not that of an earlier region of this id */
        status        = renew(region);
    }
    if (status != KVCL_OK) {
        kvcl_region_detach(region);
        mem->regions[region->id] = NULL;
        kvcl_unlock(ctx);
        kvcl_region_free(region);
        return status;
    }
    kvcl_unlock(ctx);
    *region_p = region;
    return KVCL_OK;
}

kvcl_status_t kvcl_region_revoke(kvcl_region_t *region)
{
    kvcl_list_t *link;

    kvcl_assert_locked(region->ctx);
    region->revoked = true;
    region->keys[0] = region->keys[1] = 0;
    kvcl_ctl_set(region, 0);
    while ((link = kvcl_list_pop(&region->users)) != NULL) {
        kvcl_region_user_t *user = kvcl_container_of(link, kvcl_region_user_t, link);
        user->revoked(user);
    }
    return unregister_all(region->ctx, region->xmem); /* the network's keys are no longer valid */
}

kvcl_status_t kvcl_region_restore(kvcl_region_t *region)
{
    kvcl_context_h   ctx = region->ctx;
    kvcl_xport_mem_t *xmem[KVCL_ENGINE_XPORTS] = {NULL};
    kvcl_status_t    status;

    kvcl_assert_locked(ctx);
    kvcl_unlock(ctx);
    status = register_all(region, xmem);
    kvcl_lock(ctx);
    if ((status == KVCL_OK) && region->revoked) { /* another thread has not restored it meanwhile */
        status = renew(region);
        if (status == KVCL_OK) {
            memcpy(region->xmem, xmem, sizeof(xmem));
            return KVCL_OK;
        }
    }
    (void)unregister_all(ctx, xmem); /* no peer knows these keys */
    return status;
}

void kvcl_region_hold(kvcl_region_t *region, kvcl_region_user_t *user)
{
    kvcl_assert_locked(region->ctx);
    ++region->serves;
    kvcl_list_add_tail(&region->users, &user->link);
}

void kvcl_region_release(kvcl_region_t *region, kvcl_region_user_t *user)
{
    --region->serves;
    kvcl_list_del(&user->link);
}

static bool no_serves(void *arg)
{
    return ((kvcl_region_t *)arg)->serves == 0;
}

bool kvcl_region_destroy(kvcl_region_t *region)
{
    kvcl_context_h ctx = region->ctx;
    kvcl_status_t  status;
    char           why[KVCL_ERROR_MAX / 2];

    kvcl_lock(ctx);
    status = kvcl_region_revoke(region);
    kvcl_unlock(ctx);
    if (!kvcl_engine_wait(ctx, no_serves, region, kvcl_deadline_after(5 * KVCL_NS_PER_SEC))) {
        status = kvcl_fail(KVCL_ERR_BUSY, "a peer still reads it after 5 s");
    }
    if (status != KVCL_OK) {
        snprintf(why, sizeof(why), "%s", kvcl_last_error());
        (void)kvcl_fail(status, "memory of %zu bytes at %p is not released, and must not be freed: %s", region->len,
                        region->addr, why);
        kvcl_log_error("%s", kvcl_last_error());
        return false;
    }
    kvcl_lock(ctx);
    kvcl_region_detach(region);
    kvcl_mem_state(ctx)->regions[region->id] = NULL;
    kvcl_unlock(ctx);
    kvcl_region_free(region);
    return true;
}

/* ---- descriptions: u32 id, u16 rights, u16 memory kind, u64 keys[2], epoch, addr, len, ctl addr, ctl len, then twice
 * (the region, the control page): u16 length, packed segment; u8 parts, parts times {u8 transport, u16 length, bytes};
 * last the MAC of all that (kvcl_region_mac()) ---- */

static void pack_segment(const kvcl_segment_t *segment, kvcl_wr_t *wr)
{
    unsigned char buf[KVCL_SEGMENT_WIRE_BYTES];
    size_t        len = kvcl_segment_pack(segment, buf, sizeof(buf));

    kvcl_wr_u16(wr, (uint16_t)len);
    kvcl_wr_bytes(wr, buf, len);
}

static void pack_parts(kvcl_region_t *region, kvcl_wr_t *wr)
{
    kvcl_engine_t *eng = &region->ctx->engine;
    unsigned char buf[512];
    size_t        len;
    unsigned      i;

    kvcl_wr_u8(wr, (uint8_t)eng->n_xports);
    for (i = 0; i < eng->n_xports; ++i) {
        len = sizeof(buf);
        if ((region->xmem[i] == NULL) || (eng->xports[i]->ops->mem_pack(region->xmem[i], buf, &len) != KVCL_OK)) {
            len = 0;
        }
        kvcl_wr_u8(wr, (uint8_t)eng->xports[i]->part);
        kvcl_wr_u16(wr, (uint16_t)len);
        kvcl_wr_bytes(wr, buf, len);
    }
}

size_t kvcl_region_pack(kvcl_region_t *region, unsigned rights, void *buf, size_t cap)
{
    kvcl_mem_state_t *mem = kvcl_mem_state(region->ctx);
    uint8_t          mac[KVCL_REGION_MAC_BYTES];
    kvcl_wr_t        wr;

    kvcl_assert_locked(region->ctx);
    rights &= region->read_only ? (unsigned)KVCL_READ : (unsigned)KVCL_READ_WRITE;
    if (region->revoked) {
        return 0;
    }
    kvcl_wr_init(&wr, buf, cap);
    kvcl_wr_u32(&wr, region->id);
    kvcl_wr_u16(&wr, (uint16_t)rights);
    kvcl_wr_u16(&wr, (uint16_t)kvcl_copier_kind(region->copier));
    kvcl_wr_u64(&wr, (rights & KVCL_READ) ? region->keys[0] : 0);
    kvcl_wr_u64(&wr, (rights & KVCL_WRITE) ? region->keys[1] : 0);
    kvcl_wr_u64(&wr, region->epoch);
    kvcl_wr_u64(&wr, (uintptr_t)region->addr);
    kvcl_wr_u64(&wr, region->len);
    kvcl_wr_u64(&wr, (uintptr_t)mem->ctl.addr);
    kvcl_wr_u64(&wr, mem->ctl.len);
    pack_segment(&region->segment, &wr);
    pack_parts(region, &wr);
    pack_segment(&mem->ctl.segment, &wr);
    pack_parts(&mem->ctl, &wr);
    if (kvcl_wr_ok(&wr)) {
        kvcl_region_mac(region->ctx->secret, region->ctx->uuid, buf, kvcl_wr_len(&wr), mac);
        kvcl_wr_bytes(&wr, mac, sizeof(mac));
    }
    return kvcl_wr_ok(&wr) ? kvcl_wr_len(&wr) : 0;
}
