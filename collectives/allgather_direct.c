/*
 * Allgather, direct: every rank pulls every part from the rank that it belongs to, the next rank's first. One round.
 *
 * For few ranks on one host, where a link is not shared and each further round costs a wake-up.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_part.h"
#include "collectives/pattern_ring.h"

static void allgather_direct_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    const kvcl_part_t part = kvcl_part_cut(shape, 0, shape->len);
    uint32_t          j, d;

    for (j = 0; j < kvcl_part_pieces(&part); ++j) {
        uint64_t off, len = kvcl_part_piece(&part, j, &off);

        for (d = 1; d < shape->size; ++d) {
            uint32_t from = kvcl_ring_ahead(shape->rank, d, shape->size);

            kvcl_plan_send(plan, kvcl_ring_behind(shape->rank, d, shape->size), (shape->rank * shape->len) + off, len,
                           KVCL_STEP_NONE);
            kvcl_plan_recv(plan, from, (from * shape->len) + off, len, KVCL_STEP_NONE);
        }
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_allgather_direct = {
    .kind = KVCL_COLL_ALLGATHER,
    .name = "direct",
    .desc = "one round, each part pulled from its rank",
    .plan = allgather_direct_plan,
};
