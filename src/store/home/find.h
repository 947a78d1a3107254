/*
 * A find: the locations of keys, by one round of queries to their homes and further rounds where a home has failed or
 * is silent.
 *
 * Part of a call (call.h). A key whose home's table is memory of this rank is read at once; the others are queried. A
 * find returns either which keys are present (flags) or all their locations (found). If a home does not answer, the
 * key's other home is queried; if the key has only one home, it counts as absent. The silent home is suspected, so that
 * the next find does not wait for it.
 */
#ifndef KVCL_STORE_FIND_H
#define KVCL_STORE_FIND_H

#include "store/home/call.h"

/* A bit of flags[]: the key's home must be queried. The other bits are KVCL_PRESENT_*. */
enum { KVCL_FIND_QUERY = 0x80 };

typedef struct kvcl_found {
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX]; /* of live ranks */
    uint8_t        n;
} kvcl_found_t;

typedef struct kvcl_find {
    kvcl_call_t      *call;
    const kvcl_key_t *keys;
    size_t           n;
    uint8_t          *flags; /* n: KVCL_FIND_QUERY until the key's answer arrives; with found, 0 afterwards */
    kvcl_found_t     *found; /* n, or NULL */
    kvcl_scatter_t   scatter;
    unsigned         turn;   /* rounds so far */
    bool             again;  /* another round is needed */
    kvcl_status_t    status; /* the first failure */
} kvcl_find_t;

/** No lock. Reads the keys whose tables are memory of this rank into flags[i], and into found[i] if found is not NULL.
 * stop_at_miss: only up to the first absent key. Returns how many keys matter; *query_p: some of them need a query. */
size_t kvcl_find_here(kvcl_store_h store, const kvcl_key_t *keys, size_t n, bool stop_at_miss, uint8_t *flags,
                      kvcl_found_t *found, bool *query_p);
/** Lock held, in a call's next(). Posts the queries of a round; false: no key needs one. find->status is then KVCL_OK,
 * or the reason why the flags are not valid. */
bool   kvcl_find_round(kvcl_find_t *find);
void   kvcl_find_free(kvcl_find_t *find); /* no lock; frees the find's own allocations */

/** No lock; blocks for timeout_ns at most (0: KVCL_TIMEOUT). Fills found[] with the copies of all n keys that their
 * homes list. */
kvcl_status_t kvcl_locate(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_found_t *found,
                          uint64_t timeout_ns) KVCL_MUST_CHECK;

#endif
