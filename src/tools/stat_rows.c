/*
 * Writing and reading a rank's numbers as JSON (stat_rows.h). Owns nothing.
 */
#include "config.h"
#include "tools/stat_rows.h"

#include "metrics/metrics_store.h"
#include "tools/json_out.h"

#include <stdlib.h>
#include <string.h>

void stat_print_json(FILE *file, int rank, bool alive, kvcl_rank_state_t state, const kvcl_store_stats_t *stats)
{
    json_out_t json;
    size_t     i;

    json_begin(&json, file);
    json_count(&json, "rank", (uint64_t)rank);
    json_count(&json, "alive", alive ? 1 : 0);
    json_count(&json, "state", (uint64_t)state);
    for (i = 0; alive && (i < kvcl_metrics_rows_n); ++i) {
        json_count(&json, kvcl_metrics_rows[i].name, kvcl_metrics_get(stats, &kvcl_metrics_rows[i]));
    }
    json_end(&json);
}

/* The number behind "name": in a flat object whose values are numbers. */
static bool find_count(const char *line, const char *name, uint64_t *value_p)
{
    const size_t len = strlen(name);
    const char   *at = line;
    char         *end;

    while ((at = strchr(at, '"')) != NULL) {
        ++at;
        if ((strncmp(at, name, len) == 0) && (at[len] == '"') && (at[len + 1] == ':')) {
            *value_p = strtoull(at + len + 2, &end, 10);
            return end != at + len + 2;
        }
    }
    return false;
}

bool stat_read_json(const char *line, int *rank_p, bool *alive_p, kvcl_rank_state_t *state_p,
                    kvcl_store_stats_t *stats)
{
    uint64_t rank, alive, value, state;
    size_t   i;

    if (!find_count(line, "rank", &rank) || !find_count(line, "alive", &alive) || (rank > 65535)) {
        return false;
    }
    memset(stats, 0, sizeof(*stats));
    stats->size = sizeof(*stats);
    for (i = 0; i < kvcl_metrics_rows_n; ++i) {
        if (find_count(line, kvcl_metrics_rows[i].name, &value)) {
            memcpy((char *)stats + kvcl_metrics_rows[i].offset, &value, sizeof(value));
        }
    }
    if (!find_count(line, "state", &state) || (state > KVCL_RANK_FAILED)) { /* of an older server, or a newer one */
        state = (alive != 0) ? KVCL_RANK_ALIVE : KVCL_RANK_UNKNOWN;
    }
    *state_p = (kvcl_rank_state_t)state;
    *rank_p  = (int)rank;
    *alive_p = (alive != 0);
    return true;
}
