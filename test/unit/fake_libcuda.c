/*
 * The driver without a device (fake_cuda.h) as a library of its own: under the name libcuda.so.1 on the loader's path
 * the library opens it as the real one. So programs that were built without it (Python, conform_gpu with CF_GPU=1)
 * execute their device code too. In addition to the functions that the library needs, it has those with which such
 * programs get memory and streams, and fake_cuda_bytes to read behind the addresses.
 */
#include "config.h"
#include "test/unit/fake_cuda.c"

/* The functions of the table, which have its members' names, under those of the driver's binary interface. */
#define EXPORT(_member, _name, _symbol, _params)                                                                       \
    extern __typeof__(_member) export_##_member __asm__(_symbol) __attribute__((alias(#_member)));
KVCL_CUDA_MAP(EXPORT)

/* The library finds it by name, so no driver is set. */
void kvcl_cuda_set_driver(const kvcl_cuda_driver_t *driver)
{
    (void)driver;
}

CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int len, CUdevice device);
CUresult export_mem_alloc(CUdeviceptr *ptr, size_t len) __asm__("cuMemAlloc_v2");
CUresult export_mem_free(CUdeviceptr ptr) __asm__("cuMemFree_v2");
CUresult export_stream(CUstream *stream, unsigned flags) __asm__("cuStreamCreate");

CUresult cuDeviceGetCount(int *count)
{
    *count = FAKE_CUDA_DEVICES;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
    (void)snprintf(name, (size_t)len, "none, number %d", device);
    return CUDA_SUCCESS;
}

CUresult export_mem_alloc(CUdeviceptr *ptr, size_t len)
{
    *ptr = (current() != NULL) ? (uintptr_t)fake_cuda_malloc(current()->device, len) : 0;
    return (*ptr != 0) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult export_mem_free(CUdeviceptr ptr)
{
    fake_cuda_free((void *)(uintptr_t)ptr);
    return CUDA_SUCCESS;
}

CUresult export_stream(CUstream *stream, unsigned flags)
{
    (void)flags;
    if (current() == NULL) {
        return (CUresult)INVALID_CONTEXT;
    }
    *stream = new_stream(current()->device);
    pthread_mutex_lock(&fake_cuda_lock);
    ++stats.streams;
    pthread_mutex_unlock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}
