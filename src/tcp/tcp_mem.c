/*
 * Memory where this transport is the only one: allocated plainly, reached by peers through messages only.
 *
 * Owns: what it allocates. Locks: none.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct tcp_mem {
    kvcl_xport_mem_t super;
    void             *addr;
    size_t           mapped; /* bytes to munmap, 0: the caller's memory */
} tcp_mem_t;

static kvcl_status_t add(kvcl_xport_t *xport, void *addr, size_t mapped, kvcl_xport_mem_t **mem_p)
{
    tcp_mem_t *mem = calloc(1, sizeof(*mem));

    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for a region");
    }
    mem->super.xport = xport;
    mem->addr        = addr;
    mem->mapped      = mapped;
    *mem_p           = &mem->super;
    return KVCL_OK;
}

kvcl_status_t kvcl_tcp_mem_alloc(kvcl_xport_t *xport, size_t len, bool huge, void **addr_p, kvcl_xport_mem_t **mem_p)
{
    size_t        page   = (size_t)sysconf(_SC_PAGESIZE);
    size_t        mapped = (len + page - 1) & ~(page - 1);
    kvcl_status_t status;
    void          *addr;

    if ((len == 0) || (mapped < len)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "tcp: cannot allocate %zu bytes", len);
    }
    addr = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (addr == MAP_FAILED) {
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, errno, "tcp: no memory for a region of %zu bytes", len);
    }
    if (huge) {
        (void)madvise(addr, mapped, MADV_HUGEPAGE);
    }
    status = add(xport, addr, mapped, mem_p);
    if (status != KVCL_OK) {
        munmap(addr, mapped);
        return status;
    }
    *addr_p = addr;
    return KVCL_OK;
}

kvcl_status_t kvcl_tcp_mem_register(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p)
{
    (void)len;
    return add(xport, addr, 0, mem_p);
}

void kvcl_tcp_mem_free(kvcl_xport_mem_t *super)
{
    tcp_mem_t *mem = kvcl_container_of(super, tcp_mem_t, super);

    if (mem->mapped > 0) {
        munmap(mem->addr, mem->mapped);
    }
    free(mem);
}

kvcl_status_t kvcl_tcp_mem_pack(kvcl_xport_mem_t *mem, void *buf, size_t *len_p)
{
    (void)mem;
    (void)buf;
    *len_p = 0;
    return KVCL_OK;
}

kvcl_status_t kvcl_tcp_rmem_open(kvcl_xport_ep_t *ep, const void *packed, size_t len, uint64_t addr, uint64_t size,
                                 kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr)
{
    kvcl_xport_rmem_t *rmem;

    (void)packed;
    (void)addr;
    (void)size;
    if (len != 0) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "tcp: a packed region of %zu bytes: none has any", len);
    }
    rmem = calloc(1, sizeof(*rmem));
    if (rmem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for a remote region");
    }
    rmem->ep = ep;
    *attr    = (kvcl_xport_rmem_attr_t){.map = NULL};
    *rmem_p  = rmem;
    return KVCL_OK;
}

void kvcl_tcp_rmem_close(kvcl_xport_rmem_t *rmem)
{
    free(rmem);
}
