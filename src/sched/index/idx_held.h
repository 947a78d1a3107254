/*
 * The blocks that one source holds: a table of block numbers, by the hash that the source's engine names them by, or by
 * the number itself. Open addressing with linear probing; a removal moves later entries back. It grows by
 * half when it is 4/5 full. No lock: the index's.
 */
#ifndef KVCL_SCHED_INDEX_IDX_HELD_H
#define KVCL_SCHED_INDEX_IDX_HELD_H

#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvcl_idx_held {
    uint64_t *hash; /* NULL: by number */
    uint32_t *id;   /* 0: free */
    uint64_t cap;
    uint64_t n;
} kvcl_idx_held_t;

void     kvcl_idx_held_fini(kvcl_idx_held_t *held); /* empty afterwards */
uint64_t kvcl_idx_held_bytes(const kvcl_idx_held_t *held);
/** Before a put. by_hash: the same each time. @return KVCL_OK, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_idx_held_room(kvcl_idx_held_t *held, bool by_hash) KVCL_MUST_CHECK;
/** An entry that is not there. hash is ignored if by number. */
void     kvcl_idx_held_put(kvcl_idx_held_t *held, uint64_t hash, uint32_t id);
/** The block of an engine's hash; 0: none. */
uint32_t kvcl_idx_held_find(const kvcl_idx_held_t *held, uint64_t hash);
/** Its entry will be looked for soon: by hash. */
void     kvcl_idx_held_prefetch(const kvcl_idx_held_t *held, uint64_t hash);
/** Take out the entry of a block; hash: the one it was put by, or any other (then all entries are searched). */
void     kvcl_idx_held_del(kvcl_idx_held_t *held, uint64_t hash, uint32_t id);
/** Walk: it is 0 at first. @return false: no more. */
bool     kvcl_idx_held_next(const kvcl_idx_held_t *held, uint64_t *it, uint64_t *hash_p, uint32_t *id_p);

#endif
