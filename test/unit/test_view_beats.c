/*
 * When a rank beats (view/views.h): ranks that share a clock at the same ticks, whenever each of them began; no gap is
 * longer than the time of a beat, as long as ticks come; and a rank that is no member does not. Nor does that rank
 * want to be ticked oftener, as one does that takes part in a change.
 */
#include "view/views.h"

#include "test_base.h"

#include <string.h>

#define MS UINT64_C(1000000)

enum { RANKS = 4, BEAT_MS = 100, BEATS = 64 };

typedef struct rank {
    kvcl_views_t views;
    unsigned     n_beats;        /* to all others is one */
    uint64_t     beats_ms[BEATS];
} rank_t;

static rank_t      ranks[RANKS];
static kvcl_view_t view;
static uint64_t    now_ns;

static void on_send(void *arg, uint32_t to, const kvcl_view_msg_t *msg)
{
    rank_t *rank = arg;

    ck_assert_int_eq(msg->type, KVCL_VIEW_BEAT);
    if (to == ((rank == &ranks[0]) ? 1u : 0u)) { /* one of the others */
        ck_assert_uint_lt(rank->n_beats, BEATS);
        rank->beats_ms[rank->n_beats++] = now_ns / MS;
    }
}

static void on_event(void *arg, kvcl_views_event_t event, const kvcl_rankset_t *set)
{
    (void)arg;
    (void)event;
    (void)set;
}

static void begin(rank_t *rank, const kvcl_view_t *first)
{
    static const kvcl_views_ops_t   ops   = {on_send, on_event};
    static const kvcl_views_times_t times = KVCL_VIEWS_TIMES;
    uint32_t                        me    = (uint32_t)(rank - ranks);

    memset(rank, 0, sizeof(*rank));
    kvcl_views_init(&rank->views, me, me + 1, first, &times, &ops, rank, now_ns);
}

/* As the thread of views does. All are heard. */
static void tick(rank_t *rank)
{
    uint32_t slot;

    for (slot = 0; slot < RANKS; ++slot) {
        kvcl_views_heard(&rank->views, slot, now_ns);
    }
    kvcl_views_beat_in_step(&rank->views, now_ns);
    kvcl_views_tick(&rank->views, now_ns);
}

static void set_up(void)
{
    const uint64_t incarnations[RANKS] = {1, 2, 3, 4};

    kvcl_view_first(&view, incarnations, RANKS);
    now_ns = 7003 * MS;
}

/* Each rank begins at another time, and sees each tick up to a millisecond late. */
START_TEST(ranks_that_share_a_clock_beat_at_the_same_ticks)
{
    const uint64_t begin_ms[RANKS] = {7003, 7049, 7061, 7099}, late_ns[RANKS] = {0, 70000, 999999, 1234};
    uint64_t       tick_ms;
    unsigned       i, k;

    for (i = 0; i < RANKS; ++i) {
        now_ns = begin_ms[i] * MS;
        begin(&ranks[i], &view);
        tick(&ranks[i]);
        ck_assert_uint_eq(ranks[i].n_beats, 1);
    }
    for (tick_ms = 7100; tick_ms < 9000; tick_ms += BEAT_MS / 2) {
        for (i = 0; i < RANKS; ++i) {
            now_ns = tick_ms * MS + ((tick_ms / (BEAT_MS / 2) % 2 == 0) ? late_ns[i] : late_ns[RANKS - 1 - i]);
            tick(&ranks[i]);
        }
    }
    for (i = 0; i < RANKS; ++i) {
        ck_assert_uint_eq(ranks[i].n_beats, 1 + 19);
        for (k = 1; k < ranks[i].n_beats; ++k) {
            ck_assert_uint_eq(ranks[i].beats_ms[k], 7000 + k * BEAT_MS);
        }
    }
}
END_TEST

/* A rank that did not run for long beats once, and then at the multiples again. */
START_TEST(a_late_tick_beats_once)
{
    begin(&ranks[0], &view);
    tick(&ranks[0]);
    now_ns = 7730 * MS;
    tick(&ranks[0]);
    ck_assert_uint_eq(ranks[0].n_beats, 2);
    tick(&ranks[0]);
    now_ns = 7799 * MS;
    tick(&ranks[0]);
    ck_assert_uint_eq(ranks[0].n_beats, 2);
    now_ns = 7800 * MS;
    tick(&ranks[0]);
    ck_assert_uint_eq(ranks[0].n_beats, 3);
}
END_TEST

START_TEST(who_is_no_member_does_not_beat)
{
    begin(&ranks[0], NULL);
    now_ns += 1000 * MS;
    tick(&ranks[0]);
    begin(&ranks[1], &view);
    kvcl_views_give_up(&ranks[1].views);
    now_ns += 1000 * MS;
    tick(&ranks[1]);
    ck_assert_uint_eq(ranks[0].n_beats + ranks[1].n_beats, 0);
}
END_TEST

/* Rank 1 learns that rank 2 has ended, and then that it was excluded itself. */
START_TEST(who_is_excluded_while_views_change_is_not_busy)
{
    begin(&ranks[1], &view);
    tick(&ranks[1]);
    ck_assert(!kvcl_views_is_busy(&ranks[1].views));
    kvcl_views_proven(&ranks[1].views, 2, 3, false, now_ns);
    ck_assert(kvcl_views_is_busy(&ranks[1].views));
    kvcl_views_give_up(&ranks[1].views);
    now_ns += 1000 * MS;
    tick(&ranks[1]);
    ck_assert(!kvcl_views_is_busy(&ranks[1].views));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("beats");
    TCase *tcase = tcase_create("beats");

    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, ranks_that_share_a_clock_beat_at_the_same_ticks);
    tcase_add_test(tcase, a_late_tick_beats_once);
    tcase_add_test(tcase, who_is_no_member_does_not_beat);
    tcase_add_test(tcase, who_is_excluded_while_views_change_is_not_busy);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
