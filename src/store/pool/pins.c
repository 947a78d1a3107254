/*
 * Pins with a holder and an expiry (pins.h).
 *
 * Owns one allocation a pin. Invariant: each pin_t is in the heap of expiries, in the chain of its slot and, if soft,
 * in the list of soft pins. Engine lock held.
 */
#include "config.h"
#include "store/pool/pins.h"
#include "base/clock.h"
#include "store/pool/owner.h"
#include "store/pool/room.h"
#include "store/store.h"

#include <stdlib.h>

enum { PINS_A_SLOT = 1024, PINS_A_POOL = 4 }; /* bounds: a peer may send any number as a holder */

typedef struct pin {
    kvcl_heap_node_t expiry;
    kvcl_list_t      link;  /* kvcl_pins_t.soft, if soft */
    struct pin       *next; /* next pin of the same slot */
    uint64_t         holder;
    uint32_t         slot;
    bool             soft;
} pin_t;

void kvcl_pins_init(kvcl_pins_t *pins)
{
    kvcl_heap_init(&pins->expiries);
    kvcl_list_init(&pins->soft);
    kvcl_map_init(&pins->by_slot);
    pins->n      = 0;
    pins->n_hard = 0;
}

static pin_t *first_of(const kvcl_owner_t *owner, uint32_t slot)
{
    return kvcl_map_get(&owner->held.by_slot, slot);
}

static bool is_hard(const kvcl_owner_t *owner, uint32_t slot)
{
    const pin_t *pin = first_of(owner, slot);

    while ((pin != NULL) && pin->soft) {
        pin = pin->next;
    }
    return pin != NULL;
}

/* Unlinks and frees a pin. The block may be evicted afterwards. */
static void destroy(kvcl_owner_t *owner, pin_t *pin)
{
    kvcl_pins_t *pins = &owner->held;
    pin_t       *head = first_of(owner, pin->slot), **at;
    bool        hard  = is_hard(owner, pin->slot);

    for (at = &head; *at != pin; at = &(*at)->next) {
    }
    *at = pin->next;
    if (head == NULL) {
        (void)kvcl_map_del(&pins->by_slot, pin->slot);
    } else if (kvcl_map_put(&pins->by_slot, pin->slot, head) != KVCL_OK) {
        head = NULL; /* cannot happen: it replaces an entry */
    }
    kvcl_heap_del(&pins->expiries, &pin->expiry);
    kvcl_list_del(&pin->link);
    --pins->n;
    pins->n_hard -= (hard && !is_hard(owner, pin->slot)) ? 1 : 0;
    kvcl_owner_unpin(owner, pin->slot);
    free(pin);
}

void kvcl_pins_fini(kvcl_owner_t *owner)
{
    kvcl_heap_node_t *node;

    while ((node = kvcl_heap_min(&owner->held.expiries)) != NULL) {
        destroy(owner, kvcl_container_of(node, pin_t, expiry));
    }
    kvcl_heap_fini(&owner->held.expiries);
    kvcl_map_fini(&owner->held.by_slot);
}

static pin_t *find(const kvcl_owner_t *owner, uint32_t slot, uint64_t holder)
{
    pin_t *pin = first_of(owner, slot);

    while ((pin != NULL) && (pin->holder != holder)) {
        pin = pin->next;
    }
    return pin;
}

static void set_soft(kvcl_owner_t *owner, pin_t *pin, bool soft)
{
    kvcl_pins_t *pins = &owner->held;

    kvcl_list_del(&pin->link);
    pins->n_hard -= is_hard(owner, pin->slot) ? 1 : 0;
    pin->soft     = soft;
    pins->n_hard += is_hard(owner, pin->slot) ? 1 : 0;
    if (soft) {
        kvcl_list_add_tail(&pins->soft, &pin->link);
    }
}

