/*
 * What kvcl_sim does beyond one run: several policies side by side, the highest speed that one holds, the published
 * experiments, and a model fitted to measured requests. All print to stdout and report errors to stderr.
 */
#ifndef KVCL_TOOLS_SIM_STUDIES_H
#define KVCL_TOOLS_SIM_STUDIES_H

#include "tools/sim/options.h"
#include "tools/sim/report/stats.h"

/* One run of a config. sim is open afterwards, also on failure: call sim_close; and stats_free. */
bool study_run(sim_t *sim, const sim_config_t *config, work_t *work, sim_stats_t *stats);

/* --compare: each policy of the list. --sweep: for each policy, or the one. */
bool study_compare(const sim_options_t *opt, work_t *work);
bool study_sweep(const sim_options_t *opt, work_t *work);

/* --paper. @return the exit status: 2 for an unknown name. */
int study_paper(const sim_options_t *opt);

/* The share of tokens that a cache of `tokens` finds, by LRU, requests in sequence. Negative: out of memory. */
double study_lru_ratio(const work_t *work, uint64_t tokens);

/* --fit: the measured requests of opt->fit to a model, opt->out or stdout; the rest of it is opt->model's. */
bool study_fit(const sim_options_t *opt);

#endif
