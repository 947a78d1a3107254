/*
 * Allgather around a ring: size - 1 rounds, in each a rank gives the part it got last to the next
 * rank. Every link carries every part once: for long parts (Thakur et al., 2005).
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_ring.h"

static void allgather_ring_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t size = shape->size;
    uint32_t next = kvcl_ring_ahead(shape->rank, 1, size);
    uint32_t prev = kvcl_ring_behind(shape->rank, 1, size);
    uint32_t have = KVCL_STEP_NONE; /* the RECV of the part to send now; the first part is this rank's own */
    uint32_t i;

    for (i = 0; i + 1 < size; ++i) {
        kvcl_plan_send(plan, next, kvcl_ring_behind(shape->rank, i, size) * shape->len, shape->len, have);
        have = kvcl_plan_recv(plan, prev, kvcl_ring_behind(prev, i, size) * shape->len, shape->len, KVCL_STEP_NONE);
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_allgather_ring = {
    .kind = KVCL_COLL_ALLGATHER,
    .name = "ring",
    .desc = "size - 1 rounds, each part passed on once",
    .plan = allgather_ring_plan,
};
