/*
 * The transports of a context: which are opened, with which settings, and when they get the job's secret.
 *
 * Owns: engine.xports while the context is opened. Invariants: their order is that in which a peer is reached: loop,
 * ucx, rdma (one for each port), tcp. With KVCL's own TCP connections (KVCL_WIRE), ucx is given no interface, so it
 * never listens. Locks: none is held.
 */
#include "config.h"
#include "core/context.h"
#include "base/error.h"
#include "base/log.h"
#include "topo/gpudirect.h"

#include <stdio.h>
#include <string.h>

static kvcl_status_t add_xport(kvcl_context_h ctx, const kvcl_xport_ops_t *ops, unsigned part,
                               const kvcl_xport_params_t *params)
{
    kvcl_engine_t *eng   = &ctx->engine;
    kvcl_status_t status = ops->init(params, &eng->xports[eng->n_xports]);

    if (status == KVCL_OK) {
        eng->xports[eng->n_xports++]->part = part;
    }
    return status;
}

/* About a port that the kernel has and UCX could not open: ": " and the sentence; "" if there is nothing to say. */
static const char *what_to_do(kvcl_status_t status)
{
    switch (status) {
    case KVCL_ERR_NO_MEMORY:
        return ": " KVCL_RAISE_MEMLOCK;
    case KVCL_ERR_UNREACHABLE:
        return ": check that this process may open /dev/infiniband (in a container --device /dev/infiniband), that "
               "ibv_devices lists the device (otherwise its driver's library is missing: ibverbs-providers), and that "
               "this UCX has RDMA (ucx_info -d lists the port)";
    default:
        return "";
    }
}

/* A port that is named must work, unless memory cannot be locked here and TCP is the other path. A port that comes with
 * its interface may be left out. */
static kvcl_status_t leave_out(const kvcl_context_h ctx, const kvcl_net_port_t *port, kvcl_status_t status)
{
    char why[KVCL_ERROR_MAX / 2];

    snprintf(why, sizeof(why), "%s%s", kvcl_last_error(), what_to_do(status));
    if ((port->by_name && ((status != KVCL_ERR_NO_MEMORY) || (ctx->net.interfaces[0] == '\0'))) ||
        (ctx->config.path == KVCL_PATH_RDMA)) {
        return kvcl_fail(status, "KVCL_NET: RDMA port %s cannot be used: %s", port->name, why);
    }
    kvcl_log_at((status == KVCL_ERR_UNSUPPORTED) ? KVCL_LOG_INFO : KVCL_LOG_WARN,
                "RDMA port %s%s%s is not used: %s", port->name, (port->ndev[0] != '\0') ? " of interface " : "",
                port->ndev, why);
    return KVCL_OK;
}

static kvcl_status_t add_ports(kvcl_context_h ctx, kvcl_xport_params_t *params)
{
    const kvcl_net_t *net   = &ctx->net;
    char             version[32], why[256];
    kvcl_status_t    status = KVCL_OK;
    unsigned         n      = 0;
    size_t           i;

    kvcl_ucx_version(version, sizeof(version));
    params->gpudirect = kvcl_gpudirect("", version, why, sizeof(why));
    for (i = 0; (i < net->n_ports) && (n < KVCL_RDMA_PORTS) && (status == KVCL_OK); ++i) {
        params->port = net->ports[i].name;
        params->gid  = net->ports[i].gid;
        status       = add_xport(ctx, &kvcl_xport_rdma, KVCL_ADDRESS_RDMA + n, params);
        if (status == KVCL_OK) {
            kvcl_log_info("RDMA port %s is used, GID %d%s%s", params->port, params->gid,
                          (net->ports[i].ndev[0] != '\0') ? " of " : "", net->ports[i].ndev);
            ++n;
        } else {
            status = leave_out(ctx, &net->ports[i], status);
        }
    }
    if ((status == KVCL_OK) && (i < net->n_ports)) {
        kvcl_log_info("RDMA port %s and later ones of KVCL_NET are not used: a context uses %d", net->ports[i].name,
                      KVCL_RDMA_PORTS);
    }
    if ((status == KVCL_OK) && (n == 0) && (ctx->config.path == KVCL_PATH_RDMA)) {
        return kvcl_net_no_port(ctx->config.net, "/sys");
    }
    return status;
}

