/*
 * The structs and calls that the files of the prefix index (kvcl_sched_index.h) share.
 *
 * A block has a struct of one cache line, found by its key through a table of 64-bit words (idx_table.h). Its holders
 * are words of an instance's slot and a mask of tiers: five in the block, more in a list, many as a bitmap for each
 * tier (idx_set.h). A slot is the small number of an instance. For each source a table of its own says which blocks it
 * holds and by which hash its engine names them (idx_held.h), so that its removals and its end take no search.
 *
 * Writers hold the index's lock. Readers hold nothing: what they reach is published by a release store, and taken out
 * before it is retired (idx_epoch.h). "Writer's" fields below are not read by kvcl_sched_index_match.
 */
#ifndef KVCL_SCHED_INDEX_IDX_H
#define KVCL_SCHED_INDEX_IDX_H

#include "kvcl/kvcl_sched_index.h"

#include "base/map.h"
#include "sched/index/idx_epoch.h"
#include "sched/index/idx_held.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    KVCL_IDX_PREDICTED = 3, /* behind the tiers of kvcl_store_tier_t */
    KVCL_IDX_TIERS     = 4,
    KVCL_IDX_REAL      = 7, /* mask of the tiers of sources */
    KVCL_IDX_INLINE    = 5, /* holders in a block */
    KVCL_IDX_DEPTHS    = KVCL_KEY_TAG_BLOCKS,
    KVCL_IDX_NO_BLOCK  = 0
};

typedef struct kvcl_idx_block {
    kvcl_key_t        key;
    _Atomic uintptr_t more;               /* kvcl_idx_list_t, or kvcl_idx_bits_t with bit 0 set; 0: in[] */
    uint32_t          count_depth;        /* writer's: 16 x holders + position in the chain % 16; retired: the next */
    _Atomic uint32_t  in[KVCL_IDX_INLINE]; /* slot << 4 | mask; 0: free */
} kvcl_idx_block_t;

_Static_assert(sizeof(kvcl_idx_block_t) == 64, "a block is one cache line");

static inline uint32_t kvcl_idx_count(const kvcl_idx_block_t *block)
{
    return block->count_depth / KVCL_IDX_DEPTHS;
}

static inline uint32_t kvcl_idx_depth(const kvcl_idx_block_t *block)
{
    return block->count_depth % KVCL_IDX_DEPTHS;
}

/* Blocks lie in chunks that stay until the index ends. */
enum { KVCL_IDX_CHUNK_SHIFT = 15, KVCL_IDX_CHUNK = 1 << KVCL_IDX_CHUNK_SHIFT, KVCL_IDX_CHUNKS = 1 << 15 };

typedef struct kvcl_idx_table kvcl_idx_table_t;

/* Instance of each slot; a larger one replaces it. */
typedef struct kvcl_idx_slots {
    kvcl_idx_mem_t   mem;
    uint32_t         cap; /* a multiple of 64 */
    _Atomic uint32_t instance[];
} kvcl_idx_slots_t;

typedef struct kvcl_idx_source {
    kvcl_sched_source_params_t params; /* its pointers are owned */
    uint32_t                slot;
    kvcl_key_t              base;    /* of its keys */
    kvcl_idx_held_t         held;
    bool                    by_hash; /* held is by the engine's hashes, otherwise by block */
    bool                    lossy;   /* a replay does not make it EXACT */
    uint64_t                next;    /* the first message that is missing, or the next one */
    uint64_t                top;     /* behind the newest message seen; next == top: none is missing */
    uint64_t                full_before; /* info.full when a listing began */
    uint64_t                event_id[KVCL_IDX_TIERS]; /* Mooncake's JSON: the next of each tier; 0: none seen */
    kvcl_sched_source_info_t info;   /* counters */
} kvcl_idx_source_t;

/* A block that a source will hold (kvcl_idx_coming). */
enum { KVCL_IDX_COMING = 16 };

typedef struct kvcl_idx_coming {
    kvcl_key_t key;
    uint64_t   key_hash;
    uint64_t   hash; /* the engine's */
    uint32_t   depth;
} kvcl_idx_coming_t;

