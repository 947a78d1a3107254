/*
 * The detector of one rank (view/detect.h): what counts as silence, what as proof; and which settings are refused.
 */
#include "view/views.h"

#include "test_base.h"

#include <string.h>

#define MS UINT64_C(1000000)

enum { ME = 1, OTHER = 2, WARM = 3, N = 4, TICK_MS = 50 };

static const kvcl_detect_times_t times = {100 * MS, 300 * MS, 1000 * MS, 5000 * MS};

static kvcl_detect_t  detect;
static kvcl_rankset_t suspected, again;
static uint64_t       now_ms;

static kvcl_rankset_t set_of(uint64_t bits)
{
    return (kvcl_rankset_t){{bits}};
}

static void open_at(uint64_t at_ms)
{
    kvcl_rankset_t all = set_of((UINT64_C(1) << N) - 1);

    now_ms = at_ms;
    kvcl_detect_init(&detect, ME, &times, now_ms * MS);
    kvcl_detect_members(&detect, &all, &all, now_ms * MS);
}

/* Ticks until then; these ranks are heard with each of them. */
static void go_on(uint64_t until_ms, uint64_t heard)
{
    unsigned slot;

    while (now_ms < until_ms) {
        now_ms += TICK_MS;
        for (slot = 0; slot < N; ++slot) {
            if ((heard >> slot) & 1) {
                kvcl_detect_heard(&detect, slot, slot == WARM, now_ms * MS);
            }
        }
        kvcl_detect_tick(&detect, now_ms * MS, &suspected, &again);
    }
}

static uint64_t bits(const kvcl_rankset_t *set)
{
    return set->word[0];
}

START_TEST(a_silent_member_is_suspected_then_silent_and_heard_again)
{
    kvcl_rankset_t there;

    open_at(7000);
    go_on(7250, 1 << 0 | 1 << WARM);
    ck_assert_uint_eq(bits(&detect.suspects), 0);
    go_on(7300, 1 << 0 | 1 << WARM);
    ck_assert_uint_eq(bits(&suspected), 1 << OTHER);
    go_on(7950, 1 << 0 | 1 << WARM);
    ck_assert_uint_eq(bits(&suspected), 0); /* once */
    ck_assert_uint_eq(bits(&detect.silent), 0);
    go_on(8000, 1 << 0 | 1 << WARM);
    ck_assert_uint_eq(bits(&detect.silent), 1 << OTHER);
    ck_assert_uint_eq(bits(&detect.proven), 0);
    kvcl_detect_there(&detect, &there);
    ck_assert_uint_eq(bits(&there), 1 << 0 | 1 << ME | 1 << WARM);
    go_on(8050, 1 << 0 | 1 << OTHER | 1 << WARM);
    ck_assert_uint_eq(bits(&again), 1 << OTHER);
    ck_assert_uint_eq(bits(&detect.silent) | bits(&detect.suspects), 0);
}
END_TEST

/* Of the others the one that was heard first: 300 ms and 1 s later. This rank and one that has ended do not count. */
START_TEST(the_next_tick_is_due_when_silence_reaches_a_limit)
{
    const kvcl_rankset_t ended = set_of(1 << 0);
    kvcl_rankset_t       news;

    open_at(7000);
    ck_assert_uint_eq(kvcl_detect_due(&detect, 7000 * MS), 7300 * MS);
    go_on(7250, 1 << 0 | 1 << WARM);
    ck_assert_uint_eq(kvcl_detect_due(&detect, 7250 * MS), 7300 * MS);
    kvcl_detect_prove(&detect, &ended, &news);
    go_on(7300, 1 << WARM);
    ck_assert_uint_eq(kvcl_detect_due(&detect, 7300 * MS), 7600 * MS);
    go_on(7950, 1 << WARM);
    ck_assert_uint_eq(kvcl_detect_due(&detect, 7950 * MS), 8000 * MS);
    go_on(8000, 1 << OTHER | 1 << WARM);
    ck_assert_uint_eq(kvcl_detect_due(&detect, 8000 * MS), 8300 * MS);
    go_on(8950, 0);
    ck_assert_uint_eq(kvcl_detect_due(&detect, 8950 * MS), 9000 * MS);
    go_on(9000, 0);
    ck_assert_uint_eq(kvcl_detect_due(&detect, 9000 * MS), 13000 * MS); /* it warms up */
    go_on(13000, 0);
    ck_assert_uint_eq(kvcl_detect_due(&detect, 13000 * MS), UINT64_MAX);
}
END_TEST

START_TEST(silence_counts_only_while_the_listener_is_awake)
{
    open_at(1000);
    go_on(1100, 0);
    now_ms += 60000; /* it sleeps, and then hears nothing for less than a second in all */
    kvcl_detect_tick(&detect, now_ms * MS, &suspected, &again);
    ck_assert_uint_eq(bits(&detect.suspects), 0);
    go_on(now_ms + 750, 0);
    ck_assert_uint_eq(bits(&detect.silent), 0);
    go_on(now_ms + 100, 0);
    ck_assert_uint_eq(bits(&detect.silent), 1 << 0 | 1 << OTHER | 1 << WARM);
}
END_TEST

