/*
 * The UCP endpoint for data of a peer, beside the one for messages.
 *
 * It fails where an access meets memory that its owner has unregistered, and it is closed to fence operations that must
 * not move bytes any more (rma_end). Neither is a failure of the peer. Life: closed -> opening (UCX exchanges messages
 * with the peer) -> open -> ending (in glue.ending: its operations complete, the forced close is waited for, from
 * progress only) -> closed -> opened again by the next use, after a wait of up to 1 s where it failed again and again.
 * The keys of regions belong to one opening: they are released before the close, and unpacked again (glue_rma.c).
 *
 * Invariant: an endpoint that is opening is closed only where UCX has reported its failure, or the worker goes too.
 * Otherwise the peer's endpoint would belong to one that is gone: it would never be connected, or UCX 1.13 would end
 * the peer's process (an assertion in ucp_ep_update_remote_id). So nothing is posted on an endpoint that is opening
 * (glue_wait.c), and rma_end has nothing to close. If its peer is closed meanwhile, the endpoint stays in glue.aside,
 * and none is opened to the same worker until it is gone. Locks: as in glue.h.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define BACK_OFF_MIN (50 * KVCL_NS_PER_MS)
#define BACK_OFF_MAX (1 * KVCL_NS_PER_SEC)

/* The endpoint for data is to be closed; progress does it. */
static void end(glue_ep_t *ep)
{
    if (!ep->closed && kvcl_list_is_empty(&ep->data.link)) {
        kvcl_list_add_tail(&glue_of(ep->super.xport)->ending, &ep->data.link);
    }
}

/* UCX's error handler. */
static void on_failure(void *arg, ucp_ep_h ucp_ep, ucs_status_t status)
{
    glue_ep_t *ep = arg;

    (void)ucp_ep;
    kvcl_log_debug("ucx: a connection for data failed: %s", ucs_status_string(status));
    ep->data.failed = true;
    end(ep);
}

/* The first operation of an endpoint is a flush, which UCX completes when the endpoint is connected. */
static void on_opened(void *request, ucs_status_t status, void *user_data)
{
    glue_ep_t *ep = user_data; /* it is not freed before this */

    ucp_request_free(request);
    ep->data.opening = false;
    if (status != UCS_OK) {
        ep->data.failed = true;
        end(ep);
    }
}

static void await_connection(glue_ep_t *ep)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb           = {.send = on_opened},
                                 .user_data    = ep};
    ucs_status_ptr_t    ptr   = ucp_ep_flush_nbx(ep->data.ucp_ep, &param);

    ep->data.opening = UCS_PTR_IS_PTR(ptr);
    if (UCS_PTR_IS_ERR(ptr)) {
        on_failure(ep, ep->data.ucp_ep, UCS_PTR_STATUS(ptr));
    }
    kvcl_glue_wait_begin(ep);
}

/* An earlier endpoint to the same worker, of a link that was lost, that is still to be connected and closed. */
static const glue_ep_t *find_aside(const glue_ep_t *ep)
{
    const glue_ep_t *other;

    kvcl_list_foreach (other, &glue_of(ep->super.xport)->aside, glue_ep_t, stage_link) {
        if ((other->data.addr_len == ep->data.addr_len) &&
            (memcmp(other->data.addr, ep->data.addr, ep->data.addr_len) == 0)) {
            return other;
        }
    }
    return NULL;
}

static kvcl_status_t open_now(glue_ep_t *ep)
{
    glue_data_t     *data  = &ep->data;
    const glue_ep_t *aside = find_aside(ep);
    char            list[128];
    ucs_status_t    ucs;

    if (aside != NULL) {
        data->native = aside->data.native;
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "ucx: an earlier connection for data is not closed yet");
    }
    ucs = kvcl_glue_ucp_ep_open(glue_of(ep->super.xport)->data.worker, data->addr, ep, on_failure, &data->ucp_ep);
    if (ucs != UCS_OK) {
        data->ucp_ep = NULL;
        free(data->addr);
        data->addr = NULL;
        kvcl_log_info("ucx: no native path to a peer: %s", ucs_status_string(ucs));
        return KVCL_ERR_UNSUPPORTED;
    }
    data->failed = false;
    kvcl_glue_ep_transports(data->ucp_ep, list, sizeof(list));
    data->native = kvcl_glue_list_has(list, "rc") || kvcl_glue_list_has(list, "cuda_ipc");
    await_connection(ep);
    return data->failed ? kvcl_fail(KVCL_ERR_UNREACHABLE, "ucx: the connection for data failed") :
           data->opening ? KVCL_INPROGRESS : KVCL_OK;
}

