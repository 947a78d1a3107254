/*
 * Rounds in which each rank has one peer at a time. Pairs of ranks, those with the most moves first, take the first
 * round in which neither rank has a peer. So pairs of a round have about as many moves each, and if no rank has more
 * than d peers, a pair waits for at most 2 * (d - 1) others: there are at most 2 * d - 1 rounds.
 *
 * Moves are numbered in the order of layers and destinations. Sorting keeps that order among equals.
 *
 * Pure; no lock.
 */
#include "ep/ep_moves.h"

/* Sort items by key, then index, with a heap: the items taken go to the end of the array, which then is reversed. */
static void sort(kvcl_ep_item_t *items, uint32_t n)
{
    kvcl_ep_item_t first;
    uint32_t       left = n, i;

    kvcl_ep_heapify(items, n);
    while (left > 0) {
        first       = kvcl_ep_pop(items, &left);
        items[left] = first;
    }
    for (i = 0; i < n / 2; ++i) {
        first            = items[i];
        items[i]         = items[n - 1 - i];
        items[n - 1 - i] = first;
    }
}

static kvcl_ep_pair_t pair_of(const kvcl_ep_shape_t *s, const kvcl_ep_move_t *move)
{
    uint32_t from = (uint32_t)move->source / s->per_rank, to = move->destination / s->per_rank;

    return (from < to) ? (kvcl_ep_pair_t){from, to, 0, 0} : (kvcl_ep_pair_t){to, from, 0, 0};
}

/* The pairs, ascending, each with its number of moves; schedule->items has the moves with a peer in the order of pairs.
 * @return the number of pairs. */
static uint32_t list_pairs(const kvcl_ep_shape_t *s, kvcl_ep_schedule_t *schedule)
{
    uint32_t       n_items = 0, n = 0, i;
    kvcl_ep_pair_t pair;

    for (i = 0; i < schedule->n; ++i) {
        if (kvcl_ep_has_peer(&schedule->moves[i])) {
            pair                        = pair_of(s, &schedule->moves[i]);
            schedule->items[n_items++] = (kvcl_ep_item_t){((uint64_t)pair.a << 32) | pair.b, i};
        }
    }
    sort(schedule->items, n_items);
    for (i = 0; i < n_items; ++i) {
        pair = pair_of(s, &schedule->moves[schedule->items[i].index]);
        if ((n == 0) || (schedule->pairs[n - 1].a != pair.a) || (schedule->pairs[n - 1].b != pair.b)) {
            schedule->pairs[n++] = pair;
        }
        ++schedule->pairs[n - 1].n;
        schedule->moves[schedule->items[i].index].round = n - 1; /* the pair, until its round is known */
    }
    return n;
}

static uint32_t first_free(const kvcl_ep_schedule_t *schedule, const kvcl_ep_pair_t *pair)
{
    const uint64_t *a = &schedule->busy[(size_t)pair->a * schedule->words];
    const uint64_t *b = &schedule->busy[(size_t)pair->b * schedule->words];
    uint32_t       w  = 0;

    while ((a[w] | b[w]) == UINT64_MAX) {
        ++w;
    }
    return (64 * w) + (uint32_t)__builtin_ctzll(~(a[w] | b[w]));
}

static void set_busy(const kvcl_ep_schedule_t *schedule, uint32_t rank, uint32_t round)
{
    schedule->busy[((size_t)rank * schedule->words) + (round / 64)] |= UINT64_C(1) << (round % 64);
}

static uint32_t choose_rounds(const kvcl_ep_shape_t *s, kvcl_ep_schedule_t *schedule, uint32_t n)
{
    uint32_t       rounds = 0, i;
    kvcl_ep_pair_t *pair;
    size_t         w;

    for (w = 0; w < (size_t)s->ranks * schedule->words; ++w) {
        schedule->busy[w] = 0;
    }
    for (i = 0; i < n; ++i) {
        schedule->items[i] = (kvcl_ep_item_t){UINT32_MAX - schedule->pairs[i].n, i};
    }
    sort(schedule->items, n);
    for (i = 0; i < n; ++i) {
        pair        = &schedule->pairs[schedule->items[i].index];
        pair->round = first_free(schedule, pair);
        set_busy(schedule, pair->a, pair->round);
        set_busy(schedule, pair->b, pair->round);
        rounds = (pair->round >= rounds) ? pair->round + 1 : rounds;
    }
    return rounds;
}

/* Within a round: moves that need no peer, then pair by pair, then copies of what has arrived. */
static uint64_t place_in_round(const kvcl_ep_shape_t *s, const kvcl_ep_move_t *move)
{
    kvcl_ep_pair_t pair;

    if (move->kind == KVCL_EP_FROM_MOVE) {
        return UINT32_MAX;
    }
    if (!kvcl_ep_has_peer(move)) {
        return 0;
    }
    pair = pair_of(s, move);
    return 1 + ((uint64_t)pair.a * s->ranks) + pair.b;
}

uint32_t kvcl_ep_rounds(const kvcl_ep_shape_t *s, kvcl_ep_schedule_t *schedule)
{
    uint32_t       n = list_pairs(s, schedule), rounds = choose_rounds(s, schedule, n), i;
    kvcl_ep_move_t *move;

    for (i = 0; i < schedule->n; ++i) {
        move = &schedule->moves[i];
        if (kvcl_ep_has_peer(move)) {
            move->round = schedule->pairs[move->round].round;
        }
    }
    for (i = 0; i < schedule->n; ++i) { /* move->round of these is the number of the move before */
        move = &schedule->moves[i];
        if (move->kind == KVCL_EP_FROM_MOVE) {
            move->round = schedule->moves[move->round].round;
        }
    }
    for (i = 0; i < schedule->n; ++i) {
        move               = &schedule->moves[i];
        schedule->items[i] = (kvcl_ep_item_t){((kvcl_ep_load_t)move->round << 64) | place_in_round(s, move), i};
    }
    sort(schedule->items, (uint32_t)schedule->n);
    return rounds;
}
