/*
 * send and recv: matching, order, unexpected messages, sizes that differ, layouts, cancel on either side.
 */
#include "conform.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kvcl_req_h send_to(cf_t *cf, int rank, uint64_t tag, const void *buf, size_t len)
{
    kvcl_req_h req;

    CF_OK(cf, kvcl_send_bytes(cf->world, rank, tag, buf, len, NULL, &req));
    return req;
}

static kvcl_req_h recv_from(cf_t *cf, int rank, uint64_t tag, void *buf, size_t cap, kvcl_recv_info_t *info)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    params.info = info;
    CF_OK(cf, kvcl_recv_bytes(cf->world, rank, tag, buf, cap, &params, &req));
    return req;
}

/* ---------------------------------------------------------------- bytes of any size, both orders of arrival */

static void sizes(cf_t *cf)
{
    static const size_t lens[] = {0,      1,      8,      8191,    8192,    8193,   65536, 245760,
                                  245761, 262144, 262145, 1048575, 1048577, 5000003};
    char             *out = malloc(5000003), *in = malloc(5000003 + 1);
    uint64_t         seed = cf_same(cf);
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
    kvcl_req_h       s, r;
    size_t           i, len;
    int              early;

    for (i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i) {
        for (early = 0; early < 2; ++early) {
            len = lens[i];
            cf_bytes(seed + (uint64_t)cf->rank, (uint32_t)len, out, len);
            in[len] = 0x77;
            if (early) {
                r = recv_from(cf, cf_before(cf), i, in, len, &info);
                cf_fence(cf);
                s = send_to(cf, cf_after(cf), i, out, len);
            } else {
                s = send_to(cf, cf_after(cf), i, out, len);
                cf_sleep_us(cf, 2000); /* the message waits, unexpected */
                cf_fence(cf);
                r = recv_from(cf, cf_before(cf), i, in, len, &info);
            }
            CF_OK(cf, cf_end(cf, r));
            CF_OK(cf, cf_end(cf, s));
            CF_CHECK(cf, (info.bytes == len) && (info.source == cf_before(cf)) && (info.tag == i));
            CF_CHECK(cf, cf_bytes_are(seed + (uint64_t)cf_before(cf), (uint32_t)len, in, len) && (in[len] == 0x77));
        }
    }
    free(out);
    free(in);
}

/* ---------------------------------------------------------------- matching */

/* Sends of one tag match in the order of posting, large and small mixed; other tags may overtake. */
static void order(cf_t *cf)
{
    enum { N = 40, BIG = 300000 };
    uint32_t   out[N];
    char       *big = calloc(1, BIG), *in = malloc(BIG), *copies[N] = {NULL};
    kvcl_req_h s[N], other, r;
    uint32_t   i;

    for (i = 0; i < N; ++i) {
        out[i] = i;
        memcpy(big, &i, sizeof(i)); /* large ones all start with the number of the last of them */
        s[i] = (i % 5 == 4) ? NULL : send_to(cf, cf_after(cf), 7, &out[i], sizeof(out[i]));
        if (s[i] == NULL) {
            char *copy = malloc(BIG);
            memcpy(copy, big, BIG);
            s[i] = send_to(cf, cf_after(cf), 7, copy, BIG);
            copies[i] = copy;
        }
    }
    other = send_to(cf, cf_after(cf), 8, "other", 6);
    r     = recv_from(cf, cf_before(cf), 8, in, 6, NULL);
    CF_OK(cf, cf_end(cf, r));
    CF_CHECK(cf, strcmp(in, "other") == 0);
    for (i = 0; i < N; ++i) {
        uint32_t         got;
        kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
        r = recv_from(cf, (i % 2) ? KVCL_ANY_SOURCE : cf_before(cf), 7, in, BIG, &info);
        CF_OK(cf, cf_end(cf, r));
        memcpy(&got, in, sizeof(got));
        CF_CHECK(cf, (got == i) && (info.bytes == ((i % 5 == 4) ? BIG : sizeof(got))));
    }
    CF_OK(cf, kvcl_req_wait_all(s, N, 60 * KVCL_NS_PER_SEC));
    CF_OK(cf, cf_end(cf, other));
    for (i = 0; i < N; ++i) {
        free(copies[i]);
    }
    free(big);
    free(in);
}

