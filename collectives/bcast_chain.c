/*
 * Broadcast, pipelined chain: root -> root+1 -> ... in pieces of the shape's chunk.
 *
 * Each link carries each byte once and all links work at the same time, so a long message takes the
 * time of one copy plus size - 2 pieces. For long messages over a network.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_chunk.h"
#include "collectives/pattern_ring.h"

static void bcast_chain_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t v     = kvcl_ring_vrank(shape->rank, shape->root, shape->size);
    uint32_t prev  = kvcl_ring_behind(shape->rank, 1, shape->size);
    uint32_t next  = kvcl_ring_ahead(shape->rank, 1, shape->size);
    uint64_t chunk = kvcl_chunk_bytes(shape->len, shape->chunk);
    uint64_t off, len;

    for (off = 0; off < shape->len; off += len) {
        uint32_t recv = KVCL_STEP_NONE;

        len = (shape->len - off < chunk) ? (shape->len - off) : chunk;
        if (v != 0) {
            recv = kvcl_plan_recv(plan, prev, off, len, KVCL_STEP_NONE);
        }
        if (v != shape->size - 1) {
            kvcl_plan_send(plan, next, off, len, recv);
        }
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_bcast_chain = {
    .kind = KVCL_COLL_BCAST,
    .name = "chain",
    .desc = "a chain of ranks, pipelined in chunks",
    .plan = bcast_chain_plan,
};
