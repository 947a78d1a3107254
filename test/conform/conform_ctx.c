/*
 * Contexts: many threads on one, no activity when idle, finalizing with operations in flight or objects not freed,
 * several in a process.
 */
#include "../unit/listening.h"
#include "conform.h"
#include "test/idle.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------- many threads on one context */

enum { THREADS = 5, BLOCK = 20000, AREA = 8 };

typedef struct worker {
    cf_t         *cf;
    unsigned     id;
    kvcl_cache_h cache;
    kvcl_rmem_h  rmem;
    uint64_t     seed;
    uint64_t     until;
    unsigned     rounds;
    pthread_t    thread;
} worker_t;

/* Blocks 0..7 are read by all; worker i owns blocks 8 + 8 i ... on both sides. */
static void worker_get(worker_t *w, kvcl_rand_t *rnd)
{
    uint32_t      src[3], dst[3], i, base = AREA * (1 + w->id);
    kvcl_sel_t    remote = cf_sel(src, 3), local = cf_sel(dst, 3);
    kvcl_req_h    req;

    for (i = 0; i < 3; ++i) {
        src[i] = (uint32_t)kvcl_rand_below(rnd, AREA);
        dst[i] = base + i;
    }
    CF_OK(w->cf, kvcl_get(w->cf->world, cf_after(w->cf), w->cache, &remote, &local, NULL, &req));
    CF_OK(w->cf, cf_end(w->cf, req));
    for (i = 0; i < 3; ++i) {
        cf_block_is(w->cf, w->cache, dst[i], w->seed + (uint64_t)cf_after(w->cf), src[i]);
    }
}

static void worker_put(worker_t *w, kvcl_rand_t *rnd)
{
    uint32_t   src = (uint32_t)kvcl_rand_below(rnd, AREA), far = AREA * (1 + w->id) + 5, back = far + 1;
    kvcl_sel_t local = cf_sel(&src, 1), remote = cf_sel(&far, 1), mine = cf_sel(&back, 1);
    kvcl_req_h req;

    CF_OK(w->cf, kvcl_put(w->cf->world, cf_after(w->cf), w->cache, &local, &remote, NULL, &req));
    CF_OK(w->cf, cf_end(w->cf, req));
    CF_OK(w->cf, kvcl_get(w->cf->world, cf_after(w->cf), w->cache, &remote, &mine, NULL, &req));
    CF_OK(w->cf, cf_end(w->cf, req));
    cf_block_is(w->cf, w->cache, back, w->seed + (uint64_t)w->cf->rank, src);
}

/* Each rank sends the same number of messages, or some would wait for ever: one per round, rounds agreed by tag. */
static void worker_exchange(worker_t *w, kvcl_rand_t *rnd)
{
    size_t     len  = (kvcl_rand_below(rnd, 3) == 0) ? 100000 : 100;
    char       *out = malloc(len), *in = malloc(100000);
    uint64_t   tag  = 0x10000u * (w->id + 1) + w->rounds, i;
    kvcl_req_h reqs[2];
    kvcl_recv_info_t   info = KVCL_RECV_INFO_INIT;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.info = &info;
    cf_bytes(tag, (uint32_t)w->cf->rank, out, len);
    CF_OK(w->cf, kvcl_recv_bytes(w->cf->world, cf_before(w->cf), tag, in, 100000, &params, &reqs[0]));
    CF_OK(w->cf, kvcl_send_bytes(w->cf->world, cf_after(w->cf), tag, out, len, NULL, &reqs[1]));
    for (i = kvcl_rand_below(rnd, 40); i > 0; --i) {
        kvcl_status_t status = (reqs[1] != NULL) ? kvcl_req_test(reqs[1]) : KVCL_OK;
        if (status != KVCL_INPROGRESS) {
            CF_OK(w->cf, status);
            reqs[1] = NULL;
        }
    }
    CF_OK(w->cf, kvcl_req_wait_all(reqs, 2, 60 * KVCL_NS_PER_SEC));
    CF_CHECK(w->cf, cf_bytes_are(tag, (uint32_t)cf_before(w->cf), in, info.bytes));
    free(out);
    free(in);
}

static void worker_cancel(worker_t *w, kvcl_rand_t *rnd)
{
    char       in[8];
    kvcl_req_h req;

    CF_OK(w->cf, kvcl_recv_bytes(w->cf->world, KVCL_ANY_SOURCE, 0xffffffff, in, 8, NULL, &req));
    if (kvcl_rand_below(rnd, 2)) {
        CF_IS(w->cf, kvcl_req_wait(req, 1 + kvcl_rand_below(rnd, 300000)), KVCL_ERR_WAIT_TIMEOUT);
    }
    kvcl_req_cancel(req);
    CF_IS(w->cf, cf_end(w->cf, req), KVCL_ERR_CANCELED);
}

