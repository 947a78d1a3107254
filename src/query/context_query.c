/*
 * kvcl_context_stats and kvcl_context_address: a context's counters and its address. Locks: the engine lock, but for
 * what is counted without it and what does not change.
 */
#include "config.h"
#include "base/error.h"
#include "base/structs.h"
#include "core/context.h"
#include "handle/handle.h"
#include "wire/address.h"

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

kvcl_status_t kvcl_context_address(kvcl_context_h ctx, char *buf, size_t cap, size_t *len_p)
{
    kvcl_status_t status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_context_address");

    if (status != KVCL_OK) {
        return status;
    }
    if ( (len_p == NULL) || ((buf == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_context_address: NULL argument");
    }
    kvcl_lock(ctx);
    *len_p = kvcl_address_print(ctx->secret, ctx->address, ctx->address_len, buf, cap);
    kvcl_unlock(ctx);
    return (*len_p <= cap) ? KVCL_OK
                           : kvcl_fail(KVCL_ERR_TRUNCATED, "the address needs %zu bytes, there is room for %zu", *len_p,
                                       cap);
}
