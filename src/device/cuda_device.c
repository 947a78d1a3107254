/*
 * Devices (cuda_device.h): the device of a pointer, and a device's state for copies: context, kernel, lanes.
 *
 * A device is opened with the first memory registered on it and closed with the last; a lane's stream and slots are
 * created when a copy first needs them. Streams are KVCL's own, of the highest priority, and never wait for those of
 * the engine: a copy begins at once, even beside a long kernel.
 */
#include "config.h"
#include "device/cuda_device.h"
#include "device/cuda_kernel.h"
#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static kvcl_list_t     devices      = {&devices, &devices};

/* ---- lanes ---- */

static void lane_free(kvcl_cuda_device_t *device, kvcl_cuda_lane_t *lane)
{
    const kvcl_cuda_driver_t *d = device->driver;
    kvcl_cuda_slot_t         *slot;
    unsigned                 i;

    for (i = 0; i < KVCL_CUDA_SLOTS; ++i) {
        slot = &lane->slots[i];
        if (slot->event != NULL) {
            (void)d->event_destroy(slot->event);
        }
        if (slot->bytes != NULL) {
            (void)d->host_free(slot->bytes);
        }
        if (slot->list != NULL) {
            (void)d->host_free(slot->list);
        }
        free(slot->home);
    }
    if (lane->event != NULL) {
        (void)d->event_destroy(lane->event);
    }
    if (lane->stream != NULL) {
        (void)d->stream_destroy(lane->stream);
    }
    free(lane);
}

