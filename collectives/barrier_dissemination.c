/*
 * Barrier by dissemination: in round i rank r notifies r + 2^i and is notified by r - 2^i; after
 * ceil(log2(size)) rounds every rank has been notified, directly or not, by every rank.
 *
 * D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization", 1988.
 * A rank may send in round i only after it has received in all earlier rounds: messages of different
 * rounds come from different ranks and may overtake one another, hence the chain of RECVs.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_ring.h"

static void barrier_dissemination_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t heard = KVCL_STEP_NONE;
    uint64_t d;

    for (d = 1; d < shape->size; d *= 2) {
        kvcl_plan_send(plan, kvcl_ring_ahead(shape->rank, (uint32_t)d, shape->size), 0, 0, heard);
        heard = kvcl_plan_recv(plan, kvcl_ring_behind(shape->rank, (uint32_t)d, shape->size), 0, 0, heard);
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_barrier_dissemination = {
    .kind = KVCL_COLL_BARRIER,
    .name = "dissemination",
    .desc = "log2(size) rounds of notifications",
    .plan = barrier_dissemination_plan,
};
