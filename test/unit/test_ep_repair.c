/*
 * Repairing placements: the example of the documentation, 10,000 random failures against the rule written plainly, what
 * does not fit, and the index of a placement. TEST_SEED replays.
 */
#include "kvcl/kvcl_ep.h"
#include "test_base.h"

#include <string.h>

enum { INPUTS = 10000, LAYERS = 3, SLOTS = 128, EXPERTS = 96, RANKS = 16 };

static kvcl_rand_t rnd;

static uint32_t below(uint32_t n)
{
    return (uint32_t)kvcl_rand_below(&rnd, n);
}

static void expect(const int32_t *got, const int32_t *want, size_t n)
{
    size_t i;

    for (i = 0; i < n; ++i) {
        ck_assert_msg(got[i] == want[i], "entry %zu is %d, not %d", i, got[i], want[i]);
    }
}

/* Expert 0 is hot: ranks 0 to 3 hold [1,5] [0,0] [2,3] [0,4]. */
static const int32_t six[8] = {1, 5, 0, 0, 2, 3, 0, 4};

static kvcl_ep_params_t six_params(const uint8_t *active)
{
    kvcl_ep_params_t p = KVCL_EP_PARAMS_INIT;

    p.experts = 6;
    p.slots   = 8;
    p.ranks   = 4;
    p.active  = active;
    return p;
}

START_TEST(a_rank_whose_experts_are_elsewhere_takes_no_weights)
{
    const uint8_t    active[4] = {1, 0, 1, 1};
    const int32_t    want[8]   = {1, 5, -1, -1, 2, 3, 0, 4};
    kvcl_ep_params_t p         = six_params(active);
    size_t           restored = 77, missing = 77;
    int32_t          got[8];

    ck_assert_int_eq(kvcl_ep_repair(&p, six, got, &restored, &missing), KVCL_OK);
    expect(got, want, 8);
    ck_assert_uint_eq(restored, 0);
    ck_assert_uint_eq(missing, 0);
}
END_TEST

START_TEST(lost_experts_replace_copies)
{
    const uint8_t    active[4] = {1, 1, 0, 1};
    const int32_t    want[8]   = {1, 5, 0, 2, -1, -1, 3, 4};
    kvcl_ep_params_t p         = six_params(active);
    size_t           restored;
    int32_t          got[8];

    memcpy(got, six, sizeof(got));
    ck_assert_int_eq(kvcl_ep_repair(&p, got, got, &restored, NULL), KVCL_OK); /* in place */
    expect(got, want, 8);
    ck_assert_uint_eq(restored, 2);
}
END_TEST

/* Rank 2 joins again with nothing: its slots get what was lost, and copies elsewhere stay. */
START_TEST(empty_slots_are_taken_first)
{
    const int32_t    old[8]  = {1, 5, 0, 0, -1, -1, 0, 4};
    const int32_t    want[8] = {1, 5, 0, 0, 2, 3, 0, 4};
    kvcl_ep_params_t p       = six_params(NULL);
    size_t           restored;
    int32_t          got[8];

    ck_assert_int_eq(kvcl_ep_repair(&p, old, got, &restored, NULL), KVCL_OK);
    expect(got, want, 8);
    ck_assert_uint_eq(restored, 2);
}
END_TEST

START_TEST(too_few_slots_are_an_error_or_holes)
{
    const uint8_t    active[4] = {1, 0, 0, 1};
    const int32_t    want[8]   = {1, 5, -1, -1, -1, -1, 0, 4};
    kvcl_ep_params_t p         = six_params(active);
    size_t           restored = 77, missing = 77;
    int32_t          got[8], kept[8];

    memset(got, 0x5a, sizeof(got));
    memcpy(kept, got, sizeof(got));
    ck_assert_int_eq(kvcl_ep_repair(&p, six, got, &restored, &missing), KVCL_ERR_NO_SPACE);
    ck_assert_msg(strstr(kvcl_last_error(), "2 active ranks have 4 slots for 6 experts") != NULL, "%s",
                  kvcl_last_error());
    ck_assert_int_eq(memcmp(got, kept, sizeof(got)), 0);
    ck_assert_uint_eq(restored + missing, 154);
    p.flags = KVCL_EP_HOLES;
    ck_assert_int_eq(kvcl_ep_repair(&p, six, got, &restored, &missing), KVCL_OK);
    expect(got, want, 8);
    ck_assert_uint_eq(restored, 0);
    ck_assert_uint_eq(missing, 2);
}
END_TEST

/* ---- random failures ---- */

typedef struct failure {
    kvcl_ep_params_t p;
    uint8_t          active[RANKS];
    int32_t          old[LAYERS * SLOTS], got[LAYERS * SLOTS];
} failure_t;

