/*
 * Collectives on device memory by KVCL beside the same ones by NCCL alone: a row for each collective and size, with the
 * median time of a call until its result is in place. contrib/bench/gpu/run starts a rank for each GPU, once with NCCL
 * and once with KVCL_NCCL=no, where KVCL stages through the host.
 *   gpu_coll_bench [LARGEST]   bytes of the largest call
 */
#include "config.h"
#include "base/clock.h"
#include "nccl/nccl_api.h"
#include "test/unit/gpu.h"
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 21 };

typedef enum { ALLREDUCE, ALLGATHER, ALLTOALL, CALLS } call_t;

static const char *const names[CALLS] = {"allreduce", "allgather", "alltoall"};

typedef struct bench {
    kvcl_comm_h           world;
    int                   rank, size;
    unsigned              device;
    char                  *in, *out;
    const kvcl_nccl_lib_t *lib; /* NULL: NCCL alone is not measured */
    ncclComm_t            comm;
    CUstream              stream;
} bench_t;

static void need(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "gpu_coll_bench: %s: %s\n", what, kvcl_last_error());
        exit(1);
    }
}

static void wait_for(kvcl_status_t posted, const kvcl_req_h *req)
{
    need((posted == KVCL_OK) && (kvcl_req_wait(*req, KVCL_WAIT_FOREVER) == KVCL_OK), "a collective");
}

/* The communicator does not block: success, or in progress, which settle() awaits. */
static bool goes(ncclResult_t result)
{
    return (result == ncclSuccess) || (result == ncclInProgress);
}

static void settle(const bench_t *b)
{
    ncclResult_t state = ncclInProgress;

    while (state == ncclInProgress) {
        need(b->lib->async_error(b->comm, &state) == ncclSuccess, "ncclCommGetAsyncError");
    }
    need(state == ncclSuccess, "NCCL");
}

/* len: bytes of the call's larger buffer. */
static void by_kvcl(const bench_t *b, call_t call, size_t len)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    const size_t       part   = len / (size_t)b->size;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;

    params.flags = KVCL_ON_DEVICE;
    if (call == ALLREDUCE) {
        status = kvcl_allreduce(b->world, b->in, b->out, len / 4, KVCL_DTYPE_F32, KVCL_REDUCE_SUM, &params, &req);
    } else if (call == ALLGATHER) {
        status = kvcl_allgather(b->world, b->in, part, b->out, &params, &req);
    } else {
        status = kvcl_alltoall(b->world, b->in, part, b->out, &params, &req);
    }
    wait_for(status, &req);
}

