/*
 * NCCL without a GPU (fake_nccl.h). The ranks of a communicator share a file in $FAKE_NCCL_DIR, named by the id: a
 * place for what each rank gives, and two counts, of those that have given and of those that have taken, by which they
 * wait for each other in every collective.
 */
#include "config.h"
#include "test/unit/fake_nccl.h"
#include "nccl/nccl_stub.h"
#include "device/cuda_stub.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 8, PLACE = 4 << 20, SLOW_MS = 20, ALL = -1 };

typedef struct place {
    uint64_t at[RANKS], len[RANKS]; /* for each rank, what it may take of bytes */
    char     bytes[PLACE];
} place_t;

typedef struct shared {
    _Atomic unsigned joined, given, taken;
    place_t          places[RANKS];
} shared_t;

typedef struct part {
    const void *give; /* to peer, or ALL */
    void       *take;
    uint64_t   len;
    int        peer;
} part_t;

/* One collective, in its stream. parts: what this rank gives, then what it takes. */
typedef struct run {
    ncclComm_t comm;
    unsigned   number;
    part_t     parts[4 * RANKS];
    unsigned   n;
    bool       hangs;
    /* of a reduction: */
    bool           reduces;
    int            type, op;
    uint64_t       count;  /* of elements for this rank's result, which begin at first */
    uint64_t       first;
    void           *out;
} run_t;

struct ncclComm {
    shared_t      *shared;
    int           size, rank;
    unsigned      number;
    ncclResult_t  state;
    uint64_t      ready_ns; /* in progress until then */
    _Atomic bool  aborted;
    _Atomic int   streams;  /* collectives that are not over */
    run_t         *group;
};

static _Atomic int      mode;
static _Atomic unsigned counts[3];
static __thread int     depth;
static __thread run_t   *grouped;
static __thread CUstream grouped_stream;

static struct {
    void     *(*bytes)(const void *ptr);
    CUresult (*host_call)(CUstream stream, CUhostFn fn, void *arg);
} cuda;

void     fake_nccl_set(fake_nccl_mode_t to);
unsigned fake_nccl_count(int what);

void fake_nccl_set(fake_nccl_mode_t to)
{
    mode = (int)to;
}

