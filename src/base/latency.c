/*
 * The times of calls (latency.h).
 */
#include "config.h"
#include "base/latency.h"

kvcl_timing_t kvcl_timing_turn(kvcl_latency_table_t *table, kvcl_latency_op_t op)
{
    kvcl_timing_t timing = kvcl_timing_begin(op);
    uint32_t      weight = atomic_exchange_explicit(&table->weight, KVCL_LATENCY_EVERY, memory_order_relaxed);

    timing.weight = (weight != 0) ? (uint8_t)weight : 1; /* no call precedes the first */
    return timing;
}

void kvcl_timing_record(kvcl_latency_table_t *table, const kvcl_timing_t *timing)
{
    if (timing->op != KVCL_LATENCY_NONE) {
        kvcl_hist_add(&table->hists[timing->op][timing->path], kvcl_now_ns() - timing->begun_ns, timing->weight);
    }
}
