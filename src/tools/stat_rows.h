/*
 * The numbers of a store's rank that kvcl_serve writes and kvcl_top reads: one table of names for both. Pure.
 */
#ifndef KVCL_TOOLS_STAT_ROWS_H
#define KVCL_TOOLS_STAT_ROWS_H

#include <kvcl/kvcl.h>

#include <stdbool.h>
#include <stdio.h>

typedef struct stat_row {
    const char *name;    /* as in JSON; Prometheus: kvcl_store_<name>, and _total if it is a counter */
    const char *metric;  /* replaces name in Prometheus: units come last; NULL: name */
    bool       counter;
    size_t     offset;   /* of a uint64_t in kvcl_store_stats_t */
    const char *help;    /* of the metric; NULL: it is no metric */
} stat_row_t;

extern const stat_row_t stat_rows[];
extern const size_t     stat_rows_n;

static inline uint64_t stat_get(const kvcl_store_stats_t *stats, const stat_row_t *row)
{
    return *(const uint64_t *)(const void *)((const char *)stats + row->offset);
}

/* Prometheus' text format, version 0.0.4. */
void stat_print_metrics(FILE *file, int rank, const kvcl_store_stats_t *stats);
/* One line, one JSON object. alive: stats were obtained; false: the line has the rank and its state alone. */
void stat_print_json(FILE *file, int rank, bool alive, kvcl_rank_state_t state, const kvcl_store_stats_t *stats);
/* Parse such a line. False: it has another form. Missing numbers are 0. */
bool stat_read_json(const char *line, int *rank_p, bool *alive_p, kvcl_rank_state_t *state_p,
                    kvcl_store_stats_t *stats);

#endif
