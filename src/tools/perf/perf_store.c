/*
 * The store's tests: lookup (exists, in batches), match (the whole list as one chain), store-get, store-put. The target
 * publishes its blocks in place; keys are derived from numbers, so both sides can compute them.
 */
#include "config.h"
#include "tools/perf/perf_tests.h"

#include <stdlib.h>
#include <string.h>

#define PUBLISH_AT_ONCE 4096u
#define ENTRIES_MIN     65536u

static bool is_chain(const perf_t *perf)
{
    return perf->test->op == perf_match_op;
}

/* keys[first..first+n) of generation a.b. */
bool perf_make_keys(perf_t *perf, uint64_t a, uint64_t b, size_t first, size_t n)
{
    const uint64_t salt[2] = {a, b};
    uint64_t       name[3] = {a, b, 0};
    uint32_t       *tokens;
    kvcl_key_t     root;
    kvcl_status_t  status;
    size_t         i, got;

    if (!is_chain(perf)) {
        for (i = first; i < first + n; ++i) {
            name[2] = i;
            kvcl_key_from_string(name, sizeof(name), &perf->keys[i]);
        }
        return true;
    }
    tokens = malloc(n * sizeof(*tokens));
    if (tokens == NULL) {
        job_complain(perf->job, "out of memory");
        return false;
    }
    for (i = 0; i < n; ++i) {
        tokens[i] = (uint32_t)i;
    }
    kvcl_key_root(salt, sizeof(salt), "kvcl_perf", &root);
    status = kvcl_key_chain(&root, 0, tokens, n, 1, perf->keys, n, &got);
    free(tokens);
    return job_ok(perf->job, status, "kvcl_key_chain");
}

static bool publish(perf_t *perf)
{
    const size_t       count  = (size_t)perf->opt->count;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status = KVCL_OK;
    size_t             at, n;

    params.timeout_ns = PERF_TIMEOUT_NS;
    for (at = 0; (at < count) && (status == KVCL_OK); at += n) {
        n      = (count - at < PUBLISH_AT_ONCE) ? count - at : PUBLISH_AT_ONCE;
        status = kvcl_store_publish(perf->store, perf->keys + at, n, perf->far, perf->far_ids + at, &params, &req);
        status = (status == KVCL_OK) ? job_finish(req, PERF_TIMEOUT_NS) : status;
    }
    return job_ok(perf->job, status, "kvcl_store_publish");
}

bool perf_store_open(perf_t *perf)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;

    params.flags       = perf->opt->unsummed ? KVCL_STORE_NO_CHECKSUM : 0;
    perf->keys         = calloc((size_t)perf->opt->count, sizeof(*perf->keys));
    params.dir_entries = (perf->opt->count * 4 > ENTRIES_MIN) ? perf->opt->count * 4 : ENTRIES_MIN;
    if (perf->test->op == perf_store_put_op) {
        params.block_bytes = perf->opt->unit;
        params.dram_bytes  = (perf->opt->count * 2) * perf->opt->unit;
    }
    if (perf->keys == NULL) {
        job_complain(perf->job, "out of memory");
        return false;
    }
    if (!job_ok(perf->job, kvcl_store_open(perf->job->world, &params, &perf->store), "kvcl_store_open") ||
        !perf_make_keys(perf, 0, 0, 0, (size_t)perf->opt->count)) {
        return false;
    }
    return !perf->target || (perf->test->op == perf_store_put_op) || publish(perf);
}

/* The blocks of this iteration: all of the slice's, or its next batch. */
static void next_part(perf_slice_t *slice)
{
    perf_t *perf = slice->perf;

    slice->part   = slice->first;
    slice->n_part = slice->n;
    if (!perf_in_parts(perf)) {
        return;
    }
    slice->n_part = (size_t)perf->opt->batch;
    slice->cursor = (slice->cursor + slice->n_part > slice->n) ? 0 : slice->cursor;
    slice->part += slice->cursor;
    slice->cursor += slice->n_part;
    if (slice->index == 0) {
        perf->part   = slice->part;
        perf->n_part = slice->n_part;
    }
}

bool perf_lookup_op(perf_slice_t *slice)
{
    perf_t           *perf = slice->perf;
    const size_t     batch = (size_t)perf->opt->batch;
    const kvcl_key_t *keys;
    uint64_t         start;
    kvcl_status_t    status;
    size_t           i;

    slice->cursor  = (slice->cursor + batch > slice->n) ? 0 : slice->cursor;
    keys           = perf->keys + slice->first + slice->cursor;
    slice->cursor += batch;
    start          = perf_post_begin(slice);
    status         = kvcl_store_exists(perf->store, keys, batch, slice->present, NULL);
    perf_post_end(slice, start);
    for (i = 0; i < batch; ++i) {
        slice->wrong += (slice->present[i] == 1) ? 0u : 1u;
    }
    return job_ok(perf->job, status, "kvcl_store_exists");
}

