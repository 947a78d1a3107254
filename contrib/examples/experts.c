/*
 * Places the experts of a mixture-of-experts model on ranks, lets a rank fail, and prints what each rank does then.
 *
 *   experts
 *
 * It runs alone: these functions work on arrays and need no context. Each rank of a job would call them with the same
 * arrays and get the same plan.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>

enum { EXPERTS = 8, SLOTS = 12, RANKS = 4, PER_RANK = SLOTS / RANKS };

static const uint64_t loads[EXPERTS] = {900, 420, 300, 260, 200, 150, 90, 60}; /* tokens in the last minutes */
static const char     *const from[]  = {"a slot of its own", "a slot that it just received", "a rank of its host",
                                        "a rank of another host", "the store"};

static void print(const char *title, const int32_t *placement)
{
    uint32_t slot;

    printf("%s:", title);
    for (slot = 0; slot < SLOTS; ++slot) {
        printf("%s%2d", (slot % PER_RANK == 0) ? "   " : " ", (int)placement[slot]);
    }
    printf("\n");
}

/* The moves of one round after the other. A rank would post a send or a recv for each of its moves in a round. */
static size_t carry_out(const kvcl_ep_params_t *params, const int32_t *old, const int32_t *placement)
{
    kvcl_ep_move_t moves[SLOTS];
    uint32_t       rounds;
    size_t         n, i;

    KVCL_TRY(kvcl_ep_moves(params, old, placement, moves, sizeof(moves[0]), SLOTS, &n, &rounds));
    for (i = 0; i < n; ++i) {
        printf("  round %u: rank %u gets expert %u from %s\n", moves[i].round, moves[i].destination / PER_RANK,
               moves[i].expert, from[moves[i].kind]);
    }
    return n;
}

int main(void)
{
    const uint8_t    active[RANKS] = {1, 1, 0, 1};
    kvcl_ep_params_t params        = KVCL_EP_PARAMS_INIT;
    int32_t          placement[SLOTS], repaired[SLOTS], even[SLOTS];
    uint32_t         counts[EXPERTS];
    size_t           restored, i;

    params.flags   = KVCL_EP_SPREAD;
    params.experts = EXPERTS;
    params.slots   = SLOTS;
    params.ranks   = RANKS;
    params.hosts   = 2;
    KVCL_TRY(kvcl_ep_place(&params, loads, placement));
    print("placed            ", placement);

    params.active = active; /* rank 2 has failed */
    KVCL_TRY(kvcl_ep_repair(&params, placement, repaired, &restored, NULL));
    print("repaired at once  ", repaired);
    if (carry_out(&params, placement, repaired) != restored) {
        return 1;
    }
    KVCL_TRY(kvcl_ep_place(&params, loads, even));
    print("even, when time is", even);
    (void)carry_out(&params, repaired, even);

    KVCL_TRY(kvcl_ep_index(&params, even, NULL, 0, counts));
    for (i = 0; i < EXPERTS; ++i) {
        if (counts[i] == 0) {
            return 1;
        }
    }
    return 0;
}
