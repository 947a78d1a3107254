/*
 * Collectives on device memory (KVCL_ON_DEVICE): each with a device's or the host's memory on each rank, compared with
 * the same collective of host memory; order with an engine's stream; ends: other arguments, a cancel, a device that
 * fails, a rank that dies. On a driver without a device (test/unit/fake_cuda.h), by the host.
 *
 * With CF_GPU=1 the driver is the one of libcuda.so.1, and NCCL may be used. Where run_nccl.sh has put libraries
 * without a device in the place of both, NCCL is also slow, fails, hangs and does not return.
 */
#include "conform.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if !KVCL_HAVE_CUDA
#include <stdio.h>
int main(void)
{
    puts("SKIP: built without device memory (--without-cuda)");
    return 77;
}
#else
#include "test/unit/gpu.h"
#include "test/unit/fake_cuda.h"
#include "test/unit/fake_nccl.h"

static bool real(void)
{
    return getenv("CF_GPU") != NULL;
}

static int device_of(const cf_t *cf)
{
    return (int)((unsigned)cf->rank % gpu_count());
}

typedef enum { BCAST, ALLGATHER, ALLREDUCE, REDUCE_SCATTER, ALLTOALL, ALLTOALLV, GATHER, SCATTER, CALLS } call_t;

static const char *const names[] = {"bcast", "allgather", "allreduce", "reduce_scatter",
                                    "alltoall", "alltoallv", "gather", "scatter"};

/* One call, the same on all ranks; n: elements of 4 bytes for each rank. */
typedef struct what {
    call_t   call;
    size_t   n;
    int      root;
    uint64_t lens[2][CF_RANKS_MAX]; /* alltoallv: given and taken */
} what_t;

static kvcl_status_t post(cf_t *cf, const what_t *what, const void *in, void *out, const kvcl_xfer_params_t *params,
                          kvcl_req_h *req_p)
{
    const size_t len = what->n * 4;

    switch (what->call) {
    case BCAST:
        return kvcl_bcast_bytes(cf->world, what->root, out, len, params, req_p);
    case ALLGATHER:
        return kvcl_allgather(cf->world, in, len, out, params, req_p);
    case ALLREDUCE:
        return kvcl_allreduce(cf->world, in, out, what->n, KVCL_DTYPE_I32, KVCL_REDUCE_SUM, params, req_p);
    case REDUCE_SCATTER:
        return kvcl_reduce_scatter(cf->world, in, out, what->n, KVCL_DTYPE_U32, KVCL_REDUCE_MAX, params, req_p);
    case ALLTOALL:
        return kvcl_alltoall(cf->world, in, len, out, params, req_p);
    case ALLTOALLV:
        return kvcl_alltoallv(cf->world, in, what->lens[0], NULL, out, what->lens[1], NULL, params, req_p);
    case GATHER:
        return kvcl_gather(cf->world, what->root, in, len, out, params, req_p);
    default:
        return kvcl_scatter(cf->world, what->root, in, len, out, params, req_p);
    }
}

/* ---- memory ---- */

/* A buffer, on the device or not. */
typedef struct mem {
    void   *at;
    size_t len;
    int    device; /* -1: the host's */
} mem_t;

static mem_t mem_new(size_t len, int device, const void *from)
{
    mem_t mem = {.len = len, .device = device};

    mem.at = (device < 0) ? malloc(len) : gpu_malloc((unsigned)device, len);
    if (device < 0) {
        memcpy(mem.at, from, len);
    } else {
        gpu_write((unsigned)device, mem.at, from, len);
    }
    return mem;
}

static bool mem_is(const mem_t *mem, const void *want)
{
    char *bytes = mem->at;
    bool same;

    if (mem->device >= 0) {
        bytes = malloc(mem->len);
        gpu_read((unsigned)mem->device, bytes, mem->at, mem->len);
    }
    same = (memcmp(bytes, want, mem->len) == 0);
    if (mem->device >= 0) {
        free(bytes);
    }
    return same;
}

static void mem_end(mem_t *mem)
{
    if (mem->device < 0) {
        free(mem->at);
    } else {
        gpu_free((unsigned)mem->device, mem->at);
    }
}

/* ---- the same results ---- */

static kvcl_xfer_params_t on_device(void)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.flags = KVCL_ON_DEVICE;
    return params;
}

