/*
 * One iteration of each test that has patterns: an operation towards each target, all posted before the first wait. A
 * rank begins with the target after itself, so that with the pattern all not every rank begins with rank 0.
 */
#include "config.h"
#include "tools/perf/flows/flows.h"

#define SEND_TAG UINT64_C(0x666c6f77)

typedef kvcl_status_t (*post_t)(flows_t *flows, size_t k, const kvcl_xfer_params_t *params, kvcl_req_h *req_p);

static kvcl_sel_t region(const flows_t *flows, size_t place)
{
    const size_t     count = (size_t)flows->opt->count;
    const kvcl_sel_t sel   = {.blocks = flows->into_ids + (place * count), .n_blocks = count};

    return sel;
}

static kvcl_sel_t whole(const flows_t *flows)
{
    const kvcl_sel_t sel = {.blocks = flows->from_ids, .n_blocks = (size_t)flows->opt->count};

    return sel;
}

/* The first target above this rank; 0 if there is none. */
static size_t first_target(const flows_t *flows)
{
    size_t k;

    for (k = 0; k < flows->n_targets; ++k) {
        if (flows->targets[k] > flows->job->rank) {
            return k;
        }
    }
    return 0;
}

/* Post to each target; the requests follow the n that are posted already. Wait for all of them. */
static bool post_all(flows_t *flows, post_t post, const char *what, size_t n, kvcl_status_t status)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    const size_t       first  = first_target(flows);
    kvcl_status_t      ended;
    size_t             i;

    params.timeout_ns = PERF_TIMEOUT_NS;
    for (i = 0; (i < flows->n_targets) && (status == KVCL_OK); ++i) {
        status = post(flows, (first + i) % flows->n_targets, &params, &flows->reqs[n]);
        n += (status == KVCL_OK) ? 1 : 0;
    }
    if (!job_ok(flows->job, status, what)) { /* its sentence is the last one */
        for (i = 0; i < n; ++i) {
            kvcl_req_cancel(flows->reqs[i]);
        }
    }
    for (i = 0; i < n; ++i) {
        ended = job_finish(flows->reqs[i], PERF_TIMEOUT_NS);
        if ((status == KVCL_OK) && !job_ok(flows->job, ended, what)) {
            status = ended;
        }
    }
    return status == KVCL_OK;
}

static kvcl_status_t post_get(flows_t *flows, size_t k, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const kvcl_sel_t   far = whole(flows), near = region(flows, k);
    kvcl_xfer_params_t named = *params;

    named.remote_cache = "from";
    return kvcl_get(flows->job->world, flows->targets[k], flows->into, &far, &near, &named, req_p);
}

static kvcl_status_t post_put(flows_t *flows, size_t k, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const size_t       place = flow_kind_place(flows->opt->pattern, flows->job->rank, flows->targets[k]);
    const kvcl_sel_t   near = whole(flows), far = region(flows, place);
    kvcl_xfer_params_t named = *params;

    named.remote_cache = "into";
    return kvcl_put(flows->job->world, flows->targets[k], flows->from, &near, &far, &named, req_p);
}

static kvcl_status_t post_send(flows_t *flows, size_t k, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const kvcl_sel_t near = whole(flows);

    return kvcl_send(flows->job->world, flows->targets[k], SEND_TAG, flows->from, &near, params, req_p);
}

static kvcl_status_t post_store_get(flows_t *flows, size_t k, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const size_t     count = (size_t)flows->opt->count;
    const kvcl_key_t *keys = flows->keys + ((size_t)flows->targets[k] * count);
    const kvcl_sel_t near  = region(flows, k);

    return kvcl_store_get(flows->store, keys, count, flows->into, near.blocks, NULL, params, req_p);
}

static bool get_once(flows_t *flows)
{
    return post_all(flows, post_get, "kvcl_get", 0, KVCL_OK);
}

static bool put_once(flows_t *flows)
{
    return post_all(flows, post_put, "kvcl_put", 0, KVCL_OK);
}

static bool send_once(flows_t *flows)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status = KVCL_OK;
    size_t             n;

    params.timeout_ns = PERF_TIMEOUT_NS;
    for (n = 0; (n < flows->n_initiators) && (status == KVCL_OK); n += (status == KVCL_OK) ? 1 : 0) {
        const kvcl_sel_t far = region(flows, n);

        status = kvcl_recv(flows->job->world, flows->initiators[n], SEND_TAG, flows->into, &far, &params,
                           &flows->reqs[n]);
    }
    return post_all(flows, post_send, "kvcl_send and kvcl_recv", n, status);
}

/* It succeeds only if every block has arrived. */
static bool store_get_once(flows_t *flows)
{
    return post_all(flows, post_store_get, "kvcl_store_get", 0, KVCL_OK);
}

const flow_op_t flow_get       = {.reads = true, .once = get_once};
const flow_op_t flow_put       = {.once = put_once};
const flow_op_t flow_send      = {.once = send_once};
const flow_op_t flow_store_get = {.reads = true, .keys = true, .once = store_get_once};