START_TEST(a_gap_of_two_beats_is_no_sleep)
{
    open_at(1000);
    for (; now_ms < 2000; now_ms += 200) {
        kvcl_detect_tick(&detect, now_ms * MS, &suspected, &again);
    }
    kvcl_detect_tick(&detect, now_ms * MS, &suspected, &again);
    ck_assert_uint_eq(bits(&detect.silent), 1 << 0 | 1 << OTHER | 1 << WARM);
}
END_TEST

START_TEST(a_member_that_warms_up_may_be_silent_for_longer)
{
    open_at(1000);
    go_on(1100, 1 << WARM);
    go_on(6050, 0);
    ck_assert_uint_eq(bits(&detect.silent), 1 << 0 | 1 << OTHER);
    ck_assert_uint_eq(bits(&detect.suspects), 1 << 0 | 1 << OTHER | 1 << WARM);
    go_on(6100, 0);
    ck_assert_uint_eq(bits(&detect.silent), 1 << 0 | 1 << OTHER | 1 << WARM);
    kvcl_detect_heard(&detect, WARM, false, now_ms * MS); /* it is done with that */
    go_on(7100, 0);
    ck_assert(kvcl_rankset_has(&detect.silent, WARM));
}
END_TEST

START_TEST(proof_is_final_and_no_phase_delays_it)
{
    kvcl_rankset_t ended = set_of(1 << WARM | 1 << ME | 1 << 30), news;

    open_at(1000);
    go_on(1100, 1 << WARM);
    kvcl_detect_prove(&detect, &ended, &news);
    ck_assert_uint_eq(bits(&news), 1 << WARM); /* not this rank, nor one that is no member */
    kvcl_detect_prove(&detect, &ended, &news);
    ck_assert_uint_eq(bits(&news), 0);
    go_on(1150, 1 << WARM); /* a late message */
    ck_assert_uint_eq(bits(&detect.proven), 1 << WARM);
    go_on(9000, 1 << 0 | 1 << OTHER);
    ck_assert_uint_eq(bits(&detect.silent) | bits(&detect.suspects), 0); /* proven is not silent */
}
END_TEST

START_TEST(another_process_in_the_slot_starts_afresh)
{
    kvcl_rankset_t all = set_of((1 << N) - 1), fresh = set_of(1 << OTHER), news;

    open_at(1000);
    kvcl_detect_prove(&detect, &fresh, &news);
    go_on(3000, 1 << 0);
    kvcl_detect_members(&detect, &all, &fresh, now_ms * MS);
    ck_assert_uint_eq(bits(&detect.proven) | bits(&detect.suspects), 1 << WARM);
    go_on(3950, 1 << 0);
    ck_assert(!kvcl_rankset_has(&detect.silent, OTHER));
    go_on(4000, 1 << 0);
    ck_assert(kvcl_rankset_has(&detect.silent, OTHER));
}
END_TEST

static void refused(kvcl_views_times_t wrong, const char *why)
{
    const char *said = kvcl_views_times_wrong(&wrong);

    ck_assert_ptr_nonnull(said);
    ck_assert_msg(strstr(said, why) != NULL, "'%s' does not say '%s'", said, why);
}

START_TEST(times_that_cannot_work_are_refused_with_a_sentence)
{
    const kvcl_views_times_t good = KVCL_VIEWS_TIMES;
    kvcl_views_times_t       t    = good;

    ck_assert_ptr_null(kvcl_views_times_wrong(&good));
    t.detect.beat_ns = 0;
    refused(t, "two beats is 0");
    t                = good;
    t.detect.dead_ns = (3 * t.detect.beat_ns) - 1;
    refused(t, "less than three beats");
    t                = good;
    t.detect.beat_ns = UINT64_MAX / 2; /* three of them wrap */
    refused(t, "less than three beats");
    t                   = good;
    t.detect.suspect_ns = t.detect.beat_ns;
    refused(t, "suspected later than one beat");
    t                   = good;
    t.detect.suspect_ns = t.detect.dead_ns;
    refused(t, "suspected later than one beat");
    t                = good;
    t.detect.warm_ns = t.detect.dead_ns - 1;
    refused(t, "warms up");
    t          = good;
    t.lease_ns = t.detect.dead_ns;
    refused(t, "a lease ends");
    t          = good;
    t.lease_ns = 2 * t.detect.beat_ns;
    refused(t, "a lease would end");
    t.lease_ns = (2 * t.detect.beat_ns) + 2;
    ck_assert_ptr_null(kvcl_views_times_wrong(&t));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("the detector");
    TCase *tcase = tcase_create("detect");

    tcase_add_test(tcase, a_silent_member_is_suspected_then_silent_and_heard_again);
    tcase_add_test(tcase, the_next_tick_is_due_when_silence_reaches_a_limit);
    tcase_add_test(tcase, silence_counts_only_while_the_listener_is_awake);
    tcase_add_test(tcase, a_gap_of_two_beats_is_no_sleep);
    tcase_add_test(tcase, a_member_that_warms_up_may_be_silent_for_longer);
    tcase_add_test(tcase, proof_is_final_and_no_phase_delays_it);
    tcase_add_test(tcase, another_process_in_the_slot_starts_afresh);
    tcase_add_test(tcase, times_that_cannot_work_are_refused_with_a_sentence);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
