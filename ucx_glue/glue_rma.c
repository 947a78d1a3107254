/*
 * Memory of a peer. Shared memory is mapped (ucp_rkey_ptr) and the caller copies: this path is a plain memcpy on UCX
 * 1.13 and 1.22, without the owner's processor. Other memory is used for get and put only where UCX does both natively;
 * all remaining memory is reached by messages.
 *
 * Trust: a packed region is bounded and checked against corruption, but ucp_ep_rkey_unpack trusts its input, and the
 * owner sets the length of a mapping. Only bytes of authenticated peers may be passed in.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct glue_rmem {
    kvcl_xport_rmem_t super;
    ucp_rkey_h        rkey;
    uint64_t          addr;
    uint64_t          size;
} glue_rmem_t;

/* The header, or NULL; pure. */
static const glue_packed_t *check_packed(const void *buf, size_t len, uint64_t addr, uint64_t size,
                                         glue_packed_t *packed)
{
    if ((len < sizeof(*packed)) || (len > GLUE_PACK_MAX)) {
        return NULL;
    }
    memcpy(packed, buf, sizeof(*packed));
    if ((packed->magic != GLUE_PACKED_MAGIC) || (packed->rkey_len != len - sizeof(*packed)) ||
        (packed->check != kvcl_check32((const char *)buf + offsetof(glue_packed_t, addr),
                                       len - offsetof(glue_packed_t, addr)))) {
        return NULL;
    }
    if ((addr < packed->addr) || (addr - packed->addr > packed->len) ||
        (size > packed->len - (addr - packed->addr))) {
        return NULL;
    }
    return packed;
}

/*
 * Does the segment still exist? UCX opens /proc/PID/fd/FD and, where that fails, releases keys that it never made
 * (1.13, ucp_rkey.c err_destroy), which may unmap other segments. So it is called only for segments that exist.
 */
static bool is_there(const glue_packed_t *packed)
{
    char        path[64];
    struct stat st;

    if ((packed->flags & GLUE_PACKED_SHARED) && (packed->inode != 0)) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)packed->pid, (int)packed->fd);
        return (stat(path, &st) == 0) && (st.st_ino == packed->inode);
    }
    return true;
}

kvcl_status_t kvcl_glue_rmem_open(kvcl_xport_ep_t *super, const void *buf, size_t len, uint64_t addr, uint64_t size,
                                  kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr)
{
    glue_ep_t     *ep = kvcl_container_of(super, glue_ep_t, super);
    glue_packed_t packed;
    glue_rmem_t   *rmem;

    attr->map = NULL;
    attr->get = false;
    attr->put = false;
    if ((len != 0) && (check_packed(buf, len, addr, size, &packed) == NULL)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "ucx: malformed packed region of %zu bytes", len);
    }
    rmem = calloc(1, sizeof(*rmem));
    if (rmem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for a remote region");
    }
    rmem->super.ep = super;
    rmem->addr     = addr;
    rmem->size     = size;
    if ((len != 0) && is_there(&packed) && (kvcl_glue_ep_data(ep) == KVCL_OK) &&
        (ucp_ep_rkey_unpack(ep->data, (const char *)buf + sizeof(packed), &rmem->rkey) == UCS_OK)) {
        if (!(packed.flags & GLUE_PACKED_SHARED) || (ucp_rkey_ptr(rmem->rkey, addr, &attr->map) != UCS_OK)) {
            attr->map = NULL;
        }
        attr->get    = ep->native_get;
        attr->put    = ep->native_put;
        attr->native = ep->native_put ? "rdma" : "cma";
    }
    ++ep->rmems;
    *rmem_p = &rmem->super;
    return KVCL_OK;
}

void kvcl_glue_rmem_close(kvcl_xport_rmem_t *super)
{
    glue_rmem_t *rmem = kvcl_container_of(super, glue_rmem_t, super);

    if (rmem->rkey != NULL) {
        ucp_rkey_destroy(rmem->rkey);
    }
    --kvcl_container_of(super->ep, glue_ep_t, super)->rmems;
    free(rmem);
}

static kvcl_status_t check_run(const glue_rmem_t *rmem, uint64_t offset, size_t len)
{
    const glue_ep_t *ep = kvcl_container_of(rmem->super.ep, glue_ep_t, super);

    if (ep->broken || ep->closed) {
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "ucx: the endpoint failed or is closed");
    }
    if (rmem->rkey == NULL) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "ucx: the region is reached by messages only");
    }
    if ((offset > rmem->size) || (len > rmem->size - offset)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "ucx: %zu bytes at %llu of a region of %llu", len,
                         (unsigned long long)offset, (unsigned long long)rmem->size);
    }
    return KVCL_OK;
}

static ucp_request_param_t rma_param(kvcl_xport_send_t *send, glue_ep_t *ep)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb           = {.send = kvcl_glue_send_done},
                                 .user_data    = send};

    send->priv = ep;
    return param;
}

kvcl_status_t kvcl_glue_get(kvcl_xport_rmem_t *super, uint64_t offset, void *buf, size_t len, kvcl_xport_send_t *send)
{
    glue_rmem_t         *rmem = kvcl_container_of(super, glue_rmem_t, super);
    glue_ep_t           *ep   = kvcl_container_of(super->ep, glue_ep_t, super);
    ucp_request_param_t param = rma_param(send, ep);
    kvcl_status_t       status = check_run(rmem, offset, len);

    return (status != KVCL_OK) ?
                   status :
                   kvcl_glue_posted(ep, ucp_get_nbx(ep->data, buf, len, rmem->addr + offset, rmem->rkey, &param),
                                    "get");
}

kvcl_status_t kvcl_glue_put(kvcl_xport_rmem_t *super, uint64_t offset, const void *buf, size_t len,
                            kvcl_xport_send_t *send)
{
    glue_rmem_t         *rmem = kvcl_container_of(super, glue_rmem_t, super);
    glue_ep_t           *ep   = kvcl_container_of(super->ep, glue_ep_t, super);
    ucp_request_param_t param = rma_param(send, ep);
    kvcl_status_t       status = check_run(rmem, offset, len);

    return (status != KVCL_OK) ?
                   status :
                   kvcl_glue_posted(ep, ucp_put_nbx(ep->data, buf, len, rmem->addr + offset, rmem->rkey, &param),
                                    "put");
}

kvcl_status_t kvcl_glue_flush(kvcl_xport_rmem_t *super, kvcl_xport_send_t *send)
{
    glue_rmem_t         *rmem = kvcl_container_of(super, glue_rmem_t, super);
    glue_ep_t           *ep   = kvcl_container_of(super->ep, glue_ep_t, super);
    ucp_request_param_t param = rma_param(send, ep);
    kvcl_status_t       status = check_run(rmem, 0, 0);

    return (status != KVCL_OK) ? status : kvcl_glue_posted(ep, ucp_ep_flush_nbx(ep->data, &param), "flush");
}
