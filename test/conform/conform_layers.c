/*
 * Layer-wise sends: a layer is never read before it was marked, and is complete when layer_wait returns, in any order,
 * for any selections of layers and heads, whichever side posts first. A waiting thread sleeps.
 */
#include "conform_layers.h"
#include "test/idle.h"
#include "p2p/p2p.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---------------------------------------------------------------- bytes */

/* A thread that marks some of the layers, each immediately after writing it. */
typedef struct marker {
    cf_t         *cf;
    kvcl_req_h   req;
    const le_end_t  *end;
    const le_what_t *what;
    uint64_t     seed;
    uint32_t     order[LE_LAYERS_MAX], from, step;
    unsigned     pause_us;
} marker_t;

static void *mark_layers(void *arg)
{
    marker_t *m = arg;
    uint32_t i;

    for (i = m->from; i < m->what->layers; i += m->step) {
        (void)le_visit(m->end, m->what, m->order[i], m->seed, LE_WRITE);
        CF_OK(m->cf, kvcl_req_layer_ready(m->req, m->end->sel.layers.first + m->order[i]));
        if (m->pause_us != 0) {
            usleep(m->pause_us);
        }
    }
    return NULL;
}

/* Two threads mark. A context without a thread progresses in the wait that follows. */
static void send_in_layers(cf_t *cf, le_end_t *end, const le_what_t *what, uint64_t seed, bool late)
{
    marker_t  markers[2];
    pthread_t thread;

    le_corrupt(end, what);
    if (late) { /* the recv is posted */
        cf_fence(cf);
    }
    markers[0] = (marker_t){.cf = cf, .end = end, .what = what, .seed = seed, .step = 2,
                            .pause_us = le_below(&cf->rnd, 3) ? 0 : le_below(&cf->rnd, 400)};
    le_shuffle(&cf->rnd, markers[0].order, what->layers);
    markers[0].req  = le_send(cf, 1, end, 0);
    markers[1]      = markers[0];
    markers[1].from = 1;
    pthread_create(&thread, NULL, mark_layers, &markers[1]);
    (void)mark_layers(&markers[0]);
    if (!late) {
        cf_fence(cf);
    }
    pthread_join(thread, NULL);
    CF_OK(cf, cf_end(cf, markers[0].req));
}

static void recv_in_layers(cf_t *cf, le_end_t *end, const le_what_t *what, uint64_t seed, bool late)
{
    uint32_t   order[LE_LAYERS_MAX], i;
    kvcl_req_h req;

    le_corrupt(end, what);
    if (!late) { /* the send is posted, and possibly all layers are marked */
        cf_fence(cf);
    }
    req = le_recv(cf, le_below(&cf->rnd, 2) ? 0 : KVCL_ANY_SOURCE, end, 0);
    if (late) {
        cf_fence(cf);
    }
    le_shuffle(&cf->rnd, order, what->layers);
    for (i = 0; i < what->layers; ++i) {
        CF_OK(cf, le_wait(cf, req, end, order[i]));
        CF_CHECK(cf, le_visit(end, what, order[i], seed, LE_CHECK));
    }
    for (i = 0; i < what->layers; ++i) {
        CF_OK(cf, kvcl_req_layer_test(req, end->sel.layers.first + i));
    }
    CF_OK(cf, cf_end(cf, req));
    for (i = 0; i < what->layers; ++i) {
        CF_CHECK(cf, le_visit(end, what, i, seed, LE_CHECK));
    }
}

static void any_layers(cf_t *cf)
{
    kvcl_rand_t same;
    uint64_t    seed = cf_same(cf);
    int         i;

    kvcl_rand_seed(&same, seed);
    for (i = 0; i < 16; ++i) {
        le_what_t what = le_draw(&same, i == 15);
        bool   ours = le_below(&same, 3) != 0, late = le_below(&same, 2) != 0;
        le_end_t  end;
        cf_fence(cf);
        if (cf->rank > 1) {
            cf_fence(cf);
            continue;
        }
        end = le_new(cf, &what, ours);
        if (cf->rank == 0) {
            send_in_layers(cf, &end, &what, seed + (uint64_t)i, late);
        } else {
            recv_in_layers(cf, &end, &what, seed + (uint64_t)i, late);
        }
        cf_cache_end(&end.cache);
    }
    cf_fence(cf);
}

