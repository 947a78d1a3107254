/* UCX without a port (fake_ucp.h). */
#include "config.h"
#include "fake_ucp.h"
#include "base/checksum.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { REGIONS = 256, OPS = 64, ENDPOINTS = 16, PAGE = 4096 };

fake_ucp_t fake_ucp;

/* ---- registrations ---- */

typedef struct region {
    uintptr_t from, to; /* to > from: it exists */
    unsigned  users;
    bool      listed;   /* it is found by its address */
} region_t;

static region_t regions[REGIONS];

typedef struct op {
    ucp_rkey_h              rkey;
    ucp_send_nbx_callback_t cb;
    void                    *user_data;
} op_t;

static op_t *ops[OPS];

typedef struct endpoint {
    ucp_err_handler_t handler;
    bool              data, connected, failed;
    op_t              *flush; /* waits for the connection */
} endpoint_t;

static endpoint_t endpoints[ENDPOINTS];
static unsigned   n_endpoints;
static char       data_worker;

void fake_reset(void)
{
    n_endpoints = 0;
    memset(endpoints, 0, sizeof(endpoints));
    memset(&fake_ucp, 0, sizeof(fake_ucp));
    memset(regions, 0, sizeof(regions));
    fake_ucp.limit_pages = UINT64_MAX;
}

glue_t *fake_open_port(bool data)
{
    static char addr[8] = "address", any;
    glue_t      *g      = calloc(1, sizeof(*g));

    fake_reset();
    ck_assert_ptr_nonnull(g);
    g->super.ops      = &kvcl_xport_rdma;
    g->plan.rdma      = true;
    g->epfd           = -1;
    g->probe_timer.fd = -1;
    g->done_tail      = &g->done_head;
    g->read_tail      = &g->read_head;
    g->am.addr        = (ucp_address_t *)(void *)addr;
    g->am.addr_len    = sizeof(addr);
    if (data) {
        g->data.ctx      = (ucp_context_h)(void *)&any;
        g->data.worker   = fake_data_worker();
        g->data.addr     = g->am.addr;
        g->data.addr_len = sizeof(addr);
    }
    kvcl_list_init(&g->eps);
    kvcl_list_init(&g->failed);
    kvcl_list_init(&g->closing);
    kvcl_list_init(&g->ending);
    kvcl_list_init(&g->aside);
    kvcl_glue_wait_init(g);
    kvcl_mpool_init(&g->reads, "reads", sizeof(glue_read_t), 64, 0);
    ck_assert_int_eq(kvcl_glue_am_init(g), KVCL_OK);
    ck_assert_int_eq(kvcl_glue_make_address(g), KVCL_OK);
    g->am.addr  = g->data.addr = NULL;
    g->data.ctx = NULL; /* there is none to be closed */
    kvcl_glue_log_opening();
    kvcl_glue_log_opened();
    return g;
}

static uint64_t pages_of(uintptr_t from, uintptr_t to)
{
    return ((to + PAGE - 1) / PAGE) - (from / PAGE);
}

uint64_t fake_locked_pages(void)
{
    uint64_t n = 0;
    unsigned i;

    for (i = 0; i < REGIONS; ++i) {
        n += (regions[i].to != 0) ? pages_of(regions[i].from, regions[i].to) : 0;
    }
    return n;
}

bool fake_has_key(const void *addr)
{
    unsigned i;

    for (i = 0; i < REGIONS; ++i) {
        if ((regions[i].from <= (uintptr_t)addr) && ((uintptr_t)addr < regions[i].to)) {
            return true;
        }
    }
    return false;
}

static region_t *find(uintptr_t from, uintptr_t to)
{
    unsigned i;

    for (i = 0; i < REGIONS; ++i) {
        if (regions[i].listed && (regions[i].from <= from) && (to <= regions[i].to)) {
            return &regions[i];
        }
    }
    return NULL;
}

static void release_if_unused(region_t *region)
{
    if ((region->users == 0) && !region->listed) {
        memset(region, 0, sizeof(*region));
    }
}

/* A new registration takes the place of those that it overlaps, and has their bytes as well. */
static void merge(uintptr_t *from, uintptr_t *to)
{
    unsigned i;

    for (i = 0; i < REGIONS; ++i) {
        if (regions[i].listed && (regions[i].from < *to) && (*from < regions[i].to)) {
            *from = (regions[i].from < *from) ? regions[i].from : *from;
            *to   = (regions[i].to > *to) ? regions[i].to : *to;
            regions[i].listed = false;
            release_if_unused(&regions[i]);
        }
    }
}

