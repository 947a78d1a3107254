/*
 * Notifications: after the data of gets and puts of every kind, over every path; their order with that data, their
 * bounds, and what is taken.
 */
#include "conform.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 * 1024, BLOCKS = 8, ROUNDS = 20 };

#define LONG_NS UINT64_C(30000000000)

static kvcl_xfer_params_t with_note(const char *text)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.notify       = text;
    params.notify_bytes = strlen(text);
    return params;
}

/* The next notification is this text, from this rank. */
static void expect(cf_t *cf, int source, const char *text)
{
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
    char             got[64] = "";

    CF_OK(cf, kvcl_notify_recv(cf->world, got, sizeof(got) - 1, &info, LONG_NS));
    CF_CHECK(cf, (info.source == source) && (info.bytes == strlen(text)) && (strcmp(got, text) == 0));
}

static void expect_none(cf_t *cf)
{
    char byte;

    CF_IS(cf, kvcl_notify_recv(cf->world, &byte, 1, NULL, 0), KVCL_ERR_WAIT_TIMEOUT);
}

typedef struct scene {
    cf_mem_t   mem;
    cf_cache_t cache;
    char       *buf;
} scene_t;

/* Blocks that only their own rank takes, and blocks for the others: transfers in a ring never share one. */
enum { HALF = BLOCKS / 2 };
static const uint32_t own_ids[HALF] = {0, 1, 2, 3}, far_ids[HALF] = {4, 5, 6, 7};

/* Operation `kind` with the next rank, of len bytes or of that many blocks' bytes; with a note. */
static kvcl_req_h post(cf_t *cf, scene_t *s, unsigned kind, size_t len, const char *text)
{
    kvcl_xfer_params_t params = with_note(text);
    kvcl_vec_t         v[2]   = {{0, s->buf, len / 2}, {len / 2, s->buf + (len / 2), len - (len / 2)}};
    kvcl_sel_t         own    = cf_sel(own_ids, (len > 1000) ? HALF : 1);
    kvcl_sel_t         far    = cf_sel(far_ids, (len > 1000) ? HALF : 1);
    int                to     = cf_after(cf);
    kvcl_req_h         req;

    switch (kind) {
    case 0:
        CF_OK(cf, kvcl_put_bytes(s->mem.of[to], 0, s->buf, len, &params, &req));
        break;
    case 1:
        CF_OK(cf, kvcl_put_vec(s->mem.of[to], v, 2, NULL, &params, &req));
        break;
    case 2:
        CF_OK(cf, kvcl_put(cf->world, to, s->cache.h, &own, &far, &params, &req));
        break;
    case 3:
        CF_OK(cf, kvcl_get_bytes(s->mem.of[to], 0, s->buf, len, &params, &req));
        break;
    case 4:
        CF_OK(cf, kvcl_get_vec(s->mem.of[to], v, 2, NULL, &params, &req));
        break;
    case 5:
        CF_OK(cf, kvcl_get(cf->world, to, s->cache.h, &far, &own, &params, &req));
        break;
    default:
        CF_OK(cf, kvcl_notify(cf->world, to, text, strlen(text), NULL, &req));
        break;
    }
    memset(&params, 0xff, sizeof(params));
    return req;
}
enum { KINDS = 7 };

/* A put's bytes are there when its notification is taken; a get's are in the buffer when its request has ended, and its
 * owner is told. */
