/*
 * All-to-all by pairs: in turn d, rank r gives a part to r + d and gets one from r - d; each part travels once. The
 * turns are not awaited: the windows of the executor bound what is under way.
 *
 * Thakur et al., 2005 (pattern_tree.h), section 4.4.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_part.h"
#include "collectives/pattern_ring.h"

static void alltoall_pairwise_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    const kvcl_part_t part = kvcl_part_cut(shape, 0, shape->len);
    uint32_t          j, d;

    for (j = 0; j < kvcl_part_pieces(&part); ++j) {
        uint64_t off, len = kvcl_part_piece(&part, j, &off);

        for (d = 1; d < shape->size; ++d) {
            uint32_t to   = kvcl_ring_ahead(shape->rank, d, shape->size);
            uint32_t from = kvcl_ring_behind(shape->rank, d, shape->size);

            kvcl_plan_send(plan, to, (to * shape->len) + off, len, KVCL_STEP_NONE);
            kvcl_plan_recv_from(plan, from, (shape->rank * shape->len) + off, (from * shape->len) + off, len,
                                KVCL_STEP_NONE);
        }
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_alltoall_pairwise = {
    .kind = KVCL_COLL_ALLTOALL,
    .name = "pairwise",
    .desc = "each part travels once, by pairs of ranks",
    .plan = alltoall_pairwise_plan,
};
