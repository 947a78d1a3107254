/*
 * An entry of the directory: a location of a key, and the 64-byte table entry that holds it.
 *
 * An entry is one cache line of little-endian fields: 32 bytes of key, 28 of location, 4 of check
 * word. The check word is computed over the whole entry with the entry's own table index in the
 * place of the word, so an entry that was torn by a write, or copied from elsewhere in the table,
 * does not verify. Both layouts are wire formats: they are read by other processes (mapped or
 * fetched) and travel in dir_wire.h messages.
 *
 * Owns: layouts only. No state, no lock.
 */
#ifndef KVCL_DIR_ENTRY_H
#define KVCL_DIR_ENTRY_H

#include "kvcl/kvcl_key.h"

#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "directory entries are little-endian in memory that peers map");

#define KVCL_DIR_RANK_NONE 0xffffu /* no rank has this number */

enum {
    KVCL_DIR_LOCS_MAX    = 4,  /* copies of one key that the directory keeps */
    KVCL_DIR_ENTRY_BYTES = 64,
    KVCL_DIR_LOC_BYTES   = 32
};

/* kvcl_dir_loc_t.flags: the low byte is the owner's (tier in bits 0-2), the high byte belongs to
 * the table and is 0 in every location that goes in or comes out. */
enum {
    KVCL_DIR_TIER_CACHE = 0, /* an engine's own pages */
    KVCL_DIR_TIER_DRAM  = 1, /* the store's pool */
    KVCL_DIR_TIER_NVME  = 2,
    KVCL_DIR_TIER_MASK  = 0x07,
    KVCL_DIR_FLAGS_MASK = 0xff
};

/* The place of one copy of a block. (rank, incarnation, cache, slot, gen) names the bytes for ever:
 * the owner never uses a generation of a slot for two contents. */
typedef struct kvcl_dir_loc {
    uint16_t rank;        /* owner; never KVCL_DIR_RANK_NONE */
    uint16_t incarnation; /* of the owner's process */
    uint16_t cache;       /* region id at the owner */
    uint16_t flags;
    uint32_t slot;        /* in that cache */
    uint32_t len;         /* bytes */
    uint32_t gen;         /* the slot's generation word while these bytes are there; never 0 */
    uint32_t source;      /* in a publish of a copy: the tag of the location that it was made of; else 0 */
    uint64_t checksum;    /* of the bytes */
} kvcl_dir_loc_t;

/* A number for the bytes that a location names; never 0. Locations of one key are told apart by it. */
static inline uint32_t kvcl_dir_loc_tag(const kvcl_dir_loc_t *loc)
{
    uint64_t a = ((uint64_t)loc->rank << 48) | ((uint64_t)loc->incarnation << 32) | loc->slot;
    uint64_t b = ((uint64_t)loc->cache << 32) | loc->gen;

    a = (a + UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    a = (a ^ (a >> 29) ^ b) * UINT64_C(0x94d049bb133111eb);
    a ^= a >> 32;
    return ((uint32_t)a != 0) ? (uint32_t)a : 1;
}

/* As it lies in a table. State and a small write counter share the high byte of flags: table.c. */
typedef struct kvcl_dir_entry {
    kvcl_key_t key;
    uint16_t   rank;
    uint16_t   incarnation;
    uint16_t   cache;
    uint16_t   flags;
    uint32_t   slot;
    uint32_t   len;
    uint32_t   gen;
    uint32_t   check;
    uint64_t   checksum;
} kvcl_dir_entry_t;

_Static_assert(sizeof(kvcl_key_t) == 32, "a key is 32 bytes");
_Static_assert(sizeof(kvcl_dir_loc_t) == KVCL_DIR_LOC_BYTES, "a location is 32 bytes");
_Static_assert(sizeof(kvcl_dir_entry_t) == KVCL_DIR_ENTRY_BYTES, "an entry is one cache line");
_Static_assert(offsetof(kvcl_dir_loc_t, slot) == 8 && offsetof(kvcl_dir_loc_t, gen) == 16 &&
                       offsetof(kvcl_dir_loc_t, checksum) == 24,
               "location fields lie where the wire format says");
_Static_assert(offsetof(kvcl_dir_entry_t, rank) == 32 && offsetof(kvcl_dir_entry_t, check) == 52 &&
                       offsetof(kvcl_dir_entry_t, checksum) == 56,
               "entry = key, then the location with the check word in place of its source");

#endif
