/*
 * The results of the test "copy": a row for each size of pieces, a column for each way to copy them.
 */
#ifndef KVCL_TOOLS_PERF_PERF_COPY_H
#define KVCL_TOOLS_PERF_PERF_COPY_H

#include "tools/perf/perf.h"
#include "weave/choice.h"

enum { PERF_WAYS_MAX = 16, PERF_COPY_ROWS_MAX = 13, PERF_WAY_NAME_MAX = 32 };

typedef struct perf_way {
    unsigned                  way; /* KVCL_COPY_* */
    const kvcl_weave_kernel_t *kernel;
} perf_way_t;

typedef struct perf_copy_row {
    uint64_t bytes;
    double   gbps[PERF_WAYS_MAX];
} perf_copy_row_t;

typedef struct perf_copy {
    perf_way_t      ways[PERF_WAYS_MAX]; /* memcpy, then those of the best kernel in the order of KVCL_COPY_* */
    size_t          n_ways;
    perf_copy_row_t rows[PERF_COPY_ROWS_MAX];
    size_t          n_rows;
    kvcl_copy_choice_t chosen; /* of the library; KVCL_COPY_*, and so a column */
    char            machine[256];
} perf_copy_t;

const char *perf_way_name(const perf_way_t *way, char buf[PERF_WAY_NAME_MAX]);

/* The whole test: measures and prints. @return the exit status. */
int perf_copy(const perf_options_t *opt);
/* Writes the rows as an SVG picture. @return false: the error was printed. */
bool perf_plot(const perf_copy_t *copy, const char *path);

#endif
