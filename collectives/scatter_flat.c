/*
 * Scatter, flat: every rank pulls its part from the root. Each byte travels once.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_ring.h"

static void scatter_flat_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t v;

    if (shape->rank != shape->root) {
        kvcl_plan_recv_from(plan, shape->root, shape->rank * shape->len, 0, shape->len, KVCL_STEP_NONE);
        return;
    }
    for (v = 1; v < shape->size; ++v) {
        uint32_t to = kvcl_ring_ahead(shape->root, v, shape->size);

        kvcl_plan_send(plan, to, to * shape->len, shape->len, KVCL_STEP_NONE);
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_scatter_flat = {
    .kind = KVCL_COLL_SCATTER,
    .name = "flat",
    .desc = "every rank pulls its part from the root",
    .plan = scatter_flat_plan,
};
