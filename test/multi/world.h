/*
 * Shared by the store's multi-rank test programs: this rank's identity, checks, waits.
 */
#ifndef KVCL_TEST_WORLD_H
#define KVCL_TEST_WORLD_H

#include <kvcl/kvcl.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct world {
    kvcl_context_h ctx;
    kvcl_comm_h    comm;
    int            rank, size;
    uint64_t       seed, rnd;
    unsigned       failed;
} world_t;

#define CHECK(_w, _cond, ...)                                                          \
    do {                                                                               \
        if (!(_cond)) {                                                                \
            fprintf(stderr, "rank %d: %s:%d: %s: ", (_w)->rank, __func__, __LINE__, #_cond); \
            fprintf(stderr, __VA_ARGS__);                                              \
            fprintf(stderr, " [%s]\n", kvcl_last_error());                             \
            ++(_w)->failed;                                                            \
        }                                                                              \
    } while (0)

static inline kvcl_status_t wait_for(kvcl_req_h req)
{
    return kvcl_req_wait(req, KVCL_WAIT_FOREVER);
}

/** Post it and wait for it. */
#define DO(_call) do_wait((_call), &req)
static inline kvcl_status_t do_wait(kvcl_status_t posted, kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? wait_for(*req) : posted;
}

static inline void sync_all(world_t *w)
{
    kvcl_req_h req;

    KVCL_TRY(DO(kvcl_barrier(w->comm, NULL, &req)));
}

/** Over all ranks. */
static inline uint64_t sum_of(world_t *w, uint64_t mine)
{
    uint64_t   all[64] = {0}, sum = 0;
    kvcl_req_h req;
    int        i;

    KVCL_TRY(DO(kvcl_allgather(w->comm, &mine, sizeof(mine), all, NULL, &req)));
    for (i = 0; i < w->size; ++i) {
        sum += all[i];
    }
    return sum;
}

static inline kvcl_store_stats_t stats_of(kvcl_store_h store)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;

    KVCL_TRY(kvcl_store_stats(store, &stats));
    return stats;
}

static inline void nap(uint64_t ns)
{
    const struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    nanosleep(&t, NULL);
}

#endif
