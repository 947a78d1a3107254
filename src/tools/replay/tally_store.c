/*
 * Owns the part of the summary for a replay with --store: hits by tier, blocks without room, and the effects of a kill.
 */
#include "config.h"
#include "tools/replay/tally.h"

#include <inttypes.h>
#include <math.h>

static double part(uint64_t n, const tally_t *sum)
{
    return (sum->blocks != 0) ? (double)n / (double)sum->blocks : 0;
}

static double ms(uint64_t ns)
{
    return (ns != 0) ? (double)ns / 1e6 : (double)NAN;
}

static void kill_json(json_out_t *json, const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill)
{
    json_count(json, "kill_rank", (uint64_t)opt->kill_rank);
    json_real(json, "kill_second", (double)kill->struck_ns / 1e9, 3);
    json_count(json, "kill_served", kill->served);
    json_count(json, "kill_taken_over", sum->taken_over);
    json_count(json, "kill_held", kill->held);
    json_count(json, "kill_alone", kill->alone);
    json_count(json, "kill_watched", kill->watched);
    json_count(json, "kill_gets", kill->gets);
    json_count(json, "kill_failed", kill->failed);
    json_count(json, "kill_lost", kill->lost);
    json_real(json, "kill_noticed_ms", ms(kill->noticed_ns), 1);
    json_real(json, "kill_first_get_ms", ms(kill->first_ns), 1);
    json_real(json, "kill_other_copy_ms", ms(kill->other_ns), 1);
    json_real(json, "kill_last_failed_ms", ms(kill->last_failed_ns), 1);
    json_real(json, "kill_longest_get_ms", ms(kill->longest_ns), 1);
    json_real(json, "kill_repaired_ms", ms(kill->repaired_ns), 1);
}

void tally_store_json(json_out_t *json, const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill)
{
    json_count(json, "replicas", opt->replicas);
    json_count(json, "hits_local", sum->local);
    json_count(json, "hits_remote", sum->remote);
    json_count(json, "hits_nvme", sum->nvme);
    json_count(json, "misses", sum->blocks - sum->hits);
    json_real(json, "local_ratio", part(sum->local, sum), 4);
    json_real(json, "remote_ratio", part(sum->remote, sum), 4);
    json_real(json, "nvme_ratio", part(sum->nvme, sum), 4);
    json_real(json, "miss_ratio", part(sum->blocks - sum->hits, sum), 4);
    json_real(json, "put_p50_us", hist_quantile(&sum->put_ns, 0.5) / 1e3, 1);
    json_real(json, "put_p99_us", hist_quantile(&sum->put_ns, 0.99) / 1e3, 1);
    json_count(json, "vanished", sum->vanished);
    json_count(json, "failed", sum->failed);
    json_count(json, "not_put", sum->not_put);
    json_count(json, "few_copies", sum->few_copies);
    json_count(json, "demoted", sum->demoted);
    json_count(json, "promoted", sum->promoted);
    json_count(json, "dropped", sum->dropped);
    if (kill != NULL) {
        kill_json(json, opt, sum, kill);
    }
}

static void tier_text(const char *name, uint64_t n, const tally_t *sum, const char *what)
{
    printf("    %-10s%" PRIu64 " (%.1f%%) %s\n", name, n, 100 * part(n, sum), what);
}

/* "after 12.3 ms", or "never". */
static void after_text(const char *what, uint64_t ns)
{
    if (ns != 0) {
        printf("              after %.1f ms %s\n", (double)ns / 1e6, what);
    } else {
        printf("              never: %s\n", what);
    }
}

static void kill_text(const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill)
{
    printf("  kill        rank %d after %.3f s; it had served %" PRIu64 " requests, which are not in the sums; %" PRIu64
           " of its\n              requests were taken over\n",
           opt->kill_rank, (double)kill->struck_ns / 1e9, kill->served, sum->taken_over);
    printf("              it held %" PRIu64 " blocks; of %" PRIu64 " looked at, %" PRIu64 " had another copy\n",
           kill->held, kill->alone + kill->watched, kill->watched);
    after_text("the death was detected", kill->noticed_ns);
    if (kill->watched == 0) {
        return;
    }
    after_text("each of these was fetched once, with right bytes", kill->first_ns);
    after_text("each of these was fetched from its other copy", kill->other_ns);
    if (opt->replicas > 1) {
        after_text("each had all its copies again", kill->repaired_ns);
    }
    printf("              %" PRIu64 " gets of them, the longest %.1f ms; %" PRIu64 " failed", kill->gets,
           (double)kill->longest_ns / 1e6, kill->failed);
    if (kill->failed != 0) {
        printf(", the last after %.1f ms", (double)kill->last_failed_ns / 1e6);
    }
    printf("; %" PRIu64 " blocks lost\n", kill->lost);
}

void tally_store_text(const replay_options_t *opt, const tally_t *sum, const kill_report_t *kill)
{
    tier_text("local", sum->local, sum, "from the rank's own pool");
    tier_text("remote", sum->remote, sum, "from other ranks' pools");
    tier_text("nvme", sum->nvme, sum, "from second tiers");
    tier_text("miss", sum->blocks - sum->hits, sum, "computed");
    printf("  copies      %" PRIu64 " requested; %" PRIu64 " blocks got fewer, %" PRIu64 " none; a put p50 %.1f us, "
           "p99 %.1f us\n",
           opt->replicas, sum->few_copies, sum->not_put, hist_quantile(&sum->put_ns, 0.5) / 1e3,
           hist_quantile(&sum->put_ns, 0.99) / 1e3);
    if (opt->nvme != NULL) {
        printf("  tier        %" PRIu64 " blocks written, %" PRIu64 " copied back, %" PRIu64 " dropped unwritten\n",
               sum->demoted, sum->promoted, sum->dropped);
    }
    if (sum->failed != 0) {
        printf("  failed      %" PRIu64 " blocks whose query, get or put failed with a failing rank\n", sum->failed);
    }
    if (kill != NULL) {
        kill_text(opt, sum, kill);
    }
}
