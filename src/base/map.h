/*
 * Hash map uint64_t -> void *: open addressing, linear probing, backward-shift deletion.
 *
 * Owns: its slot array, not what the values point at. Values are never NULL (NULL marks a free
 * slot). At most 3/4 full; a power of two of slots. get and del never allocate, put may.
 * The caller's lock protects it.
 */
#ifndef KVCL_BASE_MAP_H
#define KVCL_BASE_MAP_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

typedef struct kvcl_map_slot {
    uint64_t key;
    void    *value;
} kvcl_map_slot_t;

typedef struct kvcl_map {
    kvcl_map_slot_t *slots; /* NULL until the first put or reserve */
    size_t           mask;  /* slots - 1 */
    size_t           count;
} kvcl_map_t;

void kvcl_map_init(kvcl_map_t *map); /* allocates nothing, cannot fail */
void kvcl_map_fini(kvcl_map_t *map);

/** Make room so that the next puts up to @a count elements in all cannot fail. */
kvcl_status_t kvcl_map_reserve(kvcl_map_t *map, size_t count) KVCL_MUST_CHECK;

/** Insert or replace. @return KVCL_OK, KVCL_ERR_NO_MEMORY (map unchanged). */
kvcl_status_t kvcl_map_put(kvcl_map_t *map, uint64_t key, void *value) KVCL_MUST_CHECK;

/** The value, or NULL. */
void *kvcl_map_get(const kvcl_map_t *map, uint64_t key);

/** Remove; returns the value that was there, or NULL. */
void *kvcl_map_del(kvcl_map_t *map, uint64_t key);

void kvcl_map_clear(kvcl_map_t *map); /* keeps the slots */

static inline size_t kvcl_map_count(const kvcl_map_t *map)
{
    return map->count;
}

/*
 * Walk all pairs in no order: `size_t it = 0; while (kvcl_map_next(&map, &it, &key, &value)) ...`.
 * The map must not change meanwhile (kvcl_map_del may skip or repeat an element).
 */
int kvcl_map_next(const kvcl_map_t *map, size_t *it_p, uint64_t *key_p, void **value_p);

#define kvcl_map_foreach(_map, _it, _key, _value)                                                  \
    for ((_it) = 0; kvcl_map_next((_map), &(_it), &(_key), &(_value));)

#endif
