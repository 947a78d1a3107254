/*
 * Reduce-scatter by pairs: every rank pulls its own part of every rank's buffer, those of r + 1, r + 2, ... in this
 * order, and reduces it with what it has. Each part travels once, as in a ring, and nothing waits for another rank's
 * result.
 *
 * Thakur et al., 2005 (pattern_tree.h), section 4.3, the pairwise exchange. One rank reduces all of a part, in an order
 * that depends on its rank alone: the same input gives the same bits in each run.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_part.h"
#include "collectives/pattern_ring.h"

static void reduce_scatter_pairwise_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    kvcl_part_t here   = kvcl_part_cut(shape, 0, shape->len);
    uint32_t    pieces = kvcl_part_pieces(&here), j, d;

    for (j = 0; j < pieces; ++j) {
        uint64_t off, len = kvcl_part_piece(&here, j, &off);
        uint32_t have = KVCL_STEP_NONE;

        for (d = 1; d < shape->size; ++d) {
            uint32_t to   = kvcl_ring_behind(shape->rank, d, shape->size);
            uint32_t from = kvcl_ring_ahead(shape->rank, d, shape->size);

            kvcl_plan_send(plan, to, (to * shape->len) + off, len, KVCL_STEP_NONE);
            have = kvcl_plan_reduce(plan, from, (shape->rank * shape->len) + off, off, off, len, have);
        }
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_reduce_scatter_pairwise = {
    .kind = KVCL_COLL_REDUCE_SCATTER,
    .name = "pairwise",
    .desc = "every rank reduces its part of all ranks' buffers",
    .plan = reduce_scatter_pairwise_plan,
};
