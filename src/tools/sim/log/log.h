/*
 * The decision log: each call to a scheduler with all that it was given, as text, so that another scheduler of the same
 * policy and models can be asked the same again. A live router may write it too.
 *
 * One call a line: a letter, then numbers with blanks between, as C's %a writes doubles. The first line is "kvcl-log
 * 2", then "policy TEXT", "model PATH", "params SEED MAX_INSTS MAX_REQUESTS MAX_BLOCKS MAX_HOLDS". A call that
 * answers is followed by a line "= ..." with the answer.
 */
#ifndef KVCL_TOOLS_SIM_LOG_H
#define KVCL_TOOLS_SIM_LOG_H

#include <kvcl/kvcl_sched.h>

#include <stdbool.h>
#include <stdio.h>

typedef enum log_kind { LOG_PREFILL_DONE = 'p', LOG_FIRST_TOKEN = 't', LOG_FINISHED = 'f' } log_kind_t;

typedef struct log_head {
    const char                *policy;
    const char                *model;
    const kvcl_sched_params_t *params;
} log_head_t;

/* All accept a NULL file and do nothing then. */
void log_begin(FILE *file, const log_head_t *head);
void log_decide(FILE *file, double now, const kvcl_sched_req_t *req, const kvcl_sched_inst_t *insts, size_t n_insts,
                const kvcl_sched_hold_t *holds, size_t n_holds, const kvcl_sched_decision_t *decision);
void log_decode(FILE *file, double now, const kvcl_sched_req_t *req, uint32_t prefill, uint32_t decode,
                const kvcl_sched_inst_t *insts, size_t n_insts, const kvcl_sched_decision_t *decision);
void log_order(FILE *file, double now, const kvcl_sched_waiting_t *waiting, size_t n, size_t next, const size_t *late,
               size_t n_late);
void log_measured(FILE *file, log_kind_t kind, double now, const kvcl_sched_measured_t *measured);
void log_gone(FILE *file, double now, uint32_t inst);

/* The answer of a call, as its line. */
void log_put_answer(FILE *file, const kvcl_sched_decision_t *decision);
void log_put_order(FILE *file, size_t next, const size_t *late, size_t n_late);

typedef struct log_result {
    uint64_t calls;
    uint64_t answers;
    uint64_t different;
    uint64_t first_line;   /* of a different answer */
} log_result_t;

/* Ask a scheduler the same again. False after reporting to stderr: a bad log. */
bool log_replay(const char *path, log_result_t *result);

#endif
