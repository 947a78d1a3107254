/*
 * A progress bar on the user's terminal, and no output elsewhere. Single-threaded.
 */
#ifndef KVCL_TOOLS_PROGRESS_BAR_H
#define KVCL_TOOLS_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct progress_bar {
    FILE     *file;
    bool     on;
    uint64_t total;
    uint64_t next_ns; /* earliest time of the next drawing */
    char     label[32];
} progress_bar_t;

/* Draws only if wanted and if stderr, or the stderr of the parent mpirun, is a terminal. */
void progress_bar_start(progress_bar_t *bar, const char *label, uint64_t total, bool wanted);
void progress_bar_update(progress_bar_t *bar, uint64_t done);
void progress_bar_end(progress_bar_t *bar); /* erases the bar */

#endif
