/*
 * A binary heap that records the place of each key (heap.h). Invariant: at[keys[i]] == i + 1.
 */
#include "config.h"
#include "heap.h"

#include <stdlib.h>

bool heap_open(heap_t *heap, uint32_t n_keys)
{
    heap->keys = calloc(n_keys, sizeof(*heap->keys));
    heap->at   = calloc(n_keys, sizeof(*heap->at));
    heap->rank = calloc(n_keys, sizeof(*heap->rank));
    heap->n    = 0;
    return (heap->keys != NULL) && (heap->at != NULL) && (heap->rank != NULL);
}

void heap_close(heap_t *heap)
{
    free(heap->keys);
    free(heap->at);
    free(heap->rank);
}

static void place(heap_t *heap, uint32_t i, uint32_t key)
{
    heap->keys[i] = key;
    heap->at[key] = i + 1;
}

static void up(heap_t *heap, uint32_t i, uint32_t key)
{
    uint32_t above;

    for (; i > 0; i = above) {
        above = (i - 1) / 2;
        if (heap->rank[heap->keys[above]] <= heap->rank[key]) {
            break;
        }
        place(heap, i, heap->keys[above]);
    }
    place(heap, i, key);
}

static void down(heap_t *heap, uint32_t i, uint32_t key)
{
    uint32_t below;

    for (; (below = (2 * i) + 1) < heap->n; i = below) {
        if ((below + 1 < heap->n) && (heap->rank[heap->keys[below + 1]] < heap->rank[heap->keys[below]])) {
            ++below;
        }
        if (heap->rank[heap->keys[below]] >= heap->rank[key]) {
            break;
        }
        place(heap, i, heap->keys[below]);
    }
    place(heap, i, key);
}

void heap_set(heap_t *heap, uint32_t key, uint64_t rank)
{
    bool rises;

    if (heap->at[key] == 0) {
        heap->rank[key] = rank;
        up(heap, heap->n++, key);
        return;
    }
    rises           = rank < heap->rank[key];
    heap->rank[key] = rank;
    if (rises) {
        up(heap, heap->at[key] - 1, key);
    } else {
        down(heap, heap->at[key] - 1, key);
    }
}

uint32_t heap_top(const heap_t *heap)
{
    return heap->keys[0];
}

uint32_t heap_pop(heap_t *heap)
{
    uint32_t top = heap->keys[0], last = heap->keys[--heap->n];

    heap->at[top] = 0;
    if (heap->n > 0) {
        down(heap, 0, last);
    }
    return top;
}