unsigned fake_nccl_count(int what)
{
    return counts[what];
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- in the stream ---- */

/* The processor's address of device memory; a kernel of another device would fault. */
static void *see(const void *ptr)
{
    return cuda.bytes(ptr);
}

static bool until(ncclComm_t comm, const _Atomic unsigned *count, unsigned least)
{
    while (!comm->aborted && (*count < least)) {
        usleep(50);
    }
    return !comm->aborted;
}

/* Sums and products are computed in _wide: those of integers wrap, as on a device. */
#define REDUCE(_type, _wide)                                                                                           \
    do {                                                                                                               \
        const _type *x = from;                                                                                         \
        _type       *y = to;                                                                                           \
        for (i = 0; i < n; ++i) {                                                                                      \
            y[i] = (op == ncclSum) ? (_type)((_wide)y[i] + (_wide)x[i])                                                \
                   : (op == ncclProd) ? (_type)((_wide)y[i] * (_wide)x[i])                                             \
                   : (op == ncclMax) ? ((x[i] > y[i]) ? x[i] : y[i]) : ((x[i] < y[i]) ? x[i] : y[i]);                  \
        }                                                                                                              \
    } while (0)

static uint64_t width(int type)
{
    return (type <= ncclUint8) ? 1 : ((type == ncclFloat16) || (type == ncclBfloat16)) ? 2
           : ((type == ncclInt64) || (type == ncclUint64) || (type == ncclFloat64)) ? 8 : 4;
}

static void reduce(void *to, const void *from, uint64_t n, int type, int op)
{
    uint64_t i;

    switch (type) {
    case ncclInt32:
        REDUCE(int32_t, uint32_t);
        break;
    case ncclUint32:
        REDUCE(uint32_t, uint32_t);
        break;
    case ncclFloat32:
        REDUCE(float, float);
        break;
    default: /* the tests take no other type */
        abort();
    }
}

static void give(const run_t *run)
{
    place_t  *mine = &run->comm->shared->places[run->comm->rank];
    uint64_t at    = 0;
    unsigned i;
    int      r;

    memset(mine->len, 0, sizeof(mine->len));
    for (i = 0; i < run->n; ++i) {
        const part_t *part = &run->parts[i];

        if (part->give != NULL) {
            if (part->len > PLACE - at) {
                abort();
            }
            memcpy(mine->bytes + at, see(part->give), part->len);
            for (r = 0; r < run->comm->size; ++r) {
                if ((part->peer == ALL) || (part->peer == r)) {
                    mine->at[r]  = at;
                    mine->len[r] = part->len;
                }
            }
            at += part->len;
        }
    }
}

static void take(const run_t *run)
{
    const shared_t *shared = run->comm->shared;
    const uint64_t w       = width(run->type);
    unsigned       i;
    int            r;

    for (i = 0; i < run->n; ++i) {
        const part_t  *part = &run->parts[i];
        const place_t *from = &shared->places[(part->peer == ALL) ? 0 : part->peer];

        if (part->take != NULL) {
            if (from->len[run->comm->rank] != part->len) {
                abort(); /* as wrong as it is with NCCL */
            }
            memcpy(see(part->take), from->bytes + from->at[run->comm->rank], part->len);
        }
    }
    if (run->reduces) {
        memcpy(see(run->out), shared->places[0].bytes + run->first * w, run->count * w);
        for (r = 1; r < run->comm->size; ++r) {
            reduce(see(run->out), shared->places[r].bytes + run->first * w, run->count, run->type, run->op);
        }
    }
}

static void in_stream(void *arg)
{
    run_t          *run  = arg;
    ncclComm_t     comm  = run->comm;
    const unsigned all   = (unsigned)comm->size * run->number;
    bool           goes  = !run->hangs || until(comm, &comm->shared->joined, UINT32_MAX);

    if (goes && until(comm, &comm->shared->taken, all - (unsigned)comm->size)) {
        give(run);
        ++comm->shared->given;
        if (until(comm, &comm->shared->given, all)) {
            take(run);
            ++comm->shared->taken;
            ++counts[2];
        }
    }
    free(run);
    --comm->streams;
}

/* ---- posting ---- */

static run_t *run_new(ncclComm_t comm)
{
    run_t *run = calloc(1, sizeof(*run));

    if (run == NULL) {
        abort();
    }
    run->comm   = comm;
    run->number = ++comm->number;
    run->hangs  = (mode == FAKE_NCCL_RUN_HANGS) || (mode == FAKE_NCCL_RUN_FAILS);
    return run;
}

static ncclResult_t run_post(run_t *run, CUstream stream)
{
    ncclComm_t comm = run->comm;

    if (mode == FAKE_NCCL_RUN_FAILS) {
        comm->state = ncclRemoteError;
    }
    comm->ready_ns = (mode == FAKE_NCCL_SLOW) ? now_ns() + SLOW_MS * 1000000u : 0;
    ++comm->streams;
    if (cuda.host_call(stream, in_stream, run) != CUDA_SUCCESS) {
        abort();
    }
    return (mode == FAKE_NCCL_SLOW) ? ncclInProgress : ncclSuccess;
}

static void add(run_t *run, const void *from, void *to, uint64_t len, int peer)
{
    run->parts[run->n++] = (part_t){.give = from, .take = to, .len = len, .peer = peer};
}

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream);
ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream);

ncclResult_t ncclGroupStart(void)
{
    ++depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    run_t *run = grouped;

    grouped = (--depth == 0) ? NULL : grouped;
    return ((depth == 0) && (run != NULL)) ? run_post(run, grouped_stream) : ncclSuccess;
}

