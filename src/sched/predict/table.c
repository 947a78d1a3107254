/*
 * A table of measured times, and what lies between its points: bilinear. Pure.
 */
#include "config.h"
#include "sched/predict/model.h"

/* The last point at or below x, at most the one before the last; false: x is outside. */
static bool interval(const double *at, size_t n, double x, size_t *i_p, double *share_p)
{
    size_t low = 0, high = n - 1, mid;

    if ((n == 0) || !(x >= at[0]) || !(x <= at[n - 1])) {
        return false;
    }
    while (low + 1 < high) {
        mid = low + ((high - low) / 2);
        if (at[mid] <= x) {
            low = mid;
        } else {
            high = mid;
        }
    }
    *i_p     = low;
    *share_p = (high > low) ? (x - at[low]) / (at[high] - at[low]) : 0;
    return true;
}

double kvcl_model_table_at(const kvcl_model_table_t *table, double row, double col)
{
    const double *above, *below;
    size_t       i, j;
    double       down, right, upper, lower;

    if (!interval(table->row, table->rows, row, &i, &down) || !interval(table->col, table->cols, col, &j, &right)) {
        return -1;
    }
    above = &table->cell[(i * table->cols) + j];
    below = (down > 0) ? above + table->cols : above;
    upper = above[0] + ((right > 0) ? right * (above[1] - above[0]) : 0);
    lower = below[0] + ((right > 0) ? right * (below[1] - below[0]) : 0);
    return upper + (down * (lower - upper));
}
