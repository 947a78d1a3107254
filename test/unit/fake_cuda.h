/*
 * A CUDA driver with no device, put in the place of the real one (kvcl_cuda_set_driver): two devices whose memory lies
 * at addresses that fault when the processor touches them, and which only the driver's own calls reach, through a
 * second mapping. Streams are threads that do later what they are given; the kernel reads its list when it runs and
 * sees the memory of its device and pinned memory only. What real hardware would punish is an error here that stays, as
 * there.
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
    unsigned streams, events, pinned, modules, contexts; /* there now */
} fake_cuda_stats_t;

/** Use it from now on. */
void  fake_cuda_start(void);
/** Device memory, zeroed: faults when touched. NULL: no memory. */
void *fake_cuda_malloc(int device, size_t len);
void  fake_cuda_free(void *ptr);
/** Where the test may read and write the bytes behind device memory. */
void *fake_cuda_bytes(const void *ptr);
/** The n-th copy or launch from now fails (1: the next), and everything after it in its stream; 0: none does.
 * Clears. */
void  fake_cuda_fail(unsigned nth);
/** Does the driver take the kernel? */
void  fake_cuda_takes_kernel(bool takes);
/** How long a stream takes over each thing, in microseconds. */
void  fake_cuda_slow(unsigned us);
void  fake_cuda_stats(fake_cuda_stats_t *stats);

/* An engine's own stream. */
CUstream fake_cuda_stream(int device);
void     fake_cuda_stream_end(CUstream stream);
/* Work of that stream that lasts until told. */
void     fake_cuda_hold(CUstream stream);
void     fake_cuda_release(CUstream stream);
/* Its work is recorded into a graph for later, not done. */
void     fake_cuda_capture(CUstream stream, bool begin);

/* Inside: fake_cuda_mem.c for fake_cuda.c. Lock held. */
extern pthread_mutex_t fake_cuda_lock;
void  fake_cuda_add(char *addr, char *bytes, size_t len, int device); /* -1: pinned, by aligned_alloc */
void  fake_cuda_drop(const void *ptr);
bool  fake_cuda_whose(uint64_t addr, int *device);
/* Where the allocation begins that ptr lies in (there is one), and its bytes. */
uint64_t fake_cuda_range(uint64_t addr, size_t *size_p);
/* As cuMemcpyAsync sees it: anything, host memory as it is. NULL: it leaves its allocation. */
void *fake_cuda_for_copy(uint64_t addr, uint64_t len);
/* As a kernel on a device sees it: that device's memory, and pinned memory; else NULL. */
void *fake_cuda_for_kernel(uint64_t addr, uint64_t len, int device);

#endif
