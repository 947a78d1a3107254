/*
 * The floor on shared memory: UCX's put and get, and a memcpy through the mapping from ucp_rkey_ptr. The target sleeps.
 * Also the list of methods and the choice between them.
 */
#include "config.h"
#include "tools/perf/floor_impl.h"

#include <string.h>

#define RMA_WINDOW 64u

static void rma_done(void *request, ucs_status_t status, void *user_data)
{
    kvcl_floor_t *floor = user_data;

    ++floor->done;
    floor->broken = floor->broken || (status != UCS_OK);
    ucp_request_free(request);
}

static bool post(kvcl_floor_t *floor, ucs_status_ptr_t req)
{
    if (UCS_PTR_IS_ERR(req)) {
        return kvcl_floor_fail("get or put", UCS_PTR_STATUS(req));
    }
    ++floor->posted;
    floor->done += (req == NULL) ? 1u : 0u;
    return (floor->posted - floor->done < RMA_WINDOW) || kvcl_floor_drain(floor, RMA_WINDOW / 2);
}

static bool flush(kvcl_floor_t *floor)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb           = {.send = rma_done},
                                 .user_data    = floor};

    return post(floor, ucp_ep_flush_nbx(floor->ep, &param)) && kvcl_floor_drain(floor, 0);
}

bool kvcl_floor_rma_transfer(kvcl_floor_t *floor, bool put, const kvcl_floor_run_t *runs, size_t n)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb           = {.send = rma_done},
                                 .user_data    = floor};
    bool                good  = true;
    size_t              i;

    for (i = 0; good && (i < n); ++i) {
        if (put) {
            good = post(floor, ucp_put_nbx(floor->ep, runs[i].local, runs[i].len, floor->remote + runs[i].remote,
                                           floor->rkey, &param));
        } else {
            good = post(floor, ucp_get_nbx(floor->ep, runs[i].local, runs[i].len, floor->remote + runs[i].remote,
                                           floor->rkey, &param));
        }
    }
    return good && (put ? flush(floor) : kvcl_floor_drain(floor, 0));
}

void kvcl_floor_map_transfer(kvcl_floor_t *floor, bool put, const kvcl_floor_run_t *runs, size_t n)
{
    char   *mapped = floor->mapped;
    size_t i;

    for (i = 0; i < n; ++i) {
        if (put) {
            memcpy(mapped + runs[i].remote, runs[i].local, runs[i].len);
        } else {
            memcpy(runs[i].local, mapped + runs[i].remote, runs[i].len);
        }
    }
}

unsigned kvcl_floor_methods(const kvcl_floor_t *floor)
{
    return (floor->tcp || (floor->mapped != NULL)) ? 2 : 1;
}

const char *kvcl_floor_method_name(const kvcl_floor_t *floor, unsigned method)
{
    static const char *const tcp[] = {"active message, eager", "active message, rendezvous"};
    static const char *const shm[] = {"ucp put/get", "memcpy through ucp_rkey_ptr"};

    return floor->tcp ? tcp[method] : shm[method];
}

bool kvcl_floor_transfer(kvcl_floor_t *floor, unsigned method, bool put, const kvcl_floor_run_t *runs, size_t n)
{
    if (floor->tcp) {
        return kvcl_floor_am_transfer(floor, method == 1, put, runs, n);
    }
    if (method == 0) {
        return kvcl_floor_rma_transfer(floor, put, runs, n);
    }
    kvcl_floor_map_transfer(floor, put, runs, n);
    return true;
}
