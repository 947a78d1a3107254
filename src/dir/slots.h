/*
 * The owner's side of a cache: what each slot holds, and its generation word.
 *
 *   FREE --alloc--> FILLING --publish--> PUBLISHED --withdraw--> FREE or FILLING
 *                      |
 *                      +--abort--> FREE
 *
 * The rule that makes reads safe without a lease: the generation word of a slot is bumped, and a
 * full fence passed, BEFORE any byte of a published slot may change (kvcl_slots_withdraw). A reader
 * (one-sided, or the owner for a peer) copies the bytes, then reads the word
 * (kvcl_slots_gen_is): equal to the location's gen means that the copy is that block. Readers hold
 * no lease: a slot may be withdrawn and reused while they copy, and the word shows it. A (slot, gen) pair
 * names one content only, until 2^32 withdrawals of one slot; gen 0 never occurs.
 *
 * Owns: nothing; both arrays are the caller's. The words lie in memory that peers map; the slot
 * records are private. One thread at a time calls anything but kvcl_slots_gen_is (the caller's
 * lock). No I/O, no clock, no allocation. A wrong transition returns a status and changes nothing.
 */
#ifndef KVCL_DIR_SLOTS_H
#define KVCL_DIR_SLOTS_H

#include "dir/entry.h"
#include "kvcl/kvcl_status.h"

#include <stdatomic.h>
#include <stdbool.h>

#define KVCL_SLOT_NONE UINT32_MAX

typedef enum {
    KVCL_SLOT_FREE      = 0,
    KVCL_SLOT_FILLING   = 1, /* the owner writes its bytes; no location names it */
    KVCL_SLOT_PUBLISHED = 2
} kvcl_slot_state_t;

/* Private to slots.c but for key, sum, state and flags, which may be read, and note. */
typedef struct kvcl_slot {
    kvcl_key_t key;   /* while PUBLISHED */
    uint64_t   sum;   /* PUBLISHED: of the location, if flags say KVCL_LOC_SUMMED */
    uint32_t   prev;  /* free list */
    uint32_t   next;
    uint8_t    state; /* kvcl_slot_state_t */
    uint8_t    flags; /* PUBLISHED: of the location */
    uint8_t    note;  /* the caller's; 0 when published */
} kvcl_slot_t;

typedef struct kvcl_slots {
    _Atomic uint32_t *gens;  /* one word a slot, read by peers */
    kvcl_slot_t      *slots;
    uint32_t          n;
    uint32_t          free_head;
    uint32_t          free_tail;
    uint32_t          n_free;
    uint32_t          n_published;
    uint16_t          rank; /* what publish writes into a location */
    uint16_t          incarnation;
    uint16_t          cache;
} kvcl_slots_t;

/**
 * All @a n slots FREE, every generation @a first_gen (0 is taken as 1; a random one is a second
 * line of defence against locations of an earlier process). Both arrays have @a n elements, stay
 * the caller's and must outlive @a slots.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM.
 */
kvcl_status_t kvcl_slots_init(kvcl_slots_t *slots, _Atomic uint32_t *gens, kvcl_slot_t *array,
                              uint32_t n, uint16_t rank, uint16_t incarnation, uint16_t cache,
                              uint32_t first_gen) KVCL_MUST_CHECK;

/** FREE -> FILLING, the slot that was free longest. @return KVCL_OK, KVCL_ERR_NO_SPACE. */
kvcl_status_t kvcl_slots_alloc(kvcl_slots_t *slots, uint32_t *slot_p) KVCL_MUST_CHECK;

/** FREE -> FILLING of a slot that the caller chose (an engine's own block id).
 * @return KVCL_OK, KVCL_ERR_BUSY (not FREE), KVCL_ERR_OUT_OF_RANGE. */
kvcl_status_t kvcl_slots_take(kvcl_slots_t *slots, uint32_t slot) KVCL_MUST_CHECK;

/** FILLING -> FREE: the bytes were not finished. @return KVCL_OK, KVCL_ERR_BUSY, KVCL_ERR_OUT_OF_RANGE. */
kvcl_status_t kvcl_slots_abort(kvcl_slots_t *slots, uint32_t slot) KVCL_MUST_CHECK;

/**
 * FILLING -> PUBLISHED; every byte must have been written before (a fence makes them visible
 * first). Fills *@a loc_p, ready to be sent to the key's home.
 * @return KVCL_OK, KVCL_ERR_BUSY (not FILLING), KVCL_ERR_OUT_OF_RANGE, KVCL_ERR_INVALID_PARAM (flags).
 */
kvcl_status_t kvcl_slots_publish(kvcl_slots_t *slots, uint32_t slot, const kvcl_key_t *key,
                                 uint16_t flags, uint32_t len, uint64_t checksum,
                                 kvcl_dir_loc_t *loc_p) KVCL_MUST_CHECK;

/**
 * PUBLISHED -> @a next (KVCL_SLOT_FREE or KVCL_SLOT_FILLING): the generation is bumped before this
 * returns, so from here on no reader accepts the bytes.
 * @return KVCL_OK: the bytes may be touched (FILLING) or the slot allocated again (FREE).
 *         KVCL_ERR_BUSY: not PUBLISHED. KVCL_ERR_OUT_OF_RANGE, KVCL_ERR_INVALID_PARAM.
 */
kvcl_status_t kvcl_slots_withdraw(kvcl_slots_t *slots, uint32_t slot, kvcl_slot_state_t next) KVCL_MUST_CHECK;

/** May a peer have the requested block: slot PUBLISHED under @a gen, holding @a key?
 * @return KVCL_OK, KVCL_ERR_STALE (no longer, or other key), KVCL_ERR_OUT_OF_RANGE. */
kvcl_status_t kvcl_slots_check(const kvcl_slots_t *slots, uint32_t slot, uint32_t gen,
                               const kvcl_key_t *key) KVCL_MUST_CHECK;

/** The generation word of @a slot (below n) now. */
uint32_t kvcl_slots_gen(const kvcl_slots_t *slots, uint32_t slot);

/** Invariant checker for tests and debug builds. */
bool kvcl_slots_check_all(const kvcl_slots_t *slots);

/** A reader, AFTER it copied the bytes: was the slot under @a gen all the while? @a word is
 * the slot's word in the owner's mapped table. Any thread. A reader that fetches the word by RMA
 * must order that read after the bytes' completion, and compares itself. */
bool kvcl_slots_gen_is(const _Atomic uint32_t *word, uint32_t gen);

#endif
