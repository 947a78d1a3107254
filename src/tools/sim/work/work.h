/*
 * The requests of a simulation: arrival, lengths, class, session and the blocks of the prompt as dense numbers. Read
 * from Mooncake's JSON lines or from CSV, or generated. Owns its arrays. Text is hostile: each error names file, line
 * and column, and leaves the work empty.
 */
#ifndef KVCL_TOOLS_SIM_WORK_H
#define KVCL_TOOLS_SIM_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define WORK_NONE         UINT32_MAX
#define WORK_BLOCK_TOKENS 512u
#define WORK_INPUT_MAX    (1u << 24) /* tokens of a prompt, and of an answer */
#define WORK_ERROR_MAX    256u

typedef struct work_request {
    double   arrival;  /* seconds from the first */
    uint32_t input;    /* tokens, at least 1 */
    uint32_t output;   /* tokens, at least 1 */
    uint32_t klass;    /* 0..31 */
    uint32_t session;  /* dense; WORK_NONE: none */
    uint32_t next;     /* of its session; WORK_NONE */
    uint32_t n;        /* blocks, the last of them partial */
    uint64_t first;    /* in work_t.blocks */
} work_request_t;

typedef struct work {
    work_request_t *requests; /* by arrival */
    size_t         n;
    size_t         cap;
    uint32_t       *blocks;
    size_t         n_blocks;
    size_t         cap_blocks;
    uint32_t       distinct;  /* blocks are 0 .. distinct - 1 */
    uint32_t       sessions;
} work_t;

typedef enum work_arrivals {
    WORK_BY_TRACE,
    WORK_SPREAD,  /* those of one time, evenly until the next time */
    WORK_POISSON,
    WORK_CLOSED   /* by sessions; the engine sets the times */
} work_arrivals_t;

void work_init(work_t *work);
void work_free(work_t *work);

/* Append a request with its blocks, which are dense numbers of the caller's. False: out of memory. */
bool work_add(work_t *work, const work_request_t *request, const uint32_t *blocks);

/**
 * Read a file of either form; most: requests at most (0: all). JSON lines: timestamp in ms, input_length,
 * output_length, hash_ids. CSV: a header that names the columns (arrival in seconds, in, out, and optionally class),
 * then numbers. Requests are sorted by arrival.
 * @return false after reporting to stderr; the work is then empty.
 */
bool work_load(work_t *work, const char *path, size_t most);

/* Read the CSV of a stream; path: for errors. error: WORK_ERROR_MAX bytes. */
bool work_read_csv(work_t *work, FILE *file, const char *path, size_t most, char *error);

/* Generated: "conversation", or "agent": chats, a tool's long prompt with short answers, an agent's short one, after
 * the published statistics of a tool and agent trace. False: out of memory. */
bool work_generate(work_t *work, bool agent, size_t n, uint64_t seed);

/**
 * Set the arrivals. speed: times are divided by it. rate: of WORK_POISSON, requests a second; 0: the trace's mean times
 * speed.
 */
void work_arrive(work_t *work, work_arrivals_t how, double speed, double rate, uint64_t seed);

/* Find sessions by the second block of the prompt, and link their requests. False: out of memory. */
bool work_sessions(work_t *work);

/* Mean requests a second. */
double work_rate(const work_t *work);

#endif
