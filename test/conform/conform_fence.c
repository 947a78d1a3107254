/*
 * The guarantees at completion. A signal never precedes its data. After the end of a get, with any status, its buffer
 * belongs to the caller alone. After a revoke, no more bytes move.
 */
#include "conform.h"
#include "conform_native.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kvcl_xfer_params_t signal_to(kvcl_rmem_h rmem, uint64_t offset, uint64_t add)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.signal_mem    = rmem;
    params.signal_offset = offset;
    params.signal_add    = add;
    return params;
}

/* ---------------------------------------------------------------- signals */

/* Rank 0 puts. Rank 1 waits for the count, checks at once, and replies with a signal of its own. */
static void signal_rounds(cf_t *cf, bool ours, size_t len, int rounds)
{
    cf_mem_t   data = cf_mem(cf, len, ours, KVCL_READ_WRITE), count = cf_mem(cf, 64, ours, KVCL_WRITE);
    char       *buf = malloc(len);
    uint64_t   seed = cf_same(cf);
    kvcl_req_h req, back;
    int        i;

    for (i = 1; i <= rounds; ++i) {
        if (cf->rank == 0) {
            kvcl_xfer_params_t params = signal_to(count.of[1], 8, 1);
            cf_bytes(seed, (uint32_t)i, buf, len);
            CF_OK(cf, kvcl_put_bytes(data.of[1], 0, buf, len, &params, &req));
            CF_OK(cf, cf_end(cf, req));
            CF_OK(cf, kvcl_signal_wait(count.mine, 0, (uint64_t)i * 3, 60 * KVCL_NS_PER_SEC));
        } else if (cf->rank == 1) {
            kvcl_xfer_params_t params = signal_to(count.of[0], 0, 3);
            CF_OK(cf, kvcl_signal_wait(count.mine, 8, (uint64_t)i, 60 * KVCL_NS_PER_SEC));
            CF_CHECK(cf, cf_bytes_are(seed, (uint32_t)i, data.addr, len));
            CF_OK(cf, kvcl_put_bytes(data.of[0], 0, buf, 0, &params, &back));
            CF_OK(cf, cf_end(cf, back));
        }
    }
    CF_IS(cf, kvcl_signal_wait(count.mine, 0, UINT64_MAX, 2 * KVCL_NS_PER_MS), KVCL_ERR_WAIT_TIMEOUT);
    cf_mem_end(cf, &data);
    cf_mem_end(cf, &count);
    free(buf);
}

static void signal_after_data(cf_t *cf)
{
    static const size_t sizes[] = {8, 4096, 8193, 262145, 1500000};
    unsigned i;

    for (i = 0; i < 5; ++i) {
        signal_rounds(cf, true, sizes[i], (i < 3) ? 300 : 40);
        signal_rounds(cf, false, sizes[i], (i < 3) ? 300 : 40);
    }
}

/* Blocks of a cache, several puts in flight, one count for all. */
static void signal_with_blocks(cf_t *cf)
{
    static const uint32_t src[] = {0, 1, 2, 3};
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(64, 5000);
    uint64_t      seed = cf_same(cf);
    cf_cache_t    cache = cf_cache(cf, "blocks", &layout, (seed & 1) != 0);
    cf_mem_t      count = cf_mem(cf, 8, true, KVCL_READ_WRITE);
    kvcl_req_h    reqs[12];
    uint32_t      i, b;

    cf_fill(cf, cache.h, seed + (uint64_t)cf->rank);
    cf_fence(cf);
    if (cf->rank == 0) {
        for (i = 0; i < 12; ++i) {
            kvcl_xfer_params_t params = signal_to(count.of[1], 0, 1);
            uint32_t           dst[4] = {8 + 4 * i, 9 + 4 * i, 10 + 4 * i, 11 + 4 * i};
            kvcl_sel_t         local = cf_sel(src, 4), remote = cf_sel(dst, 4);
            CF_OK(cf, kvcl_put(cf->world, 1, cache.h, &local, &remote, &params, &reqs[i]));
            memset(dst, 0xff, sizeof(dst)); /* ids are copied */
        }
        CF_OK(cf, kvcl_req_wait_all(reqs, 12, 60 * KVCL_NS_PER_SEC));
    } else if (cf->rank == 1) {
        CF_OK(cf, kvcl_signal_wait(count.mine, 0, 12, 60 * KVCL_NS_PER_SEC));
        for (b = 8; b < 56; ++b) {
            cf_block_is(cf, cache.h, b, seed, b % 4);
        }
    }
    cf_mem_end(cf, &count);
    cf_cache_end(&cache);
}

