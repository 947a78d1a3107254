/*
 * The floor of a measurement: raw UCX for the same bytes between two processes, without KVCL. Only kvcl_perf uses it;
 * it is not part of the library. Plain C, no UCX type, so that a tool can include it.
 *
 * Two sides open a floor together: the initiator runs transfers between its own buffers and the target's memory, the
 * target serves them. Each side uses its floor from one thread. The caller provides a function that exchanges a few
 * hundred bytes.
 */
#ifndef KVCL_TOOLS_PERF_FLOOR_H
#define KVCL_TOOLS_PERF_FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvcl_floor kvcl_floor_t;

#define KVCL_FLOOR_EXCHANGE_BYTES 4096u

typedef struct kvcl_floor_params {
    bool       initiator;
    bool       tcp;      /* active messages over TCP; otherwise shared memory */
    const char *net;     /* with tcp: the interfaces */
    size_t     bytes;    /* of each side's memory */
    uint64_t   spin_ns;  /* polling time before sleeping, as in the library */
    /* Exchange KVCL_FLOOR_EXCHANGE_BYTES bytes with the other side. */
    bool       (*exchange)(void *arg, const void *mine, void *theirs);
    void       *arg;
} kvcl_floor_params_t;

/* A run of bytes: local buffer, offset in the target's memory. */
typedef struct kvcl_floor_run {
    void     *local;
    uint64_t remote;
    uint64_t len;
} kvcl_floor_run_t;

/* All that return bool print the reason of a false to stderr. */
bool kvcl_floor_open(const kvcl_floor_params_t *params, kvcl_floor_t **floor_p);
void kvcl_floor_close(kvcl_floor_t *floor);

/* This side's memory of params.bytes, allocated in the best way for the path, every page touched. */
void *kvcl_floor_memory(kvcl_floor_t *floor);

/* The methods that move bytes on this path, 0..n-1, for comparison, and their names. */
unsigned    kvcl_floor_methods(const kvcl_floor_t *floor);
const char *kvcl_floor_method_name(const kvcl_floor_t *floor, unsigned method);

/**
 * Initiator: move all runs, from the target's memory or (put) into it; on return all have arrived. The target must
 * be in kvcl_floor_serve().
 */
bool kvcl_floor_transfer(kvcl_floor_t *floor, unsigned method, bool put, const kvcl_floor_run_t *runs, size_t n);

/* Target: serve until the initiator calls kvcl_floor_release(). False after timeout_ns without a message. */
bool kvcl_floor_serve(kvcl_floor_t *floor, uint64_t timeout_ns);
bool kvcl_floor_release(kvcl_floor_t *floor);

#endif
