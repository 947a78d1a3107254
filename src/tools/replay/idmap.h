/*
 * A map from pairs of numbers to the order in which they were first seen: 0, 1, 2, ... Grows; owned by its user.
 */
#ifndef KVCL_TOOLS_REPLAY_IDMAP_H
#define KVCL_TOOLS_REPLAY_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IDMAP_NONE UINT32_MAX

typedef struct idmap_slot {
    uint64_t a;
    uint32_t b;
    uint32_t value; /* IDMAP_NONE: empty */
} idmap_slot_t;

typedef struct idmap {
    idmap_slot_t *slots;
    size_t       n_slots; /* a power of two */
    uint32_t     n;
} idmap_t;

void idmap_init(idmap_t *map);
void idmap_free(idmap_t *map);

/* The number of (a, b); *new_p: whether this is its first occurrence. IDMAP_NONE: out of memory. */
uint32_t idmap_number(idmap_t *map, uint64_t a, uint32_t b, bool *new_p);

#endif