static void evict(void)
{
    unsigned i;

    for (i = 0; i < REGIONS; ++i) {
        if (regions[i].users == 0) {
            regions[i].listed = false;
            release_if_unused(&regions[i]);
        }
    }
}

static region_t *create(uintptr_t from, uintptr_t to)
{
    unsigned i;

    merge(&from, &to);
    if (((fake_ucp.fail_nth > 0) && (--fake_ucp.fail_nth == 0)) ||
        (fake_locked_pages() + pages_of(from, to) > fake_ucp.limit_pages)) {
        return NULL;
    }
    for (i = 0; regions[i].to != 0; ++i) {
        ck_assert_uint_lt(i + 1, REGIONS);
    }
    regions[i] = (region_t){from, to, 1, true};
    evict();
    return &regions[i];
}

ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params, ucp_mem_h *memh_p)
{
    uintptr_t from = (uintptr_t)params->address, to = from + params->length;
    region_t  *region = find(from, to);

    (void)context;
    if (region != NULL) {
        ++region->users;
    } else if ((region = create(from, to)) == NULL) {
        return UCS_ERR_IO_ERROR;
    }
    *memh_p = (ucp_mem_h)(void *)region;
    return UCS_OK;
}

ucs_status_t ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh)
{
    region_t *region = (region_t *)(void *)memh;

    (void)context;
    ck_assert_uint_gt(region->users, 0);
    --region->users;
    release_if_unused(region);
    return UCS_OK;
}

static region_t *region_of(const void *addr)
{
    region_t *region = find((uintptr_t)addr, (uintptr_t)addr + 1);

    ck_assert_ptr_nonnull(region);
    return region;
}

static region_t *used;

void fake_use(const void *addr)
{
    used = region_of(addr);
    ++used->users;
}

void fake_unuse(const void *addr)
{
    (void)addr;
    --used->users;
    release_if_unused(used);
}

/* ---- keys, gets and puts ---- */

ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep, const void *buf, ucp_rkey_h *rkey_p)
{
    (void)ep;
    (void)buf;
    *rkey_p = malloc(1);
    ++fake_ucp.keys;
    return UCS_OK;
}

void ucp_rkey_destroy(ucp_rkey_h rkey)
{
    unsigned i;

    for (i = 0; i < OPS; ++i) {
        fake_ucp.used_after += (ops[i] != NULL) && (ops[i]->rkey == rkey);
    }
    --fake_ucp.keys;
    free(rkey);
}

static ucs_status_ptr_t post(ucp_rkey_h rkey, const ucp_request_param_t *param)
{
    op_t *op = malloc(sizeof(*op));

    ck_assert_uint_lt(fake_ucp.in_flight, OPS);
    *op = (op_t){rkey, param->cb.send, param->user_data};
    ops[fake_ucp.in_flight++] = op;
    return op;
}

/* NULL: a test's own, which is connected. */
static endpoint_t *endpoint_of(ucp_ep_h ep)
{
    endpoint_t *endpoint = (endpoint_t *)(void *)ep;

    return ((endpoint >= endpoints) && (endpoint < endpoints + ENDPOINTS)) ? endpoint : NULL;
}

static bool is_early(ucp_ep_h ep)
{
    const endpoint_t *endpoint = endpoint_of(ep);

    return (endpoint != NULL) && endpoint->data && !endpoint->connected;
}

ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void *buf, size_t len, uint64_t addr, ucp_rkey_h rkey,
                             const ucp_request_param_t *param)
{
    (void)buf;
    (void)len;
    (void)addr;
    fake_ucp.posted_early += is_early(ep);
    return post(rkey, param);
}

ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void *buf, size_t len, uint64_t addr, ucp_rkey_h rkey,
                             const ucp_request_param_t *param)
{
    (void)buf;
    (void)len;
    (void)addr;
    fake_ucp.posted_early += is_early(ep);
    return post(rkey, param);
}

ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
{
    endpoint_t *endpoint = endpoint_of(ep);
    op_t       *op;

    if (!is_early(ep)) {
        return ((fake_ucp.in_flight == 0) && !fake_ucp.unsent) ? NULL : post(NULL, param);
    }
    op              = malloc(sizeof(*op));
    *op             = (op_t){NULL, param->cb.send, param->user_data};
    endpoint->flush = op;
    return op;
}

