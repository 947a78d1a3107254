/*
 * Moves between placements: an example by hand, then random pairs of placements. Each plan is carried out on arrays,
 * and its sources, their nearness, its order and its rounds are compared with what kvcl_ep.h says. TEST_SEED replays.
 */
#include "kvcl/kvcl_ep.h"
#include "test_base.h"

#include <string.h>

enum { INPUTS = 10000, LAYERS = 3, SLOTS = 96, EXPERTS = 48, RANKS = 16, MOVES = LAYERS * SLOTS };

static kvcl_rand_t rnd;

static uint32_t below(uint32_t n)
{
    return (uint32_t)kvcl_rand_below(&rnd, n);
}

typedef struct pair {
    kvcl_ep_params_t p;
    uint8_t          active[RANKS];
    int32_t          old[MOVES], placement[MOVES];
    kvcl_ep_move_t   moves[MOVES];
    size_t           n;
    uint32_t         rounds;
} pair_t;

static void plan(pair_t *x)
{
    ck_assert_msg(kvcl_ep_moves(&x->p, x->old, x->placement, x->moves, sizeof(x->moves[0]), MOVES, &x->n, &x->rounds) ==
                      KVCL_OK, "%s", kvcl_last_error());
}

static void expect(const kvcl_ep_move_t *got, kvcl_ep_move_t want)
{
    ck_assert_msg(memcmp(got, &want, sizeof(want)) == 0,
                  "layer %u expert %u from %d to %u kind %u round %u, not %u %u %d %u %u %u", got->layer, got->expert,
                  got->source, got->destination, got->kind, got->round, want.layer, want.expert, want.source,
                  want.destination, want.kind, want.round);
}

/* Four ranks of two slots on two hosts. */
START_TEST(each_kind_of_source)
{
    static const int32_t old[8]       = {0, 1, 2, 3, 4, 0, 5, 1};
    static const int32_t placement[8] = {2, 0, 6, 6, 4, 3, 5, 1};
    pair_t               x;

    memset(&x, 0, sizeof(x));
    x.p = (kvcl_ep_params_t){.size = sizeof(x.p), .experts = 7, .slots = 8, .ranks = 4, .hosts = 2};
    memcpy(x.old, old, sizeof(old));
    memcpy(x.placement, placement, sizeof(placement));
    plan(&x);
    ck_assert_uint_eq(x.n, 5);
    ck_assert_uint_eq(x.rounds, 2);
    expect(&x.moves[0], (kvcl_ep_move_t){0, 0, 0, 1, KVCL_EP_FROM_RANK, 0});
    expect(&x.moves[1], (kvcl_ep_move_t){0, 6, KVCL_EP_NONE, 2, KVCL_EP_FROM_STORE, 0});
    expect(&x.moves[2], (kvcl_ep_move_t){0, 2, 2, 0, KVCL_EP_FROM_HOST, 0});
    expect(&x.moves[3], (kvcl_ep_move_t){0, 6, 2, 3, KVCL_EP_FROM_MOVE, 0});
    expect(&x.moves[4], (kvcl_ep_move_t){0, 3, 3, 5, KVCL_EP_FROM_OTHER, 1});
}
END_TEST

START_TEST(a_repair_moves_what_was_lost)
{
    static const int32_t old[8]    = {1, 5, 0, 0, 2, 3, 0, 4};
    static const uint8_t active[4] = {1, 1, 0, 1};
    pair_t               x;

    memset(&x, 0, sizeof(x));
    x.p = (kvcl_ep_params_t){.size = sizeof(x.p), .experts = 6, .slots = 8, .ranks = 4, .active = active};
    memcpy(x.old, old, sizeof(old));
    ck_assert_int_eq(kvcl_ep_repair(&x.p, x.old, x.placement, NULL, NULL), KVCL_OK);
    plan(&x);
    ck_assert_uint_eq(x.n, 2);
    ck_assert_uint_eq(x.rounds, 0);
    expect(&x.moves[0], (kvcl_ep_move_t){0, 2, KVCL_EP_NONE, 3, KVCL_EP_FROM_STORE, 0});
    expect(&x.moves[1], (kvcl_ep_move_t){0, 3, KVCL_EP_NONE, 6, KVCL_EP_FROM_STORE, 0});
    memcpy(x.placement, x.old, sizeof(x.old));
    x.p.active = NULL;
    plan(&x);
    ck_assert_uint_eq(x.n, 0);
    ck_assert_uint_eq(x.rounds, 0);
}
END_TEST

