/*
 * Copies from, to and inside device memory.
 *
 * A piece that is large, or one of few, is a cuMemcpyAsync of its own. Others, if there are several, go by the kernel
 * (device/cuda_kernel.cu), many in a launch: inside one device directly, in chunks, each for a block of threads; to or
 * from host memory through a slot of pinned memory, which the kernel reads and writes itself. A lane has two slots, so
 * that the processor packs or unpacks one while the device works on the other.
 *
 * All copies of a call are over when it returns, also on failure: the caller may then reuse its buffers.
 */
#include "config.h"
#include "device/cuda_device.h"
#include "base/clock.h"
#include "base/error.h"
#include "weave/pieces.h"

kvcl_cuda_most_t kvcl_cuda_most = {.pinned = 16 * 1024, .pages = 128 * 1024, .inside = 1024 * 1024};

enum {
    PACK_MIN     = 4,
    THREADS      = 128,       /* PIECE_THREADS of the kernel */
    ALIGN        = 16,        /* the kernel's widest word */
    CHUNK        = 16 * 1024, /* of a piece that the kernel copies directly */
    SPIN_NS      = 30 * 1000  /* most copies are over by then; a blocked thread wakes up later than that */
};

typedef struct job {
    kvcl_cuda_device_t *device;
    kvcl_cuda_lane_t   *lane;
    bool               to_host, from_host;
    size_t             small; /* up to this size the kernel copies pieces; 0: none */
    bool               direct; /* something is under way in the stream beside the slots */
    unsigned           at;     /* the slot being filled */
} job_t;

static kvcl_cuda_device_t *device_of(kvcl_copier_t *copier)
{
    return kvcl_container_of(copier, kvcl_cuda_device_t, super);
}

static kvcl_status_t await(const kvcl_cuda_driver_t *d, CUevent event)
{
    uint64_t until = kvcl_now_ns() + SPIN_NS;
    CUresult result;

    while (((result = d->event_query(event)) == CUDA_ERROR_NOT_READY) && (kvcl_now_ns() < until)) {
    }
    if (result == CUDA_ERROR_NOT_READY) {
        result = d->event_sync(event);
    }
    return kvcl_cuda_status(d, result, "cuEventSynchronize");
}

static void reset(kvcl_cuda_slot_t *slot)
{
    slot->launched = false;
    slot->used     = 0;
    slot->n        = 0;
    slot->n_home   = 0;
}

static kvcl_status_t launch(job_t *job, kvcl_cuda_slot_t *slot)
{
    const kvcl_cuda_driver_t *d       = job->device->driver;
    CUdeviceptr              list     = (uintptr_t)slot->list;
    void                     *params[] = {&list};
    kvcl_status_t            status;

    if (slot->n == 0) {
        return KVCL_OK;
    }
    status = kvcl_cuda_status(d, d->launch(job->device->kernel, slot->n, 1, 1, THREADS, 1, 1, 0, job->lane->stream,
                                           params, NULL), "cuLaunchKernel");
    if (status == KVCL_OK) {
        status = kvcl_cuda_status(d, d->event_record(slot->event, job->lane->stream), "cuEventRecord");
    }
    slot->launched = (status == KVCL_OK);
    return status;
}

/* Wait for what the slot holds and bring it home; then it is empty. */
static kvcl_status_t settle(job_t *job, kvcl_cuda_slot_t *slot)
{
    kvcl_status_t status = slot->launched ? await(job->device->driver, slot->event) : KVCL_OK;
    unsigned      i;

    for (i = 0; (i < slot->n_home) && (status == KVCL_OK); ++i) {
        kvcl_copy_bytes((void *)(uintptr_t)slot->home[i].dst, (const void *)(uintptr_t)slot->home[i].src,
                        slot->home[i].len);
    }
    reset(slot);
    return status;
}

/* The slot at hand, with room for one more piece of that many staged bytes; the next one if it is full. */
static kvcl_status_t slot_for(job_t *job, size_t room, kvcl_cuda_slot_t **slot_p)
{
    kvcl_cuda_slot_t *slot  = &job->lane->slots[job->at];
    kvcl_status_t    status = KVCL_OK;

    if ((slot->n == KVCL_CUDA_SLOT_LIST) || (room > KVCL_CUDA_SLOT_BYTES - slot->used)) {
        status  = launch(job, slot);
        job->at = (job->at + 1) % KVCL_CUDA_SLOTS;
        slot    = &job->lane->slots[job->at];
        if (status == KVCL_OK) {
            status = settle(job, slot);
        }
    }
    *slot_p = slot;
    return status;
}