/* Recvs of one (source, tag) match in the order of posting too. */
static void order_of_recvs(cf_t *cf)
{
    enum { N = 20 };
    uint32_t   in[N], out[N], i;
    kvcl_req_h r[N], s[N];

    for (i = 0; i < N; ++i) {
        r[i] = recv_from(cf, (i % 3) ? cf_before(cf) : KVCL_ANY_SOURCE, 3, &in[i], sizeof(in[i]), NULL);
    }
    cf_fence(cf);
    for (i = 0; i < N; ++i) {
        out[i] = 1000 + i;
        s[i]   = send_to(cf, cf_after(cf), 3, &out[i], sizeof(out[i]));
    }
    CF_OK(cf, kvcl_req_wait_all(r, N, 60 * KVCL_NS_PER_SEC));
    CF_OK(cf, kvcl_req_wait_all(s, N, 60 * KVCL_NS_PER_SEC));
    for (i = 0; i < N; ++i) {
        CF_CHECK(cf, in[i] == out[i]);
    }
}

/* All ranks send to rank 0, which receives from any source, itself included; none is lost, and each source's are in
 * order. */
static void any_source(cf_t *cf)
{
    enum { N = 30 };
    uint32_t   next[CF_RANKS_MAX] = {0}, out[N], in;
    kvcl_req_h s[N];
    int        i, total = N * cf->size;

    for (i = 0; i < N; ++i) {
        out[i] = ((uint32_t)cf->rank << 16) | (uint32_t)i;
        s[i]   = send_to(cf, 0, 99, &out[i], sizeof(out[i]));
    }
    for (i = 0; (cf->rank == 0) && (i < total); ++i) {
        kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
        CF_OK(cf, cf_end(cf, recv_from(cf, KVCL_ANY_SOURCE, 99, &in, sizeof(in), &info)));
        CF_CHECK(cf, ((in >> 16) == (uint32_t)info.source) && ((in & 0xffff) == next[info.source]));
        ++next[info.source];
    }
    CF_OK(cf, kvcl_req_wait_all(s, N, 60 * KVCL_NS_PER_SEC));
}

/* A communicator made from another keeps its messages separate. */
static void communicators(cf_t *cf)
{
    int         reversed[CF_RANKS_MAX], i, me;
    char        a[8], b[8];
    kvcl_comm_h one, two;
    kvcl_req_h  s[2], r;

    for (i = 0; i < cf->size; ++i) {
        reversed[i] = cf->size - 1 - i;
    }
    CF_OK(cf, kvcl_comm_create(cf->world, reversed, cf->size, &one));
    CF_OK(cf, kvcl_comm_create(cf->world, reversed, cf->size, &two));
    me = kvcl_comm_rank(one);
    CF_CHECK(cf, (me == cf->size - 1 - cf->rank) && (kvcl_comm_size(two) == cf->size) && !kvcl_comm_is_inter(one));
    CF_OK(cf, kvcl_send_bytes(one, (me + 1) % cf->size, 1, "one", 4, NULL, &s[0]));
    CF_OK(cf, kvcl_send_bytes(two, (me + 1) % cf->size, 1, "two", 4, NULL, &s[1]));
    CF_OK(cf, kvcl_recv_bytes(two, KVCL_ANY_SOURCE, 1, b, 8, NULL, &r));
    CF_OK(cf, cf_end(cf, r));
    CF_OK(cf, kvcl_recv_bytes(one, (me + cf->size - 1) % cf->size, 1, a, 8, NULL, &r));
    CF_OK(cf, cf_end(cf, r));
    CF_CHECK(cf, (strcmp(a, "one") == 0) && (strcmp(b, "two") == 0));
    CF_OK(cf, kvcl_req_wait_all(s, 2, 60 * KVCL_NS_PER_SEC));
    kvcl_comm_free(one);
    kvcl_comm_free(two);
}

/* ---------------------------------------------------------------- blocks */

#define COUNTS .layers = 2, .blocks = 16, .tokens = 8, .heads = 4, .head_dim = 32, .elem_bytes = 2

