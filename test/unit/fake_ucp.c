/* UCX without a port (fake_ucp.h). */
#include "config.h"
#include "fake_ucp.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { REGIONS = 256, OPS = 64, PAGE = 4096 };

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

void fake_reset(void)
{
    memset(&fake_ucp, 0, sizeof(fake_ucp));
    memset(regions, 0, sizeof(regions));
    fake_ucp.limit_pages = UINT64_MAX;
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

ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void *buf, size_t len, uint64_t addr, ucp_rkey_h rkey,
                             const ucp_request_param_t *param)
{
    (void)ep;
    (void)buf;
    (void)len;
    (void)addr;
    return post(rkey, param);
}

ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void *buf, size_t len, uint64_t addr, ucp_rkey_h rkey,
                             const ucp_request_param_t *param)
{
    (void)ep;
    (void)buf;
    (void)len;
    (void)addr;
    return post(rkey, param);
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

/* The forced close of an endpoint: its operations have no more use for their keys, and complete. */
ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
{
    unsigned i;

    (void)ep;
    (void)param;
    for (i = 0; i < fake_ucp.in_flight; ++i) {
        ops[i]->rkey = NULL;
    }
    return NULL;
}
