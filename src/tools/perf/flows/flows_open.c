/*
 * Owns the blocks of a measurement with a pattern: who moves with whom, the two caches, the orders, the keys and the
 * bytes.
 */
#include "config.h"
#include "tools/perf/flows/flows.h"

#include "tools/pattern.h"

#include <stdlib.h>
#include <string.h>

#define SEED            UINT64_C(0x6b76636c)
#define PUBLISH_AT_ONCE 4096u
#define ENTRIES_MIN     65536u

static bool no_memory(const flows_t *flows)
{
    job_complain(flows->job, "out of memory");
    return false;
}

static bool find_peers(flows_t *flows)
{
    const size_t size = (size_t)flows->job->size;
    const int    me   = flows->job->rank;
    int          i;

    flows->targets    = calloc(size, sizeof(*flows->targets));
    flows->initiators = calloc(size, sizeof(*flows->initiators));
    flows->reqs       = calloc(2 * size, sizeof(*flows->reqs));
    if ((flows->targets == NULL) || (flows->initiators == NULL) || (flows->reqs == NULL)) {
        return no_memory(flows);
    }
    for (i = 0; i < flows->job->size; ++i) {
        if (flow_kind_initiates(flows->opt->pattern, me, i)) {
            flows->targets[flows->n_targets++] = i;
        }
        if (flow_kind_initiates(flows->opt->pattern, i, me)) {
            flows->initiators[flows->n_initiators++] = i;
        }
    }
    return true;
}

/* Both orders are the same on all ranks. */
static bool make_orders(flows_t *flows)
{
    const uint64_t count   = flows->opt->count;
    const uint64_t regions = (uint64_t)flows->job->size - 1;
    uint32_t       *first;
    uint64_t       i;
    bool           good;

    if (count > UINT32_MAX / regions) {
        job_complain(flows->job, "--count: %llu blocks for each of %llu other ranks are more than a cache can have",
                     (unsigned long long)count, (unsigned long long)regions);
        return false;
    }
    flows->from_ids = perf_make_ids((size_t)count, flows->opt->random, SEED);
    first           = perf_make_ids((size_t)count, flows->opt->random, SEED + 1);
    flows->into_ids = calloc((size_t)(count * regions), sizeof(*flows->into_ids));
    for (i = 0; (first != NULL) && (flows->into_ids != NULL) && (i < count * regions); ++i) {
        flows->into_ids[i] = first[i % count] + (uint32_t)((i / count) * count);
    }
    good = (first != NULL) && (flows->into_ids != NULL) && (flows->from_ids != NULL);
    free(first);
    return good || no_memory(flows);
}

static bool make_cache(const flows_t *flows, const char *name, size_t regions, kvcl_cache_h *cache_p, uint8_t **base_p)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES((uint32_t)(flows->opt->count * regions), (uint32_t)flows->opt->unit);
    const kvcl_cache_params_t writable = {.size = sizeof(writable), .flags = KVCL_CACHE_WRITABLE};

    if (regions == 0) {
        return true;
    }
    if (!job_ok(flows->job, kvcl_cache_create(flows->job->ctx, name, &layout, &writable, cache_p),
                "kvcl_cache_create")) {
        return false;
    }
    *base_p = kvcl_cache_base(*cache_p, 0);
    return true;
}

static bool make_caches(flows_t *flows)
{
    const uint64_t bytes  = flows->opt->count * flows->opt->unit;
    const size_t   leaves = flows->test->flow->reads ? flows->n_initiators : flows->n_targets;
    size_t         arrive;

    (void)flows_arrivals(flows, &arrive);
    if (!make_cache(flows, "from", (leaves > 0) ? 1 : 0, &flows->from, &flows->from_base) ||
        !make_cache(flows, "into", arrive, &flows->into, &flows->into_base)) {
        return false;
    }
    if (flows->opt->floor && (flows->n_targets > 0)) {
        flows->copy = malloc((size_t)bytes * flows->n_targets);
        if (flows->copy == NULL) {
            return no_memory(flows);
        }
        memset(flows->copy, 0x5a, (size_t)bytes * flows->n_targets);
    }
    return true;
}