START_TEST(an_array_that_is_too_short_is_told_how_long)
{
    static const int32_t old[4] = {0, 1, 2, 3}, placement[4] = {3, 2, 1, 0};
    kvcl_ep_params_t     p = {.size = sizeof(p), .experts = 4, .slots = 4, .ranks = 4};
    kvcl_ep_move_t       moves[4], kept[4];
    uint32_t             rounds = 77;
    size_t               n      = 0;

    memset(moves, 0x5a, sizeof(moves));
    memcpy(kept, moves, sizeof(moves));
    ck_assert_int_eq(kvcl_ep_moves(&p, old, placement, NULL, sizeof(*moves), 0, &n, &rounds), KVCL_ERR_TRUNCATED);
    ck_assert_uint_eq(n, 4);
    n = 0;
    ck_assert_int_eq(kvcl_ep_moves(&p, old, placement, moves, sizeof(*moves), 3, &n, &rounds), KVCL_ERR_TRUNCATED);
    ck_assert_uint_eq(n, 4);
    ck_assert_uint_eq(rounds, 77);
    ck_assert_int_eq(memcmp(moves, kept, sizeof(moves)), 0);
    ck_assert_int_eq(kvcl_ep_moves(&p, old, placement, moves, sizeof(*moves), 4, &n, NULL), KVCL_OK);
    expect(&moves[0], (kvcl_ep_move_t){0, 3, 3, 0, KVCL_EP_FROM_HOST, 0}); /* 0 and 3 exchange, as 1 and 2 do */
    expect(&moves[1], (kvcl_ep_move_t){0, 0, 0, 3, KVCL_EP_FROM_HOST, 0});
    expect(&moves[3], (kvcl_ep_move_t){0, 1, 1, 2, KVCL_EP_FROM_HOST, 0});
}
END_TEST

/* ---- random placements ---- */

static uint32_t rank_of(const pair_t *x, uint32_t slot)
{
    return slot / (x->p.slots / x->p.ranks);
}

static uint32_t host_of(const pair_t *x, uint32_t rank)
{
    return rank / (x->p.ranks / x->p.hosts);
}

static void make_pair(pair_t *x)
{
    uint32_t i, n;

    memset(x, 0, sizeof(*x));
    x->p = (kvcl_ep_params_t){.size = sizeof(x->p), .layers = 1 + below(LAYERS), .experts = 1 + below(EXPERTS),
                              .hosts = 1u << below(3), .active = x->active};
    x->p.ranks = x->p.hosts * (1 + below(4));
    x->p.slots = x->p.ranks * (1 + below(SLOTS / RANKS));
    for (i = 0; i < x->p.ranks; ++i) {
        x->active[i] = (below(5) != 0);
    }
    x->active[below(x->p.ranks)] = 1;
    n = x->p.layers * x->p.slots;
    for (i = 0; i < n; ++i) {
        x->old[i]       = (int32_t)below(x->p.experts + 1) - 1;
        x->placement[i] = (below(3) == 0) ? x->old[i] : (int32_t)below(1 + below(x->p.experts)) - (below(9) == 0);
        x->placement[i] = x->active[rank_of(x, i % x->p.slots)] ? x->placement[i] : KVCL_EP_NONE;
    }
}

/* The kind of the nearest source of a move, other moves aside. */
static uint32_t nearest(const pair_t *x, const kvcl_ep_move_t *m)
{
    const int32_t *layer = &x->old[m->layer * x->p.slots];
    uint32_t      to = rank_of(x, m->destination), kind = KVCL_EP_FROM_STORE, slot, rank, near;

    for (slot = 0; slot < x->p.slots; ++slot) {
        rank = rank_of(x, slot);
        near = (rank == to) ? KVCL_EP_FROM_RANK
                            : (host_of(x, rank) == host_of(x, to)) ? KVCL_EP_FROM_HOST : KVCL_EP_FROM_OTHER;
        if (x->active[rank] && (layer[slot] == (int32_t)m->expert) && (near < kind)) {
            kind = near;
        }
    }
    return kind;
}

