/*
 * Reading one line of a decision log: a cursor over hostile text. The first error is kept, with its column.
 */
#ifndef KVCL_TOOLS_SIM_LOG_READ_H
#define KVCL_TOOLS_SIM_LOG_READ_H

#include <kvcl/kvcl_sched.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_ITEMS_MAX (1u << 20) /* instances, runs, keys or waiting prefills of one call */

typedef struct log_cursor {
    const char *start;
    const char *p;
    const char *error;  /* static words; NULL: none */
    size_t     column;  /* of the error */
} log_cursor_t;

/* The arguments of one call. Owns its arrays, which are used again for the next line. */
typedef struct log_call {
    double                now;
    kvcl_sched_req_t      req;
    kvcl_key_t            *keys;
    kvcl_sched_inst_t     *insts;
    size_t                n_insts;
    kvcl_sched_hold_t     *holds;
    size_t                n_holds;
    kvcl_sched_waiting_t  *waiting;
    size_t                n_waiting;
    kvcl_sched_measured_t measured;
    uint32_t              prefill;
    uint32_t              decode;
    uint32_t              inst;
} log_call_t;

void     log_cursor(log_cursor_t *c, const char *line);
uint64_t log_u64(log_cursor_t *c);
uint32_t log_u32(log_cursor_t *c);
double   log_real(log_cursor_t *c);
bool     log_end(log_cursor_t *c); /* nothing but blanks is left, and there was no error */

/* What stands behind the letter `kind` of a call. False: c->error is set. */
bool log_read_call(log_cursor_t *c, char kind, log_call_t *call);
void log_free_call(log_call_t *call);

#endif
