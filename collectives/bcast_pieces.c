/*
 * Broadcast, flat and in pieces: the root offers each piece to every rank before the next one. For bytes that the
 * root copies to memory which all ranks map: one copy of a piece serves all ranks, while it is in the caches.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_part.h"
#include "collectives/pattern_ring.h"

static void bcast_pieces_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    kvcl_part_t part = kvcl_part_cut(shape, 0, shape->len);
    uint32_t    j, v;

    for (j = 0; j < kvcl_part_pieces(&part); ++j) {
        uint64_t off, len = kvcl_part_piece(&part, j, &off);

        if (shape->rank != shape->root) {
            kvcl_plan_recv(plan, shape->root, off, len, KVCL_STEP_NONE);
            continue;
        }
        for (v = 1; v < shape->size; ++v) {
            kvcl_plan_send(plan, kvcl_ring_ahead(shape->root, v, shape->size), off, len, KVCL_STEP_NONE);
        }
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_bcast_pieces = {
    .kind = KVCL_COLL_BCAST,
    .name = "pieces",
    .desc = "every rank pulls from the root, in pieces",
    .plan = bcast_pieces_plan,
};