static void make_failure(failure_t *f)
{
    uint32_t per_rank = 1 + below(8), l, s, e;
    int32_t  *layer;

    memset(f, 0, sizeof(*f));
    f->p = (kvcl_ep_params_t){.size = sizeof(f->p), .layers = 1 + below(LAYERS), .ranks = 1 + below(RANKS),
                              .active = f->active, .flags = KVCL_EP_HOLES};
    f->p.slots   = f->p.ranks * per_rank;
    f->p.experts = 1 + below((f->p.slots < EXPERTS) ? f->p.slots : EXPERTS);
    for (s = 0; s < f->p.ranks; ++s) {
        f->active[s] = (below(4) != 0);
    }
    f->active[below(f->p.ranks)] = 1;
    for (l = 0; l < f->p.layers; ++l) {
        layer = &f->old[l * f->p.slots];
        for (s = 0; s < f->p.slots; ++s) { /* each once, then some hot ones; a few holes */
            layer[s] = (int32_t)((s < f->p.experts) ? s : below(1 + below(f->p.experts)));
            layer[s] = (below(20) == 0) ? KVCL_EP_NONE : layer[s];
        }
        for (s = f->p.slots - 1; s > 0; --s) {
            e        = below(s + 1);
            int32_t x = layer[s];

            layer[s] = layer[e];
            layer[e] = x;
        }
    }
}

static uint32_t copies_of(const failure_t *f, const int32_t *layer, int32_t expert)
{
    uint32_t n = 0, s;

    for (s = 0; s < f->p.slots; ++s) {
        n += (layer[s] == expert) && f->active[s / (f->p.slots / f->p.ranks)];
    }
    return n;
}

/* The slot that the rank gives; copies of the layer are counted anew for each slot. */
static int32_t gives(const failure_t *f, const int32_t *layer, uint32_t rank, int empty)
{
    uint32_t per_rank = f->p.slots / f->p.ranks, most = 1, s, n;
    int32_t  best = -1;

    for (s = rank * per_rank; f->active[rank] && (s < (rank + 1) * per_rank); ++s) {
        n = (layer[s] < 0) ? 0 : copies_of(f, layer, layer[s]);
        if (empty ? (layer[s] < 0) && (best < 0) : (n >= 2) && (n >= most)) {
            best = (int32_t)s;
            most = n;
        }
    }
    return best;
}

/* The documented rule for one layer. @return the experts that found no slot; *restored_p: those that did. */
static uint32_t repair_plainly(const failure_t *f, int32_t *layer, size_t *restored_p)
{
    uint32_t missing = 0, s, turn = 0, tries;
    int      empty = 1;
    int32_t  e, slot;

    for (s = 0; s < f->p.slots; ++s) {
        layer[s] = f->active[s / (f->p.slots / f->p.ranks)] ? layer[s] : KVCL_EP_NONE;
    }
    for (e = 0; e < (int32_t)f->p.experts; ++e) {
        if (copies_of(f, layer, e) > 0) {
            continue;
        }
        slot = -1;
        for (; (slot < 0) && (empty >= 0); empty -= (slot < 0), turn = (slot < 0) ? 0 : turn) {
            for (tries = 0; (slot < 0) && (tries < f->p.ranks); ++tries) {
                slot = gives(f, layer, turn, empty);
                turn = (turn + 1) % f->p.ranks;
            }
        }
        if (slot < 0) {
            ++missing;
        } else {
            layer[slot] = e;
            ++*restored_p;
        }
    }
    return missing;
}

START_TEST(random_failures_are_repaired_by_the_rule)
{
    size_t    restored, missing, want_restored, want_missing, changed;
    int       i, whole = 0, holes = 0, moved = 0;
    failure_t f;
    int32_t   want[LAYERS * SLOTS], *layer;
    uint32_t  l, s, lost, e;

    for (i = 0; i < INPUTS; ++i) {
        make_failure(&f);
        memcpy(want, f.old, sizeof(want));
        want_restored = want_missing = changed = lost = 0;
        for (l = 0; l < f.p.layers; ++l) {
            layer = &want[l * f.p.slots];
            for (e = 0; e < f.p.experts; ++e) {
                lost += (copies_of(&f, layer, (int32_t)e) == 0);
            }
            want_missing += repair_plainly(&f, layer, &want_restored);
        }
        ck_assert_msg(kvcl_ep_repair(&f.p, f.old, f.got, &restored, &missing) == KVCL_OK, "%s", kvcl_last_error());
        for (s = 0; s < f.p.layers * f.p.slots; ++s) {
            ck_assert_msg(f.got[s] == want[s], "input %d: slot %u has %d, not %d", i, s, f.got[s], want[s]);
            changed += (f.got[s] != f.old[s]) && f.active[(s % f.p.slots) / (f.p.slots / f.p.ranks)];
        }
        ck_assert_uint_eq(restored, want_restored);
        ck_assert_uint_eq(missing, want_missing);
        ck_assert_uint_eq(changed, restored); /* no other weights move */
        ck_assert_uint_eq(restored + missing, lost);
        f.p.flags = 0;
        if (missing == 0) {
            ck_assert_int_eq(kvcl_ep_repair(&f.p, f.old, f.got, NULL, NULL), KVCL_OK);
        } else {
            ck_assert_int_eq(kvcl_ep_repair(&f.p, f.old, f.got, NULL, NULL), KVCL_ERR_NO_SPACE);
        }
        whole += (missing == 0);
        holes += (missing > 0);
        moved += (restored > 0);
    }
    printf("%d repaired, %d of them with moves, %d with holes\n", whole, moved, holes);
    ck_assert_int_ge(whole, 1000);
    ck_assert_int_ge(holes, 100);
    ck_assert_int_ge(moved, 1000);
}
END_TEST

