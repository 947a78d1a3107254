/*
 * S3-FIFO and LRU over slots (evict.h names the paper and the rules).
 *
 * Queues are index-linked lists through the nodes, head youngest. The ghost list is no list: a
 * four-way table of (hash tag, ghost clock when it left); an entry counts as remembered while fewer
 * than ghost_life others were remembered after it, and the oldest of a set is overwritten.
 *
 * Invariants: freq <= 3; a node out of all queues has queue 0 and pins 0; queue[].n counts nodes.
 * Lock: the caller's.
 */
#include "config.h"

#include "store/evict.h"

#include "base/error.h"

#include <string.h>

enum { OUT = 0, SMALL = 1, MAIN = 2, WAYS = 4, FREQ_MAX = 3 };

#define NONE UINT32_MAX

static uint32_t ghost_sets(uint32_t n_slots)
{
    uint32_t sets = 1;

    while ((sets < (UINT32_C(1) << 29)) && (sets * WAYS < n_slots)) {
        sets *= 2;
    }
    return sets;
}

size_t kvcl_evict_bytes(uint32_t n_slots)
{
    return (size_t)n_slots * sizeof(kvcl_evict_node_t) +
           (size_t)ghost_sets(n_slots) * WAYS * sizeof(kvcl_evict_ghost_t);
}

kvcl_status_t kvcl_evict_init(kvcl_evict_t *evict, kvcl_evict_policy_t policy, uint32_t n_slots,
                              void *mem, size_t bytes)
{
    unsigned i;

    if ((mem == NULL) || ((uintptr_t)mem % sizeof(uint64_t) != 0) || (n_slots == 0) || (n_slots == NONE) ||
        (bytes < kvcl_evict_bytes(n_slots)) || ((unsigned)policy > KVCL_EVICT_LRU)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "eviction order of %u slots needs %zu bytes, got %zu",
                         n_slots, kvcl_evict_bytes(n_slots), bytes);
    }
    memset(evict, 0, sizeof(*evict));
    memset(mem, 0, kvcl_evict_bytes(n_slots));
    evict->policy     = policy;
    evict->n_slots    = n_slots;
    evict->small_max  = (n_slots < 10) ? 1 : n_slots / 10;
    evict->nodes      = mem;
    evict->ghosts     = (kvcl_evict_ghost_t *)(evict->nodes + n_slots);
    evict->ghost_sets = ghost_sets(n_slots);
    evict->ghost_life = n_slots;
    /* All-zero ghosts are "long ago" from the first moment on. */
    evict->ghost_clock = n_slots;
    for (i = 0; i < 3; ++i) {
        evict->queue[i].head = NONE;
        evict->queue[i].tail = NONE;
    }
    return KVCL_OK;
}

static void push(kvcl_evict_t *evict, uint32_t slot, unsigned queue)
{
    kvcl_evict_queue_t *q    = &evict->queue[queue];
    kvcl_evict_node_t  *node = &evict->nodes[slot];

    node->queue = (uint8_t)queue;
    node->prev  = NONE;
    node->next  = q->head;
    if (q->head == NONE) {
        q->tail = slot;
    } else {
        evict->nodes[q->head].prev = slot;
    }
    q->head = slot;
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

static kvcl_evict_ghost_t *ghost_set(kvcl_evict_t *evict, uint64_t hash)
{
    return &evict->ghosts[(size_t)(hash & (evict->ghost_sets - 1)) * WAYS];
}

static void ghost_remember(kvcl_evict_t *evict, uint64_t hash)
{
    kvcl_evict_ghost_t *set = ghost_set(evict, hash), *oldest = set;
    unsigned            i;

    for (i = 1; i < WAYS; ++i) {
        if (evict->ghost_clock - set[i].when > evict->ghost_clock - oldest->when) {
            oldest = &set[i];
        }
    }
    *oldest = (kvcl_evict_ghost_t){.tag = (uint32_t)(hash >> 32), .when = ++evict->ghost_clock};
}

/* Was the hash remembered? It is not any more. */
static bool ghost_take(kvcl_evict_t *evict, uint64_t hash)
{
    kvcl_evict_ghost_t *set = ghost_set(evict, hash);
    unsigned            i;

    for (i = 0; i < WAYS; ++i) {
        if ((set[i].tag == (uint32_t)(hash >> 32)) &&
            (evict->ghost_clock - set[i].when < evict->ghost_life)) {
            set[i].when = evict->ghost_clock - evict->ghost_life;
            return true;
        }
    }
    return false;
}

kvcl_status_t kvcl_evict_insert(kvcl_evict_t *evict, uint32_t slot, uint64_t hash)
{
    kvcl_evict_node_t *node;
    unsigned           queue = MAIN;

    if (slot >= evict->n_slots) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "slot %u of %u", slot, evict->n_slots);
    }
    node = &evict->nodes[slot];
    if (node->queue != OUT) {
        return kvcl_fail(KVCL_ERR_EXISTS, "slot %u is in the eviction order", slot);
    }
    if ((evict->policy == KVCL_EVICT_S3FIFO) && !ghost_take(evict, hash)) {
        queue = SMALL;
    }
    node->hash = hash;
    node->freq = 0;
    node->pins = 0;
    push(evict, slot, queue);
    return KVCL_OK;
}

void kvcl_evict_touch(kvcl_evict_t *evict, uint32_t slot)
{
    kvcl_evict_node_t *node;

    if ((slot >= evict->n_slots) || (evict->nodes[slot].queue == OUT)) {
        return;
    }
    node = &evict->nodes[slot];
    if (evict->policy == KVCL_EVICT_LRU) {
        unlink_node(evict, slot);
        push(evict, slot, MAIN);
    } else if (node->freq < FREQ_MAX) {
        ++node->freq;
    }
}

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

