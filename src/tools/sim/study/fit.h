/*
 * Least squares for models: the coefficients, none negative, that make the least sum of squared relative errors. Pure.
 */
#ifndef KVCL_TOOLS_SIM_FIT_H
#define KVCL_TOOLS_SIM_FIT_H

#include <stdbool.h>
#include <stddef.h>

#define FIT_TERMS 4u

typedef struct fit_row {
    double x[FIT_TERMS];
    double y; /* more than 0 */
} fit_row_t;

/* Fit y = sum of c x over rows of n_terms terms. Rows whose index is `skip` modulo `every` are left out (every 0:
 * none). False: the rows do not determine any coefficient. */
bool fit_solve(const fit_row_t *rows, size_t n, size_t n_terms, size_t every, size_t skip, double *c);

/* The relative error that nine of ten rows with index `only` modulo `every` keep; negative: no memory, or no rows. */
double fit_error(const fit_row_t *rows, size_t n, size_t n_terms, const double *c, size_t every, size_t only);

#endif
