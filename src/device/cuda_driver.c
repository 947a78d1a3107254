/*
 * The driver's functions (device/cuda_api.h): dlopen, the table, and what its errors mean.
 *
 * The library stays loaded once it was opened: CUDA cannot be unloaded. The table is filled once, under a mutex, and
 * immutable from then on.
 */
#include "config.h"
#include "device/cuda_api.h"
#include "base/error.h"
#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

static const char library[] = "libcuda.so.1";

static pthread_mutex_t          lock = PTHREAD_MUTEX_INITIALIZER;
static kvcl_cuda_driver_t       real;
static const kvcl_cuda_driver_t *current;
static bool                     started;

#if KVCL_HAVE_CUDA_H
/* The names with version numbers are those that cuda.h maps its names to (test/unit/test_cuda_header.c). */
#define KVCL_CUDA_SAME(_member, _name, _symbol, _params)                                                               \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&_name), __typeof__(real._member)), #_name);
KVCL_CUDA_MAP(KVCL_CUDA_SAME)
#undef KVCL_CUDA_SAME
#endif

/* Lock held. */
static bool fill(void *handle)
{
    const char *missing = NULL;

#define KVCL_CUDA_LOOK_UP(_member, _name, _symbol, _params)                                                            \
    *(void **)&real._member = dlsym(handle, _symbol);                                                                  \
    missing                 = (real._member == NULL) ? _symbol : missing;
    KVCL_CUDA_MAP(KVCL_CUDA_LOOK_UP)
#undef KVCL_CUDA_LOOK_UP
    if (missing != NULL) {
        (void)kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s has no %s: a driver of CUDA 11 or newer is needed", library, missing);
    }
    return missing == NULL;
}

/* Lock held. Idempotent. */
static bool start(const kvcl_cuda_driver_t *driver)
{
    CUresult result = started ? CUDA_SUCCESS : driver->init(0);

    started = (result == CUDA_SUCCESS);
    if (!started) {
        const char *name = "?";
        (void)driver->error_name(result, &name);
        (void)kvcl_fail(KVCL_ERR_UNSUPPORTED, "device memory cannot be used here: cuInit: %s", name);
    }
    return started;
}

const kvcl_cuda_driver_t *kvcl_cuda_driver(bool load)
{
    const kvcl_cuda_driver_t *driver;
    void                     *handle;

    pthread_mutex_lock(&lock);
    if (current == NULL) {
        handle = dlopen(library, RTLD_NOW | (load ? 0 : RTLD_NOLOAD));
        if ((handle == NULL) && load) {
            (void)kvcl_fail(KVCL_ERR_UNSUPPORTED, "device memory cannot be used here: %s", dlerror());
        }
        if ((handle != NULL) && fill(handle)) {
            current = &real; /* the handle is kept */
        }
    }
    driver = current;
    if ((driver != NULL) && load && !start(driver)) {
        driver = NULL;
    }
    pthread_mutex_unlock(&lock);
    return driver;
}

void kvcl_cuda_set_driver(const kvcl_cuda_driver_t *driver)
{
    pthread_mutex_lock(&lock);
    current = driver;
    started = false;
    pthread_mutex_unlock(&lock);
}

kvcl_status_t kvcl_cuda_status(const kvcl_cuda_driver_t *driver, CUresult result, const char *call)
{
    static _Atomic unsigned failures;
    const char              *name = NULL;
    unsigned                n;

    if (result == CUDA_SUCCESS) {
        return KVCL_OK;
    }
    if ((driver->error_name(result, &name) != CUDA_SUCCESS) || (name == NULL)) {
        name = "unknown error";
    }
    n = atomic_fetch_add_explicit(&failures, 1, memory_order_relaxed) + 1;
    if ((n & (n - 1)) == 0) { /* a failed device fails every call */
        kvcl_log_warn("cuda: %s: %s (%d); failure %u of this process", call, name, (int)result, n);
    }
    return kvcl_fail((result == CUDA_ERROR_OUT_OF_MEMORY) ? KVCL_ERR_NO_MEMORY : KVCL_ERR_IO, "cuda: %s: %s", call,
                     name);
}
