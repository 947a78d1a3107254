/*
 * Order with an engine's stream (kvcl_xfer_params_t.stream, kvcl_stream_done): device memory on every rank, on a driver
 * without a device whose streams do their work when the test permits it (test/unit/fake_cuda.h).
 *
 * The engine of a case is a stream that is held, then writes or reads blocks. Operations posted meanwhile must wait for
 * it.
 */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

#if !KVCL_HAVE_CUDA
#include <stdio.h>
int main(void)
{
    puts("SKIP: built without device memory (--without-cuda)");
    return 77;
}
#else
#include "test/unit/fake_cuda.h"

enum { BLOCKS = 8, HELD_US = 15000 };

/* An engine's stream, held, followed by one kernel. */
typedef struct engine {
    cf_t         *cf;
    CUstream     stream;
    kvcl_cache_h cache;
    uint64_t     seed;
    bool         reads; /* the kernel compares the blocks with seed's; else it writes them */
    bool         right;
} engine_t;

static void kernel(void *arg)
{
    engine_t *engine = arg;
    size_t   len     = kvcl_cache_block_bytes(engine->cache);
    char     *bytes  = cf_see(engine->cache, 0);
    uint32_t i;

    engine->right = true;
    for (i = 0; i < BLOCKS; ++i) {
        if (!engine->reads) {
            cf_bytes(engine->seed, i, bytes + (i * len), len);
        } else if (!cf_bytes_are(engine->seed, i, bytes + (i * len), len)) {
            engine->right = false;
        }
    }
}

static void start(engine_t *engine, cf_t *cf, kvcl_cache_h cache, uint64_t seed, bool reads)
{
    fake_cuda_start();
    *engine = (engine_t){.cf = cf, .cache = cache, .seed = seed, .reads = reads, .stream = fake_cuda_stream(0)};
    fake_cuda_hold(engine->stream);
    CF_CHECK(cf, kvcl_cuda_driver(false)->host_call(engine->stream, kernel, engine) == CUDA_SUCCESS);
}

/* Nothing may have happened yet; then release the engine. */
static void go_on(engine_t *engine, kvcl_req_h req)
{
    cf_sleep_us(engine->cf, HELD_US);
    CF_CHECK(engine->cf, kvcl_req_test(req) == KVCL_INPROGRESS);
    fake_cuda_release(engine->stream);
}

static void finish(engine_t *engine)
{
    fake_cuda_stream_end(engine->stream);
    CF_CHECK(engine->cf, engine->right);
}

static const uint32_t ids[BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7};

static void all_are(cf_t *cf, kvcl_cache_h cache, uint64_t seed)
{
    uint32_t i;

    for (i = 0; i < BLOCKS; ++i) {
        cf_block_is(cf, cache, i, seed, i);
    }
}

typedef enum { PUT, POSTED_PUT, SEND, WAYS_OUT } way_out_t;

