/*
 * The driver without a device (fake_cuda.h).
 *
 * One lock guards everything; streams drop it while they copy. A failed stream does nothing more and returns its error
 * to every query. Objects that are destroyed twice or never are visible in the counts.
 */
#include "test/unit/fake_cuda.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 8, INVALID_CONTEXT = 201, ILLEGAL_ADDRESS = 700 };

typedef enum { OP_COPY, OP_LAUNCH, OP_RECORD, OP_CALL, OP_HOLD } op_kind_t;

typedef struct op {
    struct op *next;
    op_kind_t kind;
    uint64_t  dst, src, len; /* a launch: src is the list, len its length */
    CUevent   event;
    uint64_t  number;        /* number of an event's record */
    CUhostFn  fn;
    void      *arg;
} op_t;

struct CUctx_st {
    int      device;
    unsigned refs;
};

struct CUstream_st {
    int       device;
    pthread_t thread;
    op_t      *first, **last;
    bool      busy, ending, held, capturing;
    CUresult  error;
};

struct CUevent_st {
    uint64_t recorded, done; /* numbers */
    CUresult error;
};

typedef struct piece {
    uint64_t dst, src, len;
} piece_t;

static pthread_cond_t    cond = PTHREAD_COND_INITIALIZER;
static struct CUctx_st   contexts[FAKE_CUDA_DEVICES] = {{0, 0}, {1, 0}};
static fake_cuda_stats_t stats;
static unsigned          fail_in, slow_us;
static bool              takes_kernel = true;
static char              module_object, function_object;

static __thread CUcontext stack[DEPTH];
static __thread unsigned  depth;

/* ---- operations of streams; lock held ---- */

static CUresult move(void *dst, const void *src, uint64_t len)
{
    if ((dst == NULL) || (src == NULL)) {
        return (CUresult)ILLEGAL_ADDRESS;
    }
    pthread_mutex_unlock(&fake_cuda_lock);
    memmove(dst, src, len);
    pthread_mutex_lock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}

static CUresult run_kernel(const op_t *op, int device)
{
    CUresult result = CUDA_SUCCESS;
    piece_t  *list  = fake_cuda_for_kernel(op->src, op->len * sizeof(*list), device);
    uint64_t i;

    if (list == NULL) {
        return (CUresult)ILLEGAL_ADDRESS;
    }
    for (i = 0; (i < op->len) && (result == CUDA_SUCCESS); ++i) {
        if (list[i].len > 0) {
            result = move(fake_cuda_for_kernel(list[i].dst, list[i].len, device),
                          fake_cuda_for_kernel(list[i].src, list[i].len, device),
                          list[i].len);
        }
        ++stats.pieces;
    }
    ++stats.launches;
    return result;
}

static void run(CUstream stream, const op_t *op)
{
    bool copies = (op->kind == OP_COPY) || (op->kind == OP_LAUNCH);

    if (slow_us > 0) {
        pthread_mutex_unlock(&fake_cuda_lock);
        usleep(slow_us);
        pthread_mutex_lock(&fake_cuda_lock);
    }
    if (copies && (fail_in > 0) && (--fail_in == 0)) {
        stream->error = CUDA_ERROR_UNKNOWN;
    }
    if (copies && (stream->error == CUDA_SUCCESS)) {
        if (op->kind == OP_COPY) {
            stream->error = move(fake_cuda_for_copy(op->dst, op->len), fake_cuda_for_copy(op->src, op->len), op->len);
            ++stats.copies;
        } else {
            stream->error = run_kernel(op, stream->device);
        }
    }
    if (op->kind == OP_RECORD) {
        op->event->error = stream->error;
        op->event->done  = op->number;
    }
    if (op->kind == OP_CALL) {
        pthread_mutex_unlock(&fake_cuda_lock);
        op->fn(op->arg);
        pthread_mutex_lock(&fake_cuda_lock);
    }
    while ((op->kind == OP_HOLD) && stream->held) {
        pthread_cond_wait(&cond, &fake_cuda_lock);
    }
}

