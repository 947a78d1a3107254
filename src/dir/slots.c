/*
 * Slot states and generation words of one cache (slots.h has the picture and the rule).
 *
 * Why withdraw is safe against readers, in C11 terms: the owner stores the word, passes a
 * seq_cst fence, and only then writes bytes; the reader loads bytes, passes an acquire fence, and
 * then loads the word. A reader that saw any byte written after the fence therefore sees the new
 * word. The bytes themselves race by design (memcpy against memcpy): what was copied is looked at
 * only after the word said that no race happened.
 *
 * Invariants: a slot is in the free list exactly when FREE; n_free and n_published count states. All
 * edges pass set_state().
 * Lock: the caller's.
 */
#include "config.h"

#include "dir/slots.h"

#include "base/error.h"
#include "base/sanitizers.h"

#include <assert.h>
#include <string.h>

#define EDGE(_to) (1u << (_to))

static const uint8_t legal[3] = {
    [KVCL_SLOT_FREE]      = EDGE(KVCL_SLOT_FILLING),
    [KVCL_SLOT_FILLING]   = EDGE(KVCL_SLOT_FREE) | EDGE(KVCL_SLOT_PUBLISHED),
    [KVCL_SLOT_PUBLISHED] = EDGE(KVCL_SLOT_FREE) | EDGE(KVCL_SLOT_FILLING)};

static const char *const names[3] = {"FREE", "FILLING", "PUBLISHED"};

/* ThreadSanitizer does not know fences (gcc warns); there a read-modify-write in the global order
 * stands in, which it does know. */
static void full_fence(void)
{
#if KVCL_TSAN
    static _Atomic int order;

    atomic_fetch_add_explicit(&order, 1, memory_order_seq_cst);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

static void free_append(kvcl_slots_t *slots, uint32_t slot)
{
    kvcl_slot_t *s = &slots->slots[slot];

    s->prev = slots->free_tail;
    s->next = KVCL_SLOT_NONE;
    if (slots->free_tail == KVCL_SLOT_NONE) {
        slots->free_head = slot;
    } else {
        slots->slots[slots->free_tail].next = slot;
    }
    slots->free_tail = slot;
    ++slots->n_free;
}

static void free_unlink(kvcl_slots_t *slots, uint32_t slot)
{
    kvcl_slot_t *s = &slots->slots[slot];

    if (s->prev == KVCL_SLOT_NONE) {
        slots->free_head = s->next;
    } else {
        slots->slots[s->prev].next = s->next;
    }
    if (s->next == KVCL_SLOT_NONE) {
        slots->free_tail = s->prev;
    } else {
        slots->slots[s->next].prev = s->prev;
    }
    --slots->n_free;
}

/* The only place that changes a state: legal edges, counters and the free list. */
static void set_state(kvcl_slots_t *slots, uint32_t slot, kvcl_slot_state_t to)
{
    kvcl_slot_t      *s    = &slots->slots[slot];
    kvcl_slot_state_t from = (kvcl_slot_state_t)s->state;

    assert((legal[from] & EDGE(to)) != 0);
    (void)legal;
    if (from == KVCL_SLOT_FREE) {
        free_unlink(slots, slot);
    }
    slots->n_published -= (from == KVCL_SLOT_PUBLISHED);
    slots->n_published += (to == KVCL_SLOT_PUBLISHED);
    s->state = (uint8_t)to;
    if (to == KVCL_SLOT_FREE) {
        free_append(slots, slot);
    }
}

static kvcl_status_t require(const kvcl_slots_t *slots, uint32_t slot, kvcl_slot_state_t state)
{
    if (slot >= slots->n) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "slot %u of a cache of %u", slot, slots->n);
    }
    if (slots->slots[slot].state != state) {
        return kvcl_fail(KVCL_ERR_BUSY, "slot %u is %s, not %s", slot, names[slots->slots[slot].state],
                         names[state]);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_slots_init(kvcl_slots_t *slots, _Atomic uint32_t *gens, kvcl_slot_t *array,
                              uint32_t n, uint16_t rank, uint16_t incarnation, uint16_t cache,
                              uint32_t first_gen)
{
    uint32_t i;

    if ((gens == NULL) || (array == NULL) || (n == 0) || (n == KVCL_SLOT_NONE) ||
        (rank == KVCL_DIR_RANK_NONE)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "slots: %u slots of rank %u", n, rank);
    }
    memset(slots, 0, sizeof(*slots));
    memset(array, 0, (size_t)n * sizeof(*array));
    slots->gens        = gens;
    slots->slots       = array;
    slots->n           = n;
    slots->free_head   = KVCL_SLOT_NONE;
    slots->free_tail   = KVCL_SLOT_NONE;
    slots->rank        = rank;
    slots->incarnation = incarnation;
    slots->cache       = cache;
    for (i = 0; i < n; ++i) {
        atomic_init(&gens[i], (first_gen == 0) ? 1 : first_gen);
        free_append(slots, i);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_slots_alloc(kvcl_slots_t *slots, uint32_t *slot_p)
{
    uint32_t slot = slots->free_head;

    if (slot == KVCL_SLOT_NONE) {
        return KVCL_ERR_NO_SPACE;
    }
    set_state(slots, slot, KVCL_SLOT_FILLING);
    *slot_p = slot;
    return KVCL_OK;
}

kvcl_status_t kvcl_slots_take(kvcl_slots_t *slots, uint32_t slot)
{
    kvcl_status_t status = require(slots, slot, KVCL_SLOT_FREE);

    if (status == KVCL_OK) {
        set_state(slots, slot, KVCL_SLOT_FILLING);
    }
    return status;
}

kvcl_status_t kvcl_slots_abort(kvcl_slots_t *slots, uint32_t slot)
{
    kvcl_status_t status = require(slots, slot, KVCL_SLOT_FILLING);

    if (status == KVCL_OK) {
        set_state(slots, slot, KVCL_SLOT_FREE);
    }
    return status;
}

uint32_t kvcl_slots_gen(const kvcl_slots_t *slots, uint32_t slot)
{
    return atomic_load_explicit(&slots->gens[slot], memory_order_relaxed);
}

kvcl_status_t kvcl_slots_publish(kvcl_slots_t *slots, uint32_t slot, const kvcl_key_t *key,
                                 uint16_t flags, uint32_t len, uint64_t checksum,
                                 kvcl_dir_loc_t *loc_p)
{
    kvcl_status_t status = require(slots, slot, KVCL_SLOT_FILLING);

    if (status != KVCL_OK) {
        return status;
    }
    if ((flags & ~KVCL_DIR_FLAGS_MASK) != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "location flags 0x%x", flags);
    }
    full_fence(); /* the bytes are written before any peer can learn of them */
    slots->slots[slot].key   = *key;
    slots->slots[slot].sum   = checksum;
    slots->slots[slot].flags = (uint8_t)flags;
    slots->slots[slot].note  = 0;
    set_state(slots, slot, KVCL_SLOT_PUBLISHED);
    *loc_p = (kvcl_dir_loc_t){.rank        = slots->rank,
                              .incarnation = slots->incarnation,
                              .cache       = slots->cache,
                              .flags       = flags,
                              .slot        = slot,
                              .len         = len,
                              .gen         = kvcl_slots_gen(slots, slot),
                              .checksum    = checksum};
    return KVCL_OK;
}

kvcl_status_t kvcl_slots_withdraw(kvcl_slots_t *slots, uint32_t slot, kvcl_slot_state_t next)
{
    kvcl_status_t status = require(slots, slot, KVCL_SLOT_PUBLISHED);
    uint32_t      gen;

    if (status != KVCL_OK) {
        return status;
    }
    if ((next != KVCL_SLOT_FREE) && (next != KVCL_SLOT_FILLING)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "slot %u is withdrawn to state %u, neither FREE nor FILLING", slot,
                         (unsigned)next);
    }
    gen = kvcl_slots_gen(slots, slot) + 1;
    atomic_store_explicit(&slots->gens[slot], (gen == 0) ? 1 : gen, memory_order_seq_cst);
    full_fence(); /* the word, then any byte */
    set_state(slots, slot, next);
    return KVCL_OK;
}

