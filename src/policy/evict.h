/*
 * Which slot to give up next. A pure order over the slots of one owner.
 *
 * Three lists in order of use: NEW, blocks that were not used since they came; BACK, the same, but they had been here
 * lately and had left; USED, the others. A block's age is how many uses and arrivals came after its last use. A used
 * one may grow `keep` times as old as a new one, one that came back 15/16 of that; of the oldest of each list, the one
 * that has outlived its time most is the next victim. So a scan passes through, what was hot once does not stay for
 * ever, and keep = 1 would be LRU. `keep` begins at its least, 21/16, and learns, as the border of ARC does (Megiddo,
 * Modha, FAST'03): what left is remembered (ghosts.h), the last n_slots of those that left NEW, and as many others; one
 * of the others that comes back raises it, one that had left NEW lowers it. How often a block was used does not
 * matter, only that it was: one request tells the order two or three times of each block (match, get, put), and a
 * count would be of those. contrib/bench/policies compares it with others.
 *
 * Children before parents: a block of a prefix chain is useless without its ancestors, so callers insert and touch a
 * chain TAIL FIRST, and who puts the end of a chain has used its beginning shortly before (by the match that found it).
 * Then a parent is younger than its child, and in the same list or in one that may grow older; or the child came after
 * the parent's use, which made the parent USED: then it may grow older than its child by a sixteenth at least, and that
 * is more than the moment between the two, unless requests are nearly as long as the pool. It follows that no block
 * goes while one is here that came after it in its chain: the oldest of the child's list is at least as old as the
 * child, so it goes first. This holds for what one owner holds. A caller that puts the ends of chains whose beginnings
 * it never used leaves parents that are older than their children.
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
    uint8_t  queue; /* 0 out, 1 new, 2 came back, 3 used, 4 set aside: pinned, and met where the next one goes */
    uint8_t  back;  /* set aside: the queue it was in */
    uint8_t  uses;  /* since it came, 0..3; a tenant's own order takes them back (tenants.c) */
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