static void *stream_thread(void *arg)
{
    CUstream stream = arg;
    op_t     *op;

    pthread_mutex_lock(&fake_cuda_lock);
    for (;;) {
        op = stream->first;
        if (op == NULL) {
            if (stream->ending) {
                break;
            }
            pthread_cond_wait(&cond, &fake_cuda_lock);
            continue;
        }
        stream->first = op->next;
        stream->last  = (stream->first == NULL) ? &stream->first : stream->last;
        stream->busy  = true;
        run(stream, op);
        stream->busy = false;
        free(op);
        pthread_cond_broadcast(&cond);
    }
    pthread_mutex_unlock(&fake_cuda_lock);
    return NULL;
}

static CUresult give(CUstream stream, op_t op)
{
    op_t *own = malloc(sizeof(*own));

    assert(own != NULL);
    *own          = op;
    own->next     = NULL;
    *stream->last = own;
    stream->last  = &own->next;
    pthread_cond_broadcast(&cond);
    return stream->error;
}

/* ---- the driver's calls ---- */

static CUresult init(unsigned flags)
{
    return (flags == 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult error_name(CUresult error, const char **name)
{
    *name = (error == CUDA_ERROR_UNKNOWN) ? "FAKE_UNKNOWN" : "FAKE_ERROR";
    return CUDA_SUCCESS;
}

static CUresult pointer(void *to, CUpointer_attribute what, CUdeviceptr ptr)
{
    CUresult result = CUDA_SUCCESS;
    size_t   size;
    int      device;

    pthread_mutex_lock(&fake_cuda_lock);
    if (!fake_cuda_whose(ptr, &device)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (what == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
        *(unsigned *)to = (device < 0) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    } else if (what == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        *(int *)to = device;
    } else if (what == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
        *(CUdeviceptr *)to = fake_cuda_range(ptr, &size);
    } else if (what == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        (void)fake_cuda_range(ptr, (size_t *)to);
    } else {
        *(CUcontext *)to = (device == 0) ? &contexts[0] : NULL; /* device 1's memory belongs to a pool */
    }
    pthread_mutex_unlock(&fake_cuda_lock);
    return result;
}

/* Two ranks have the same GPU only where they are threads of a process and use the same device. */
static CUresult bus_id(char *text, int len, CUdevice device)
{
    return (snprintf(text, (size_t)len, "%x:%x", (unsigned)getpid(), (unsigned)device) < len) ? CUDA_SUCCESS
                                                                                           : CUDA_ERROR_INVALID_VALUE;
}

static CUresult ctx_retain(CUcontext *ctx, CUdevice device)
{
    if ((device < 0) || (device >= FAKE_CUDA_DEVICES)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_cuda_lock);
    ++contexts[device].refs;
    ++stats.contexts;
    pthread_mutex_unlock(&fake_cuda_lock);
    *ctx = &contexts[device];
    return CUDA_SUCCESS;
}

static CUresult ctx_release(CUdevice device)
{
    pthread_mutex_lock(&fake_cuda_lock);
    assert(contexts[device].refs > 0);
    --contexts[device].refs;
    --stats.contexts;
    pthread_mutex_unlock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}

static CUresult ctx_push(CUcontext ctx)
{
    assert(depth < DEPTH);
    stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

static CUresult ctx_pop(CUcontext *ctx)
{
    if (depth == 0) {
        return (CUresult)INVALID_CONTEXT;
    }
    *ctx = stack[--depth];
    return CUDA_SUCCESS;
}

static CUcontext current(void)
{
    return (depth > 0) ? stack[depth - 1] : NULL;
}

static CUresult priorities(int *least, int *greatest)
{
    *least    = 0;
    *greatest = -5;
    return (current() != NULL) ? CUDA_SUCCESS : (CUresult)INVALID_CONTEXT;
}

static CUstream new_stream(int device)
{
    CUstream stream = calloc(1, sizeof(*stream));

    assert(stream != NULL);
    stream->device = device;
    stream->last   = &stream->first;
    if (pthread_create(&stream->thread, NULL, stream_thread, stream) != 0) {
        abort();
    }
    return stream;
}

static CUresult stream_create(CUstream *stream, unsigned flags, int priority)
{
    if ((current() == NULL) || (flags != CU_STREAM_NON_BLOCKING) || (priority != -5)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *stream = new_stream(current()->device);
    pthread_mutex_lock(&fake_cuda_lock);
    ++stats.streams;
    pthread_mutex_unlock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}

static CUresult stream_sync(CUstream stream)
{
    CUresult result;

    pthread_mutex_lock(&fake_cuda_lock);
    while ((stream->first != NULL) || stream->busy) {
        pthread_cond_wait(&cond, &fake_cuda_lock);
    }
    result = stream->error;
    pthread_mutex_unlock(&fake_cuda_lock);
    return result;
}

static CUresult stream_query(CUstream stream)
{
    CUresult result;

    pthread_mutex_lock(&fake_cuda_lock);
    result = (stream->error != CUDA_SUCCESS)                   ? stream->error
             : ((stream->first != NULL) || stream->busy) ? CUDA_ERROR_NOT_READY
                                                               : CUDA_SUCCESS;
    pthread_mutex_unlock(&fake_cuda_lock);
    return result;
}

static CUresult stream_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    pthread_mutex_lock(&fake_cuda_lock);
    *status = stream->capturing ? (CUstreamCaptureStatus)1 : CU_STREAM_CAPTURE_STATUS_NONE;
    pthread_mutex_unlock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}

static void end_stream(CUstream stream)
{
    pthread_mutex_lock(&fake_cuda_lock);
    stream->ending = true;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&fake_cuda_lock);
    pthread_join(stream->thread, NULL);
    free(stream);
}

static CUresult stream_destroy(CUstream stream)
{
    end_stream(stream);
    pthread_mutex_lock(&fake_cuda_lock);
    --stats.streams;
    pthread_mutex_unlock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *event, unsigned flags)
{
    if ((current() == NULL) || ((flags & CU_EVENT_DISABLE_TIMING) == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *event = calloc(1, sizeof(**event));
    assert(*event != NULL);
    pthread_mutex_lock(&fake_cuda_lock);
    ++stats.events;
    pthread_mutex_unlock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    pthread_mutex_lock(&fake_cuda_lock);
    --stats.events;
    pthread_mutex_unlock(&fake_cuda_lock);
    free(event);
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    CUresult result;

    pthread_mutex_lock(&fake_cuda_lock);
    result = give(stream, (op_t){.kind = OP_RECORD, .event = event, .number = ++event->recorded});
    pthread_mutex_unlock(&fake_cuda_lock);
    return result;
}

static CUresult event_query(CUevent event)
{
    CUresult result;

    pthread_mutex_lock(&fake_cuda_lock);
    result = (event->done == event->recorded) ? event->error : CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&fake_cuda_lock);
    return result;
}

static CUresult event_sync(CUevent event)
{
    CUresult result;

    pthread_mutex_lock(&fake_cuda_lock);
    while (event->done != event->recorded) {
        pthread_cond_wait(&cond, &fake_cuda_lock);
    }
    result = event->error;
    pthread_mutex_unlock(&fake_cuda_lock);
    return result;
}

static CUresult host_alloc(void **ptr, size_t len, unsigned flags)
{
    if ((current() == NULL) || (flags != CU_MEMHOSTALLOC_PORTABLE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ptr = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
    assert(*ptr != NULL);
    pthread_mutex_lock(&fake_cuda_lock);
    fake_cuda_add(*ptr, *ptr, len, -1);
    ++stats.pinned;
    pthread_mutex_unlock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}

static CUresult host_free(void *ptr)
{
    pthread_mutex_lock(&fake_cuda_lock);
    fake_cuda_drop(ptr);
    --stats.pinned;
    pthread_mutex_unlock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr dst, CUdeviceptr src, size_t len, CUstream stream)
{
    CUresult result = (CUresult)INVALID_CONTEXT;

    pthread_mutex_lock(&fake_cuda_lock);
    if (current() != NULL) {
        result = ((fake_cuda_for_copy(dst, len) == NULL) || (fake_cuda_for_copy(src, len) == NULL))
                     ? CUDA_ERROR_INVALID_VALUE
                     : give(stream, (op_t){.kind = OP_COPY, .dst = dst, .src = src, .len = len});
    }
    pthread_mutex_unlock(&fake_cuda_lock);
    return result;
}

static CUresult module_load(CUmodule *module, const void *image)
{
    if ((current() == NULL) || (strstr(image, ".visible .entry kvcl_copy_pieces(") == NULL) || !takes_kernel) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_cuda_lock);
    ++stats.modules;
    pthread_mutex_unlock(&fake_cuda_lock);
    *module = (CUmodule)(void *)&module_object;
    return CUDA_SUCCESS;
}

static CUresult module_unload(CUmodule module)
{
    assert(module == (CUmodule)(void *)&module_object);
    pthread_mutex_lock(&fake_cuda_lock);
    --stats.modules;
    pthread_mutex_unlock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}

static CUresult function(CUfunction *function_p, CUmodule module, const char *name)
{
    *function_p = (CUfunction)(void *)&function_object;
    return ((module == (CUmodule)(void *)&module_object) && (strcmp(name, "kvcl_copy_pieces") == 0))
               ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, CUstream stream, void **params, void **extra)
{
    CUresult result;

    if ((current() == NULL) || (current()->device != stream->device) || (f != (CUfunction)(void *)&function_object) ||
        (gx == 0) || (gy != 1) || (gz != 1) || (bx != 128) || (by != 1) || (bz != 1) || (shared != 0) ||
            (extra != NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_cuda_lock);
    result = give(stream, (op_t){.kind = OP_LAUNCH, .src = *(uint64_t *)params[0], .len = gx});
    pthread_mutex_unlock(&fake_cuda_lock);
    return result;
}

static CUresult host_call(CUstream stream, CUhostFn fn, void *arg)
{
    pthread_mutex_lock(&fake_cuda_lock);
    (void)give(stream, (op_t){.kind = OP_CALL, .fn = fn, .arg = arg});
    pthread_mutex_unlock(&fake_cuda_lock);
    return CUDA_SUCCESS;
}

static const kvcl_cuda_driver_t table = {
    init, error_name, pointer, bus_id, ctx_retain, ctx_release, ctx_push, ctx_pop, priorities,
    stream_create, stream_destroy, stream_sync, stream_query, stream_capturing,
    event_create, event_destroy, event_record, event_query, event_sync,
    host_alloc, host_free, copy, module_load, module_unload, function, launch, host_call};

/* ---- calls of the test ---- */

void fake_cuda_start(void)
{
    kvcl_cuda_set_driver(&table);
}

void fake_cuda_fail(unsigned nth)
{
    pthread_mutex_lock(&fake_cuda_lock);
    fail_in = nth;
    pthread_mutex_unlock(&fake_cuda_lock);
}

void fake_cuda_takes_kernel(bool takes)
{
    takes_kernel = takes;
}

void fake_cuda_slow(unsigned us)
{
    pthread_mutex_lock(&fake_cuda_lock);
    slow_us = us;
    pthread_mutex_unlock(&fake_cuda_lock);
}

void fake_cuda_stats(fake_cuda_stats_t *out)
{
    pthread_mutex_lock(&fake_cuda_lock);
    *out = stats;
    pthread_mutex_unlock(&fake_cuda_lock);
}

CUstream fake_cuda_stream(int device)
{
    return new_stream(device);
}

void fake_cuda_stream_end(CUstream stream)
{
    end_stream(stream);
}

void fake_cuda_hold(CUstream stream)
{
    pthread_mutex_lock(&fake_cuda_lock);
    stream->held = true;
    (void)give(stream, (op_t){.kind = OP_HOLD});
    pthread_mutex_unlock(&fake_cuda_lock);
}

void fake_cuda_capture(CUstream stream, bool begin)
{
    pthread_mutex_lock(&fake_cuda_lock);
    stream->capturing = begin;
    pthread_mutex_unlock(&fake_cuda_lock);
}

void fake_cuda_release(CUstream stream)
{
    pthread_mutex_lock(&fake_cuda_lock);
    stream->held = false;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&fake_cuda_lock);
}
