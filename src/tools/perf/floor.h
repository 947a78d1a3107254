/*
 * The floor under a measurement: what raw UCX does for the same bytes between two processes, without any of KVCL. Used
 * by kvcl_perf alone; no part of the library. Plain C, no UCX type, so that a tool can include it.
 *
 * Two sides open a floor together: the initiator runs transfers between its own buffers and the target's memory, the
 * target serves them. Each side uses its floor from one thread. The caller brings a way to exchange a few hundred
 * bytes.
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
    bool       tcp;      /* active messages over TCP; else shared memory */
    const char *net;     /* with tcp: the interfaces */
    size_t     bytes;    /* of the memory that each side has */
    uint64_t   spin_ns;  /* how long to poll before sleeping, as the library was told */
    /* Give the other side KVCL_FLOOR_EXCHANGE_BYTES bytes and get its. */
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

/* This side's memory of params.bytes, allocated as the path likes it best, every page touched. */
void *kvcl_floor_memory(kvcl_floor_t *floor);

/* Ways to move bytes on this path: 0..n-1, to be tried against each other, and what each is called. */
unsigned    kvcl_floor_methods(const kvcl_floor_t *floor);
const char *kvcl_floor_method_name(const kvcl_floor_t *floor, unsigned method);

/**
 * Initiator: move all runs, from the target's memory or (put) into it; on return the bytes are there. The target must
 * be in kvcl_floor_serve().
 */
bool kvcl_floor_transfer(kvcl_floor_t *floor, unsigned method, bool put, const kvcl_floor_run_t *runs, size_t n);

/* Target: serve until the initiator calls kvcl_floor_release(). False after timeout_ns without a message. */
bool kvcl_floor_serve(kvcl_floor_t *floor, uint64_t timeout_ns);
bool kvcl_floor_release(kvcl_floor_t *floor);

#endif
