/*
 * Addresses and endpoints: a UCP endpoint for messages, created at once, and one for data (glue_data.c), opened when
 * the first remote region is. The one for messages alone decides that the peer has failed.
 *
 * An address is a little-endian header and both workers' addresses:
 *   u32 magic, u32 check (of all that follows), u16 am length, u16 data length, am bytes, data bytes
 * The check word detects corrupt and truncated addresses before UCX, whose parser trusts its input and may abort. It
 * does not detect forgery: addresses come from authenticated ranks only (boot, or a handshake).
 *
 * Life: open -> (broken: UCX reported a failure; reported once, from progress) -> closed -> freed by progress, when the
 * forced closes are done, no operation is in flight and no remote region is open. UCP closes are issued from progress
 * as well, never inside a UCX callback. The data endpoint outlives ep_close while regions are open, so that a mapping
 * stays while it is copied from, and while it is not connected yet (in glue.aside, which keeps nobody awake).
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wirebuf.h"
#include "weave/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDR_MAGIC UINT32_C(0x4b56434c)

enum {
    ADDR_CHECKED = 8,      /* offset of the first byte under the check word */
    ADDR_HEADER  = 12,
    FRAME_TCP    = GLUE_FRAME_MAX, /* with headers at most one 256 KiB segment: two cost a third of the speed */
    FRAME_SHM    = 64 << 10,  /* UCX copies it in pieces of 8 KiB; 64 to 512 KiB are equal, 1 MiB is slower on 1.13 */
    LINGER       = 20      /* progress calls until UCX has freed a closed endpoint (measured: flat over 1,000 cycles) */
};

kvcl_status_t kvcl_glue_make_address(glue_t *g)
{
    size_t    len = ADDR_HEADER + g->am.addr_len + g->data.addr_len;
    kvcl_wr_t wr;
    uint8_t   *buf;

    if (len > GLUE_ADDR_MAX) {
        return kvcl_fail(KVCL_ERR_INTERNAL, "ucx: an address of %zu bytes; name fewer interfaces", len);
    }
    buf = malloc(len);
    if (buf == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for an address");
    }
    kvcl_wr_init(&wr, buf, len);
    kvcl_wr_u32(&wr, ADDR_MAGIC);
    kvcl_wr_u32(&wr, 0);
    kvcl_wr_u16(&wr, (uint16_t)g->am.addr_len);
    kvcl_wr_u16(&wr, (uint16_t)g->data.addr_len);
    kvcl_wr_bytes(&wr, g->am.addr, g->am.addr_len);
    kvcl_wr_bytes(&wr, g->data.addr, g->data.addr_len);
    kvcl_wr_init(&wr, buf + 4, 4);
    kvcl_wr_u32(&wr, kvcl_check32(buf + ADDR_CHECKED, len - ADDR_CHECKED));
    g->addr     = buf;
    g->addr_len = len;
    return KVCL_OK;
}

/* Pure. The two parts point into buf. */
static bool parse_address(const void *buf, size_t len, kvcl_iov_t *am, kvcl_iov_t *data)
{
    kvcl_rd_t rd;
    uint32_t  magic, check;

    kvcl_rd_init(&rd, buf, len);
    magic     = kvcl_rd_u32(&rd);
    check     = kvcl_rd_u32(&rd);
    am->len   = kvcl_rd_u16(&rd);
    data->len = kvcl_rd_u16(&rd);
    am->buf   = kvcl_rd_bytes(&rd, am->len);
    data->buf = kvcl_rd_bytes(&rd, data->len);
    return kvcl_rd_done(&rd) && (magic == ADDR_MAGIC) && (am->len > 0) && (len <= GLUE_ADDR_MAX) &&
           (check == kvcl_check32((const uint8_t *)buf + ADDR_CHECKED, len - ADDR_CHECKED));
}

/* UCX's error handler. */
static void on_failure(void *arg, ucp_ep_h ucp_ep, ucs_status_t status)
{
    (void)ucp_ep;
    kvcl_log_debug("ucx: an endpoint failed: %s", ucs_status_string(status));
    glue_break_ep(arg);
}

ucs_status_t kvcl_glue_ucp_ep_open(ucp_worker_h worker, const void *addr, glue_ep_t *ep, ucp_err_handler_cb_t failed,
                                   ucp_ep_h *ucp_ep_p)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = addr,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = failed, .arg = ep},
    };

    return ucp_ep_create(worker, &params, ucp_ep_p);
}

/* Set the endpoint's properties by its transports. The data side is tried only where it can succeed: otherwise UCX logs
 * an error. */
