/*
 * The part of /metrics beyond the store's numbers (tools/stat_rows.h): the build, the context's counters, and the
 * latencies of its calls.
 */
#ifndef KVCL_TOOLS_SERVE_SERVE_METRICS_H
#define KVCL_TOOLS_SERVE_SERVE_METRICS_H

#include <kvcl/kvcl.h>

#include <stdio.h>

/* Prometheus' text format. Any thread. */
void serve_metrics_context(FILE *file, int rank, kvcl_context_h ctx);

#endif