kvcl_status_t kvcl_slots_check(const kvcl_slots_t *slots, uint32_t slot, uint32_t gen,
                               const kvcl_key_t *key)
{
    if (slot >= slots->n) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "slot %u of a cache of %u", slot, slots->n);
    }
    if ((slots->slots[slot].state != KVCL_SLOT_PUBLISHED) || (kvcl_slots_gen(slots, slot) != gen) ||
        !kvcl_key_equal(&slots->slots[slot].key, key)) {
        return KVCL_ERR_STALE;
    }
    return KVCL_OK;
}

bool kvcl_slots_check_all(const kvcl_slots_t *slots)
{
    uint32_t           free_n = 0, published = 0, i, listed = 0;
    const kvcl_slot_t *s;

    for (i = 0; i < slots->n; ++i) {
        s = &slots->slots[i];
        free_n += (s->state == KVCL_SLOT_FREE);
        published += (s->state == KVCL_SLOT_PUBLISHED);
        if ((s->state > KVCL_SLOT_PUBLISHED) || (kvcl_slots_gen(slots, i) == 0)) {
            return false;
        }
    }
    for (i = slots->free_head; (i != KVCL_SLOT_NONE) && (listed <= slots->n); i = slots->slots[i].next) {
        listed += 1;
        if (slots->slots[i].state != KVCL_SLOT_FREE) {
            return false;
        }
    }
    return (free_n == slots->n_free) && (listed == free_n) && (published == slots->n_published);
}

bool kvcl_slots_gen_is(const _Atomic uint32_t *word, uint32_t gen)
{
#if KVCL_TSAN
    full_fence();
#else
    atomic_thread_fence(memory_order_acquire); /* the bytes, then the word */
#endif
    return atomic_load_explicit((_Atomic uint32_t *)word, memory_order_acquire) == gen;
}
