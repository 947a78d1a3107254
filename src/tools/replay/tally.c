/*
 * Owns the adding up of tallies over ranks and the summary of a run.
 */
#include "config.h"
#include "tools/replay/tally.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The histograms make a tally too large for one all-gather of small data with many ranks: it is sent in pieces. */
#define PIECE_BYTES 16384u

_Static_assert(sizeof(tally_t) % sizeof(uint64_t) == 0, "a tally has no tail to leave unset");

static void add(tally_t *sum, const tally_t *one)
{
    sum->requests += one->requests;
    sum->blocks += one->blocks;
    sum->hits += one->hits;
    sum->local += one->local;
    sum->computed += one->computed;
    sum->lookups += one->lookups;
    sum->bytes += one->bytes;
    sum->bcasts += one->bcasts;
    sum->bcast_blocks += one->bcast_blocks;
    sum->vanished += one->vanished;
    sum->unpublished += one->unpublished;
    sum->evictions += one->evictions;
    sum->wrong += one->wrong;
    sum->remote += one->remote;
    sum->nvme += one->nvme;
    sum->not_put += one->not_put;
    sum->few_copies += one->few_copies;
    sum->failed += one->failed;
    sum->taken_over += one->taken_over;
    sum->demoted += one->demoted;
    sum->promoted += one->promoted;
    sum->dropped += one->dropped;
    sum->elapsed_ns = (one->elapsed_ns > sum->elapsed_ns) ? one->elapsed_ns : sum->elapsed_ns;
    hist_merge(&sum->get_ns, &one->get_ns);
    hist_merge(&sum->match_ns, &one->match_ns);
    hist_merge(&sum->put_ns, &one->put_ns);
}

bool tally_gather(const job_t *job, const tally_t *mine, tally_t *sum)
{
    const size_t size    = (size_t)job->size;
    uint8_t      *pieces = malloc(size * PIECE_BYTES);
    tally_t      *all    = malloc(size * sizeof(*all));
    bool         good    = (pieces != NULL) && (all != NULL);
    size_t       at, len, i;

    for (at = 0; good && (at < sizeof(*mine)); at += PIECE_BYTES) {
        len  = (sizeof(*mine) - at < PIECE_BYTES) ? sizeof(*mine) - at : PIECE_BYTES;
        good = job_gather(job, (const uint8_t *)mine + at, len, pieces, JOB_TIMEOUT_NS);
        for (i = 0; good && (i < size); ++i) {
            memcpy((uint8_t *)&all[i] + at, pieces + (i * len), len);
        }
    }
    memset(sum, 0, sizeof(*sum));
    for (i = 0; good && (i < size); ++i) {
        add(sum, &all[i]);
    }
    free(pieces);
    free(all);
    return good;
}

static double ratio(double a, double b)
{
    return (b > 0) ? a / b : 0;
}

static void print_json(const job_t *job, const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill,
                       uint64_t skipped_lines)
{
    const double seconds = (double)sum->elapsed_ns / 1e9;
    json_out_t   json;

    json_begin(&json, stdout);
    json_count(&json, "ranks", (uint64_t)job->size);
    json_count(&json, "requests", sum->requests);
    json_count(&json, "blocks", sum->blocks);
    json_count(&json, "hits", sum->hits);
    json_real(&json, "hit_ratio", ratio((double)sum->hits, (double)sum->blocks), 4);
    json_count(&json, "bytes", sum->bytes);
    json_real(&json, "seconds", seconds, 3);
    json_real(&json, "gbps", ratio((double)sum->bytes / 1e9, seconds), 3);
    json_real(&json, "get_p50_us", hist_quantile(&sum->get_ns, 0.5) / 1e3, 1);
    json_real(&json, "get_p99_us", hist_quantile(&sum->get_ns, 0.99) / 1e3, 1);
    json_real(&json, "match_p50_us", hist_quantile(&sum->match_ns, 0.5) / 1e3, 1);
    json_real(&json, "lookups_per_s", ratio((double)sum->lookups, seconds), 0);
    json_count(&json, "bcasts", sum->bcasts / (uint64_t)job->size);
    json_count(&json, "evictions", sum->evictions);
    json_count(&json, "skipped_lines", skipped_lines);
    if (opt->store) {
        tally_store_json(&json, opt, sum, kill);
    }
    json_count(&json, "wrong", sum->wrong);
    json_end(&json);
}

static void print_text(const job_t *job, const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill,
                       uint64_t skipped_lines)
{
    const double seconds = (double)sum->elapsed_ns / 1e9;
    const bool   limited = (opt->pool_bytes != REPLAY_POOL_UNLIMITED) || (opt->pool_share > 0);

    printf("kvcl_replay: %d rank%s, %s%s, blocks of %" PRIu64 " bytes, %s%s\n", job->size, (job->size == 1) ? "" : "s",
           (opt->trace != NULL) ? "trace " : "a generated trace", (opt->trace != NULL) ? opt->trace : "",
           opt->block_bytes, opt->in_order ? "in order, " : "",
           limited ? "limited pools" : "unlimited pools");
    printf("  requests    %" PRIu64 " of %" PRIu64 " blocks in %.3f s\n", sum->requests, sum->blocks, seconds);
    printf("  hits        %" PRIu64 " (%.1f%%): %" PRIu64 " fetched, %" PRIu64 " held by the rank itself\n", sum->hits,
           100 * ratio((double)sum->hits, (double)sum->blocks), sum->hits - sum->local, sum->local);
    if (opt->store) {
        tally_store_text(opt, sum, kill);
    }
    printf("  computed    %" PRIu64 " and %s\n", sum->computed, opt->store ? "put" : "published");
    printf("  fetched     %.3f GB, %.3f GB/s; a get p50 %.1f us, p99 %.1f us\n", (double)sum->bytes / 1e9,
           ratio((double)sum->bytes / 1e9, seconds), hist_quantile(&sum->get_ns, 0.5) / 1e3,
           hist_quantile(&sum->get_ns, 0.99) / 1e3);
    printf("  directory   %.0f keys/s looked up; a match p50 %.1f us\n", ratio((double)sum->lookups, seconds),
           hist_quantile(&sum->match_ns, 0.5) / 1e3);
    if (!opt->store) {
        printf("  broadcasts  %" PRIu64 " of hot prefixes, %" PRIu64 " blocks to each rank\n",
               sum->bcasts / (uint64_t)job->size, sum->bcast_blocks / (uint64_t)job->size);
    }
    printf("  evictions   %" PRIu64 "\n", sum->evictions);
    if (sum->vanished + sum->unpublished + skipped_lines != 0) {
        printf("  besides     %" PRIu64 " blocks removed between match and get, %" PRIu64
               " not published for lack of room, %" PRIu64 " bad lines\n",
               sum->vanished, sum->unpublished, skipped_lines);
    }
    printf("  wrong       %" PRIu64 "\n", sum->wrong);
    fflush(stdout);
}

void tally_print(const job_t *job, const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill,
                 uint64_t skipped_lines)
{
    if (opt->json) {
        print_json(job, opt, sum, kill, skipped_lines);
    } else {
        print_text(job, opt, sum, kill, skipped_lines);
    }
}
