/*
 * Maps of experts and the sources of moves, against the rules written plainly. TEST_SEED replays.
 */
#include "ep/ep_map.h"
#include "ep/ep_sources.h"
#include "test_base.h"

#include <stdbool.h>
#include <string.h>

enum { INPUTS = 2000, LAYERS = 3, EXPERTS = 9, RANKS = 4, PER = 4, SLOTS = RANKS * PER };

static kvcl_rand_t rnd;

static uint32_t below(uint32_t n)
{
    return (uint32_t)kvcl_rand_below(&rnd, n);
}

typedef struct frame {
    kvcl_ep_params_t p;
    kvcl_ep_shape_t  shape;
    uint8_t          active[RANKS];
    int32_t          placement[LAYERS * SLOTS];
} frame_t;

/* Any placement; only active ranks hold experts if @a tidy. */
static void draw(frame_t *f, bool tidy)
{
    uint32_t i;

    f->p         = (kvcl_ep_params_t)KVCL_EP_PARAMS_INIT;
    f->p.layers  = LAYERS;
    f->p.experts = EXPERTS;
    f->p.slots   = SLOTS;
    f->p.ranks   = RANKS;
    f->p.active  = f->active;
    for (i = 0; i < RANKS; ++i) {
        f->active[i] = (below(4) != 0);
    }
    f->active[below(RANKS)] = 1;
    for (i = 0; i < LAYERS * SLOTS; ++i) {
        f->placement[i] = (tidy && !f->active[(i % SLOTS) / PER]) ? KVCL_EP_NONE : (int32_t)below(EXPERTS + 1) - 1;
    }
    ck_assert_int_eq(kvcl_ep_take(&f->p, "test", &f->shape), KVCL_OK);
}

START_TEST(a_map_gives_copies_on_active_ranks_in_turn)
{
    frame_t       f;
    kvcl_ep_map_t map = {0};
    int32_t       active[RANKS];
    uint32_t      l, e, r, turn, i, n, copies[SLOTS];
    int64_t       want;
    unsigned      input;

    for (input = 0; input < INPUTS; ++input) {
        draw(&f, true);
        f.shape.holes = 1;
        ck_assert_int_eq(kvcl_ep_map_make(&map, &f.shape, f.placement, "test"), KVCL_OK);
        ck_assert(memcmp(map.placement, f.placement, sizeof(f.placement)) == 0);
        for (r = 0; r < RANKS; ++r) {
            active[r] = f.active[r] && (below(4) != 0); /* some have failed since */
        }
        l    = below(LAYERS);
        e    = below(EXPERTS);
        turn = below(100);
        for (i = 0, n = 0; i < SLOTS; ++i) {
            if (f.placement[(l * SLOTS) + i] == (int32_t)e) {
                copies[n++] = i;
            }
        }
        for (i = 0, want = -1; (i < n) && (want < 0); ++i) {
            want = (active[copies[(turn + i) % n] / PER] != 0) ? (int64_t)copies[(turn + i) % n] : -1;
        }
        ck_assert_int_eq(kvcl_ep_map_choose(&map, l, e, turn, active, PER), want);
    }
    kvcl_ep_map_fini(&map);
}
END_TEST

START_TEST(a_map_has_no_holes_unless_asked_for)
{
    frame_t       f;
    kvcl_ep_map_t map = {0};
    uint32_t      i;

    draw(&f, true);
    memset(f.active, 1, sizeof(f.active));
    for (i = 0; i < LAYERS * SLOTS; ++i) {
        f.placement[i] = (int32_t)(i % SLOTS % EXPERTS);
    }
    ck_assert_int_eq(kvcl_ep_map_make(&map, &f.shape, f.placement, "test"), KVCL_OK);
    f.placement[SLOTS + 7] = KVCL_EP_NONE; /* no other slot has it */
    ck_assert_int_eq(kvcl_ep_map_make(&map, &f.shape, f.placement, "test"), KVCL_ERR_INVALID_PARAM);
    ck_assert(strstr(kvcl_last_error(), "expert 7 of layer 1") != NULL);
    ck_assert_int_eq(map.placement[SLOTS + 7], 7); /* the old one is kept */
    f.placement[SLOTS + 7] = 7;
    f.active[2]            = 0;
    ck_assert_int_eq(kvcl_ep_map_make(&map, &f.shape, f.placement, "test"), KVCL_ERR_INVALID_PARAM);
    ck_assert(strstr(kvcl_last_error(), "rank 2") != NULL);
    kvcl_ep_map_fini(&map);
}
END_TEST