typedef struct kvcl_idx_guess {
    uint64_t until_ns;
    uint32_t block;
    uint32_t slot;
} kvcl_idx_guess_t;

/* Predictions, oldest first, in a ring; the newest of each block and slot counts. */
typedef struct kvcl_idx_guesses {
    kvcl_idx_guess_t *ring;
    size_t           cap;   /* a power of two, or 0 */
    size_t           first;
    size_t           n;
    kvcl_map_t       until; /* block << 32 | slot: until_ns + 1 */
} kvcl_idx_guesses_t;

struct kvcl_sched_index {
    /* Read by readers. */
    _Atomic(kvcl_idx_table_t *)  table;
    _Atomic(kvcl_idx_slots_t *)  slots;
    uint64_t                     seed; /* of the keys' hashes */
    _Atomic(kvcl_idx_block_t *)  *chunks;
    kvcl_idx_epoch_t             epoch;

    /* Writer's. */
    pthread_mutex_t    lock;
    _Atomic uint64_t   bytes;
    uint64_t           hash_seed;   /* of the engines' hashes: saved with them */
    uint64_t           max_blocks;
    uint32_t           max_instances;
    uint64_t           predict_ns;
    kvcl_idx_table_t   *growing;    /* replaces table when all its words were moved; NULL: none */
    uint64_t           moved;       /* words of table */
    uint32_t           reclaims;    /* calls of kvcl_idx_reclaim */
    uint32_t           free_block;  /* a list through count_depth */
    uint32_t           block_end;   /* blocks ever used: 1 .. block_end - 1 */
    uint64_t           blocks;
    uint64_t           holders;
    uint32_t           slot_end;    /* slots ever used */
    uint32_t           free_slot;   /* a list through slot_next; UINT32_MAX: none */
    uint32_t           *slot_next;  /* of slots->cap */
    uint32_t           *slot_uses;  /* sources of a slot */
    uint32_t           *words;      /* scratch, of slots->cap */
    uint32_t           instances;
    kvcl_map_t         slot_of;     /* instance: slot + 1 */
    kvcl_idx_source_t  **sources;   /* NULL: forgotten */
    uint32_t           source_cap;
    uint32_t           n_sources;
    kvcl_idx_guesses_t guesses;
    uint32_t           *tokens;     /* scratch of a feed */
    size_t             token_cap;
    uint8_t            *text;       /* scratch: JSON as MessagePack */
    size_t             text_cap;
};

static inline kvcl_idx_block_t *kvcl_idx_block(const kvcl_sched_index_h index, uint32_t id)
{
    kvcl_idx_block_t *chunk = atomic_load_explicit(&index->chunks[id >> KVCL_IDX_CHUNK_SHIFT], memory_order_acquire);

    return &chunk[id & (KVCL_IDX_CHUNK - 1)];
}

/* ---- memory, counted (idx_block.c) ---- */

/** Zeroed; begins with a kvcl_idx_mem_t. NULL: no memory. */
void *kvcl_idx_alloc(kvcl_sched_index_h index, size_t bytes);
void  kvcl_idx_release(kvcl_sched_index_h index, kvcl_idx_mem_t *mem); /* at once; NULL is allowed */
/** When the readers of now have left. */
void  kvcl_idx_retire(kvcl_sched_index_h index, kvcl_idx_mem_t *mem);
/** Use again what no reader can reach any more, if there is enough of it. */
void  kvcl_idx_reclaim(kvcl_sched_index_h index, bool all);

/* ---- blocks (idx_block.c); the lock is held ---- */

uint64_t kvcl_idx_hash(const struct kvcl_sched_index *index, const kvcl_key_t *key);
/** Its number; KVCL_IDX_NO_BLOCK: unknown. */
uint32_t kvcl_idx_find(kvcl_sched_index_h index, const kvcl_key_t *key);
/** Find or make the block. hash: kvcl_idx_hash; depth: its position % 16; KVCL_IDX_DEPTHS: not known. A new one has no
 * holder yet. */