static run_t *group_of(ncclComm_t comm, CUstream stream)
{
    if (depth == 0) {
        abort();
    }
    grouped        = (grouped == NULL) ? run_new(comm) : grouped;
    grouped_stream = stream;
    return grouped;
}

ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream)
{
    add(group_of(comm, stream), from, NULL, n * width(type), peer);
    return ncclSuccess;
}

ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream)
{
    add(group_of(comm, stream), NULL, to, n * width(type), peer);
    return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           CUstream stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t comm, CUstream stream);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           CUstream stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, CUstream stream);

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           CUstream stream)
{
    run_t *run = run_new(comm);

    if (comm->rank == root) {
        add(run, from, NULL, n * width(type), ALL);
    } else {
        add(run, NULL, to, n * width(type), root);
    }
    return run_post(run, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t comm, CUstream stream)
{
    run_t *run = run_new(comm);
    int   r;

    add(run, from, NULL, n * width(type), ALL);
    for (r = 0; r < comm->size; ++r) {
        add(run, NULL, (char *)to + (size_t)r * n * width(type), n * width(type), r);
    }
    return run_post(run, stream);
}

static ncclResult_t post_reduction(run_t *run, const void *from, void *to, size_t n, ncclDataType_t type,
                                   ncclRedOp_t op, CUstream stream)
{
    add(run, from, NULL, (run->first + n) * width(type), ALL);
    run->reduces = true;
    run->type    = (int)type;
    run->op      = (int)op;
    run->count   = n;
    run->out     = to;
    return run_post(run, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           CUstream stream)
{
    return post_reduction(run_new(comm), from, to, n, type, op, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, CUstream stream)
{
    run_t *run = run_new(comm);

    add(run, from, NULL, (size_t)comm->size * n * width(type), ALL);
    run->reduces = true;
    run->type    = (int)type;
    run->op      = (int)op;
    run->count   = n;
    run->first   = (uint64_t)comm->rank * n;
    run->out     = to;
    return run_post(run, stream);
}

/* ---- communicators ---- */

ncclResult_t ncclGetVersion(int *version);
const char  *ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);

ncclResult_t ncclGetVersion(int *version)
{
    const char *given = getenv("FAKE_NCCL_VERSION");

    *version = (given != NULL) ? atoi(given) : 22809;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return (result == ncclRemoteError) ? "remote process exited or there was a network error" : "an error";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static _Atomic unsigned n;

    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "nccl.%d.%u.%llu", (int)getpid(), ++n, (unsigned long long)now_ns());
    return ncclSuccess;
}

static shared_t *meet(const ncclUniqueId *id)
{
    const char *dir = getenv("FAKE_NCCL_DIR");
    void       *at  = MAP_FAILED;
    char       path[512];
    int        fd;

    snprintf(path, sizeof(path), "%s/%.100s", (dir != NULL) ? dir : "/tmp", id->internal);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    if ((fd >= 0) && (ftruncate(fd, sizeof(shared_t)) == 0)) {
        at = mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (at == MAP_FAILED) {
        abort();
    }
    close(fd);
    return at;
}

static pthread_once_t looked_up = PTHREAD_ONCE_INIT;

static void look_up(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    *(void **)&cuda.bytes     = (handle != NULL) ? dlsym(handle, "fake_cuda_bytes") : NULL;
    *(void **)&cuda.host_call = (handle != NULL) ? dlsym(handle, "cuLaunchHostFunc") : NULL;
    if ((cuda.bytes == NULL) || (cuda.host_call == NULL)) {
        abort();
    }
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm_p, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    ncclComm_t comm = calloc(1, sizeof(*comm));

    if ((comm == NULL) || (config->magic != 0xcafebeef) || (config->blocking != 0) || (size > RANKS)) {
        abort();
    }
    pthread_once(&looked_up, look_up);
    ++counts[0];
    while (mode == FAKE_NCCL_BLOCKS) {
        usleep(1000);
    }
    comm->shared = meet(&id);
    comm->size   = size;
    comm->rank   = rank;
    comm->state  = (mode == FAKE_NCCL_INIT_FAILS)   ? ncclRemoteError
                   : (mode == FAKE_NCCL_INIT_HANGS) ? ncclInProgress
                                                    : ncclSuccess;
    comm->ready_ns = (mode == FAKE_NCCL_SLOW) ? now_ns() + SLOW_MS * 1000000u : 0;
    ++comm->shared->joined;
    *comm_p = comm;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    *error = (comm->state != ncclSuccess) ? comm->state
             : ((comm->shared->joined < (unsigned)comm->size) || (now_ns() < comm->ready_ns)) ? ncclInProgress
                                                                                              : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ++counts[1];
    comm->aborted = true;
    while (comm->streams > 0) {
        usleep(50);
    }
    munmap(comm->shared, sizeof(*comm->shared));
    free(comm);
    return ncclSuccess;
}
