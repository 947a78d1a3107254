/*
 * A pool, its second tier, and readers: a simulator of demotion, staging, promotion and eviction, word by word.
 *
 *   sim_tier [--seeds N] [--seed S] [--break NAME]
 *
 *  NoWrongBytes      the bytes that a reader accepts for a key are the key's.
 *  NoReadAfterReuse  no byte that a reader accepts was written while it was read.
 *
 * Real are the slots with their generations, the eviction order and the directory's table. Modelled are the bytes
 * (WORDS words a block, one read or written per step), the tier (a ring of places; the oldest is overwritten), its
 * disk, which flips bits, and the store's steps between them (cold/demote.c, cold/stage.c, get/get_stage.c). Readers
 * check generations only, as in a store without checksums. So does the demotion, which computes the checksum that the
 * tier keeps. A seed replays exactly.
 */
#include "config.h"

#include "sim_args.h"
#include "sim_tier.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const break_names[] = {"nothing", "demote-unchecked", "stage-unverified", "trust-place",
                                          "recycle-quietly"};

sim_tier_t        sim;
sim_tier_counts_t n;

unsigned below(unsigned limit)
{
    return (unsigned)kvcl_rand_below(&sim.rnd, limit);
}

void internal(const char *what)
{
    fprintf(stderr, "sim_tier: seed %" PRIu64 ": %s\n", sim.seed, what);
    exit(2);
}

static void fail(const char *invariant, const char *what, unsigned key)
{
    if (!sim.failed) {
        printf("seed %" PRIu64 " step %" PRIu64 ": %s: %s (key %u)\n", sim.seed, sim.step, invariant, what, key);
        printf("replay: sim_tier --seed %" PRIu64 " --seeds 1 --break %s\n", sim.seed, break_names[sim.broken]);
    }
    sim.failed = true;
}

uint64_t word_of(unsigned key, unsigned i)
{
    return ((key + 1) * UINT64_C(0x9e3779b97f4a7c15)) + i;
}

kvcl_key_t key_bytes(unsigned key)
{
    kvcl_key_t bytes = {{0}};

    bytes.bytes[0]  = (uint8_t)(key * 37);
    bytes.bytes[16] = (uint8_t)(key + 1);
    return bytes;
}

/* ---- the directory ---- */

void unlist(unsigned key, const kvcl_dir_loc_t *loc)
{
    kvcl_key_t bytes = key_bytes(key);

    (void)!kvcl_dir_table_remove(&sim.table, &bytes, loc);
}

kvcl_dir_loc_t loc_of(unsigned cache, uint32_t slot, uint32_t gen, uint64_t sum)
{
    return (kvcl_dir_loc_t){.rank = 0, .incarnation = 1, .cache = (uint16_t)cache, .slot = slot, .gen = gen, .len = 8,
                            .flags = (cache == IN_TIER) ? KVCL_DIR_TIER_NVME : KVCL_DIR_TIER_DRAM, .checksum = sum};
}

bool gen_is(unsigned cache, uint32_t slot, uint32_t gen)
{
    return kvcl_slots_gen_is(&sim.sides[cache].gens[slot], gen);
}

/* Whether the reader's block has been staged. */
static bool staged(const get_t *get, uint32_t *slot_p)
{
    uint32_t i;

    for (i = 0; i < STAGES; ++i) {
        if ((sim.sides[IN_STAGE].array[i].state == KVCL_SLOT_PUBLISHED) && (sim.stages[i].key == get->key) &&
            same_place(&sim.stages[i].at, &get->loc)) {
            *slot_p = i;
            return true;
        }
    }
    return false;
}

static bool is_read(const get_t *get)
{
    uint32_t i;

    for (i = 0; i < STAGES; ++i) {
        if (sim.stages[i].reading && (sim.stages[i].key == get->key) && same_place(&sim.stages[i].at, &get->loc)) {
            return true;
        }
    }
    return false;
}

/* ---- readers ---- */

static void get_begin(get_t *get)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    kvcl_key_t     bytes;
    unsigned       n_locs;

    get->key = below(KEYS);
    bytes    = key_bytes(get->key);
    n_locs   = kvcl_dir_table_find(&sim.table, &bytes, locs);
    if (n_locs == 0) {
        return;
    }
    get->loc   = locs[below(n_locs)];
    get->i     = 0;
    get->holds = false;
    get->state = (get->loc.cache == IN_TIER) ? WAIT : COPY;
    if ((get->state == WAIT) && !begin_stage(get)) {
        unlist(get->key, &get->loc);
        get->state = IDLE;
    }
}

static void get_wait(get_t *get)
{
    uint32_t slot;

    if (staged(get, &slot)) {
        ++sim.stages[slot].users;
        get->loc   = loc_of(IN_STAGE, slot, kvcl_slots_gen(&sim.sides[IN_STAGE].slots, slot), 0);
        get->holds = true;
        get->state = COPY;
    } else if (!is_read(get)) {
        get->state = IDLE; /* refused, or there was no room */
    }
}

