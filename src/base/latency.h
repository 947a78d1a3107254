/*
 * How long calls take: a histogram for each kind of call and path, in each context (kvcl_query_latency).
 *
 * A request is timed from its start to its completion, if its poster gives timing.op; it counts if it ends well. What
 * is done inside its posting call is over in less than a clock costs: of those calls one in KVCL_LATENCY_EVERY is
 * timed, and counts for all since the one before. No lock.
 */
#ifndef KVCL_BASE_LATENCY_H
#define KVCL_BASE_LATENCY_H

#include "base/clock.h"
#include "base/histogram.h"

#include <stdbool.h>

/* A prime: calls that take turns are all met. */
enum { KVCL_LATENCY_EVERY = 61 };

/* X(NAME, the name that users see) */
#define KVCL_LATENCY_OP_MAP(X)                                                                                         \
    X(GET, "get")                                                                                                      \
    X(PUT, "put")                                                                                                      \
    X(STORE_GET, "store_get")                                                                                          \
    X(STORE_PUT, "store_put")                                                                                          \
    X(STORE_MATCH, "store_match")                                                                                      \
    X(STORE_COPY, "store_copy")

#define KVCL_LATENCY_OP_ENUM(_name, _text) KVCL_LATENCY_##_name,
typedef enum { KVCL_LATENCY_NONE, KVCL_LATENCY_OP_MAP(KVCL_LATENCY_OP_ENUM) KVCL_LATENCY_OPS } kvcl_latency_op_t;
#undef KVCL_LATENCY_OP_ENUM

/* From near to far. */
typedef enum { KVCL_MEM_PATH_LOOP, KVCL_MEM_PATH_MAPPED, KVCL_MEM_PATH_NATIVE, KVCL_MEM_PATH_SERVED,
              KVCL_MEM_PATHS } kvcl_mem_path_t;

typedef struct kvcl_timing {
    uint64_t begun_ns; /* 0: not timed */
    uint64_t bytes;    /* of payload that the call moved, for its record in a completion queue */
    uint8_t  op;       /* kvcl_latency_op_t; KVCL_LATENCY_NONE: not timed */
    uint8_t  path;     /* kvcl_mem_path_t, the farthest yet */
    uint8_t  weight;   /* number of calls that this one represents */
} kvcl_timing_t;

typedef struct kvcl_latency_table {
    _Atomic uint32_t skip;   /* so many calls are not timed, then one is */
    _Atomic uint32_t weight; /* of that one; 0: it is the first */
    kvcl_hist_t      hists[KVCL_LATENCY_OPS][KVCL_MEM_PATHS];
} kvcl_latency_table_t;

/** A call that is worth a clock: each is timed. */
static inline kvcl_timing_t kvcl_timing_begin(kvcl_latency_op_t op)
{
    return (kvcl_timing_t){.begun_ns = kvcl_now_ns(), .op = (uint8_t)op, .weight = 1};
}

/** The call whose turn it is. */
kvcl_timing_t kvcl_timing_turn(kvcl_latency_table_t *table, kvcl_latency_op_t op);

/** A call that is not, and is counted when it ends: is it its turn, after so many? Writes nothing, so that a copy of a
 * small block does not wait for a store. */
static inline bool kvcl_timing_due(const _Atomic uint64_t *ended)
{
    return __builtin_expect(
        atomic_load_explicit((_Atomic uint64_t *)ended, memory_order_relaxed) % KVCL_LATENCY_EVERY == 0, 0);
}

/** Begin a call without a count of its own: every KVCL_LATENCY_EVERY-th is timed; else begun_ns is 0. Threads that race
 * may skip or double a turn. */
static inline kvcl_timing_t kvcl_timing_sample(kvcl_latency_table_t *table, kvcl_latency_op_t op)
{
    uint32_t skip = atomic_load_explicit(&table->skip, memory_order_relaxed);

    if (__builtin_expect(skip == 0, 0)) {
        atomic_store_explicit(&table->skip, KVCL_LATENCY_EVERY - 1, memory_order_relaxed);
        return kvcl_timing_turn(table, op);
    }
    atomic_store_explicit(&table->skip, skip - 1, memory_order_relaxed);
    return (kvcl_timing_t){.begun_ns = 0};
}

static inline void kvcl_timing_path(kvcl_timing_t *timing, kvcl_mem_path_t path)
{
    timing->path = (timing->path > (uint8_t)path) ? timing->path : (uint8_t)path;
}

/** The call has ended well. Nothing if it is not timed. */
void kvcl_timing_record(kvcl_latency_table_t *table, const kvcl_timing_t *timing);

static inline void kvcl_timing_end(kvcl_latency_table_t *table, const kvcl_timing_t *timing)
{
    if (__builtin_expect(timing->begun_ns != 0, 0)) {
        kvcl_timing_record(table, timing);
    }
}

#endif
