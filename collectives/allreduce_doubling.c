/*
 * Allreduce by recursive doubling: in round i the ranks that differ in bit i exchange all that they have; after
 * log2(size) rounds each has the result. For short messages.
 *
 * Thakur et al., 2005 (pattern_tree.h), section 4.5. If size is no power of two, the first 2 * (size - 2^k) ranks pair
 * up before: an even one gives its bytes to the odd one and gets the result at the end.
 *
 * The buffer has a region for each round: a rank reduces into the next one, since its partner still reads this one. A
 * lower rank's bytes are the first operand, so partners compute the same bits, and with them all ranks.
 */
#include "config.h"

#include "collectives/coll.h"

/* The largest power of two up to size. */
static uint32_t power_below(uint32_t size)
{
    return UINT32_C(1) << (31 - __builtin_clz(size));
}

static uint32_t log2_of(uint32_t power)
{
    return (uint32_t)__builtin_ctz(power);
}

static uint32_t doubling_regions(uint32_t size)
{
    uint32_t power = power_below(size);

    return 1 + log2_of(power) + (size > power);
}

/* Who takes part in the rounds is numbered from 0: the odd ones of the pairs, then the others. */
static uint32_t rank_of(uint32_t number, uint32_t pairs)
{
    return (number < pairs) ? ((2 * number) + 1) : (number + pairs);
}

/* The region that a rank offers in round i. */
static uint64_t region_of(uint32_t rank, uint32_t pairs, uint32_t i)
{
    return (rank < 2 * pairs) ? (i + 1) : i;
}

static void allreduce_doubling_plan(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    uint32_t power = power_below(shape->size), pairs = shape->size - power, rounds = log2_of(power);
    uint64_t len = shape->len, last = (uint64_t)(doubling_regions(shape->size) - 1) * len;
    uint32_t rank = shape->rank, have = KVCL_STEP_NONE, number, i;

    if ((rank < 2 * pairs) && (rank % 2 == 0)) {
        kvcl_plan_send(plan, rank + 1, 0, len, KVCL_STEP_NONE);
        kvcl_plan_recv(plan, rank + 1, last, len, KVCL_STEP_NONE);
        return;
    }
    if (rank < 2 * pairs) {
        have = kvcl_plan_reduce(plan, rank - 1, 0, 0, len, len, KVCL_STEP_NONE);
    }
    number = (rank < 2 * pairs) ? (rank / 2) : (rank - pairs);
    for (i = 0; i < rounds; ++i) {
        uint32_t peer = rank_of(number ^ (UINT32_C(1) << i), pairs);
        uint64_t from = region_of(rank, pairs, i) * len;

        kvcl_plan_send(plan, peer, from, len, have);
        have = kvcl_plan_reduce(plan, peer, region_of(peer, pairs, i) * len, from,
                                (i + 1 == rounds) ? last : (from + len), len, have);
    }
    if (rank < 2 * pairs) {
        kvcl_plan_send(plan, rank - 1, last, len, have);
    }
}

const kvcl_coll_alg_t kvcl_coll_alg_allreduce_doubling = {
    .kind    = KVCL_COLL_ALLREDUCE,
    .name    = "doubling",
    .desc    = "log2(size) rounds, all bytes exchanged in each",
    .plan    = allreduce_doubling_plan,
    .regions = doubling_regions,
};
