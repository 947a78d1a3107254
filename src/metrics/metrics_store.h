/*
 * The numbers of a store's rank that /metrics of kvcl_serve and of KVCL_METRICS, /ranks and kvcl_top have: one table of
 * names for all. Pure.
 */
#ifndef KVCL_METRICS_METRICS_STORE_H
#define KVCL_METRICS_METRICS_STORE_H

#include <kvcl/kvcl.h>

#include <stdbool.h>
#include <stdio.h>

typedef struct kvcl_metrics_row {
    const char *name;    /* as in JSON; Prometheus: kvcl_store_<name>, and _total if it is a counter */
    const char *metric;  /* replaces name in Prometheus: units come last; NULL: name */
    bool       counter;
    size_t     offset;   /* of a uint64_t in kvcl_store_stats_t */
    const char *help;    /* of the metric; NULL: it is no metric */
} kvcl_metrics_row_t;

extern const kvcl_metrics_row_t kvcl_metrics_rows[];
extern const size_t             kvcl_metrics_rows_n;

static inline uint64_t kvcl_metrics_get(const kvcl_store_stats_t *stats, const kvcl_metrics_row_t *row)
{
    return *(const uint64_t *)(const void *)((const char *)stats + row->offset);
}

/** Prometheus' text format: a rank's parts of n stores. */
void kvcl_metrics_stores(FILE *file, int rank, const kvcl_store_stats_t *stats, size_t n);

#endif
