/*
 * The functions of kvcl_ep.h with counts, masks, loads and placements of any kind: they stay inside their arrays, and
 * what they accept has the properties that the header promises. Counts are small, so that the arrays here suffice, or
 * beyond every limit.
 */
#include "config.h"

#include "kvcl/kvcl_ep.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LAYERS = 3, EXPERTS = 40, SLOTS = 64, RANKS = 16 };

typedef struct input {
    const uint8_t *data;
    size_t        size, at;
} input_t;

static uint32_t next(input_t *in)
{
    return (in->at < in->size) ? in->data[in->at++] : 0;
}

/* 0 to most, rarely beyond every limit. */
static uint32_t count(input_t *in, uint32_t most)
{
    uint32_t byte = next(in);

    return (byte == 255) ? UINT32_MAX - next(in) : byte % (most + 1);
}

static void need(int cond)
{
    if (!cond) {
        abort();
    }
}

/* Arrays of exactly the length that a call may touch, so that a sanitizer sees the next byte. */
static int32_t *placement_of(input_t *in, const kvcl_ep_params_t *p, int wild)
{
    size_t  n = (size_t)((p->layers == 0) ? 1 : p->layers) * p->slots, i;
    int32_t *placement;

    n         = (n <= LAYERS * SLOTS) ? n : 0;
    placement = malloc((n + 1) * sizeof(*placement));
    need(placement != NULL);
    for (i = 0; i < n; ++i) {
        placement[i] = wild ? (int32_t)next(in) - 2 : (int32_t)(next(in) % ((uint64_t)p->experts + 1)) - 1;
    }
    return placement;
}

static void use(const kvcl_ep_params_t *p, const int32_t *old, int32_t *placement)
{
    size_t         n = 0, restored = 0, missing = 0, i;
    uint32_t       rounds = 0;
    kvcl_ep_move_t *moves;
    int32_t        *copies;

    if (kvcl_ep_repair(p, old, placement, &restored, &missing) != KVCL_OK) {
        return;
    }
    need((missing == 0) || ((p->flags & KVCL_EP_HOLES) != 0));
    (void)!kvcl_ep_moves(p, old, placement, NULL, sizeof(*moves), 0, &n, &rounds);
    need(n == restored);
    moves = malloc((n + 1) * sizeof(*moves));
    need((moves != NULL) && (kvcl_ep_moves(p, old, placement, moves, sizeof(*moves), n, &n, &rounds) == KVCL_OK));
    for (i = 0; i < n; ++i) {
        need((moves[i].kind == KVCL_EP_FROM_STORE) && (moves[i].round == 0) && (moves[i].destination < p->slots));
    }
    free(moves);
    copies = malloc((size_t)LAYERS * EXPERTS * SLOTS * sizeof(*copies));
    need((copies != NULL) && (kvcl_ep_index(p, placement, copies, SLOTS, NULL) == KVCL_OK));
    free(copies);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input_t          in = {data, size, 0};
    kvcl_ep_params_t p  = KVCL_EP_PARAMS_INIT;
    uint8_t          active[RANKS];
    uint64_t         loads[LAYERS * EXPERTS];
    int32_t          *old, *other, *placement;
    kvcl_ep_move_t   moves[LAYERS * SLOTS];
    size_t           i, n;
    uint32_t         rounds;

    p.flags     = next(&in) % 4;
    p.layers    = count(&in, LAYERS);
    p.experts   = count(&in, EXPERTS);
    p.ranks     = count(&in, RANKS);
    p.slots     = (p.ranks <= RANKS) ? p.ranks * (next(&in) % 5) + (next(&in) == 7) : count(&in, SLOTS);
    p.slots     = (p.slots <= SLOTS) ? p.slots : UINT32_MAX;
    p.hosts     = count(&in, 4);
    p.groups    = count(&in, 4);
    p.min_ranks = count(&in, 3);
    p.min_hosts = count(&in, 3);
    for (i = 0; i < RANKS; ++i) {
        active[i] = (uint8_t)(next(&in) % 3);
    }
    p.active = (next(&in) % 2 == 0) ? active : NULL;
    for (i = 0; i < LAYERS * EXPERTS; ++i) {
        loads[i] = (uint64_t)next(&in) << (next(&in) % 64);
    }
    old       = placement_of(&in, &p, next(&in) % 8 == 0);
    other     = placement_of(&in, &p, next(&in) % 8 == 0);
    placement = placement_of(&in, &p, 0);
    if (kvcl_ep_place(&p, loads, placement) == KVCL_OK) {
        need(kvcl_ep_moves(&p, placement, placement, NULL, sizeof(moves[0]), 0, &n, &rounds) == KVCL_OK);
        need((n == 0) && (rounds == 0));
        need((kvcl_ep_repair(&p, placement, placement, &n, NULL) == KVCL_OK) && (n == 0));
    }
    (void)!kvcl_ep_moves(&p, old, other, moves, sizeof(moves[0]), LAYERS * SLOTS, &n, &rounds);
    use(&p, old, placement);
    free(old);
    free(other);
    free(placement);
    return 0;
}