static void blocks(cf_t *cf)
{
    static const uint32_t src[] = {15, 0, 7, 8}, dst[] = {1, 2, 3, 4};
    kvcl_layout_t layouts[3] = {KVCL_LAYOUT_NHD(COUNTS), KVCL_LAYOUT_HND(COUNTS, .flags = KVCL_LAYOUT_PER_LAYER),
                                KVCL_LAYOUT_NHD(COUNTS, .token_stride = 272)};
    kvcl_sel_t    from = cf_sel(src, 4), to = cf_sel(dst, 4);
    uint64_t      seed = cf_same(cf);
    unsigned      i, n, b;

    for (i = 0; i < 18; ++i) {
        unsigned   out_layout = i % 3, in_layout = (i / 3) % 3;
        cf_cache_t out = cf_cache(cf, "out", &layouts[out_layout], (i & 1) != 0);
        cf_cache_t in  = cf_cache(cf, "in", &layouts[in_layout], (i & 2) != 0);
        kvcl_req_h reqs[2];
        n           = (i < 9) ? 1 : 4; /* eager, or offered */
        from.n_blocks = to.n_blocks = n;
        cf_fill(cf, out.h, seed + i + (uint64_t)cf->rank);
        CF_OK(cf, kvcl_recv(cf->world, cf_before(cf), i, in.h, &to, NULL, &reqs[0]));
        CF_OK(cf, kvcl_send(cf->world, cf_after(cf), i, out.h, &from, NULL, &reqs[1]));
        CF_OK(cf, kvcl_req_wait_all(reqs, 2, 60 * KVCL_NS_PER_SEC));
        for (b = 0; b < n; ++b) {
            cf_block_is(cf, in.h, dst[b], seed + i + (uint64_t)cf_before(cf), src[b]);
        }
        cf_fence(cf);
        cf_cache_end(&out);
        cf_cache_end(&in);
    }
}

/* Sizes or shapes that differ: both sides get the error, and nothing is written. */
static void mismatch(cf_t *cf)
{
    static const uint32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7};
    kvcl_layout_t nhd = KVCL_LAYOUT_NHD(COUNTS), bytes = KVCL_LAYOUT_BYTES(16, 4096);
    cf_cache_t    cache = cf_cache(cf, "cache", &nhd, true), opaque = cf_cache(cf, "opaque", &bytes, false);
    kvcl_sel_t    few = cf_sel(ids, 2), many = cf_sel(ids, 8), cut = {.blocks = ids, .n_blocks = 2, .layers = {0, 1}};
    char          *big = calloc(1, 100000), *small = malloc(50000);
    kvcl_req_h    s, r;
    int           i;

    cf_fill(cf, cache.h, 5);
    cf_fill(cf, opaque.h, 6);
    memset(small, 0x21, 50000);
    for (i = 0; i < 2; ++i) { /* eager, offered */
        const kvcl_sel_t *out = i ? &many : &few, *in = i ? &few : &many;
        s = send_to(cf, cf_after(cf), 1, big, i ? 100000 : 100);
        r = recv_from(cf, cf_before(cf), 1, small, i ? 50000 : 50, NULL);
        CF_IS(cf, cf_end(cf, r), KVCL_ERR_TRUNCATED);
        CF_IS(cf, cf_end(cf, s), KVCL_ERR_TRUNCATED);
        CF_OK(cf, kvcl_send(cf->world, cf_after(cf), 2, cache.h, out, NULL, &s));
        CF_OK(cf, kvcl_recv(cf->world, cf_before(cf), 2, cache.h, in, NULL, &r));
        CF_IS(cf, cf_end(cf, r), KVCL_ERR_TRUNCATED);
        CF_IS(cf, cf_end(cf, s), KVCL_ERR_TRUNCATED);
        CF_OK(cf, kvcl_send(cf->world, cf_after(cf), 3, opaque.h, out, NULL, &s));
        CF_OK(cf, kvcl_recv(cf->world, cf_before(cf), 3, cache.h, out, NULL, &r));
        CF_IS(cf, cf_end(cf, r), KVCL_ERR_BAD_LAYOUT);
        CF_IS(cf, cf_end(cf, s), KVCL_ERR_BAD_LAYOUT);
        CF_OK(cf, kvcl_send(cf->world, cf_after(cf), 4, cache.h, &cut, NULL, &s));
        CF_OK(cf, kvcl_recv(cf->world, cf_before(cf), 4, cache.h, &few, NULL, &r));
        CF_CHECK(cf, cf_end(cf, r) < 0);
        CF_CHECK(cf, cf_end(cf, s) < 0);
    }
    for (i = 0; i < 50000; ++i) {
        CF_CHECK(cf, small[i] == 0x21);
    }
    for (i = 0; i < 8; ++i) {
        cf_block_is(cf, cache.h, (uint32_t)i, 5, (uint32_t)i);
    }
    cf_fence(cf);
    cf_cache_end(&cache);
    cf_cache_end(&opaque);
    free(big);
    free(small);
}

/* ---------------------------------------------------------------- giving up */