kvcl_status_t kvcl_evict_unpin(kvcl_evict_t *evict, uint32_t slot)
{
    kvcl_status_t status = require(evict, slot);

    if (status == KVCL_OK) {
        if (evict->nodes[slot].pins == 0) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "slot %u is not pinned", slot);
        }
        --evict->nodes[slot].pins;
    }
    return status;
}

/* Look at the tail of the small queue: a victim, or it moves to main. */
static bool small_step(kvcl_evict_t *evict, uint32_t *slot_p)
{
    uint32_t           slot = evict->queue[SMALL].tail;
    kvcl_evict_node_t *node = &evict->nodes[slot];

    unlink_node(evict, slot);
    if ((node->pins > 0) || (node->freq > 1)) {
        node->freq = (node->freq > 1) ? 0 : node->freq;
        push(evict, slot, MAIN); /* who holds a pin wants it: that is a use */
        return false;
    }
    ghost_remember(evict, node->hash);
    *slot_p = slot;
    return true;
}

/* Look at the tail of main: a victim, or it goes round again. */
static bool main_step(kvcl_evict_t *evict, uint32_t *slot_p)
{
    uint32_t           slot = evict->queue[MAIN].tail;
    kvcl_evict_node_t *node = &evict->nodes[slot];

    unlink_node(evict, slot);
    if ((node->pins > 0) || (node->freq > 0)) {
        node->freq = (uint8_t)((node->pins > 0) ? node->freq : node->freq - 1);
        push(evict, slot, MAIN);
        return false;
    }
    *slot_p = slot;
    return true;
}

static kvcl_status_t lru_victim(kvcl_evict_t *evict, uint32_t *slot_p)
{
    uint32_t slot = evict->queue[MAIN].tail;

    while ((slot != NONE) && (evict->nodes[slot].pins > 0)) {
        slot = evict->nodes[slot].prev;
    }
    if (slot == NONE) {
        return KVCL_ERR_NOT_FOUND;
    }
    unlink_node(evict, slot);
    *slot_p = slot;
    return KVCL_OK;
}

/* Until a victim, or small is empty: each step takes one out of it. */
static bool small_sweep(kvcl_evict_t *evict, uint32_t *slot_p)
{
    bool found = false;

    while (!found && (evict->queue[SMALL].n > 0)) {
        found = small_step(evict, slot_p);
    }
    return found;
}

/* Until a victim, or all of main is pinned: a round takes 1 off each freq that is not. */
static bool main_sweep(kvcl_evict_t *evict, uint32_t *slot_p)
{
    uint64_t steps = (uint64_t)evict->queue[MAIN].n * (FREQ_MAX + 1);
    bool     found = false;

    for (; !found && (steps > 0); --steps) {
        found = main_step(evict, slot_p);
    }
    return found;
}

kvcl_status_t kvcl_evict_victim(kvcl_evict_t *evict, uint32_t *slot_p)
{
    bool found = false;

    if (evict->policy == KVCL_EVICT_LRU) {
        return lru_victim(evict, slot_p);
    }
    if (evict->queue[SMALL].n >= evict->small_max) {
        found = small_sweep(evict, slot_p);
    }
    found = found || main_sweep(evict, slot_p);
    /* All of main is pinned: take from small, or from what small passes on to main. */
    found = found || small_sweep(evict, slot_p) || main_sweep(evict, slot_p);
    return found ? KVCL_OK : KVCL_ERR_NOT_FOUND;
}

/* From the tail of a queue: those touched at least `from` and at most `to` times. */
static uint32_t peek(const kvcl_evict_t *evict, unsigned queue, uint8_t from, uint8_t to, uint32_t *slots, uint32_t max)
{
    uint32_t slot = evict->queue[queue].tail, n = 0;

    for (; (slot != NONE) && (n < max); slot = evict->nodes[slot].prev) {
        const kvcl_evict_node_t *node = &evict->nodes[slot];
        if ((node->pins == 0) && (node->freq >= from) && (node->freq <= to)) {
            slots[n++] = slot;
        }
    }
    return n;
}

/* Small gives its tail while it is long, and blocks keep coming into it; else main does. */
uint32_t kvcl_evict_peek(const kvcl_evict_t *evict, uint32_t *slots, uint32_t max)
{
    bool     small_first = (evict->queue[SMALL].n >= evict->small_max);
    uint32_t n           = 0;
    uint8_t  freq;

    if (evict->policy == KVCL_EVICT_LRU) {
        return peek(evict, MAIN, 0, FREQ_MAX, slots, max);
    }
    if (small_first) {
        n += peek(evict, SMALL, 0, 1, slots, max);
    }
    n += peek(evict, MAIN, 0, 0, slots + n, max - n);
    n += small_first ? peek(evict, SMALL, 2, FREQ_MAX, slots + n, max - n) : 0; /* they pass to main, as unused */
    for (freq = 1; freq <= FREQ_MAX; ++freq) {
        n += peek(evict, MAIN, freq, freq, slots + n, max - n);
    }
    if (!small_first) {
        n += peek(evict, SMALL, 0, 1, slots + n, max - n);
        n += peek(evict, SMALL, 2, FREQ_MAX, slots + n, max - n);
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
    return evict->queue[SMALL].n + evict->queue[MAIN].n;
}

bool kvcl_evict_check(const kvcl_evict_t *evict)
{
    uint32_t n[3] = {0, 0, 0}, i, q, slot, prev, seen;

    for (i = 0; i < evict->n_slots; ++i) {
        if ((evict->nodes[i].queue > MAIN) || (evict->nodes[i].freq > FREQ_MAX)) {
            return false;
        }
        ++n[evict->nodes[i].queue];
    }
    for (q = SMALL; q <= MAIN; ++q) {
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
