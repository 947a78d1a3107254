/*
 * Where keys are: one round of questions to their homes, and further ones where a home is found to be gone or silent.
 *
 * Part of a call (call.h). Keys whose home's table is memory here are read at once; a find asks for the others. It asks
 * either who is there (flags) or for all locations (found). Where a home does not answer, the key's other home is asked
 * if it has one; where there is none the key counts as absent, and the home is suspected, so that the next find does
 * not wait for it.
 */
#ifndef KVCL_STORE_FIND_H
#define KVCL_STORE_FIND_H

#include "store/home/call.h"

/* Of a flag: its home must be asked. The others are KVCL_PRESENT_*. */
enum { KVCL_FIND_QUERY = 0x80 };

typedef struct kvcl_found {
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX]; /* of living ranks */
    uint8_t        n;
} kvcl_found_t;

typedef struct kvcl_find {
    kvcl_call_t      *call;
    const kvcl_key_t *keys;
    size_t           n;
    uint8_t          *flags; /* n: KVCL_FIND_QUERY until it is known; with found, 0 then */
    kvcl_found_t     *found; /* n, or NULL */
    kvcl_scatter_t   scatter;
    unsigned         turn;
    bool             again;
    kvcl_status_t    status; /* the first thing that went wrong */
} kvcl_find_t;

/** No lock. What can be read here: flags[i], and found[i] where found is not NULL. stop_at_miss: up to the first absent
 * key. Returns how many keys matter; *rpc_p: some must be asked for. */
size_t kvcl_find_here(kvcl_store_h store, const kvcl_key_t *keys, size_t n, bool stop_at_miss, uint8_t *flags,
                      kvcl_found_t *found, bool *rpc_p);
/** Lock held, in a call's next(): the questions of a round are posted; false: there are none any more, all is known.
 * What is left of find->status is KVCL_OK, or why the flags say nothing. */
bool   kvcl_find_round(kvcl_find_t *find);
void   kvcl_find_free(kvcl_find_t *find); /* no lock: what it has allocated */

/** No lock; blocks, for timeout_ns (0: KVCL_TIMEOUT) at most. Of all n keys the copies that their homes know. */
kvcl_status_t kvcl_locate(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_found_t *found,
                          uint64_t timeout_ns) KVCL_MUST_CHECK;

#endif