static kvcl_status_t look_at_path(glue_ep_t *ep, const kvcl_iov_t *data)
{
    char list[128];

    kvcl_glue_ep_transports(ep->am, list, sizeof(list));
    snprintf(ep->transport, sizeof(ep->transport), "%.*s", (int)strcspn(list, ","), list);
    ep->is_tcp            = (strncmp(list, "tcp", 3) == 0);
    ep->super.frame_bytes = ep->is_tcp ? FRAME_TCP : FRAME_SHM;
    ep->super.sockets     = ep->is_tcp;
    ep->near              = kvcl_glue_list_has(list, "posix") || kvcl_glue_list_has(list, "self");
    if ((data->len > 0) && (glue_of(ep->super.xport)->data.ctx != NULL) &&
        (ep->near || glue_of(ep->super.xport)->plan.rdma)) {
        ep->data.addr = malloc(data->len);
        if (ep->data.addr == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for an endpoint");
        }
        kvcl_copy_bytes(ep->data.addr, data->buf, data->len);
        ep->data.addr_len = data->len;
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_glue_ep_create(kvcl_xport_t *xport, const void *addr, size_t len, kvcl_xport_ep_t **ep_p)
{
    glue_t        *g = glue_of(xport);
    kvcl_iov_t    am, data;
    ucs_status_t  ucs;
    kvcl_status_t status;
    glue_ep_t     *ep;

    if (!parse_address(addr, len, &am, &data)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "ucx: malformed address of %zu bytes", len);
    }
    ep = calloc(1, sizeof(*ep));
    if (ep == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for an endpoint");
    }
    ep->super.xport = xport;
    kvcl_list_init(&ep->stage_link);
    kvcl_list_init(&ep->data.link);
    kvcl_list_init(&ep->data.rmems);
    kvcl_list_init(&ep->data.waiting);
    kvcl_list_init(&ep->data.wait_link);
    ucs = kvcl_glue_ucp_ep_open(g->am.worker, am.buf, ep, on_failure, &ep->am);
    if (ucs != UCS_OK) {
        free(ep);
        return kvcl_fail(kvcl_glue_status(ucs), "%s: no endpoint: %s (local transports: %s on %s)", xport->ops->name,
                         ucs_status_string(ucs), g->plan.am_tls, g->plan.devices);
    }
    kvcl_list_add_tail(&g->eps, &ep->link);
    status = look_at_path(ep, &data);
    if (status != KVCL_OK) {
        kvcl_glue_ep_close(&ep->super);
        return status;
    }
    ep->end = ep->near ? kvcl_ends_watch(g->ends, am.buf, am.len, ep) : 0;
    kvcl_glue_probe_begin(g);
    *ep_p = &ep->super;
    return KVCL_OK;
}

void kvcl_glue_ep_close(kvcl_xport_ep_t *super)
{
    glue_ep_t *ep = kvcl_container_of(super, glue_ep_t, super);

    ep->closed = true;
    kvcl_ends_forget(glue_of(super->xport)->ends, ep->end);
    ep->end = 0;
    kvcl_list_del(&ep->stage_link);
    kvcl_list_add_tail(&glue_of(super->xport)->closing, &ep->stage_link);
}

void kvcl_glue_ep_describe(kvcl_xport_ep_t *super, char *buf, size_t cap)
{
    glue_ep_t    *ep        = kvcl_container_of(super, glue_ep_t, super);
    const glue_t *g         = glue_of(super->xport);
    bool         has_device = ep->is_tcp || g->plan.rdma;

    snprintf(buf, cap, "%s%s%s%s", ep->transport, has_device ? "/" : "", has_device ? g->plan.devices : "",
             ep->is_tcp ? " ucx" : "");
}

bool kvcl_glue_ucp_ep_close(ucp_ep_h *ucp_ep, void **req)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    if (*ucp_ep != NULL) {
        *req    = ucp_ep_close_nbx(*ucp_ep, &param);
        *ucp_ep = NULL;
        if (UCS_PTR_IS_ERR(*req)) {
            kvcl_log_debug("ucx: closing an endpoint: %s", ucs_status_string(UCS_PTR_STATUS(*req)));
            *req = NULL;
        }
    }
    if ((*req != NULL) && (ucp_request_check_status(*req) != UCS_INPROGRESS)) {
        ucp_request_free(*req);
        *req = NULL;
    }
    return *req == NULL;
}

static unsigned reap(glue_t *g)
{
    unsigned  n = 0;
    bool      am_gone, gone;
    glue_ep_t *ep, *tmp;

    kvcl_list_foreach_safe(ep, tmp, &g->closing, glue_ep_t, stage_link) {
        g->linger = LINGER;
        am_gone   = kvcl_glue_ucp_ep_close(&ep->am, &ep->close_req);
        gone      = kvcl_glue_data_close(ep) && am_gone;
        if (am_gone && (ep->inflight == 0) && kvcl_list_is_empty(&ep->data.rmems) && kvcl_glue_data_must_stay(ep)) {
            kvcl_list_del(&ep->stage_link);
            kvcl_list_add_tail(&g->aside, &ep->stage_link);
        } else if (gone && (ep->inflight == 0)) {
            kvcl_list_del(&ep->stage_link);
            kvcl_list_del(&ep->link);
            kvcl_glue_look_end(ep);
            free(ep->data.addr);
            free(ep);
            ++n;
        }
    }
    return n;
}

unsigned kvcl_glue_ep_progress(glue_t *g, bool failures)
{
    unsigned    n = 0;
    kvcl_list_t *link;

    while (failures && ((link = kvcl_list_pop(&g->failed)) != NULL)) {
        g->cbs.ep_failed(g->cbs.arg, &kvcl_container_of(link, glue_ep_t, stage_link)->super, KVCL_ERR_RANK_FAILED);
        ++n;
    }
    n += kvcl_glue_data_progress(g);
    if (!kvcl_list_is_empty(&g->closing)) {
        n += reap(g);
    } else if (g->linger > 0) {
        --g->linger;
    }
    return n;
}