static kvcl_status_t pack_staged(job_t *job, const kvcl_piece_t *piece)
{
    const size_t     room = (piece->len + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    kvcl_cuda_slot_t *slot;
    kvcl_status_t    status = slot_for(job, room, &slot);
    char             *bytes;

    if (status != KVCL_OK) {
        return status;
    }
    bytes                = slot->bytes + slot->used;
    slot->list[slot->n]  = *piece;
    slot->used          += room;
    if (job->from_host) {
        kvcl_copy_bytes(bytes, (const void *)(uintptr_t)piece->src, piece->len);
        slot->list[slot->n].src = (uintptr_t)bytes;
    } else {
        slot->list[slot->n].dst         = (uintptr_t)bytes;
        slot->home[slot->n_home++] = (kvcl_piece_t){piece->dst, (uintptr_t)bytes, piece->len};
    }
    ++slot->n;
    return KVCL_OK;
}

static kvcl_status_t pack_direct(job_t *job, const kvcl_piece_t *piece)
{
    kvcl_status_t    status = KVCL_OK;
    kvcl_cuda_slot_t *slot;
    uint64_t         at, len;

    for (at = 0; at < piece->len; at += len) {
        len    = (piece->len - at < CHUNK) ? piece->len - at : CHUNK;
        status = slot_for(job, 0, &slot);
        if (status != KVCL_OK) {
            return status;
        }
        slot->list[slot->n++] = (kvcl_piece_t){piece->dst + at, piece->src + at, len};
    }
    return status;
}

static kvcl_status_t copy_one(job_t *job, const kvcl_piece_t *piece)
{
    const kvcl_cuda_driver_t *d = job->device->driver;

    job->direct = true;
    return kvcl_cuda_status(d, d->copy(piece->dst, piece->src, piece->len, job->lane->stream), "cuMemcpyAsync");
}

/* The last slot leaves, then everything is waited for. */
static kvcl_status_t drain(job_t *job)
{
    const kvcl_cuda_driver_t *d     = job->device->driver;
    kvcl_status_t            status = launch(job, &job->lane->slots[job->at]);
    unsigned                 i;

    if ((status == KVCL_OK) && job->direct) {
        status = kvcl_cuda_status(d, d->event_record(job->lane->event, job->lane->stream), "cuEventRecord");
    }
    for (i = 1; (i <= KVCL_CUDA_SLOTS) && (status == KVCL_OK); ++i) { /* the one that left first comes first */
        status = settle(job, &job->lane->slots[(job->at + i) % KVCL_CUDA_SLOTS]);
    }
    return ((status == KVCL_OK) && job->direct) ? await(d, job->lane->event) : status;
}

/* The driver copies memory that it has pinned fast, and other pages of the host slowly. */
static size_t small_of(const job_t *job, const kvcl_piece_t *piece)
{
    const kvcl_cuda_driver_t *d   = job->device->driver;
    unsigned                 type = 0;

    if (!job->to_host && !job->from_host) {
        return kvcl_cuda_most.inside;
    }
    return ((d->pointer(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, job->to_host ? piece->dst : piece->src) ==
             CUDA_SUCCESS) && (type == CU_MEMORYTYPE_HOST)) ? kvcl_cuda_most.pinned : kvcl_cuda_most.pages;
}

/* The largest piece that the kernel copies here; 0: it may not, or is not worth its while. */
static size_t choose(const job_t *job, const kvcl_copier_t *dst, const kvcl_copier_t *src, const kvcl_piece_t *pieces,
                     size_t n)
{
    size_t small = 0, most, i;

    if ((job->device->kernel == NULL) || (n < PACK_MIN) || ((dst != NULL) && (src != NULL) && (dst != src))) {
        return 0; /* of two devices each sees its own memory only; the driver copies between them */
    }
    most = small_of(job, &pieces[0]);
    for (i = 0; (i < n) && (small < PACK_MIN); ++i) {
        small += (pieces[i].len <= most) ? 1 : 0;
    }
    return (small >= PACK_MIN) ? most : 0;
}

kvcl_status_t kvcl_cuda_copy(kvcl_copier_t *dst, kvcl_copier_t *src, const kvcl_piece_t *pieces, size_t n)
{
    job_t         job    = {.device = device_of((dst != NULL) ? dst : src), .to_host = (dst == NULL),
                            .from_host = (src == NULL)};
    kvcl_status_t status = kvcl_cuda_lane_take(job.device, &job.lane);
    size_t        i;

    if (status != KVCL_OK) {
        return status;
    }
    job.small = choose(&job, dst, src, pieces, n);
    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        if ((job.small > 0) && (pieces[i].len <= job.small)) {
            status = (job.to_host || job.from_host) ? pack_staged(&job, &pieces[i]) : pack_direct(&job, &pieces[i]);
        } else if (pieces[i].len > 0) {
            status = copy_one(&job, &pieces[i]);
        }
    }
    if (status == KVCL_OK) {
        status = drain(&job);
    }
    if (status != KVCL_OK) { /* a device that fails this as well copies nothing any more */
        (void)job.device->driver->stream_sync(job.lane->stream);
    }
    kvcl_cuda_lane_give(job.device, job.lane, status == KVCL_OK);
    return status;
}