static void after_the_data(cf_t *cf)
{
    unsigned ours, kind, round;

    for (ours = 0; ours < 2; ++ours) {
        kvcl_layout_t             layout   = KVCL_LAYOUT_BYTES(BLOCKS, BYTES / BLOCKS);
        const kvcl_cache_params_t writable = {.size = sizeof(writable), .flags = KVCL_CACHE_WRITABLE};
        scene_t                   s        = {.buf = malloc(BYTES)};
        s.mem = cf_mem(cf, BYTES, ours != 0, KVCL_READ_WRITE);
        CF_OK(cf, kvcl_cache_create(cf->ctx, "notes", &layout, &writable, &s.cache.h));
        for (kind = 0; kind < KINDS; ++kind) {
            for (round = 4; round-- > 0;) { /* small, large; the request's end is awaited after, before */
                const size_t   len  = (round & 1) ? BYTES : 64;
                const uint64_t seed = cf_same(cf);
                char           text[64], theirs[64];
                kvcl_req_h     req;
                snprintf(text, sizeof(text), "%d did %u.%u", cf->rank, kind, round);
                snprintf(theirs, sizeof(theirs), "%d did %u.%u", cf_before(cf), kind, round);
                cf_bytes(seed + (uint64_t)cf->rank, 0, s.buf, BYTES);
                if (kind == 3 || kind == 4) {
                    cf_bytes(seed + (uint64_t)cf->rank, 0, s.mem.addr, BYTES);
                }
                cf_fence(cf);
                req = post(cf, &s, kind, len, text);
                if (round & 2) {
                    CF_OK(cf, cf_end(cf, req));
                }
                expect(cf, cf_before(cf), theirs);
                if (kind < 2) {
                    CF_CHECK(cf, cf_bytes_are(seed + (uint64_t)cf_before(cf), 0, s.mem.addr, len));
                }
                if ((round & 2) == 0) {
                    CF_OK(cf, cf_end(cf, req));
                }
                if (kind == 3 || kind == 4) {
                    CF_CHECK(cf, cf_bytes_are(seed + (uint64_t)cf_after(cf), 0, s.buf, len));
                }
                expect_none(cf);
                cf_fence(cf);
            }
        }
        kvcl_cache_destroy(s.cache.h);
        cf_mem_end(cf, &s.mem);
        free(s.buf);
    }
}

/* Several at once, an empty one, one of the greatest length; detached requests; callbacks. */
static void count_one(void *arg, kvcl_status_t status)
{
    if (status == KVCL_OK) {
        atomic_fetch_add((_Atomic unsigned *)arg, 1);
    }
}

