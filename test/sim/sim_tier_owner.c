/*
 * The owner of sim_tier: puts, eviction, demotion, staging, promotion, one word per step.
 */
#include "config.h"

#include "sim_tier.h"

static uint64_t sum_of(const uint64_t *words)
{
    uint64_t sum = 1;
    unsigned i;

    for (i = 0; i < WORDS; ++i) {
        sum = (sum ^ words[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static void list(unsigned key, const kvcl_dir_loc_t *loc)
{
    kvcl_key_t    bytes  = key_bytes(key);
    kvcl_status_t status = kvcl_dir_table_insert(&sim.table, &bytes, loc);

    if ((status != KVCL_OK) && (status != KVCL_ERR_EXISTS)) {
        internal("a location is not taken");
    }
}

static void write_word(side_t *side, uint32_t slot, unsigned i, uint64_t word)
{
    side->blocks[slot].words[i] = word;
    ++side->blocks[slot].touched;
}

/* ---- puts and promotions ---- */

static bool in_pool(unsigned key)
{
    kvcl_key_t bytes = key_bytes(key);
    unsigned   i;

    for (i = 0; i < POOL; ++i) {
        const kvcl_slot_t *slot = &sim.sides[IN_POOL].array[i];
        if ((slot->state == KVCL_SLOT_PUBLISHED) && kvcl_key_equal(&slot->key, &bytes)) {
            return true;
        }
    }
    for (i = 0; i < PUTS; ++i) {
        if (sim.puts[i].busy && (sim.puts[i].key == key)) {
            return true;
        }
    }
    return false;
}

static unsigned key_at(const side_t *side, uint32_t slot)
{
    return side->array[slot].key.bytes[16] - 1u;
}

static bool take_slot(uint32_t *slot_p)
{
    side_t         *pool = &sim.sides[IN_POOL];
    uint32_t       victim;
    kvcl_dir_loc_t loc;
    unsigned       key;

    if ((pool->slots.n_free == 0) && (kvcl_evict_victim(&sim.evict, &victim) == KVCL_OK)) {
        loc = loc_of(IN_POOL, victim, kvcl_slots_gen(&pool->slots, victim), 0);
        key = key_at(pool, victim);
        if (kvcl_slots_withdraw(&pool->slots, victim, KVCL_SLOT_FREE) != KVCL_OK) {
            internal("a victim is not published");
        }
        unlist(key, &loc);
    }
    return kvcl_slots_alloc(&pool->slots, slot_p) == KVCL_OK;
}

static void begin_put(unsigned key, const kvcl_dir_loc_t *from)
{
    unsigned i;

    for (i = 0; (i < PUTS) && sim.puts[i].busy; ++i) {
    }
    if ((i == PUTS) || in_pool(key) || !take_slot(&sim.puts[i].slot)) {
        return;
    }
    sim.puts[i].busy     = true;
    sim.puts[i].key      = key;
    sim.puts[i].i        = 0;
    sim.puts[i].promotes = (from != NULL);
    if (from != NULL) {
        sim.puts[i].from = *from;
    }
}

static void end_put(put_t *put)
{
    side_t         *pool = &sim.sides[IN_POOL];
    kvcl_key_t     bytes = key_bytes(put->key);
    kvcl_dir_loc_t loc;

    put->busy = false;
    if (put->promotes && !gen_is(IN_STAGE, put->from.slot, put->from.gen)) {
        (void)!kvcl_slots_abort(&pool->slots, put->slot);
        return;
    }
    n.promoted += put->promotes;
    if ((kvcl_slots_publish(&pool->slots, put->slot, &bytes, KVCL_DIR_TIER_DRAM, 8, 0, &loc) != KVCL_OK) ||
        (kvcl_evict_insert(&sim.evict, put->slot, put->key * UINT64_C(0x9e3779b97f4a7c15)) != KVCL_OK)) {
        internal("a block is not published");
    }
    loc.cache = IN_POOL;
    list(put->key, &loc);
}

void put_step(put_t *put)
{
    if (!put->busy) {
        begin_put(below(KEYS), NULL);
    } else if (put->i < WORDS) {
        write_word(&sim.sides[IN_POOL], put->slot, put->i,
                   put->promotes ? sim.sides[IN_STAGE].blocks[put->from.slot].words[put->i]
                                 : word_of(put->key, put->i));
        ++put->i;
    } else {
        end_put(put);
    }
}

/* ---- demotion ---- */

static void choose(void)
{
    uint32_t slots[POOL], found = kvcl_evict_peek(&sim.evict, slots, POOL);

    if (found > 0) {
        sim.demote.slot  = slots[below(found)];
        sim.demote.gen   = kvcl_slots_gen(&sim.sides[IN_POOL].slots, sim.demote.slot);
        sim.demote.key   = key_at(&sim.sides[IN_POOL], sim.demote.slot);
        sim.demote.i     = 0;
        sim.demote.state = SUM;
    }
}

static bool still_there(void)
{
    return (sim.broken == BREAK_DEMOTE_UNCHECKED) || gen_is(IN_POOL, sim.demote.slot, sim.demote.gen);
}

/* Remove the tier's block of this key, and the block at the place to be written. */
static void take_place(void)
{
    place_t        *place = &sim.places[sim.next_place];
    kvcl_dir_loc_t loc    = loc_of(IN_TIER, sim.next_place, place->gen, 0);

    if (place->live) {
        unlist(place->key, &loc);
    }
    sim.demote.place = sim.next_place;
    sim.next_place   = (sim.next_place + 1) % PLACES;
    place->live      = false;
    place->gen       = ++sim.next_gen;
}

static void commit(void)
{
    place_t        *place = &sim.places[sim.demote.place];
    kvcl_dir_loc_t loc    = loc_of(IN_TIER, sim.demote.place, place->gen, sim.demote.sum);
    unsigned       i;

    if (!still_there()) {
        ++n.lost;
        return;
    }
    for (i = 0; i < PLACES; ++i) {
        kvcl_dir_loc_t old = loc_of(IN_TIER, i, sim.places[i].gen, 0);
        if (sim.places[i].live && (sim.places[i].key == sim.demote.key)) {
            sim.places[i].live = false;
            unlist(sim.demote.key, &old);
        }
    }
    place->live = true;
    place->key  = sim.demote.key;
    place->sum  = sim.demote.sum;
    list(place->key, &loc);
    ++n.demoted;
}

void demote_step(void)
{
    const block_t *from = &sim.sides[IN_POOL].blocks[sim.demote.slot];

    if (sim.demote.state == REST) {
        choose();
    } else if (sim.demote.i < WORDS) {
        if (sim.demote.state == SUM) {
            sim.demote.words[sim.demote.i] = from->words[sim.demote.i];
        } else {
            sim.places[sim.demote.place].words[sim.demote.i] = from->words[sim.demote.i];
        }
        ++sim.demote.i;
    } else if (sim.demote.state == WRITE) {
        commit();
        sim.demote.state = REST;
    } else if (!still_there()) {
        sim.demote.state = REST;
    } else {
        sim.demote.sum   = sum_of(sim.demote.words);
        sim.demote.i     = 0;
        sim.demote.state = WRITE;
        take_place();
    }
}

/* ---- staging ---- */

static void recycle(uint32_t slot)
{
    side_t   *side = &sim.sides[IN_STAGE];
    uint32_t gen   = kvcl_slots_gen(&side->slots, slot);

    sim.stages[slot].users = 0;
    (void)!kvcl_slots_withdraw(&side->slots, slot, KVCL_SLOT_FREE);
    if (sim.broken == BREAK_RECYCLE_QUIETLY) {
        atomic_store(&side->gens[slot], gen);
    }
}

/* A staging block that is free, or idle, or held for too long. */
static bool take_stage(uint32_t *slot_p)
{
    side_t   *side = &sim.sides[IN_STAGE];
    uint32_t i, from = below(STAGES), slot;

    for (i = 0; (i < STAGES) && (side->slots.n_free == 0); ++i) {
        slot = (from + i) % STAGES;
        if ((side->array[slot].state == KVCL_SLOT_PUBLISHED) && ((sim.stages[slot].users == 0) || (below(20) == 0))) {
            recycle(slot);
        }
    }
    return kvcl_slots_alloc(&side->slots, slot_p) == KVCL_OK;
}

bool same_place(const kvcl_dir_loc_t *a, const kvcl_dir_loc_t *b)
{
    return (a->slot == b->slot) && (a->gen == b->gen);
}

bool begin_stage(const get_t *get)
{
    const place_t *place = &sim.places[get->loc.slot];
    uint32_t      slot;
    unsigned      i;

    for (i = 0; i < STAGES; ++i) {
        if ((sim.sides[IN_STAGE].array[i].state != KVCL_SLOT_FREE) && (sim.stages[i].key == get->key) &&
            same_place(&sim.stages[i].at, &get->loc)) {
            return true;
        }
    }
    if ((sim.broken != BREAK_TRUST_PLACE) &&
        (!place->live || (place->gen != get->loc.gen) || (place->key != get->key))) {
        return false;
    }
    if (take_stage(&slot)) {
        sim.stages[slot] = (stage_t){.reading = true, .key = get->key, .at = get->loc};
    }
    return true;
}

void stage_step(uint32_t slot)
{
    side_t         *side  = &sim.sides[IN_STAGE];
    stage_t        *stage = &sim.stages[slot];
    place_t        *place = &sim.places[stage->at.slot];
    kvcl_key_t     bytes  = key_bytes(stage->key);
    uint64_t       want   = (sim.broken == BREAK_TRUST_PLACE) ? place->sum : stage->at.checksum;
    kvcl_dir_loc_t loc;

    if (!stage->reading) {
        return;
    }
    if (stage->i < WORDS) {
        write_word(side, slot, stage->i, place->words[stage->i]);
        ++stage->i;
        return;
    }
    stage->reading = false;
    if ((sim.broken != BREAK_STAGE_UNVERIFIED) && (sum_of(side->blocks[slot].words) != want)) {
        ++n.refused;
        (void)!kvcl_slots_abort(&side->slots, slot);
        unlist(stage->key, &stage->at);
        if (place->gen == stage->at.gen) {
            place->live = false;
        }
        return;
    }
    if (kvcl_slots_publish(&side->slots, slot, &bytes, KVCL_DIR_TIER_DRAM, 8, 0, &loc) != KVCL_OK) {
        internal("a staged block is not published");
    }
    loc.cache = IN_STAGE;
    if (below(3) == 0) {
        begin_put(stage->key, &loc);
    }
}