/* A rank sends to itself; then one layer at a time, the next only when the last has arrived. */
static void step_by_step(cf_t *cf)
{
    le_what_t     what = {.layers = 6, .blocks = 5, .tokens = 4, .heads = 2, .head_bytes = 64};
    le_end_t      out = le_new(cf, &what, true), in = le_new(cf, &what, false);
    uint64_t   seed = cf_same(cf) + (uint64_t)cf->rank;
    kvcl_req_h s, r;
    uint32_t   l, i;

    le_corrupt(&in, &what);
    le_corrupt(&out, &what);
    r = le_recv(cf, cf->rank, &in, 0);
    s = le_send(cf, cf->rank, &out, 0);
    for (l = 0; l < what.layers; ++l) {
        CF_IS(cf, kvcl_req_layer_test(r, in.sel.layers.first + l), KVCL_INPROGRESS);
        CF_IS(cf, kvcl_req_layer_wait(r, in.sel.layers.first + l, KVCL_NS_PER_MS), KVCL_ERR_WAIT_TIMEOUT);
        (void)le_visit(&out, &what, l, seed, LE_WRITE);
        CF_OK(cf, kvcl_req_layer_ready(s, out.sel.layers.first + l));
        CF_OK(cf, kvcl_req_layer_ready(s, out.sel.layers.first + l)); /* a second mark is no error */
        CF_OK(cf, le_wait(cf, r, &in, l));
        for (i = 0; i < what.layers; ++i) {
            CF_CHECK(cf, le_visit(&in, &what, i, seed, (i <= l) ? LE_CHECK : LE_CHECK_SPOILT));
        }
    }
    CF_OK(cf, cf_end(cf, r));
    CF_OK(cf, cf_end(cf, s));
    cf_fence(cf);
    cf_cache_end(&out.cache);
    cf_cache_end(&in.cache);
}

/* Plain bytes receive a layer-wise send as a whole, in canonical order. */
static void into_bytes(cf_t *cf)
{
    le_what_t     what = {.layers = 5, .blocks = 7, .tokens = 3, .heads = 2, .head_bytes = 32};
    size_t     len  = (size_t)5 * 7 * 2 * 3 * 2 * 32, at = 0;
    uint64_t   seed = cf_same(cf);
    char       *buf = malloc(len);
    uint32_t   i, l, b, p, t, h;
    kvcl_req_h req;

    if (cf->rank == 0) {
        le_end_t end = le_new(cf, &what, true);
        req = le_send(cf, 1, &end, 0);
        for (i = what.layers; i-- > 0;) {
            (void)le_visit(&end, &what, i, seed, LE_WRITE);
            CF_OK(cf, kvcl_req_layer_ready(req, end.sel.layers.first + i));
            cf_sleep_us(cf, 300);
        }
        CF_OK(cf, cf_end(cf, req));
        cf_cache_end(&end.cache);
    } else if (cf->rank == 1) {
        CF_OK(cf, kvcl_recv_bytes(cf->world, 0, 5, buf, len, NULL, &req));
        CF_OK(cf, kvcl_req_layer_wait(req, 3, 20 * KVCL_NS_PER_SEC)); /* any layer: it waits for the whole message */
        CF_OK(cf, cf_end(cf, req));
        for (b = 0; b < what.blocks; ++b) {
            for (l = 0; l < what.layers; ++l) {
                for (p = 0; p < 2; ++p) {
                    for (t = 0; t < what.tokens; ++t) {
                        for (h = 0; h < what.heads; ++h, at += what.head_bytes) {
                            CF_CHECK(cf, cf_bytes_are(seed, le_run(l, b, p, t, h), buf + at, what.head_bytes));
                        }
                    }
                }
            }
        }
    }
    cf_fence(cf);
    free(buf);
}

/* ---------------------------------------------------------------- the calls */