kvcl_status_t kvcl_idx_make(kvcl_sched_index_h index, const kvcl_key_t *key, uint64_t hash, uint32_t depth,
                            uint32_t *id_p) KVCL_MUST_CHECK;
/** Take out a block that has no holder; one that has stays. */
void kvcl_idx_drop_empty(kvcl_sched_index_h index, uint32_t id);

/* ---- what sources say (idx_source.c); the lock is held ---- */

/** The source; NULL with the sentence set. */
kvcl_idx_source_t *kvcl_idx_source(kvcl_sched_index_h index, uint32_t source);
/** The block is on these tiers, too. hash: the engine's, if by_hash. It counts what does not fit. */
kvcl_status_t kvcl_idx_hold(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_key_t *key, uint32_t depth,
                            uint64_t hash, uint32_t tiers) KVCL_MUST_CHECK;
/** A block to hold: what the table and the source need for it comes into the processor's cache in the meantime. */
void          kvcl_idx_coming(kvcl_sched_index_h index, const kvcl_idx_source_t *source, kvcl_idx_coming_t *block,
                              const kvcl_key_t *key, uint32_t depth, uint64_t hash);
/** kvcl_idx_hold for each of n; a few at a time are best. @return the last error. */
kvcl_status_t kvcl_idx_hold_all(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_idx_coming_t *blocks,
                                size_t n, uint32_t tiers) KVCL_MUST_CHECK;
/** It is not on these tiers any more. id: a block that the source holds. */
void kvcl_idx_let_go(kvcl_sched_index_h index, kvcl_idx_source_t *source, uint32_t id, uint64_t hash, uint32_t tiers);
/** All its blocks leave these tiers. */
void kvcl_idx_let_all_go(kvcl_sched_index_h index, kvcl_idx_source_t *source, uint32_t tiers);
/** Add a source of checked params (copied). */
kvcl_status_t kvcl_idx_source_add(kvcl_sched_index_h index, const kvcl_sched_source_params_t *params,
                                  uint32_t *source_p) KVCL_MUST_CHECK;
void          kvcl_idx_source_forget(kvcl_sched_index_h index, uint32_t source);
void          kvcl_idx_sources_fini(kvcl_sched_index_h index);
/** It has no block, and its messages begin anew: EXACT. */
void kvcl_idx_begin_anew(kvcl_sched_index_h index, kvcl_idx_source_t *source);

static inline uint32_t kvcl_idx_state(const kvcl_idx_source_t *source)
{
    return (source->lossy || (source->next != source->top)) ? KVCL_SCHED_DEGRADED : KVCL_SCHED_EXACT;
}

/* ---- slots and predictions ---- */

/** The instance's slot, for one more source. (idx_slot.c) */
kvcl_status_t kvcl_idx_slot_take(kvcl_sched_index_h index, uint32_t instance, uint32_t *slot_p) KVCL_MUST_CHECK;
void          kvcl_idx_slot_leave(kvcl_sched_index_h index, uint32_t slot);
/** idx_guess.c */
kvcl_status_t kvcl_idx_guess(kvcl_sched_index_h index, uint32_t slot, const kvcl_key_t *key, uint64_t now_ns)
    KVCL_MUST_CHECK;
void          kvcl_idx_guesses_end(kvcl_sched_index_h index, uint64_t now_ns);
void          kvcl_idx_guesses_drop(kvcl_sched_index_h index, uint32_t slot); /* all of a slot */
void          kvcl_idx_guesses_fini(kvcl_sched_index_h index);

/* ---- a source's numbers (idx_sequence.c) ---- */

/** A message with a number has come. @return whether to apply it. */
bool kvcl_idx_sequence(kvcl_sched_index_h index, kvcl_idx_source_t *source, uint64_t number, bool replayed);
/** The end of a replay. */
void kvcl_idx_sequence_end(kvcl_idx_source_t *source);
/** Message `number` said that all blocks are gone: what came before does not matter. */
void kvcl_idx_sequence_cleared(kvcl_idx_source_t *source, uint64_t number, bool replayed);

#endif
