/*
 * Which slab a class takes next (slabs.h): an unowned one, an empty one, or one of the class whose blocks were used
 * longest ago.
 *
 * Owns: the rounds of choosing and the refusals in them; everything else is read only. Invariants: a class keeps a slab
 * always; a slab that was refused is not chosen again in its round, so choosing ends. Locks: none, as slabs.h says.
 */
#include "config.h"

#include "policy/slabs.h"
#include "policy/slabs_room.h"

enum {
    SLACK = KVCL_SLABS_UNITS / 32, /* by which another class's blocks must be older */
    LOOKS = 8 /* at slabs of other classes, while as many blocks are evicted as a slab has */
};

bool kvcl_slabs_due(kvcl_slabs_t *slabs, unsigned cls, uint32_t n_evicted)
{
    kvcl_slab_class_t *c = &slabs->classes[cls];

    c->evicted = (c->evicted + n_evicted < c->evicted) ? UINT32_MAX : c->evicted + n_evicted;
    if ((uint64_t)c->evicted * LOOKS * c->n_slabs < c->n_room) {
        return false;
    }
    c->evicted = 0;
    return true;
}

void kvcl_slabs_round(kvcl_slabs_t *slabs)
{
    uint32_t s;

    if (++slabs->round == 0) {
        slabs->round = 1;
        for (s = 0; s < slabs->n; ++s) {
            slabs->slabs[s].refused = 0;
        }
    }
}

void kvcl_slabs_refuse(kvcl_slabs_t *slabs, uint32_t slab)
{
    slabs->slabs[slab].refused = slabs->round;
}

static uint64_t mean_age(const kvcl_slabs_t *slabs, uint64_t n, uint64_t sum)
{
    return (n != 0) ? ((n * (slabs->now / slabs->unit)) - sum) / n : 0;
}

static uint64_t bytes_of(const kvcl_slabs_t *slabs, uint32_t slab, unsigned cls)
{
    return *kvcl_slabs_room(slabs, slab, cls) * slabs->classes[cls].block_bytes;
}

/* How many bytes of blocks the arena has more of if the slab goes to this class; plus a constant. */
static uint64_t fit(const kvcl_slabs_t *slabs, uint32_t slab, unsigned cls)
{
    unsigned owner = slabs->slabs[slab].owner;

    return bytes_of(slabs, slab, cls) + (4 * slabs->slab_bytes) -
           ((owner != KVCL_SLAB_NOBODY) ? bytes_of(slabs, slab, owner) : 0);
}

/* The best-fitting slab of an owner (or an unowned one); among equals the least recently used. */
static uint32_t best_of(const kvcl_slabs_t *slabs, unsigned owner, unsigned cls, bool empty)
{
    uint32_t best = KVCL_SLAB_NONE, s;
    uint64_t f, age, best_fit = 0, best_age = 0;

    for (s = 0; s < slabs->n; ++s) {
        const kvcl_slab_t *slab = &slabs->slabs[s];
        if ((slab->owner != owner) || (slab->refused == slabs->round) || (empty && (slab->n_used != 0))) {
            continue;
        }
        f = fit(slabs, s, cls);
        if ((best != KVCL_SLAB_NONE) && (f < best_fit)) {
            continue;
        }
        age = (slab->n_used != 0) ? mean_age(slabs, slab->n_used, slab->sum_used) : UINT64_MAX;
        if ((best == KVCL_SLAB_NONE) || (f > best_fit) || (age > best_age)) {
            best     = s;
            best_fit = f;
            best_age = age;
        }
    }
    return best;
}

/* Empty slabs that a class can do without: one that has blocks keeps two slabs' worth of free ones, for one that was
 * just given a slab is about to fill it; one without keeps a slab. */
static uint32_t idle(const kvcl_slab_class_t *c)
{
    uint64_t worth = (c->n_room != 0) ? (uint64_t)(c->n_room - c->n_used) * c->n_slabs / c->n_room : 0;
    uint64_t most  = (c->n_used == 0) ? c->n_slabs - 1 : (worth != 0) ? worth - 1 : 0;
    uint64_t keep  = (c->n_used == 0) ? 1 : 2;

    most = (c->n_slabs <= keep) ? 0 : (c->n_slabs - keep < most) ? c->n_slabs - keep : most;
    return (c->n_empty < most) ? c->n_empty : (uint32_t)most;
}

uint32_t kvcl_slabs_spare(const kvcl_slabs_t *slabs, unsigned cls)
{
    uint32_t n = slabs->n_free;
    unsigned i;

    for (i = 0; i < slabs->n_classes; ++i) {
        n += (i != cls) ? idle(&slabs->classes[i]) : 0;
    }
    return n;
}

static uint32_t empty_slab(const kvcl_slabs_t *slabs, unsigned cls)
{
    uint32_t found = KVCL_SLAB_NONE;
    unsigned i;

    for (i = 0; (i < slabs->n_classes) && (found == KVCL_SLAB_NONE); ++i) {
        if ((i != cls) && (idle(&slabs->classes[i]) != 0)) {
            found = best_of(slabs, i, cls, true);
        }
    }
    return found;
}

uint64_t kvcl_slabs_most(const kvcl_slabs_t *slabs, unsigned cls)
{
    return (slabs->arena_bytes - ((slabs->n_classes - 1) * slabs->slab_bytes)) / slabs->classes[cls].block_bytes;
}

uint32_t kvcl_slabs_choose(const kvcl_slabs_t *slabs, unsigned cls, bool must)
{
    const kvcl_slab_class_t *own  = &slabs->classes[cls];
    uint64_t                least = (mean_age(slabs, own->n_used, own->sum_used) * 5 / 4) + SLACK, age, oldest;
    bool                    requested[KVCL_SLABS_CLASSES_MAX] = {false};
    uint32_t                found;
    unsigned                i, from;

    found = (slabs->n_free != 0) ? best_of(slabs, KVCL_SLAB_NOBODY, cls, false) : KVCL_SLAB_NONE;
    found = (found == KVCL_SLAB_NONE) ? empty_slab(slabs, cls) : found;
    while (found == KVCL_SLAB_NONE) {
        for (from = slabs->n_classes, oldest = 0, i = 0; i < slabs->n_classes; ++i) {
            const kvcl_slab_class_t *c = &slabs->classes[i];
            age = mean_age(slabs, c->n_used, c->sum_used);
            if ((i != cls) && !requested[i] && (c->n_slabs > 1) && (must || (age > least)) && (age >= oldest)) {
                oldest = age;
                from   = i;
            }
        }
        if (from == slabs->n_classes) {
            break;
        }
        requested[from] = true;
        found           = best_of(slabs, from, cls, false);
    }
    return found;
}

uint32_t kvcl_slabs_next(kvcl_slabs_t *slabs, unsigned cls)
{
    const kvcl_slab_t *slab;
    uint32_t          i, s;

    for (i = 0; i < slabs->n; ++i) {
        s           = slabs->hand;
        slab        = &slabs->slabs[s];
        slabs->hand = (s + 1 < slabs->n) ? s + 1 : 0;
        if ((slab->owner != cls) && (slab->refused != slabs->round) &&
            ((slab->owner == KVCL_SLAB_NOBODY) || (slabs->classes[slab->owner].n_slabs > 1))) {
            return s;
        }
    }
    return KVCL_SLAB_NONE;
}
