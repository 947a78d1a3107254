/*
 * Owns the table: open addressing with linear probing, at most half full.
 */
#include "config.h"
#include "tools/replay/idmap.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 4096u

void idmap_init(idmap_t *map)
{
    memset(map, 0, sizeof(*map));
}

void idmap_free(idmap_t *map)
{
    free(map->slots);
    idmap_init(map);
}

/* Where (a, b) is, or the empty slot where it belongs. */
static idmap_slot_t *find(idmap_slot_t *slots, size_t n_slots, uint64_t a, uint32_t b)
{
    uint64_t hash = (a + ((uint64_t)b << 32)) ^ ((uint64_t)b * UINT64_C(0xd6e8feb86659fd93));
    size_t   at;

    hash = (hash ^ (hash >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    hash = (hash ^ (hash >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    for (at = (size_t)(hash ^ (hash >> 32)) & (n_slots - 1);
         (slots[at].value != IDMAP_NONE) && ((slots[at].a != a) || (slots[at].b != b)); at = (at + 1) & (n_slots - 1)) {
    }
    return &slots[at];
}

static bool grow(idmap_t *map)
{
    const size_t n_slots = (map->n_slots != 0) ? map->n_slots * 2 : FIRST_SLOTS;
    idmap_slot_t *slots  = malloc(n_slots * sizeof(*slots));
    size_t       i;

    if (slots == NULL) {
        return false;
    }
    memset(slots, 0xff, n_slots * sizeof(*slots));
    for (i = 0; i < map->n_slots; ++i) {
        if (map->slots[i].value != IDMAP_NONE) {
            *find(slots, n_slots, map->slots[i].a, map->slots[i].b) = map->slots[i];
        }
    }
    free(map->slots);
    map->slots   = slots;
    map->n_slots = n_slots;
    return true;
}

uint32_t idmap_number(idmap_t *map, uint64_t a, uint32_t b, bool *new_p)
{
    idmap_slot_t *slot;

    if (((size_t)map->n * 2 >= map->n_slots) && !grow(map)) {
        return IDMAP_NONE;
    }
    slot   = find(map->slots, map->n_slots, a, b);
    *new_p = (slot->value == IDMAP_NONE);
    if (*new_p) {
        slot->a     = a;
        slot->b     = b;
        slot->value = map->n++;
    }
    return slot->value;
}
