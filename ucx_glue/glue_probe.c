/*
 * Probes of rdma's endpoints: an empty message to each, every KVCL_KEEPALIVE. The NIC of a live host acknowledges it,
 * whether or not the process runs; that of a dead process or host does not, and UCX then reports the failure of the
 * endpoint. UCX's own keepalive cannot be used (glue_plan.c).
 *
 * Owns: a timer (glue_timer.c). Invariants: the timer runs only while there are endpoints; an endpoint has at most one
 * probe that UCX has not sent. Locks: the engine lock.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/clock.h"

kvcl_status_t kvcl_glue_probe_open(glue_t *g)
{
    return (g->plan.keepalive_ns == 0) ? KVCL_OK : kvcl_glue_timer_open(g, &g->probe_timer);
}

void kvcl_glue_probe_begin(glue_t *g)
{
    if ((g->probe_timer.fd >= 0) && (g->probe_timer.due_ns == 0)) {
        kvcl_glue_timer_set(&g->probe_timer, kvcl_deadline_after(g->plan.keepalive_ns));
    }
}

/* user_data outlives the request: an endpoint is not freed while it has operations in flight. */
static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    glue_ep_t *ep = user_data;

    (void)status; /* UCX reports a failure to the endpoint's handler */
    ucp_request_free(request);
    ep->probing = false;
    --ep->inflight;
}

static void probe(glue_ep_t *ep)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags        = UCP_AM_SEND_FLAG_EAGER,
        .cb           = {.send = on_sent},
        .user_data    = ep,
    };

    if (UCS_PTR_IS_PTR(ucp_am_send_nbx(ep->am, GLUE_PROBE_ID, NULL, 0, NULL, 0, &param))) {
        ep->probing = true;
        ++ep->inflight;
    }
}

void kvcl_glue_probe(glue_t *g)
{
    glue_ep_t *ep;

    if (kvcl_now_ns() < g->probe_timer.due_ns) {
        return;
    }
    kvcl_list_foreach(ep, &g->eps, glue_ep_t, link) {
        if (!ep->closed && !ep->broken && !ep->probing) {
            probe(ep);
        }
    }
    kvcl_glue_timer_set(&g->probe_timer,
                        kvcl_list_is_empty(&g->eps) ? 0 : kvcl_deadline_after(g->plan.keepalive_ns));
}
