/*
 * The last n that left, by 32 bits of their hash: was this one here lately? Exactly the last n calls of
 * kvcl_ghosts_remember count, but for those taken since. Two blocks whose 32 bits are the same are taken for one.
 *
 * Owns: nothing; the memory is the caller's. No allocation, no clock, O(1) expected. One thread at a time.
 */
#ifndef KVCL_POLICY_GHOSTS_H
#define KVCL_POLICY_GHOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvcl_ghost {
    uint32_t tag;
    uint32_t next; /* of those with one bucket; itself: forgotten */
} kvcl_ghost_t;

typedef struct kvcl_ghosts {
    kvcl_ghost_t *ring;    /* n */
    uint32_t     *buckets; /* a power of two of them, at least n */
    uint32_t     n;
    uint32_t     mask;
    uint32_t     at;       /* the oldest: where the next one is written */
} kvcl_ghosts_t;

/** Bytes of memory for n, aligned to 4; n > 0. */
size_t kvcl_ghosts_bytes(uint32_t n);
void   kvcl_ghosts_init(kvcl_ghosts_t *ghosts, uint32_t n, void *mem);

void   kvcl_ghosts_remember(kvcl_ghosts_t *ghosts, uint32_t tag);
/** Was it remembered? It is not any more. */
bool   kvcl_ghosts_take(kvcl_ghosts_t *ghosts, uint32_t tag);

#endif
