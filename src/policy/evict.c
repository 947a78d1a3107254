/*
 * Three lists in order of use, ages, and what is remembered of those that left (evict.h has the rules, and why children
 * go first).
 *
 * Lists are index-linked through the nodes, head youngest, tail oldest. A pinned slot that is met at a tail is set
 * aside, so that no later search walks past it; its last unpin puts it back where its stamp belongs, which is at the
 * tail or a few places before it.
 *
 * Invariants: stamps fall from head to tail in NEW, BACK and USED; all stamps differ; a slot set aside is pinned; a
 * node out of all lists has queue 0 and pins 0; queue[].n counts nodes. Lock: the caller's.
 */
#include "config.h"

#include "policy/evict.h"

#include "base/error.h"

#include <string.h>

enum { OUT = 0, NEW = 1, BACK = 2, USED = 3, ASIDE = 4, USES_MAX = 3 };

#define NONE      UINT32_MAX
#define ONE       (UINT64_C(1) << 32)    /* of `keep` */
#define KEEP_MIN  ((ONE * 21) / 16)
#define KEEP_MAX  (ONE * 16)
#define KEEP_STEP 20                     /* of n_slots: how fast it learns */
#define AGE_MAX   (UINT64_C(1) << 42)    /* times KEEP_MAX in 16 bits of fraction it still is a number */

size_t kvcl_evict_bytes(uint32_t n_slots)
{
    return ((size_t)n_slots * sizeof(kvcl_evict_node_t)) + (2 * kvcl_ghosts_bytes(n_slots));
}

kvcl_status_t kvcl_evict_init(kvcl_evict_t *evict, uint32_t n_slots, void *mem, size_t bytes)
{
    unsigned i;

    if ((mem == NULL) || ((uintptr_t)mem % sizeof(uint64_t) != 0) || (n_slots == 0) || (n_slots == NONE) ||
        (bytes < kvcl_evict_bytes(n_slots))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "eviction order of %u slots needs %zu bytes, got %zu",
                         n_slots, kvcl_evict_bytes(n_slots), bytes);
    }
    memset(evict, 0, sizeof(*evict));
    memset(mem, 0, kvcl_evict_bytes(n_slots));
    evict->n_slots = n_slots;
    evict->nodes   = mem;
    evict->keep    = KEEP_MIN;
    kvcl_ghosts_init(&evict->unused, n_slots, evict->nodes + n_slots);
    kvcl_ghosts_init(&evict->used, n_slots, (char *)(evict->nodes + n_slots) + kvcl_ghosts_bytes(n_slots));
    for (i = 0; i <= ASIDE; ++i) {
        evict->queue[i].head = NONE;
        evict->queue[i].tail = NONE;
    }
    return KVCL_OK;
}

/* ---- lists ---- */

/* Behind slot `before`, which is in the queue, or (NONE) at its head. */
static void link_after(kvcl_evict_t *evict, uint32_t slot, unsigned queue, uint32_t before)
{
    kvcl_evict_queue_t *q    = &evict->queue[queue];
    kvcl_evict_node_t  *node = &evict->nodes[slot];

    node->queue = (uint8_t)queue;
    node->prev  = before;
    node->next  = (before == NONE) ? q->head : evict->nodes[before].next;
    if (before == NONE) {
        q->head = slot;
    } else {
        evict->nodes[before].next = slot;
    }
    if (node->next == NONE) {
        q->tail = slot;
    } else {
        evict->nodes[node->next].prev = slot;
    }
    ++q->n;
}

static void unlink_node(kvcl_evict_t *evict, uint32_t slot)
{
    kvcl_evict_node_t  *node = &evict->nodes[slot];
    kvcl_evict_queue_t *q    = &evict->queue[node->queue];

    if (node->prev == NONE) {
        q->head = node->next;
    } else {
        evict->nodes[node->prev].next = node->next;
    }
    if (node->next == NONE) {
        q->tail = node->prev;
    } else {
        evict->nodes[node->next].prev = node->prev;
    }
    --q->n;
    node->queue = OUT;
}

/* The youngest of all. */
static void push(kvcl_evict_t *evict, uint32_t slot, unsigned queue)
{
    evict->nodes[slot].stamp = ++evict->clock;
    link_after(evict, slot, queue, NONE);
}

/* ---- uses ---- */

