/*
 * The arguments of a simulator: [--seeds N] [--seed S] [--break NAME]. Pure; no state.
 */
#ifndef KVCL_TEST_SIM_ARGS_H
#define KVCL_TEST_SIM_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sim_args {
    uint64_t first, seeds; /* in: the defaults */
    unsigned broken;       /* an index of breaks; 0: nothing */
} sim_args_t;

/* breaks: n names, [0] is that of no defect. False: it has printed the usage. */
static inline bool sim_args_take(sim_args_t *args, int argc, char **argv, const char *name, const char *const *breaks,
                                 unsigned n)
{
    unsigned b;
    int      a;

    for (a = 1; a + 1 < argc; a += 2) {
        if (strcmp(argv[a], "--seeds") == 0) {
            args->seeds = strtoull(argv[a + 1], NULL, 0);
        } else if (strcmp(argv[a], "--seed") == 0) {
            args->first = strtoull(argv[a + 1], NULL, 0);
        } else if (strcmp(argv[a], "--break") == 0) {
            for (args->broken = 0; (args->broken < n) && (strcmp(argv[a + 1], breaks[args->broken]) != 0);
                 ++args->broken) {
            }
        }
    }
    if ((a == argc) && (args->broken < n)) {
        return true;
    }
    fprintf(stderr, "usage: %s [--seeds N] [--seed S] [--break NAME], NAME one of", name);
    for (b = 1; b < n; ++b) {
        fprintf(stderr, " %s", breaks[b]);
    }
    fprintf(stderr, "\n");
    return false;
}

#endif