static void by_nccl(const bench_t *b, call_t call, size_t len)
{
    const size_t part   = len / (size_t)b->size;
    ncclResult_t result = ncclSuccess;
    int          r;

    if (call == ALLREDUCE) {
        result = b->lib->all_reduce(b->in, b->out, len / 4, ncclFloat32, ncclSum, b->comm, b->stream);
    } else if (call == ALLGATHER) {
        result = b->lib->all_gather(b->in, b->out, part, ncclUint8, b->comm, b->stream);
    } else {
        result = b->lib->group_start();
        for (r = 0; (r < b->size) && goes(result); ++r) {
            result = b->lib->send(b->in + (size_t)r * part, part, ncclUint8, r, b->comm, b->stream);
            if (goes(result)) {
                result = b->lib->recv(b->out + (size_t)r * part, part, ncclUint8, r, b->comm, b->stream);
            }
        }
        result = goes(result) ? b->lib->group_end() : result;
    }
    need(goes(result), "NCCL");
    settle(b);
    gpu_sync(b->device, b->stream);
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Microseconds, the median of ROUNDS, after two more. */
static double measure(const bench_t *b, call_t call, size_t len, void (*fn)(const bench_t *, call_t, size_t))
{
    uint64_t   ns[ROUNDS];
    kvcl_req_h req = NULL;
    int        i;

    for (i = -2; i < ROUNDS; ++i) {
        wait_for(kvcl_barrier(b->world, NULL, &req), &req);
        ns[(i < 0) ? 0 : i] = kvcl_now_ns();
        fn(b, call, len);
        ns[(i < 0) ? 0 : i] = kvcl_now_ns() - ns[(i < 0) ? 0 : i];
    }
    qsort(ns, ROUNDS, sizeof(*ns), compare);
    return (double)ns[ROUNDS / 2] / 1e3;
}

/* An ncclComm in the ordinary way, whose calls block. The device's context is current from here on. */
static void open_nccl(bench_t *b)
{
    const kvcl_cuda_driver_t *d     = kvcl_cuda_driver(true);
    ncclConfig_t             config = NCCL_CONFIG_INITIALIZER;
    kvcl_req_h               req    = NULL;
    ncclUniqueId             id;
    CUcontext                ctx;

    memset(&id, 0, sizeof(id));
    need((d->ctx_retain(&ctx, (CUdevice)b->device) == CUDA_SUCCESS) && (d->ctx_push(ctx) == CUDA_SUCCESS), "CUDA");
    need((b->rank != 0) || (b->lib->unique_id(&id) == ncclSuccess), "ncclGetUniqueId");
    wait_for(kvcl_bcast_bytes(b->world, 0, &id, sizeof(id), NULL, &req), &req);
    config.blocking = 0;
    need(goes(b->lib->init(&b->comm, b->size, id, b->rank, &config)), "ncclCommInitRankConfig");
    settle(b);
    b->stream = gpu_stream(b->device);
}

static void table(const bench_t *b, size_t largest)
{
    char   nccl[256];
    size_t len;
    int    call;

    need(kvcl_query_nccl(nccl, sizeof(nccl), &len) == KVCL_OK, "kvcl_query_nccl");
    if (b->rank == 0) {
        printf("%d ranks, a GPU each; NCCL: %s; KVCL_NCCL=%s\n", b->size, nccl,
               (getenv("KVCL_NCCL") != NULL) ? getenv("KVCL_NCCL") : "yes");
        printf("%-10s %12s %12s %12s\n", "collective", "bytes", "kvcl, us", "NCCL, us");
    }
    for (call = 0; call < CALLS; ++call) {
        for (len = 4096; len <= largest; len *= 8) {
            const double ours = measure(b, call, len, by_kvcl);
            const double raw  = (b->lib != NULL) ? measure(b, call, len, by_nccl) : 0;

            if (b->rank == 0) {
                printf("%-10s %12zu %12.1f %12.1f\n", names[call], len, ours, raw);
                fflush(stdout);
            }
        }
    }
}

int main(int argc, char **argv)
{
    const size_t   largest = (argc > 1) ? strtoull(argv[1], NULL, 10) : (size_t)128 << 20;
    const char     *why    = gpu_open(true), *by = getenv("KVCL_NCCL");
    bench_t        b       = {.device = 0};
    kvcl_context_h ctx;

    if (why != NULL) {
        printf("SKIP: no GPU here: %s\n", why);
        return 77;
    }
    need(kvcl_init(NULL, &ctx) == KVCL_OK, "kvcl_init");
    need(kvcl_comm_world(ctx, &b.world) == KVCL_OK, "kvcl_comm_world");
    b.rank   = kvcl_comm_rank(b.world);
    b.size   = kvcl_comm_size(b.world);
    b.device = (unsigned)b.rank % gpu_count();
    b.in     = gpu_malloc(b.device, largest);
    b.out    = gpu_malloc(b.device, largest);
    b.lib    = ((by == NULL) || (strcmp(by, "no") != 0)) ? kvcl_nccl_lib() : NULL;
    if (b.lib != NULL) {
        open_nccl(&b);
    }
    table(&b, largest);
    if (b.lib != NULL) {
        (void)b.lib->abort(b.comm);
        gpu_stream_end(b.device, b.stream);
    }
    kvcl_finalize(ctx);
    gpu_free(b.device, b.in);
    gpu_free(b.device, b.out);
    return 0;
}
