/*
 * A heap of keys by rank, the smallest rank on top; a key's rank may change. Owns its arrays.
 */
#ifndef KVCL_BENCH_POLICIES_HEAP_H
#define KVCL_BENCH_POLICIES_HEAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct heap {
    uint32_t *keys;  /* the heap: n of them */
    uint32_t *at;    /* by key: its place plus one, 0: absent */
    uint64_t *rank;  /* by key */
    uint32_t n;
} heap_t;

bool     heap_open(heap_t *heap, uint32_t n_keys); /* false: out of memory; close it all the same */
void     heap_close(heap_t *heap);
void     heap_set(heap_t *heap, uint32_t key, uint64_t rank); /* inserts it, or moves it */
uint32_t heap_top(const heap_t *heap);                        /* n > 0 */
uint32_t heap_pop(heap_t *heap);                              /* n > 0 */

#endif
