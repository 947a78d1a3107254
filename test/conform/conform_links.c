/*
 * Links that are lost under collectives and under a store's puts, over loop by its fault lose_link_nth: what completes
 * has the right bytes, all else ends with an error, the communicator and the store remain usable, and no copy that a
 * put has counted is lost.
 */
#include "conform.h"
#include "loop/xport_loop.h"
#include <kvcl/kvcl_store.h>

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 24, LEN_MAX = 1 << 20, SLICE = 4096, KEYS = 12, BLOCK = 512, TRIES = 50 };

static const size_t lens[] = {100, 64 << 10, LEN_MAX};
enum { LENS = sizeof(lens) / sizeof(lens[0]) };

/* Between two fences. nth 0: no link is lost. */
static void lose(cf_t *cf, uint64_t nth, bool both)
{
    kvcl_loop_faults_t faults = {.no_rma = true, .async_sends = true, .lose_link_nth = nth, .lose_both = both};

    cf_fence(cf);
    if (cf->rank == 0) {
        kvcl_loop_set_faults(&faults);
    }
    cf_fence(cf);
}

static bool is_lost_link(kvcl_status_t status)
{
    return (status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_TIMED_OUT);
}

/* ---- collectives ---- */

/* Waits for a collective that was called with this status. */
static kvcl_status_t over(cf_t *cf, kvcl_status_t status, kvcl_req_h req)
{
    return (status == KVCL_OK) && (req != NULL) ? cf_end(cf, req) : status;
}

static kvcl_status_t bcast(cf_t *cf, unsigned round, size_t len, char *buf, const kvcl_xfer_params_t *params)
{
    int           root = (int)round % cf->size;
    kvcl_req_h    req  = NULL;
    kvcl_status_t status;

    memset(buf, 0, len);
    if (cf->rank == root) {
        cf_bytes(round, 0, buf, len);
    }
    status = kvcl_bcast_bytes(cf->world, root, buf, len, params, &req);
    status = over(cf, status, req);
    CF_CHECK(cf, (status != KVCL_OK) || cf_bytes_are(round, 0, buf, len));
    return status;
}

static kvcl_status_t allgather(cf_t *cf, unsigned round, char *buf, const kvcl_xfer_params_t *params)
{
    char          own[SLICE];
    kvcl_req_h    req = NULL;
    kvcl_status_t status;
    int           i;

    memset(buf, 0, (size_t)cf->size * SLICE);
    cf_bytes(round, (uint32_t)cf->rank, own, SLICE);
    status = kvcl_allgather(cf->world, own, SLICE, buf, params, &req);
    status = over(cf, status, req);
    for (i = 0; (i < cf->size) && (status == KVCL_OK); ++i) {
        CF_CHECK(cf, cf_bytes_are(round, (uint32_t)i, buf + (i * SLICE), SLICE));
    }
    return status;
}

static kvcl_status_t barrier(cf_t *cf, const kvcl_xfer_params_t *params)
{
    kvcl_req_h    req    = NULL;
    kvcl_status_t status = kvcl_barrier(cf->world, params, &req);

    return over(cf, status, req);
}

static kvcl_status_t collective(cf_t *cf, unsigned round, char *buf, uint64_t timeout_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    unsigned           kind   = round % (LENS + 2);

    params.timeout_ns = timeout_ns;
    return (kind < LENS) ? bcast(cf, round, lens[kind], buf, &params)
           : (kind == LENS) ? allgather(cf, round, buf, &params) : barrier(cf, &params);
}

/* Did the call succeed on all ranks? */
static bool all_ok(cf_t *cf, kvcl_status_t status)
{
    bool   all = true;
    size_t len;
    int    i;

    cf_give(cf, &status, sizeof(status));
    cf_fence(cf);
    for (i = 0; i < cf->size; ++i) {
        all = all && (*(const kvcl_status_t *)cf_blob(cf, i, &len) == KVCL_OK);
    }
    cf_fence(cf);
    return all;
}

/* The last lost link may be noticed by a rank in a later call, which ends by it; then no more. */
static void collectives(cf_t *cf)
{
    char          *buf = malloc(LEN_MAX);
    kvcl_status_t status;
    unsigned      round, tries;

    CF_CHECK(cf, buf != NULL);
    lose(cf, 0, false);
    for (round = 0; round < ROUNDS; ++round) {
        lose(cf, 1 + (cf_same(cf) + 7919 * round) % 30, round % 2);
        status = collective(cf, round, buf, 2 * KVCL_NS_PER_SEC);
        CF_CHECK(cf, (status == KVCL_OK) || is_lost_link(status));
        lose(cf, 0, false);
        for (tries = 0; !all_ok(cf, collective(cf, round, buf, 20 * KVCL_NS_PER_SEC)); ++tries) {
            CF_CHECK(cf, tries < TRIES);
        }
        cf_alive(cf);
    }
    free(buf);
    cf_fence(cf);
}

