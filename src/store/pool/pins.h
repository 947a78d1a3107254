/*
 * Pins with a holder and an expiry, on blocks of one managed owner.
 *
 * A hard pin keeps its block from eviction until it expires or is taken away; a soft pin gives way when there is
 * nothing else to evict, the one set longest ago first. Each holder has one pin a block: to set it again is to renew
 * it. A block that is withdrawn loses its pins. Beneath, a pin is one kvcl_owner_pin(). All under the engine lock; the
 * time is given.
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
    kvcl_map_t  by_slot; /* -> pin_t, chained */
    uint32_t    n;       /* pins */
    uint32_t    n_hard;  /* slots that have a hard one */
} kvcl_pins_t;

void          kvcl_pins_init(kvcl_pins_t *pins);
void          kvcl_pins_fini(struct kvcl_owner *owner); /* forgets all of them; initialized */

/** A published slot. @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_NO_SPACE (hard pins on 7/8 of the slots already;
 * 1024 pins on this slot, or 4 a slot and 1024 on all). */
kvcl_status_t kvcl_pins_set(struct kvcl_owner *owner, uint32_t slot, uint64_t holder, bool soft, uint64_t expires_ns)
    KVCL_MUST_CHECK;
bool          kvcl_pins_drop(struct kvcl_owner *owner, uint32_t slot, uint64_t holder); /* was there one? */
void          kvcl_pins_forget(struct kvcl_owner *owner, uint32_t slot);                /* it is withdrawn */

void          kvcl_pins_expire(struct kvcl_owner *owner, uint64_t now_ns);
/** The oldest soft pin gives way. False: there is none. */
bool          kvcl_pins_yield(struct kvcl_owner *owner);
/** When the next one expires; KVCL_DEADLINE_NONE. */
uint64_t      kvcl_pins_next(const struct kvcl_owner *owner);

#endif