static void *worker_main(void *arg)
{
    worker_t    *w = arg;
    kvcl_rand_t rnd;

    kvcl_rand_seed(&rnd, w->seed + w->id + ((uint64_t)w->cf->rank << 16));
    for (w->rounds = 0; w->rounds < 60; ++w->rounds) {
        worker_exchange(w, &rnd);
        worker_get(w, &rnd);
        worker_put(w, &rnd);
        worker_cancel(w, &rnd);
    }
    return NULL;
}

static void many_threads(cf_t *cf)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(AREA * (THREADS + 1), BLOCK);
    worker_t      workers[THREADS];
    uint64_t      seed = cf_same(cf);
    unsigned      i, kind;

    for (kind = 0; kind < 2; ++kind) {
        cf_cache_t cache = cf_cache(cf, "threads", &layout, kind == 0);
        cf_fill(cf, cache.h, seed + (uint64_t)cf->rank);
        cf_fence(cf);
        for (i = 0; i < THREADS; ++i) {
            workers[i] = (worker_t){.cf = cf, .id = i, .cache = cache.h, .seed = seed};
            pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        }
        for (i = 0; i < THREADS; ++i) {
            pthread_join(workers[i].thread, NULL);
        }
        cf_fence(cf);
        cf_cache_end(&cache);
    }
}

/* ---------------------------------------------------------------- silence */

typedef struct watcher {
    cf_t      *cf;
    pthread_t thread;
    bool      idle;
} watcher_t;

/* Check that this rank is idle while it waits for a message; then send that message to the next rank. */
static void *watch(void *arg)
{
    watcher_t   *me  = arg;
    const pid_t self = 0;
    kvcl_req_h  req;

    me->idle = falls_idle(&self, 1);
    CF_OK(me->cf, kvcl_send_bytes(me->cf->world, cf_after(me->cf), 2, "go on", 6, NULL, &req));
    CF_OK(me->cf, kvcl_req_wait(req, 100 * KVCL_NS_PER_SEC));
    return NULL;
}

/* Four connected ranks that do nothing use no processor time, nor do ranks that wait for a message that is not sent. */
static void idle(cf_t *cf)
{
    const pid_t self = 0;
    watcher_t   watcher = {.cf = cf};
    char        in[8], path[64];
    kvcl_req_h  req, s;
    int         i;

    for (i = 0; i < cf->size; ++i) {
        CF_OK(cf, kvcl_query_path(cf->world, i, path, sizeof(path)));
    }
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 1, in, 8, NULL, &req));
    CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 1, "warm up", 8, NULL, &s));
    CF_OK(cf, cf_end(cf, req));
    CF_OK(cf, cf_end(cf, s));
    cf_fence(cf);
    CF_CHECK(cf, falls_idle(&self, 1));
    cf_alive(cf);
    CF_OK(cf, kvcl_recv_bytes(cf->world, cf_before(cf), 2, in, 8, NULL, &req));
    CF_CHECK(cf, pthread_create(&watcher.thread, NULL, watch, &watcher) == 0);
    CF_OK(cf, kvcl_req_wait(req, 100 * KVCL_NS_PER_SEC));
    pthread_join(watcher.thread, NULL);
    CF_CHECK(cf, watcher.idle);
}

/* ---------------------------------------------------------------- leaving */

/* With requests in flight, pending callbacks, and caches, memory and communicators not freed, finalizing warns. It
 * neither hangs nor crashes, and makes no callback afterwards. */
static _Atomic unsigned after_end;

static void count_end(void *arg, kvcl_status_t status)
{
    (void)arg;
    if (status == KVCL_OK) {
        atomic_fetch_add(&after_end, 0x10000);
    }
    atomic_fetch_add(&after_end, 1);
}

