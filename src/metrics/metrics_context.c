/*
 * kvcl_build_info, kvcl_context_* and kvcl_call_duration_seconds (metrics_context.h). Owns the table of the context's
 * numbers, and the choice of the library's buckets: those that end at a power of two nanoseconds.
 */
#include "config.h"
#include "metrics/metrics_context.h"

#include "metrics/metrics_text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ROW(_field, _metric, _help) {"kvcl_context_" _metric "_total", offsetof(kvcl_context_stats_t, _field), _help}

static const struct {
    const char *name;
    size_t     offset;
    const char *help;
} rows[] = {
    ROW(bytes_in, "in_bytes", "Payload bytes fetched or received."),
    ROW(bytes_out, "out_bytes", "Payload bytes sent, written or served."),
    ROW(bytes_served, "served_bytes", "Payload bytes sent for gets of peers."),
    ROW(bytes_native, "native_bytes", "Payload bytes got or put natively by this rank."),
    ROW(ops, "operations", "Operations completed."),
    ROW(strangers, "strangers", "Dropped messages whose sender has not proven the job's secret."),
    ROW(malformed, "malformed", "Dropped messages with invalid content."),
    ROW(refused, "refused", "Sends and gets of peers refused because a peer made this rank hold too much."),
    ROW(late, "late", "Dropped frames of operations that had ended."),
};

/* The version of UCX in the text of the build, which has parts "name version" between "; ". Empty: none. */
static void find_ucx(char *ucx, size_t size)
{
    static const char name[] = "; ucx ";
    const char        *at    = strstr(kvcl_build_string(), name);

    at = (at != NULL) ? at + sizeof(name) - 1 : "";
    snprintf(ucx, size, "%.*s", (int)strcspn(at, ";"), at);
}

static void print_build(FILE *file)
{
    char ucx[KVCL_METRIC_VALUE_MAX / 2], value[KVCL_METRIC_VALUE_MAX];

    find_ucx(ucx, sizeof(ucx));
    kvcl_metric_family(file, "kvcl_build_info", "gauge",
                       "Always 1; its labels: the versions of KVCL and the loaded UCX.");
    fprintf(file, "kvcl_build_info{version=\"%s\",", kvcl_metric_value(value, kvcl_version_string()));
    fprintf(file, "ucx=\"%s\"} 1\n", kvcl_metric_value(value, ucx));
}

typedef struct latency {
    FILE *file;
    int  rank;
} latency_t;

static void print_latency(void *arg, const kvcl_latency_info_t *info)
{
    const latency_t *to   = arg;
    uint64_t        below = 0;
    size_t          i;

    for (i = 0; i < info->n_buckets; ++i) {
        const uint64_t bound = info->bounds_ns[i];
        below += info->counts[i];
        if ((bound != UINT64_MAX) && ((bound & (bound - 1)) == 0)) {
            kvcl_metric_count(to->file, "kvcl_call_duration_seconds_bucket", below,
                              "rank=\"%d\",op=\"%s\",path=\"%s\",le=\"%.12g\"", to->rank, info->op, info->path,
                              (double)bound / 1e9);
        }
    }
    kvcl_metric_count(to->file, "kvcl_call_duration_seconds_bucket", below,
                      "rank=\"%d\",op=\"%s\",path=\"%s\",le=\"+Inf\"", to->rank, info->op, info->path);
    fprintf(to->file, "kvcl_call_duration_seconds_sum{rank=\"%d\",op=\"%s\",path=\"%s\"} %.9f\n", to->rank, info->op,
            info->path, (double)info->sum_ns / 1e9);
    kvcl_metric_count(to->file, "kvcl_call_duration_seconds_count", below, "rank=\"%d\",op=\"%s\",path=\"%s\"",
                      to->rank, info->op, info->path);
}

#define VIEW(_field, _metric, _type, _help) \
    {"kvcl_view_" _metric, _type, offsetof(kvcl_view_stats_t, _field), sizeof(((kvcl_view_stats_t *)0)->_field), _help}

