/*
 * Broadcast, flat: every rank pulls all of it from the root.
 *
 * Best where a pull is a memcpy by the puller: each byte is copied once per receiver, all receivers
 * copy at the same time, and each rank waits for the root only.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_ring.h"

static void bcast_flat_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t v;

    if (shape->rank != shape->root) {
        kvcl_plan_recv(plan, shape->root, 0, shape->len, KVCL_STEP_NONE);
        return;
    }
    for (v = 1; v < shape->size; ++v) {
        kvcl_plan_send(plan, kvcl_ring_ahead(shape->root, v, shape->size), 0, shape->len, KVCL_STEP_NONE);
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_bcast_flat = {
    .kind = KVCL_COLL_BCAST,
    .name = "flat",
    .desc = "every rank pulls from the root",
    .plan = bcast_flat_plan,
};
