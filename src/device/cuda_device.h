/*
 * Device memory inside: a device is the copier (copier.h) of all memory in one CUDA context; its lanes are
 * KVCL's streams, each with the buffers to copy many small pieces at once.
 *
 * A lane belongs to one thread between take and give, so that several threads copy at once; its context is current
 * meanwhile. Locks: the list of devices has one, each device has one for its lanes; neither is held during a copy.
 */
#ifndef KVCL_DEVICE_CUDA_DEVICE_H
#define KVCL_DEVICE_CUDA_DEVICE_H

#include "base/list.h"
#include "device/copier.h"
#include "device/cuda_api.h"

#include <pthread.h>

enum {
    KVCL_CUDA_LANES      = 4,         /* of a device, at most */
    KVCL_CUDA_SLOTS      = 2,         /* of a lane: one is filled while the device works on the other */
    KVCL_CUDA_SLOT_BYTES = 1 << 20,
    KVCL_CUDA_SLOT_LIST  = 1024
};

/* Pieces for one launch of the kernel, and the pinned host memory that they pass through. */
typedef struct kvcl_cuda_slot {
    CUevent      event;
    bool         launched;
    char         *bytes; /* pinned */
    size_t       used;
    kvcl_piece_t *list;  /* pinned: the kernel's */
    unsigned     n;
    kvcl_piece_t *home;  /* from bytes to the caller's memory, when the kernel is done */
    unsigned     n_home;
} kvcl_cuda_slot_t;

typedef struct kvcl_cuda_lane {
    kvcl_list_t      link; /* device.idle */
    CUstream         stream;
    CUevent          event;
    kvcl_cuda_slot_t slots[KVCL_CUDA_SLOTS];
} kvcl_cuda_lane_t;

typedef struct kvcl_cuda_device {
    kvcl_copier_t            super;
    kvcl_list_t              link;
    unsigned                 refs;    /* under the list's lock */
    const kvcl_cuda_driver_t *driver;
    CUdevice                 ordinal;
    CUcontext                primary; /* retained */
    CUcontext                ctx;     /* of the memory: the primary one, or the engine's own */
    CUmodule                 module;
    CUfunction               kernel;  /* NULL: the driver does not take it; pieces are copied one by one */
    int                      priority;
    pthread_mutex_t          lock;
    pthread_cond_t           idle_cond;
    kvcl_list_t              idle;
    unsigned                 lanes;
} kvcl_cuda_device_t;

/** A lane, its context current; waits while all are in use. */
kvcl_status_t kvcl_cuda_lane_take(kvcl_cuda_device_t *device, kvcl_cuda_lane_t **lane_p) KVCL_MUST_CHECK;
/** good: it may be used again; else its stream has failed, and it is thrown away. */
void          kvcl_cuda_lane_give(kvcl_cuda_device_t *device, kvcl_cuda_lane_t *lane, bool good);

/* Pieces up to these sizes are copied by the kernel, bytes: between a device and host memory that the driver has
 * pinned, or other pages (both at most KVCL_CUDA_SLOT_BYTES), and inside a device. contrib/bench/gpu measured them. */
typedef struct kvcl_cuda_most {
    size_t pinned, pages, inside;
} kvcl_cuda_most_t;
extern kvcl_cuda_most_t kvcl_cuda_most;

/* device/cuda_copy.c: kvcl_copier_ops_t.copy. */
kvcl_status_t kvcl_cuda_copy(kvcl_copier_t *dst, kvcl_copier_t *src, const kvcl_piece_t *pieces, size_t n)
    KVCL_MUST_CHECK;

#endif
