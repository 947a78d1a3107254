/*
 * Memory of a peer: got from a process of this host by the kernel (glue_cma.c), or got and put by UCX over RDMA or
 * cuda_ipc, where UCX does both natively. All remaining memory is reached by messages.
 *
 * Trust: a packed region is bounded and checked against corruption. ucp_ep_rkey_unpack trusts its input, so it gets
 * bytes only of an authenticated peer, after the MAC of the description was checked (mem/rregion.c), and only where the
 * endpoint has RDMA or cuda_ipc; a peer of this host without a device cannot pass bytes to it.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/checksum.h"
#include "base/error.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

typedef struct glue_rmem {
    kvcl_xport_rmem_t super;
    kvcl_list_t       link;    /* in glue_data.rmems */
    bool              gone;    /* closed by the core: it is freed when no operation can use its key */
    ucp_rkey_h        rkey;    /* of the endpoint for data as it is open now; NULL: none yet */
    void              *packed; /* the key, to be unpacked again for the next one; NULL: not by UCX */
    bool              cma;     /* got from the process */
    glue_process_t    process;
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

static bool is_open(kvcl_status_t status)
{
    return (status == KVCL_OK) || (status == KVCL_INPROGRESS);
}

/* Is there a native path by UCX, now or once the endpoint for data is opened again? */
static bool may_have_data(glue_ep_t *ep)
{
    kvcl_status_t status = kvcl_glue_data_open(ep);

    return (is_open(status) || (status == KVCL_ERR_UNREACHABLE)) && ep->data.native;
}

/* The key for the endpoint as it is open now. KVCL_INPROGRESS: it is not connected yet. */
static kvcl_status_t unpack(glue_ep_t *ep, glue_rmem_t *rmem)
{
    kvcl_status_t status = kvcl_glue_data_open(ep);
    ucs_status_t  ucs;

    if (!is_open(status) || (rmem->rkey != NULL)) {
        return status;
    }
    ucs = ucp_ep_rkey_unpack(ep->data.ucp_ep, rmem->packed, &rmem->rkey);
    if (ucs != UCS_OK) {
        rmem->rkey = NULL;
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "ucx: a key of the peer's memory: %s", ucs_status_string(ucs));
    }
    return status;
}

void kvcl_glue_rmems_unkey(glue_ep_t *ep)
{
    glue_rmem_t *rmem;

    kvcl_list_foreach (rmem, &ep->data.rmems, glue_rmem_t, link) {
        if (rmem->rkey != NULL) {
            ucp_rkey_destroy(rmem->rkey);
            rmem->rkey = NULL;
        }
    }
}

/* The first of the two native paths that leads to the region. */
static void find_path(glue_ep_t *ep, const glue_packed_t *packed, const void *rkey, glue_rmem_t *rmem,
                      kvcl_xport_rmem_attr_t *attr)
{
    if ((packed->flags & GLUE_PACKED_CMA) && ep->near && glue_of(ep->super.xport)->plan.cma &&
        kvcl_glue_cma_reaches(&packed->process)) {
        rmem->cma     = true;
        rmem->process = packed->process;
        attr->get     = true;
        attr->native  = "cma";
        attr->why_put = "over cma memory is only read";
    } else if ((packed->rkey_len > 0) && may_have_data(ep) && ((rmem->packed = malloc(packed->rkey_len)) != NULL)) {
        kvcl_copy_bytes(rmem->packed, rkey, packed->rkey_len);
        if (!is_open(unpack(ep, rmem)) && is_open(kvcl_glue_data_open(ep))) {
            free(rmem->packed); /* the endpoint is open, and the key does not suit it */
            rmem->packed = NULL;
            attr->why    = "its key does not suit the connection for data";
            return;
        }
        attr->get    = true;
        attr->put    = true;
        attr->native = "rdma";
    } else if (packed->rkey_len > 0) {
        attr->why = "there is no connection for data now";
    } else if (!ep->near) {
        attr->why = "TCP carries messages only"; /* UCX's own */
    } else {
        attr->why = glue_of(ep->super.xport)->plan.cma ? "the kernel does not permit this process to read it"
                                                       : "UCX_TLS leaves out cma";
    }
}

kvcl_status_t kvcl_glue_rmem_open(kvcl_xport_ep_t *super, const void *buf, size_t len, uint64_t addr, uint64_t size,
                                  kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr)
{
    glue_ep_t     *ep = kvcl_container_of(super, glue_ep_t, super);
    glue_packed_t packed;
    glue_rmem_t   *rmem;

    memset(attr, 0, sizeof(*attr));
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
    if (len != 0) {
        find_path(ep, &packed, (const char *)buf + sizeof(packed), rmem, attr);
    }
    kvcl_list_add_tail(&ep->data.rmems, &rmem->link);
    *rmem_p = &rmem->super;
    return KVCL_OK;
}

static void free_rmem(glue_rmem_t *rmem)
{
    if (rmem->rkey != NULL) {
        ucp_rkey_destroy(rmem->rkey);
    }
    kvcl_list_del(&rmem->link);
    free(rmem->packed);
    free(rmem);
}

