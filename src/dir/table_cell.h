/*
 * Private to table.c and table_read.c: the words of an entry, its states, its check word, and where
 * a key's window starts. All inline and pure.
 *
 * Word 4 (rank, incarnation, cache, flags) is the entry's sequence word: bits 62-63 the state, bits
 * 56-61 a counter that every write of the entry raises. An all-zero entry is EMPTY.
 */
#ifndef KVCL_DIR_TABLE_CELL_H
#define KVCL_DIR_TABLE_CELL_H

#include "base/checksum.h"
#include "dir/table.h"

#include <stdatomic.h>
#include <string.h>

enum {
    DIR_EMPTY = 0, /* never used, or cleaned: a scan stops here */
    DIR_LIVE  = 1,
    DIR_TOMB  = 2, /* removed: a scan steps over it */
    DIR_BUSY  = 3  /* the home is writing it */
};

enum { DIR_WORD_META = 4, DIR_STATE_SHIFT = 62, DIR_SEQ_SHIFT = 56, DIR_SEQ_MASK = 0x3f };
#define DIR_OWNER_BITS ((UINT64_C(1) << DIR_SEQ_SHIFT) - 1)

typedef union dir_image {
    uint64_t         word[8];
    kvcl_dir_entry_t entry;
} dir_image_t;

typedef struct kvcl_dir_header {
    uint64_t magic;
    uint16_t version;
    uint16_t entry_bytes;
    uint32_t window;
    uint64_t capacity;
    uint8_t  reserved[40];
} kvcl_dir_header_t;

_Static_assert(sizeof(kvcl_dir_header_t) == KVCL_DIR_HEADER_BYTES, "the header is one cache line");
_Static_assert(sizeof(kvcl_dir_cell_t) == KVCL_DIR_ENTRY_BYTES, "a cell is one entry");
_Static_assert(sizeof(dir_image_t) == KVCL_DIR_ENTRY_BYTES, "an image is one entry");

static inline unsigned dir_state(uint64_t meta)
{
    return (unsigned)(meta >> DIR_STATE_SHIFT);
}

/* C11 forbids atomic loads through a pointer to const; nothing is written through this one. */
static inline uint64_t dir_load(const _Atomic uint64_t *word, memory_order order)
{
    return atomic_load_explicit((_Atomic uint64_t *)word, order);
}

static inline uint64_t dir_key_word(const kvcl_key_t *key, unsigned i)
{
    uint64_t word;

    memcpy(&word, key->bytes + 8 * i, sizeof(word));
    return word;
}

/* Where the window starts, below @a starts. All 32 bytes count: keys given by users as they are may
 * be weak hashes. Part of the table format: readers compute it as well. */
static inline uint64_t dir_start(const kvcl_key_t *key, uint64_t starts)
{
    uint64_t h = dir_key_word(key, 0) * UINT64_C(0x9e3779b97f4a7c15);

    h ^= dir_key_word(key, 1) * UINT64_C(0xbf58476d1ce4e5b9);
    h ^= (dir_key_word(key, 2) ^ (h >> 29)) * UINT64_C(0x94d049bb133111eb);
    h ^= (dir_key_word(key, 3) ^ (h >> 31)) * UINT64_C(0xc2b2ae3d27d4eb4f);
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return (uint64_t)(((unsigned __int128)h * starts) >> 64);
}

/* The check word of the entry at @a index: over all 64 bytes, the index in the word's place. */
static inline uint32_t dir_check_of(const dir_image_t *image, uint64_t index)
{
    dir_image_t copy = *image;

    copy.entry.check = (uint32_t)index;
    return kvcl_check32(&copy, sizeof(copy));
}

/* A stable copy is a live entry of this index and not debris. */
static inline bool dir_image_ok(const dir_image_t *image, uint64_t index)
{
    return (dir_state(image->word[DIR_WORD_META]) == DIR_LIVE) &&
           (image->entry.check == dir_check_of(image, index));
}

static inline void dir_image_loc(const dir_image_t *image, kvcl_dir_loc_t *loc)
{
    memcpy(loc, &image->word[DIR_WORD_META], sizeof(*loc));
    loc->flags &= KVCL_DIR_FLAGS_MASK;
    loc->source = 0;
}

#endif
