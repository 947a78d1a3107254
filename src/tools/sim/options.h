/*
 * kvcl_sim's command line. Strings are argv's.
 */
#ifndef KVCL_TOOLS_SIM_OPTIONS_H
#define KVCL_TOOLS_SIM_OPTIONS_H

#include "tools/cli.h"
#include "tools/sim/sim.h"

#define SIM_BLANKS " \t\n" /* between the policies of a list */

typedef struct sim_options {
    const char      *trace;     /* file; NULL: generated */
    const char      *generate;  /* "conversation", "agent" */
    uint64_t        requests;   /* at most, of a file; 0: all */
    work_arrivals_t arrivals;
    double          speed;
    double          rate;
    const char      *model;
    const char      *guess;     /* NULL: the same */
    const char      *compare;   /* policies, with blanks between */
    double          sweep;      /* share of good requests; negative: no sweep */
    const char      *paper;
    const char      *fit;
    const char      *out;       /* of --fit */
    const char      *log;
    const char      *replay_log;
    const char      *svg;
    bool            json;
    bool            list;
    bool            cdf;
    sim_config_t    config;
} sim_options_t;

/* CLI_BAD after reporting. */
cli_result_t sim_options_parse(sim_options_t *opt, int argc, char **argv);

/* The trace's requests with their arrivals. False after reporting. */
bool sim_options_work(const sim_options_t *opt, work_t *work);

/* The models, and what the config takes from them where no option says it. False after reporting. */
bool sim_options_models(sim_options_t *opt);
/* A copy of the next policy of a list, which moves on; NULL at its end, or without memory. */
char *sim_options_policy(const char **list_p);
void sim_options_free(sim_options_t *opt);

#endif