static void bad_calls(cf_t *cf)
{
    le_what_t             what   = {.layers = 4, .blocks = 2, .tokens = 2, .heads = 1, .head_bytes = 32};
    le_end_t              out    = le_new(cf, &what, true), in = le_new(cf, &what, true);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint32_t           first  = in.sel.layers.first;
    kvcl_req_h         s, r, plain;
    char               byte = 0;

    CF_IS(cf, kvcl_req_layer_ready(NULL, 0), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_req_layer_test(NULL, 0), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_req_layer_wait(NULL, 0, 1), KVCL_ERR_INVALID_PARAM);
    in.sel.blocks = in.ids;
    params.flags  = KVCL_LAYERWISE;
    CF_IS(cf, kvcl_recv(cf->world, cf->rank, 5, in.cache.h, &in.sel, &params, &r), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_send_bytes(cf->world, cf->rank, 5, &byte, 1, &params, &s), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_get(cf->world, cf->rank, in.cache.h, &in.sel, &in.sel, &params, &s), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_bcast(cf->world, 0, in.cache.h, &in.sel, &params, &s), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_send(cf->world, cf->rank, 5, in.cache.h, &in.sel, &params, NULL), KVCL_ERR_INVALID_PARAM);

    r = le_recv(cf, cf->rank, &in, 0);
    CF_IS(cf, kvcl_req_layer_ready(r, first), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_req_layer_test(r, first + 4), KVCL_ERR_OUT_OF_RANGE);
    CF_IS(cf, kvcl_req_layer_wait(r, first - 1, 1), KVCL_ERR_OUT_OF_RANGE);
    CF_IS(cf, kvcl_req_layer_wait(r, first, KVCL_NS_PER_MS), KVCL_ERR_WAIT_TIMEOUT);
    s = le_send(cf, cf->rank, &out, 0);
    CF_IS(cf, kvcl_req_layer_ready(s, out.sel.layers.first + 4), KVCL_ERR_OUT_OF_RANGE);
    CF_IS(cf, kvcl_req_layer_ready(s, out.sel.layers.first - 1), KVCL_ERR_OUT_OF_RANGE);
    kvcl_req_cancel(s);
    CF_IS(cf, cf_end(cf, r), KVCL_ERR_CANCELED);
    CF_IS(cf, kvcl_req_layer_ready(s, out.sel.layers.first), KVCL_ERR_CANCELED);
    CF_IS(cf, cf_end(cf, s), KVCL_ERR_CANCELED);

    /* A send that is not layer-wise: all layers arrive when it ends. */
    out.sel.blocks = out.ids;
    CF_OK(cf, kvcl_send(cf->world, cf->rank, 5, out.cache.h, &out.sel, NULL, &plain));
    CF_IS(cf, kvcl_req_layer_ready(plain, out.sel.layers.first), KVCL_ERR_INVALID_PARAM);
    r = le_recv(cf, cf->rank, &in, 0);
    CF_OK(cf, kvcl_req_layer_wait(r, first + 3, 20 * KVCL_NS_PER_SEC));
    CF_OK(cf, kvcl_req_layer_test(r, first));
    CF_OK(cf, cf_end(cf, r));
    CF_OK(cf, cf_end(cf, plain));

    /* No blocks: the layers exist all the same. */
    out.sel.n_blocks = in.sel.n_blocks = 0;
    s = le_send(cf, cf->rank, &out, 0);
    r = le_recv(cf, cf->rank, &in, 0);
    for (byte = 0; byte < 4; ++byte) {
        CF_OK(cf, kvcl_req_layer_ready(s, out.sel.layers.first + (uint32_t)byte));
    }
    CF_OK(cf, cf_end(cf, r));
    CF_OK(cf, cf_end(cf, s));
    cf_fence(cf);
    cf_cache_end(&out.cache);
    cf_cache_end(&in.cache);
}

/* Sizes and shapes that differ: both sides get the error, and nothing is written. */
static void mismatch(cf_t *cf)
{
    le_what_t     what = {.layers = 4, .blocks = 3, .tokens = 2, .heads = 2, .head_bytes = 32};
    le_what_t     other = {.layers = 4, .blocks = 3, .tokens = 2, .heads = 1, .head_bytes = 32};
    le_end_t      out = le_new(cf, &what, true), in = le_new(cf, &what, true), odd = le_new(cf, &other, true);
    kvcl_req_h s, r;

    le_corrupt(&in, &what);
    s = le_send(cf, cf->rank, &out, 0);
    in.sel.n_blocks = 2;
    r = le_recv(cf, cf->rank, &in, 0);
    CF_IS(cf, cf_end(cf, r), KVCL_ERR_TRUNCATED);
    CF_IS(cf, cf_end(cf, s), KVCL_ERR_TRUNCATED);
    s = le_send(cf, cf->rank, &out, 0);
    r = le_recv(cf, cf->rank, &odd, 0);
    CF_IS(cf, cf_end(cf, r), KVCL_ERR_BAD_LAYOUT);
    CF_IS(cf, cf_end(cf, s), KVCL_ERR_BAD_LAYOUT);
    CF_CHECK(cf, le_visit(&in, &what, 0, 0, LE_CHECK_SPOILT));
    cf_fence(cf);
    cf_cache_end(&out.cache);
    cf_cache_end(&in.cache);
    cf_cache_end(&odd.cache);
}

