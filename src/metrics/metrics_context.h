/*
 * The metrics of a context: the build, the counters, and the latencies of its calls. Public calls alone; owns nothing.
 */
#ifndef KVCL_METRICS_METRICS_CONTEXT_H
#define KVCL_METRICS_METRICS_CONTEXT_H

#include <kvcl/kvcl.h>

#include <stdio.h>

/** Prometheus' text format. Any thread. */
void kvcl_metrics_context(FILE *file, int rank, kvcl_context_h ctx);

#endif
