/*
 * The table of a store rank's numbers, and its two formats (stat_rows.h). Owns nothing.
 */
#include "config.h"
#include "tools/stat_rows.h"

#include "tools/json_out.h"
#include "tools/metrics_out.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ROW(_name, _counter, _help) {#_name, NULL, _counter, offsetof(kvcl_store_stats_t, _name), _help}
#define ROW_AS(_name, _metric, _counter, _help) \
    {#_name, _metric, _counter, offsetof(kvcl_store_stats_t, _name), _help}

/* For kvcl_top alone: /metrics has the whole histograms. */
#define ROW_JSON(_name) {#_name, NULL, false, offsetof(kvcl_store_stats_t, _name), NULL}

const stat_row_t stat_rows[] = {
    ROW(blocks, false, "Blocks published by this rank, including its engine's own caches."),
    ROW(published, true, "Blocks published."),
    ROW(evicted, true, "Blocks evicted for room."),
    ROW(gets, true, "Blocks that this rank requested."),
    ROW(hits, true, "Blocks that this rank's gets returned."),
    ROW(hits_cache, true, "Blocks got from engines' caches."),
    ROW(hits_dram, true, "Blocks got from pools."),
    ROW(hits_local, true, "Blocks got from this rank's own memory."),
    ROW(hits_nvme, true, "Blocks got from second tiers."),
    ROW(stale, true, "Copies refused because their generation had changed."),
    ROW(corrupt, true, "Copies refused by their checksum."),
    ROW(lookups, true, "Keys looked up by this rank."),
    ROW(entries, false, "Locations in this rank's part of the directory."),
    ROW(block_bytes, false, "Bytes of a pool block, the first size's; 0 without a pool."),
    ROW(pool_bytes, false, "Bytes of the pool."),
    ROW(pool_free_bytes, false, "Bytes of the pool free without evicting."),
    ROW(pool_taken, true, "Slabs of the pool that one block size took from another."),
    ROW(pool_blocks, false, "Blocks of all sizes that the pool has room for."),
    ROW(pool_free, false, "Pool blocks free without evicting."),
    ROW(pool_published, false, "Pool blocks in use."),
    ROW(pinned, false, "Pool blocks that cannot be evicted now."),
    ROW(copied, true, "Copies of other ranks' blocks made by this rank."),
    ROW(moved, true, "Blocks that other ranks have taken over."),
    ROW(events, true, "Changes of this rank's blocks."),
    ROW(draining, false, "1 while the rank moves its blocks to other ranks."),
    ROW_AS(bytes_in, "in_bytes", true, "Payload bytes fetched or received."),
    ROW_AS(bytes_out, "out_bytes", true, "Payload bytes sent, written or served."),
    ROW_AS(bytes_served, "served_bytes", true, "Payload bytes sent for gets of peers."),
    ROW_AS(bytes_native, "native_bytes", true, "Payload bytes got or put natively by this rank."),
    ROW(demoted, true, "Blocks written into the second tier."),
    ROW(promoted, true, "Blocks copied from the second tier into the pool."),
    ROW(dropped, true, "Blocks evicted that were not in the second tier."),
    ROW(nvme_blocks, false, "Blocks in the second tier."),
    ROW(nvme_bytes, false, "Bytes in the second tier."),
    ROW(nvme_bad, true, "Blocks of the second tier whose bytes were corrupt; each was a miss."),
    ROW(nvme_state, false, "0: no second tier, 1: on, 2: off, its disk has failed or is full."),
    ROW_JSON(get_p50_ns),
    ROW_JSON(get_p99_ns),
    ROW_JSON(put_p50_ns),
    ROW_JSON(put_p99_ns),
    ROW_JSON(match_p50_ns),
    ROW_JSON(match_p99_ns),
};
const size_t stat_rows_n = sizeof(stat_rows) / sizeof(stat_rows[0]);

#define SIZE_ROW(_name, _help) {#_name, offsetof(kvcl_store_size_stats_t, _name), _help}

static const struct {
    const char *name;
    size_t     offset;
    const char *help;
} size_rows[] = {
    SIZE_ROW(blocks, "Blocks of this size that the pool has room for now."),
    SIZE_ROW(free, "Blocks of this size free without evicting."),
    SIZE_ROW(published, "Blocks of this size in use."),
    SIZE_ROW(pinned, "Blocks of this size that cannot be evicted now."),
    SIZE_ROW(takes, "Blocks of this size that can be put without evicting."),
};
_Static_assert((1 + (sizeof(size_rows) / sizeof(size_rows[0]))) * sizeof(uint64_t) ==
                   offsetof(kvcl_store_size_stats_t, reserved),
               "each number but the size itself is a row");

/* Of the blocks of each size in the pool. */
static void print_sizes(FILE *file, int rank, const kvcl_store_stats_t *stats)
{
    char     name[METRIC_NAME_MAX];
    uint64_t value;
    size_t   row, i;

    for (row = 0; row < sizeof(size_rows) / sizeof(size_rows[0]); ++row) {
        snprintf(name, sizeof(name), "kvcl_store_size_%s", size_rows[row].name);
        metric_family(file, name, "gauge", size_rows[row].help);
        for (i = 0; (i < stats->n_sizes) && (i < KVCL_STORE_SIZES_MAX); ++i) {
            memcpy(&value, (const char *)&stats->sizes[i] + size_rows[row].offset, sizeof(value));
            metric_count(file, name, value, "rank=\"%d\",block_bytes=\"%llu\"", rank,
                         (unsigned long long)stats->sizes[i].block_bytes);
        }
    }
}

void stat_print_metrics(FILE *file, int rank, const kvcl_store_stats_t *stats)
{
    char   name[METRIC_NAME_MAX];
    size_t i;

    for (i = 0; i < stat_rows_n; ++i) {
        const stat_row_t *row = &stat_rows[i];
        if (row->help == NULL) {
            continue;
        }
        snprintf(name, sizeof(name), "kvcl_store_%s%s", (row->metric != NULL) ? row->metric : row->name,
                 row->counter ? "_total" : "");
        metric_family(file, name, row->counter ? "counter" : "gauge", row->help);
        metric_count(file, name, stat_get(stats, row), "rank=\"%d\"", rank);
    }
    print_sizes(file, rank, stats);
}

void stat_print_json(FILE *file, int rank, bool alive, kvcl_rank_state_t state, const kvcl_store_stats_t *stats)
{
    json_out_t json;
    size_t     i;

    json_begin(&json, file);
    json_count(&json, "rank", (uint64_t)rank);
    json_count(&json, "alive", alive ? 1 : 0);
    json_count(&json, "state", (uint64_t)state);
    for (i = 0; alive && (i < stat_rows_n); ++i) {
        json_count(&json, stat_rows[i].name, stat_get(stats, &stat_rows[i]));
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
    for (i = 0; i < stat_rows_n; ++i) {
        if (find_count(line, stat_rows[i].name, &value)) {
            memcpy((char *)stats + stat_rows[i].offset, &value, sizeof(value));
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