static kvcl_xfer_params_t within(uint64_t ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.timeout_ns = ns;
    return params;
}

/* A recv canceled before its message arrived leaves that message to the next recv. */
static void cancel_recv(cf_t *cf)
{
    char       in[8] = "nothing", got[8];
    kvcl_req_h r, s;

    r = recv_from(cf, cf_before(cf), 5, in, 8, NULL);
    kvcl_req_cancel(r);
    CF_IS(cf, cf_end(cf, r), KVCL_ERR_CANCELED);
    kvcl_xfer_params_t params = within(KVCL_NS_PER_MS);
    CF_OK(cf, kvcl_recv_bytes(cf->world, KVCL_ANY_SOURCE, 5, in, 8, &params, &r));
    CF_IS(cf, cf_end(cf, r), KVCL_ERR_TIMED_OUT);
    cf_fence(cf);
    s = send_to(cf, cf_after(cf), 5, "for two", 8);
    cf_sleep_us(cf, 1000);
    CF_OK(cf, cf_end(cf, recv_from(cf, cf_before(cf), 5, got, 8, NULL)));
    CF_OK(cf, cf_end(cf, s));
    CF_CHECK(cf, (strcmp(in, "nothing") == 0) && (strcmp(got, "for two") == 0));
}

/* A sender cancels before a recv was posted: a later recv never receives that message. */
static void sender_gives_up(cf_t *cf)
{
    size_t     len  = 200000;
    char       *buf = calloc(1, len), *in = malloc(len);
    kvcl_req_h s;
    int        i;

    for (i = 0; i < 4; ++i) {
        kvcl_xfer_params_t params = within((i & 1) ? KVCL_NS_PER_MS : 0);
        size_t             n      = (i & 2) ? 8 : len;
        CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 6, buf, n, &params, &s));
        if ((i & 1) == 0) {
            cf_sleep_us(cf, (i & 2) ? 0 : 500);
            kvcl_req_cancel(s);
        }
        CF_IS(cf, cf_end(cf, s), (i & 1) ? KVCL_ERR_TIMED_OUT : KVCL_ERR_CANCELED);
        memset(buf, 1, len);
        s = send_to(cf, cf_after(cf), 60, "done", 5); /* in order: when it arrives, the cancel has as well */
        CF_OK(cf, cf_end(cf, recv_from(cf, cf_before(cf), 60, in, len, NULL)));
        CF_OK(cf, cf_end(cf, s));
        s = send_to(cf, cf_after(cf), 6, buf, n); /* after the canceled one */
        memset(in, 0, len);
        CF_OK(cf, cf_end(cf, recv_from(cf, cf_before(cf), 6, in, len, NULL)));
        CF_OK(cf, cf_end(cf, s));
        CF_CHECK(cf, (in[0] == 1) && (memcmp(in, in + 1, n - 1) == 0));
        memset(buf, 0, len);
        cf_fence(cf);
    }
    free(buf);
    free(in);
}

static bool all_are(const char *buf, char c, size_t len)
{
    return (buf[0] == c) && (memcmp(buf, buf + 1, len - 1) == 0);
}

/* Of a cache's only block, or of plain bytes at its place. */
static kvcl_req_h post_long(cf_t *cf, kvcl_cache_h cache, size_t len, bool plain, const kvcl_xfer_params_t *params)
{
    static const uint32_t id[] = {0};
    kvcl_sel_t            sel  = cf_sel(id, 1);
    void                  *buf = cf_see(cache, 0);
    kvcl_req_h            req  = NULL;

    if (plain) {
        CF_OK(cf, (cf->rank == 0) ? kvcl_send_bytes(cf->world, 1, 1000, buf, len, params, &req)
                                  : kvcl_recv_bytes(cf->world, 0, 1000, buf, len, params, &req));
    } else {
        CF_OK(cf, (cf->rank == 0) ? kvcl_send(cf->world, 1, 1000, cache, &sel, params, &req)
                                  : kvcl_recv(cf->world, 0, 1000, cache, &sel, params, &req));
    }
    return req;
}