/* ---- puts of a store ---- */

typedef struct scene {
    cf_cache_t   cache;
    kvcl_store_h store;
    uint32_t     ids[KEYS];
} scene_t;

static scene_t open_store(cf_t *cf)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(KEYS, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    scene_t             s;
    uint32_t            i;

    params.dir_entries = 4096;
    params.dram_bytes  = 4ull * ROUNDS * KEYS * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = 2;
    s.cache            = cf_cache(cf, "links", &layout, true);
    CF_OK(cf, kvcl_store_open(cf->world, &params, &s.store));
    for (i = 0; i < KEYS; ++i) {
        s.ids[i] = i;
    }
    return s;
}

static void name_keys(unsigned round, kvcl_key_t keys[KEYS])
{
    char     name[32];
    unsigned i;

    for (i = 0; i < KEYS; ++i) {
        snprintf(name, sizeof(name), "links/%u/%u", round, i);
        kvcl_key_from_string(name, strlen(name), &keys[i]);
    }
}

static void put(cf_t *cf, scene_t *s, unsigned round, const kvcl_key_t *keys)
{
    uint8_t            copies[KEYS] = {0};
    kvcl_xfer_params_t params       = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req          = NULL;
    kvcl_status_t      status;
    unsigned           i;

    params.copies = copies;
    cf_fill(cf, s->cache.h, round);
    status = kvcl_store_put(s->store, keys, KEYS, s->cache.h, s->ids, &params, &req);
    status = over(cf, status, req);
    CF_CHECK(cf, (status == KVCL_OK) || is_lost_link(status));
    for (i = 0; (i < KEYS) && (status == KVCL_OK); ++i) {
        CF_CHECK(cf, copies[i] > 0);
    }
    cf_give(cf, copies, sizeof(copies));
}

/* Each block of which the put has counted a copy is found, at once or later: a home may count as silent meanwhile. */
static void find(cf_t *cf, scene_t *s, unsigned round, const kvcl_key_t *keys, const uint8_t *copies)
{
    kvcl_status_t status[KEYS];
    unsigned      missing = KEYS, tries, i;
    kvcl_req_h    req;

    for (tries = 0; missing > 0; ++tries) {
        CF_CHECK(cf, tries < TRIES);
        req = NULL;
        cf_fill(cf, s->cache.h, ROUNDS);
        CF_OK(cf, kvcl_store_get(s->store, keys, KEYS, s->cache.h, s->ids, status, NULL, &req));
        (void)over(cf, KVCL_OK, req);
        for (i = 0, missing = 0; i < KEYS; ++i) {
            missing += (status[i] != KVCL_OK) && (copies[i] > 0);
            if (status[i] == KVCL_OK) {
                cf_block_is(cf, s->cache.h, i, round, i);
            }
        }
        cf_sleep_us(cf, (missing > 0) ? 100000 : 0);
    }
}

static void puts_of_a_store(cf_t *cf)
{
    kvcl_key_t keys[KEYS];
    scene_t    s;
    uint8_t    copies[KEYS];
    unsigned   round;
    size_t     len;

    lose(cf, 0, false);
    s = open_store(cf);
    for (round = 0; round < ROUNDS; ++round) {
        name_keys(round, keys);
        lose(cf, 1 + (cf_same(cf) + 7919 * round) % 30, round % 2);
        if (cf->rank == (int)round % cf->size) {
            put(cf, &s, round, keys);
        }
        lose(cf, 0, false);
        memcpy(copies, cf_blob(cf, (int)round % cf->size, &len), sizeof(copies));
        find(cf, &s, round, keys, copies);
        cf_alive(cf);
    }
    cf_fence(cf);
    kvcl_store_close(s.store);
    cf_cache_end(&s.cache);
    cf_fence(cf);
}

static const cf_case_t cases[] = {
    {"collectives", collectives, CF_FAULTS},
    {"puts_of_a_store", puts_of_a_store, CF_FAULTS},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 3, 0}, {"loop", false, 4, KVCL_INIT_NO_THREAD}, {NULL, false, 0, 0}};

int main(int argc, char **argv)
{
    if (setenv("KVCL_KEEPALIVE", "10s", 1) != 0) {
        return EXIT_FAILURE;
    }
    return cf_main(argc, argv, configs, cases);
}
