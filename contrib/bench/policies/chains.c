/*
 * Converts a trace to numbered keys, parents and next uses, and runs a policy over them (chains.h). Owns the arrays.
 */
#include "config.h"
#include "chains.h"

#include "tools/replay/idmap.h"

#include <stdlib.h>

void chains_free(chains_t *chains)
{
    free(chains->ids);
    free(chains->first);
    free(chains->parent);
    free(chains->next);
}

/* Number the ids; a block's parent is the block before it at its first occurrence. */
static bool number(chains_t *chains, const trace_t *trace)
{
    idmap_t  map;
    size_t   r, i;
    uint32_t key, before;
    bool     new;

    idmap_init(&map);
    for (r = 0; r < trace->n_requests; ++r) {
        const trace_request_t *request = &trace->requests[r];
        chains->first[r] = (uint32_t)request->first;
        chains->longest  = (request->n > chains->longest) ? request->n : chains->longest;
        for (i = 0, before = POOL_NONE; i < request->n; ++i, before = key) {
            key = idmap_number(&map, trace->ids[request->first + i], 0, &new);
            if (key == IDMAP_NONE) {
                idmap_free(&map);
                return false;
            }
            chains->ids[request->first + i] = key;
            chains->parent[key] = new ? before : chains->parent[key];
        }
    }
    chains->first[r] = (uint32_t)trace->n_ids;
    chains->n_keys   = map.n;
    idmap_free(&map);
    return true;
}

bool chains_make(chains_t *chains, const trace_t *trace)
{
    uint32_t *later, r, i;

    *chains = (chains_t){.n_ids = (uint32_t)trace->n_ids, .n_requests = (uint32_t)trace->n_requests};
    chains->ids    = calloc(trace->n_ids + 1, sizeof(*chains->ids));
    chains->first  = calloc(trace->n_requests + 1, sizeof(*chains->first));
    chains->parent = calloc(trace->n_ids + 1, sizeof(*chains->parent));
    chains->next   = calloc(trace->n_ids + 1, sizeof(*chains->next));
    later          = calloc(trace->n_ids + 1, sizeof(*later)); /* by key: the next request that names it, plus one */
    if ((chains->ids == NULL) || (chains->first == NULL) || (chains->parent == NULL) || (chains->next == NULL) ||
        (later == NULL) || !number(chains, trace)) {
        free(later);
        return false;
    }
    for (r = chains->n_requests; r-- > 0;) {
        for (i = chains->first[r + 1]; i-- > chains->first[r];) {
            chains->next[i] = later[chains->ids[i]] - 1; /* POOL_NONE is 0 - 1 */
        }
        for (i = chains->first[r]; i < chains->first[r + 1]; ++i) {
            later[chains->ids[i]] = r + 1;
        }
    }
    free(later);
    return true;
}

static void request(pool_t *pool, uint32_t from, uint32_t to, bool *was_held, outcome_t *outcome)
{
    const uint32_t *ids = pool->chains->ids;
    uint32_t       i, run = from, n_new = 0;
    unsigned       uses = (pool->policy->uses == 0) ? 1 : pool->policy->uses;

    for (i = from; i < to; ++i) {
        was_held[i - from] = pool->held[ids[i]];
        run   += ((run == i) && pool->held[ids[i]]) ? 1 : 0;
        n_new += was_held[i - from] ? 0 : 1;
    }
    outcome->run_hits   += run - from;
    outcome->block_hits += to - from - n_new;
    while (uses-- > 1) { /* a get of the run, after the match */
        for (i = run; i-- > from;) {
            pool->policy->use(pool, ids[i], i);
        }
    }
    for (i = to; i-- > from;) {
        if (was_held[i - from]) {
            pool->policy->use(pool, ids[i], i);
        }
    }
    if (pool->policy->room != NULL) {
        pool->policy->room(pool, (n_new < pool->capacity) ? n_new : pool->capacity);
    }
    for (i = to; i-- > from;) {
        if (!was_held[i - from] && !pool->held[ids[i]]) { /* twice in one request, it is inserted once */
            pool->policy->add(pool, ids[i], i);
        }
    }
}

bool chains_run(const chains_t *chains, const policy_t *policy, uint32_t capacity, outcome_t *outcome)
{
    pool_t   *pool     = pool_open(policy, chains, capacity);
    bool     *was_held = calloc((size_t)chains->longest + 1, sizeof(*was_held));
    uint32_t r;

    *outcome = (outcome_t){.run_hits = 0};
    if ((pool == NULL) || (was_held == NULL)) {
        pool_close(pool);
        free(was_held);
        return false;
    }
    for (r = 0; r < chains->n_requests; ++r) {
        request(pool, chains->first[r], chains->first[r + 1], was_held, outcome);
    }
    outcome->evicted = pool->evicted;
    outcome->orphans = pool->orphans;
    pool_close(pool);
    free(was_held);
    return true;
}