static void draw_lens(cf_t *cf, kvcl_rand_t *same, what_t *what)
{
    uint64_t len;
    int      i, j;

    for (i = 0; i < cf->size; ++i) {
        for (j = 0; j < cf->size; ++j) {
            len = kvcl_rand_below(same, 4 * what->n) + (real() ? 1 : 0); /* the NCCL without a GPU wants bytes */
            if (i == cf->rank) {
                what->lens[0][j] = len;
            }
            if (j == cf->rank) {
                what->lens[1][i] = len;
            }
        }
    }
}

/* devices: of in and out. */
static void compare(cf_t *cf, const what_t *what, const int devices[2])
{
    const size_t       len  = what->n * 4 * (size_t)cf->size;
    const bool         one  = (what->call == BCAST);
    char               *in  = malloc(len), *out = malloc(len);
    kvcl_xfer_params_t params = on_device();
    mem_t              from, to;
    kvcl_req_h         req;

    cf_bytes(cf_same(cf) + (uint64_t)cf->rank, 1, in, len);
    cf_bytes(cf_same(cf) + (uint64_t)cf->rank, 2, out, len);
    from = mem_new(len, devices[0], in);
    to   = mem_new(len, devices[1], out);
    CF_OK(cf, post(cf, what, in, out, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    CF_OK(cf, post(cf, what, from.at, to.at, &params, &req));
    CF_OK(cf, cf_end(cf, req));
    if (!mem_is(&to, out)) {
        cf_fail(cf, __FILE__, __LINE__, "bytes differ after", names[what->call]);
    }
    CF_CHECK(cf, one || mem_is(&from, in));
    mem_end(&from);
    mem_end(&to);
    free(in);
    free(out);
}

/* device: 0 to 3 in this round: which sides of this rank are on a device. */
static void same_results(cf_t *cf)
{
    static const size_t sizes[] = {1, 700, 40000};
    kvcl_rand_t         same;
    what_t              what;
    unsigned            i;

    CF_CHECK(cf, gpu_open(real()) == NULL);
    kvcl_rand_seed(&same, cf_same(cf));
    for (i = 0; i < CALLS * 6; ++i) {
        const unsigned kinds     = (i < CALLS) ? 3 : (unsigned)kvcl_rand_below(&cf->rnd, 4);
        const int      mine      = device_of(cf);
        const int      devices[] = {(kinds & 1) ? mine : -1, (kinds & 2) ? mine : -1};

        what = (what_t){.call = i % CALLS, .n = sizes[kvcl_rand_below(&same, 3)],
                        .root = (int)kvcl_rand_below(&same, (uint64_t)cf->size)};
        draw_lens(cf, &same, &what);
        compare(cf, &what, devices);
        cf_alive(cf);
    }
}

/* In place, and posted one behind another. */
static void many_in_flight(cf_t *cf)
{
    enum { OPS = 5, N = 3000 };
    kvcl_xfer_params_t params = on_device();
    uint32_t           *ones  = malloc(N * 4), want = (uint32_t)cf->size, i;
    kvcl_req_h         reqs[OPS];
    mem_t              mem;

    CF_CHECK(cf, gpu_open(real()) == NULL);
    for (i = 0; i < N; ++i) {
        ones[i] = 1;
    }
    mem = mem_new(N * 4, device_of(cf), ones);
    for (i = 0; i < OPS; ++i) {
        CF_OK(cf, kvcl_allreduce(cf->world, mem.at, mem.at, N, KVCL_DTYPE_U32, KVCL_REDUCE_SUM, &params, &reqs[i]));
    }
    for (i = 0; i < OPS; ++i) {
        CF_OK(cf, cf_end(cf, reqs[i]));
        want *= (i > 0) ? (uint32_t)cf->size : 1;
    }
    for (i = 0; i < N; ++i) {
        ones[i] = want;
    }
    CF_CHECK(cf, mem_is(&mem, ones));
    mem_end(&mem);
    free(ones);
}

/* What is given is written by the stream after the call was posted. */
static void after_a_stream(cf_t *cf)
{
    char               zeros[4096] = {0}, want[4096 * CF_RANKS_MAX] = {0};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    _Atomic int        go     = 0;
    unsigned           device;
    CUstream           stream;
    char               *pinned;
    kvcl_req_h         req;
    mem_t              in, out;
    int                i;

    CF_CHECK(cf, gpu_open(real()) == NULL);
    device = (unsigned)device_of(cf);
    pinned = gpu_pinned(device, sizeof(zeros));
    in     = mem_new(sizeof(zeros), (int)device, zeros);
    out    = mem_new(sizeof(zeros) * (size_t)cf->size, (int)device, want);
    memset(pinned, 'a' + cf->rank, sizeof(zeros));
    for (i = 0; i < cf->size; ++i) {
        memset(want + (i * 4096), 'a' + i, 4096);
    }
    stream = gpu_stream(device);
    gpu_hold(device, stream, &go);
    gpu_copy(device, stream, in.at, pinned, sizeof(zeros));
    params.stream = stream;
    CF_OK(cf, kvcl_allgather(cf->world, in.at, 4096, out.at, &params, &req));
    cf_sleep_us(cf, 10000);
    CF_CHECK(cf, kvcl_req_test(req) == KVCL_INPROGRESS);
    go = 1;
    CF_OK(cf, cf_end(cf, req));
    CF_CHECK(cf, mem_is(&out, want));
    gpu_stream_end(device, stream);
    gpu_pinned_free(device, pinned);
    mem_end(&in);
    mem_end(&out);
}

/* ---- ends ---- */

static void works(cf_t *cf)
{
    const int mine      = device_of(cf);
    const int devices[] = {mine, mine};
    what_t    what      = {.call = ALLREDUCE, .n = 1000};

    compare(cf, &what, devices);
}

static void other_arguments(cf_t *cf)
{
    const uint64_t     lens[CF_RANKS_MAX]  = {8, 8, 8, 8, 8, 8, 8, 8};
    uint64_t           other[CF_RANKS_MAX] = {8, 8, 8, 8, 8, 8, 8, 8};
    kvcl_xfer_params_t params = on_device();
    char               zeros[4096] = {0};
    mem_t              in, out;
    kvcl_req_h         req;

    if (cf->size < 2) {
        return;
    }
    CF_CHECK(cf, gpu_open(real()) == NULL);
    in  = mem_new(sizeof(zeros), 0, zeros);
    out = mem_new(sizeof(zeros), 0, zeros);
    CF_OK(cf, kvcl_allreduce(cf->world, in.at, out.at, (cf->rank == 1) ? 7 : 8, KVCL_DTYPE_I32, KVCL_REDUCE_SUM,
                             &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_INVALID_PARAM);
    works(cf);
    other[1] = (cf->rank == 0) ? 12 : 8; /* rank 0 gives rank 1 more than that expects */
    CF_OK(cf, kvcl_alltoallv(cf->world, in.at, other, NULL, out.at, lens, NULL, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_INVALID_PARAM);
    works(cf);
    mem_end(&in);
    mem_end(&out);
}

/* One rank cancels while another one's stream holds the call up. */
static void one_cancels(cf_t *cf)
{
    kvcl_xfer_params_t params = on_device();
    int                device;
    char               zeros[4096] = {0};
    CUstream           stream = NULL;
    _Atomic int        go     = 0;
    kvcl_req_h         req;
    mem_t              mem;

    if (cf->size < 2) {
        return;
    }
    CF_CHECK(cf, gpu_open(real()) == NULL);
    device = device_of(cf);
    works(cf);
    mem = mem_new(sizeof(zeros), device, zeros);
    cf_fence(cf); /* to free memory, as works() did, waits for all streams of a process */
    if (cf->rank == 0) {
        stream = gpu_stream((unsigned)device);
        gpu_hold((unsigned)device, stream, &go);
        params.stream = stream;
    }
    CF_OK(cf, kvcl_bcast_bytes(cf->world, 0, mem.at, mem.len, &params, &req));
    if (cf->rank == 1) {
        cf_sleep_us(cf, 5000);
        kvcl_req_cancel(req);
    }
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_CANCELED);
    cf_fence(cf);
    if (stream != NULL) {
        go = 1;
        gpu_stream_end((unsigned)device, stream);
    }
    works(cf);
    mem_end(&mem);
}

static void a_device_fails(cf_t *cf)
{
    kvcl_xfer_params_t params = on_device();
    char               zeros[4096] = {0};
    kvcl_req_h         req;
    mem_t              mem;

    if (real()) {
        return; /* devices do not fail when they are told to */
    }
    CF_CHECK(cf, gpu_open(false) == NULL);
    works(cf);
    mem = mem_new(sizeof(zeros), 0, zeros);
    cf_fence(cf);
    if (cf->rank == 0) {
        fake_cuda_fail(1);
    }
    CF_OK(cf, kvcl_bcast_bytes(cf->world, 0, mem.at, mem.len, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_IO);
    works(cf);
    mem_end(&mem);
}

static void a_rank_dies(cf_t *cf)
{
    kvcl_xfer_params_t params = on_device();
    char               zeros[4096] = {0};
    kvcl_req_h         req;
    mem_t              mem;

    CF_CHECK(cf, gpu_open(real()) == NULL);
    works(cf);
    mem = mem_new(sizeof(zeros), 0, zeros);
    cf_fence(cf);
    if (cf->rank == 1) {
        cf_kill(cf, 1, SIGKILL);
        pause();
    }
    CF_OK(cf, kvcl_allreduce(cf->world, mem.at, mem.at, 1024, KVCL_DTYPE_F32, KVCL_REDUCE_SUM, &params, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_RANK_FAILED);
    mem_end(&mem);
}

/* ---- NCCL without a GPU ---- */

static fake_nccl_set_fn_t   nccl_set;
static fake_nccl_count_fn_t nccl_count;

static void find_nccl(void)
{
    void *handle = dlopen("libnccl.so.2", RTLD_NOW);

    *(void **)&nccl_set   = (handle != NULL) ? dlsym(handle, "fake_nccl_set") : NULL;
    *(void **)&nccl_count = (handle != NULL) ? dlsym(handle, "fake_nccl_count") : NULL;
}

/* Is it the one that run_nccl.sh has put there, and do these ranks use it? */
static bool has_fake_nccl(cf_t *cf)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* ranks may be threads */

    if (getenv("CF_NCCL") == NULL) {
        return false;
    }
    pthread_once(&once, find_nccl);
    CF_CHECK(cf, (nccl_set != NULL) && (nccl_count != NULL) && (gpu_open(true) == NULL));
    nccl_set(FAKE_NCCL_WORKS);
    return cf->procs || (cf->size <= 2); /* threads share two devices */
}

/* All calls by one communicator, also where each call is in progress for a while. */
static void nccl_runs(cf_t *cf)
{
    unsigned before, aborts, i;

    if (!has_fake_nccl(cf)) {
        return;
    }
    cf_fence(cf);
    before = nccl_count(2);
    aborts = nccl_count(1);
    for (i = 0; i < CALLS; ++i) {
        const int devices[] = {device_of(cf), device_of(cf)};
        what_t    what      = {.call = i, .n = 1000, .root = cf->size - 1};
        int       r;

        for (r = 0; r < cf->size; ++r) {
            what.lens[0][r] = (uint64_t)(10 + cf->rank + (3 * r));
            what.lens[1][r] = (uint64_t)(10 + r + (3 * cf->rank));
        }
        nccl_set((i % 2 == 0) ? FAKE_NCCL_WORKS : FAKE_NCCL_SLOW);
        compare(cf, &what, devices);
        cf_fence(cf);
    }
    CF_CHECK(cf, nccl_count(2) - before == (CALLS - ((cf->size == 1) ? 4 : 0)) * (unsigned)(cf->procs ? 1 : cf->size));
    CF_CHECK(cf, nccl_count(1) == aborts);
    nccl_set(FAKE_NCCL_WORKS);
}

/* A collective while NCCL is in this mode on rank 1. */
static void call_with(cf_t *cf, fake_nccl_mode_t mode, uint64_t timeout_ns, kvcl_status_t want)
{
    kvcl_xfer_params_t params = on_device();
    uint64_t           begun;
    char               *zeros = calloc(1, 4096);
    kvcl_req_h         req;
    mem_t              mem    = mem_new(4096, device_of(cf), zeros);

    params.timeout_ns = timeout_ns;
    cf_fence(cf);
    nccl_set(((cf->rank == 1) || !cf->procs) ? mode : FAKE_NCCL_WORKS);
    cf_fence(cf);
    begun = kvcl_now_ns();
    CF_OK(cf, kvcl_allreduce(cf->world, mem.at, mem.at, 1024, KVCL_DTYPE_U32, KVCL_REDUCE_SUM, &params, &req));
    CF_IS(cf, cf_end(cf, req), want);
    CF_CHECK(cf, (mode == FAKE_NCCL_BLOCKS) || (kvcl_now_ns() - begun < 8 * KVCL_NS_PER_SEC));
    cf_fence(cf);
    if ((mode != FAKE_NCCL_BLOCKS) || (cf->rank != 1)) { /* else it has the memory for ever */
        nccl_set(FAKE_NCCL_WORKS);
        mem_end(&mem);
    }
    free(zeros);
}

static void nccl_fails(cf_t *cf)
{
    const uint64_t long_ns = 60 * KVCL_NS_PER_SEC, short_ns = 500 * KVCL_NS_PER_MS;

    if (!has_fake_nccl(cf)) {
        return;
    }
    works(cf);
    call_with(cf, FAKE_NCCL_RUN_FAILS, long_ns, KVCL_ERR_IO); /* the others learn it */
    call_with(cf, FAKE_NCCL_INIT_FAILS, long_ns, KVCL_ERR_IO);
    works(cf);
    call_with(cf, FAKE_NCCL_RUN_HANGS, short_ns, KVCL_ERR_TIMED_OUT);
    call_with(cf, FAKE_NCCL_INIT_HANGS, short_ns, KVCL_ERR_TIMED_OUT); /* none has a communicator */
    works(cf);
    CF_CHECK(cf, nccl_count(1) >= 3);
}

/* Rank 1 does not come back from NCCL: its call ends some time after its deadline, later ones at once. */
static void nccl_does_not_return(cf_t *cf)
{
    kvcl_xfer_params_t params = on_device();
    char               zeros[64] = {0};
    kvcl_req_h         req;
    mem_t              mem;

    if (!has_fake_nccl(cf)) {
        return;
    }
    call_with(cf, FAKE_NCCL_BLOCKS, 300 * KVCL_NS_PER_MS, KVCL_ERR_TIMED_OUT);
    mem = mem_new(64, device_of(cf), zeros);
    if (cf->rank == 1) {
        CF_IS(cf, kvcl_bcast_bytes(cf->world, 0, mem.at, 64, &params, &req), KVCL_ERR_IO);
    }
    mem_end(&mem);
}

/* Rank 1 is killed while the others are inside NCCL. */
static void a_rank_dies_in_nccl(cf_t *cf)
{
    kvcl_xfer_params_t params = on_device();
    char               zeros[4096] = {0};
    kvcl_req_h         req;
    mem_t              mem;

    if (!has_fake_nccl(cf)) {
        return;
    }
    works(cf);
    mem = mem_new(sizeof(zeros), device_of(cf), zeros);
    nccl_set(FAKE_NCCL_RUN_HANGS);
    cf_fence(cf);
    params.timeout_ns = 60 * KVCL_NS_PER_SEC;
    CF_OK(cf, kvcl_allreduce(cf->world, mem.at, mem.at, 1024, KVCL_DTYPE_F32, KVCL_REDUCE_SUM, &params, &req));
    if (cf->rank == 1) {
        cf_sleep_us(cf, 300000); /* every rank is there by then; earlier is right, too */
        cf_kill(cf, 1, SIGKILL);
        pause();
    }
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_RANK_FAILED);
    CF_CHECK(cf, nccl_count(1) == 1);
    mem_end(&mem);
}

static const cf_case_t cases[] = {
    {"same_results", same_results, 0},
    {"many_in_flight", many_in_flight, 0},
    {"after_a_stream", after_a_stream, 0},
    {"other_arguments", other_arguments, 0},
    {"one_cancels", one_cancels, CF_THREAD},
    {"a_device_fails", a_device_fails, CF_PROCS},
    {"a_rank_dies", a_rank_dies, CF_PROCS | CF_DIES},
    {"nccl_runs", nccl_runs, 0},
    {"nccl_fails", nccl_fails, CF_PROCS},
    {"nccl_does_not_return", nccl_does_not_return, CF_PROCS | CF_DIES},
    {"a_rank_dies_in_nccl", a_rank_dies_in_nccl, CF_PROCS | CF_DIES},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 1, 0}, {"loop", false, 2, 0}, {"loop", false, 3, KVCL_INIT_NO_THREAD}, {"shm", true, 3, 0},
    {"tcp", true, 4, 0}, {"shm", true, 2, KVCL_INIT_NO_THREAD}, {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    if (real() && !gpu_is_there()) {
        return 77;
    }
    if (!real()) {
        setenv("KVCL_NCCL", "no", 1); /* a machine's own knows nothing of the driver without a device */
    }
    return cf_main(argc, argv, configs, cases);
}
#endif
