/*
 * The transports of a context: which are opened, with which settings, and when they get the job's secret.
 *
 * Owns: engine.xports while the context is opened. Invariants: their order is that in which a peer is reached: loop,
 * ucx, tcp. With KVCL's own TCP connections (KVCL_WIRE), ucx is given no interface, so it never listens. Locks: none is
 * held.
 */
#include "config.h"
#include "core/context.h"


static kvcl_status_t add_xport(kvcl_context_h ctx, const kvcl_xport_ops_t *ops, const kvcl_xport_params_t *params)
{
    kvcl_engine_t *eng = &ctx->engine;
    kvcl_status_t status = ops->init(params, &eng->xports[eng->n_xports]);

    eng->n_xports += (status == KVCL_OK) ? 1 : 0;
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
    kvcl_status_t       status  = KVCL_OK;

    if ((config->path == KVCL_PATH_AUTO) || (config->path == KVCL_PATH_LOOP)) {
        status = add_xport(ctx, &kvcl_xport_loop, &params);
    }
    params.net        = own ? NULL : config->net;
    params.beside_tcp = own && (config->net != NULL);
    if ((status == KVCL_OK) && (config->path != KVCL_PATH_LOOP) && !(own && (config->path == KVCL_PATH_TCP))) {
        status = add_xport(ctx, &kvcl_xport_ucx, &params);
    }
    params.net = config->net;
    if ((status == KVCL_OK) && own && ((config->path == KVCL_PATH_TCP) ||
                                       ((config->path == KVCL_PATH_AUTO) && (config->net != NULL)))) {
        status = add_xport(ctx, &kvcl_xport_tcp, &params);
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