static void leave_a_mess(cf_t *cf)
{
    enum { BIG = 8 << 20 };
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(8, BIG / 8);
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    kvcl_sel_t         sel = cf_sel(all, 8);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    cf_cache_t         cache = cf_cache(cf, "left behind", &layout, true), other = cf_cache(cf, "mine", &layout, false);
    cf_mem_t           mem = cf_mem(cf, BIG, true, KVCL_READ_WRITE), more = cf_mem(cf, BIG, false, KVCL_READ_WRITE);
    char               *buf = calloc(1, BIG);
    int                me = cf->rank;
    kvcl_comm_h        comm;
    kvcl_mem_h         plain;
    uint64_t           began;
    unsigned           i, seen;

    CF_OK(cf, kvcl_comm_create(cf->world, &me, 1, &comm));
    CF_OK(cf, kvcl_mem_alloc(cf->ctx, 4096, NULL, &plain));
    params.cb = count_end;
    cf_fence(cf);
    for (i = 0; i < 4; ++i) {
        params.remote_cache = NULL; /* only for the get of blocks */
        CF_OK(cf, kvcl_get_bytes(more.of[cf_after(cf)], 0, buf, BIG, &params, NULL));
        CF_OK(cf, kvcl_put_bytes(mem.of[cf_after(cf)], 0, buf, BIG, &params, NULL));
        CF_OK(cf, kvcl_send_bytes(cf->world, cf_after(cf), 3, buf, BIG, &params, NULL));
        CF_OK(cf, kvcl_recv_bytes(cf->world, KVCL_ANY_SOURCE, 4, buf, BIG, &params, NULL));
        params.remote_cache = (i & 1) ? "mine" : "left behind";
        CF_OK(cf, kvcl_get(cf->world, cf_after(cf), (i & 1) ? cache.h : other.h, &sel, &sel, &params, NULL));
    }
    cf_sleep_us(cf, (unsigned)kvcl_rand_below(&cf->rnd, 3000));
    while ((strcmp(cf->path, "loop") == 0) && ((atomic_load(&after_end) >> 16) < 12u * (unsigned)cf->size)) {
        cf_sleep_us(cf, 1000); /* in one process a context's memory must not be freed while others copy from it */
    }
    cf_fence(cf);
    began = kvcl_now_ns();
    kvcl_finalize(cf->ctx);
    CF_CHECK(cf, kvcl_now_ns() - began < 20 * KVCL_NS_PER_SEC);
    seen = atomic_load(&after_end);
    usleep(20000);
    CF_CHECK(cf, cf->procs ? ((atomic_load(&after_end) == seen) && ((seen & 0xffff) == 20)) : true);
    cf->ctx = NULL;
    free(buf);
    free(more.malloced);
    free(other.bases[0]);
    free(other.bases);
}

