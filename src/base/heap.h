/*
 * Intrusive binary min-heap by a uint64_t key, used for deadlines. The array of node pointers is
 * the heap's; the nodes are the caller's and live inside its objects (kvcl_container_of).
 *
 * Invariants: nodes[i]->index == i + 1; a node outside any heap has index 0.
 * Not thread-safe: the caller's lock protects it.
 */
#ifndef KVCL_BASE_HEAP_H
#define KVCL_BASE_HEAP_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

typedef struct kvcl_heap_node {
    uint64_t key;
    size_t   index; /* position + 1; 0: in no heap */
} kvcl_heap_node_t;

typedef struct kvcl_heap {
    kvcl_heap_node_t **nodes;
    size_t             count;
    size_t             capacity;
} kvcl_heap_t;

void kvcl_heap_init(kvcl_heap_t *heap); /* allocates nothing */
void kvcl_heap_fini(kvcl_heap_t *heap); /* forgets the nodes that are still in */

static inline void kvcl_heap_node_init(kvcl_heap_node_t *node)
{
    node->key   = UINT64_MAX;
    node->index = 0;
}

/** The node must be in no heap. @return KVCL_OK, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_heap_add(kvcl_heap_t *heap, kvcl_heap_node_t *node, uint64_t key)
        KVCL_MUST_CHECK;

/** Harmless for a node that is in no heap. */
void kvcl_heap_del(kvcl_heap_t *heap, kvcl_heap_node_t *node);

/** Change the key of a node that is in the heap. */
void kvcl_heap_update(kvcl_heap_t *heap, kvcl_heap_node_t *node, uint64_t key);

/** The node with the least key, or NULL. */
static inline kvcl_heap_node_t *kvcl_heap_min(const kvcl_heap_t *heap)
{
    return (heap->count == 0) ? NULL : heap->nodes[0];
}

/* The least key, UINT64_MAX (KVCL_DEADLINE_NONE) for an empty heap. */
static inline uint64_t kvcl_heap_min_key(const kvcl_heap_t *heap)
{
    return (heap->count == 0) ? UINT64_MAX : heap->nodes[0]->key;
}

#endif