static bool open_store(flows_t *flows)
{
    const uint64_t      all    = flows->opt->count * (uint64_t)flows->job->size;
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;

    flows->keys        = calloc((size_t)all, sizeof(*flows->keys));
    params.flags       = flows->opt->unsummed ? KVCL_STORE_NO_CHECKSUM : 0;
    params.dir_entries = (flows->opt->count * 4 > ENTRIES_MIN) ? flows->opt->count * 4 : ENTRIES_MIN;
    if (flows->keys == NULL) {
        return no_memory(flows);
    }
    return job_ok(flows->job, kvcl_store_open(flows->job->world, &params, &flows->store), "kvcl_store_open");
}

bool flows_open(flows_t *flows)
{
    const bool good = find_peers(flows) && make_orders(flows) && make_caches(flows);

    /* A rank without memory ends the others here: they would wait for it below. */
    return job_agree(flows->job, good, PERF_TIMEOUT_NS) && (!flows->test->flow->keys || open_store(flows));
}

void flows_close(flows_t *flows)
{
    kvcl_store_close(flows->store);
    kvcl_cache_destroy(flows->from);
    kvcl_cache_destroy(flows->into);
    free(flows->targets);
    free(flows->initiators);
    free(flows->from_ids);
    free(flows->into_ids);
    free(flows->reqs);
    free(flows->keys);
    free(flows->copy);
}

static void seed_of(const flows_t *flows, int rank, uint64_t block, uint8_t seed[32])
{
    pattern_seed(((uint64_t)rank << 32) | block, flows->iter, seed);
}

static bool publish(flows_t *flows)
{
    const size_t       count  = (size_t)flows->opt->count;
    const kvcl_key_t   *mine  = flows->keys + ((size_t)flows->job->rank * count);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;
    size_t             at, n;

    params.timeout_ns = PERF_TIMEOUT_NS;
    status            = kvcl_store_withdraw(flows->store, flows->from, flows->from_ids, count);
    for (at = 0; (at < count) && (status == KVCL_OK); at += n) {
        n      = (count - at < PUBLISH_AT_ONCE) ? count - at : PUBLISH_AT_ONCE;
        status = kvcl_store_publish(flows->store, mine + at, n, flows->from, flows->from_ids + at, &params, &req);
        status = (status == KVCL_OK) ? job_finish(req, PERF_TIMEOUT_NS) : status;
    }
    return job_ok(flows->job, status, "kvcl_store_publish");
}

static void make_keys(flows_t *flows)
{
    const uint64_t all = flows->opt->count * (uint64_t)flows->job->size;
    uint64_t       name[2], i;

    for (i = 0; i < all; ++i) {
        name[0] = flows->iter;
        name[1] = i;
        kvcl_key_from_string(name, sizeof(name), &flows->keys[i]);
    }
}

bool flows_renew(flows_t *flows)
{
    const size_t unit = (size_t)flows->opt->unit;
    uint8_t      seed[32];
    uint64_t     i;

    if (flows->test->flow->keys) {
        make_keys(flows);
    }
    if (flows->from == NULL) {
        return true;
    }
    for (i = 0; i < flows->opt->count; ++i) {
        seed_of(flows, flows->job->rank, i, seed);
        pattern_fill(seed, flows->from_base + (flows->from_ids[i] * unit), unit);
    }
    return !flows->test->flow->keys || publish(flows);
}

uint64_t flows_check(const flows_t *flows)
{
    const size_t   unit  = (size_t)flows->opt->unit;
    const uint64_t count = flows->opt->count;
    uint64_t       wrong = 0, i;
    uint8_t        seed[32];
    size_t         n, k;
    const int      *ranks = flows_arrivals(flows, &n);
    const uint8_t  *block;

    for (k = 0; k < n; ++k) {
        for (i = 0; i < count; ++i) {
            block = flows->into_base + (flows->into_ids[(k * count) + i] * unit);
            seed_of(flows, ranks[k], i, seed);
            wrong += (pattern_check(seed, block, unit) == PATTERN_GOOD) ? 0u : 1u;
        }
    }
    return wrong;
}
