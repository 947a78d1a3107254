/*
 * The bytes of a simulated collective (coll_sim.h): what each rank begins with, how bytes are reduced, and what each
 * rank must end with. A byte is a function of its owner and its place, so a wrong or poisoned one is detected whatever
 * its source.
 */
#ifndef KVCL_TEST_COLL_SIM_BYTES_H
#define KVCL_TEST_COLL_SIM_BYTES_H

#include "collectives/coll.h"

#include <stdint.h>

typedef struct sim_bytes {
    uint8_t *bytes;
    uint8_t *have; /* per byte: whether it is there */
    uint64_t len;
} sim_bytes_t;

/** The parts of an alltoallv at shape->rank of shape->len bytes on average; others have none. */
void sim_parts_init(const kvcl_coll_alg_t *alg, kvcl_coll_shape_t *shape);
void sim_parts_fini(kvcl_coll_shape_t *shape);

/** What the caller of the executor prepares. Where the collective has one buffer, in is out. */
void sim_bytes_init(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape, sim_bytes_t *in, sim_bytes_t *out);
void sim_bytes_fini(sim_bytes_t *in, sim_bytes_t *out);

/** A copy that lives until sim_copies_fini. */
uint8_t *sim_copy(void **copies, const uint8_t *from, uint64_t len);
void     sim_copies_fini(void **copies);

/** to[i] = a[i] op b[i]; to may be a or b. */
void sim_reduce(uint8_t *to, const uint8_t *a, const uint8_t *b, uint64_t len, int odd);

/** The bytes that are the caller's at the end. */
const uint8_t *sim_result_of(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape, const sim_bytes_t *out,
                             uint64_t *len_p);

/** Byte i of them at shape->rank, reduced by addition. */
uint8_t sim_expected(kvcl_coll_kind_t kind, const kvcl_coll_shape_t *shape, uint64_t i);

#endif