bool perf_match_op(perf_slice_t *slice)
{
    perf_t         *perf = slice->perf;
    const uint64_t start = perf_post_begin(slice);
    size_t         hit   = 0;
    kvcl_status_t  status;

    /* A part of a chain is not a prefix: each thread matches the whole chain. */
    status = kvcl_store_match(perf->store, perf->keys, (size_t)perf->opt->count, &hit, NULL);
    perf_post_end(slice, start);
    slice->wrong += perf->opt->count - hit;
    return job_ok(perf->job, status, "kvcl_store_match");
}

/* One get for each block of this iteration; *n_p of them were posted. */
static kvcl_status_t post_apart(perf_slice_t *slice, const kvcl_xfer_params_t *params, size_t *n_p)
{
    perf_t        *perf  = slice->perf;
    kvcl_status_t status = KVCL_OK;
    size_t        n;

    for (n = 0; (status == KVCL_OK) && (n < slice->n_part); n += (status == KVCL_OK) ? 1 : 0) {
        status = kvcl_store_get(perf->store, perf->keys + slice->part + n, 1, perf->near,
                                perf->near_ids + slice->part + n, &slice->status[n], params, &slice->reqs[n]);
    }
    *n_p = n;
    return status;
}

static kvcl_status_t finish_all(const perf_slice_t *slice, size_t n, kvcl_status_t status)
{
    kvcl_status_t ended;
    size_t        i;

    for (i = 0; i < n; ++i) {
        ended  = job_finish(slice->reqs[i], PERF_TIMEOUT_NS);
        status = (status == KVCL_OK) ? ended : status;
    }
    return status;
}

bool perf_store_get_op(perf_slice_t *slice)
{
    perf_t             *perf  = slice->perf;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    size_t             i, n_reqs = 0;
    uint64_t           start;
    kvcl_status_t      status;

    next_part(slice);
    params.timeout_ns = PERF_TIMEOUT_NS;
    start             = perf_post_begin(slice);
    if (perf->opt->apart) {
        status = post_apart(slice, &params, &n_reqs);
    } else {
        status = kvcl_store_get(perf->store, perf->keys + slice->part, slice->n_part, perf->near,
                                perf->near_ids + slice->part, slice->status, &params, &slice->reqs[0]);
        n_reqs = (status == KVCL_OK) ? 1 : 0;
    }
    perf_post_end(slice, start);
    status = finish_all(slice, n_reqs, status);
    for (i = 0; (status == KVCL_OK) && (i < slice->n_part); ++i) {
        slice->wrong += (slice->status[i] == KVCL_OK) ? 0u : 1u;
    }
    return job_ok(perf->job, status, "kvcl_store_get");
}

/* A put of an existing key would do nothing, so each put has new keys. */
void perf_store_before_put(perf_slice_t *slice)
{
    next_part(slice);
    (void)perf_make_keys(slice->perf, slice->index + 1, ++slice->serial, slice->part, slice->n_part);
}

bool perf_store_put_op(perf_slice_t *slice)
{
    perf_t             *perf  = slice->perf;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    uint64_t           start  = perf_post_begin(slice);
    kvcl_status_t      status;

    params.timeout_ns = PERF_TIMEOUT_NS;
    status = kvcl_store_put(perf->store, perf->keys + slice->part, slice->n_part, perf->near,
                            perf->near_ids + slice->part, &params, &req);
    perf_post_end(slice, start);
    status = (status == KVCL_OK) ? job_finish(req, PERF_TIMEOUT_NS) : status;
    return job_ok(perf->job, status, "kvcl_store_put");
}

bool perf_store_renew_get(perf_t *perf)
{
    if (!perf_make_keys(perf, 0, perf->iter, 0, (size_t)perf->opt->count)) {
        return false;
    }
    if (!perf->target) {
        return true;
    }
    if (!job_ok(perf->job, kvcl_store_withdraw(perf->store, perf->far, perf->far_ids, (size_t)perf->opt->count),
                "kvcl_store_withdraw")) {
        return false;
    }
    perf_fill(perf, perf->far_base, perf->far_ids);
    return publish(perf);
}

/* A get must return the put bytes, into the same blocks, wiped before. */
uint64_t perf_store_check_put(perf_t *perf)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    uint64_t           wrong;
    kvcl_status_t      status;

    memset(perf->near_base, 0xff, (size_t)perf->opt->count * (size_t)perf->opt->unit);
    params.timeout_ns = PERF_TIMEOUT_NS;
    status = kvcl_store_get(perf->store, perf->keys + perf->part, perf->n_part, perf->near, perf->near_ids + perf->part,
                            NULL, &params, &req);
    status = (status == KVCL_OK) ? job_finish(req, PERF_TIMEOUT_NS) : status;
    if (!job_ok(perf->job, status, "kvcl_store_get")) {
        return perf->n_part;
    }
    wrong = perf_check(perf, perf->near_base, perf->near_ids);
    perf_fill(perf, perf->near_base, perf->near_ids); /* restores the other blocks for later puts */
    return wrong;
}
