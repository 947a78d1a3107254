/*
 * Memory over the loop transport: a region is an entry in its xport's list, a remote region is a plain pointer.
 *
 * Invariants: packed bytes name (xport, region) by ids that are never reused, so a freed region is detected; a mapped
 * pointer is valid only while the region exists, which the core checks.
 * Locks: kvcl_loop.lock for the lists. See xport_loop_registry.c. Gets and puts are in xport_loop_rma.c.
 */
#include "config.h"
#include "loop/xport_loop_impl.h"

#include "base/checksum.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define LOOP_MEM_MAGIC  UINT64_C(0x4b56434c4c4d454d)

struct loop_packed {
    uint64_t magic;
    uint64_t xport;
    uint64_t mem;
    uint32_t pad;
    uint32_t check;
};

static kvcl_status_t add_mem(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p)
{
    loop_xport_t *x   = kvcl_container_of(xport, loop_xport_t, super);
    loop_mem_t   *mem = kvcl_loop_alloc(sizeof(*mem));

    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for a region");
    }
    mem->super.xport = xport;
    mem->addr        = addr;
    mem->len         = len;
    pthread_mutex_lock(&kvcl_loop.lock);
    mem->id = ++kvcl_loop.last_id;
    kvcl_list_add_tail(&x->mems, &mem->link);
    pthread_mutex_unlock(&kvcl_loop.lock);
    *mem_p = &mem->super;
    return KVCL_OK;
}

kvcl_status_t kvcl_loop_mem_register(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p)
{
    return add_mem(xport, addr, len, mem_p);
}

kvcl_status_t kvcl_loop_mem_register_device(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p)
{
    kvcl_status_t status = add_mem(xport, addr, len, mem_p);

    if (status == KVCL_OK) { /* no peer knows it yet */
        kvcl_container_of(*mem_p, loop_mem_t, super)->device = true;
    }
    return status;
}

void kvcl_loop_mem_free(kvcl_xport_mem_t *super)
{
    loop_mem_t *mem = kvcl_container_of(super, loop_mem_t, super);

    pthread_mutex_lock(&kvcl_loop.lock);
    kvcl_list_del(&mem->link);
    pthread_mutex_unlock(&kvcl_loop.lock);
    free(mem);
}

kvcl_status_t kvcl_loop_mem_fence(kvcl_xport_t *xport)
{
    bool keep;

    (void)xport;
    pthread_mutex_lock(&kvcl_loop.lock);
    keep = kvcl_loop.faults.keep_keys;
    pthread_mutex_unlock(&kvcl_loop.lock);
    return keep ? kvcl_fail(KVCL_ERR_NO_MEMORY, "the fault keep_keys of the loop") : KVCL_OK;
}

kvcl_status_t kvcl_loop_mem_pack(kvcl_xport_mem_t *super, void *buf, size_t *len_p)
{
    loop_mem_t         *mem   = kvcl_container_of(super, loop_mem_t, super);
    loop_xport_t       *x     = kvcl_container_of(super->xport, loop_xport_t, super);
    struct loop_packed packed = {LOOP_MEM_MAGIC, x->id, mem->id, 0, 0};

    if (*len_p < sizeof(packed)) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "loop: %zu bytes for a packed region, not %zu", *len_p, sizeof(packed));
    }
    packed.check = kvcl_check32(&packed, offsetof(struct loop_packed, check));
    memcpy(buf, &packed, sizeof(packed));
    *len_p = sizeof(packed);
    return KVCL_OK;
}

/* Lock held: the living region that the packed bytes name, or NULL. */
loop_mem_t *kvcl_loop_find_mem(uint64_t xport_id, uint64_t mem_id)
{
    loop_xport_t *x = kvcl_loop_find(xport_id);
    loop_mem_t   *mem;

    if (x != NULL) {
        kvcl_list_foreach(mem, &x->mems, loop_mem_t, link) {
            if (mem->id == mem_id) {
                return mem;
            }
        }
    }
    return NULL;
}

kvcl_status_t kvcl_loop_rmem_open(kvcl_xport_ep_t *super, const void *buf, size_t len, uint64_t addr, uint64_t size,
                                  kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr)
{
    loop_ep_t          *ep = kvcl_container_of(super, loop_ep_t, super);
    struct loop_packed packed;
    kvcl_loop_faults_t faults;
    loop_rmem_t        *rmem;
    loop_mem_t         *mem;
    bool               fits, device;

    if (len != sizeof(packed)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "loop: a packed region of %zu bytes, not %zu", len, sizeof(packed));
    }
    memcpy(&packed, buf, sizeof(packed));
    if ((packed.magic != LOOP_MEM_MAGIC) || (packed.xport != ep->target) ||
        (packed.check != kvcl_check32(&packed, offsetof(struct loop_packed, check)))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "loop: malformed packed region");
    }
    pthread_mutex_lock(&kvcl_loop.lock);
    mem    = kvcl_loop_find_mem(packed.xport, packed.mem);
    device = (mem != NULL) && mem->device;
    fits = (mem != NULL) && (addr >= (uintptr_t)mem->addr) && (addr - (uintptr_t)mem->addr <= mem->len) &&
           (size <= mem->len - (addr - (uintptr_t)mem->addr));
    faults = kvcl_loop.faults;
    pthread_mutex_unlock(&kvcl_loop.lock);
    if (!fits) {
        return (mem == NULL) ? kvcl_fail(KVCL_ERR_NOT_REGISTERED, "loop: the region is gone") :
                               kvcl_fail(KVCL_ERR_PROTOCOL, "loop: the range is not inside its region");
    }
    rmem = kvcl_loop_alloc(sizeof(*rmem));
    if (rmem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for a remote region");
    }
    rmem->super.ep = super;
    rmem->xport    = packed.xport;
    rmem->mem      = packed.mem;
    rmem->addr     = (char *)(uintptr_t)addr;
    rmem->size     = size;
    attr->map      = (faults.no_map || faults.no_rma) ? NULL : rmem->addr;
    attr->get      = !faults.no_rma && !device; /* by memcpy */
    attr->put      = attr->get;
    attr->native   = "loop";
    attr->why      = faults.no_rma ? "the fault no_rma of the loop"
                     : (device && (attr->map == NULL)) ? "device memory, and the fault no_map of the loop" : NULL;
    *rmem_p        = &rmem->super;
    return KVCL_OK;
}

void kvcl_loop_rmem_close(kvcl_xport_rmem_t *super)
{
    free(kvcl_container_of(super, loop_rmem_t, super));
}