/* Whether an earlier move of the list fills the slot with the expert. */
static int is_filled(const pair_t *x, size_t before, const kvcl_ep_move_t *m)
{
    size_t i;

    for (i = 0; i < before; ++i) {
        if ((x->moves[i].layer == m->layer) && (x->moves[i].destination == (uint32_t)m->source) &&
            (x->moves[i].kind != KVCL_EP_FROM_MOVE)) {
            return (x->moves[i].expert == m->expert) && (x->moves[i].round == m->round);
        }
    }
    return 0;
}

static void check_move(const pair_t *x, size_t i)
{
    const kvcl_ep_move_t *m = &x->moves[i];
    uint32_t             source = (uint32_t)m->source;

    if (m->kind == KVCL_EP_FROM_MOVE) {
        ck_assert(rank_of(x, source) == rank_of(x, m->destination));
        ck_assert_msg(is_filled(x, i, m), "move %zu comes from slot %d, which no earlier move of its round fills", i,
                      m->source);
        ck_assert(nearest(x, m) != KVCL_EP_FROM_RANK);
        return;
    }
    ck_assert_msg(m->kind == nearest(x, m), "move %zu is of kind %u, not %u", i, m->kind, nearest(x, m));
    if (m->kind == KVCL_EP_FROM_STORE) {
        ck_assert_int_eq(m->source, KVCL_EP_NONE);
    } else {
        ck_assert(x->active[rank_of(x, source)]);
        ck_assert_int_eq(x->old[(m->layer * x->p.slots) + source], (int32_t)m->expert);
        ck_assert((m->kind == KVCL_EP_FROM_RANK) == (rank_of(x, source) == rank_of(x, m->destination)));
    }
    ck_assert((m->round == 0) || (m->kind == KVCL_EP_FROM_HOST) || (m->kind == KVCL_EP_FROM_OTHER));
}

/* Carry out the moves on the old placement, received weights put aside: the new one, each slot by one move at most. */
static void check_result(const pair_t *x)
{
    uint8_t  moved[MOVES] = {0};
    int32_t  now[MOVES];
    size_t   i, at, n = (size_t)x->p.layers * x->p.slots;

    memcpy(now, x->old, sizeof(now));
    for (i = 0; i < x->n; ++i) {
        at = (x->moves[i].layer * x->p.slots) + x->moves[i].destination;
        ck_assert_msg(!moved[at], "slot %zu is filled twice", at);
        ck_assert(x->old[at] != (int32_t)x->moves[i].expert);
        moved[at] = 1;
        now[at]   = (int32_t)x->moves[i].expert;
    }
    for (i = 0; i < n; ++i) {
        ck_assert_msg((now[i] == x->placement[i]) || (x->placement[i] == KVCL_EP_NONE), "slot %zu gets %d, not %d", i,
                      now[i], x->placement[i]);
    }
}

/* One peer in a round, one round for a pair, at most 2d - 1 rounds. @return the most peers of a rank. */
static uint32_t check_rounds(const pair_t *x)
{
    uint32_t round_of[RANKS][RANKS] = {{0}}, peers[RANKS] = {0}, a, b, i, j, k, most = 0;
    uint8_t  used[MOVES] = {0};

    for (i = 0; i < x->n; ++i) {
        ck_assert_msg((i == 0) || (x->moves[i].round >= x->moves[i - 1].round), "move %u is out of order", i);
        if ((x->moves[i].kind != KVCL_EP_FROM_HOST) && (x->moves[i].kind != KVCL_EP_FROM_OTHER)) {
            continue;
        }
        a = rank_of(x, (uint32_t)x->moves[i].source);
        b = rank_of(x, x->moves[i].destination);
        ck_assert((round_of[a][b] == 0) || (round_of[a][b] == x->moves[i].round + 1));
        round_of[a][b] = round_of[b][a] = x->moves[i].round + 1;
        used[x->moves[i].round]         = 1;
    }
    for (i = 0; i < x->p.ranks; ++i) {
        for (j = 0; j < x->p.ranks; ++j) {
            peers[i] += (round_of[i][j] > 0);
            for (k = 0; k < j; ++k) {
                ck_assert_msg((round_of[i][j] == 0) || (round_of[i][j] != round_of[i][k]),
                              "rank %u has peers %u and %u in round %u", i, j, k, round_of[i][j] - 1);
            }
        }
        most = (peers[i] > most) ? peers[i] : most;
    }
    ck_assert_uint_le(x->rounds, (most == 0) ? 0 : (2 * most) - 1);
    for (i = 0; i < x->rounds; ++i) {
        ck_assert_msg(used[i], "round %u is empty", i);
    }
    ck_assert(!used[x->rounds]);
    return most;
}

