/*
 * The point-to-point tests: send, put, get. One iteration is one operation on the slice's whole block list.
 */
#include "config.h"
#include "tools/perf/perf_tests.h"

#define SEND_TAG UINT64_C(0x73656e64)

static void select_blocks(const perf_slice_t *slice, kvcl_sel_t *near, kvcl_sel_t *far)
{
    const kvcl_sel_t none = {.blocks = NULL};

    *near          = none;
    *far           = none;
    near->blocks   = slice->perf->near_ids + slice->first;
    far->blocks    = slice->perf->far_ids + slice->first;
    near->n_blocks = slice->n;
    far->n_blocks  = slice->n;
}

/* Both sides' caches have one name, unless one process has both. */
static const char *far_name(const perf_t *perf)
{
    return perf->self ? "far blocks" : NULL;
}

static bool move(perf_slice_t *slice, bool get)
{
    perf_t             *perf  = slice->perf;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    const char         *what  = get ? "kvcl_get" : "kvcl_put";
    kvcl_req_h         req    = NULL;
    kvcl_sel_t         near, far;
    kvcl_status_t      status;
    uint64_t           start;

    select_blocks(slice, &near, &far);
    params.timeout_ns   = PERF_TIMEOUT_NS;
    params.remote_cache = far_name(perf);
    start               = perf_post_begin(slice);
    status              = get ? kvcl_get(perf->job->world, perf->peer, perf->near, &far, &near, &params, &req)
                              : kvcl_put(perf->job->world, perf->peer, perf->near, &near, &far, &params, &req);
    perf_post_end(slice, start);
    return job_ok(perf->job, status, what) && job_ok(perf->job, job_finish(req, PERF_TIMEOUT_NS), what);
}

bool perf_get_op(perf_slice_t *slice)
{
    return move(slice, true);
}

bool perf_put_op(perf_slice_t *slice)
{
    return move(slice, false);
}

static bool post_recv(perf_t *perf, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         far    = {.blocks = perf->far_ids, .n_blocks = (size_t)perf->opt->count};

    params.timeout_ns = PERF_TIMEOUT_NS;
    return job_ok(perf->job, kvcl_recv(perf->job->world, 0, SEND_TAG, perf->far, &far, &params, req_p), "kvcl_recv");
}

bool perf_send_target(perf_t *perf)
{
    kvcl_req_h req = NULL;

    return post_recv(perf, &req) && job_ok(perf->job, job_finish(req, PERF_TIMEOUT_NS), "kvcl_recv");
}

bool perf_send_op(perf_slice_t *slice)
{
    perf_t             *perf  = slice->perf;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL, recv_req = NULL;
    kvcl_sel_t         near, far;
    kvcl_status_t      status;
    uint64_t           start;

    select_blocks(slice, &near, &far);
    params.timeout_ns = PERF_TIMEOUT_NS;
    if (perf->self && !post_recv(perf, &recv_req)) {
        return false;
    }
    start  = perf_post_begin(slice);
    status = kvcl_send(perf->job->world, perf->peer, SEND_TAG, perf->near, &near, &params, &req);
    perf_post_end(slice, start);
    return job_ok(perf->job, status, "kvcl_send") && job_ok(perf->job, job_finish(req, PERF_TIMEOUT_NS), "kvcl_send") &&
           ((recv_req == NULL) || job_ok(perf->job, job_finish(recv_req, PERF_TIMEOUT_NS), "kvcl_recv"));
}

/* The side that owns the bytes fills them again. */
bool perf_renew_far(perf_t *perf)
{
    if (perf->target) {
        perf_fill(perf, perf->far_base, perf->far_ids);
    }
    return true;
}

bool perf_renew_near(perf_t *perf)
{
    if (perf->initiator) {
        perf_fill(perf, perf->near_base, perf->near_ids);
    }
    return true;
}

uint64_t perf_check_near(perf_t *perf)
{
    return perf_check(perf, perf->near_base, perf->near_ids);
}

uint64_t perf_check_far(perf_t *perf)
{
    return perf_check(perf, perf->far_base, perf->far_ids);
}
