/*
 * The blocks that a rank of the nemesis puts into the store and gets from it. A block is named by its slot, the life of
 * the process in that slot, and a number; its bytes follow from the name, so every rank can verify every block.
 * One thread.
 */
#ifndef KVCL_NEMESIS_BLOCKS_H
#define KVCL_NEMESIS_BLOCKS_H

#include <kvcl/kvcl.h>

#include <stdbool.h>

enum { SLOTS = 64 };

typedef struct name {
    uint32_t slot, life, number;
} name_t;

/* What one kind of call has done. */
typedef struct tally {
    uint64_t calls, ok, misses, wrong, late; /* late: ended more than the slack after the deadline */
    uint64_t worst_ns;                       /* the longest after its deadline */
} tally_t;

typedef struct blocks {
    kvcl_store_h store;
    kvcl_cache_h cache;
    uint64_t     timeout_ns, slack_ns;
    tally_t      put, get, step, agree, shrink, join, activate;
} blocks_t;

/** Opens the store over comm: collective, or, where comes, this rank alone comes to the store of the others. It may be
 * called again after it has failed. */
kvcl_status_t blocks_open(blocks_t *blocks, kvcl_context_h ctx, kvcl_comm_h comm, uint64_t pool_bytes,
                          uint64_t replicas, bool comes);

/** copies_p: how many copies there are when it has ended. */
kvcl_status_t blocks_put(blocks_t *blocks, const name_t *name, uint8_t *copies_p);

/** Counts wrong bytes. KVCL_ERR_NOT_FOUND: a miss. */
kvcl_status_t blocks_get(blocks_t *blocks, const name_t *name);

/** The number of copies that the directory lists; 0: none, or the call failed. */
int blocks_copies(blocks_t *blocks, const name_t *name);

/** A call ended: count it. deadline_ns: since began_ns. Prints a line if it failed, or was late. */
void blocks_ended(const blocks_t *blocks, tally_t *tally, const char *what, kvcl_status_t status, uint64_t began_ns,
                  uint64_t deadline_ns);

uint64_t now_ns(void);

#endif
