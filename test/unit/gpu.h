/*
 * Device memory for test and benchmark programs: of the machine's devices by the real driver, or of the driver without
 * a device (fake_cuda.h), by the same calls. A process that forks opens it in its children only: CUDA does not survive
 * a fork.
 */
#ifndef KVCL_TEST_GPU_H
#define KVCL_TEST_GPU_H

#include "device/cuda_api.h"

#include <stdbool.h>
#include <stddef.h>

/** NULL: it is open (a second call is no error); else why there is no device. Any thread. */
const char *gpu_open(bool real);
/** The same, checked in a child process, for a process that will fork. */
bool        gpu_is_there(void);
unsigned    gpu_count(void);
/** The device's name, from the driver. */
void        gpu_name(unsigned device, char *buf, size_t cap);

/* A failure ends the process with a sentence. Any thread. */
void    *gpu_malloc(unsigned device, size_t len);
void     gpu_free(unsigned device, void *ptr);
void     gpu_write(unsigned device, void *dst, const void *src, size_t len);
void     gpu_read(unsigned device, void *dst, const void *src, size_t len);
/** Memory that devices read directly. */
void    *gpu_pinned(unsigned device, size_t len);
void     gpu_pinned_free(unsigned device, void *ptr);

CUstream gpu_stream(unsigned device);
void     gpu_stream_end(unsigned device, CUstream stream);
void     gpu_copy(unsigned device, CUstream stream, void *dst, const void *src, size_t len);
void     gpu_sync(unsigned device, CUstream stream);
/** Later work in the stream waits until *_Atomic go is not 0. */
void     gpu_hold(unsigned device, CUstream stream, _Atomic int *go);

#endif