void fake_complete(ucs_status_t status)
{
    op_t *op = ops[0];

    ck_assert_uint_gt(fake_ucp.in_flight, 0);
    memmove(&ops[0], &ops[1], (OPS - 1) * sizeof(ops[0]));
    ops[--fake_ucp.in_flight] = NULL;
    op->cb(op, status, op->user_data);
}

void ucp_request_free(void *request)
{
    free(request);
}

/* ---- endpoints ---- */

ucp_worker_h fake_data_worker(void)
{
    return (ucp_worker_h)(void *)&data_worker;
}

ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ep_p)
{
    endpoint_t *endpoint = &endpoints[n_endpoints++];

    ck_assert_uint_le(n_endpoints, ENDPOINTS);
    endpoint->handler   = params->err_handler;
    endpoint->data      = (worker == fake_data_worker());
    endpoint->connected = fake_ucp.connected;
    fake_ucp.created   += endpoint->data;
    *ep_p = (ucp_ep_h)(void *)endpoint;
    return UCS_OK;
}

void ucp_ep_print_info(ucp_ep_h ep, FILE *stream)
{
    (void)ep;
    (void)fprintf(stream, "#                 lane[0]:  0:rc_verbs/rxe0:1.0 md[0]\n");
}

static endpoint_t *last_endpoint(void)
{
    unsigned at = n_endpoints;

    while ((at > 0) && !endpoints[at - 1].data) {
        --at;
    }
    ck_assert_uint_gt(at, 0);
    return &endpoints[at - 1];
}

static void end_flush(endpoint_t *endpoint, ucs_status_t status)
{
    op_t *op = endpoint->flush;

    endpoint->flush = NULL;
    if (op != NULL) {
        op->cb(op, status, op->user_data);
    }
}

void fake_connect(void)
{
    last_endpoint()->connected = true;
    end_flush(last_endpoint(), UCS_OK);
}

void fake_fail(void)
{
    endpoint_t *endpoint = last_endpoint();

    endpoint->failed = true;
    endpoint->handler.cb(endpoint->handler.arg, (ucp_ep_h)(void *)endpoint, UCS_ERR_ENDPOINT_TIMEOUT);
}

/* The forced close of an endpoint: its operations have no more use for their keys, and complete. */
ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
{
    endpoint_t *endpoint = endpoint_of(ep);
    unsigned   i;

    (void)param;
    for (i = 0; i < fake_ucp.in_flight; ++i) {
        ops[i]->rkey = NULL;
    }
    if ((endpoint != NULL) && endpoint->data) {
        ++fake_ucp.closed;
        fake_ucp.closed_early += !endpoint->connected && !endpoint->failed;
        end_flush(endpoint, UCS_ERR_CANCELED);
    }
    return NULL;
}

/* ---- workers ---- */

ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker, const ucp_am_handler_param_t *param)
{
    (void)worker;
    if (param->id == GLUE_AM_ID) {
        fake_ucp.handler = *param;
    }
    return UCS_OK;
}

unsigned ucp_worker_progress(ucp_worker_h worker)
{
    (void)worker;
    return 0;
}

ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h worker, const ucp_request_param_t *param)
{
    (void)worker;
    (void)param;
    return NULL;
}

void ucp_worker_destroy(ucp_worker_h worker)
{
    unsigned i;

    for (i = 0; (worker == fake_data_worker()) && (i < n_endpoints); ++i) {
        fake_ucp.left += (endpoints[i].flush != NULL);
    }
}

/* ---- regions of the peer ---- */

kvcl_xport_rmem_t *fake_open_region(kvcl_xport_ep_t *ep, uint64_t bytes)
{
    struct {
        glue_packed_t packed;
        char          rkey[8];
    } region = {.packed = {.magic = GLUE_PACKED_MAGIC, .len = bytes, .rkey_len = sizeof(region.rkey)}};
    kvcl_xport_rmem_attr_t attr = {0};
    kvcl_xport_rmem_t      *rmem;

    region.packed.check = kvcl_check32((char *)&region + offsetof(glue_packed_t, addr),
                                       sizeof(region) - offsetof(glue_packed_t, addr));
    ck_assert_int_eq(kvcl_glue_rmem_open(ep, &region, sizeof(region), 0, bytes, &rmem, &attr), KVCL_OK);
    ck_assert(attr.get && attr.put);
    return rmem;
}
