/*
 * Copiers (copier.h): which one serves a memory kind, and host memory's, which is memcpy.
 */
#include "config.h"
#include "device/copier.h"
#include "base/error.h"
#include "weave/pieces.h"

#if !KVCL_HAVE_CUDA
kvcl_status_t kvcl_cuda_copier_open(const void *addr, size_t len, bool automatic, kvcl_copier_t **copier_p)
{
    (void)addr;
    (void)len;
    *copier_p = NULL;
    return automatic ? KVCL_OK
                     : kvcl_fail(KVCL_ERR_UNSUPPORTED, "device memory is not built in: configure was given "
                                 "--without-cuda");
}

kvcl_status_t kvcl_cuda_after(void *stream, void (*fn)(void *arg), void *arg)
{
    (void)stream;
    (void)fn;
    (void)arg;
    return kvcl_fail(KVCL_ERR_UNSUPPORTED, "no stream can be waited for: configure was given --without-cuda");
}
#endif

kvcl_status_t kvcl_copier_open(kvcl_mem_kind_t kind, const void *addr, size_t len, kvcl_copier_t **copier_p)
{
    *copier_p = NULL;
    switch (kind) {
    case KVCL_MEM_HOST:
        return KVCL_OK;
    case KVCL_MEM_CUDA:
        return kvcl_cuda_copier_open(addr, len, false, copier_p);
    case KVCL_MEM_AUTO:
        return kvcl_cuda_copier_open(addr, len, true, copier_p);
    default:
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "memory kind %d is not KVCL_MEM_HOST, KVCL_MEM_CUDA or KVCL_MEM_AUTO",
                         (int)kind);
    }
}

void kvcl_copier_close(kvcl_copier_t *copier)
{
    if (copier != NULL) {
        copier->ops->close(copier);
    }
}

kvcl_status_t kvcl_copier_copy(kvcl_copier_t *dst, kvcl_copier_t *src, const kvcl_piece_t *pieces, size_t n)
{
    kvcl_copier_t *device = (dst != NULL) ? dst : src;
    size_t        i;

    if (device != NULL) {
        return (n == 0) ? KVCL_OK : device->ops->copy(dst, src, pieces, n);
    }
    for (i = 0; i < n; ++i) {
        kvcl_copy_bytes((void *)(uintptr_t)pieces[i].dst, (const void *)(uintptr_t)pieces[i].src, pieces[i].len);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_copier_after(void *stream, void (*fn)(void *arg), void *arg)
{
    return kvcl_cuda_after(stream, fn, arg);
}
