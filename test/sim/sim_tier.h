/*
 * Shared by the files of sim_tier: the state of a run, and the owner's steps.
 */
#ifndef SIM_TIER_H
#define SIM_TIER_H

#include "base/rand.h"
#include "dir/slots.h"
#include "dir/table.h"
#include "policy/evict.h"

enum { KEYS = 8, POOL = 3, STAGES = 2, PLACES = 4, WORDS = 4, GETS = 4, PUTS = 2, CELLS = 130, STEPS = 3000 };
enum { IN_TIER = 0, IN_POOL = 1, IN_STAGE = 2 }; /* a location's cache */

typedef enum {
    BREAK_NOTHING,
    BREAK_DEMOTE_UNCHECKED, /* the generation is not checked after the copy into the tier */
    BREAK_STAGE_UNVERIFIED, /* bytes from the disk are not compared with their checksum */
    BREAK_TRUST_PLACE,      /* the block now at a place is taken for the block that was listed */
    BREAK_RECYCLE_QUIETLY,  /* a staging block is reused under the same generation */
    BREAK_END
} break_t;
typedef struct block {
    uint64_t words[WORDS];
    uint32_t touched;
} block_t;

typedef struct side {
    kvcl_slots_t     slots;
    kvcl_slot_t      array[POOL];
    _Atomic uint32_t gens[POOL];
    block_t          blocks[POOL];
} side_t;

typedef struct place {
    bool     live;
    unsigned key;
    uint32_t gen;
    uint64_t sum, words[WORDS];
} place_t;

typedef struct put {
    bool           busy;
    unsigned       key, i;
    uint32_t       slot;
    bool           promotes;
    kvcl_dir_loc_t from; /* the staging block */
    uint64_t       words[WORDS];
} put_t;

typedef struct stage {
    bool           reading;
    unsigned       key, i, users;
    kvcl_dir_loc_t at; /* in the tier */
} stage_t;

typedef struct get {
    enum { IDLE, WAIT, COPY } state;
    unsigned       key, i;
    uint32_t       touched;
    bool           holds;
    kvcl_dir_loc_t loc;
    uint64_t       words[WORDS];
} get_t;

typedef struct sim_tier {
    uint64_t         seed, step;
    kvcl_rand_t      rnd;
    break_t          broken;
    bool             failed;
    side_t           sides[3]; /* [IN_TIER] unused */
    kvcl_evict_t     evict;
    uint64_t         evict_mem[256];
    kvcl_dir_table_t table;
    _Alignas(64) uint8_t table_mem[KVCL_DIR_HEADER_BYTES + (CELLS * KVCL_DIR_ENTRY_BYTES)];
    place_t          places[PLACES];
    unsigned         next_place;
    uint32_t         next_gen;
    struct {
        enum { REST, SUM, WRITE } state;
        unsigned key, i, place;
        uint32_t slot, gen;
        uint64_t sum, words[WORDS];
    } demote;
    put_t            puts[PUTS];
    stage_t          stages[STAGES];
    get_t            gets[GETS];
} sim_tier_t;

extern sim_tier_t sim;

typedef struct sim_tier_counts {
    uint64_t hits[3], demoted, lost, flipped, refused, promoted, stale;
} sim_tier_counts_t;

extern sim_tier_counts_t n; /* of all seeds */

unsigned       below(unsigned limit);
void           internal(const char *what); /* a fault of the simulator itself: exits */
uint64_t       word_of(unsigned key, unsigned i);
kvcl_key_t     key_bytes(unsigned key);
kvcl_dir_loc_t loc_of(unsigned cache, uint32_t slot, uint32_t gen, uint64_t sum);
void           unlist(unsigned key, const kvcl_dir_loc_t *loc);
bool           gen_is(unsigned cache, uint32_t slot, uint32_t gen);
bool           same_place(const kvcl_dir_loc_t *a, const kvcl_dir_loc_t *b);

/* The owner (sim_tier_owner.c). */
void put_step(put_t *put);
void demote_step(void);
bool begin_stage(const get_t *get); /* false: the tier does not have the block any more */
void stage_step(uint32_t slot);

#endif