/* A block came back. If it was unused, unused blocks are kept longer at the expense of used ones; otherwise shorter. */
static void learn(kvcl_evict_t *evict, bool was_used)
{
    uint64_t step = (evict->keep / evict->n_slots) * KEEP_STEP;

    step = (step > evict->keep / 2) ? evict->keep / 2 : step;
    evict->keep = was_used ? evict->keep + step : evict->keep - step;
    evict->keep = (evict->keep < KEEP_MIN) ? KEEP_MIN : (evict->keep > KEEP_MAX) ? KEEP_MAX : evict->keep;
}

/* Where a new block belongs. */
static unsigned queue_for(kvcl_evict_t *evict, uint32_t tag)
{
    bool was_used = kvcl_ghosts_take(&evict->used, tag);

    if (!was_used && !kvcl_ghosts_take(&evict->unused, tag)) {
        return NEW;
    }
    learn(evict, was_used);
    return BACK;
}

kvcl_status_t kvcl_evict_insert(kvcl_evict_t *evict, uint32_t slot, uint64_t hash)
{
    kvcl_evict_node_t *node;

    if (slot >= evict->n_slots) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "slot %u of %u", slot, evict->n_slots);
    }
    node = &evict->nodes[slot];
    if (node->queue != OUT) {
        return kvcl_fail(KVCL_ERR_EXISTS, "slot %u is in the eviction order", slot);
    }
    node->uses = 0;
    node->pins = 0;
    node->tag  = (uint32_t)(hash >> 32) ^ (uint32_t)hash;
    push(evict, slot, queue_for(evict, node->tag));
    return KVCL_OK;
}

void kvcl_evict_touch(kvcl_evict_t *evict, uint32_t slot)
{
    kvcl_evict_node_t *node;

    if ((slot >= evict->n_slots) || (evict->nodes[slot].queue == OUT)) {
        return;
    }
    node = &evict->nodes[slot];
    node->uses = (uint8_t)((node->uses < USES_MAX) ? node->uses + 1 : USES_MAX);
    unlink_node(evict, slot);
    push(evict, slot, USED);
}

/* ---- pins ---- */

static kvcl_status_t require(const kvcl_evict_t *evict, uint32_t slot)
{
    if (slot >= evict->n_slots) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "slot %u of %u", slot, evict->n_slots);
    }
    return (evict->nodes[slot].queue == OUT) ? KVCL_ERR_NOT_FOUND : KVCL_OK;
}

kvcl_status_t kvcl_evict_pin(kvcl_evict_t *evict, uint32_t slot)
{
    kvcl_status_t status = require(evict, slot);

    if (status == KVCL_OK) {
        ++evict->nodes[slot].pins;
    }
    return status;
}

static void set_aside(kvcl_evict_t *evict, uint32_t slot)
{
    kvcl_evict_node_t *node = &evict->nodes[slot];
    unsigned          from  = node->queue;

    unlink_node(evict, slot);
    node->back = (uint8_t)from;
    link_after(evict, slot, ASIDE, NONE);
}

/* It was the oldest when it was set aside: only others that were set aside can be older. */
static void put_back(kvcl_evict_t *evict, uint32_t slot)
{
    kvcl_evict_node_t *node  = &evict->nodes[slot];
    uint32_t          before = evict->queue[node->back].tail;

    while ((before != NONE) && (evict->nodes[before].stamp < node->stamp)) {
        before = evict->nodes[before].prev;
    }
    unlink_node(evict, slot);
    link_after(evict, slot, node->back, before);
}

kvcl_status_t kvcl_evict_unpin(kvcl_evict_t *evict, uint32_t slot)
{
    kvcl_status_t status = require(evict, slot);

    if (status == KVCL_OK) {
        if (evict->nodes[slot].pins == 0) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "slot %u is not pinned", slot);
        }
        if ((--evict->nodes[slot].pins == 0) && (evict->nodes[slot].queue == ASIDE)) {
            put_back(evict, slot);
        }
    }
    return status;
}

/* ---- the victim ---- */

/* How old a slot of the queue may become, beside one of NEW: 16 bits of fraction. */
static uint64_t patience(const kvcl_evict_t *evict, unsigned queue)
{
    const uint64_t keep = evict->keep >> 16;

    return (queue == USED) ? keep : (queue == BACK) ? keep - (keep / 16) : ONE >> 16;
}

static uint64_t age(const kvcl_evict_t *evict, uint32_t slot)
{
    const uint64_t since = evict->clock - evict->nodes[slot].stamp + 1;

    return (since > AGE_MAX) ? AGE_MAX : since;
}

