/*
 * Memory over this transport: peers reach it through messages only, so nothing is registered or described.
 *
 * Owns: nothing. Locks: none.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/error.h"

#include <stdlib.h>

kvcl_status_t kvcl_tcp_mem_register(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p)
{
    kvcl_xport_mem_t *mem = calloc(1, sizeof(*mem));

    (void)addr;
    (void)len;
    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for a region");
    }
    mem->xport = xport;
    *mem_p     = mem;
    return KVCL_OK;
}

void kvcl_tcp_mem_free(kvcl_xport_mem_t *mem)
{
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
