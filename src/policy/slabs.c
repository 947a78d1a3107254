/*
 * Slabs of an arena for blocks of several sizes (slabs.h).
 *
 * Invariants: an id is used (its time is not 0) only while its class has all slabs it touches; a slab's and a class's
 * counters are sums over used ids; room[] follows from the owners of a slab's neighbours, so it changes only where a
 * slab changes hands; a class has at least one slab; the last slab takes in what the arena has beyond a whole number
 * of them. A slab is at least two blocks of the largest size, so a block touches at most two of them and each slab
 * holds a whole block of any class. Which slab a class takes is in slabs_choose.c. Locks: none, as slabs.h says.
 */
#include "config.h"

#include "policy/slabs.h"
#include "policy/slabs_room.h"

#include "base/error.h"

#include <string.h>

#define SLAB_MOST   (UINT64_C(32) << 20) /* to take one over evicts so much at once */
#define SLABS_WANTED UINT64_C(256)

enum {
    SLABS_EACH  = 2, /* at least, a class */
    SLAB_BLOCKS = 2  /* at least, of the largest size */
};

static uint64_t largest(const uint64_t *sizes, unsigned n)
{
    uint64_t most = 0;
    unsigned i, j;

    for (i = 0; i < n; ++i) {
        most = (sizes[i] > most) ? sizes[i] : most;
        for (j = 0; j < i; ++j) {
            if (sizes[i] == sizes[j]) {
                return 0;
            }
        }
        if (sizes[i] == 0) {
            return 0;
        }
    }
    return most;
}

uint64_t kvcl_slabs_slab_bytes(uint64_t arena_bytes, const uint64_t *sizes, unsigned n)
{
    uint64_t block = ((n != 0) && (n <= KVCL_SLABS_CLASSES_MAX)) ? largest(sizes, n) : 0;
    uint64_t want  = (arena_bytes / SLABS_WANTED < SLAB_MOST) ? arena_bytes / SLABS_WANTED : SLAB_MOST;
    uint64_t most, least, m, lost, best = 0, best_lost = UINT64_MAX;
    unsigned i;

    if ((block == 0) || (arena_bytes / block / SLABS_EACH / n < SLAB_BLOCKS)) {
        return 0;
    }
    most  = arena_bytes / block / SLABS_EACH / n;
    least = (want / block > SLAB_BLOCKS) ? want / block : SLAB_BLOCKS;
    most  = (2 * least < most) ? 2 * least : most;
    for (m = least; (m <= most) && (best_lost != 0); ++m) {
        for (lost = 0, i = 0; i < n; ++i) {
            lost += (m * block) % sizes[i];
        }
        if ((best == 0) || (lost * (best / block) < best_lost * m)) { /* as a part of the slab */
            best      = m * block;
            best_lost = lost;
        }
    }
    return best;
}

/* Blocks of a size that lie in the arena. UINT32_MAX: more than ids can name. */
static uint64_t ids_of(uint64_t arena_bytes, uint64_t size)
{
    return (arena_bytes / size < UINT32_MAX - 1) ? arena_bytes / size : UINT32_MAX;
}

size_t kvcl_slabs_bytes(uint64_t arena_bytes, const uint64_t *sizes, unsigned n)
{
    uint64_t slab = kvcl_slabs_slab_bytes(arena_bytes, sizes, n);
    size_t   bytes;
    unsigned i;

    if ((slab == 0) || (arena_bytes / slab > UINT32_MAX - 1)) {
        return 0;
    }
    bytes = (size_t)(arena_bytes / slab) * (sizeof(kvcl_slab_t) + (n * sizeof(uint32_t)));
    for (i = 0; i < n; ++i) {
        if (ids_of(arena_bytes, sizes[i]) == UINT32_MAX) {
            return 0;
        }
        bytes += (size_t)ids_of(arena_bytes, sizes[i]) * sizeof(uint32_t);
    }
    return bytes;
}

static void count_room(kvcl_slabs_t *slabs, uint32_t slab, unsigned cls);

