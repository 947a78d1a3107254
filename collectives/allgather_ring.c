/*
 * Allgather around a ring: size - 1 rounds, in each a rank gives the part it got last to the next
 * rank. Every link carries every part once: for long parts (Thakur et al., 2005).
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_part.h"
#include "collectives/pattern_ring.h"

static void allgather_ring_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    const uint32_t    size = shape->size;
    const uint32_t    next = kvcl_ring_ahead(shape->rank, 1, size);
    const uint32_t    prev = kvcl_ring_behind(shape->rank, 1, size);
    const kvcl_part_t part = kvcl_part_cut(shape, 0, shape->len);
    uint32_t          j, i;

    for (j = 0; j < kvcl_part_pieces(&part); ++j) {
        uint64_t off, len = kvcl_part_piece(&part, j, &off);
        uint32_t have = KVCL_STEP_NONE; /* the RECV of the piece to send now; the first one is this rank's own */

        for (i = 0; i + 1 < size; ++i) {
            kvcl_plan_send(plan, next, (kvcl_ring_behind(shape->rank, i, size) * shape->len) + off, len, have);
            have = kvcl_plan_recv(plan, prev, (kvcl_ring_behind(prev, i, size) * shape->len) + off, len,
                                  KVCL_STEP_NONE);
        }
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_allgather_ring = {
    .kind = KVCL_COLL_ALLGATHER,
    .name = "ring",
    .desc = "size - 1 rounds, each part passed on once",
    .plan = allgather_ring_plan,
};
