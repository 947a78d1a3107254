/*
 * Which generation words are read, in how many reads: each slot's word exactly once, close ones together.
 */
#include "config.h"

#include "base/clock.h"
#include "base/rand.h"
#include "native/rma_gens.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What the reads would bring: the word of slot i is 3 * i + 1. */
static void read_all(kvcl_rma_gens_t *gens)
{
    size_t   i;
    uint32_t w;

    for (i = 0; i < gens->n_spans; ++i) {
        for (w = 0; w < gens->spans[i].n; ++w) {
            gens->words[gens->spans[i].at + w] = 3 * (gens->spans[i].first + w) + 1;
        }
    }
}

static void words_are_right(const kvcl_rma_gens_t *gens, const uint32_t *slots, size_t n)
{
    size_t i;

    for (i = 0; i < n; ++i) {
        ck_assert_uint_eq(kvcl_rma_gens_word(gens, slots[i]), 3 * slots[i] + 1);
    }
}

START_TEST(neighbours_are_one_read)
{
    static const uint32_t slots[] = {9, 5, 6, 70, 5, 7, 72};
    kvcl_rma_gens_t       gens    = {0};

    ck_assert_int_eq(kvcl_rma_gens_plan(slots, 7, &gens), KVCL_OK);
    ck_assert_uint_eq(gens.n_spans, 1);
    ck_assert_uint_eq(gens.spans[0].first, 5);
    ck_assert_uint_eq(gens.spans[0].n, 68);
    read_all(&gens);
    words_are_right(&gens, slots, 7);
    kvcl_rma_gens_clear(&gens);
    ck_assert((gens.spans == NULL) && (gens.words == NULL) && (gens.n_spans == 0));
}
END_TEST

START_TEST(a_wide_gap_ends_a_read)
{
    static const uint32_t slots[] = {UINT32_MAX, 100 + KVCL_RMA_GENS_GAP + 1, 100, 300 + KVCL_RMA_GENS_GAP + 2, 300, 0};
    kvcl_rma_gens_t       gens    = {0};

    ck_assert_int_eq(kvcl_rma_gens_plan(slots, 6, &gens), KVCL_OK);
    ck_assert_uint_eq(gens.n_spans, 5); /* 0; 100 to 165; 300; 366; the last */
    ck_assert_uint_eq(gens.spans[1].n, KVCL_RMA_GENS_GAP + 2);
    ck_assert_uint_eq(gens.spans[2].n, 1);
    read_all(&gens);
    words_are_right(&gens, slots, 6);
    kvcl_rma_gens_clear(&gens);
}
END_TEST

START_TEST(a_read_has_an_end)
{
    uint32_t        *slots = malloc(5000 * sizeof(*slots)), i;
    kvcl_rma_gens_t gens   = {0};

    for (i = 0; i < 5000; ++i) {
        slots[i] = 4999 - i;
    }
    ck_assert_int_eq(kvcl_rma_gens_plan(slots, 5000, &gens), KVCL_OK);
    ck_assert_uint_eq(gens.n_spans, 5);
    ck_assert_uint_eq(gens.spans[0].n, KVCL_RMA_GENS_SPAN);
    read_all(&gens);
    words_are_right(&gens, slots, 5000);
    kvcl_rma_gens_clear(&gens);
    free(slots);
}
END_TEST

START_TEST(any_slots_are_read_within_their_bounds)
{
    const char  *env = getenv("TEST_SEED");
    uint64_t    seed = (env != NULL) ? strtoull(env, NULL, 0) : kvcl_now_ns();
    uint32_t    slots[300], low, high, round, range;
    kvcl_rand_t rnd;
    size_t      n, i;

    printf("TEST_SEED=%" PRIu64 "\n", seed);
    kvcl_rand_seed(&rnd, seed);
    for (round = 0; round < 2000; ++round) {
        kvcl_rma_gens_t gens = {0};
        n     = 1 + kvcl_rand_below(&rnd, 300);
        range = 1u << kvcl_rand_below(&rnd, 21);
        low   = UINT32_MAX;
        high  = 0;
        for (i = 0; i < n; ++i) {
            slots[i] = (uint32_t)kvcl_rand_below(&rnd, range);
            low      = (slots[i] < low) ? slots[i] : low;
            high     = (slots[i] > high) ? slots[i] : high;
        }
        ck_assert_int_eq(kvcl_rma_gens_plan(slots, n, &gens), KVCL_OK);
        ck_assert((gens.n_spans > 0) && (gens.n_spans <= n) && (gens.spans[0].first == low));
        for (i = 0; i < gens.n_spans; ++i) {
            const kvcl_rma_span_t *span = &gens.spans[i];
            ck_assert((span->n > 0) && (span->n <= KVCL_RMA_GENS_SPAN) && (span->first + span->n - 1 <= high));
            ck_assert((i == 0) || (span->first > span[-1].first + span[-1].n - 1));
            ck_assert((i == 0) || (span->at == span[-1].at + span[-1].n));
        }
        read_all(&gens);
        words_are_right(&gens, slots, n);
        kvcl_rma_gens_clear(&gens);
    }
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("generations read natively");
    TCase   *tcase  = tcase_create("spans");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, neighbours_are_one_read);
    tcase_add_test(tcase, a_wide_gap_ends_a_read);
    tcase_add_test(tcase, a_read_has_an_end);
    tcase_add_test(tcase, any_slots_are_read_within_their_bounds);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