static void get_end(get_t *get)
{
    unsigned i;

    get->state = IDLE;
    if (get->holds && gen_is(IN_STAGE, get->loc.slot, get->loc.gen) && (sim.stages[get->loc.slot].users > 0)) {
        --sim.stages[get->loc.slot].users;
    }
    if (!gen_is(get->loc.cache, get->loc.slot, get->loc.gen)) {
        ++n.stale;
        return;
    }
    for (i = 0; i < WORDS; ++i) {
        if (get->words[i] != word_of(get->key, i)) {
            fail("NoWrongBytes", get->holds ? "out of the tier" : "out of the pool", get->key);
        }
    }
    if (sim.sides[get->loc.cache].blocks[get->loc.slot].touched != get->touched) {
        fail("NoReadAfterReuse", get->holds ? "a staging block" : "a pool's block", get->key);
    }
    ++n.hits[get->loc.cache];
    if (get->loc.cache == IN_POOL) {
        kvcl_evict_touch(&sim.evict, get->loc.slot);
    }
}

static void get_step(get_t *get)
{
    const block_t *block = &sim.sides[get->loc.cache].blocks[get->loc.slot % POOL];

    if (get->state == IDLE) {
        get_begin(get);
    } else if (below(60) == 0) {
        get->state = IDLE; /* its deadline: a staging request or hold that it leaves behind stays */
    } else if (get->state == WAIT) {
        get_wait(get);
    } else if (get->i < WORDS) {
        get->touched       = (get->i == 0) ? block->touched : get->touched;
        get->words[get->i] = block->words[get->i];
        ++get->i;
    } else {
        get_end(get);
    }
}

/* ---- a run ---- */

static void start(uint64_t seed)
{
    break_t  broken = sim.broken;
    unsigned i;

    memset(&sim, 0, sizeof(sim));
    sim.broken = broken;
    sim.seed   = seed;
    kvcl_rand_seed(&sim.rnd, seed);
    if ((sizeof(sim.evict_mem) < kvcl_evict_bytes(POOL)) ||
        (kvcl_evict_init(&sim.evict, POOL, sim.evict_mem, sizeof(sim.evict_mem)) != KVCL_OK) ||
        (kvcl_dir_table_format(&sim.table, sim.table_mem, sizeof(sim.table_mem)) != KVCL_OK)) {
        internal("no start");
    }
    for (i = IN_POOL; i <= IN_STAGE; ++i) {
        if (kvcl_slots_init(&sim.sides[i].slots, sim.sides[i].gens, sim.sides[i].array, (i == IN_POOL) ? POOL : STAGES,
                            0, 1, (uint16_t)i, 1) != KVCL_OK) {
            internal("no slots");
        }
    }
}

static void flip(void)
{
    place_t *place = &sim.places[below(PLACES)];

    place->words[below(WORDS)] ^= UINT64_C(1) << below(64);
    ++n.flipped;
}

static bool run_seed(uint64_t seed)
{
    unsigned what;

    start(seed);
    for (sim.step = 0; (sim.step < STEPS) && !sim.failed; ++sim.step) {
        what = below(100);
        if (what < 25) {
            put_step(&sim.puts[below(PUTS)]);
        } else if (what < 45) {
            demote_step();
        } else if (what < 60) {
            stage_step(below(STAGES));
        } else if (below(200) == 0) {
            flip();
        } else {
            get_step(&sim.gets[below(GETS)]);
        }
    }
    if (!kvcl_slots_check_all(&sim.sides[IN_POOL].slots) || !kvcl_evict_check(&sim.evict) ||
        !kvcl_dir_table_check(&sim.table)) {
        internal("a part is not whole");
    }
    return !sim.failed;
}

int main(int argc, char **argv)
{
    sim_args_t args = {.first = 1, .seeds = 10000};
    uint64_t   i;

    if (!sim_args_take(&args, argc, argv, "sim_tier", break_names, BREAK_END)) {
        return 2;
    }
    sim.broken = (break_t)args.broken;
    for (i = 0; i < args.seeds; ++i) {
        if (!run_seed(args.first + i)) {
            return 1;
        }
    }
    printf("%" PRIu64 " seeds: %" PRIu64 " hits in the pool, %" PRIu64 " out of the tier, %" PRIu64 " demoted, %" PRIu64
           " lost on the way, %" PRIu64 " promoted, %" PRIu64 " stale, %" PRIu64 " bits flipped, %" PRIu64 " refused\n",
           args.seeds, n.hits[IN_POOL], n.hits[IN_STAGE], n.demoted, n.lost, n.promoted, n.stale, n.flipped, n.refused);
    return ((args.seeds >= 1000) && ((n.hits[IN_STAGE] == 0) || (n.lost == 0) || (n.refused == 0) || (n.stale == 0) ||
                                     (n.promoted == 0))) ? 1 : 0;
}