kvcl_status_t kvcl_slabs_init(kvcl_slabs_t *slabs, uint64_t arena_bytes, const uint64_t *sizes, unsigned n, void *mem,
                              size_t bytes)
{
    size_t          need = kvcl_slabs_bytes(arena_bytes, sizes, n);
    kvcl_slab_ids_t got, lost;
    uint32_t        *used, s, c;
    unsigned        i;

    if ((need == 0) || (mem == NULL) || ((uintptr_t)mem % sizeof(uint64_t) != 0) || (bytes < need)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "an arena of %llu bytes does not do for blocks of %u sizes",
                         (unsigned long long)arena_bytes, n);
    }
    memset(slabs, 0, sizeof(*slabs));
    memset(mem, 0, need);
    slabs->arena_bytes = arena_bytes;
    slabs->slab_bytes  = kvcl_slabs_slab_bytes(arena_bytes, sizes, n);
    slabs->n           = (uint32_t)(arena_bytes / slabs->slab_bytes);
    slabs->n_free      = slabs->n;
    slabs->n_classes   = n;
    slabs->round       = 1;
    slabs->unit        = (arena_bytes / KVCL_SLABS_UNITS) + 1;
    slabs->now         = slabs->unit; /* 0 is "not published" */
    slabs->slabs       = mem;
    slabs->room        = (uint32_t *)(void *)(slabs->slabs + slabs->n);
    used               = slabs->room + ((size_t)slabs->n * n);
    for (s = 0; s < slabs->n; ++s) {
        slabs->slabs[s].owner = KVCL_SLAB_NOBODY;
    }
    for (i = 0; i < n; ++i) {
        slabs->classes[i] = (kvcl_slab_class_t){.block_bytes = sizes[i], .used = used,
                                                .n_ids = (uint32_t)ids_of(arena_bytes, sizes[i])};
        used += slabs->classes[i].n_ids;
    }
    for (s = 0; s < slabs->n; ++s) {
        for (c = 0; c < n; ++c) {
            count_room(slabs, s, c);
        }
    }
    for (i = 0; i < n; ++i) {
        kvcl_slabs_give(slabs, (uint32_t)((uint64_t)i * slabs->n / n), i, &got, &lost);
    }
    return KVCL_OK;
}

/* ---- where ids lie ---- */

static uint32_t slab_at(const kvcl_slabs_t *slabs, uint64_t byte)
{
    uint64_t s = byte / slabs->slab_bytes;

    return (s < slabs->n) ? (uint32_t)s : slabs->n - 1;
}

static uint32_t first_slab(const kvcl_slabs_t *slabs, unsigned cls, uint32_t id)
{
    return slab_at(slabs, id * slabs->classes[cls].block_bytes);
}

static uint32_t last_slab(const kvcl_slabs_t *slabs, unsigned cls, uint32_t id)
{
    return slab_at(slabs, ((id + UINT64_C(1)) * slabs->classes[cls].block_bytes) - 1);
}

kvcl_slab_ids_t kvcl_slabs_ids(const kvcl_slabs_t *slabs, uint32_t slab, unsigned cls)
{
    const kvcl_slab_class_t *c  = &slabs->classes[cls];
    kvcl_slab_ids_t         ids = {.first = (uint32_t)(slab * slabs->slab_bytes / c->block_bytes), .end = c->n_ids};
    uint64_t                end = ((slab + UINT64_C(1)) * slabs->slab_bytes + c->block_bytes - 1) / c->block_bytes;

    if ((slab + 1 < slabs->n) && (end < c->n_ids)) {
        ids.end = (uint32_t)end;
    }
    return ids;
}

bool kvcl_slabs_has(const kvcl_slabs_t *slabs, unsigned cls, uint32_t id)
{
    return (id < slabs->classes[cls].n_ids) && (slabs->slabs[first_slab(slabs, cls, id)].owner == cls) &&
           (slabs->slabs[last_slab(slabs, cls, id)].owner == cls);
}

/* Of the ids that touch the slab those whose other slab, if they have one, is the class's. */
static kvcl_slab_ids_t ids_with(const kvcl_slabs_t *slabs, uint32_t slab, unsigned cls)
{
    kvcl_slab_ids_t ids = kvcl_slabs_ids(slabs, slab, cls);

    while ((ids.first < ids.end) && (first_slab(slabs, cls, ids.first) != slab) &&
           (slabs->slabs[first_slab(slabs, cls, ids.first)].owner != cls)) {
        ++ids.first;
    }
    while ((ids.first < ids.end) && (last_slab(slabs, cls, ids.end - 1) != slab) &&
           (slabs->slabs[last_slab(slabs, cls, ids.end - 1)].owner != cls)) {
        --ids.end;
    }
    return ids;
}

static void count_room(kvcl_slabs_t *slabs, uint32_t slab, unsigned cls)
{
    kvcl_slab_ids_t ids = ids_with(slabs, slab, cls);

    *kvcl_slabs_room(slabs, slab, cls) = ids.end - ids.first;
}

/* ---- use ---- */

/* Never 0, which is "not published": publish_more() leaves such moments out. */
static uint32_t now_of(const kvcl_slabs_t *slabs)
{
    return (uint32_t)(slabs->now / slabs->unit);
}

static void publish_more(kvcl_slabs_t *slabs, uint64_t bytes)
{
    slabs->now += bytes;
    slabs->now += (now_of(slabs) == 0) ? slabs->unit : 0;
}

/* Times are kept in 32 bits; sums are of the times as they were, in 64. */
static uint64_t whole_time(const kvcl_slabs_t *slabs, uint32_t time)
{
    uint64_t now = slabs->now / slabs->unit;

    return now - (uint32_t)((uint32_t)now - time);
}

