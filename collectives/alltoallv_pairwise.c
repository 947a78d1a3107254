/*
 * All-to-all of parts of several lengths, by pairs, as alltoall_pairwise.c: piece by piece, so that the parts of all
 * peers begin at once and a long one delays no other.
 *
 * A rank knows its own lengths only. Where a part begins at its sender is in the announcement.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_part.h"
#include "collectives/pattern_ring.h"

static void alltoallv_pairwise_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    const kvcl_coll_parts_t *parts = shape->parts;
    uint32_t                 more  = 1, j, d;

    for (j = 0; more > 0; ++j) {
        for (d = 1, more = 0; d < shape->size; ++d) {
            uint32_t    to   = kvcl_ring_ahead(shape->rank, d, shape->size);
            uint32_t    from = kvcl_ring_behind(shape->rank, d, shape->size);
            kvcl_part_t out  = kvcl_part_cut(shape, parts->send_offs[to], parts->send_lens[to]);
            kvcl_part_t in   = kvcl_part_cut(shape, parts->recv_offs[from], parts->recv_lens[from]);
            uint64_t    off, len;

            if (j < kvcl_part_pieces(&out)) {
                len = kvcl_part_piece(&out, j, &off);
                kvcl_plan_send(plan, to, off, len, KVCL_STEP_NONE);
                ++more;
            }
            if (j < kvcl_part_pieces(&in)) {
                len = kvcl_part_piece(&in, j, &off);
                kvcl_plan_recv_from(plan, from, KVCL_PLAN_ANY, off, len, KVCL_STEP_NONE);
                ++more;
            }
        }
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_alltoallv_pairwise = {
    .kind = KVCL_COLL_ALLTOALLV,
    .name = "pairwise",
    .desc = "each part travels once, piece by piece, by pairs of ranks",
    .plan = alltoallv_pairwise_plan,
};
