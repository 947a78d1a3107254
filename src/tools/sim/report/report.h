/*
 * Prints what runs came to.
 */
#ifndef KVCL_TOOLS_SIM_REPORT_H
#define KVCL_TOOLS_SIM_REPORT_H

#include "tools/json_out.h"
#include "tools/sim/report/stats.h"

/* One run, as a table. cdf: also TTFT and TBT at each hundredth. */
void report_print(FILE *file, const sim_t *sim, const sim_stats_t *stats, bool cdf);

/* One run, as the members of the open object. */
void report_json(json_out_t *json, const sim_t *sim, const sim_stats_t *stats, bool cdf);

/* Runs side by side: a line each, after a head. */
void report_head(FILE *file);
void report_line(FILE *file, const sim_t *sim, const sim_stats_t *stats);

/* The policies of the library. */
void report_policies(FILE *file);

/* Load over time and the shares of TTFT and TBT, as SVG. False after reporting. */
bool report_svg(const char *path, const sim_t *sim, const sim_stats_t *stats);

#endif