/* ---------------------------------------------------------------- asleep */

/* A thread that waits for a layer sleeps, as does the sender's context. Each mark wakes them, though no call progresses
 * the sender. On one core the marking thread itself notifies the receiver. */
static void sleep_between(cf_t *cf, bool one_core)
{
    enum { ROUNDS = 5 };
    const pid_t   pids[2] = {cf_pid(cf, 0), cf_pid(cf, 1)}; /* one process if ranks are threads; 0: another machine */
    unsigned      by_itself = 0;
    le_what_t     what = {.layers = ROUNDS, .blocks = 4, .tokens = 4, .heads = 2, .head_bytes = 64};
    uint64_t      seed = cf_same(cf), least = UINT64_MAX;
    kvcl_req_h    req;
    le_end_t      end;
    uint32_t      l;

    if (cf->rank > 1) {
        cf_fence(cf);
        return;
    }
    end = le_new(cf, &what, true);
    if (cf->rank == 0) {
        req = le_send(cf, 1, &end, 120 * KVCL_NS_PER_SEC);
        for (l = 0; l < ROUNDS; ++l) {
            uint64_t at;
            CF_CHECK(cf, falls_idle(pids, (cf->procs && (pids[1] != 0)) ? 2 : 1));
            cf_alive(cf);
            (void)le_visit(&end, &what, l, seed, LE_WRITE);
            at = kvcl_now_ns();
            CF_OK(cf, kvcl_req_layer_ready(req, end.sel.layers.first + l));
            at = kvcl_now_ns() - at;
            by_itself += !atomic_load(&kvcl_p2p_state(cf->ctx)->layers_marked);
            least = (at < least) ? at : least;
        }
        CF_OK(cf, cf_end(cf, req));
        CF_CHECK(cf, !one_core || (by_itself > 0)); /* the progress thread may be awake during some marks */
        printf("     a mark over %s%s, all asleep: %.2f us\n", cf->path, one_core ? ", one core" : "",
               (double)least * 1e-3);
        fflush(stdout);
    } else {
        req = le_recv(cf, 0, &end, 120 * KVCL_NS_PER_SEC);
        for (l = 0; l < ROUNDS; ++l) {
            CF_OK(cf, le_wait(cf, req, &end, l));
        }
        CF_OK(cf, cf_end(cf, req));
    }
    cf_fence(cf);
    cf_cache_end(&end.cache);
}

static void sleepers(cf_t *cf)
{
    sleep_between(cf, false);
}

static void sleepers_on_one_core(cf_t *cf)
{
    bool was = cf->ctx->engine.one_core;

    kvcl_lock(cf->ctx);
    cf->ctx->engine.one_core = true;
    kvcl_unlock(cf->ctx);
    sleep_between(cf, true);
    kvcl_lock(cf->ctx);
    cf->ctx->engine.one_core = was;
    kvcl_unlock(cf->ctx);
}

static const cf_case_t cases[] = {
    {"any_layers", any_layers, 0},
    {"step_by_step", step_by_step, 0},
    {"into_bytes", into_bytes, 0},
    {"bad_calls", bad_calls, 0},
    {"mismatch", mismatch, 0},
    {"sleepers", sleepers, CF_THREAD},
    {"sleepers_on_one_core", sleepers_on_one_core, CF_THREAD},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 2, CF_NATIVE}, {"loop", false, 2, CF_OVERTAKE}, {"shm", false, 2, 0},
    {"shm", true, 3, 0},   {"shm", true, 2, KVCL_INIT_NO_THREAD}, {"tcp", false, 2, 0},
    {"tcp", true, 3, 0},   {"tcp", true, 2, CF_LANE}, {"tcp", true, 2, KVCL_INIT_NO_THREAD}, {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