/* From a transport's progress. */
static void on_stranger(void *arg)
{
    kvcl_context_h ctx = arg;

    kvcl_assert_locked(ctx);
    ++ctx->stats.strangers;
}

static void on_stream(void *arg, kvcl_xport_ep_t *ep, kvcl_xport_stream_t *stream)
{
    kvcl_context_h ctx = arg;

    kvcl_assert_locked(ctx);
    if ((ctx->streams == NULL) || (ep->arg == NULL) || ctx->closing) {
        stream->xport->ops->stream_close(stream);
        return;
    }
    ctx->streams->opened(ep, stream);
}

static void on_stream_event(void *arg, kvcl_xport_stream_t *stream)
{
    kvcl_context_h ctx = arg;

    kvcl_assert_locked(ctx);
    if ((ctx->streams != NULL) && (stream->arg != NULL)) {
        ctx->streams->event(stream);
    }
}

/* Where KVCL_PATH lets no transport listen, KVCL_NET is not read. */
static kvcl_status_t read_net(kvcl_context_h ctx)
{
    const kvcl_config_t *config = &ctx->config;
    kvcl_status_t       status;

    if ((config->path == KVCL_PATH_SHM) || (config->path == KVCL_PATH_LOOP)) {
        return KVCL_OK;
    }
    status = kvcl_net_parse(config->net, "/sys", &ctx->net);
    return (status == KVCL_OK) ? kvcl_net_check_interfaces(&ctx->net, "/sys") : status;
}

kvcl_status_t kvcl_xports_open(kvcl_context_h ctx)
{
    const kvcl_config_t *config = &ctx->config;
    kvcl_xport_params_t params  = {
        .cbs          = {ctx, kvcl_am_recv, kvcl_peer_ep_failed, on_stranger, on_stream,
                         on_stream_event},
        .path         = kvcl_path_name(config->path),
        .wire         = kvcl_wire_name(config->wire),
        .keepalive_ns = config->keepalive_ns,
    };
    bool                own     = (config->wire != KVCL_WIRE_UCX);
    kvcl_status_t       status  = read_net(ctx);
    const char          *net    = (ctx->net.interfaces[0] != '\0') ? ctx->net.interfaces : NULL;

    if ((status == KVCL_OK) && ((config->path == KVCL_PATH_AUTO) || (config->path == KVCL_PATH_LOOP))) {
        status = add_xport(ctx, &kvcl_xport_loop, KVCL_ADDRESS_LOOP, &params);
    }
    params.net        = own ? NULL : net;
    params.beside_tcp = (own && (net != NULL)) || (ctx->net.n_ports > 0);
    if ((status == KVCL_OK) && (config->path != KVCL_PATH_LOOP) && (config->path != KVCL_PATH_RDMA) &&
        !(own && (config->path == KVCL_PATH_TCP))) {
        status = add_xport(ctx, &kvcl_xport_ucx, KVCL_ADDRESS_UCX, &params);
    }
    if ((status == KVCL_OK) && ((config->path == KVCL_PATH_AUTO) || (config->path == KVCL_PATH_RDMA))) {
        status = add_ports(ctx, &params);
    }
    params.net = net;
    if ((status == KVCL_OK) && own && ((config->path == KVCL_PATH_TCP) ||
                                       ((config->path == KVCL_PATH_AUTO) && (net != NULL)))) {
        status = add_xport(ctx, &kvcl_xport_tcp, KVCL_ADDRESS_TCP, &params);
    }
    return status;
}

/* The secret is known from the exchange on. */
kvcl_status_t kvcl_xports_secure(kvcl_context_h ctx)
{
    kvcl_engine_t *eng   = &ctx->engine;
    kvcl_status_t status = KVCL_OK;
    unsigned      i;

    ctx->secret = ctx->boot->secret;
    for (i = 0; (i < eng->n_xports) && (status == KVCL_OK); ++i) {
        if (eng->xports[i]->ops->secure != NULL) {
            status = eng->xports[i]->ops->secure(eng->xports[i], ctx->secret);
        }
    }
    return status;
}
