/*
 * One arena for blocks of several sizes: the assignment of its parts to sizes. A pure state machine.
 *
 * The arena is divided into slabs. Each slab belongs to one class (a size of block) at a time, or is unowned. The
 * blocks of a class form one grid over the whole arena: block `id` is the bytes [id * size, (id + 1) * size), so a
 * block's address is a multiplication, independent of the slabs. A class may use the ids that are wholly in its slabs,
 * and an id across the border of two slabs if it has both. Bytes are lost only between slabs of different classes, less
 * than a block on each side, and a class preferably gets slabs next to those that it has.
 *
 * Balance: a class that lacks room takes an unowned slab, or else an empty one, or else one of the class whose blocks
 * were used longest ago, by the mean over its blocks, if that is clearly longer than its own mean; otherwise it evicts
 * its own blocks. Time counts the bytes that were published. Each class has a slab from the start and always keeps one,
 * so other sizes, pinned or not, never shut a size out.
 *
 * A slab changes hands in one step, when none of its blocks is published, being filled or being read. The caller
 * ensures that (evicting bumps each block's generation before the new class may write a byte), and refuses a slab where
 * it cannot. Owns: nothing; the memory is the caller's. No lock, no clock, no allocation.
 */
#ifndef KVCL_POLICY_SLABS_H
#define KVCL_POLICY_SLABS_H

#include "kvcl/kvcl_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KVCL_SLABS_CLASSES_MAX = 8, KVCL_SLAB_NOBODY = 0xff };

#define KVCL_SLAB_NONE UINT32_MAX

typedef struct kvcl_slab {
    uint8_t  owner;    /* a class, or KVCL_SLAB_NOBODY */
    uint32_t refused;  /* the round in which it was */
    uint32_t n_used;   /* published blocks that begin in it */
    uint64_t sum_used; /* and when they were used, added up */
} kvcl_slab_t;

typedef struct kvcl_slab_class {
    uint64_t block_bytes;
    uint32_t n_ids;    /* in the whole arena */
    uint32_t n_slabs;  /* that it has */
    uint32_t n_room;   /* blocks that lie in those */
    uint32_t n_used;   /* of them published */
    uint32_t n_empty;  /* slabs in which none of those begins */
    uint64_t sum_used;
    uint32_t evicted;  /* since it looked at others' slabs */
    uint32_t *used;    /* by id: when; 0: not published */
} kvcl_slab_class_t;

typedef struct kvcl_slabs {
    uint64_t          arena_bytes;
    uint64_t          slab_bytes;
    uint32_t          n;
    uint32_t          n_free;  /* unowned slabs */
    unsigned          n_classes;
    uint32_t          round;
    uint32_t          hand;    /* kvcl_slabs_next() goes on there */
    uint64_t          now;     /* bytes published */
    uint64_t          unit;    /* the unit of times, in bytes */
    kvcl_slab_t       *slabs;
    uint32_t          *room;   /* by slab and class: blocks it has there, or would have if the slab were its own */
    kvcl_slab_class_t classes[KVCL_SLABS_CLASSES_MAX];
} kvcl_slabs_t;

/* Ids from first up to, not with, end. */
typedef struct kvcl_slab_ids {
    uint32_t first, end;
} kvcl_slab_ids_t;

/** How large a slab is for an arena and these sizes; 0: the arena is too small for them, or a size is 0 or there twice.
 * Where every size divides one slab nothing is lost at all; such a slab is taken if there is one not too large. */
uint64_t kvcl_slabs_slab_bytes(uint64_t arena_bytes, const uint64_t *sizes, unsigned n);

/** Bytes of memory for kvcl_slabs_init: 4 an id, 24 a slab, 4 a slab and class. 0 as above. */
size_t kvcl_slabs_bytes(uint64_t arena_bytes, const uint64_t *sizes, unsigned n);

/** Each class gets one slab, far from those of the other classes; the remaining slabs are unowned. mem: aligned to 8.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (a size is 0 or listed twice, or there is no room for two slabs a class). */
kvcl_status_t kvcl_slabs_init(kvcl_slabs_t *slabs, uint64_t arena_bytes, const uint64_t *sizes, unsigned n, void *mem,
                              size_t bytes) KVCL_MUST_CHECK;

/** The largest number of blocks that a class can ever have: the other classes keep a slab each. */
uint64_t kvcl_slabs_most(const kvcl_slabs_t *slabs, unsigned cls);
/** The number of slabs that the class could take now without evicting: unowned ones, and empty ones of others. */
uint32_t kvcl_slabs_spare(const kvcl_slabs_t *slabs, unsigned cls);

/** Ids of a class that touch a slab, whichever class owns it. */
kvcl_slab_ids_t kvcl_slabs_ids(const kvcl_slabs_t *slabs, uint32_t slab, unsigned cls);
/** Is this id wholly in slabs of its class? */
bool            kvcl_slabs_has(const kvcl_slabs_t *slabs, unsigned cls, uint32_t id);

/** The block was published, or is used. */
void kvcl_slabs_use(kvcl_slabs_t *slabs, unsigned cls, uint32_t id);
/** It is no longer published. */
void kvcl_slabs_removed(kvcl_slabs_t *slabs, unsigned cls, uint32_t id);

/** n_evicted blocks are about to be evicted for room in their class. @return whether to try another class's slab. */
bool     kvcl_slabs_due(kvcl_slabs_t *slabs, unsigned cls, uint32_t n_evicted);
/** A new round of choosing: what was refused may be chosen again. */
void     kvcl_slabs_round(kvcl_slabs_t *slabs);
/** The slab that the class should take next, or KVCL_SLAB_NONE: evict within the class. must: no block of the class can
 * be evicted, so the slab of another class is chosen at any age. Changes nothing. */
uint32_t kvcl_slabs_choose(const kvcl_slabs_t *slabs, unsigned cls, bool must);
/** The next slab, in round-robin order, that the class could take; KVCL_SLAB_NONE: all were refused. Faster than
 * kvcl_slabs_choose() where many slabs are refused: it does not compare all of them each time. */
uint32_t kvcl_slabs_next(kvcl_slabs_t *slabs, unsigned cls);
/** The slab cannot be taken now. */
void     kvcl_slabs_refuse(kvcl_slabs_t *slabs, uint32_t slab);
/** Assign the slab to the class; the ids of its former class that touch it must be unpublished and out of use. *got_p:
 * the ids that the class gained; lost_p: those that the former class lost (may be empty). Both include ids across the
 * slab's borders. */
void     kvcl_slabs_give(kvcl_slabs_t *slabs, uint32_t slab, unsigned cls, kvcl_slab_ids_t *got_p,
                         kvcl_slab_ids_t *lost_p);

/** Invariant checker for tests. */
bool kvcl_slabs_check(const kvcl_slabs_t *slabs);

#endif
