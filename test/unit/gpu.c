/*
 * Device memory for tests (gpu.h). The driver functions that the library itself does not need are looked up here, by
 * the names of their binary interface.
 */
#include "config.h"
#include "test/unit/gpu.h"
#include "test/unit/fake_cuda.h"
#include <kvcl/kvcl_status.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICES = 8 };

static struct {
    CUresult (*count)(int *count);
    CUresult (*name)(char *name, int len, CUdevice device);
    CUresult (*mem_alloc)(CUdeviceptr *ptr, size_t len);
    CUresult (*mem_free)(CUdeviceptr ptr);
    CUresult (*stream_create)(CUstream *stream, unsigned flags);
} more;

static pthread_mutex_t          lock = PTHREAD_MUTEX_INITIALIZER;
static const kvcl_cuda_driver_t *d;
static bool                     is_real;
static int                      devices;
static CUcontext                contexts[DEVICES];

static void need(CUresult result, const char *what)
{
    const char *name = "?";

    if (result != CUDA_SUCCESS) {
        (void)d->error_name(result, &name);
        fprintf(stderr, "gpu: %s: %s (%d)\n", what, name, (int)result);
        _exit(1);
    }
}

static const char *look_up(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);

    if (handle == NULL) {
        return "there is no libcuda.so.1";
    }
    *(void **)&more.count         = dlsym(handle, "cuDeviceGetCount");
    *(void **)&more.name          = dlsym(handle, "cuDeviceGetName");
    *(void **)&more.mem_alloc     = dlsym(handle, "cuMemAlloc_v2");
    *(void **)&more.mem_free      = dlsym(handle, "cuMemFree_v2");
    *(void **)&more.stream_create = dlsym(handle, "cuStreamCreate");
    if ((more.count == NULL) || (more.name == NULL) || (more.mem_alloc == NULL) || (more.mem_free == NULL) ||
        (more.stream_create == NULL)) {
        return "libcuda.so.1 is older than CUDA 11";
    }
    d = kvcl_cuda_driver(true);
    if (d == NULL) {
        return kvcl_last_error();
    }
    return ((more.count(&devices) != CUDA_SUCCESS) || (devices == 0)) ? "the driver has no device" : NULL;
}

const char *gpu_open(bool real)
{
    const char *why = NULL;
    int        i;

    pthread_mutex_lock(&lock);
    if (d == NULL) {
        is_real = real;
        if (real) {
            why = look_up();
        } else {
            fake_cuda_start();
            d       = kvcl_cuda_driver(true);
            devices = FAKE_CUDA_DEVICES;
        }
        devices = (devices < DEVICES) ? devices : DEVICES;
        for (i = 0; (i < devices) && (why == NULL); ++i) {
            need(d->ctx_retain(&contexts[i], i), "cuDevicePrimaryCtxRetain");
        }
        d = (why == NULL) ? d : NULL;
    }
    pthread_mutex_unlock(&lock);
    return why;
}

bool gpu_is_there(void)
{
    const char *why;
    int        status = 1;
    pid_t      pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        why = gpu_open(true);
        if (why != NULL) {
            printf("SKIP: no GPU here: %s\n", why);
            fflush(stdout);
        }
        _exit((why == NULL) ? 0 : 1);
    }
    return (pid > 0) && (waitpid(pid, &status, 0) == pid) && (status == 0);
}

unsigned gpu_count(void)
{
    return (unsigned)devices;
}

void gpu_name(unsigned device, char *buf, size_t cap)
{
    snprintf(buf, cap, "a driver without a device");
    if (is_real) {
        need(more.name(buf, (int)cap, (CUdevice)device), "cuDeviceGetName");
    }
}

static void enter(unsigned device)
{
    need(d->ctx_push(contexts[device]), "cuCtxPushCurrent");
}

static void leave(void)
{
    CUcontext popped;

    need(d->ctx_pop(&popped), "cuCtxPopCurrent");
}

void *gpu_malloc(unsigned device, size_t len)
{
    CUdeviceptr ptr = 0;

    if (!is_real) {
        return fake_cuda_malloc((int)device, len);
    }
    enter(device);
    need(more.mem_alloc(&ptr, len), "cuMemAlloc");
    leave();
    return (void *)(uintptr_t)ptr;
}

void gpu_free(unsigned device, void *ptr)
{
    if (!is_real) {
        fake_cuda_free(ptr);
        return;
    }
    enter(device);
    need(more.mem_free((uintptr_t)ptr), "cuMemFree");
    leave();
}

CUstream gpu_stream(unsigned device)
{
    CUstream stream = NULL;

    if (!is_real) {
        return fake_cuda_stream((int)device);
    }
    enter(device);
    need(more.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    leave();
    return stream;
}

void gpu_stream_end(unsigned device, CUstream stream)
{
    if (!is_real) {
        fake_cuda_stream_end(stream);
        return;
    }
    enter(device);
    need(d->stream_destroy(stream), "cuStreamDestroy");
    leave();
}

void gpu_copy(unsigned device, CUstream stream, void *dst, const void *src, size_t len)
{
    enter(device);
    need(d->copy((uintptr_t)dst, (uintptr_t)src, len, stream), "cuMemcpyAsync");
    leave();
}

void gpu_sync(unsigned device, CUstream stream)
{
    enter(device);
    need(d->stream_sync(stream), "cuStreamSynchronize");
    leave();
}

static void copy_now(unsigned device, void *dst, const void *src, size_t len)
{
    CUstream stream = gpu_stream(device);

    gpu_copy(device, stream, dst, src, len);
    gpu_sync(device, stream);
    gpu_stream_end(device, stream);
}

void gpu_write(unsigned device, void *dst, const void *src, size_t len)
{
    copy_now(device, dst, src, len);
}

void gpu_read(unsigned device, void *dst, const void *src, size_t len)
{
    copy_now(device, dst, src, len);
}

void *gpu_pinned(unsigned device, size_t len)
{
    void *ptr = NULL;

    enter(device);
    need(d->host_alloc(&ptr, len, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    leave();
    return ptr;
}

void gpu_pinned_free(unsigned device, void *ptr)
{
    enter(device);
    need(d->host_free(ptr), "cuMemFreeHost");
    leave();
}

static void wait_for(void *arg)
{
    while (atomic_load((_Atomic int *)arg) == 0) {
        usleep(100);
    }
}

void gpu_hold(unsigned device, CUstream stream, _Atomic int *go)
{
    enter(device);
    need(d->host_call(stream, wait_for, (void *)go), "cuLaunchHostFunc");
    leave();
}