/* Of the oldest of each queue (NONE: there is none) the one that has outlived its time most: the queue, or OUT. */
static unsigned choose(const kvcl_evict_t *evict, const uint32_t *oldest)
{
    unsigned queue, best = OUT;

    for (queue = NEW; queue <= USED; ++queue) {
        if ((oldest[queue] != NONE) &&
            ((best == OUT) || (age(evict, oldest[queue]) * patience(evict, best) >
                               age(evict, oldest[best]) * patience(evict, queue)))) {
            best = queue;
        }
    }
    return best;
}

/* The oldest of a queue that is not pinned. Those pinned behind it are set aside: once for each time they are used. */
static uint32_t take_oldest(kvcl_evict_t *evict, unsigned queue)
{
    while ((evict->queue[queue].tail != NONE) && (evict->nodes[evict->queue[queue].tail].pins != 0)) {
        set_aside(evict, evict->queue[queue].tail);
    }
    return evict->queue[queue].tail;
}

kvcl_status_t kvcl_evict_victim(kvcl_evict_t *evict, uint32_t *slot_p)
{
    uint32_t oldest[USED + 1];
    unsigned queue;

    for (queue = NEW; queue <= USED; ++queue) {
        oldest[queue] = take_oldest(evict, queue);
    }
    queue = choose(evict, oldest);
    if (queue == OUT) {
        return KVCL_ERR_NOT_FOUND;
    }
    *slot_p = oldest[queue];
    unlink_node(evict, *slot_p);
    kvcl_ghosts_remember((queue == NEW) ? &evict->unused : &evict->used, evict->nodes[*slot_p].tag);
    return KVCL_OK;
}

/* The slot itself if it is not pinned, else the next younger one that is not. */
static uint32_t not_pinned(const kvcl_evict_t *evict, uint32_t slot)
{
    while ((slot != NONE) && (evict->nodes[slot].pins != 0)) {
        slot = evict->nodes[slot].prev;
    }
    return slot;
}

uint32_t kvcl_evict_peek(const kvcl_evict_t *evict, uint32_t *slots, uint32_t max)
{
    uint32_t oldest[USED + 1], n = 0;
    unsigned queue;

    for (queue = NEW; queue <= USED; ++queue) {
        oldest[queue] = not_pinned(evict, evict->queue[queue].tail);
    }
    while ((n < max) && ((queue = choose(evict, oldest)) != OUT)) {
        slots[n++]    = oldest[queue];
        oldest[queue] = not_pinned(evict, evict->nodes[oldest[queue]].prev);
    }
    return n;
}

kvcl_status_t kvcl_evict_remove(kvcl_evict_t *evict, uint32_t slot)
{
    kvcl_status_t status = require(evict, slot);

    if (status == KVCL_OK) {
        unlink_node(evict, slot);
        evict->nodes[slot].pins = 0;
    }
    return status;
}

uint32_t kvcl_evict_count(const kvcl_evict_t *evict)
{
    return evict->queue[NEW].n + evict->queue[BACK].n + evict->queue[USED].n + evict->queue[ASIDE].n;
}

static bool node_is_whole(const kvcl_evict_t *evict, uint32_t slot)
{
    const kvcl_evict_node_t *node = &evict->nodes[slot];

    if ((node->queue == OUT) || (node->queue > ASIDE)) {
        return (node->queue == OUT) && (node->pins == 0);
    }
    if (node->queue == ASIDE) {
        return (node->pins != 0) && (node->back >= NEW) && (node->back <= USED);
    }
    return (node->stamp <= evict->clock) && (node->uses <= USES_MAX) &&
           ((node->prev == NONE) || (evict->nodes[node->prev].stamp > node->stamp));
}

bool kvcl_evict_check(const kvcl_evict_t *evict)
{
    uint32_t n[ASIDE + 1] = {0}, i, q, slot, prev, seen;

    for (i = 0; i < evict->n_slots; ++i) {
        if (!node_is_whole(evict, i)) {
            return false;
        }
        ++n[evict->nodes[i].queue];
    }
    for (q = NEW; q <= ASIDE; ++q) {
        prev = NONE;
        seen = 0;
        for (slot = evict->queue[q].head; slot != NONE; slot = evict->nodes[slot].next) {
            if ((evict->nodes[slot].prev != prev) || (evict->nodes[slot].queue != q) || (++seen > n[q])) {
                return false;
            }
            prev = slot;
        }
        if ((seen != n[q]) || (evict->queue[q].n != n[q]) || (evict->queue[q].tail != prev)) {
            return false;
        }
    }
    return true;
}
