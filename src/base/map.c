/*
 * Open addressing with linear probing. Deletion shifts the rest of the run back, so there are no
 * tombstones and a lookup ends at the first free slot. See map.h for the invariants.
 */
#include "config.h"
#include "base/map.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { MIN_SLOTS = 16 };

/* Keys are often small numbers or aligned addresses: mix well, then mask. */
static size_t home_slot(const kvcl_map_t *map, uint64_t key)
{
    key ^= key >> 32;
    key *= UINT64_C(0xd6e8feb86659fd93);
    key ^= key >> 32;
    return (size_t)key & map->mask;
}

/* The slot that holds the key, or the free one where it would go. There is always a free one. */
static size_t find_slot(const kvcl_map_t *map, uint64_t key)
{
    size_t i = home_slot(map, key);

    while ((map->slots[i].value != NULL) && (map->slots[i].key != key)) {
        i = (i + 1) & map->mask;
    }
    return i;
}

void kvcl_map_init(kvcl_map_t *map)
{
    memset(map, 0, sizeof(*map));
}

void kvcl_map_fini(kvcl_map_t *map)
{
    free(map->slots);
    memset(map, 0, sizeof(*map));
}

kvcl_status_t kvcl_map_reserve(kvcl_map_t *map, size_t count)
{
    kvcl_map_t grown = {NULL, 0, map->count};
    size_t     slots = (map->slots == NULL) ? MIN_SLOTS : map->mask + 1;
    size_t     i;

    while (count > slots - slots / 4) {
        if (slots > SIZE_MAX / 2 / sizeof(kvcl_map_slot_t)) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "a map of %zu elements does not fit in memory", count);
        }
        slots *= 2;
    }
    if ((map->slots != NULL) && (slots == map->mask + 1)) {
        return KVCL_OK;
    }
    grown.mask  = slots - 1;
    grown.slots = (kvcl_map_slot_t *)calloc(slots, sizeof(kvcl_map_slot_t));
    if (grown.slots == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a map of %zu slots", slots);
    }
    for (i = 0; (map->slots != NULL) && (i <= map->mask); ++i) {
        if (map->slots[i].value != NULL) {
            grown.slots[find_slot(&grown, map->slots[i].key)] = map->slots[i];
        }
    }
    free(map->slots);
    *map = grown;
    return KVCL_OK;
}

kvcl_status_t kvcl_map_put(kvcl_map_t *map, uint64_t key, void *value)
{
    kvcl_status_t status;
    size_t        i;

    if (value == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a map value may not be NULL");
    }
    if (map->slots != NULL) {
        i = find_slot(map, key);
        if (map->slots[i].value != NULL) {
            map->slots[i].value = value;
            return KVCL_OK;
        }
    }
    status = kvcl_map_reserve(map, map->count + 1);
    if (status != KVCL_OK) {
        return status;
    }
    i                   = find_slot(map, key);
    map->slots[i].key   = key;
    map->slots[i].value = value;
    ++map->count;
    return KVCL_OK;
}

void *kvcl_map_get(const kvcl_map_t *map, uint64_t key)
{
    return (map->slots == NULL) ? NULL : map->slots[find_slot(map, key)].value;
}

void *kvcl_map_del(kvcl_map_t *map, uint64_t key)
{
    size_t hole, i, home;
    void  *value;

    if (map->slots == NULL) {
        return NULL;
    }
    hole  = find_slot(map, key);
    value = map->slots[hole].value;
    if (value == NULL) {
        return NULL;
    }
    for (i = (hole + 1) & map->mask; map->slots[i].value != NULL; i = (i + 1) & map->mask) {
        home = home_slot(map, map->slots[i].key);
        /* An element may fill the hole unless its home lies cyclically in (hole, i]. */
        if (((i - home) & map->mask) >= ((i - hole) & map->mask)) {
            map->slots[hole] = map->slots[i];
            hole             = i;
        }
    }
    map->slots[hole].value = NULL;
    --map->count;
    return value;
}

void kvcl_map_clear(kvcl_map_t *map)
{
    if (map->slots != NULL) {
        memset(map->slots, 0, (map->mask + 1) * sizeof(kvcl_map_slot_t));
    }
    map->count = 0;
}

int kvcl_map_next(const kvcl_map_t *map, size_t *it_p, uint64_t *key_p, void **value_p)
{
    size_t i;

    for (i = *it_p; (map->slots != NULL) && (i <= map->mask); ++i) {
        if (map->slots[i].value != NULL) {
            *key_p   = map->slots[i].key;
            *value_p = map->slots[i].value;
            *it_p    = i + 1;
            return 1;
        }
    }
    return 0;
}
