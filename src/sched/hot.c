/*
 * Owns the table of popular prefixes (hot.h). An entry is in one of the KVCL_HOT_WAYS places of its set; hits and
 * copies are read with the time that has passed since they were written.
 */
#include "config.h"
#include "sched/hot.h"
#include "base/error.h"
#include "sched/learn.h"

#include <stdlib.h>
#include <string.h>

enum { EACH = 8, OCTAVE = 4 };

kvcl_status_t kvcl_hot_init(kvcl_hot_t *hot)
{
    hot->entry = calloc(KVCL_HOT_ENTRIES, sizeof(*hot->entry));
    return (hot->entry == NULL) ? kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a scheduler's %d popular prefixes",
                                            KVCL_HOT_ENTRIES) : KVCL_OK;
}

void kvcl_hot_fini(kvcl_hot_t *hot)
{
    free(hot->entry);
}

uint32_t kvcl_hot_depths(uint32_t blocks, uint32_t depth[KVCL_HOT_DEPTHS])
{
    uint32_t n = 0, at, step = 1;

    for (at = 1; (at <= blocks) && (n < KVCL_HOT_DEPTHS); at += step) {
        depth[n++] = at;
        step       = ((at >= EACH) && (at >= 2 * OCTAVE * step)) ? at / OCTAVE : step;
    }
    return n;
}

/* Keys are hashes: eight bytes of one tell prefixes apart well enough to count them. */
static uint64_t name_of(const kvcl_key_t *key)
{
    uint64_t name;

    memcpy(&name, &key->bytes[8], sizeof(name));
    return (name == 0) ? 1 : name;
}

static kvcl_hot_entry_t *set_of(const kvcl_hot_t *hot, uint64_t name)
{
    const uint64_t mixed = name * UINT64_C(0x9e3779b97f4a7c15);

    return &hot->entry[(mixed >> 32) % (KVCL_HOT_ENTRIES / KVCL_HOT_WAYS) * KVCL_HOT_WAYS];
}

static void age(kvcl_hot_entry_t *entry, double now_s)
{
    const double left = kvcl_learn_left(now_s - entry->at);

    entry->hits   *= left;
    entry->copies *= left;
    entry->at      = now_s;
}

/* Its entry, or that of the set's least popular prefix, which it replaces. */
static kvcl_hot_entry_t *entry_for(const kvcl_hot_t *hot, uint64_t name, double now_s)
{
    kvcl_hot_entry_t *set = set_of(hot, name), *least = set;
    double           hits, fewest = 1e300;
    unsigned         i;

    for (i = 0; i < KVCL_HOT_WAYS; ++i) {
        if (set[i].key == name) {
            return &set[i];
        }
        hits = set[i].hits * kvcl_learn_left(now_s - set[i].at);
        if (hits < fewest) {
            fewest = hits;
            least  = &set[i];
        }
    }
    *least = (kvcl_hot_entry_t){.key = name, .at = now_s};
    return least;
}

void kvcl_hot_count(kvcl_hot_t *hot, const kvcl_key_t *keys, uint32_t blocks, double now_s)
{
    uint32_t         depth[KVCL_HOT_DEPTHS];
    const uint32_t   n = kvcl_hot_depths(blocks, depth);
    kvcl_hot_entry_t *entry;
    uint32_t         i;

    for (i = 0; i < n; ++i) {
        entry = entry_for(hot, name_of(&keys[depth[i] - 1]), now_s);
        age(entry, now_s);
        entry->hits += 1;
    }
}

kvcl_hot_entry_t *kvcl_hot_find(const kvcl_hot_t *hot, const kvcl_key_t *key)
{
    const uint64_t   name = name_of(key);
    kvcl_hot_entry_t *set = set_of(hot, name);
    unsigned         i;

    for (i = 0; (i < KVCL_HOT_WAYS) && (set[i].key != name); ++i) {
    }
    return (i < KVCL_HOT_WAYS) ? &set[i] : NULL;
}

/* Hits that halve every 60 s settle at the rate x 60 / ln 2. */
double kvcl_hot_rate(const kvcl_hot_entry_t *entry, double now_s)
{
    return entry->hits * kvcl_learn_left(now_s - entry->at) * 0.6931471805599453 / KVCL_LEARN_HALF_S;
}

double kvcl_hot_copies(const kvcl_hot_entry_t *entry, double now_s)
{
    return entry->copies * kvcl_learn_left(now_s - entry->at);
}

void kvcl_hot_copied(kvcl_hot_entry_t *entry, double now_s, double copies, double wait_s)
{
    age(entry, now_s);
    entry->copies += copies;
    entry->wait    = wait_s;
}
