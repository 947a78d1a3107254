/*
 * A CUDA driver with no device that replaces the real one (kvcl_cuda_set_driver). It has two devices. Their memory has
 * addresses that fault when the processor accesses them; only the driver's own calls reach it, through a second
 * mapping. Streams are threads that execute their operations later. The kernel reads its list when it runs and can
 * access only the memory of its device and pinned memory. An access that real hardware would punish is a sticky error
 * here, as on that hardware.
 */
#ifndef KVCL_TEST_FAKE_CUDA_H
#define KVCL_TEST_FAKE_CUDA_H

#include "device/cuda_api.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_CUDA_DEVICES = 2 };

typedef struct fake_cuda_stats {
    unsigned copies, launches, pieces; /* done by streams */
    unsigned streams, events, pinned, modules, contexts; /* existing now */
} fake_cuda_stats_t;

/** Use this driver from now on. */
void  fake_cuda_start(void);
/** Device memory, zeroed: faults when touched. NULL: no memory. */
void *fake_cuda_malloc(int device, size_t len);
void  fake_cuda_free(void *ptr);
/** The address at which the test may read and write the bytes behind device memory. */
void *fake_cuda_bytes(const void *ptr);
/** The n-th copy or launch from now fails (1: the next), and everything after it in its stream; 0: none does.
 * Clears. */
void  fake_cuda_fail(unsigned nth);
/** Whether the driver accepts the kernel. */
void  fake_cuda_takes_kernel(bool takes);
/** The time that a stream takes for each operation, in microseconds. */
void  fake_cuda_slow(unsigned us);
void  fake_cuda_stats(fake_cuda_stats_t *stats);

/* An engine's own stream. */
CUstream fake_cuda_stream(int device);
void     fake_cuda_stream_end(CUstream stream);
/* Work of that stream that lasts until it is released. */
void     fake_cuda_hold(CUstream stream);
void     fake_cuda_release(CUstream stream);
/* Its work is recorded into a graph for later, and not done. */
void     fake_cuda_capture(CUstream stream, bool begin);

/* Internal: fake_cuda_mem.c for fake_cuda.c. Lock held. */
extern pthread_mutex_t fake_cuda_lock;
void  fake_cuda_add(char *addr, char *bytes, size_t len, int device); /* -1: pinned, by aligned_alloc */
void  fake_cuda_drop(const void *ptr);
bool  fake_cuda_whose(uint64_t addr, int *device);
/* The start of the allocation that contains ptr (there is one), and its bytes. */
uint64_t fake_cuda_range(uint64_t addr, size_t *size_p);
/* The address for cuMemcpyAsync: any memory, host memory unchanged. NULL: the range leaves its allocation. */
void *fake_cuda_for_copy(uint64_t addr, uint64_t len);
/* The address for a kernel on a device: that device's memory, and pinned memory; else NULL. */
void *fake_cuda_for_kernel(uint64_t addr, uint64_t len, int device);

#endif