/* One message between ranks 0 and 1. i: which side stops it, and how. wait: when. */
static void one_stopped(cf_t *cf, kvcl_cache_h cache, size_t len, int i, uint64_t wait, uint64_t *whole,
                        uint64_t *stopped)
{
    int                stopper = (i / 2) % 2;
    kvcl_xfer_params_t params  = within(((i / 4) % 2) && (cf->rank == stopper) ? wait + 1000 : 0);
    char               *buf    = cf_see(cache, 0);
    kvcl_req_h         req     = post_long(cf, cache, len, (i % 3) == 0, &params);
    uint64_t           until;
    kvcl_status_t      status;

    until = kvcl_deadline_after(wait);
    while ((cf->rank == stopper) && (params.timeout_ns == 0) && !kvcl_deadline_passed(until)) {
    }
    if ((cf->rank == stopper) && (params.timeout_ns == 0)) {
        kvcl_req_cancel(req);
    }
    if ((cf->rank == 1) && (stopper == 0)) { /* the sender may have withdrawn it before this rank received it */
        status = kvcl_req_wait(req, 50 * KVCL_NS_PER_MS);
        if (status == KVCL_ERR_WAIT_TIMEOUT) {
            kvcl_req_cancel(req);
            status = cf_end(cf, req);
        }
    } else if ((cf->rank == 0) && (stopper == 1)) { /* or the receiver ended before it matched */
        status = kvcl_req_wait(req, 50 * KVCL_NS_PER_MS);
        if (status == KVCL_ERR_WAIT_TIMEOUT) {
            kvcl_req_cancel(req);
            status = cf_end(cf, req);
        }
    } else {
        status = cf_end(cf, req);
    }
    if (cf->rank == 0) {
        memset(buf, 0x42, len); /* the caller's again */
    } else if (status == KVCL_OK) {
        CF_CHECK(cf, all_are(buf, 0x41, len));
        ++*whole;
    } else {
        CF_CHECK(cf, (status == KVCL_ERR_CANCELED) || (status == KVCL_ERR_TIMED_OUT));
        memset(buf, 0x33, len);
        cf_sleep_us(cf, 500);
        CF_CHECK(cf, all_are(buf, 0x33, len));
        ++*stopped;
    }
}

/*
 * Either side stops at any moment of a long message, of plain bytes or of blocks that the receiver may copy out of the
 * sender's memory itself. Both sides get an end. The side that stopped owns its buffer again. Data reported complete to
 * the receiver is complete, though the sender overwrites its buffer as soon as it may.
 */
static void stop_at_any_moment(cf_t *cf)
{
    enum { LEN = 2 << 20, ROUNDS = 120 };
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(1, LEN);
    cf_cache_t    ours = cf_cache(cf, "ours", &layout, true), theirs = cf_cache(cf, "theirs", &layout, false);
    uint64_t      whole = 0, stopped = 0;
    int           i;

    for (i = 0; i < ROUNDS; ++i) {
        kvcl_cache_h cache = (i % 2) ? ours.h : theirs.h;
        uint64_t     wait  = kvcl_rand_below(&cf->rnd, 600 * KVCL_NS_PER_US);
        memset(cf_see(cache, 0), (cf->rank == 0) ? 0x41 : 0x5a, LEN);
        cf_fence(cf);
        if (cf->rank > 1) {
            cf_fence(cf);
            continue;
        }
        one_stopped(cf, cache, LEN, i, wait, &whole, &stopped);
        cf_fence(cf);
    }
    if (cf->rank == 1) {
        printf("     stopped messages over %s: %d, %d whole\n", cf->path, (int)stopped, (int)whole);
        fflush(stdout);
        CF_CHECK(cf, stopped > 0);
    }
    cf_cache_end(&ours);
    cf_cache_end(&theirs);
}

/* From rank 0 to 1. */
static void one_way(cf_t *cf, uint64_t tag)
{
    char byte;

    if (cf->rank == 0) {
        CF_OK(cf, cf_end(cf, send_to(cf, 1, tag, "x", 1)));
    } else if (cf->rank == 1) {
        CF_OK(cf, cf_end(cf, recv_from(cf, 0, tag, &byte, 1, NULL)));
    }
}

/* Plain bytes of a process on the same host are read out of its memory, whatever it does meanwhile: the sender is
 * stopped between its call and the recv. Where the kernel does not permit that, the sender serves them once it runs. */
