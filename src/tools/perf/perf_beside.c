/*
 * Owns the bulk transfer that runs during a measurement (--beside): separate caches on both sides, and a thread of the
 * initiator that gets all its blocks repeatedly, in the background class, from start to stop. Its bytes are unchecked.
 */
#include "config.h"
#include "tools/perf/perf.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct perf_beside {
    perf_t       *perf;
    kvcl_cache_h near;
    kvcl_cache_h far;
    uint32_t     *ids;
    size_t       n;
    pthread_t    thread;
    bool         running;
    atomic_bool  stop;
    bool         good; /* the thread's, read after it was joined */
    uint64_t     bytes;
    uint64_t     ns;
};

static bool make_cache(const perf_beside_t *beside, const char *name, kvcl_cache_h *cache_p)
{
    const job_t         *job   = beside->perf->job;
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(beside->n, (uint32_t)PERF_BESIDE_BLOCK);
    const kvcl_cache_params_t writable = {.size = sizeof(writable), .flags = KVCL_CACHE_WRITABLE};

    return job_ok(job, kvcl_cache_create(job->ctx, name, &layout, &writable, cache_p), "kvcl_cache_create");
}

bool perf_beside_open(perf_t *perf)
{
    perf_beside_t *beside = calloc(1, sizeof(*beside));
    size_t        i;

    if (beside == NULL) {
        job_complain(perf->job, "out of memory");
        return false;
    }
    perf->beside = beside;
    beside->perf = perf;
    beside->n    = (size_t)(perf->opt->beside / PERF_BESIDE_BLOCK);
    beside->ids  = malloc(beside->n * sizeof(*beside->ids));
    for (i = 0; (beside->ids != NULL) && (i < beside->n); ++i) {
        beside->ids[i] = (uint32_t)i;
    }
    return (beside->ids != NULL) && (!perf->initiator || make_cache(beside, "bulk", &beside->near)) &&
           (!perf->target || make_cache(beside, perf->self ? "far bulk" : "bulk", &beside->far));
}

static bool get_all(perf_beside_t *beside)
{
    const job_t        *job   = beside->perf->job;
    const kvcl_sel_t   all    = {.blocks = beside->ids, .n_blocks = beside->n};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;

    params.flags        = KVCL_BACKGROUND;
    params.timeout_ns   = PERF_TIMEOUT_NS;
    params.remote_cache = beside->perf->self ? "far bulk" : NULL;
    return job_ok(job, kvcl_get(job->world, beside->perf->peer, beside->near, &all, &all, &params, &req),
                  "kvcl_get beside") &&
           job_ok(job, job_finish(req, PERF_TIMEOUT_NS), "kvcl_get beside");
}

static void *repeat(void *arg)
{
    perf_beside_t *beside = arg;
    uint64_t      start;

    beside->good = true;
    while (beside->good && !atomic_load(&beside->stop)) {
        start        = clock_ns();
        beside->good = get_all(beside);
        beside->ns += clock_ns() - start;
        beside->bytes += beside->n * PERF_BESIDE_BLOCK;
    }
    return NULL;
}

bool perf_beside_start(perf_t *perf)
{
    perf_beside_t *beside = perf->beside;

    atomic_store(&beside->stop, false);
    beside->running = (pthread_create(&beside->thread, NULL, repeat, beside) == 0);
    if (!beside->running) {
        job_complain(perf->job, "cannot start the thread of the bulk transfer");
    }
    return beside->running;
}

bool perf_beside_stop(perf_t *perf)
{
    perf_beside_t *beside = perf->beside;

    if (!beside->running) {
        return true;
    }
    atomic_store(&beside->stop, true);
    pthread_join(beside->thread, NULL);
    beside->running = false;
    return beside->good;
}

double perf_beside_gbps(const perf_t *perf)
{
    return (double)perf->beside->bytes / (double)perf->beside->ns;
}

void perf_beside_close(perf_t *perf)
{
    perf_beside_t *beside = perf->beside;

    if (beside == NULL) {
        return;
    }
    (void)perf_beside_stop(perf);
    kvcl_cache_destroy(beside->near);
    kvcl_cache_destroy(beside->far);
    free(beside->ids);
    free(beside);
    perf->beside = NULL;
}
