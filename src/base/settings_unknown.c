/*
 * Misspelt variables: a KVCL_* name in the environment that no table knows is warned about, with the
 * nearest known name by edit distance. Pure but for the log; runs once per context.
 */
#include "config.h"
#include "base/settings.h"
#include "base/log.h"

#include <string.h>

enum { NAME_MAX_BYTES = 64 };

static size_t min_size(size_t a, size_t b)
{
    return (a < b) ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that turn a[0..len_a) into b. */
static size_t edit_distance(const char *a, size_t len_a, const char *b)
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

/* NULL: the name is known. Else the nearest name, "" when none is near. */
static const char *nearest_name(const char *name, size_t len, const kvcl_setting_t *const *tables)
{
    const kvcl_setting_t *row;
    const char           *best      = "";
    size_t                best_dist = 1 + len / 3; /* farther ones would not be a hint */
    size_t                dist;

    for (; *tables != NULL; ++tables) {
        for (row = *tables; row->name != NULL; ++row) {
            dist = edit_distance(name, len, row->name);
            if (dist == 0) {
                return NULL;
            }
            if (dist < best_dist) {
                best_dist = dist;
                best      = row->name;
            }
        }
    }
    return best;
}

size_t kvcl_settings_check_unknown(char *const *environ_p, const kvcl_setting_t *const *tables)
{
    const char *nearest;
    size_t      unknown = 0;
    size_t      len;

    for (; (environ_p != NULL) && (*environ_p != NULL); ++environ_p) {
        len = strcspn(*environ_p, "=");
        if (strncmp(*environ_p, "KVCL_", 5) != 0) {
            continue;
        }
        nearest = nearest_name(*environ_p, len, tables);
        if (nearest == NULL) {
            continue;
        }
        ++unknown;
        if (nearest[0] != '\0') {
            kvcl_log_warn("unknown variable %.*s: did you mean %s?", (int)len, *environ_p, nearest);
        } else {
            kvcl_log_warn("unknown variable %.*s: kvcl_info lists all that exist", (int)len, *environ_p);
        }
    }
    return unknown;
}