static void many_at_once(cf_t *cf)
{
    cf_mem_t           mem  = cf_mem(cf, BYTES, false, KVCL_READ_WRITE);
    char               *big = malloc(KVCL_NOTIFY_MAX), *got = malloc(KVCL_NOTIFY_MAX), buf[ROUNDS][8];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_recv_info_t   info   = KVCL_RECV_INFO_INIT;
    _Atomic unsigned   called = 0;
    unsigned           i, empty = 0, greatest = 0;
    kvcl_req_h         req;

    cf_bytes((uint64_t)cf_before(cf), 7, got, KVCL_NOTIFY_MAX);
    cf_bytes((uint64_t)cf->rank, 7, big, KVCL_NOTIFY_MAX);
    params.cb     = count_one;
    params.cb_arg = (void *)&called;
    for (i = 0; i < ROUNDS; ++i) {
        params.notify       = big;
        params.notify_bytes = (i & 1) ? 0 : KVCL_NOTIFY_MAX;
        CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf[i], 8, &params, NULL));
    }
    for (i = 0; i < ROUNDS; ++i) {
        CF_OK(cf, kvcl_notify_recv(cf->world, big, KVCL_NOTIFY_MAX, &info, LONG_NS));
        CF_CHECK(cf, info.source == cf_before(cf));
        empty += (info.bytes == 0);
        if (info.bytes != 0) {
            CF_CHECK(cf, (info.bytes == KVCL_NOTIFY_MAX) && (memcmp(big, got, KVCL_NOTIFY_MAX) == 0));
            ++greatest;
        }
    }
    CF_CHECK(cf, (empty == ROUNDS / 2) && (greatest == ROUNDS / 2));
    while (atomic_load(&called) < ROUNDS) { /* operations are in no order */
        cf_sleep_us(cf, 100);
    }
    CF_OK(cf, kvcl_notify(cf->world, cf_after(cf), "end", 3, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    expect(cf, cf_before(cf), "end");
    cf_mem_end(cf, &mem);
    free(big);
    free(got);
}

/* A rank that takes none is not filled: the sender is told, its data has been moved, and room that is made is used. */
static void never_taken(cf_t *cf)
{
    enum { LEAST = 400, MOST = 600 }; /* 4 MiB of them */
    cf_mem_t           mem    = cf_mem(cf, 8, false, KVCL_READ_WRITE);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    char               *big   = calloc(1, KVCL_NOTIFY_MAX);
    unsigned           n, taken = 0;
    kvcl_status_t      status = KVCL_OK;
    kvcl_req_h         req;
    uint64_t           word   = 0;

    params.notify       = big;
    params.notify_bytes = KVCL_NOTIFY_MAX;
    if (cf->rank == 0) {
        for (n = 0; (n < MOST) && (status == KVCL_OK); ++n) {
            word = n + 1;
            CF_OK(cf, kvcl_put_bytes(mem.of[1], 0, &word, 8, &params, &req));
            status = cf_end(cf, req);
        }
        CF_CHECK(cf, (status == KVCL_ERR_NO_SPACE) && (n > LEAST));
        CF_CHECK(cf, strstr(kvcl_last_error(), "kvcl_notify_recv") != NULL);
        cf_fence(cf); /* the word is n: the data of the one that was refused is there */
        cf_give(cf, &word, 8);
        cf_fence(cf);
        cf_fence(cf);
        CF_OK(cf, kvcl_notify(cf->world, 1, "again", 5, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    } else {
        size_t     len;
        const void *blob;
        cf_give(cf, "", 1);
        cf_fence(cf);
        cf_fence(cf);
        blob = cf_blob(cf, 0, &len);
        CF_CHECK(cf, (cf->rank != 1) || ((len == 8) && (memcmp(blob, mem.addr, 8) == 0)));
        for (; (cf->rank == 1) && (kvcl_notify_recv(cf->world, big, KVCL_NOTIFY_MAX, NULL, 0) == KVCL_OK); ++taken) {
        }
        CF_CHECK(cf, (cf->rank != 1) || (taken > LEAST));
        cf_fence(cf);
        if (cf->rank == 1) {
            expect(cf, 0, "again");
        }
    }
    cf_mem_end(cf, &mem);
    free(big);
}

/* Another communicator's are not taken; those of one that is freed are gone. */
static void communicators_are_apart(cf_t *cf)
{
    int         ranks[CF_RANKS_MAX], i;
    kvcl_comm_h other;
    kvcl_req_h  req;

    for (i = 0; i < cf->size; ++i) {
        ranks[i] = cf->size - 1 - i;
    }
    CF_OK(cf, kvcl_comm_create(cf->world, ranks, cf->size, &other));
    CF_OK(cf, kvcl_notify(other, cf->size - 1 - cf_after(cf), "other", 5, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    CF_OK(cf, kvcl_notify(cf->world, cf_after(cf), "world", 5, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    cf_fence(cf);
    expect(cf, cf_before(cf), "world");
    expect_none(cf);
    if (cf->rank != 0) {
        kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
        char             got[8];
        CF_OK(cf, kvcl_notify_recv(other, got, sizeof(got), &info, LONG_NS));
        CF_CHECK(cf, (info.bytes == 5) && (info.source == cf->size - 1 - cf_before(cf)) &&
                 (memcmp(got, "other", 5) == 0));
    }
    cf_fence(cf);
    kvcl_comm_free(other); /* rank 0 has not taken its own */
    cf_fence(cf);
}

/* An operation that fails sends none. */
static void failures_are_silent(cf_t *cf)
{
    cf_mem_t           mem    = cf_mem(cf, 4096, false, KVCL_READ_WRITE);
    kvcl_xfer_params_t params = with_note("never");
    char               buf[64] = "";
    kvcl_req_h         req;

    CF_OK(cf, kvcl_mem_revoke(mem.mine));
    cf_fence(cf);
    CF_OK(cf, kvcl_put_bytes(mem.of[cf_after(cf)], 0, buf, 64, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
    CF_CHECK(cf, strstr(kvcl_last_error(), "kvcl_put_bytes of 64 bytes") != NULL);
    CF_OK(cf, kvcl_get_bytes(mem.of[cf_after(cf)], 0, buf, 64, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
    cf_fence(cf);
    expect_none(cf);
    cf_mem_end(cf, &mem);
}

static const cf_case_t cases[] = {
    {"after_the_data", after_the_data, 0},
    {"many_at_once", many_at_once, 0},
    {"never_taken", never_taken, 0},
    {"communicators_are_apart", communicators_are_apart, 0},
    {"failures_are_silent", failures_are_silent, 0},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 2, CF_NATIVE}, {"loop", false, 2, CF_OVERTAKE}, {"shm", false, 2, 0},
    {"shm", true, 3, 0},   {"tcp", false, 2, 0}, {"tcp", true, 3, 0},   {"tcp", true, 2, CF_LANE},
    {"tcp", true, 2, KVCL_INIT_NO_THREAD},     {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
