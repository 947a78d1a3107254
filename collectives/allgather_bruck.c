/*
 * Allgather after Bruck: ceil(log2(size)) rounds, the parts a rank holds double in each. For short
 * parts, where rounds cost more than bytes.
 *
 * J. Bruck et al., "Efficient Algorithms for All-to-All Communications in Multiport Message-Passing
 * Systems", 1997. The paper shifts the buffer by the rank and turns it back at the end; here every
 * part goes to its final place at once, and a run of parts that passes the end of the buffer is two
 * runs. Before the round with distance d a rank holds the d parts from its own on (around the end),
 * gives them to rank - d and gets the next ones from rank + d.
 *
 * A SEND needs the RECVs of all earlier rounds, so the RECVs are a chain.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_ring.h"

/* Parts first, first+1, ... around the end of the buffer: one run or two. Returns the last step. */
static uint32_t append_parts(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan, kvcl_step_op_t op, uint32_t peer,
                             uint32_t first, uint32_t count, uint32_t after)
{
    uint32_t head = (count < shape->size - first) ? count : (shape->size - first);
    uint32_t tail = count - head;

    if (op == KVCL_STEP_SEND) {
        kvcl_plan_send(plan, peer, first * shape->len, head * shape->len, after);
        if (tail > 0) {
            kvcl_plan_send(plan, peer, 0, tail * shape->len, after);
        }
        return KVCL_STEP_NONE;
    }
    after = kvcl_plan_recv(plan, peer, first * shape->len, head * shape->len, after);
    return (tail > 0) ? kvcl_plan_recv(plan, peer, 0, tail * shape->len, after) : after;
}

static void allgather_bruck_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t have = KVCL_STEP_NONE;
    uint64_t d;

    for (d = 1; d < shape->size; d *= 2) {
        uint32_t dist  = (uint32_t)d;
        uint32_t count = (dist < shape->size - dist) ? dist : (shape->size - dist);
        uint32_t ahead = kvcl_ring_ahead(shape->rank, dist, shape->size);

        append_parts(shape, plan, KVCL_STEP_SEND, kvcl_ring_behind(shape->rank, dist, shape->size), shape->rank,
                     count, have);
        have = append_parts(shape, plan, KVCL_STEP_RECV, ahead, ahead, count, have);
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_allgather_bruck = {
    .kind = KVCL_COLL_ALLGATHER,
    .name = "bruck",
    .desc = "log2(size) rounds, the parts held double in each",
    .plan = allgather_bruck_plan,
};
