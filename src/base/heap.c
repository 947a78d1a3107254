/*
 * Sift up, sift down; see heap.h for the invariants. The array grows by doubling and never shrinks.
 */
#include "config.h"
#include "base/heap.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static void place(kvcl_heap_t *heap, size_t i, kvcl_heap_node_t *node)
{
    heap->nodes[i] = node;
    node->index    = i + 1;
}

static void sift_up(kvcl_heap_t *heap, size_t i, kvcl_heap_node_t *node)
{
    size_t parent;

    while (i > 0) {
        parent = (i - 1) / 2;
        if (heap->nodes[parent]->key <= node->key) {
            break;
        }
        place(heap, i, heap->nodes[parent]);
        i = parent;
    }
    place(heap, i, node);
}

static void sift_down(kvcl_heap_t *heap, size_t i, kvcl_heap_node_t *node)
{
    size_t child;

    while ((child = 2 * i + 1) < heap->count) {
        if ((child + 1 < heap->count) && (heap->nodes[child + 1]->key < heap->nodes[child]->key)) {
            ++child;
        }
        if (node->key <= heap->nodes[child]->key) {
            break;
        }
        place(heap, i, heap->nodes[child]);
        i = child;
    }
    place(heap, i, node);
}

/* Put a node at the hole i, whichever way it must move from there. */
static void settle(kvcl_heap_t *heap, size_t i, kvcl_heap_node_t *node)
{
    if ((i > 0) && (node->key < heap->nodes[(i - 1) / 2]->key)) {
        sift_up(heap, i, node);
    } else {
        sift_down(heap, i, node);
    }
}

void kvcl_heap_init(kvcl_heap_t *heap)
{
    memset(heap, 0, sizeof(*heap));
}

void kvcl_heap_fini(kvcl_heap_t *heap)
{
    size_t i;

    for (i = 0; i < heap->count; ++i) {
        heap->nodes[i]->index = 0;
    }
    free(heap->nodes);
    memset(heap, 0, sizeof(*heap));
}

/* Room for count nodes in all: adds up to that many cannot fail. */
static kvcl_status_t reserve(kvcl_heap_t *heap, size_t count)
{
    kvcl_heap_node_t **nodes;
    size_t             capacity = (heap->capacity == 0) ? 16 : heap->capacity;

    if (count <= heap->capacity) {
        return KVCL_OK;
    }
    while ((capacity < count) && (capacity <= SIZE_MAX / 4 / sizeof(*nodes))) {
        capacity *= 2;
    }
    nodes = (capacity < count) ? NULL : (kvcl_heap_node_t **)realloc(heap->nodes, capacity * sizeof(*nodes));
    if (nodes == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a heap of %zu nodes", count);
    }
    heap->nodes    = nodes;
    heap->capacity = capacity;
    return KVCL_OK;
}

kvcl_status_t kvcl_heap_add(kvcl_heap_t *heap, kvcl_heap_node_t *node, uint64_t key)
{
    kvcl_status_t status = reserve(heap, heap->count + 1);

    if (status != KVCL_OK) {
        return status;
    }
    node->key = key;
    sift_up(heap, heap->count++, node);
    return KVCL_OK;
}

void kvcl_heap_del(kvcl_heap_t *heap, kvcl_heap_node_t *node)
{
    size_t            i = node->index;
    kvcl_heap_node_t *last;

    if (i == 0) {
        return;
    }
    --i;
    node->index = 0;
    last        = heap->nodes[--heap->count];
    if (last != node) {
        settle(heap, i, last);
    }
}

void kvcl_heap_update(kvcl_heap_t *heap, kvcl_heap_node_t *node, uint64_t key)
{
    node->key = key;
    settle(heap, node->index - 1, node);
}
