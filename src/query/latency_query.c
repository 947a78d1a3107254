/*
 * kvcl_query_latency: the times of a context's calls (base/latency.h). Owns the names of calls and paths.
 */
#include "config.h"
#include "base/error.h"
#include "core/context.h"
#include "handle/handle.h"

#define OP_NAME(_name, _text) [KVCL_LATENCY_##_name] = (_text),
static const char *const op_names[KVCL_LATENCY_OPS] = {KVCL_LATENCY_OP_MAP(OP_NAME)};
#undef OP_NAME
static const char *const path_names[KVCL_MEM_PATHS] = {"loop", "mapped", "native", "served"};

/* What has been counted until now, whose counts and sum fit each other but for what is added meanwhile. */
static uint64_t take(const kvcl_hist_t *hist, uint64_t counts[KVCL_HIST_BUCKETS])
{
    uint64_t count = 0;
    unsigned i;

    for (i = 0; i < KVCL_HIST_BUCKETS; ++i) {
        counts[i] = atomic_load_explicit(&((kvcl_hist_t *)hist)->counts[i], memory_order_relaxed);
        count    += counts[i];
    }
    return count;
}

kvcl_status_t kvcl_query_latency(kvcl_context_h ctx, kvcl_latency_cb_t cb, void *arg)
{
    uint64_t            counts[KVCL_HIST_BUCKETS], bounds[KVCL_HIST_BUCKETS];
    kvcl_latency_info_t info = {.size = sizeof(info), .n_buckets = KVCL_HIST_BUCKETS, .bounds_ns = bounds,
                                .counts = counts};
    kvcl_status_t       status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_query_latency");
    unsigned            op, path, i;

    if (status != KVCL_OK) {
        return status;
    }
    if (cb == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_query_latency: cb is NULL");
    }
    for (i = 0; i < KVCL_HIST_BUCKETS; ++i) {
        bounds[i] = kvcl_hist_bound(i);
    }
    for (op = KVCL_LATENCY_NONE + 1; op < KVCL_LATENCY_OPS; ++op) {
        for (path = 0; path < KVCL_MEM_PATHS; ++path) {
            const kvcl_hist_t *hist = &ctx->latency.hists[op][path];
            info.op     = op_names[op];
            info.path   = path_names[path];
            info.sum_ns = atomic_load_explicit(&((kvcl_hist_t *)hist)->sum_ns, memory_order_relaxed);
            info.count  = take(hist, counts);
            if (info.count != 0) {
                cb(arg, &info);
            }
        }
    }
    return KVCL_OK;
}