kvcl_status_t kvcl_glue_data_open(glue_ep_t *ep)
{
    const glue_data_t *data = &ep->data;

    if ((data->addr == NULL) || ep->broken || ep->closed) {
        return KVCL_ERR_UNSUPPORTED;
    }
    if (!kvcl_list_is_empty(&data->link) || (data->close_req != NULL)) {
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "ucx: the connection for data is being closed");
    }
    if (data->ucp_ep != NULL) {
        return data->opening ? KVCL_INPROGRESS : KVCL_OK;
    }
    if (!kvcl_deadline_passed(data->retry_ns)) {
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "ucx: the connection for data failed; it is opened again later");
    }
    return open_now(ep);
}

void kvcl_glue_data_end(kvcl_xport_ep_t *super)
{
    glue_ep_t *ep = kvcl_container_of(super, glue_ep_t, super);

    kvcl_glue_wait_end(ep, NULL, KVCL_ERR_CANCELED);
    if ((ep->data.ucp_ep != NULL) && (ep->data.inflight != 0)) { /* then it is connected */
        end(ep);
    }
}

kvcl_status_t kvcl_glue_data_posted(glue_ep_t *ep, ucs_status_ptr_t ptr, const char *what)
{
    kvcl_status_t status = kvcl_glue_posted(ep, ptr, what);

    if (status == KVCL_INPROGRESS) {
        glue_keys_t *keys = &glue_of(ep->super.xport)->keys;
        ++ep->data.inflight;
        ++keys->moving[keys->phase];
    }
    return status;
}

void kvcl_glue_data_done(void *request, ucs_status_t status, void *user_data)
{
    kvcl_xport_send_t *send = user_data;
    glue_ep_t         *ep   = send->priv;
    glue_data_t       *data = &ep->data;

    --data->inflight;
    --glue_of(ep->super.xport)->keys.moving[send->phase];
    if (status == UCS_OK) {
        data->back_off_ns = 0;
    }
    kvcl_glue_send_done(request, status, user_data);
}

/* Doubled with each failure that no completed operation precedes. The first one opens again at once. */
static void back_off(glue_data_t *data)
{
    data->retry_ns = kvcl_deadline_after(data->back_off_ns);
    if (data->failed) {
        data->back_off_ns = (data->back_off_ns == 0)               ? BACK_OFF_MIN
                            : (data->back_off_ns < BACK_OFF_MAX / 2) ? 2 * data->back_off_ns : BACK_OFF_MAX;
    }
}

bool kvcl_glue_data_must_stay(const glue_ep_t *ep)
{
    return ep->data.opening && !ep->data.failed && !glue_of(ep->super.xport)->leaving;
}

/* An endpoint aside is flushed once more when it is connected: the peer still waits for UCX's last message. */
static void end_aside(glue_t *g)
{
    glue_ep_t *ep, *next;

    kvcl_list_foreach_safe (ep, next, &g->aside, glue_ep_t, stage_link) {
        if (!ep->data.opening && !ep->data.failed && !ep->data.flushed) {
            ep->data.flushed = true;
            await_connection(ep);
        }
        if (!kvcl_glue_data_must_stay(ep)) {
            kvcl_list_del(&ep->stage_link);
            kvcl_list_add_tail(&g->closing, &ep->stage_link);
        }
    }
}

unsigned kvcl_glue_data_progress(glue_t *g)
{
    unsigned  n = 0;
    glue_ep_t *ep, *next;

    if (g->keys.due) {
        kvcl_glue_keys_progress(g);
    }
    if (!kvcl_list_is_empty(&g->waiting) || (g->wait_timer.due_ns != 0)) {
        n += kvcl_glue_wait_progress(g);
    }
    end_aside(g);
    kvcl_list_foreach_safe (ep, next, &g->ending, glue_ep_t, data.link) {
        if (ep->data.ucp_ep != NULL) {
            kvcl_glue_rmems_unkey(ep);
        }
        if (kvcl_glue_ucp_ep_close(&ep->data.ucp_ep, &ep->data.close_req) && (ep->data.inflight == 0) &&
            !ep->data.opening) {
            kvcl_list_del(&ep->data.link);
            back_off(&ep->data);
            ++n;
        }
    }
    return n;
}

/* The endpoint outlives ep_close while regions are open, so that a mapping stays while it is copied from. */
bool kvcl_glue_data_close(glue_ep_t *ep)
{
    kvcl_list_del(&ep->data.link);
    if (!kvcl_glue_rmems_open(ep)) {
        kvcl_glue_rmems_drop(ep); /* the forced close follows at once: queued operations end without their keys */
    }
    return kvcl_list_is_empty(&ep->data.rmems) && !kvcl_glue_data_must_stay(ep) &&
           kvcl_glue_ucp_ep_close(&ep->data.ucp_ep, &ep->data.close_req) && !ep->data.opening;
}