/* Of equally near ranks the one that sends least so far, by layers and slots; the lowest slot of equals. */
static void check_sources(const pair_t *x)
{
    uint32_t             sent[RANKS] = {0}, slot, best, layer, destination, rank;
    const kvcl_ep_move_t *m;
    kvcl_ep_move_t       like;
    size_t               i;

    for (layer = 0; layer < x->p.layers; ++layer) {
        for (destination = 0; destination < x->p.slots; ++destination) {
            for (m = NULL, i = 0; (i < x->n) && (m == NULL); ++i) {
                m = ((x->moves[i].layer == layer) && (x->moves[i].destination == destination)) ? &x->moves[i] : NULL;
            }
            if ((m == NULL) || (m->kind == KVCL_EP_FROM_STORE) || (m->kind == KVCL_EP_FROM_MOVE)) {
                continue;
            }
            like = *m;
            for (best = UINT32_MAX, slot = 0; slot < x->p.slots; ++slot) {
                rank = rank_of(x, slot);
                like.kind = (rank == rank_of(x, destination)) ? KVCL_EP_FROM_RANK
                            : (host_of(x, rank) == host_of(x, rank_of(x, destination))) ? KVCL_EP_FROM_HOST
                                                                                       : KVCL_EP_FROM_OTHER;
                if (x->active[rank] && (x->old[(layer * x->p.slots) + slot] == (int32_t)m->expert) &&
                    (like.kind == m->kind) && ((best == UINT32_MAX) || (sent[rank] < sent[rank_of(x, best)]))) {
                    best = slot;
                }
            }
            ck_assert_int_eq(m->source, (int32_t)best);
            sent[rank_of(x, best)] += (m->kind != KVCL_EP_FROM_RANK);
        }
    }
}

/* No rank gets the weights of an expert of a layer twice from elsewhere. */
static void check_once(const pair_t *x)
{
    const kvcl_ep_move_t *a, *b;
    size_t               i, j;

    for (i = 0; i < x->n; ++i) {
        for (j = 0; j < i; ++j) {
            a = &x->moves[i];
            b = &x->moves[j];
            ck_assert((a->layer != b->layer) || (a->expert != b->expert) || (a->kind <= KVCL_EP_FROM_MOVE) ||
                      (b->kind <= KVCL_EP_FROM_MOVE) ||
                      (rank_of(x, a->destination) != rank_of(x, b->destination)));
        }
    }
}

START_TEST(random_moves_do_what_is_asked)
{
    uint64_t rounds = 0, peers = 0;
    size_t   kinds[5] = {0}, k;
    pair_t   x;
    int      i;

    for (i = 0; i < INPUTS; ++i) {
        make_pair(&x);
        plan(&x);
        for (k = 0; k < x.n; ++k) {
            check_move(&x, k);
            ++kinds[x.moves[k].kind];
        }
        check_result(&x);
        check_sources(&x);
        check_once(&x);
        peers += check_rounds(&x);
        rounds += x.rounds;
    }
    printf("rank %zu, move %zu, host %zu, other %zu, store %zu; %.3f rounds for each peer of the busiest rank\n",
           kinds[0], kinds[1], kinds[2], kinds[3], kinds[4], (double)rounds / (double)peers);
    for (k = 0; k < 5; ++k) {
        ck_assert_uint_ge(kinds[k], 1000);
    }
    ck_assert_msg(rounds * 10 <= peers * 13, "%llu rounds where %llu are needed", (unsigned long long)rounds,
                  (unsigned long long)peers);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ep_moves");
    TCase *tc    = tcase_create("moves");

    test_seed(&rnd);
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, each_kind_of_source);
    tcase_add_test(tc, a_repair_moves_what_was_lost);
    tcase_add_test(tc, an_array_that_is_too_short_is_told_how_long);
    tcase_add_test(tc, random_moves_do_what_is_asked);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