/* The signal's memory needs the write right, which may be revoked. */
static void signal_rights(cf_t *cf)
{
    cf_mem_t   data = cf_mem(cf, 64, true, KVCL_READ_WRITE), count = cf_mem(cf, 64, true, KVCL_READ);
    cf_mem_t   gone = cf_mem(cf, 64, false, KVCL_READ_WRITE);
    int        next = (cf->rank + 1) % cf->size;
    kvcl_req_h req;

    kvcl_xfer_params_t params = signal_to(count.of[next], 0, 1);
    CF_IS(cf, kvcl_put_bytes(data.of[next], 0, "12345678", 8, &params, &req), KVCL_ERR_ACCESS);
    params = signal_to(gone.of[next], 4, 1);
    CF_IS(cf, kvcl_put_bytes(data.of[next], 0, "12345678", 8, &params, &req), KVCL_ERR_INVALID_PARAM);
    params = signal_to(gone.of[next], 64, 1);
    CF_IS(cf, kvcl_put_bytes(data.of[next], 0, "12345678", 8, &params, &req), KVCL_ERR_OUT_OF_RANGE);
    if (cf->size > 1) {
        params = signal_to(gone.of[cf->rank], 0, 1);
        CF_IS(cf, kvcl_put_bytes(data.of[next], 0, "12345678", 8, &params, &req), KVCL_ERR_INVALID_PARAM);
    }
    CF_OK(cf, kvcl_mem_revoke(gone.mine));
    cf_fence(cf);
    params = signal_to(gone.of[next], 0, 1);
    CF_OK(cf, kvcl_put_bytes(data.of[next], 0, "12345678", 8, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
    cf_fence(cf);
    CF_CHECK(cf, *(uint64_t *)(void *)gone.addr == 0);
    CF_IS(cf, kvcl_signal_wait(data.mine, 60, 0, KVCL_NS_PER_MS), KVCL_ERR_OUT_OF_RANGE);
    CF_IS(cf, kvcl_signal_wait(data.mine, 64, 0, KVCL_NS_PER_MS), KVCL_ERR_OUT_OF_RANGE);
    cf_mem_end(cf, &data);
    cf_mem_end(cf, &count);
    cf_mem_end(cf, &gone);
}

/* ---------------------------------------------------------------- the fence */

enum { FENCE_BYTES = 1 << 20, FENCE_ROUNDS = 10000 };

typedef struct tally {
    uint64_t ok, stopped, rounds;
} tally_t;

static bool all_are(const char *buf, char c, size_t len)
{
    return (buf[0] == c) && (memcmp(buf, buf + 1, len - 1) == 0);
}

/* One get that is canceled, or whose deadline expires, at some point of its transfer. */
static void stopped_get(cf_t *cf, kvcl_rmem_h from, char *buf, uint64_t seed, tally_t *tally)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           wait   = kvcl_rand_below(&cf->rnd, 300 * KVCL_NS_PER_US), until;
    bool               cancel = kvcl_rand_below(&cf->rnd, 2) != 0;
    kvcl_status_t      status;
    kvcl_req_h         req;

    params.timeout_ns = cancel ? 0 : wait + 1;
    CF_OK(cf, kvcl_get_bytes(from, 0, buf, FENCE_BYTES, &params, &req));
    if (cancel) {
        until = kvcl_deadline_after(wait);
        while (!kvcl_deadline_passed(until)) {
        }
        kvcl_req_cancel(req);
        kvcl_req_cancel(req);
    }
    status = cf_end(cf, req);
    if (status == KVCL_OK) {
        CF_CHECK(cf, cf_bytes_are(seed, 0, buf, FENCE_BYTES));
        ++tally->ok;
        return;
    }
    CF_IS(cf, status, cancel ? KVCL_ERR_CANCELED : KVCL_ERR_TIMED_OUT);
    memset(buf, 0x5a, FENCE_BYTES); /* the caller's again, from this moment on */
    cf_sleep_us(cf, 200);
    CF_CHECK(cf, all_are(buf, 0x5a, FENCE_BYTES));
    ++tally->stopped;
}

/* Rank 0 gets from the others' memory, which their CPUs serve or which is mapped, for about a second. */
static void fence_of_gets(cf_t *cf)
{
    tally_t  tally = {0, 0, 0};
    unsigned kind;

    for (kind = 0; kind < 2; ++kind) {
        cf_mem_t mem   = cf_mem(cf, FENCE_BYTES, kind == 0, KVCL_READ);
        char     *bufs = malloc(4 * FENCE_BYTES);
        uint64_t until = kvcl_deadline_after(300 * KVCL_NS_PER_MS), i;
        cf_bytes(cf_same(cf) + (uint64_t)cf->rank, 0, mem.addr, FENCE_BYTES);
        memset(bufs, 0x5a, 4 * FENCE_BYTES);
        cf_fence(cf);
        for (i = 0; (cf->rank == 0) && (i < FENCE_ROUNDS) && ((i < 12) || !kvcl_deadline_passed(until)); ++i) {
            stopped_get(cf, mem.of[1], bufs + ((i % 4) * FENCE_BYTES), cf_same(cf) + 1, &tally);
            if (i % 4 == 3) { /* all four were untouched for four rounds */
                memset(bufs, 0x5a, 4 * FENCE_BYTES);
            }
            ++tally.rounds;
        }
        cf_mem_end(cf, &mem);
        free(bufs);
    }
    if (cf->rank == 0) {
        kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;
        KVCL_TRY(kvcl_context_stats(cf->ctx, &stats));
        printf("     fence over %s: %" PRIu64 " gets, %" PRIu64 " whole, %" PRIu64 " stopped, %" PRIu64 " late "
               "frames\n",
               cf->path, tally.rounds, tally.ok, tally.stopped, stats.late);
        fflush(stdout);
        /* in one process a copy ends before most stops arrive: none need arrive in time */
        CF_CHECK(cf, (tally.rounds > 10) && ((tally.stopped > 0) || (strcmp(cf->path, "loop") == 0)) &&
                         (stats.malformed == 0));
    }
}

/* ---------------------------------------------------------------- the buffer is reused at once */

/*
 * Rank 0 gets and receives over every path and stops each transfer at some point, by cancel or deadline. Once it has
 * ended, rank 0 overwrites the buffer, and checks some rounds later that these bytes are unchanged. CF_STOPS=N runs
 * until N buffers were reclaimed, equally many on each path (100000: minutes); else it runs for REUSE_ROUNDS, and until
 * one was.
 */
enum { REUSE_BYTES = 192 << 10, REUSE_BUFFERS = 8, REUSE_ROUNDS = 64, REUSE_TAG = 1 << 20, GIVEN = 0x41 };

typedef enum { GET_MAPPED, GET_SERVED, RECV_MAPPED, RECV_SERVED, RECV_LAYERS, WAYS } way_t;

static const char *const ways[] = {"get, mapped", "get, served", "recv, mapped", "recv, served", "recv by layers"};

typedef struct reuse {
    cf_mem_t   mapped, served;           /* at rank 1, all bytes GIVEN */
    cf_cache_t ours, theirs;             /* on rank 1; on rank 0 the buffers, one per block */
    uint64_t   rounds, stopped, whole;
    uint64_t   usual_ns;                 /* duration of a transfer that is not stopped */
    unsigned char mark[REUSE_BUFFERS];   /* the byte each was overwritten with; 0: none */
} reuse_t;

static cf_cache_t reuse_cache(const reuse_t *r, way_t way)
{
    return (way == RECV_SERVED) ? r->theirs : r->ours;
}

static char *reuse_buffer(const reuse_t *r, way_t way, uint32_t i)
{
    return (char *)cf_see(reuse_cache(r, way).h, 0) + ((size_t)i * REUSE_BYTES);
}

static kvcl_req_h reuse_post(cf_t *cf, reuse_t *r, way_t way, uint32_t i, uint64_t tag, uint64_t timeout_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         sel    = cf_sel(&i, 1);
    kvcl_req_h         req;

    params.timeout_ns = timeout_ns;
    if (way <= GET_SERVED) {
        CF_OK(cf, kvcl_get_bytes((way == GET_MAPPED) ? r->mapped.of[1] : r->served.of[1], 0, reuse_buffer(r, way, i),
                                 REUSE_BYTES, &params, &req));
    } else {
        CF_OK(cf, kvcl_recv(cf->world, 1, tag, reuse_cache(r, way).h, &sel, &params, &req));
    }
    return req;
}

/* One transfer that is stopped in flight, or was faster. */
static void reuse_round(cf_t *cf, reuse_t *r, way_t way)
{
    uint32_t      i      = (uint32_t)(r->rounds % REUSE_BUFFERS);
    char          *buf   = reuse_buffer(r, way, i);
    bool          cancel = kvcl_rand_below(&cf->rnd, 2) != 0, let = (r->rounds % 64 == 0);
    uint64_t      wait   = kvcl_rand_below(&cf->rnd, r->usual_ns), began, until;
    kvcl_status_t status;
    kvcl_req_h    req;

    CF_CHECK(cf, (r->mark[i] == 0) || all_are(buf, (char)r->mark[i], REUSE_BYTES));
    while ((way >= RECV_MAPPED) && (atomic_load(cf_word(cf, 0)) <= r->rounds)) { /* until its send is posted */
        cf_sleep_us(cf, 1);
    }
    began = kvcl_now_ns();
    req   = reuse_post(cf, r, way, i, REUSE_TAG + r->rounds, (cancel || let) ? 0 : wait + 1);
    until = kvcl_deadline_after(wait);
    while (cancel && !let && !kvcl_deadline_passed(until)) {
        if (cf->no_thread) {
            (void)kvcl_progress(cf->ctx);
        }
    }
    if (cancel && !let) {
        kvcl_req_cancel(req);
    }
    status     = cf_end(cf, req);
    r->mark[i] = 0;
    if (status == KVCL_OK) {
        CF_CHECK(cf, all_are(buf, GIVEN, REUSE_BYTES));
        ++r->whole;
        if (let) {
            r->usual_ns = (kvcl_now_ns() - began + 3 * r->usual_ns) / 4 + 1000;
        }
    } else {
        CF_IS(cf, status, cancel ? KVCL_ERR_CANCELED : KVCL_ERR_TIMED_OUT);
        r->mark[i] = (unsigned char)(0x80 + (r->rounds % 97));
        memset(buf, r->mark[i], REUSE_BYTES); /* the caller's again, from this moment on */
        ++r->stopped;
    }
    ++r->rounds;
    atomic_store(cf_word(cf, 1), r->rounds);
}

/* Rank 1: post a send for each round, until the recv has ended. */
static void reuse_give(cf_t *cf, reuse_t *r, way_t way)
{
    static const uint32_t id     = 0;
    kvcl_xfer_params_t    params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t            sel    = cf_sel(&id, 1);
    kvcl_status_t         status;
    uint64_t              round;
    kvcl_req_h            req;
    uint32_t              l;

    params.flags = (way == RECV_LAYERS) ? KVCL_LAYERWISE : 0;
    for (round = 0; atomic_load(cf_word(cf, 2)) == 0; ++round) {
        CF_OK(cf, kvcl_send(cf->world, 0, REUSE_TAG + round, reuse_cache(r, way).h, &sel, &params, &req));
        for (l = 0; (way == RECV_LAYERS) && (l < 4); ++l) {
            status = kvcl_req_layer_ready(req, l);
            CF_CHECK(cf, status != KVCL_ERR_OUT_OF_RANGE);
        }
        atomic_store(cf_word(cf, 0), round + 1);
        do {
            status = kvcl_req_wait(req, KVCL_NS_PER_MS);
            if ((status == KVCL_ERR_WAIT_TIMEOUT) &&
                ((atomic_load(cf_word(cf, 1)) > round) || (atomic_load(cf_word(cf, 2)) != 0))) {
                kvcl_req_cancel(req); /* the recv had ended before it matched */
            }
        } while (status == KVCL_ERR_WAIT_TIMEOUT);
    }
}

static void reuse_way(cf_t *cf, reuse_t *r, way_t way)
{
    const char *env   = getenv("CF_STOPS");
    uint64_t   wanted = (env != NULL) ? (strtoull(env, NULL, 0) + WAYS - 1) / WAYS : 0;
    unsigned   i;

    for (i = 0; i < 3; ++i) {
        atomic_store(cf_word(cf, i), 0);
    }
    memset(r->mark, 0, sizeof(r->mark));
    r->rounds = r->stopped = r->whole = 0;
    r->usual_ns = 50 * KVCL_NS_PER_US;
    for (i = 0; i < REUSE_BUFFERS; ++i) {
        memset(reuse_buffer(r, way, i), (cf->rank == 1) ? GIVEN : 0, REUSE_BYTES);
    }
    cf_fence(cf);
    if (cf->rank == 0) {
        while ((wanted != 0) ? (r->stopped < wanted) : ((r->rounds < REUSE_ROUNDS) || (r->stopped == 0))) {
            CF_CHECK(cf, (wanted != 0) || (r->rounds < 1000 * REUSE_ROUNDS));
            reuse_round(cf, r, way);
            if (r->rounds % 64 == 0) {
                cf_alive(cf);
            }
        }
        for (i = 0; i < REUSE_BUFFERS; ++i) {
            CF_CHECK(cf, (r->mark[i] == 0) || all_are(reuse_buffer(r, way, i), (char)r->mark[i], REUSE_BYTES));
        }
        atomic_store(cf_word(cf, 2), 1);
        printf("     used again over %s, %s: %" PRIu64 " stopped, %" PRIu64 " whole\n", cf->path, ways[way], r->stopped,
               r->whole);
        fflush(stdout);
        CF_CHECK(cf, r->stopped > 0);
    } else if ((cf->rank == 1) && (way >= RECV_MAPPED)) {
        reuse_give(cf, r, way);
    }
    cf_fence(cf);
}

static void used_again_at_once(cf_t *cf)
{
    kvcl_layout_t layout = KVCL_LAYOUT_NHD(.layers = 4, .kv = 1, .blocks = REUSE_BUFFERS, .tokens = 1, .heads = 1,
                                           .head_dim = REUSE_BYTES / 4, .elem_bytes = 1,
                                           .block_stride = REUSE_BYTES, .layer_stride = REUSE_BYTES / 4);
    reuse_t       r = {.mapped = cf_mem(cf, REUSE_BYTES, true, KVCL_READ),
                       .served = cf_mem(cf, REUSE_BYTES, false, KVCL_READ),
                       .ours = cf_cache(cf, "reuse", &layout, true), .theirs = cf_cache(cf, "reuse 2", &layout, false)};
    way_t         way;

    memset(r.mapped.addr, GIVEN, REUSE_BYTES);
    memset(r.served.addr, GIVEN, REUSE_BYTES);
    cf_fence(cf);
    for (way = GET_MAPPED; way < WAYS; ++way) {
        reuse_way(cf, &r, way);
    }
    cf_mem_end(cf, &r.mapped);
    cf_mem_end(cf, &r.served);
    cf_cache_end(&r.ours);
    cf_cache_end(&r.theirs);
}

/* ---------------------------------------------------------------- revoke of memory in use */

enum { REVOKE_BYTES = 4 << 20, REVOKE_ROUNDS = 12 };

/* Rank 1 revokes while rank 0 gets or puts. An operation that ends with OK is complete; after the revoke was observed,
 * no byte changes. */
static void revoke_round(cf_t *cf, bool ours, bool is_put, uint64_t *refused)
{
    cf_mem_t         mem  = cf_mem(cf, REVOKE_BYTES, ours, KVCL_READ_WRITE);
    char             *buf = malloc(REVOKE_BYTES);
    _Atomic uint64_t *gone = cf_word(cf, 0);
    kvcl_status_t    status = KVCL_OK;
    kvcl_req_h       req;

    memset(mem.addr, 1, REVOKE_BYTES);
    memset(buf, 2, REVOKE_BYTES);
    atomic_store(gone, 0);
    cf_fence(cf);
    if (cf->rank == 0) {
        uint64_t seen;
        do {
            seen = atomic_load(gone);
            CF_OK(cf, is_put ? kvcl_put_bytes(mem.of[1], 0, buf, REVOKE_BYTES, NULL, &req)
                             : kvcl_get_bytes(mem.of[1], 0, buf, REVOKE_BYTES, NULL, &req));
            status = cf_end(cf, req);
            CF_CHECK(cf, (status == KVCL_OK) || (status == KVCL_ERR_ACCESS));
            CF_CHECK(cf, is_put || (status != KVCL_OK) || all_are(buf, 1, REVOKE_BYTES));
            CF_CHECK(cf, !seen || (status == KVCL_ERR_ACCESS)); /* it began after the revoke */
        } while (status == KVCL_OK);
        ++*refused;
    } else if (cf->rank == 1) {
        cf_sleep_us(cf, 200 + (unsigned)kvcl_rand_below(&cf->rnd, 2000));
        CF_OK(cf, kvcl_mem_revoke(mem.mine));
        atomic_store(gone, 1);
        if ((!ours && (strcmp(cf->path, "shm") == 0)) || (strcmp(cf->path, "tcp") == 0) || cf->overtakes) {
            memset(mem.addr, 3, REVOKE_BYTES); /* the owner's CPU moves the bytes, and has stopped */
            cf_sleep_us(cf, 2000);
            CF_CHECK(cf, all_are(mem.addr, 3, REVOKE_BYTES));
        }
    }
    cf_mem_end(cf, &mem);
    free(buf);
}

static void revoke_during(cf_t *cf)
{
    uint64_t refused = 0;
    int      i;

    for (i = 0; i < REVOKE_ROUNDS; ++i) {
        revoke_round(cf, (i & 1) != 0, (i & 2) != 0, &refused);
    }
    CF_CHECK(cf, (cf->rank != 0) || (refused == REVOKE_ROUNDS));
}

static const cf_case_t cases[] = {
    {"signal_after_data", signal_after_data, 0},
    {"signal_with_blocks", signal_with_blocks, 0},
    {"signal_rights", signal_rights, 0},
    {"fence_of_gets", fence_of_gets, 0},
    {"used_again_at_once", used_again_at_once, 0},
    {"deadline_native", cf_deadline_native, CF_BY_GET | CF_FAULTS},
    {"a_stale_description", cf_a_stale_description, CF_BY_GET | CF_FAULTS},
    {"store_gets_native", cf_store_gets_native, CF_BY_GET},
    {"store_reuses_slots", cf_store_reuses_slots, CF_BY_GET | CF_RACY},
    {"lookups_native", cf_lookups_native, CF_BY_GET},
    {"gets_look_natively", cf_gets_look_natively, CF_BY_GET},
    {"lookups_beside_writes", cf_lookups_beside_writes, CF_BY_GET},
    {"lookups_of_a_closed_store", cf_lookups_of_a_closed_store, CF_BY_GET},
    {"lookups_stalled", cf_lookups_stalled, CF_BY_GET | CF_FAULTS},
    {"revoke_during", revoke_during, CF_RACY},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 2, CF_NATIVE}, {"loop", false, 2, CF_OVERTAKE}, {"shm", false, 2, 0},
    {"shm", true, 2, 0},   {"tcp", false, 2, 0}, {"tcp", true, 3, 0},   {"tcp", true, 2, CF_LANE},
    {"tcp", true, 2, KVCL_INIT_NO_THREAD},     {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    setenv("KVCL_INLINE_COPY", "16K", 0); /* a copy inside the post cannot be stopped */
    return cf_main(argc, argv, configs, cases);
}
