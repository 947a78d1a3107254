/*
 * What is due at which time, for simulators: numbered items, the earliest first, of several at one time the lowest.
 * Numbers are given out and taken back; a new item gets the lowest free one. Pure; the struct is the caller's, zeroed.
 */
#ifndef KVCL_TEST_SIM_QUEUE_H
#define KVCL_TEST_SIM_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { SIM_QUEUE_MAX = 16384 };

typedef struct sim_due {
    uint64_t at;
    unsigned item;
} sim_due_t;

typedef struct sim_queue {
    unsigned  n;                          /* in the heap */
    unsigned  first_word;                 /* no free item below it */
    unsigned  end;                        /* no item from here on was ever used */
    sim_due_t heap[SIM_QUEUE_MAX];
    uint64_t  used[SIM_QUEUE_MAX / 64];
} sim_queue_t;

static inline void sim_queue_clear(sim_queue_t *queue)
{
    unsigned i;

    for (i = 0; i < (queue->end + 63) / 64; ++i) {
        queue->used[i] = 0;
    }
    queue->n = queue->first_word = queue->end = 0;
}

static inline bool sim_queue_is_used(const sim_queue_t *queue, unsigned item)
{
    return (queue->used[item / 64] >> (item % 64)) & 1;
}

/** A number, which is in use until sim_queue_free. */
static inline unsigned sim_queue_new(sim_queue_t *queue)
{
    unsigned item;

    while ((queue->first_word < SIM_QUEUE_MAX / 64) && (queue->used[queue->first_word] == UINT64_MAX)) {
        queue->first_word += 1;
    }
    if (queue->first_word == SIM_QUEUE_MAX / 64) {
        abort();
    }
    item = (queue->first_word * 64) + (unsigned)__builtin_ctzll(~queue->used[queue->first_word]);
    queue->used[item / 64] |= UINT64_C(1) << (item % 64);
    queue->end              = (item < queue->end) ? queue->end : item + 1;
    return item;
}

static inline void sim_queue_free(sim_queue_t *queue, unsigned item)
{
    queue->used[item / 64] &= ~(UINT64_C(1) << (item % 64));
    queue->first_word       = (item / 64 < queue->first_word) ? item / 64 : queue->first_word;
}

static inline bool sim_due_before(const sim_due_t *a, const sim_due_t *b)
{
    return (a->at != b->at) ? (a->at < b->at) : (a->item < b->item);
}

/** An item is due once; it may be added again when it was taken. */
static inline void sim_queue_add(sim_queue_t *queue, unsigned item, uint64_t at)
{
    const sim_due_t due = {at, item};
    unsigned        i   = queue->n++;

    for (; (i > 0) && sim_due_before(&due, &queue->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        queue->heap[i] = queue->heap[(i - 1) / 2];
    }
    queue->heap[i] = due;
}

/** When the first one is due; UINT64_MAX: nothing is. */
static inline uint64_t sim_queue_at(const sim_queue_t *queue)
{
    return (queue->n > 0) ? queue->heap[0].at : UINT64_MAX;
}

/** The first one, which is no longer due. */
static inline unsigned sim_queue_take(sim_queue_t *queue)
{
    const unsigned  item = queue->heap[0].item;
    const sim_due_t last = queue->heap[--queue->n];
    unsigned        i    = 0, child;

    for (; (child = (2 * i) + 1) < queue->n; i = child) {
        child += (child + 1 < queue->n) && sim_due_before(&queue->heap[child + 1], &queue->heap[child]);
        if (!sim_due_before(&queue->heap[child], &last)) {
            break;
        }
        queue->heap[i] = queue->heap[child];
    }
    queue->heap[i] = last;
    return item;
}

#endif