static void forget(kvcl_slabs_t *slabs, unsigned cls, uint32_t id)
{
    kvcl_slab_class_t *c    = &slabs->classes[cls];
    kvcl_slab_t       *slab = &slabs->slabs[first_slab(slabs, cls, id)];
    uint64_t          time  = whole_time(slabs, c->used[id]);

    c->n_empty += (--slab->n_used == 0) ? 1 : 0;
    --c->n_used;
    slab->sum_used -= time;
    c->sum_used    -= time;
    c->used[id]     = 0;
}

void kvcl_slabs_use(kvcl_slabs_t *slabs, unsigned cls, uint32_t id)
{
    kvcl_slab_class_t *c = &slabs->classes[cls];
    kvcl_slab_t       *slab;
    uint64_t          time;

    if (!kvcl_slabs_has(slabs, cls, id)) {
        return;
    }
    if (c->used[id] != 0) {
        forget(slabs, cls, id);
    } else {
        publish_more(slabs, c->block_bytes);
    }
    slab        = &slabs->slabs[first_slab(slabs, cls, id)];
    c->used[id] = now_of(slabs);
    time        = whole_time(slabs, c->used[id]);
    c->n_empty -= (slab->n_used++ == 0) ? 1 : 0;
    ++c->n_used;
    slab->sum_used += time;
    c->sum_used    += time;
}

void kvcl_slabs_removed(kvcl_slabs_t *slabs, unsigned cls, uint32_t id)
{
    if ((id < slabs->classes[cls].n_ids) && (slabs->classes[cls].used[id] != 0)) {
        forget(slabs, cls, id);
    }
}

/* What a class has in a slab depends on whose the slabs beside it are. */
static void count_beside(kvcl_slabs_t *slabs, uint32_t slab, unsigned cls)
{
    if (slab != 0) {
        count_room(slabs, slab - 1, cls);
    }
    if (slab + 1 < slabs->n) {
        count_room(slabs, slab + 1, cls);
    }
}

void kvcl_slabs_give(kvcl_slabs_t *slabs, uint32_t slab, unsigned cls, kvcl_slab_ids_t *got_p, kvcl_slab_ids_t *lost_p)
{
    unsigned old = slabs->slabs[slab].owner;

    *lost_p = (kvcl_slab_ids_t){0, 0};
    if (old != KVCL_SLAB_NOBODY) {
        *lost_p = ids_with(slabs, slab, old);
        slabs->classes[old].n_room -= lost_p->end - lost_p->first;
        --slabs->classes[old].n_slabs;
        --slabs->classes[old].n_empty;
    } else {
        --slabs->n_free;
    }
    slabs->slabs[slab].owner = (uint8_t)cls;
    *got_p = ids_with(slabs, slab, cls);
    slabs->classes[cls].n_room += got_p->end - got_p->first;
    ++slabs->classes[cls].n_slabs;
    ++slabs->classes[cls].n_empty;
    slabs->classes[cls].evicted = 0;
    count_beside(slabs, slab, cls);
    if (old != KVCL_SLAB_NOBODY) {
        count_beside(slabs, slab, old);
    }
}

/* ---- for tests ---- */

static bool check_class(const kvcl_slabs_t *slabs, unsigned cls)
{
    const kvcl_slab_class_t *c   = &slabs->classes[cls];
    uint64_t                sum  = 0;
    uint32_t                room = 0, used = 0, n = 0, empty = 0, i;
    kvcl_slab_ids_t         ids;

    for (i = 0; i < c->n_ids; ++i) {
        bool has = kvcl_slabs_has(slabs, cls, i);
        room += has ? 1 : 0;
        used += (c->used[i] != 0) ? 1 : 0;
        sum  += (c->used[i] != 0) ? whole_time(slabs, c->used[i]) : 0;
        if (!has && (c->used[i] != 0)) {
            return false;
        }
    }
    for (i = 0; i < slabs->n; ++i) {
        ids    = ids_with(slabs, i, cls);
        n     += (slabs->slabs[i].owner == cls) ? 1 : 0;
        empty += ((slabs->slabs[i].owner == cls) && (slabs->slabs[i].n_used == 0)) ? 1 : 0;
        if (ids.end - ids.first != *kvcl_slabs_room(slabs, i, cls)) {
            return false;
        }
    }
    return (room == c->n_room) && (used == c->n_used) && (n == c->n_slabs) && (n != 0) && (empty == c->n_empty) &&
           (sum == c->sum_used);
}

bool kvcl_slabs_check(const kvcl_slabs_t *slabs)
{
    uint32_t n_free = 0, used = 0, s;
    unsigned i;

    for (i = 0; i < slabs->n_classes; ++i) {
        if (!check_class(slabs, i)) {
            return false;
        }
        used += slabs->classes[i].n_used;
    }
    for (s = 0; s < slabs->n; ++s) {
        if (slabs->slabs[s].owner == KVCL_SLAB_NOBODY) {
            ++n_free;
        } else if (slabs->slabs[s].owner >= slabs->n_classes) {
            return false;
        }
        used -= slabs->slabs[s].n_used;
    }
    return (n_free == slabs->n_free) && (used == 0);
}