/* May the slot have another pin? */
static bool has_room(const kvcl_owner_t *owner, uint32_t slot)
{
    const pin_t *pin = first_of(owner, slot);
    uint32_t    n;

    for (n = 0; pin != NULL; ++n) {
        pin = pin->next;
    }
    return (n < PINS_A_SLOT) && (owner->held.n < PINS_A_SLOT + ((uint64_t)PINS_A_POOL * kvcl_owner_room(owner)));
}

/* Makes a soft pin that is in no list yet. */
static kvcl_status_t make(kvcl_owner_t *owner, uint32_t slot, uint64_t holder, uint64_t expires_ns, pin_t **pin_p)
{
    kvcl_pins_t *pins = &owner->held;
    pin_t       *pin  = calloc(1, sizeof(*pin));

    if (pin == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    pin->holder = holder;
    pin->slot   = slot;
    pin->soft   = true;
    pin->next   = first_of(owner, slot);
    kvcl_list_init(&pin->link);
    kvcl_heap_node_init(&pin->expiry);
    if (kvcl_heap_add(&pins->expiries, &pin->expiry, expires_ns) != KVCL_OK) {
        free(pin);
        return KVCL_ERR_NO_MEMORY;
    }
    if (kvcl_map_put(&pins->by_slot, slot, pin) != KVCL_OK) {
        kvcl_heap_del(&pins->expiries, &pin->expiry);
        free(pin);
        return KVCL_ERR_NO_MEMORY;
    }
    ++pins->n;
    kvcl_owner_pin(owner, slot);
    *pin_p = pin;
    return KVCL_OK;
}

kvcl_status_t kvcl_pins_set(kvcl_owner_t *owner, uint32_t slot, uint64_t holder, bool soft, uint64_t expires_ns)
{
    kvcl_pins_t   *pins  = &owner->held;
    uint32_t      most   = kvcl_owner_room(owner) - (kvcl_owner_room(owner) / 8);
    pin_t         *pin   = find(owner, slot, holder);
    kvcl_status_t status = KVCL_OK;

    if (((pin == NULL) && !has_room(owner, slot)) ||
        (!soft && !is_hard(owner, slot) && (pins->n_hard >= most))) {
        return KVCL_ERR_NO_SPACE;
    }
    if (pin == NULL) {
        status = make(owner, slot, holder, expires_ns, &pin);
    } else {
        kvcl_heap_update(&pins->expiries, &pin->expiry, expires_ns);
    }
    if (status == KVCL_OK) {
        set_soft(owner, pin, soft);
        kvcl_store_freed(owner->store); /* a put that waits for room may have a new expiry to wait for */
    }
    return status;
}

bool kvcl_pins_drop(kvcl_owner_t *owner, uint32_t slot, uint64_t holder)
{
    pin_t *pin = find(owner, slot, holder);

    if (pin != NULL) {
        destroy(owner, pin);
    }
    return pin != NULL;
}

void kvcl_pins_forget(kvcl_owner_t *owner, uint32_t slot)
{
    pin_t *pin;

    while ((owner->held.n != 0) && ((pin = first_of(owner, slot)) != NULL)) {
        destroy(owner, pin);
    }
}

void kvcl_pins_expire(kvcl_owner_t *owner, uint64_t now_ns)
{
    kvcl_heap_node_t *node;

    while (((node = kvcl_heap_min(&owner->held.expiries)) != NULL) && (node->key <= now_ns)) {
        destroy(owner, kvcl_container_of(node, pin_t, expiry));
    }
}

bool kvcl_pins_yield(kvcl_owner_t *owner)
{
    if (kvcl_list_is_empty(&owner->held.soft)) {
        return false;
    }
    destroy(owner, kvcl_list_head(&owner->held.soft, pin_t, link));
    return true;
}

uint64_t kvcl_pins_next(const kvcl_owner_t *owner)
{
    const kvcl_heap_node_t *node = kvcl_heap_min(&owner->held.expiries);

    return (node != NULL) ? node->key : KVCL_DEADLINE_NONE;
}