/* ---- the index ---- */

START_TEST(an_index_lists_the_slots_of_each_expert)
{
    const int32_t    want[18]       = {2, 3, 6, 0, -1, -1, 4, -1, -1, 5, -1, -1, 7, -1, -1, 1, -1, -1};
    const int32_t    two_left[12]   = {6, -1, 0, -1, 4, -1, 5, -1, 7, -1, 1, -1};
    const uint32_t   want_counts[6] = {3, 1, 1, 1, 1, 1};
    const uint8_t    active[4]      = {1, 0, 1, 1};
    kvcl_ep_params_t p              = six_params(NULL);
    int32_t          copies[18], i;
    uint32_t         counts[6];

    ck_assert_uint_eq(KVCL_EP_COPIES_MAX(6, 8), 3);
    ck_assert_int_eq(kvcl_ep_index(&p, six, copies, 3, counts), KVCL_OK);
    expect(copies, want, 18);
    ck_assert_int_eq(memcmp(counts, want_counts, sizeof(counts)), 0);
    memset(copies, 0x5a, sizeof(copies));
    memset(counts, 0x5a, sizeof(counts));
    ck_assert_int_eq(kvcl_ep_index(&p, six, copies, 2, counts), KVCL_ERR_TRUNCATED);
    ck_assert_msg(strstr(kvcl_last_error(), "expert 0 has 3 copies, copies_max is 2") != NULL, "%s",
                  kvcl_last_error());
    for (i = 0; i < 18; ++i) {
        ck_assert_int_eq(copies[i], 0x5a5a5a5a);
        ck_assert_uint_eq(counts[i % 6], 0x5a5a5a5a);
    }
    ck_assert_int_eq(kvcl_ep_index(&p, six, NULL, 0, counts), KVCL_OK);
    ck_assert_int_eq(memcmp(counts, want_counts, sizeof(counts)), 0);
    p.active = active;
    ck_assert_int_eq(kvcl_ep_index(&p, six, copies, 2, NULL), KVCL_OK);
    expect(copies, two_left, 12);
}
END_TEST

START_TEST(an_index_says_what_a_placement_says)
{
    int32_t   copies[LAYERS * EXPERTS * SLOTS], *of;
    uint32_t  counts[LAYERS * EXPERTS], l, e, k;
    failure_t f;
    int       i;

    for (i = 0; i < 300; ++i) {
        make_failure(&f);
        ck_assert_int_eq(kvcl_ep_index(&f.p, f.old, copies, f.p.slots, counts), KVCL_OK);
        for (l = 0; l < f.p.layers; ++l) {
            for (e = 0; e < f.p.experts; ++e) {
                of = &copies[((l * f.p.experts) + e) * f.p.slots];
                ck_assert_uint_eq(counts[(l * f.p.experts) + e], copies_of(&f, &f.old[l * f.p.slots], (int32_t)e));
                for (k = 0; k < f.p.slots; ++k) {
                    ck_assert_msg((k < counts[(l * f.p.experts) + e])
                                      ? (f.old[(l * f.p.slots) + (uint32_t)of[k]] == (int32_t)e) &&
                                            ((k == 0) || (of[k] > of[k - 1]))
                                      : (of[k] == KVCL_EP_NONE), "copy %u of expert %u is %d", k, e, of[k]);
                }
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ep_repair");
    TCase *tc    = tcase_create("repair");

    test_seed(&rnd);
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, a_rank_whose_experts_are_elsewhere_takes_no_weights);
    tcase_add_test(tc, lost_experts_replace_copies);
    tcase_add_test(tc, empty_slots_are_taken_first);
    tcase_add_test(tc, too_few_slots_are_an_error_or_holes);
    tcase_add_test(tc, random_failures_are_repaired_by_the_rule);
    tcase_add_test(tc, an_index_lists_the_slots_of_each_expert);
    tcase_add_test(tc, an_index_says_what_a_placement_says);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