/* Rank 0's blocks are posted to be sent to rank 1 while they are computed. */
static void leave(cf_t *cf, way_out_t way, uint32_t size)
{
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(BLOCKS, size);
    uint64_t           seed   = cf_same(cf) + size;
    cf_cache_t         mine   = cf_cache(cf, "mine", &layout, false), to = cf_cache(cf, "to", &layout, way == PUT);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT, prepared = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         all    = cf_sel(ids, BLOCKS), none = {0};
    kvcl_xfer_h        xfer   = NULL;
    kvcl_req_h         req;
    engine_t           engine;

    cf_fill(cf, mine.h, seed + 1); /* the earlier contents */
    cf_fence(cf);
    if (cf->rank == 0) {
        start(&engine, cf, mine.h, seed, false);
        params.stream       = engine.stream;
        params.remote_cache = (way == PUT) ? "to" : NULL;
        if (way == PUT) {
            CF_OK(cf, kvcl_put(cf->world, 1, mine.h, &all, &all, &params, &req));
        } else if (way == SEND) {
            CF_OK(cf, kvcl_send(cf->world, 1, 7, mine.h, &all, &params, &req));
        } else {
            prepared.remote_cache = "to";
            CF_OK(cf, kvcl_xfer_prepare(cf->world, 1, KVCL_XFER_PUT, mine.h, &none, &none, &prepared, &xfer));
            CF_OK(cf, kvcl_xfer_post(xfer, ids, BLOCKS, ids, BLOCKS, &params, &req));
        }
        go_on(&engine, req);
        CF_OK(cf, cf_end(cf, req));
        finish(&engine);
        kvcl_xfer_free(xfer);
    } else if (way == SEND) {
        CF_OK(cf, kvcl_recv(cf->world, 0, 7, to.h, &all, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    cf_fence(cf);
    if (cf->rank == 1) {
        all_are(cf, to.h, seed);
    }
    cf_fence(cf);
    cf_cache_end(&mine);
    cf_cache_end(&to);
}

static void what_leaves_is_computed_first(cf_t *cf)
{
    unsigned way;

    for (way = 0; way < WAYS_OUT; ++way) {
        leave(cf, way, 256);
        leave(cf, way, 300000);
    }
}

/* Rank 1's kernel still reads blocks that are the destination of a get or recv. */
static void arrive(cf_t *cf, bool get, uint32_t size)
{
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(BLOCKS, size);
    uint64_t           seed   = cf_same(cf) + size;
    cf_cache_t         from   = cf_cache(cf, "from", &layout, get), mine = cf_cache(cf, "mine", &layout, false);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         all    = cf_sel(ids, BLOCKS);
    kvcl_req_h         req;
    engine_t           engine;

    cf_fill(cf, from.h, seed + (uint64_t)cf->rank);
    cf_fill(cf, mine.h, seed + 2);
    cf_fence(cf);
    if (cf->rank == 1) {
        start(&engine, cf, mine.h, seed + 2, true);
        params.stream = engine.stream;
        if (get) {
            params.remote_cache = "from";
            CF_OK(cf, kvcl_get(cf->world, 0, mine.h, &all, &all, &params, &req));
        } else {
            CF_OK(cf, kvcl_recv(cf->world, 0, 9, mine.h, &all, &params, &req));
        }
        go_on(&engine, req);
        CF_OK(cf, cf_end(cf, req));
        finish(&engine);
        all_are(cf, mine.h, seed);
    } else if (!get) {
        CF_OK(cf, kvcl_send(cf->world, 1, 9, from.h, &all, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    cf_fence(cf);
    cf_cache_end(&from);
    cf_cache_end(&mine);
}

static void what_arrives_waits_for_readers(cf_t *cf)
{
    arrive(cf, true, 256);
    arrive(cf, true, 300000);
    arrive(cf, false, 256);
    arrive(cf, false, 300000);
}

/* The operation ends while the stream is held: at once, and no bytes arrive late; when the stream continues, its
 * callback finds no operation. */
static void it_ends_while_it_waits(cf_t *cf)
{
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(BLOCKS, 4096);
    uint64_t           seed   = cf_same(cf);
    cf_cache_t         mine   = cf_cache(cf, "mine", &layout, false), to = cf_cache(cf, "to", &layout, true);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         all    = cf_sel(ids, BLOCKS);
    kvcl_req_h         reqs[8];
    engine_t           engine;
    unsigned           i;

    cf_fill(cf, to.h, seed + 1);
    cf_fence(cf);
    if (cf->rank == 0) {
        start(&engine, cf, mine.h, seed, false);
        for (i = 0; i < 8; ++i) {
            params            = (kvcl_xfer_params_t)KVCL_XFER_PARAMS_INIT;
            params.stream     = engine.stream;
            params.timeout_ns = (i < 4) ? 0 : 5000000;
            if ((i % 4) == 0) {
                params.remote_cache = "to";
                CF_OK(cf, kvcl_put(cf->world, 1, mine.h, &all, &all, &params, &reqs[i]));
            } else if ((i % 4) == 1) {
                CF_OK(cf, kvcl_send(cf->world, 1, 7, mine.h, &all, &params, &reqs[i]));
            } else if ((i % 4) == 2) {
                CF_OK(cf, kvcl_recv(cf->world, 1, 7, mine.h, &all, &params, &reqs[i]));
            } else {
                params.stream = NULL;
                CF_OK(cf, kvcl_stream_done(cf->ctx, engine.stream, &params, &reqs[i]));
            }
        }
        for (i = 0; i < 8; ++i) {
            if (i < 4) {
                kvcl_req_cancel(reqs[i]);
            }
            CF_IS(cf, cf_end(cf, reqs[i]), (i < 4) ? KVCL_ERR_CANCELED : KVCL_ERR_TIMED_OUT);
        }
        fake_cuda_release(engine.stream);
        finish(&engine);
    }
    cf_sleep_us(cf, 5000);
    cf_fence(cf);
    if (cf->rank == 1) {
        all_are(cf, to.h, seed + 1);
    }
    cf_fence(cf);
    cf_cache_end(&mine);
    cf_cache_end(&to);
}

/* ---- kvcl_stream_done ---- */

typedef struct marks {
    cf_t        *cf;
    kvcl_req_h  send;
    _Atomic int layer;
} marks_t;

static void mark(void *arg, kvcl_status_t status)
{
    marks_t *marks = arg;

    CF_CHECK(marks->cf, status == KVCL_OK);
    CF_OK(marks->cf, kvcl_req_layer_ready(marks->send, (uint32_t)marks->layer++));
}

/* Layers are sent as the stream computes them. */
static void layers_leave_as_they_are_computed(cf_t *cf)
{
    kvcl_layout_t      layout = KVCL_LAYOUT_NHD(.layers = 2, .blocks = BLOCKS, .tokens = 4, .heads = 2, .head_dim = 64,
                                                .elem_bytes = 2);
    cf_cache_t         mine   = cf_cache(cf, "mine", &layout, false);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         all    = cf_sel(ids, BLOCKS);
    uint64_t           seed   = cf_same(cf);
    marks_t            marks  = {.cf = cf};
    CUstream           stream;
    kvcl_req_h         req;
    unsigned           i;

    cf_fill(cf, mine.h, seed + (uint64_t)cf->rank);
    cf_fence(cf);
    if (cf->rank == 0) {
        fake_cuda_start();
        stream       = fake_cuda_stream(0);
        params.flags = KVCL_LAYERWISE;
        CF_OK(cf, kvcl_send(cf->world, 1, 3, mine.h, &all, &params, &marks.send));
        params = (kvcl_xfer_params_t)KVCL_XFER_PARAMS_INIT;
        params.cb     = mark;
        params.cb_arg = &marks;
        for (i = 0; i < 2; ++i) {
            fake_cuda_hold(stream);
            CF_OK(cf, kvcl_stream_done(cf->ctx, stream, &params, &req));
            cf_sleep_us(cf, 2000);
            CF_CHECK(cf, marks.layer == (int)i);
            fake_cuda_release(stream);
            CF_OK(cf, cf_end(cf, req));
        }
        CF_OK(cf, cf_end(cf, marks.send));
        fake_cuda_stream_end(stream);
    } else {
        CF_OK(cf, kvcl_recv(cf->world, 0, 3, mine.h, &all, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        for (i = 0; i < BLOCKS; ++i) {
            cf_block_is(cf, mine.h, i, seed, i);
        }
    }
    cf_fence(cf);
    cf_cache_end(&mine);
}

static void what_no_stream_is_for(cf_t *cf)
{
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(BLOCKS, 64);
    cf_cache_t         mine   = cf_cache(cf, "mine", &layout, false);
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         all    = cf_sel(ids, BLOCKS);
    CUstream           stream;
    kvcl_req_h         req;

    fake_cuda_start();
    stream        = fake_cuda_stream(0);
    params.stream = stream;
    CF_IS(cf, kvcl_barrier(cf->world, &params, &req), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_bcast(cf->world, 0, mine.h, &all, &params, &req), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_stream_done(cf->ctx, stream, &params, &req), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_stream_done(cf->ctx, NULL, NULL, &req), KVCL_ERR_INVALID_PARAM);
    CF_OK(cf, kvcl_stream_done(cf->ctx, stream, NULL, &req)); /* idle */
    CF_OK(cf, cf_end(cf, req));
    fake_cuda_capture(stream, true);
    CF_IS(cf, kvcl_send(cf->world, 0, 1, mine.h, &all, &params, &req), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_recv(cf->world, 0, 1, mine.h, &all, &params, &req), KVCL_ERR_INVALID_PARAM);
    CF_IS(cf, kvcl_stream_done(cf->ctx, stream, NULL, &req), KVCL_ERR_INVALID_PARAM);
    fake_cuda_stream_end(stream);
    cf_fence(cf);
    cf_cache_end(&mine);
}

static const cf_case_t cases[] = {
    {"what_leaves_is_computed_first", what_leaves_is_computed_first, 0},
    {"what_arrives_waits_for_readers", what_arrives_waits_for_readers, 0},
    {"it_ends_while_it_waits", it_ends_while_it_waits, 0},
    {"layers_leave_as_they_are_computed", layers_leave_as_they_are_computed, 0},
    {"what_no_stream_is_for", what_no_stream_is_for, 0},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 2, CF_NATIVE}, {"loop", false, 2, KVCL_INIT_NO_THREAD},
    {"shm", false, 2, 0},  {"shm", true, 2, 0},           {"shm", true, 2, KVCL_INIT_NO_THREAD},
    {"tcp", false, 2, 0},  {"tcp", true, 2, 0},           {"tcp", true, 2, KVCL_INIT_NO_THREAD},
    {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    (void)setenv("CF_DEVICE", "3", 1);
    return cf_main(argc, argv, configs, cases);
}
#endif
