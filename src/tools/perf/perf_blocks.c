/*
 * Owns the blocks of a measurement: a cache on each side, the order of the blocks in the lists, the resulting list of
 * runs, and the bytes: block i of iteration k holds the pattern of (i, k).
 */
#include "config.h"
#include "tools/perf/perf.h"

#include "tools/pattern.h"

#include <stdlib.h>

#define SEED UINT64_C(0x6b76636c)

static uint64_t random_next(uint64_t *state)
{
    uint64_t x = (*state += UINT64_C(0x9e3779b97f4a7c15));

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint32_t *perf_make_ids(size_t n, bool shuffled, uint64_t seed)
{
    uint32_t *ids = malloc(n * sizeof(*ids));
    uint32_t swap;
    size_t   i, j;

    for (i = 0; (ids != NULL) && (i < n); ++i) {
        ids[i] = (uint32_t)i;
    }
    for (i = n; (ids != NULL) && shuffled && (i > 1); --i) {
        j          = (size_t)(random_next(&seed) % i);
        swap       = ids[i - 1];
        ids[i - 1] = ids[j];
        ids[j]     = swap;
    }
    return ids;
}

static bool adjacent(const perf_t *perf, size_t i)
{
    return !perf_in_parts(perf) && (perf->near_ids[i] == perf->near_ids[i - 1] + 1) &&
           (perf->far_ids[i] == perf->far_ids[i - 1] + 1);
}

size_t perf_count_runs(const perf_t *perf, size_t first, size_t n)
{
    size_t i, runs = (n != 0) ? 1 : 0;

    for (i = first + 1; i < first + n; ++i) {
        runs += adjacent(perf, i) ? 0u : 1u;
    }
    return runs;
}

uint64_t perf_touched(const perf_t *perf)
{
    if (perf->test->batched || perf_in_parts(perf)) {
        return perf->opt->batch * perf->opt->threads;
    }
    /* Threads divide the blocks among themselves; each thread matches a whole chain of keys. */
    return perf->test->bytes ? perf->opt->count : perf->opt->count * perf->opt->threads;
}

/* The runs that a transport has to move: blocks adjacent on both sides are one run, unless each is moved alone. */
static bool make_runs(perf_t *perf)
{
    const size_t     n = (size_t)perf->opt->count;
    kvcl_floor_run_t *run;
    size_t           i;

    perf->n_runs = perf_count_runs(perf, 0, n);
    perf->runs   = calloc(perf->n_runs, sizeof(*perf->runs));
    run          = perf->runs;
    for (i = 0; (run != NULL) && (i < n); ++i) {
        if ((i != 0) && adjacent(perf, i)) {
            run->len += perf->opt->unit;
            continue;
        }
        run        += (i != 0) ? 1 : 0;
        run->local  = perf->near_base + (perf->near_ids[i] * perf->opt->unit);
        run->remote = perf->far_ids[i] * perf->opt->unit;
        run->len    = perf->opt->unit;
    }
    return perf->runs != NULL;
}

static bool make_cache(perf_t *perf, const char *name, kvcl_cache_h *cache_p, uint8_t **base_p)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(perf->opt->count, (uint32_t)perf->opt->unit);
    const kvcl_cache_params_t writable = {.size = sizeof(writable), .flags = KVCL_CACHE_WRITABLE};

    if (!job_ok(perf->job, kvcl_cache_create(perf->job->ctx, name, &layout, &writable, cache_p),
                "kvcl_cache_create")) {
        return false;
    }
    *base_p = kvcl_cache_base(*cache_p, 0);
    return true;
}

bool perf_blocks_open(perf_t *perf)
{
    const size_t n = (size_t)perf->opt->count;

    perf->n_part   = n;
    perf->near_ids = perf_make_ids(n, perf->opt->random, SEED);
    perf->far_ids  = perf_make_ids(n, perf->opt->random, SEED + 1);
    if ((perf->near_ids == NULL) || (perf->far_ids == NULL)) {
        job_complain(perf->job, "out of memory");
        return false;
    }
    if (perf->initiator || (perf->test->drive != NULL)) {
        if (!make_cache(perf, "blocks", &perf->near, &perf->near_base)) {
            return false;
        }
        perf_fill(perf, perf->near_base, perf->near_ids);
        if (!make_runs(perf)) {
            job_complain(perf->job, "out of memory");
            return false;
        }
    }
    if (perf->target && (perf->test->drive == NULL)) {
        if (!make_cache(perf, perf->self ? "far blocks" : "blocks", &perf->far, &perf->far_base)) {
            return false;
        }
        perf_fill(perf, perf->far_base, perf->far_ids);
    }
    return true;
}

void perf_blocks_close(perf_t *perf)
{
    kvcl_store_close(perf->store);
    kvcl_cache_destroy(perf->near);
    kvcl_cache_destroy(perf->far);
    free(perf->near_ids);
    free(perf->far_ids);
    free(perf->runs);
    free(perf->keys);
}

void perf_fill(const perf_t *perf, uint8_t *base, const uint32_t *ids)
{
    uint8_t  seed[32];
    uint64_t i;

    for (i = 0; i < perf->opt->count; ++i) {
        pattern_seed(i, perf->iter, seed);
        pattern_fill(seed, base + (ids[i] * perf->opt->unit), (size_t)perf->opt->unit);
    }
}

uint64_t perf_check(const perf_t *perf, const uint8_t *base, const uint32_t *ids)
{
    uint64_t wrong = 0, i;
    uint8_t  seed[32];

    for (i = perf->part; i < perf->part + perf->n_part; ++i) {
        pattern_seed(i, perf->iter, seed);
        wrong += (pattern_check(seed, base + (ids[i] * perf->opt->unit), (size_t)perf->opt->unit) == PATTERN_GOOD) ? 0u
                                                                                                                 : 1u;
    }
    return wrong;
}
