/*
 * Members that are told to go, so that nobody would stay (view/views.h): where they ask it of each other, one goes on
 * alone, with a lease; where each asks it itself, their view stays.
 */
#include "views_ranks.h"

static void run_ms(unsigned ms)
{
    for (; ms > 0; ms -= TICK_MS) {
        tick();
    }
}

/* It is the only member, owns, and nothing is pending. */
static void is_alone(uint32_t slot)
{
    const kvcl_views_t *views = &ranks[slot];

    ck_assert_int_eq(views->state, KVCL_VIEWS_MEMBER);
    ck_assert_uint_eq(views->view.number, 2);
    ck_assert_uint_eq(kvcl_rankset_count(&views->view.members), 1);
    ck_assert(kvcl_rankset_is_empty(&views->leaving));
    ck_assert(!kvcl_views_is_busy(views));
    ck_assert(owns(slot));
}

START_TEST(of_two_that_send_each_other_off_one_stays)
{
    begin(2, NULL);
    kvcl_views_leave(&ranks[0], 1, now_ns);
    kvcl_views_leave(&ranks[1], 0, now_ns);
    deliver();
    run_ms(3000);
    is_alone(0);
    ck_assert_int_eq(ranks[1].state, KVCL_VIEWS_OUT);
}
END_TEST

START_TEST(of_a_circle_one_stays)
{
    uint32_t slot;

    begin(4, NULL);
    for (slot = 0; slot < 4; ++slot) {
        kvcl_views_leave(&ranks[slot], (slot + 1) % 4, now_ns);
    }
    deliver();
    run_ms(3000);
    is_alone(0);
    for (slot = 1; slot < 4; ++slot) {
        ck_assert_int_eq(ranks[slot].state, KVCL_VIEWS_OUT);
    }
}
END_TEST

/* The one that has asked ends; so the other one is not alone by its own word. */
START_TEST(who_was_sent_off_by_one_that_ends_stays)
{
    begin(2, NULL);
    kvcl_views_leave(&ranks[1], 0, now_ns);
    deliver();
    cut_off = 1;
    kvcl_views_proven(&ranks[0], 1, 2, false, now_ns);
    run_ms(1000);
    is_alone(0);
}
END_TEST

/* Others commit the view in which it is alone, or in which a process has joined besides. */
START_TEST(who_was_sent_off_stays_by_the_commit_of_another_one)
{
    kvcl_view_change_t change = {.n_joins = 0};
    kvcl_view_t        next;
    kvcl_view_msg_t    msg = {.type = KVCL_VIEW_COMMIT, .from = 2, .view = &next};

    for (; change.n_joins < 2; ++change.n_joins) {
        begin(3, NULL);
        kvcl_views_leave(&ranks[1], 0, now_ns);
        deliver();
        ck_assert(kvcl_rankset_has(&ranks[0].leaving, 0));
        kvcl_rankset_add(&change.gone, 1);
        kvcl_rankset_add(&change.gone, 2);
        change.joins[0] = (kvcl_view_join_t){.slot = 3, .incarnation = 9};
        kvcl_view_apply(&ranks[0].view, &change, &next);
        kvcl_views_take(&ranks[0], &msg, now_ns);
        ck_assert_uint_eq(ranks[0].view.number, 2);
        ck_assert(kvcl_rankset_is_empty(&ranks[0].leaving));
    }
}
END_TEST

START_TEST(all_that_leave_stay_in_their_view)
{
    uint32_t slot;

    begin(3, NULL);
    for (slot = 0; slot < 3; ++slot) {
        kvcl_views_leave(&ranks[slot], slot, now_ns);
    }
    deliver();
    run_ms(5000);
    for (slot = 0; slot < 3; ++slot) {
        ck_assert_int_eq(ranks[slot].state, KVCL_VIEWS_MEMBER);
        ck_assert_uint_eq(ranks[slot].view.number, 1);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("members that are to go");
    TCase *tcase = tcase_create("members that are to go");

    tcase_add_test(tcase, of_two_that_send_each_other_off_one_stays);
    tcase_add_test(tcase, of_a_circle_one_stays);
    tcase_add_test(tcase, who_was_sent_off_by_one_that_ends_stays);
    tcase_add_test(tcase, who_was_sent_off_stays_by_the_commit_of_another_one);
    tcase_add_test(tcase, all_that_leave_stay_in_their_view);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
