/*
 * Memory that readers may still look at.
 *
 * Time is cut into epochs. A reader counts itself in, at one of 64 pairs of counters, in the half of the epoch's
 * parity, and looks whether the epoch is still the same; if not, it tries the next. A writer retires what it has taken
 * out into the list of the epoch's parity. When no reader is left in the other half, no reader can reach the memory
 * retired there: it is used again, and the next epoch begins. So something is used again after all readers of its
 * epoch and of the one before have left.
 *
 * Readers: any number of threads, no lock, no wait. A reader repeats only if an epoch began between two of its loads.
 * Writers: the index's lock. The lists go through the pieces themselves, so retiring cannot fail.
 */
#ifndef KVCL_SCHED_INDEX_IDX_EPOCH_H
#define KVCL_SCHED_INDEX_IDX_EPOCH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { KVCL_IDX_LANES = 64 };

/* The first member of a piece of memory that may be retired. */
typedef struct kvcl_idx_mem {
    struct kvcl_idx_mem *next;
    size_t              bytes;
} kvcl_idx_mem_t;

typedef struct kvcl_idx_lane {
    _Alignas(64) _Atomic uint64_t in[2];
    _Atomic(void *)               scratch; /* of the last reader of this lane; idx_match.c */
} kvcl_idx_lane_t;

typedef struct kvcl_idx_limbo {
    kvcl_idx_mem_t *mem;
    uint32_t       block; /* through count_depth; 0: none */
    uint32_t       slot;  /* through slot_next; UINT32_MAX: none */
    size_t         n;
} kvcl_idx_limbo_t;

typedef struct kvcl_idx_epoch {
    kvcl_idx_lane_t  lane[KVCL_IDX_LANES];
    _Alignas(64) _Atomic uint64_t number;
    _Alignas(64) kvcl_idx_limbo_t limbo[2];
} kvcl_idx_epoch_t;

/* Where a reader has counted itself in. */
typedef struct kvcl_idx_visit {
    kvcl_idx_lane_t *lane;
    unsigned        half;
} kvcl_idx_visit_t;

/** This thread's lane, the same each time. */
unsigned kvcl_idx_lane(void);

static inline kvcl_idx_visit_t kvcl_idx_enter(kvcl_idx_epoch_t *epoch)
{
    kvcl_idx_visit_t visit = {&epoch->lane[kvcl_idx_lane()], 0};
    uint64_t         number;

    for (;;) {
        number     = atomic_load(&epoch->number);
        visit.half = (unsigned)(number & 1);
        (void)atomic_fetch_add(&visit.lane->in[visit.half], 1);
        if (atomic_load(&epoch->number) == number) {
            return visit;
        }
        (void)atomic_fetch_sub(&visit.lane->in[visit.half], 1);
    }
}

static inline void kvcl_idx_leave(const kvcl_idx_visit_t *visit)
{
    (void)atomic_fetch_sub_explicit(&visit->lane->in[visit->half], 1, memory_order_release);
}

/** The list for what is retired now. */
static inline kvcl_idx_limbo_t *kvcl_idx_limbo(kvcl_idx_epoch_t *epoch)
{
    return &epoch->limbo[atomic_load_explicit(&epoch->number, memory_order_relaxed) & 1];
}

void kvcl_idx_epoch_init(kvcl_idx_epoch_t *epoch);
/** If no reader is left in the other half: *limbo_p is what was retired there, and the next epoch begins. */
int  kvcl_idx_epoch_next(kvcl_idx_epoch_t *epoch, kvcl_idx_limbo_t *limbo_p);

#endif
