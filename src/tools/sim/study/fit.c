/*
 * Owns the normal equations, solved by elimination with pivots. A coefficient that comes out negative is set to 0 and
 * the others are fitted again: a time does not fall with work.
 */
#include "config.h"
#include "tools/sim/study/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TINY 1e-12

typedef struct equations {
    double a[FIT_TERMS][FIT_TERMS + 1];
    size_t term[FIT_TERMS]; /* of column i */
    size_t n;
} equations_t;

static void gather(equations_t *eq, const fit_row_t *rows, size_t n, size_t every, size_t skip)
{
    double weight;
    size_t r, i, k;

    memset(eq->a, 0, sizeof(eq->a));
    for (r = 0; r < n; ++r) {
        if ((every != 0) && (r % every == skip)) {
            continue;
        }
        weight = 1 / (rows[r].y * rows[r].y);
        for (i = 0; i < eq->n; ++i) {
            for (k = 0; k < eq->n; ++k) {
                eq->a[i][k] += weight * rows[r].x[eq->term[i]] * rows[r].x[eq->term[k]];
            }
            eq->a[i][eq->n] += weight * rows[r].x[eq->term[i]] * rows[r].y;
        }
    }
}

/* Each row is divided by its greatest value first, since the terms differ by many powers of ten. */
static void scale_rows(equations_t *eq)
{
    double most;
    size_t i, k;

    for (i = 0; i < eq->n; ++i) {
        most = 0;
        for (k = 0; k < eq->n; ++k) {
            most = fmax(most, fabs(eq->a[i][k]));
        }
        for (k = 0; (most > 0) && (k <= eq->n); ++k) {
            eq->a[i][k] /= most;
        }
    }
}

/* False with *bad_p: the column that the rows do not determine. */
static bool eliminate(equations_t *eq, double *c, size_t *bad_p)
{
    double factor, t;
    size_t i, k, row, pivot;

    scale_rows(eq);
    for (i = 0; i < eq->n; ++i) {
        pivot = i;
        for (row = i + 1; row < eq->n; ++row) {
            pivot = (fabs(eq->a[row][i]) > fabs(eq->a[pivot][i])) ? row : pivot;
        }
        if (fabs(eq->a[pivot][i]) < TINY * 1e-6) {
            *bad_p = i;
            return false;
        }
        for (k = 0; k <= eq->n; ++k) {
            t                = eq->a[i][k];
            eq->a[i][k]      = eq->a[pivot][k];
            eq->a[pivot][k]  = t;
        }
        for (row = 0; row < eq->n; ++row) {
            factor = (row != i) ? eq->a[row][i] / eq->a[i][i] : 0;
            for (k = i; (factor != 0) && (k <= eq->n); ++k) {
                eq->a[row][k] -= factor * eq->a[i][k];
            }
        }
    }
    for (i = 0; i < eq->n; ++i) {
        c[eq->term[i]] = eq->a[i][eq->n] / eq->a[i][i];
    }
    return true;
}

static void drop_term(equations_t *eq, size_t i)
{
    --eq->n;
    memmove(&eq->term[i], &eq->term[i + 1], (eq->n - i) * sizeof(eq->term[0]));
}

bool fit_solve(const fit_row_t *rows, size_t n, size_t n_terms, size_t every, size_t skip, double *c)
{
    equations_t eq;
    size_t      i, bad;

    eq.n = n_terms;
    for (i = 0; i < n_terms; ++i) {
        eq.term[i] = i;
    }
    while (eq.n != 0) {
        memset(c, 0, n_terms * sizeof(*c));
        gather(&eq, rows, n, every, skip);
        if (!eliminate(&eq, c, &bad)) {
            drop_term(&eq, bad);
            continue;
        }
        bad = eq.n;
        for (i = 0; i < eq.n; ++i) {
            if ((c[eq.term[i]] < 0) && ((bad == eq.n) || (c[eq.term[i]] < c[eq.term[bad]]))) {
                bad = i;
            }
        }
        if (bad == eq.n) {
            return true;
        }
        drop_term(&eq, bad);
    }
    return false;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double fit_error(const fit_row_t *rows, size_t n, size_t n_terms, const double *c, size_t every, size_t only)
{
    double *errors = malloc((n + 1) * sizeof(*errors)), sum;
    size_t r, i, k = 0;

    for (r = 0; (errors != NULL) && (r < n); ++r) {
        if ((every != 0) && (r % every != only)) {
            continue;
        }
        sum = 0;
        for (i = 0; i < n_terms; ++i) {
            sum += c[i] * rows[r].x[i];
        }
        errors[k++] = fabs(sum - rows[r].y) / rows[r].y;
    }
    if (k != 0) {
        qsort(errors, k, sizeof(*errors), by_value);
        i   = (9 * k + 9) / 10;
        sum = errors[i - 1];
    } else {
        sum = -1;
    }
    free(errors);
    return sum;
}
