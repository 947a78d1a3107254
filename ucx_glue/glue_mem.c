/*
 * Local memory: registered with UCX's data side where there is RDMA, and described for processes of this host, which
 * read it without a registration (glue_cma.c). Memory that KVCL allocates is mapped by them (mem/segment.h) and comes
 * here for the other hosts.
 *
 * Invariant: memh != NULL exactly if peers have a path to it by RDMA or the device's.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Can a peer use a registration of host memory? */
static bool registers(const glue_t *g)
{
    return (g->data.ctx != NULL) &&
           (kvcl_glue_list_has(g->plan.data_tls, "rc") || kvcl_glue_list_has(g->plan.data_tls, "cuda_ipc"));
}

static kvcl_status_t register_range(glue_t *g, glue_mem_t *mem)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = mem->addr,
                                   .length     = mem->len};
    kvcl_status_t        status = g->plan.rdma ? kvcl_glue_lock_bytes(mem->len) : KVCL_OK;
    char                 why[KVCL_ERROR_MAX / 2];
    ucs_status_t         ucs;

    if (status != KVCL_OK) {
        snprintf(why, sizeof(why), "%s", kvcl_last_error());
        return kvcl_fail(status, "%zu bytes cannot be registered with RDMA port %s: %s", mem->len, g->plan.devices,
                         why);
    }
    ucs = ucp_mem_map(g->data.ctx, &params, &mem->memh);
    if (ucs != UCS_OK) {
        mem->memh = NULL;
        if (g->plan.rdma) {
            kvcl_glue_unlock_bytes(mem->len);
        }
        return kvcl_fail(kvcl_glue_status(ucs), "%zu bytes cannot be registered with %s%s: %s", mem->len,
                         g->plan.rdma ? "RDMA port " : "UCX", g->plan.rdma ? g->plan.devices : "",
                         ucs_status_string(ucs));
    }
    return KVCL_OK;
}

/* NULL: no memory for it, with a sentence. */
static glue_mem_t *new_mem(kvcl_xport_t *xport, void *addr, size_t len, bool device)
{
    glue_mem_t *mem = calloc(1, sizeof(*mem));

    if (mem == NULL) {
        (void)kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for a region");
        return NULL;
    }
    mem->super.xport = xport;
    mem->addr        = addr;
    mem->len         = len;
    mem->device      = device;
    return mem;
}

kvcl_status_t kvcl_glue_mem_register(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p)
{
    glue_t        *g   = glue_of(xport);
    glue_mem_t    *mem = new_mem(xport, addr, len, false);
    kvcl_status_t status;

    if (mem == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    status = registers(g) ? register_range(g, mem) : KVCL_OK;
    if (status != KVCL_OK) {
        free(mem);
        return status;
    }
    *mem_p = &mem->super;
    return KVCL_OK;
}

/* A packed key of no memory domain is its mask and the kind of memory; one of cuda_copy alone has two bytes more. */
enum { KEY_OF_NONE = 16 };

/* Has a port registered the memory? UCX also maps device memory that no port has registered. */
static bool has_key(glue_t *g, ucp_mem_h memh)
{
    size_t len   = 0;
    void   *rkey = NULL;

    if (ucp_rkey_pack(g->data.ctx, memh, &rkey, &len) != UCS_OK) {
        return false;
    }
    ucp_rkey_buffer_release(rkey);
    return len > KEY_OF_NONE;
}

/* cuda_ipc and GPUDirect RDMA reach device memory; memory that they refuse is reached by messages. */
kvcl_status_t kvcl_glue_mem_register_device(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p)
{
    glue_t               *g     = glue_of(xport);
    ucp_mem_map_params_t params = {.field_mask  = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                  UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                   .address     = addr,
                                   .length      = len,
                                   .memory_type = UCS_MEMORY_TYPE_CUDA};
    glue_mem_t           *mem;
    ucs_status_t         ucs;

    if ((g->data.ctx == NULL) || !(g->plan.gpudirect || kvcl_glue_list_has(g->plan.data_tls, "cuda_ipc"))) {
        return KVCL_ERR_UNSUPPORTED;
    }
    mem = new_mem(xport, addr, len, true);
    if (mem == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    ucs = ucp_mem_map(g->data.ctx, &params, &mem->memh);
    if ((ucs == UCS_OK) && g->plan.rdma && !has_key(g, mem->memh)) {
        (void)ucp_mem_unmap(g->data.ctx, mem->memh);
        ucs = UCS_ERR_UNSUPPORTED;
    }
    if (ucs != UCS_OK) {
        kvcl_log_info("%s: device memory of %zu bytes at %p is reached by messages: %s",
                      g->plan.rdma ? g->plan.devices : "ucx", len, addr, ucs_status_string(ucs));
        free(mem);
        return KVCL_ERR_UNSUPPORTED;
    }
    *mem_p = &mem->super;
    return KVCL_OK;
}

void kvcl_glue_mem_free(kvcl_xport_mem_t *super)
{
    glue_mem_t   *mem = kvcl_container_of(super, glue_mem_t, super);
    glue_t       *g   = glue_of(super->xport);
    ucs_status_t ucs;

    if (mem->memh != NULL) {
        ucs = ucp_mem_unmap(g->data.ctx, mem->memh);
        if (ucs != UCS_OK) {
            kvcl_log_warn("ucx: ucp_mem_unmap: %s", ucs_status_string(ucs));
        }
        kvcl_glue_keys_freed(g);
        if (g->plan.rdma && !mem->device) {
            kvcl_glue_unlock_bytes(mem->len);
        }
    }
    free(mem);
}

kvcl_status_t kvcl_glue_mem_pack(kvcl_xport_mem_t *super, void *buf, size_t *len_p)
{
    glue_mem_t    *mem     = kvcl_container_of(super, glue_mem_t, super);
    glue_t        *g       = glue_of(super->xport);
    glue_packed_t packed   = {.magic = GLUE_PACKED_MAGIC, .addr = (uintptr_t)mem->addr, .len = mem->len};
    size_t        room     = *len_p;
    size_t        rkey_len = 0;
    void          *rkey    = NULL;
    ucs_status_t  ucs      = (mem->memh != NULL) ? ucp_rkey_pack(g->data.ctx, mem->memh, &rkey, &rkey_len) : UCS_OK;

    *len_p = 0;
    if (ucs != UCS_OK) {
        return kvcl_fail(kvcl_glue_status(ucs), "ucx: ucp_rkey_pack: %s", ucs_status_string(ucs));
    }
    if (g->plan.cma && !mem->device && (kvcl_glue_cma_self(&packed.process) == KVCL_OK)) {
        packed.flags = GLUE_PACKED_CMA;
    } else if (rkey_len == 0) {
        return KVCL_OK;
    }
    if (sizeof(packed) + rkey_len > room) {
        if (rkey != NULL) {
            ucp_rkey_buffer_release(rkey);
        }
        return kvcl_fail(KVCL_ERR_NO_SPACE, "ucx: %zu bytes for a packed region, not %zu", room,
                         sizeof(packed) + rkey_len);
    }
    packed.rkey_len = (uint32_t)rkey_len;
    memcpy(buf, &packed, sizeof(packed));
    if (rkey != NULL) {
        memcpy((char *)buf + sizeof(packed), rkey, rkey_len);
        ucp_rkey_buffer_release(rkey);
    }
    *len_p       = sizeof(packed) + rkey_len;
    packed.check = kvcl_check32((char *)buf + offsetof(glue_packed_t, addr), *len_p - offsetof(glue_packed_t, addr));
    memcpy(buf, &packed, sizeof(packed));
    return KVCL_OK;
}
