/*
 * The eviction order: which slot to evict next. A pure order over the slots of one owner.
 *
 * Three lists in order of use: NEW, blocks not used since they were inserted; BACK, the same, but evicted and inserted
 * again within the memory of the ghosts; USED, the others. A block's age is the number of uses and insertions after its
 * last use. A used block may grow `keep` times as old as a new one, a block of BACK 15/16 of that. Of the oldest of
 * each list, the one that has outlived its time most is the next victim. So a scan passes through, a block that was hot
 * once does not stay for ever, and keep = 1 would be LRU. `keep` begins at its minimum, 21/16, and adapts as the border
 * of ARC does (Megiddo, Modha, FAST'03). Ghosts remember evicted keys (ghosts.h): the last n_slots evicted from NEW,
 * and as many others. The return of one of the others raises `keep`, the return of one from NEW lowers it. The number
 * of uses does not count, only that there was one: one request touches each block two or three times (match, get, put),
 * and a count would measure that. contrib/bench/policies compares this order with others.
 *
 * Children before parents: a block of a prefix chain is useless without its ancestors, so callers insert and touch a
 * chain TAIL FIRST, and a caller that puts the end of a chain has used its beginning shortly before (by the match that
 * found it). Then a parent is younger than its child, and in the same list or in one that may grow older; or the child
 * was inserted after the parent's use, which made the parent USED: then the parent may grow older than its child by a
 * sixteenth at least, which is more than the time between the two, unless requests are nearly as long as the pool. So
 * no block is evicted while a later block of its chain is in the pool: the oldest of the child's list is at least as
 * old as the child, so it is evicted first. This holds for the blocks of one owner. A caller that puts the ends of
 * chains whose beginnings it never used leaves parents that are older than their children.
 *
 * Owns: nothing; the memory is the caller's (kvcl_evict_bytes). No allocation per operation, no
 * clock. One thread at a time (the owner's lock). Invariant: a slot is in at most one list.
 */
#ifndef KVCL_POLICY_EVICT_H
#define KVCL_POLICY_EVICT_H

#include "kvcl/kvcl_status.h"
#include "policy/ghosts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvcl_evict_node {
    uint64_t stamp; /* the clock at its last use */
    uint32_t prev;
    uint32_t next;
    uint32_t pins;
    uint32_t tag;   /* of its hash */
    uint8_t  queue; /* 0 out, 1 new, 2 came back, 3 used, 4 set aside: pinned, and found at the tail */
    uint8_t  back;  /* set aside: the queue it was in */
    uint8_t  uses;  /* since it was added, 0..3; reset by a tenant's own order (tenants.c) */
    uint8_t  reserved;
} kvcl_evict_node_t;

typedef struct kvcl_evict_queue {
    uint32_t head; /* youngest */
    uint32_t tail;
    uint32_t n;
} kvcl_evict_queue_t;

typedef struct kvcl_evict {
    uint32_t           n_slots;
    kvcl_evict_node_t  *nodes;
    uint64_t           clock;    /* one more with each insert and touch */
    uint64_t           keep;     /* how many times as old as new ones used ones may be; 32 bits of fraction */
    kvcl_ghosts_t      unused;   /* left without having been used */
    kvcl_ghosts_t      used;     /* left used, or having come back */
    kvcl_evict_queue_t queue[5]; /* [0] unused */
} kvcl_evict_t;

/** Bytes of memory for @a n_slots slots: 56 to 64 a slot. */
size_t kvcl_evict_bytes(uint32_t n_slots);

/** Empty order over slots 0..n_slots-1, in @a mem (aligned to 8, kvcl_evict_bytes long, the caller's).
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM. */
kvcl_status_t kvcl_evict_init(kvcl_evict_t *evict, uint32_t n_slots, void *mem, size_t bytes) KVCL_MUST_CHECK;

/** A slot got a block; @a hash is 64 bits of its key. @return KVCL_OK, KVCL_ERR_EXISTS (is in the order),
 * KVCL_ERR_OUT_OF_RANGE. */
kvcl_status_t kvcl_evict_insert(kvcl_evict_t *evict, uint32_t slot, uint64_t hash) KVCL_MUST_CHECK;

/** The block was used. Nothing happens if the slot is not in the order. */
void kvcl_evict_touch(kvcl_evict_t *evict, uint32_t slot);

/** Pins count; a pinned slot is never a victim. @return KVCL_OK, KVCL_ERR_NOT_FOUND (not in the
 * order), KVCL_ERR_OUT_OF_RANGE, KVCL_ERR_INVALID_PARAM (unpin without pin). */
kvcl_status_t kvcl_evict_pin(kvcl_evict_t *evict, uint32_t slot) KVCL_MUST_CHECK;
kvcl_status_t kvcl_evict_unpin(kvcl_evict_t *evict, uint32_t slot) KVCL_MUST_CHECK;

/** Take the next victim out of the order. Amortised O(1), pins or not. @return KVCL_OK, KVCL_ERR_NOT_FOUND (empty, or
 * all pinned). */
kvcl_status_t kvcl_evict_victim(kvcl_evict_t *evict, uint32_t *slot_p) KVCL_MUST_CHECK;

/** The next victims if nothing is used meanwhile, the next one first, at most @a max; none is pinned. Nothing changes.
 * @return how many. */
uint32_t kvcl_evict_peek(const kvcl_evict_t *evict, uint32_t *slots, uint32_t max);

/** Take a slot out, pinned or not, without remembering it. @return KVCL_OK, KVCL_ERR_NOT_FOUND,
 * KVCL_ERR_OUT_OF_RANGE. */
kvcl_status_t kvcl_evict_remove(kvcl_evict_t *evict, uint32_t slot) KVCL_MUST_CHECK;

/** Slots in the order. */
uint32_t kvcl_evict_count(const kvcl_evict_t *evict);

/** Invariant checker for tests and debug builds. */
bool kvcl_evict_check(const kvcl_evict_t *evict);

#endif
