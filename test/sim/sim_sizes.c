/*
 * Pools of several block sizes, and readers: a simulator of slabs that pass from one size to another, word by word.
 *
 *   sim_sizes [--seeds N] [--seed S] [--break NAME]
 *
 *  NoWrongBytes      the bytes that a reader accepts for a key, and those a copy is published with, are the key's:
 *                    never another key's or another size's.
 *  NoReadAfterReuse  no byte that a reader accepts was written while it was read.
 *  Whole             after each step slabs, slots and eviction orders pass their own checkers.
 *
 * Real are slabs.c, the slots with their generations, and the eviction order; sizes and arenas are random. Modelled are
 * the bytes (one word is read or written per step), the pool's steps over them (sim_sizes_pool.c), and puts, copies
 * from rank to rank and gets, each of which may pause for long. Readers begin at any of the last PAST locations ever
 * published, mostly ones whose slab has passed to another size since. They copy first, then check only the generation,
 * as in a store without checksums. An owner that serves a reader does the same, and holds nothing meanwhile. A seed
 * replays exactly.
 */
#include "config.h"

#include "sim_args.h"
#include "sim_sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const break_names[] = {"nothing", "same-generation", "vacate-filling", "forget-border",
                                          "copy-unchecked", "compare-first", "late-generation"};

sim_sizes_t        sim;
sim_sizes_counts_t n;

unsigned below(unsigned limit)
{
    return (unsigned)kvcl_rand_below(&sim.rnd, limit);
}

void internal(const char *what)
{
    fprintf(stderr, "sim_sizes: seed %" PRIu64 " step %" PRIu64 ": %s\n", sim.seed, sim.step, what);
    exit(2);
}

static void fail(const char *invariant, const char *what, unsigned key)
{
    if (!sim.failed) {
        printf("seed %" PRIu64 " step %" PRIu64 ": %s: %s (key %u)\n", sim.seed, sim.step, invariant, what, key);
        printf("replay: sim_sizes --seed %" PRIu64 " --seeds 1 --break %s\n", sim.seed, break_names[sim.broken]);
    }
    sim.failed = true;
}

uint64_t word_of(unsigned key, uint32_t i)
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

static class_t *class_at(const place_t *at)
{
    return &sim.pools[at->rank].classes[class_of(at->key)];
}

static bool gen_is(const place_t *at)
{
    return kvcl_slots_gen_is(&class_at(at)->gens[at->slot], at->gen);
}

/* ---- puts and copies ---- */

/* Fill the next word. False: the source of a copy is gone. */
static bool fill_word(fill_t *fill)
{
    unsigned cls  = class_of(fill->key);
    uint64_t word = word_of(fill->key, fill->i);

    if (fill->copies) {
        const pool_t *from = &sim.pools[fill->from.rank];
        fill->touched = (fill->i == 0) ? pool_touched(from, cls, fill->from.slot) : fill->touched;
        word          = pool_read(from, cls, fill->from.slot, fill->i);
    }
    pool_write(&sim.pools[fill->rank], cls, fill->slot, fill->i++, word);
    return !fill->copies || (below(50) != 0) || gen_is(&fill->from);
}

static void abort_fill(fill_t *fill)
{
    if (kvcl_slots_abort(&sim.pools[fill->rank].classes[class_of(fill->key)].slots, fill->slot) != KVCL_OK) {
        fail("Whole", "a block that is being filled is not the filler's", fill->key);
    }
    fill->busy = false;
}

/* All bytes are written; those of a copy have been checked. */
static void end_fill(fill_t *fill)
{
    pool_t   *pool = &sim.pools[fill->rank];
    unsigned cls   = class_of(fill->key);
    uint32_t i;

    if ((fill->copies && (sim.broken != BREAK_COPY_UNCHECKED) && !gen_is(&fill->from)) ||
        (pool_find(pool, fill->key) != KVCL_SLOT_NONE) || (below(16) == 0)) {
        abort_fill(fill);
        ++n.late;
        return;
    }
    for (i = 0; i < pool->classes[cls].size; ++i) {
        if (pool_read(pool, cls, fill->slot, i) != word_of(fill->key, i)) {
            fail("NoWrongBytes", "a block is published with other bytes than its key's", fill->key);
            return;
        }
    }
    if (fill->copies && (pool_touched(&sim.pools[fill->from.rank], cls, fill->from.slot) != fill->touched)) {
        fail("NoReadAfterReuse", "the source of a copy was written meanwhile", fill->key);
    }
    pool_publish(fill->rank, fill->slot, fill->key);
    n.copies += fill->copies ? 1 : 0;
    n.puts   += fill->copies ? 0 : 1;
    fill->busy = false;
}

