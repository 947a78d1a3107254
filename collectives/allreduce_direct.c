/*
 * Allreduce, direct: every rank reduces one part of all ranks' buffers, then pulls the other parts from those that
 * reduced them. Two rounds, and each rank moves no more bytes than in a ring: for few ranks.
 *
 * The reduce-scatter and allgather of R. Rabenseifner, "Optimization of Collective Reduction Operations", 2004, both by
 * pairwise exchange. A part has one order of reduction, so all ranks get the same bits.
 *
 * A piece of another rank's part is overwritten here only when that rank announces its result: by then it has pulled
 * the input from here.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_part.h"
#include "collectives/pattern_ring.h"

/* Offer every other rank's part, piece by piece. */
static void offer_parts(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t d, j;

    for (d = 1; d < shape->size; ++d) {
        uint32_t    to   = kvcl_ring_behind(shape->rank, d, shape->size);
        kvcl_part_t part = kvcl_part_of(shape, to);

        for (j = 0; j < kvcl_part_pieces(&part); ++j) {
            uint64_t off, len = kvcl_part_piece(&part, j, &off);

            kvcl_plan_send(plan, to, off, len, KVCL_STEP_NONE);
        }
    }
}

/* Reduce a piece of the own part; offer the result to all. */
static void reduce_piece(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan, uint64_t off, uint64_t len)
{
    uint32_t have = KVCL_STEP_NONE, d;

    for (d = 1; d < shape->size; ++d) {
        have = kvcl_plan_reduce(plan, kvcl_ring_ahead(shape->rank, d, shape->size), off, off, off, len, have);
    }
    for (d = 1; d < shape->size; ++d) {
        kvcl_plan_send(plan, kvcl_ring_behind(shape->rank, d, shape->size), off, len, have);
    }
}

static void allreduce_direct_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    kvcl_part_t part = kvcl_part_of(shape, shape->rank);
    uint32_t    d, j;

    offer_parts(shape, plan);
    for (j = 0; j < kvcl_part_pieces(&part); ++j) {
        uint64_t off, len = kvcl_part_piece(&part, j, &off);

        reduce_piece(shape, plan, off, len);
    }
    for (d = 1; d < shape->size; ++d) {
        uint32_t from = kvcl_ring_ahead(shape->rank, d, shape->size);

        part = kvcl_part_of(shape, from);
        for (j = 0; j < kvcl_part_pieces(&part); ++j) {
            uint64_t off, len = kvcl_part_piece(&part, j, &off);

            kvcl_plan_recv(plan, from, off, len, KVCL_STEP_NONE);
        }
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_allreduce_direct = {
    .kind = KVCL_COLL_ALLREDUCE,
    .name = "direct",
    .desc = "every rank reduces a part and gives it to all, two rounds",
    .plan = allreduce_direct_plan,
};
