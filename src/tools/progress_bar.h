/*
 * A progress bar on the terminal that the user looks at, and nothing anywhere else. Single-threaded.
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
    uint64_t next_ns; /* not drawn again before */
    char     label[32];
} progress_bar_t;

/* Draws only if wanted and there is a terminal: our own stderr, or that of the mpirun which started us. */
void progress_bar_start(progress_bar_t *bar, const char *label, uint64_t total, bool wanted);
void progress_bar_update(progress_bar_t *bar, uint64_t done);
void progress_bar_end(progress_bar_t *bar); /* wipes it */

#endif
