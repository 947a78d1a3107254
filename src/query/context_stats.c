/*
 * kvcl_context_stats: the counters of a context. Locks: the engine lock, but for what is counted without it.
 */
#include "config.h"
#include "base/error.h"
#include "base/structs.h"
#include "core/context.h"
#include "handle/handle.h"

kvcl_status_t kvcl_context_stats(kvcl_context_h ctx, kvcl_context_stats_t *stats)
{
    kvcl_status_t        status = kvcl_struct_out_check(stats, KVCL_UP_TO(kvcl_context_stats_t, ops),
                                                        "kvcl_context_stats_t", "kvcl_context_stats");
    kvcl_context_stats_t now;

    if (status == KVCL_OK) {
        status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_context_stats");
    }
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(ctx);
    now = ctx->stats;
    kvcl_unlock(ctx);
    now.ops       += atomic_load_explicit(&ctx->instant_ops, memory_order_relaxed);
    now.bytes_in  += atomic_load_explicit(&ctx->bytes_in, memory_order_relaxed);
    now.bytes_out += atomic_load_explicit(&ctx->bytes_out, memory_order_relaxed);
    kvcl_struct_out(stats, &now, sizeof(now));
    return KVCL_OK;
}