static void begin_fill(fill_t *fill)
{
    bool     copies = (sim.n_past != 0) && (below(3) == 0);
    place_t  from   = sim.past[copies ? below((sim.n_past < PAST) ? sim.n_past : PAST) : 0];
    unsigned rank   = copies ? 1 - from.rank : below(RANKS), key = copies ? from.key : below(KEYS);
    uint32_t held   = pool_find(&sim.pools[rank], key);

    if (held != KVCL_SLOT_NONE) {
        kvcl_evict_touch(&sim.pools[rank].classes[class_of(key)].evict, held);
        kvcl_slabs_use(&sim.pools[rank].slabs, class_of(key), held);
        return;
    }
    *fill      = (fill_t){.copies = copies, .rank = rank, .key = key, .from = from};
    fill->busy = pool_take(&sim.pools[rank], class_of(key), &fill->slot);
    n.no_room += fill->busy ? 0 : 1;
}

static void fill_step(fill_t *fill)
{
    if (!fill->busy) {
        begin_fill(fill);
    } else if (fill->i == sim.pools[fill->rank].classes[class_of(fill->key)].size) {
        end_fill(fill);
    } else if (!fill_word(fill)) {
        abort_fill(fill);
    }
}

/* ---- readers ---- */

static void begin_read(reading_t *read)
{
    kvcl_key_t key;

    if (sim.n_past == 0) {
        return;
    }
    read->at     = sim.past[below((sim.n_past < PAST) ? sim.n_past : PAST)];
    read->i      = 0;
    read->served = (below(4) == 0);
    key          = key_bytes(read->at.key);
    read->early  = gen_is(&read->at);
    read->busy   = !read->served ||
                   (kvcl_slots_check(&class_at(&read->at)->slots, read->at.slot, read->at.gen, &key) == KVCL_OK);
}

/* All words have been read: the generation decides whether they are accepted. */
static void end_read(reading_t *read)
{
    class_t  *c    = class_at(&read->at);
    bool     taken = (sim.broken == BREAK_COMPARE_FIRST) ? read->early : gen_is(&read->at);
    uint32_t i;

    read->busy = false;
    for (i = 0; taken && (i < c->size); ++i) {
        if (read->words[i] != word_of(read->at.key, i)) {
            fail("NoWrongBytes", "a reader took other bytes than its key's", read->at.key);
            return;
        }
    }
    if (taken && (pool_touched(&sim.pools[read->at.rank], class_of(read->at.key), read->at.slot) != read->touched)) {
        fail("NoReadAfterReuse", "a block was written while it was read", read->at.key);
    }
    n.served       += (taken && read->served) ? 1 : 0;
    n.served_stale += (!taken && read->served) ? 1 : 0;
    n.right        += (taken && !read->served) ? 1 : 0;
    n.stale        += taken ? 0 : 1;
}

static void read_step(reading_t *read)
{
    pool_t   *pool = &sim.pools[read->at.rank];
    unsigned cls   = class_of(read->at.key);

    if (!read->busy) {
        begin_read(read);
    } else if (read->i == pool->classes[cls].size) {
        end_read(read);
    } else {
        read->touched        = (read->i == 0) ? pool_touched(pool, cls, read->at.slot) : read->touched;
        read->words[read->i] = pool_read(pool, cls, read->at.slot, read->i);
        ++read->i;
    }
}

/* ---- all other events of blocks ---- */

