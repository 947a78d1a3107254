/*
 * Gather, flat: the root pulls every rank's bytes, those of the next rank first. Each byte travels once.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_part.h"
#include "collectives/pattern_ring.h"

static void gather_flat_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    const kvcl_part_t part = kvcl_part_cut(shape, 0, shape->len);
    uint32_t          j, v;

    for (j = 0; j < kvcl_part_pieces(&part); ++j) {
        uint64_t off, len = kvcl_part_piece(&part, j, &off);

        if (shape->rank != shape->root) {
            kvcl_plan_send(plan, shape->root, off, len, KVCL_STEP_NONE);
            continue;
        }
        for (v = 1; v < shape->size; ++v) {
            uint32_t from = kvcl_ring_ahead(shape->root, v, shape->size);

            kvcl_plan_recv_from(plan, from, off, (from * shape->len) + off, len, KVCL_STEP_NONE);
        }
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_gather_flat = {
    .kind = KVCL_COLL_GATHER,
    .name = "flat",
    .desc = "the root pulls from every rank",
    .plan = gather_flat_plan,
};
