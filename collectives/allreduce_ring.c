/*
 * Allreduce around a ring: size - 1 rounds in which a rank reduces the part that the previous rank gives with its own
 * and passes it on, then size - 1 rounds that pass the results on. Each link carries each part twice, pipelined in
 * pieces of the shape's chunk: for long messages of many ranks.
 *
 * P. Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009. A part is
 * reduced in one order, along the ring, so all ranks get the same bits.
 *
 * A piece is overwritten by its result only after the result went around from the rank that reduced it last: by then
 * the next rank has pulled the input from here.
 */
#include "config.h"

#include "collectives/coll.h"
#include "collectives/pattern_part.h"
#include "collectives/pattern_ring.h"

/* The step that the SEND of piece j waits for; KVCL_STEP_NONE in the first round. */
typedef struct round {
    uint32_t have[KVCL_PART_PIECES];
} round_t;

static void send_part(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan, uint32_t owner, const round_t *before)
{
    kvcl_part_t part = kvcl_part_of(shape, owner);
    uint32_t    j;

    for (j = 0; j < kvcl_part_pieces(&part); ++j) {
        uint64_t off, len = kvcl_part_piece(&part, j, &off);

        kvcl_plan_send(plan, kvcl_ring_ahead(shape->rank, 1, shape->size), off, len, before->have[j]);
    }
}

static void get_part(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan, uint32_t owner, int reduces, round_t *round)
{
    uint32_t    prev = kvcl_ring_behind(shape->rank, 1, shape->size), j;
    kvcl_part_t part = kvcl_part_of(shape, owner);

    for (j = 0; j < kvcl_part_pieces(&part); ++j) {
        uint64_t off, len = kvcl_part_piece(&part, j, &off);

        round->have[j] = kvcl_plan_reduce(plan, prev, off, reduces ? off : KVCL_PLAN_COPY, off, len, KVCL_STEP_NONE);
    }
}

static void allreduce_ring_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    const uint32_t rounds = 2 * (shape->size - 1);
    round_t        round;
    uint32_t       i, j;

    for (j = 0; j < KVCL_PART_PIECES; ++j) {
        round.have[j] = KVCL_STEP_NONE;
    }
    for (i = 0; i < rounds; ++i) {
        send_part(shape, plan, kvcl_ring_behind(shape->rank, i, shape->size), &round);
        get_part(shape, plan, kvcl_ring_behind(shape->rank, i + 1, shape->size), i + 1 < shape->size, &round);
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_allreduce_ring = {
    .kind = KVCL_COLL_ALLREDUCE,
    .name = "ring",
    .desc = "2 (size - 1) rounds around the ranks, pipelined in chunks",
    .plan = allreduce_ring_plan,
};
