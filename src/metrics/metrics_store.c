/*
 * The table of a store rank's numbers, and their metrics (metrics_store.h). Owns nothing.
 */
#include "config.h"
#include "metrics/metrics_store.h"

#include "metrics/metrics_text.h"

#include <stddef.h>
#include <string.h>

enum { LABELS_MAX = 64 };

#define ROW(_name, _counter, _help) {#_name, NULL, _counter, offsetof(kvcl_store_stats_t, _name), _help}
#define ROW_AS(_name, _metric, _counter, _help) \
    {#_name, _metric, _counter, offsetof(kvcl_store_stats_t, _name), _help}

/* For kvcl_top alone: /metrics has the whole histograms. */
#define ROW_JSON(_name) {#_name, NULL, false, offsetof(kvcl_store_stats_t, _name), NULL}

const kvcl_metrics_row_t kvcl_metrics_rows[] = {
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
const size_t kvcl_metrics_rows_n = sizeof(kvcl_metrics_rows) / sizeof(kvcl_metrics_rows[0]);

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

/* The labels of a store: the first one of a context has none beside the rank. */
static const char *labels(char buf[LABELS_MAX], int rank, size_t store)
{
    if (store == 0) {
        snprintf(buf, LABELS_MAX, "rank=\"%d\"", rank);
    } else {
        snprintf(buf, LABELS_MAX, "rank=\"%d\",store=\"%zu\"", rank, store);
    }
    return buf;
}

/* Of the blocks of each size in the pools. */
static void print_sizes(FILE *file, int rank, const kvcl_store_stats_t *stats, size_t n)
{
    char     name[KVCL_METRIC_NAME_MAX], buf[LABELS_MAX];
    uint64_t value;
    size_t   row, store, i;

    for (row = 0; row < sizeof(size_rows) / sizeof(size_rows[0]); ++row) {
        snprintf(name, sizeof(name), "kvcl_store_size_%s", size_rows[row].name);
        kvcl_metric_family(file, name, "gauge", size_rows[row].help);
        for (store = 0; store < n; ++store) {
            for (i = 0; (i < stats[store].n_sizes) && (i < KVCL_STORE_SIZES_MAX); ++i) {
                memcpy(&value, (const char *)&stats[store].sizes[i] + size_rows[row].offset, sizeof(value));
                kvcl_metric_count(file, name, value, "%s,block_bytes=\"%llu\"", labels(buf, rank, store),
                                  (unsigned long long)stats[store].sizes[i].block_bytes);
            }
        }
    }
}

void kvcl_metrics_stores(FILE *file, int rank, const kvcl_store_stats_t *stats, size_t n)
{
    char   name[KVCL_METRIC_NAME_MAX], buf[LABELS_MAX];
    size_t i, store;

    for (i = 0; (n != 0) && (i < kvcl_metrics_rows_n); ++i) {
        const kvcl_metrics_row_t *row = &kvcl_metrics_rows[i];
        if (row->help == NULL) {
            continue;
        }
        snprintf(name, sizeof(name), "kvcl_store_%s%s", (row->metric != NULL) ? row->metric : row->name,
                 row->counter ? "_total" : "");
        kvcl_metric_family(file, name, row->counter ? "counter" : "gauge", row->help);
        for (store = 0; store < n; ++store) {
            kvcl_metric_count(file, name, kvcl_metrics_get(&stats[store], row), "%s", labels(buf, rank, store));
        }
    }
    if (n != 0) {
        print_sizes(file, rank, stats, n);
    }
}
