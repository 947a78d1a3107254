/*
 * Edit distance (nearest.h): three rows of its table, on the stack.
 */
#include "config.h"
#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

enum { NAME_MAX_BYTES = 64 };

static size_t min_size(size_t a, size_t b)
{
    return (a < b) ? a : b;
}

size_t kvcl_edit_distance(const char *a, size_t len_a, const char *b)
{
    size_t rows[3][NAME_MAX_BYTES + 1];
    size_t len_b = strlen(b);
    size_t i, j;

    if ((len_a > NAME_MAX_BYTES) || (len_b > NAME_MAX_BYTES)) {
        return SIZE_MAX;
    }
    for (j = 0; j <= len_b; ++j) {
        rows[0][j] = j;
    }
    for (i = 1; i <= len_a; ++i) {
        size_t *row    = rows[i % 3];
        size_t *above  = rows[(i + 2) % 3];
        size_t *above2 = rows[(i + 1) % 3];

        row[0] = i;
        for (j = 1; j <= len_b; ++j) {
            row[j] = min_size(min_size(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if ((i > 1) && (j > 1) && (a[i - 1] == b[j - 2]) && (a[i - 2] == b[j - 1])) {
                row[j] = min_size(row[j], above2[j - 2] + 1);
            }
        }
    }
    return rows[len_a % 3][len_b];
}
