/*
 * A trace: requests in order, each a list of block ids. The trace owns its arrays. Loading it reads hostile text: every
 * line is checked, and a bad one is reported as FILE:LINE: error, and skipped or refused.
 */
#ifndef KVCL_TOOLS_REPLAY_TRACE_H
#define KVCL_TOOLS_REPLAY_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_LINE_MAX  (1u << 20) /* bytes of one line */
#define TRACE_IDS_MAX   65536u     /* blocks of one request */
#define TRACE_ERROR_MAX 160u

typedef struct trace_request {
    uint64_t timestamp_ms;
    uint64_t input_length;
    uint64_t output_length;
    uint64_t first; /* of its ids in trace_t.ids */
    uint32_t n;
} trace_request_t;

typedef struct trace {
    trace_request_t *requests;
    size_t          n_requests;
    size_t          cap_requests;
    uint64_t        *ids;
    size_t          n_ids;
    size_t          cap_ids;
    uint32_t        longest;       /* blocks of the longest request */
    uint64_t        skipped_lines;
} trace_t;

void trace_init(trace_t *trace);
void trace_free(trace_t *trace);

/* Append a request and a copy of its ids. False when out of memory or beyond 2^32 ids; then nothing has changed. */
bool trace_add(trace_t *trace, const trace_request_t *request, const uint64_t *ids, uint32_t n);

/**
 * Parse one line, which need not end in a zero. Pure.
 * @param ids    room for TRACE_IDS_MAX.
 * @param error  on false: the error and its column; TRACE_ERROR_MAX bytes.
 */
bool trace_parse_line(const char *line, size_t len, trace_request_t *request, uint64_t *ids, char *error);

/**
 * Read a whole file into an empty trace.
 * @param strict  the first bad line is an error; otherwise it is counted in skipped_lines.
 * @param report  the stream for reports, or NULL (ranks other than 0).
 * @return false after reporting: the file cannot be read, a bad line with strict, no request at all, no memory.
 */
bool trace_load(trace_t *trace, const char *path, bool strict, FILE *report);

#endif