static void pool_step(void)
{
    pool_t   *pool = &sim.pools[below(RANKS)];
    unsigned cls   = below(sim.n);
    class_t  *c    = &pool->classes[cls];
    uint32_t slot  = below(c->slots.n), tries;

    for (tries = 0; (tries < 8) && (c->array[slot].state != KVCL_SLOT_PUBLISHED); ++tries) {
        slot = below(c->slots.n);
    }
    switch (below(6)) {
    case 0:
        (void)pool_withdraw(pool, cls, slot, KVCL_SLOT_FREE); /* removed; nothing happens if it is absent */
        break;
    case 1:
        if ((c->array[slot].state == KVCL_SLOT_PUBLISHED) && (below(4) == 0)) {
            (void)!kvcl_evict_pin(&c->evict, slot);
        }
        break;
    case 2:
    case 3:
        if ((c->array[slot].state == KVCL_SLOT_PUBLISHED) && (c->evict.nodes[slot].pins != 0)) {
            (void)!kvcl_evict_unpin(&c->evict, slot);
        }
        break;
    default:
        (void)pool_grow(pool, cls, below(2) == 0);
        break;
    }
}

static void start(uint64_t seed)
{
    uint64_t sizes[CLASSES];
    unsigned i, j;

    memset(sim.pools, 0, sizeof(sim.pools));
    memset(sim.fills, 0, sizeof(sim.fills));
    memset(sim.reads, 0, sizeof(sim.reads));
    sim.seed   = seed;
    sim.step   = 0;
    sim.n_past = 0;
    kvcl_rand_seed(&sim.rnd, seed);
    sim.n = 2 + below(CLASSES - 1);
    for (i = 0; i < sim.n; ++i) {
        do {
            sizes[i] = 1 + below(SIZE_MAX_WORDS);
            for (j = 0; (j < i) && (sizes[j] != sizes[i]); ++j) {
            }
        } while (j < i);
    }
    for (i = 0; i < RANKS; ++i) {
        pool_open(i, sizes, (4 * sim.n * SIZE_MAX_WORDS) + below(ARENA / 2));
    }
}

static bool run_seed(uint64_t seed)
{
    unsigned i, what;

    start(seed);
    for (; (sim.step < STEPS) && !sim.failed; ++sim.step) {
        what = below(100);
        if (what < 45) {
            fill_step(&sim.fills[below(FILLS)]);
        } else if (what < 92) {
            read_step(&sim.reads[below(READS)]);
        } else {
            pool_step();
        }
        for (i = 0; (i < RANKS) && !sim.failed; ++i) {
            if (!pool_holds(&sim.pools[i])) {
                fail("Whole", "a checker found a contradiction", 0);
            }
        }
    }
    for (i = 0; i < RANKS; ++i) {
        pool_close(&sim.pools[i]);
    }
    return !sim.failed;
}

/* A simulator in which some event never happens proves nothing. */
static bool all_happened(void)
{
    return (n.right != 0) && (n.served != 0) && (n.stale != 0) && (n.puts != 0) && (n.copies != 0) && (n.late != 0) &&
           (n.taken != 0) && (n.refused != 0) && (n.served_stale != 0) && (n.evicted != 0);
}

int main(int argc, char **argv)
{
    sim_args_t args = {.first = 1, .seeds = 1000};
    uint64_t   i;

    if (!sim_args_take(&args, argc, argv, "sim_sizes", break_names, BREAK_END)) {
        return 2;
    }
    sim.broken = (break_t)args.broken;
    for (i = 0; i < args.seeds; ++i) {
        if (!run_seed(args.first + i)) {
            return 1;
        }
    }
    printf("%" PRIu64 " seeds: %" PRIu64 " reads and %" PRIu64 " served reads right, %" PRIu64 " stale; %" PRIu64
           " puts, %" PRIu64 " copies, %" PRIu64 " that came too late or failed, %" PRIu64 " found no room\n",
           args.seeds, n.right, n.served, n.stale, n.puts, n.copies, n.late, n.no_room);
    printf("%" PRIu64 " slabs went to another size, %" PRIu64 " were refused; %" PRIu64 " blocks evicted, %" PRIu64
           " withdrawn while they were served\n", n.taken, n.refused, n.evicted, n.served_stale);
    if ((args.seeds >= 1000) && !all_happened()) {
        printf("something never happened\n");
        return 1;
    }
    return 0;
}
