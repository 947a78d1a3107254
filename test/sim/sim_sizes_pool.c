/*
 * A rank's pool of several sizes: the steps of pool.c and store_pool.c, over the real slabs, slots and eviction orders.
 * The mutations of break_t are made here and in sim_sizes.c, never in the library.
 */
#include "config.h"

#include "sim_sizes.h"

#include <stdlib.h>
#include <string.h>

static void *memory(size_t bytes)
{
    void *mem = calloc(1, bytes);

    if (mem == NULL) {
        internal("no memory");
    }
    return mem;
}

static void open_class(pool_t *pool, unsigned rank, unsigned cls)
{
    class_t  *c    = &pool->classes[cls];
    uint32_t n_ids = pool->slabs.classes[cls].n_ids, slot;

    c->size      = (uint32_t)pool->slabs.classes[cls].block_bytes;
    c->array     = memory(n_ids * sizeof(*c->array));
    c->gens      = memory(n_ids * sizeof(*c->gens));
    c->evict_mem = memory(kvcl_evict_bytes(n_ids));
    if ((kvcl_slots_init(&c->slots, c->gens, c->array, n_ids, (uint16_t)rank, 1, (uint16_t)cls, 1) != KVCL_OK) ||
        (kvcl_evict_init(&c->evict, n_ids, c->evict_mem, kvcl_evict_bytes(n_ids)) != KVCL_OK)) {
        internal("a class does not open");
    }
    for (slot = 0; slot < n_ids; ++slot) {
        if (!kvcl_slabs_has(&pool->slabs, cls, slot) && (kvcl_slots_take(&c->slots, slot) != KVCL_OK)) {
            internal("a slot is not free at first");
        }
    }
}

void pool_open(unsigned rank, const uint64_t *sizes, uint32_t n_words)
{
    pool_t   *pool = &sim.pools[rank];
    size_t   bytes = kvcl_slabs_bytes(n_words, sizes, sim.n);
    unsigned i;

    pool->n_words   = n_words;
    pool->slabs_mem = memory(bytes);
    if (kvcl_slabs_init(&pool->slabs, n_words, sizes, sim.n, pool->slabs_mem, bytes) != KVCL_OK) {
        internal("a pool does not open");
    }
    for (i = 0; i < sim.n; ++i) {
        open_class(pool, rank, i);
    }
}

void pool_close(pool_t *pool)
{
    unsigned i;

    for (i = 0; i < sim.n; ++i) {
        free(pool->classes[i].array);
        free(pool->classes[i].gens);
        free(pool->classes[i].evict_mem);
    }
    free(pool->slabs_mem);
}

/* ---- bytes ---- */

static uint32_t word_at(const pool_t *pool, unsigned cls, uint32_t slot, uint32_t i)
{
    uint32_t at = (slot * pool->classes[cls].size) + i;

    if ((i >= pool->classes[cls].size) || (at >= pool->n_words)) {
        internal("a word outside the arena");
    }
    return at;
}

void pool_write(pool_t *pool, unsigned cls, uint32_t slot, uint32_t i, uint64_t word)
{
    uint32_t at = word_at(pool, cls, slot, i);

    pool->words[at] = word;
    ++pool->touched[at];
}

uint64_t pool_read(const pool_t *pool, unsigned cls, uint32_t slot, uint32_t i)
{
    return pool->words[word_at(pool, cls, slot, i)];
}

uint64_t pool_touched(const pool_t *pool, unsigned cls, uint32_t slot)
{
    uint64_t sum = 0;
    uint32_t i;

    for (i = 0; i < pool->classes[cls].size; ++i) {
        sum += pool->touched[word_at(pool, cls, slot, i)];
    }
    return sum;
}

/* ---- blocks ---- */

/* The mutation: the new generation of a vacated block becomes visible only now. */
static void show_late(pool_t *pool)
{
    while (pool->n_late > 0) {
        --pool->n_late;
        atomic_store(pool->late[pool->n_late].word, pool->late[pool->n_late].gen);
    }
}

static void hide_generation(pool_t *pool, _Atomic uint32_t *word, uint32_t old)
{
    if (pool->n_late == LATE) {
        show_late(pool);
    }
    pool->late[pool->n_late++] = (late_t){word, atomic_load(word)};
    atomic_store(word, old);
}

bool pool_withdraw(pool_t *pool, unsigned cls, uint32_t slot, kvcl_slot_state_t next)
{
    class_t *c = &pool->classes[cls];

    if (kvcl_slots_withdraw(&c->slots, slot, next) != KVCL_OK) {
        return false;
    }
    (void)!kvcl_evict_remove(&c->evict, slot);
    kvcl_slabs_removed(&pool->slabs, cls, slot);
    return true;
}

void pool_publish(unsigned rank, uint32_t slot, unsigned key)
{
    pool_t         *pool = &sim.pools[rank];
    class_t        *c    = &pool->classes[class_of(key)];
    kvcl_key_t     bytes = key_bytes(key);
    kvcl_dir_loc_t loc;

    show_late(pool);
    if ((kvcl_slots_publish(&c->slots, slot, &bytes, KVCL_DIR_TIER_DRAM, c->size, 0, &loc) != KVCL_OK) ||
        (kvcl_evict_insert(&c->evict, slot, word_of(key, 0)) != KVCL_OK)) {
        internal("a filled block cannot be published");
    }
    kvcl_slabs_use(&pool->slabs, class_of(key), slot);
    sim.past[sim.n_past++ % PAST] = (place_t){.rank = rank, .key = key, .slot = slot, .gen = loc.gen};
}

