/*
 * Allgather, direct: every rank pulls every part from the rank that it belongs to, the next rank's first. One round.
 *
 * For few ranks on one host, where a link is not shared and each further round costs a wake-up.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_ring.h"

static void allgather_direct_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t d;

    for (d = 1; d < shape->size; ++d) {
        uint32_t from = kvcl_ring_ahead(shape->rank, d, shape->size);

        kvcl_plan_send(plan, kvcl_ring_behind(shape->rank, d, shape->size), shape->rank * shape->len, shape->len,
                       KVCL_STEP_NONE);
        kvcl_plan_recv(plan, from, from * shape->len, shape->len, KVCL_STEP_NONE);
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_allgather_direct = {
    .kind = KVCL_COLL_ALLGATHER,
    .name = "direct",
    .desc = "one round, each part pulled from its rank",
    .plan = allgather_direct_plan,
};
