/*
 * The room of a class in a slab, and the unit of time, for the files of slabs.h.
 */
#ifndef KVCL_POLICY_SLABS_ROOM_H
#define KVCL_POLICY_SLABS_ROOM_H

#include "policy/slabs.h"

enum { KVCL_SLABS_UNITS = 1024 }; /* of time, until as many bytes were published as the arena has */

/** Blocks that the class has in the slab, or would have if the slab were its own. */
static inline uint32_t *kvcl_slabs_room(const kvcl_slabs_t *slabs, uint32_t slab, unsigned cls)
{
    return &slabs->room[((size_t)slab * slabs->n_classes) + cls];
}

#endif