/* A cache that is not freed holds its name only until the end of its context: a new context may use it, and works. */
static void leave_and_return(cf_t *cf)
{
    int i;

    for (i = 0; i < 3; ++i) {
        kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
        kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(4, 100);
        kvcl_context_h     ctx;
        kvcl_cache_h       cache;
        kvcl_comm_h        world;
        kvcl_req_h         req, sent;
        char               in[8];
        params.boot = "self";
        params.path = cf->path;
        CF_OK(cf, kvcl_init(&params, &ctx));
        CF_OK(cf, kvcl_comm_world(ctx, &world));
        CF_CHECK(cf, (kvcl_comm_size(world) == 1) && (kvcl_comm_rank(world) == 0) && (kvcl_comm_view(world) == 1));
        CF_OK(cf, kvcl_cache_create(ctx, "again", &layout, NULL, &cache));
        CF_OK(cf, kvcl_send_bytes(world, 0, 1, "to me", 6, NULL, &sent));
        CF_OK(cf, kvcl_recv_bytes(world, 0, 1, in, 8, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_OK(cf, cf_end(cf, sent));
        CF_CHECK(cf, strcmp(in, "to me") == 0);
        if (i == 2) {
            kvcl_cache_destroy(cache);
        }
        kvcl_finalize(ctx);
    }
}

/* ---------------------------------------------------------------- error sentences, waits of a cache */

static void errors_name_the_rank(cf_t *cf)
{
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(4, 100);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    cf_cache_t         cache  = cf_cache(cf, "named", &layout, false);
    uint32_t           ids[]  = {0, 1};
    kvcl_sel_t         sel    = cf_sel(ids, 2);
    char               word[32];
    kvcl_req_h         req;

    snprintf(word, sizeof(word), "rank %d", cf_after(cf));
    params.remote_cache = "nowhere";
    CF_OK(cf, kvcl_get(cf->world, cf_after(cf), cache.h, &sel, &sel, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_NOT_REGISTERED);
    CF_CHECK(cf, strstr(kvcl_last_error(), word) != NULL);
    CF_OK(cf, kvcl_put(cf->world, cf_after(cf), cache.h, &sel, &sel, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_NOT_REGISTERED);
    CF_CHECK(cf, strstr(kvcl_last_error(), word) != NULL);
    params.remote_cache = NULL;
    params.timeout_ns   = 1000000;
    CF_OK(cf, kvcl_recv(cf->world, cf_after(cf), 77, cache.h, &sel, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_TIMED_OUT);
    CF_CHECK(cf, strstr(kvcl_last_error(), word) != NULL);
    CF_OK(cf, kvcl_recv(cf->world, KVCL_ANY_SOURCE, 77, cache.h, &sel, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_TIMED_OUT);
    CF_CHECK(cf, strstr(kvcl_last_error(), "from any rank") != NULL);
    cf_fence(cf);
    cf_cache_end(&cache);
}

/* Rank 1 stops in the middle of a get while rank 0 destroys the cache being read. renewed: another cache of that name
 * exists when rank 1 continues. */
static void goes_while_read(cf_t *cf, bool renewed)
{
    enum { MANY = 128 };
    kvcl_layout_t    layout = KVCL_LAYOUT_BYTES(MANY, 1 << 20);
    uint32_t         ids[MANY], i;
    kvcl_sel_t       sel   = cf_sel(ids, MANY);
    _Atomic uint64_t *word = cf_word(cf, 0);
    kvcl_cache_h     again = NULL;
    cf_cache_t       cache;
    kvcl_req_h       req;
    bool             gone = false;

    atomic_store(word, 0);
    cache = cf_cache(cf, "goes", &layout, false);
    for (i = 0; i < MANY; ++i) {
        ids[i] = i;
    }
    cf_fence(cf);
    if (cf->rank == 1) {
        CF_OK(cf, kvcl_get(cf->world, 0, cache.h, &sel, &sel, NULL, &req));
        for (i = 0; (i < 20) && (kvcl_req_test(req) == KVCL_INPROGRESS) && (atomic_load(word) == 0); ++i) {
            usleep(100);
        }
        atomic_store(word, 1);
        while (atomic_load(word) != 2) {
            usleep(1000);
        }
        CF_IS(cf, cf_end(cf, req), renewed ? KVCL_OK : KVCL_ERR_NOT_REGISTERED);
        CF_CHECK(cf, renewed || (strstr(kvcl_last_error(), "rank 0") != NULL));
        for (i = 0; renewed && (i < MANY); ++i) {
            cf_block_is(cf, cache.h, i, 5, i);
        }
    } else if (cf->rank == 0) {
        while (atomic_load(word) != 1) {
            cf_sleep_us(cf, 100);
        }
        kvcl_cache_destroy(cache.h);
        gone = strstr(kvcl_last_error(), "not destroyed") == NULL;
        if (!gone) { /* the network still reads it, until rank 1 continues */
            atomic_store(word, 2);
            cf_sleep_us(cf, 100000);
            kvcl_cache_destroy(cache.h);
        }
        if (renewed && gone) {
            CF_OK(cf, cf_over(cf, "goes", &layout, cache.bases, KVCL_MEM_HOST, &again));
            cf_fill(cf, again, 5);
        }
        atomic_store(word, 2);
    }
    cf_fence(cf);
    if ((cf->rank == 0) && !(renewed && gone)) { /* the name is free */
        CF_OK(cf, cf_over(cf, "goes", &layout, cache.bases, KVCL_MEM_HOST, &again));
    }
    cache.h = (cf->rank == 0) ? again : cache.h;
    cf_cache_end(&cache);
    cf_fence(cf);
}

static void a_cache_goes_while_it_is_read(cf_t *cf)
{
    if (cf->no_thread) { /* with a thread no rank stops */
        goes_while_read(cf, false);
        goes_while_read(cf, true);
    }
}

/* Without KVCL_NET a connected and active rank has no socket that a stranger could reach. */
static void only_named_interfaces_are_listened_on(cf_t *cf)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(4, 1 << 16);
    cf_cache_t          cache  = cf_cache(cf, "doors", &layout, false);
    uint32_t            ids[]  = {1, 2}; /* to block 1, while others read block 2 */
    kvcl_sel_t          to     = cf_sel(&ids[0], 1), from = cf_sel(&ids[1], 1);
    kvcl_req_h          req;

    cf_fence(cf);
    CF_OK(cf, kvcl_get(cf->world, (cf->rank + 1) % cf->size, cache.h, &from, &to, NULL, &req));
    CF_OK(cf, kvcl_req_wait(req, KVCL_WAIT_FOREVER));
    CF_CHECK(cf, (listening() > 0) == (strcmp(cf->path, "tcp") == 0));
    cf_fence(cf);
    cf_cache_end(&cache);
}

static const cf_case_t cases[] = {
    {"only_named_interfaces_are_listened_on", only_named_interfaces_are_listened_on, 0},
    {"many_threads", many_threads, 0},
    {"leave_and_return", leave_and_return, 0},
    {"errors_name_the_rank", errors_name_the_rank, 0},
    {"a_cache_goes_while_it_is_read", a_cache_goes_while_it_is_read, CF_SERVED | CF_RACY},
    {"idle", idle, CF_PROCS},
    {"leave_a_mess", leave_a_mess, CF_DIES | CF_MIXES},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"shm", false, 2, 0}, {"shm", true, 4, 0}, {"tcp", false, 2, 0}, {"tcp", true, 4, 0},
    {"tcp", true, 2, KVCL_INIT_NO_THREAD}, {"auto", true, 2, 0},
    {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
