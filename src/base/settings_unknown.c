/*
 * Misspelt variables: a KVCL_* name in the environment that no table knows is warned about, with the
 * nearest known name by edit distance. Pure but for the log; runs once per context.
 */
#include "config.h"
#include "base/settings.h"
#include "base/nearest.h"
#include "base/log.h"

#include <string.h>

/* NULL: the name is known. Else the nearest name, "" when none is near. */
static const char *nearest_name(const char *name, size_t len, const kvcl_setting_t *const *tables)
{
    const kvcl_setting_t *row;
    const char           *best      = "";
    size_t                best_dist = 1 + len / 3; /* farther ones would not be a hint */
    size_t                dist;

    for (; *tables != NULL; ++tables) {
        for (row = *tables; row->name != NULL; ++row) {
            dist = kvcl_edit_distance(name, len, row->name);
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
