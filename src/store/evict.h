/*
 * Which slot to give up next. A pure order over the slots of one owner.
 *
 * S3-FIFO (Yang, Zhang, Qiu, Yue, Vinayak: "FIFO queues are all you need for cache eviction",
 * SOSP'23): new blocks enter a small FIFO (a tenth of the slots); what is touched there twice moves
 * to the main FIFO, the rest leaves and its hash is remembered in a ghost list; a hash that comes
 * back while remembered enters main at once. Main is a FIFO with re-insertion (a CLOCK of 2 bits).
 * A touch is one saturating increment, no list is moved. LRU is here as well, as the yardstick.
 *
 * Children before parents: a block of a prefix chain is useless without its ancestors, so callers
 * insert and touch a chain TAIL FIRST. Then ancestors are younger than their descendants and have
 * been touched at least as often, which makes LRU give up leaves first always, and S3-FIFO whenever
 * a chain came in together. A caller that must be exact withdraws the descendants of a victim.
 *
 * Owns: nothing; the memory is the caller's (kvcl_evict_bytes). No allocation per operation, no
 * clock. One thread at a time (the owner's lock). Invariant: a slot is in at most one queue.
 */
#ifndef KVCL_STORE_EVICT_H
#define KVCL_STORE_EVICT_H

#include "kvcl/kvcl_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { KVCL_EVICT_S3FIFO = 0, KVCL_EVICT_LRU = 1 } kvcl_evict_policy_t;

typedef struct kvcl_evict_node {
    uint64_t hash;
    uint32_t prev;
    uint32_t next;
    uint32_t pins;
    uint8_t  queue; /* 0 out, 1 small, 2 main */
    uint8_t  freq;  /* 0..3 */
    uint16_t reserved;
} kvcl_evict_node_t;

/* A remembered hash: its high half, and the ghost clock when it left. */
typedef struct kvcl_evict_ghost {
    uint32_t tag;
    uint32_t when;
} kvcl_evict_ghost_t;

typedef struct kvcl_evict_queue {
    uint32_t head; /* youngest */
    uint32_t tail;
    uint32_t n;
} kvcl_evict_queue_t;

typedef struct kvcl_evict {
    kvcl_evict_policy_t policy;
    uint32_t            n_slots;
    uint32_t            small_max;
    kvcl_evict_node_t  *nodes;
    kvcl_evict_ghost_t *ghosts;
    uint32_t            ghost_sets; /* power of two, of 4 */
    uint32_t            ghost_life; /* evictions after which a ghost is forgotten */
    uint32_t            ghost_clock;
    kvcl_evict_queue_t  queue[3]; /* [0] unused */
} kvcl_evict_t;

/** Bytes of memory for @a n_slots slots: about 40 a slot. */
size_t kvcl_evict_bytes(uint32_t n_slots);

/** Empty order over slots 0..n_slots-1, in @a mem (aligned to 8, kvcl_evict_bytes long, the caller's).
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM. */
kvcl_status_t kvcl_evict_init(kvcl_evict_t *evict, kvcl_evict_policy_t policy, uint32_t n_slots,
                              void *mem, size_t bytes) KVCL_MUST_CHECK;

/** A slot got a block; @a hash is 64 bits of its key. @return KVCL_OK, KVCL_ERR_EXISTS (is in the
 * order), KVCL_ERR_OUT_OF_RANGE. */
kvcl_status_t kvcl_evict_insert(kvcl_evict_t *evict, uint32_t slot, uint64_t hash) KVCL_MUST_CHECK;

/** The block was used. Nothing happens if the slot is not in the order. */
void kvcl_evict_touch(kvcl_evict_t *evict, uint32_t slot);

/** Pins count; a pinned slot is never a victim. @return KVCL_OK, KVCL_ERR_NOT_FOUND (not in the
 * order), KVCL_ERR_OUT_OF_RANGE, KVCL_ERR_INVALID_PARAM (unpin without pin). */
kvcl_status_t kvcl_evict_pin(kvcl_evict_t *evict, uint32_t slot) KVCL_MUST_CHECK;
kvcl_status_t kvcl_evict_unpin(kvcl_evict_t *evict, uint32_t slot) KVCL_MUST_CHECK;

/** Take the next victim out of the order. Amortised O(1) without pins. @return KVCL_OK,
 * KVCL_ERR_NOT_FOUND (empty, or all pinned). */
kvcl_status_t kvcl_evict_victim(kvcl_evict_t *evict, uint32_t *slot_p) KVCL_MUST_CHECK;

/** Slots that are likely to be the next victims, the next one first, at most @a max; none is pinned. Nothing changes.
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