static kvcl_status_t slot_init(const kvcl_cuda_driver_t *d, kvcl_cuda_slot_t *slot, unsigned event_flags)
{
    kvcl_status_t status = kvcl_cuda_status(d, d->event_create(&slot->event, event_flags), "cuEventCreate");
    void          *bytes = NULL, *list = NULL;

    if (status == KVCL_OK) {
        status = kvcl_cuda_status(d, d->host_alloc(&bytes, KVCL_CUDA_SLOT_BYTES, CU_MEMHOSTALLOC_PORTABLE),
                                  "cuMemHostAlloc");
    }
    slot->bytes = bytes;
    if (status == KVCL_OK) {
        status = kvcl_cuda_status(d, d->host_alloc(&list, KVCL_CUDA_SLOT_LIST * sizeof(*slot->list),
                                                   CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    }
    slot->list = list;
    slot->home = calloc(KVCL_CUDA_SLOT_LIST, sizeof(*slot->home));
    if ((status == KVCL_OK) && (slot->home == NULL)) {
        status = kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to copy device memory with");
    }
    return status;
}

/* The context is current. */
static kvcl_status_t lane_new(kvcl_cuda_device_t *device, kvcl_cuda_lane_t **lane_p)
{
    const kvcl_cuda_driver_t *d    = device->driver;
    kvcl_cuda_lane_t         *lane = calloc(1, sizeof(*lane));
    unsigned                 flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
    kvcl_status_t            status;
    unsigned                 i;

    if (lane == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to copy device memory with");
    }
    kvcl_list_init(&lane->link);
    status = kvcl_cuda_status(d, d->stream_create(&lane->stream, CU_STREAM_NON_BLOCKING, device->priority),
                              "cuStreamCreateWithPriority");
    if (status == KVCL_OK) {
        status = kvcl_cuda_status(d, d->event_create(&lane->event, flags), "cuEventCreate");
    }
    for (i = 0; (i < KVCL_CUDA_SLOTS) && (status == KVCL_OK); ++i) {
        status = slot_init(d, &lane->slots[i], flags);
    }
    if (status != KVCL_OK) {
        lane_free(device, lane);
        return status;
    }
    *lane_p = lane;
    return KVCL_OK;
}

kvcl_status_t kvcl_cuda_lane_take(kvcl_cuda_device_t *device, kvcl_cuda_lane_t **lane_p)
{
    kvcl_status_t status = kvcl_cuda_status(device->driver, device->driver->ctx_push(device->ctx), "cuCtxPushCurrent");
    kvcl_list_t   *link;
    CUcontext     popped;

    if (status != KVCL_OK) {
        return status;
    }
    pthread_mutex_lock(&device->lock);
    while (((link = kvcl_list_pop(&device->idle)) == NULL) && (device->lanes == KVCL_CUDA_LANES)) {
        pthread_cond_wait(&device->idle_cond, &device->lock);
    }
    device->lanes += (link == NULL) ? 1 : 0;
    pthread_mutex_unlock(&device->lock);
    if (link != NULL) {
        *lane_p = kvcl_container_of(link, kvcl_cuda_lane_t, link);
        return KVCL_OK;
    }
    status = lane_new(device, lane_p);
    if (status != KVCL_OK) {
        pthread_mutex_lock(&device->lock);
        --device->lanes;
        pthread_cond_signal(&device->idle_cond);
        pthread_mutex_unlock(&device->lock);
        (void)device->driver->ctx_pop(&popped);
    }
    return status;
}

void kvcl_cuda_lane_give(kvcl_cuda_device_t *device, kvcl_cuda_lane_t *lane, bool good)
{
    CUcontext popped;

    if (!good) {
        lane_free(device, lane);
    }
    (void)device->driver->ctx_pop(&popped);
    pthread_mutex_lock(&device->lock);
    if (good) {
        kvcl_list_add_tail(&device->idle, &lane->link);
    } else {
        --device->lanes;
    }
    pthread_cond_signal(&device->idle_cond);
    pthread_mutex_unlock(&device->lock);
}

/* ---- devices ---- */

/* Accepts a half-opened device. No thread copies with it. */
static void device_free(kvcl_cuda_device_t *device)
{
    const kvcl_cuda_driver_t *d = device->driver;
    kvcl_list_t              *link;
    CUcontext                popped;

    if ((device->ctx != NULL) && (d->ctx_push(device->ctx) == CUDA_SUCCESS)) {
        while ((link = kvcl_list_pop(&device->idle)) != NULL) {
            lane_free(device, kvcl_container_of(link, kvcl_cuda_lane_t, link));
        }
        if (device->module != NULL) {
            (void)d->module_unload(device->module);
        }
        (void)d->ctx_pop(&popped);
    }
    if (device->primary != NULL) {
        (void)d->ctx_release(device->ordinal);
    }
    pthread_mutex_destroy(&device->lock);
    pthread_cond_destroy(&device->idle_cond);
    free(device);
}

static void device_close(kvcl_copier_t *copier)
{
    kvcl_cuda_device_t *device = kvcl_container_of(copier, kvcl_cuda_device_t, super);

    pthread_mutex_lock(&devices_lock);
    if (--device->refs == 0) {
        kvcl_list_del(&device->link);
        device_free(device);
    }
    pthread_mutex_unlock(&devices_lock);
}

static const kvcl_copier_ops_t cuda_ops = {.kind = KVCL_MEM_CUDA, .copy = kvcl_cuda_copy, .close = device_close};

/* The context is current. Without the kernel everything works, slower. */
static void load_kernel(kvcl_cuda_device_t *device)
{
    const kvcl_cuda_driver_t *d     = device->driver;
    kvcl_status_t            status = kvcl_cuda_status(d, d->module_load(&device->module, kernel_ptx),
                                                       "cuModuleLoadData");

    if (status == KVCL_OK) {
        status = kvcl_cuda_status(d, d->function(&device->kernel, device->module, "kvcl_copy_pieces"),
                                  "cuModuleGetFunction");
    }
    if (status != KVCL_OK) {
        device->kernel = NULL;
        kvcl_log_warn("device %d does not take the copy kernel: small pieces are copied one by one", device->ordinal);
    }
}

static kvcl_status_t device_open(kvcl_cuda_device_t *device, CUcontext ctx)
{
    const kvcl_cuda_driver_t *d     = device->driver;
    kvcl_status_t            status = kvcl_cuda_status(d, d->ctx_retain(&device->primary, device->ordinal),
                                                       "cuDevicePrimaryCtxRetain");
    CUcontext                popped;
    int                      least;

    if (status != KVCL_OK) {
        device->primary = NULL;
        return status;
    }
    device->ctx = (ctx != NULL) ? ctx : device->primary;
    status      = kvcl_cuda_status(d, d->ctx_push(device->ctx), "cuCtxPushCurrent");
    if (status != KVCL_OK) {
        return status;
    }
    if (d->priorities(&least, &device->priority) != CUDA_SUCCESS) {
        device->priority = 0;
    }
    load_kernel(device);
    (void)d->ctx_pop(&popped);
    return KVCL_OK;
}

/* Lock of the list held. */
static kvcl_status_t device_get(const kvcl_cuda_driver_t *driver, CUdevice ordinal, CUcontext ctx,
                                kvcl_cuda_device_t **device_p)
{
    kvcl_cuda_device_t *device;
    kvcl_status_t      status;

    kvcl_list_foreach (device, &devices, kvcl_cuda_device_t, link) {
        if ((device->ordinal == ordinal) &&
            ((ctx == device->ctx) || ((ctx == NULL) && (device->ctx == device->primary)))) {
            ++device->refs;
            *device_p = device;
            return KVCL_OK;
        }
    }
    device = calloc(1, sizeof(*device));
    if (device == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a device");
    }
    device->super.ops = &cuda_ops;
    device->refs      = 1;
    device->driver    = driver;
    device->ordinal   = ordinal;
    pthread_mutex_init(&device->lock, NULL);
    pthread_cond_init(&device->idle_cond, NULL);
    kvcl_list_init(&device->idle);
    kvcl_list_init(&device->link);
    status = device_open(device, ctx);
    if (status != KVCL_OK) {
        device_free(device);
        return status;
    }
    kvcl_list_add_tail(&devices, &device->link);
    *device_p = device;
    return KVCL_OK;
}

/* Is it a pointer to device memory, and whose? */
static bool pointer_kind(const kvcl_cuda_driver_t *d, uint64_t addr, CUdevice *ordinal_p, CUcontext *ctx_p)
{
    unsigned type = 0;
    int      ordinal = -1;

    if ((d->pointer(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr) != CUDA_SUCCESS) || (type != CU_MEMORYTYPE_DEVICE) ||
        (d->pointer(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, addr) != CUDA_SUCCESS) || (ordinal < 0)) {
        return false;
    }
    *ordinal_p = ordinal;
    if (d->pointer(ctx_p, CU_POINTER_ATTRIBUTE_CONTEXT, addr) != CUDA_SUCCESS) {
        *ctx_p = NULL; /* memory of a pool, or mapped piece by piece: the primary context reaches it */
    }
    return true;
}

/* How many bytes there are from addr to the end of its allocation, or of the addresses reserved for it where it is
 * mapped piece by piece. UINT64_MAX: the driver does not say. */
static uint64_t bytes_behind(const kvcl_cuda_driver_t *d, uint64_t addr)
{
    CUdeviceptr start = 0;
    size_t      size  = 0;

    if ((d->pointer(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, addr) != CUDA_SUCCESS) ||
        (d->pointer(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, addr) != CUDA_SUCCESS) || (start > addr) ||
        (size < addr - start)) {
        return UINT64_MAX;
    }
    return size - (addr - start);
}

kvcl_status_t kvcl_cuda_copier_open(const void *addr, size_t len, bool automatic, kvcl_copier_t **copier_p)
{
    const kvcl_cuda_driver_t *driver = kvcl_cuda_driver(!automatic);
    CUcontext                ctx     = NULL, last_ctx = NULL;
    CUdevice                 ordinal = -1, last = -1;
    kvcl_cuda_device_t       *device = NULL;
    kvcl_status_t            status;
    uint64_t                 behind;

    *copier_p = NULL;
    if (driver == NULL) {
        return automatic ? KVCL_OK : KVCL_ERR_UNSUPPORTED;
    }
    if (!pointer_kind(driver, (uintptr_t)addr, &ordinal, &ctx)) {
        return automatic ? KVCL_OK
                         : kvcl_fail(KVCL_ERR_INVALID_PARAM, "%p is no device memory, as the driver sees it", addr);
    }
    behind = bytes_behind(driver, (uintptr_t)addr);
    if (len > behind) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%zu bytes at %p, where the allocation on device %d has %llu", len,
                         addr, ordinal, (unsigned long long)behind);
    }
    if ((len > 0) && (!pointer_kind(driver, (uintptr_t)addr + (len - 1), &last, &last_ctx) || (last != ordinal))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%zu bytes at %p end outside the memory of device %d", len, addr,
                         ordinal);
    }
    pthread_mutex_lock(&devices_lock);
    status = device_get(driver, ordinal, ctx, &device);
    pthread_mutex_unlock(&devices_lock);
    if (status == KVCL_OK) {
        *copier_p = &device->super;
    }
    return status;
}