uint32_t pool_find(const pool_t *pool, unsigned key)
{
    const class_t *c    = &pool->classes[class_of(key)];
    kvcl_key_t    bytes = key_bytes(key);
    uint32_t      slot;

    for (slot = 0; slot < c->slots.n; ++slot) {
        if ((c->array[slot].state == KVCL_SLOT_PUBLISHED) && kvcl_key_equal(&c->array[slot].key, &bytes)) {
            return slot;
        }
    }
    return KVCL_SLOT_NONE;
}

/* ---- slabs that change owners ---- */

static bool may_go(const class_t *c, uint32_t slot)
{
    const kvcl_slot_t *at = &c->array[slot];

    switch (at->state) {
    case KVCL_SLOT_FREE:
        return true;
    case KVCL_SLOT_FILLING:
        return sim.broken == BREAK_VACATE_FILLING;
    case KVCL_SLOT_PUBLISHED:
        return c->evict.nodes[slot].pins == 0;
    default:
        return false;
    }
}

/* Whether the block crosses the slab's borders. */
static bool is_border(const pool_t *pool, uint32_t slab, unsigned cls, uint32_t slot)
{
    uint64_t size = pool->classes[cls].size, end = (slab + UINT64_C(1)) * pool->slabs.slab_bytes;

    return (slot * size < slab * pool->slabs.slab_bytes) || ((slab + 1 < pool->slabs.n) && ((slot + 1) * size > end));
}

static void give_up(pool_t *pool, unsigned cls, uint32_t slot)
{
    class_t  *c  = &pool->classes[cls];
    uint32_t gen = kvcl_slots_gen(&c->slots, slot);

    if (c->array[slot].state == KVCL_SLOT_FREE) {
        (void)!kvcl_slots_take(&c->slots, slot);
    } else if (c->array[slot].state == KVCL_SLOT_PUBLISHED) {
        (void)pool_withdraw(pool, cls, slot, KVCL_SLOT_FILLING);
        ++n.evicted;
        if (sim.broken == BREAK_SAME_GENERATION) {
            atomic_store(&c->gens[slot], gen);
        } else if (sim.broken == BREAK_LATE_GENERATION) {
            hide_generation(pool, &c->gens[slot], gen);
        }
    }
}

static bool vacate(pool_t *pool, unsigned cls, uint32_t slab)
{
    kvcl_slab_ids_t ids = kvcl_slabs_ids(&pool->slabs, slab, cls);
    uint32_t        slot;

    for (slot = ids.first; slot < ids.end; ++slot) {
        if (kvcl_slabs_has(&pool->slabs, cls, slot) && !may_go(&pool->classes[cls], slot)) {
            return false;
        }
    }
    for (slot = ids.first; slot < ids.end; ++slot) {
        if (kvcl_slabs_has(&pool->slabs, cls, slot) &&
            ((sim.broken != BREAK_FORGET_BORDER) || !is_border(pool, slab, cls, slot))) {
            give_up(pool, cls, slot);
        }
    }
    return true;
}

bool pool_grow(pool_t *pool, unsigned cls, bool must)
{
    kvcl_slab_ids_t got, lost;
    uint32_t        slab, slot;
    unsigned        from, i;

    for (i = 0; must || (i < TRIES); ++i) {
        slab = (i < TRIES) ? kvcl_slabs_choose(&pool->slabs, cls, must) : kvcl_slabs_next(&pool->slabs, cls);
        if (slab == KVCL_SLAB_NONE) {
            kvcl_slabs_round(&pool->slabs);
            return false;
        }
        from = pool->slabs.slabs[slab].owner;
        if ((from != KVCL_SLAB_NOBODY) && !vacate(pool, from, slab)) {
            kvcl_slabs_refuse(&pool->slabs, slab);
            ++n.refused;
            continue;
        }
        kvcl_slabs_give(&pool->slabs, slab, cls, &got, &lost);
        for (slot = got.first; slot < got.end; ++slot) {
            (void)!kvcl_slots_abort(&pool->classes[cls].slots, slot);
        }
        n.taken += (from != KVCL_SLAB_NOBODY) ? 1 : 0;
        return true;
    }
    return false;
}

bool pool_take(pool_t *pool, unsigned cls, uint32_t *slot_p)
{
    class_t *c = &pool->classes[cls];

    while ((c->slots.n_free == 0) && (kvcl_slabs_spare(&pool->slabs, cls) != 0) && pool_grow(pool, cls, false)) {
    }
    if ((c->slots.n_free == 0) && kvcl_slabs_due(&pool->slabs, cls, 1)) {
        (void)pool_grow(pool, cls, false);
    }
    while ((c->slots.n_free == 0) && (kvcl_evict_victim(&c->evict, slot_p) == KVCL_OK)) {
        (void)pool_withdraw(pool, cls, *slot_p, KVCL_SLOT_FREE);
        ++n.evicted;
    }
    while ((c->slots.n_free == 0) && pool_grow(pool, cls, true)) {
    }
    return kvcl_slots_alloc(&c->slots, slot_p) == KVCL_OK;
}

bool pool_holds(const pool_t *pool)
{
    unsigned i;

    for (i = 0; i < sim.n; ++i) {
        const class_t *c = &pool->classes[i];
        if (!kvcl_slots_check_all(&c->slots) || !kvcl_evict_check(&c->evict) ||
            (kvcl_evict_count(&c->evict) != c->slots.n_published) ||
            (pool->slabs.classes[i].n_used != c->slots.n_published)) {
            return false;
        }
    }
    return kvcl_slabs_check(&pool->slabs);
}