START_TEST(sources_are_the_plan_then_other_copies_then_the_store)
{
    frame_t        f;
    kvcl_ep_move_t move = {0};
    int32_t        want[SLOTS + 3];
    uint32_t       i, n;
    unsigned       input;

    for (input = 0; input < INPUTS; ++input) {
        draw(&f, false);
        move.expert = below(EXPERTS);
        move.source = (int32_t)below(SLOTS + 1) - 1;
        n           = 0;
        for (i = 0; i < SLOTS; ++i) { /* only a planned source that has it counts */
            if (((int32_t)i == move.source) && (f.placement[i] == (int32_t)move.expert) && f.active[i / PER]) {
                want[n++] = (int32_t)i;
            }
        }
        for (i = 0; i < SLOTS; ++i) {
            if (((int32_t)i != move.source) && (f.placement[i] == (int32_t)move.expert) && f.active[i / PER]) {
                want[n++] = (int32_t)i;
            }
        }
        want[n++] = KVCL_EP_SOURCE_STORE;
        want[n++] = KVCL_EP_SOURCE_NONE;
        want[n++] = KVCL_EP_SOURCE_NONE;
        for (i = 0; i < n; ++i) {
            ck_assert_int_eq(kvcl_ep_source(&f.shape, f.placement, &move, i), want[i]);
        }
    }
}
END_TEST

START_TEST(moves_beyond_the_params_are_refused)
{
    const kvcl_ep_move_t good = {LAYERS - 1, EXPERTS - 1, SLOTS - 1, SLOTS - 1, KVCL_EP_FROM_STORE, 0};
    kvcl_ep_move_t       m[2] = {good, good};
    frame_t              f;

    draw(&f, true);
    ck_assert_int_eq(kvcl_ep_moves_check(&f.shape, m, sizeof(m[0]), 2, "test"), KVCL_OK);
    ck_assert_int_eq(kvcl_ep_moves_check(&f.shape, m, 3, 2, "test"), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_ep_moves_check(&f.shape, NULL, sizeof(m[0]), 2, "test"), KVCL_ERR_INVALID_PARAM);
    m[1].layer = LAYERS;
    ck_assert_int_eq(kvcl_ep_moves_check(&f.shape, m, sizeof(m[0]), 2, "test"), KVCL_ERR_OUT_OF_RANGE);
    ck_assert(strstr(kvcl_last_error(), "move 1") != NULL);
    m[1]        = good;
    m[1].source = SLOTS;
    ck_assert_int_eq(kvcl_ep_moves_check(&f.shape, m, sizeof(m[0]), 2, "test"), KVCL_ERR_OUT_OF_RANGE);
    m[1].source = -2;
    ck_assert_int_eq(kvcl_ep_moves_check(&f.shape, m, sizeof(m[0]), 2, "test"), KVCL_ERR_OUT_OF_RANGE);
    m[1]             = good;
    m[1].destination = SLOTS;
    ck_assert_int_eq(kvcl_ep_moves_check(&f.shape, m, sizeof(m[0]), 2, "test"), KVCL_ERR_OUT_OF_RANGE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ep_map");
    TCase *tc    = tcase_create("map");

    test_seed(&rnd);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_map_gives_copies_on_active_ranks_in_turn);
    tcase_add_test(tc, a_map_has_no_holes_unless_asked_for);
    tcase_add_test(tc, sources_are_the_plan_then_other_copies_then_the_store);
    tcase_add_test(tc, moves_beyond_the_params_are_refused);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
