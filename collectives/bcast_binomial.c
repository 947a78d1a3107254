/*
 * Broadcast, binomial tree: ceil(log2(size)) rounds, each rank passes on what it has in one piece.
 *
 * For short messages over a network, where the rounds cost more than the bytes.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_ring.h"
#include "collectives/pattern_tree.h"

static void bcast_binomial_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t size = shape->size;
    uint32_t v    = kvcl_ring_vrank(shape->rank, shape->root, size);
    uint32_t recv = KVCL_STEP_NONE;
    uint32_t bit;

    if (v != 0) {
        recv = kvcl_plan_recv(plan, kvcl_ring_ahead(shape->root, kvcl_binomial_parent(v), size), 0, shape->len,
                              KVCL_STEP_NONE);
    }
    for (bit = kvcl_binomial_first_bit(v, size); bit != 0; bit /= 2) {
        if (kvcl_binomial_has_child(v, bit, size)) {
            kvcl_plan_send(plan, kvcl_ring_ahead(shape->root, v + bit, size), 0, shape->len, recv);
        }
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_bcast_binomial = {
    .kind = KVCL_COLL_BCAST,
    .name = "binomial",
    .desc = "a binomial tree, the message in one piece",
    .plan = bcast_binomial_plan,
};