void kvcl_glue_rmems_drop(glue_ep_t *ep)
{
    glue_rmem_t *rmem, *next;

    kvcl_list_foreach_safe (rmem, next, &ep->data.rmems, glue_rmem_t, link) {
        if (rmem->gone) {
            free_rmem(rmem);
        }
    }
}

bool kvcl_glue_rmems_open(const glue_ep_t *ep)
{
    const glue_rmem_t *rmem;

    kvcl_list_foreach (rmem, &ep->data.rmems, glue_rmem_t, link) {
        if (!rmem->gone) {
            return true;
        }
    }
    return false;
}

/* UCX reads the key of an operation that it has queued until the operation is sent or its endpoint is closed. */
void kvcl_glue_rmem_close(kvcl_xport_rmem_t *super)
{
    glue_rmem_t *rmem = kvcl_container_of(super, glue_rmem_t, super);
    glue_ep_t   *ep   = kvcl_container_of(super->ep, glue_ep_t, super);

    kvcl_glue_wait_end(ep, super, KVCL_ERR_CANCELED);
    if ((rmem->rkey == NULL) || (ep->data.inflight == 0)) {
        free_rmem(rmem);
    } else {
        rmem->gone = true;
    }
    if (ep->data.inflight == 0) {
        kvcl_glue_rmems_drop(ep);
    }
}

static kvcl_status_t check_run(glue_rmem_t *rmem, uint64_t offset, size_t len, bool get)
{
    glue_ep_t *ep = kvcl_container_of(rmem->super.ep, glue_ep_t, super);

    if (ep->broken || ep->closed) {
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "ucx: the endpoint failed or is closed");
    }
    if ((rmem->packed == NULL) && !(get && rmem->cma)) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "ucx: the region is reached by messages only");
    }
    if ((offset > rmem->size) || (len > rmem->size - offset)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "ucx: %zu bytes at %llu of a region of %llu", len,
                         (unsigned long long)offset, (unsigned long long)rmem->size);
    }
    return rmem->cma ? KVCL_OK : unpack(ep, rmem);
}

static kvcl_status_t post(const glue_op_t *op, glue_rmem_t *rmem)
{
    glue_ep_t           *ep   = kvcl_container_of(rmem->super.ep, glue_ep_t, super);
    uint64_t            addr  = rmem->addr + op->offset;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb           = {.send = kvcl_glue_data_done},
                                 .user_data    = op->send};

    op->send->priv  = ep;
    op->send->phase = glue_of(ep->super.xport)->keys.phase;
    switch (op->kind) {
    case GLUE_GET:
        return kvcl_glue_data_posted(ep, ucp_get_nbx(ep->data.ucp_ep, op->buf, op->len, addr, rmem->rkey, &param),
                                     "get");
    case GLUE_PUT:
        return kvcl_glue_data_posted(ep, ucp_put_nbx(ep->data.ucp_ep, op->buf, op->len, addr, rmem->rkey, &param),
                                     "put");
    default:
        return kvcl_glue_data_posted(ep, ucp_ep_flush_nbx(ep->data.ucp_ep, &param), "flush");
    }
}

kvcl_status_t kvcl_glue_rma(const glue_op_t *op)
{
    glue_rmem_t   *rmem  = kvcl_container_of(op->rmem, glue_rmem_t, super);
    kvcl_status_t status = check_run(rmem, op->offset, op->len, op->kind == GLUE_GET);

    if (status != KVCL_OK) {
        return (status == KVCL_INPROGRESS) ? kvcl_glue_wait(kvcl_container_of(rmem->super.ep, glue_ep_t, super), op)
                                           : status;
    }
    if (rmem->cma) {
        return kvcl_glue_cma_get(&(glue_read_t){.ep      = kvcl_container_of(rmem->super.ep, glue_ep_t, super),
                                                .process = &rmem->process,
                                                .from    = rmem->addr + op->offset,
                                                .to      = op->buf,
                                                .len     = op->len,
                                                .send    = op->send});
    }
    return post(op, rmem);
}

kvcl_status_t kvcl_glue_get(kvcl_xport_rmem_t *rmem, uint64_t offset, void *buf, size_t len, kvcl_xport_send_t *send)
{
    return kvcl_glue_rma(&(glue_op_t){GLUE_GET, rmem, offset, buf, len, send});
}

kvcl_status_t kvcl_glue_put(kvcl_xport_rmem_t *rmem, uint64_t offset, const void *buf, size_t len,
                            kvcl_xport_send_t *send)
{
    return kvcl_glue_rma(&(glue_op_t){GLUE_PUT, rmem, offset, (void *)(uintptr_t)buf, len, send});
}

kvcl_status_t kvcl_glue_flush(kvcl_xport_rmem_t *rmem, kvcl_xport_send_t *send)
{
    return kvcl_glue_rma(&(glue_op_t){GLUE_FLUSH, rmem, 0, NULL, 0, send});
}
