/*
 * A binary heap of loads with an index each: the least load first, of equal loads the lowest index. For the largest
 * load first, keep ~load. Taking all items one by one sorts them.
 *
 * The array is the caller's, with room for every item. No lock.
 */
#ifndef KVCL_EP_EP_HEAP_H
#define KVCL_EP_EP_HEAP_H

#include "ep/ep.h"

typedef struct kvcl_ep_item {
    kvcl_ep_load_t key;
    uint32_t       index;
} kvcl_ep_item_t;

static inline int kvcl_ep_before(const kvcl_ep_item_t *a, const kvcl_ep_item_t *b)
{
    return (a->key < b->key) || ((a->key == b->key) && (a->index < b->index));
}

/** The item at @a at has a later key now: move it down. */
static inline void kvcl_ep_sink(kvcl_ep_item_t *heap, uint32_t n, uint32_t at)
{
    kvcl_ep_item_t item = heap[at];
    uint32_t       below;

    while ((below = (2 * at) + 1) < n) {
        if ((below + 1 < n) && kvcl_ep_before(&heap[below + 1], &heap[below])) {
            ++below;
        }
        if (!kvcl_ep_before(&heap[below], &item)) {
            break;
        }
        heap[at] = heap[below];
        at       = below;
    }
    heap[at] = item;
}

/** Make a heap of an array in any order. */
static inline void kvcl_ep_heapify(kvcl_ep_item_t *heap, uint32_t n)
{
    uint32_t at;

    for (at = n / 2; at > 0; --at) {
        kvcl_ep_sink(heap, n, at - 1);
    }
}

/** Take the first item; there must be one. */
static inline kvcl_ep_item_t kvcl_ep_pop(kvcl_ep_item_t *heap, uint32_t *n_p)
{
    kvcl_ep_item_t first = heap[0];

    heap[0] = heap[--*n_p];
    if (*n_p > 0) {
        kvcl_ep_sink(heap, *n_p, 0);
    }
    return first;
}

static inline void kvcl_ep_push(kvcl_ep_item_t *heap, uint32_t *n_p, kvcl_ep_item_t item)
{
    uint32_t at = (*n_p)++, above;

    for (; at > 0; at = above) {
        above = (at - 1) / 2;
        if (!kvcl_ep_before(&item, &heap[above])) {
            break;
        }
        heap[at] = heap[above];
    }
    heap[at] = item;
}

#endif
