/*
 * A set of ranks, by slot. Pure; the struct is the caller's.
 */
#ifndef KVCL_VIEW_RANKSET_H
#define KVCL_VIEW_RANKSET_H

#include <stdbool.h>
#include <stdint.h>

enum { KVCL_SLOTS_MAX = 1024, KVCL_RANKSET_WORDS = KVCL_SLOTS_MAX / 64 };
#define KVCL_SLOT_NONE UINT32_MAX

typedef struct kvcl_rankset {
    uint64_t word[KVCL_RANKSET_WORDS];
} kvcl_rankset_t;

static inline bool kvcl_rankset_has(const kvcl_rankset_t *set, uint32_t slot)
{
    return (set->word[slot / 64] >> (slot % 64)) & 1;
}

static inline void kvcl_rankset_add(kvcl_rankset_t *set, uint32_t slot)
{
    set->word[slot / 64] |= UINT64_C(1) << (slot % 64);
}

static inline void kvcl_rankset_del(kvcl_rankset_t *set, uint32_t slot)
{
    set->word[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
}

static inline void kvcl_rankset_join(kvcl_rankset_t *set, const kvcl_rankset_t *more)
{
    unsigned i;

    for (i = 0; i < KVCL_RANKSET_WORDS; ++i) {
        set->word[i] |= more->word[i];
    }
}

static inline void kvcl_rankset_keep(kvcl_rankset_t *set, const kvcl_rankset_t *of)
{
    unsigned i;

    for (i = 0; i < KVCL_RANKSET_WORDS; ++i) {
        set->word[i] &= of->word[i];
    }
}

static inline void kvcl_rankset_drop(kvcl_rankset_t *set, const kvcl_rankset_t *out)
{
    unsigned i;

    for (i = 0; i < KVCL_RANKSET_WORDS; ++i) {
        set->word[i] &= ~out->word[i];
    }
}

static inline bool kvcl_rankset_is_empty(const kvcl_rankset_t *set)
{
    unsigned i;

    for (i = 0; (i < KVCL_RANKSET_WORDS) && (set->word[i] == 0); ++i) {
    }
    return i == KVCL_RANKSET_WORDS;
}

static inline bool kvcl_rankset_equal(const kvcl_rankset_t *a, const kvcl_rankset_t *b)
{
    unsigned i;

    for (i = 0; (i < KVCL_RANKSET_WORDS) && (a->word[i] == b->word[i]); ++i) {
    }
    return i == KVCL_RANKSET_WORDS;
}

static inline unsigned kvcl_rankset_count(const kvcl_rankset_t *set)
{
    unsigned i, n = 0;

    for (i = 0; i < KVCL_RANKSET_WORDS; ++i) {
        n += (unsigned)__builtin_popcountll(set->word[i]);
    }
    return n;
}

/** The first member from @a slot on; KVCL_SLOT_NONE: there is none. */
static inline uint32_t kvcl_rankset_next(const kvcl_rankset_t *set, uint32_t slot)
{
    uint32_t w;
    uint64_t bits;

    for (w = slot / 64; w < KVCL_RANKSET_WORDS; ++w) {
        bits = set->word[w] & ((w == slot / 64) ? (UINT64_MAX << (slot % 64)) : UINT64_MAX);
        if (bits != 0) {
            return (w * 64) + (uint32_t)__builtin_ctzll(bits);
        }
    }
    return KVCL_SLOT_NONE;
}

#define KVCL_RANKSET_EACH(_set, _slot)                                                                                \
    for ((_slot) = kvcl_rankset_next((_set), 0); (_slot) != KVCL_SLOT_NONE;                                           \
         (_slot) = ((_slot) + 1 < KVCL_SLOTS_MAX) ? kvcl_rankset_next((_set), (_slot) + 1) : KVCL_SLOT_NONE)

#endif
