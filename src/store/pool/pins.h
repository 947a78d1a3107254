/*
 * Pins with a holder and an expiry, on blocks of one managed owner.
 *
 * A hard pin keeps its block from eviction until it expires or is removed. Soft pins are dropped when no other block
 * can be evicted, the oldest first. Each holder has one pin a block; setting it again renews it. A withdrawn block
 * loses its pins. Each pin holds one kvcl_owner_pin(). Engine lock held; the caller passes the time.
 */
#ifndef KVCL_STORE_POOL_PINS_H
#define KVCL_STORE_POOL_PINS_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"

#include <stdbool.h>

struct kvcl_owner;

typedef struct kvcl_pins {
    kvcl_heap_t expiries;
    kvcl_list_t soft;    /* pin_t.link, the oldest first */
    kvcl_map_t  by_slot; /* slot -> its chain of pin_t */
    uint32_t    n;       /* pins */
    uint32_t    n_hard;  /* slots with a hard pin */
} kvcl_pins_t;

void          kvcl_pins_init(kvcl_pins_t *pins);
void          kvcl_pins_fini(struct kvcl_owner *owner); /* removes all pins; they must be initialized */

/** Sets or renews a pin on a published slot. @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_NO_SPACE (7/8 of the slots
 * have hard pins; or this slot has 1024 pins; or all slots together have 1024 plus 4 a slot). */
kvcl_status_t kvcl_pins_set(struct kvcl_owner *owner, uint32_t slot, uint64_t holder, bool soft, uint64_t expires_ns)
    KVCL_MUST_CHECK;
/** Removes the holder's pin. False: it had none. */
bool          kvcl_pins_drop(struct kvcl_owner *owner, uint32_t slot, uint64_t holder);
void          kvcl_pins_forget(struct kvcl_owner *owner, uint32_t slot); /* the slot was withdrawn: removes its pins */

void          kvcl_pins_expire(struct kvcl_owner *owner, uint64_t now_ns);
/** Removes the oldest soft pin. False: there is none. */
bool          kvcl_pins_yield(struct kvcl_owner *owner);
/** The time at which the next pin expires, or KVCL_DEADLINE_NONE. */
uint64_t      kvcl_pins_next(const struct kvcl_owner *owner);

#endif
