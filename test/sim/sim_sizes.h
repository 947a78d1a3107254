/*
 * Shared by the files of sim_sizes: the state of a run, and a rank's pool.
 */
#ifndef SIM_SIZES_H
#define SIM_SIZES_H

#include "base/rand.h"
#include "dir/slots.h"
#include "policy/evict.h"
#include "policy/slabs.h"

enum { RANKS = 2, CLASSES = 4, ARENA = 512, SIZE_MAX_WORDS = 8, KEYS = 32, FILLS = 6, READS = 8, PAST = 96 };
enum { STEPS = 1500, TRIES = 8, LATE = 64 };

typedef enum {
    BREAK_NOTHING,
    BREAK_SAME_GENERATION, /* a slab is vacated, and its blocks' generations stay unchanged */
    BREAK_VACATE_FILLING,  /* a slab is vacated though a block in it is being filled */
    BREAK_FORGET_BORDER,   /* a block that crosses the slab's border is not evicted */
    BREAK_COPY_UNCHECKED,  /* a copy is published without a check of its source's generation */
    BREAK_COMPARE_FIRST,   /* readers check the generation before they copy, and not afterwards */
    BREAK_LATE_GENERATION, /* a vacated block gets its new generation only when the pool publishes again */
    BREAK_END
} break_t;

/* A class of a pool, like the owner of store/pool/owner.h. */
typedef struct class {
    kvcl_slots_t     slots;
    kvcl_slot_t      *array;
    _Atomic uint32_t *gens;
    kvcl_evict_t     evict;
    void             *evict_mem;
    uint32_t         size; /* words of a block */
} class_t;

/* A generation that is not visible yet. */
typedef struct late {
    _Atomic uint32_t *word;
    uint32_t         gen;
} late_t;

/* One step reads or writes one word of the arena. */
typedef struct pool {
    uint32_t     n_words;
    uint64_t     words[ARENA];
    uint32_t     touched[ARENA]; /* number of writes: for the invariants, no rank reads it */
    kvcl_slabs_t slabs;
    void         *slabs_mem;
    class_t      classes[CLASSES];
    late_t       late[LATE]; /* BREAK_LATE_GENERATION */
    unsigned     n_late;
} pool_t;

/* A location, as known to a directory or a reader, current or stale. */
typedef struct place {
    unsigned rank, key;
    uint32_t slot, gen;
} place_t;

/* A put, or a copy of the block at `from`. */
typedef struct fill {
    bool     busy, copies;
    unsigned rank, key;
    uint32_t slot, i;
    place_t  from;
    uint64_t touched; /* the source's count before its first word was read */
} fill_t;

typedef struct reading {
    bool     busy, served; /* served: by the owner, which holds nothing */
    bool     early;        /* BREAK_COMPARE_FIRST: the result of the comparison */
    place_t  at;
    uint32_t i;
    uint64_t touched;
    uint64_t words[SIZE_MAX_WORDS];
} reading_t;

typedef struct sim_sizes {
    uint64_t    seed, step;
    bool        failed;
    break_t     broken;
    kvcl_rand_t rnd;
    unsigned    n; /* classes */
    pool_t      pools[RANKS];
    fill_t      fills[FILLS];
    reading_t   reads[READS];
    unsigned    n_past;
    place_t     past[PAST];
} sim_sizes_t;

/* Counted over all seeds, to detect a simulator in which nothing happens. */
typedef struct sim_sizes_counts {
    uint64_t right, served, stale, puts, copies, late, taken, refused, served_stale, evicted, no_room;
} sim_sizes_counts_t;

extern sim_sizes_t        sim;
extern sim_sizes_counts_t n;

unsigned   below(unsigned limit);
void       internal(const char *what) __attribute__((noreturn));
uint64_t   word_of(unsigned key, uint32_t i);
kvcl_key_t key_bytes(unsigned key);

static inline unsigned class_of(unsigned key)
{
    return key % sim.n;
}

/* sim_sizes_pool.c */
void     pool_open(unsigned rank, const uint64_t *sizes, uint32_t n_words);
void     pool_close(pool_t *pool);
/** As kvcl_owner_take_for() of one block. False: there is no room. */
bool     pool_take(pool_t *pool, unsigned cls, uint32_t *slot_p);
/** As kvcl_pool_grow(). */
bool     pool_grow(pool_t *pool, unsigned cls, bool must);
void     pool_write(pool_t *pool, unsigned cls, uint32_t slot, uint32_t i, uint64_t word);
uint64_t pool_read(const pool_t *pool, unsigned cls, uint32_t slot, uint32_t i);
uint64_t pool_touched(const pool_t *pool, unsigned cls, uint32_t slot); /* number of writes into the block */
void     pool_publish(unsigned rank, uint32_t slot, unsigned key);
bool     pool_withdraw(pool_t *pool, unsigned cls, uint32_t slot, kvcl_slot_state_t next);
/** The slot in which a rank has the key, or KVCL_SLOT_NONE. */
uint32_t pool_find(const pool_t *pool, unsigned key);
bool     pool_holds(const pool_t *pool); /* its checkers do */

#endif