static void stopped_sender(cf_t *cf)
{
    enum { LEN = (3 << 20) + 5 };
    kvcl_context_stats_t before = KVCL_CONTEXT_STATS_INIT, after = KVCL_CONTEXT_STATS_INIT;
    kvcl_recv_info_t     info = KVCL_RECV_INFO_INIT;
    char                 *buf = malloc(LEN);
    kvcl_req_h           req = NULL;
    kvcl_status_t        status;

    memset(buf, (cf->rank == 0) ? 'x' : 0, LEN);
    one_way(cf, 900); /* they are connected */
    if (cf->rank == 0) {
        CF_OK(cf, kvcl_send_bytes(cf->world, 1, 901, buf, LEN, NULL, &req));
    }
    cf_fence(cf);
    if (cf->rank == 1) {
        CF_OK(cf, kvcl_probe(cf->world, 0, 901, 60 * KVCL_NS_PER_SEC, &info)); /* announced: a link may still be made */
        CF_OK(cf, kvcl_context_stats(cf->ctx, &before));
        cf_kill(cf, 0, SIGSTOP);
        CF_OK(cf, kvcl_recv_bytes(cf->world, 0, 901, buf, LEN, NULL, &req));
        status = cf_may_read(cf, 0) ? cf_end(cf, req) : kvcl_req_wait(req, 50 * KVCL_NS_PER_MS);
        cf_kill(cf, 0, SIGCONT);
        if (status == KVCL_ERR_WAIT_TIMEOUT) {
            printf("     this process may not read another one of its user: served\n");
            status = cf_end(cf, req);
        }
        CF_IS(cf, status, KVCL_OK);
        CF_OK(cf, kvcl_context_stats(cf->ctx, &after));
        CF_CHECK(cf, after.bytes_native - before.bytes_native == (cf_may_read(cf, 0) ? LEN : 0));
        CF_CHECK(cf, after.bytes_in - before.bytes_in == LEN);
        CF_CHECK(cf, all_are(buf, 'x', LEN));
    } else if (cf->rank == 0) {
        CF_OK(cf, cf_end(cf, req));
    }
    free(buf);
}

/* A recv that is cancelled while it reads the sender's memory ends before the rest is read. A try may end first. */
static void reads_end_early(cf_t *cf)
{
    enum { LEN = 128 << 20, TRIES = 10 };
    kvcl_recv_info_t info  = KVCL_RECV_INFO_INIT;
    char             *buf  = malloc(LEN);
    kvcl_req_h       req   = NULL;
    bool             early = false;
    kvcl_status_t    status;
    int              i;

    one_way(cf, 902); /* they are connected */
    for (i = 0; i < TRIES; ++i) {
        memset(buf, (cf->rank == 0) ? 'x' : 0, LEN);
        if (cf->rank == 0) {
            CF_OK(cf, kvcl_send_bytes(cf->world, 1, 903, buf, LEN, NULL, &req));
        }
        cf_fence(cf);
        if (cf->rank == 1) {
            CF_OK(cf, kvcl_probe(cf->world, 0, 903, 60 * KVCL_NS_PER_SEC, &info)); /* the recv begins to read at once */
            CF_OK(cf, kvcl_recv_bytes(cf->world, 0, 903, buf, LEN, NULL, &req));
            kvcl_req_cancel(req);
            status = cf_end(cf, req);
            CF_CHECK(cf, (status == KVCL_OK) ? all_are(buf, 'x', LEN) : (status == KVCL_ERR_CANCELED));
            early = early || ((status == KVCL_ERR_CANCELED) && (buf[LEN - 1] == 0));
        }
        cf_fence(cf);
        if (cf->rank == 0) {
            kvcl_req_cancel(req); /* it may have ended */
            status = cf_end(cf, req);
            CF_CHECK(cf, (status == KVCL_OK) || (status == KVCL_ERR_CANCELED));
        }
    }
    CF_CHECK(cf, (cf->rank != 1) || early);
    free(buf);
}

static const cf_case_t cases[] = {
    {"sizes", sizes, 0},
    {"order", order, 0},
    {"order_of_recvs", order_of_recvs, 0},
    {"any_source", any_source, 0},
    {"communicators", communicators, 0},
    {"blocks", blocks, 0},
    {"mismatch", mismatch, 0},
    {"cancel_recv", cancel_recv, 0},
    {"sender_gives_up", sender_gives_up, 0},
    {"stop_at_any_moment", stop_at_any_moment, CF_RACY},
    {"stopped_sender", stopped_sender, CF_PROCS | CF_MAPPED},
    {"reads_end_early", reads_end_early, CF_PROCS | CF_MAPPED},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 3, 0}, {"loop", false, 3, CF_OVERTAKE}, {"shm", false, 2, 0}, {"shm", true, 3, 0}, {"tcp", false, 2,
                                                                                                        0},
    {"tcp", true, 3, 0},   {"tcp", true, 2, CF_LANE}, {"tcp", true, 2, KVCL_INIT_NO_THREAD},     {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
