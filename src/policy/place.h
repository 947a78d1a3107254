/*
 * Placement: the rank that takes the next copies, by failure domain, then in turn, weighted by free room.
 *
 * Among the ranks in separate failure domains, each gets a share in proportion to a weight: 1, and one point more for
 * each free eighth of its pool. So a rank with room gets more than one that must evict, but never all. Slow start: a
 * ramp bounds the points that count. It begins at 1 and rises by 1 with each 1/64 of its pool that the rank has taken;
 * it restarts when the rank was silent, or reports much more free room than before. So a new or an emptied rank gets
 * about as much as others at first. Pure: no lock, no clock.
 */
#ifndef KVCL_POLICY_PLACE_H
#define KVCL_POLICY_PLACE_H

#include <stdbool.h>
#include <stdint.h>

enum { KVCL_PLACE_POINTS = 8 };

/* A rank's pool, as far as is known here. */
typedef struct kvcl_place {
    uint64_t host;  /* equal: they fail together */
    uint64_t bytes; /* of its pool; 0: none */
    uint64_t free;  /* of those */
    uint64_t taken; /* since the ramp went up */
    int64_t  turn;
    uint8_t  ramp;
} kvcl_place_t;

void     kvcl_place_init(kvcl_place_t *place, uint64_t host, uint64_t bytes);
/** The rank took copies of this many bytes, and reports its free room. */
void     kvcl_place_took(kvcl_place_t *place, uint64_t bytes, uint64_t free_bytes);
/** The rank reports its free bytes. */
void     kvcl_place_seen(kvcl_place_t *place, uint64_t free_bytes);
/** It was silent, or is new. */
void     kvcl_place_restart(kvcl_place_t *place);
uint64_t kvcl_place_weight(const kvcl_place_t *place);

/** The next of n places, of those with a nonzero byte in ok[]: of those, if any, that share no host
 * with hosts[0..n_hosts) the one whose turn it is. UINT32_MAX: none is ok. */
uint32_t kvcl_place_next(kvcl_place_t *places, uint32_t n, const uint8_t *ok, const uint64_t *hosts, unsigned n_hosts);

#endif