static const struct {
    const char *name, *type;
    size_t     offset, size;
    const char *help;
} views[] = {
    VIEW(view, "number", "gauge", "The number of this rank's view."),
    VIEW(members, "members", "gauge", "Ranks in the view."),
    VIEW(slots, "slots", "gauge", "Ranks of the world."),
    VIEW(suspected, "suspected", "gauge", "Members that are suspected."),
    VIEW(lease, "lease", "gauge", "1: a quorum answers this rank."),
    VIEW(changes, "changes_total", "counter", "New views."),
    VIEW(suspicions, "suspicions_total", "counter", "Times that a rank was suspected."),
    VIEW(false_suspicions, "false_suspicions_total", "counter", "Suspected ranks that were heard again."),
    VIEW(fenced, "fenced_total", "counter", "Silent processes that this rank has killed."),
    VIEW(change_ns, "change_nanoseconds_total", "counter", "Time from failures to the views without them."),
};

/* The members of the world that this rank suspects. */
static void print_suspects(FILE *file, int rank, kvcl_comm_h world, const unsigned char *active, int n)
{
    kvcl_rank_state_t state;
    int               i;

    kvcl_metric_family(file, "kvcl_view_suspect", "gauge", "1: the rank is a member, and silent to this one.");
    for (i = 0; i < n; ++i) {
        if (kvcl_rank_state(world, i, &state) == KVCL_OK) {
            kvcl_metric_count(file, "kvcl_view_suspect", (active[i] != 0) && (state == KVCL_RANK_SUSPECT),
                              "rank=\"%d\",of=\"%d\"", rank, i);
        }
    }
}

/* The mask of the world. */
static void print_active(FILE *file, int rank, kvcl_context_h ctx)
{
    unsigned char *active = NULL;
    kvcl_comm_h   world;
    int           n = 0, i;

    if (kvcl_comm_world(ctx, &world) == KVCL_OK) {
        n      = kvcl_comm_size(world);
        active = calloc((size_t)n + 1, 1);
    }
    if ((active != NULL) && (kvcl_comm_active(world, active, n, NULL) == KVCL_OK)) {
        kvcl_metric_family(file, "kvcl_view_active", "gauge", "1: the rank is a member, as this one knows.");
        for (i = 0; i < n; ++i) {
            kvcl_metric_count(file, "kvcl_view_active", active[i], "rank=\"%d\",of=\"%d\"", rank, i);
        }
        print_suspects(file, rank, world, active, n);
    }
    free(active);
}

/* Nothing without KVCL_VIEWS. */
static void print_views(FILE *file, int rank, kvcl_context_h ctx)
{
    kvcl_view_stats_t stats = KVCL_VIEW_STATS_INIT;
    uint64_t          value;
    int               small;
    size_t            i;

    if (kvcl_view_stats(ctx, &stats) != KVCL_OK) {
        return;
    }
    for (i = 0; i < sizeof(views) / sizeof(views[0]); ++i) {
        if (views[i].size == sizeof(small)) {
            memcpy(&small, (const char *)&stats + views[i].offset, sizeof(small));
            value = (uint64_t)small;
        } else {
            memcpy(&value, (const char *)&stats + views[i].offset, sizeof(value));
        }
        kvcl_metric_family(file, views[i].name, views[i].type, views[i].help);
        kvcl_metric_count(file, views[i].name, value, "rank=\"%d\"", rank);
    }
    print_active(file, rank, ctx);
}

void kvcl_metrics_context(FILE *file, int rank, kvcl_context_h ctx)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;
    latency_t            latency = {file, rank};
    uint64_t             value;
    size_t               i;

    print_build(file);
    if (kvcl_context_stats(ctx, &stats) != KVCL_OK) {
        return;
    }
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        memcpy(&value, (const char *)&stats + rows[i].offset, sizeof(value));
        kvcl_metric_family(file, rows[i].name, "counter", rows[i].help);
        kvcl_metric_count(file, rows[i].name, value, "rank=\"%d\"", rank);
    }
    print_views(file, rank, ctx);
    kvcl_metric_family(file, "kvcl_call_duration_seconds", "histogram",
                       "Latency of this rank's successful calls, by kind of call and path.");
    (void)!kvcl_query_latency(ctx, print_latency, &latency);
}
