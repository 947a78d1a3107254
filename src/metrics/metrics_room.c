/*
 * The room of metrics: a context with KVCL_METRICS serves its counters, the latencies of its calls and the statistics
 * of its parts of stores at a port (metrics_port.h).
 *
 * Owns: the port, from kvcl_init to kvcl_finalize. The port's thread takes the engine lock as any caller does, only to
 * copy numbers; it holds the stores that it reads (kvcl_store_t.ops), so none is freed meanwhile.
 */
#include "config.h"
#include "metrics/metrics_context.h"
#include "metrics/metrics_port.h"
#include "metrics/metrics_store.h"
#include "base/error.h"
#include "base/log.h"
#include "core/context.h"
#include "store/store.h"

#include <stdlib.h>

enum { STORES_MAX = 8 };

/* The stores of the context, the oldest first, each held; those behind STORES_MAX are left out. */
static size_t hold_stores(kvcl_context_h ctx, kvcl_store_h stores[STORES_MAX])
{
    kvcl_store_h store;
    size_t       n = 0;

    kvcl_lock(ctx);
    kvcl_list_foreach (store, &kvcl_store_room(ctx)->stores, struct kvcl_store, link) {
        if (!store->closing && (n < STORES_MAX)) {
            ++store->ops;
            stores[n++] = store;
        }
    }
    kvcl_unlock(ctx);
    return n;
}

/* On the port's thread. */
static void write_text(void *arg, FILE *text)
{
    kvcl_context_h     ctx = arg;
    kvcl_store_h       stores[STORES_MAX];
    kvcl_store_stats_t *stats = malloc(STORES_MAX * sizeof(*stats));
    size_t             n = hold_stores(ctx, stores), filled = 0, i;

    for (i = 0; i < n; ++i) {
        if (stats != NULL) {
            stats[filled] = (kvcl_store_stats_t)KVCL_STORE_STATS_INIT;
            filled       += (kvcl_store_stats(stores[i], &stats[filled]) == KVCL_OK) ? 1 : 0;
        }
        kvcl_store_release(stores[i]);
    }
    kvcl_metrics_stores(text, ctx->boot->rank, stats, filled);
    kvcl_metrics_context(text, ctx->boot->rank, ctx);
    free(stats);
}

/* port + rank, so that the ranks of a host have ports of their own; port 0 stays. */
static kvcl_status_t port_of_rank(kvcl_context_h ctx, char at[KVCL_HOSTPORT_MAX])
{
    kvcl_hostport_t hostport;
    kvcl_status_t   status = kvcl_hostport_parse(ctx->config.metrics, "KVCL_METRICS", 0, &hostport);
    unsigned        port;

    if (status != KVCL_OK) {
        return status;
    }
    port = (hostport.port != 0) ? hostport.port + (unsigned)ctx->boot->rank : 0;
    if (port > UINT16_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_METRICS: \"%s\": rank %d listens at the port plus its rank, %u, "
                         "which is no port: take a lower one", ctx->config.metrics, ctx->boot->rank, port);
    }
    hostport.port = (uint16_t)port;
    (void)kvcl_hostport_print(&hostport, at);
    return KVCL_OK;
}

static kvcl_status_t init(kvcl_context_h ctx, void **state_p)
{
    char                at[KVCL_HOSTPORT_MAX], where[KVCL_HOSTPORT_MAX];
    kvcl_metrics_port_t *port;
    kvcl_status_t       status;

    if (ctx->config.metrics == NULL) {
        return KVCL_OK;
    }
    status = port_of_rank(ctx, at);
    status = (status == KVCL_OK) ? kvcl_metrics_port_open(at, "KVCL_METRICS", write_text, ctx, where, &port) : status;
    if (status == KVCL_ERR_BUSY) {
        return kvcl_fail(status, "%s: give each context of this host a port of its own; port 0 takes a free one, which "
                         "the log names (KVCL_LOG=info)", kvcl_last_error());
    }
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_log_info("metrics of rank %d: http://%s/metrics", ctx->boot->rank, where);
    *state_p = port;
    return KVCL_OK;
}

static void fini(kvcl_context_h ctx, void *state)
{
    (void)ctx;
    kvcl_metrics_port_close(state);
}

const kvcl_room_t kvcl_room_metrics = {.name = "metrics", .init = init, .fini = fini};
