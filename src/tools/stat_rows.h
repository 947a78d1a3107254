/*
 * The numbers of a store's rank as JSON (/ranks), which kvcl_serve writes and kvcl_top reads, by the table of
 * metrics/metrics_store.h. Pure.
 */
#ifndef KVCL_TOOLS_STAT_ROWS_H
#define KVCL_TOOLS_STAT_ROWS_H

#include <kvcl/kvcl.h>

#include <stdbool.h>
#include <stdio.h>

/* One line, one JSON object. alive: stats were obtained; false: the line has the rank and its state alone. */
void stat_print_json(FILE *file, int rank, bool alive, kvcl_rank_state_t state, const kvcl_store_stats_t *stats);
/* Parse such a line. False: it has another form. Missing numbers are 0. */
bool stat_read_json(const char *line, int *rank_p, bool *alive_p, kvcl_rank_state_t *state_p,
                    kvcl_store_stats_t *stats);

#endif
