/*
 * The blocks of one source (idx_held.h). Owns the two arrays.
 */
#include "config.h"

#include "sched/index/idx_held.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 16 };

/* Where the walk for an entry begins. Hashes are mixed already, numbers are not. */
static uint64_t start(const kvcl_idx_held_t *held, uint64_t hash, uint32_t id)
{
    uint64_t mixed = (held->hash != NULL) ? hash : id * UINT64_C(0x9e3779b97f4a7c15);

    return (uint64_t)(((unsigned __int128)mixed * held->cap) >> 64);
}

static uint64_t after(const kvcl_idx_held_t *held, uint64_t at)
{
    return (at + 1 == held->cap) ? 0 : at + 1;
}

void kvcl_idx_held_fini(kvcl_idx_held_t *held)
{
    free(held->hash);
    free(held->id);
    memset(held, 0, sizeof(*held));
}

uint64_t kvcl_idx_held_bytes(const kvcl_idx_held_t *held)
{
    return held->cap * (sizeof(*held->id) + ((held->hash != NULL) ? sizeof(*held->hash) : 0));
}

void kvcl_idx_held_put(kvcl_idx_held_t *held, uint64_t hash, uint32_t id)
{
    uint64_t at = start(held, hash, id);

    while (held->id[at] != 0) {
        at = after(held, at);
    }
    held->id[at] = id;
    if (held->hash != NULL) {
        held->hash[at] = hash;
    }
    ++held->n;
}

kvcl_status_t kvcl_idx_held_room(kvcl_idx_held_t *held, bool by_hash)
{
    kvcl_idx_held_t larger = {.cap = held->cap + held->cap / 2, .n = 0};
    uint64_t        i;

    if (held->n + 1 <= held->cap / 5 * 4) {
        return KVCL_OK;
    }
    larger.cap  = (larger.cap < FIRST_CAP) ? FIRST_CAP : larger.cap;
    larger.id   = calloc(larger.cap, sizeof(*larger.id));
    larger.hash = by_hash ? malloc(larger.cap * sizeof(*larger.hash)) : NULL;
    if ((larger.id == NULL) || (by_hash && (larger.hash == NULL))) {
        kvcl_idx_held_fini(&larger);
        return KVCL_ERR_NO_MEMORY;
    }
    for (i = 0; i < held->cap; ++i) {
        if (held->id[i] != 0) {
            kvcl_idx_held_put(&larger, by_hash ? held->hash[i] : 0, held->id[i]);
        }
    }
    kvcl_idx_held_fini(held);
    *held = larger;
    return KVCL_OK;
}

uint32_t kvcl_idx_held_find(const kvcl_idx_held_t *held, uint64_t hash)
{
    uint64_t at;

    if (held->cap == 0) {
        return 0;
    }
    for (at = start(held, hash, 0); held->id[at] != 0; at = after(held, at)) {
        if (held->hash[at] == hash) {
            return held->id[at];
        }
    }
    return 0;
}

void kvcl_idx_held_prefetch(const kvcl_idx_held_t *held, uint64_t hash)
{
    uint64_t at;

    if (held->cap != 0) {
        at = start(held, hash, 0);
        __builtin_prefetch(&held->id[at], 1);
        __builtin_prefetch(&held->hash[at], 1);
    }
}

/* Close the gap at `hole`: an entry behind it moves there unless its walk begins behind the hole. */
static void close_gap(kvcl_idx_held_t *held, uint64_t hole)
{
    uint64_t at = hole, from, first;

    for (;;) {
        held->id[hole] = 0;
        do {
            at = after(held, at);
            if (held->id[at] == 0) {
                return;
            }
            from  = start(held, (held->hash != NULL) ? held->hash[at] : 0, held->id[at]);
            first = (hole <= at) ? ((hole < from) && (from <= at)) : ((hole < from) || (from <= at));
        } while (first != 0);
        held->id[hole] = held->id[at];
        if (held->hash != NULL) {
            held->hash[hole] = held->hash[at];
        }
        hole = at;
    }
}

void kvcl_idx_held_del(kvcl_idx_held_t *held, uint64_t hash, uint32_t id)
{
    uint64_t at, n;

    if (held->cap == 0) {
        return;
    }
    for (at = start(held, hash, id); (held->id[at] != 0) && (held->id[at] != id); at = after(held, at)) {
    }
    for (n = 0; (held->id[at] != id) && (n < held->cap); ++n) {
        at = after(held, at);
    }
    if (held->id[at] == id) {
        close_gap(held, at);
        --held->n;
    }
}

bool kvcl_idx_held_next(const kvcl_idx_held_t *held, uint64_t *it, uint64_t *hash_p, uint32_t *id_p)
{
    for (; *it < held->cap; ++*it) {
        if (held->id[*it] != 0) {
            *hash_p = (held->hash != NULL) ? held->hash[*it] : 0;
            *id_p   = held->id[*it];
            ++*it;
            return true;
        }
    }
    return false;
}
