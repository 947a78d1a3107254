/*
 * The messages of the view machine as bytes (view/view_wire.h): what is packed comes back, and what no rank packs is
 * refused.
 */
#include "base/rand.h"
#include "view/view_wire.h"

#include "test_base.h"

#include <string.h>

enum { FROM = 3, INCARNATION = 77 };

static uint8_t         buf[KVCL_VIEW_MSG_MAX];
static kvcl_view_t     view, got_view;
static kvcl_view_msg_t msg, got;

static kvcl_rankset_t random_set(kvcl_rand_t *rnd)
{
    kvcl_rankset_t set = {{0}};
    unsigned       n   = (unsigned)kvcl_rand_below(rnd, 6);

    while (n-- > 0) {
        kvcl_rankset_add(&set, (uint32_t)kvcl_rand_below(rnd, KVCL_SLOTS_MAX));
    }
    return set;
}

static void random_message(kvcl_rand_t *rnd, kvcl_view_msg_type_t type)
{
    uint32_t slot, i;

    memset(&msg, 0, sizeof(msg));
    memset(&view, 0, sizeof(view));
    msg.type             = type;
    msg.from             = FROM;
    msg.incarnation      = INCARNATION;
    msg.number           = kvcl_rand_next(rnd);
    msg.id               = kvcl_rand_next(rnd);
    msg.stamp            = kvcl_rand_next(rnd);
    msg.echo             = kvcl_rand_next(rnd);
    msg.accepted         = kvcl_rand_next(rnd);
    msg.ballot           = kvcl_rand_next(rnd);
    msg.phase            = (uint32_t)kvcl_rand_next(rnd);
    msg.lease            = kvcl_rand_below(rnd, 2) == 1;
    msg.dead             = random_set(rnd);
    msg.leaving          = random_set(rnd);
    msg.change.gone      = random_set(rnd);
    msg.change.n_joins   = (uint32_t)kvcl_rand_below(rnd, KVCL_VIEW_JOINS + 1);
    msg.proposers        = random_set(rnd);
    msg.excused          = random_set(rnd);
    for (i = 0; i < msg.change.n_joins; ++i) {
        msg.change.joins[i] = (kvcl_view_join_t){(uint32_t)kvcl_rand_below(rnd, KVCL_SLOTS_MAX),
                                                 1 + kvcl_rand_below(rnd, UINT64_MAX)};
    }
    view.number  = 1 + kvcl_rand_below(rnd, 1000);
    view.members = random_set(rnd);
    kvcl_rankset_add(&view.members, FROM);
    KVCL_RANKSET_EACH(&view.members, slot) {
        view.incarnation[slot] = 1 + kvcl_rand_below(rnd, UINT64_MAX);
    }
    view.incarnation[FROM] = INCARNATION;
    view.id                = kvcl_view_hash(&view);
    msg.view               = (type == KVCL_VIEW_COMMIT) ? &view : NULL;
}

static kvcl_status_t unpack(size_t len)
{
    return kvcl_view_msg_unpack(buf, len, FROM, INCARNATION, KVCL_SLOTS_MAX, &got, &got_view);
}

static size_t pack(void)
{
    size_t len = kvcl_view_msg_pack(&msg, buf, sizeof(buf));

    ck_assert_uint_gt(len, 0);
    return len;
}

static void ck_set(const kvcl_rankset_t *a, const kvcl_rankset_t *b)
{
    ck_assert(kvcl_rankset_equal(a, b));
}

static void ck_head(void)
{
    ck_assert_int_eq(got.type, msg.type);
    ck_assert_uint_eq(got.number, msg.number);
    ck_assert_uint_eq(got.id, msg.id);
    ck_assert_uint_eq(got.stamp, msg.stamp);
    ck_assert_uint_eq(got.echo, msg.echo);
    ck_assert_uint_eq(got.accepted, msg.accepted);
    ck_assert_uint_eq(got.ballot, msg.ballot);
    ck_assert_uint_eq(got.phase, msg.phase);
    ck_assert_int_eq(got.lease, msg.lease);
    ck_set(&got.dead, &msg.dead);
    ck_set(&got.leaving, &msg.leaving);
}

START_TEST(every_message_comes_back_as_it_was)
{
    kvcl_rand_t rnd;
    unsigned    i, type;

    test_seed(&rnd);
    for (i = 0; i < 2000; ++i) {
        type = KVCL_VIEW_BEAT + (i % KVCL_VIEW_COMMIT);
        random_message(&rnd, (kvcl_view_msg_type_t)type);
        ck_assert_int_eq(unpack(pack()), KVCL_OK);
        ck_head();
        if ((type == KVCL_VIEW_JOIN) || (type == KVCL_VIEW_PROMISE) || (type == KVCL_VIEW_ACCEPT)) {
            ck_assert(kvcl_view_change_equal(&got.change, &msg.change));
        }
        if ((type == KVCL_VIEW_PROMISE) || (type == KVCL_VIEW_ACCEPT)) {
            ck_set(&got.proposers, &msg.proposers);
        }
        if (type == KVCL_VIEW_ACCEPT) {
            ck_set(&got.excused, &msg.excused);
        }
        if (type == KVCL_VIEW_COMMIT) {
            ck_assert_ptr_eq(got.view, &got_view);
            ck_assert_mem_eq(&got_view, &view, sizeof(view));
        }
    }
}
END_TEST

START_TEST(a_message_that_is_cut_off_or_too_long_is_refused)
{
    kvcl_rand_t rnd;
    size_t      len, cut;
    unsigned    type;

    test_seed(&rnd);
    for (type = KVCL_VIEW_BEAT; type <= KVCL_VIEW_COMMIT; ++type) {
        random_message(&rnd, (kvcl_view_msg_type_t)type);
        len = pack();
        for (cut = 0; cut < len; ++cut) {
            ck_assert_int_eq(unpack(cut), KVCL_ERR_PROTOCOL);
        }
        ck_assert_int_eq(unpack(len + 1), KVCL_ERR_PROTOCOL);
        ck_assert_uint_eq(kvcl_view_msg_pack(&msg, buf, len - 1), 0);
    }
}
END_TEST

START_TEST(nobody_speaks_for_another_rank)
{
    kvcl_rand_t rnd;
    size_t      len;

    test_seed(&rnd);
    random_message(&rnd, KVCL_VIEW_BEAT);
    len = pack();
    ck_assert_int_eq(kvcl_view_msg_unpack(buf, len, FROM + 1, INCARNATION, KVCL_SLOTS_MAX, &got, &got_view),
                     KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(kvcl_view_msg_unpack(buf, len, FROM, INCARNATION + 1, KVCL_SLOTS_MAX, &got, &got_view),
                     KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(unpack(len), KVCL_OK);
}
END_TEST

START_TEST(a_view_is_of_a_member_and_has_the_id_that_its_content_makes)
{
    kvcl_rand_t rnd;

    test_seed(&rnd);
    random_message(&rnd, KVCL_VIEW_COMMIT);
    view.id ^= 1;
    ck_assert_int_eq(unpack(pack()), KVCL_ERR_PROTOCOL);
    random_message(&rnd, KVCL_VIEW_COMMIT);
    view.incarnation[FROM] = INCARNATION + 1;
    view.id                = kvcl_view_hash(&view);
    ck_assert_int_eq(unpack(pack()), KVCL_ERR_PROTOCOL);
    random_message(&rnd, KVCL_VIEW_COMMIT);
    kvcl_rankset_del(&view.members, FROM);
    view.id = kvcl_view_hash(&view);
    ck_assert_int_eq(unpack(pack()), KVCL_ERR_PROTOCOL);
    random_message(&rnd, KVCL_VIEW_COMMIT);
    view.number = 0;
    view.id     = kvcl_view_hash(&view);
    ck_assert_int_eq(unpack(pack()), KVCL_ERR_PROTOCOL);
}
END_TEST

START_TEST(values_out_of_range_are_refused)
{
    kvcl_rand_t rnd;
    size_t      len;

    test_seed(&rnd);
    random_message(&rnd, KVCL_VIEW_BEAT);
    len    = pack();
    buf[0] = 0;
    ck_assert_int_eq(unpack(len), KVCL_ERR_PROTOCOL);
    buf[0] = KVCL_VIEW_COMMIT + 1;
    ck_assert_int_eq(unpack(len), KVCL_ERR_PROTOCOL);
    memset(&msg.dead, 0, sizeof(msg.dead));
    msg.dead.word[0] = 1;
    len              = pack();
    memset(buf + 69, 0, 8); /* a word of no bits: the set has a shorter form */
    ck_assert_int_eq(unpack(len), KVCL_ERR_PROTOCOL);
    random_message(&rnd, KVCL_VIEW_JOIN);
    msg.change.n_joins  = 1;
    msg.change.joins[0] = (kvcl_view_join_t){KVCL_SLOTS_MAX, 1};
    ck_assert_int_eq(unpack(pack()), KVCL_ERR_PROTOCOL);
    msg.change.joins[0] = (kvcl_view_join_t){KVCL_SLOTS_MAX - 1, 0};
    ck_assert_int_eq(unpack(pack()), KVCL_ERR_PROTOCOL);
    msg.change.joins[0].incarnation = 1;
    ck_assert_int_eq(unpack(pack()), KVCL_OK);
}
END_TEST

/* Each place of a message that names slots, in a job of eight. */
START_TEST(slots_that_the_job_does_not_have_are_refused)
{
    const uint32_t       n      = 8;
    kvcl_rankset_t *const sets[] = {&msg.dead, &msg.leaving, &msg.change.gone, &msg.proposers, &msg.excused,
                                    &view.members};
    uint32_t             last;
    size_t               len, i;

    for (last = n - 1; last <= n; ++last) {
        for (i = 0; i < 1 + (sizeof(sets) / sizeof(sets[0])); ++i) {
            msg  = (kvcl_view_msg_t){.type = KVCL_VIEW_ACCEPT, .from = FROM, .incarnation = INCARNATION};
            view = (kvcl_view_t){.number = 2};
            kvcl_rankset_add(&view.members, FROM);
            view.incarnation[FROM] = INCARNATION;
            if (i == sizeof(sets) / sizeof(sets[0])) {
                msg.change = (kvcl_view_change_t){.n_joins = 1, .joins = {{last, 1}}};
            } else {
                kvcl_rankset_add(sets[i], last);
            }
            if (kvcl_rankset_count(&view.members) == 2) {
                msg.type               = KVCL_VIEW_COMMIT;
                msg.view               = &view;
                view.incarnation[last] = 1;
                view.id                = kvcl_view_hash(&view);
            }
            len = pack();
            ck_assert_int_eq(kvcl_view_msg_unpack(buf, len, FROM, INCARNATION, n, &got, &got_view),
                             (last < n) ? KVCL_OK : KVCL_ERR_PROTOCOL);
        }
    }
}
END_TEST

START_TEST(the_largest_view_fits)
{
    uint32_t slot;

    memset(&msg, 0, sizeof(msg));
    memset(&view, 0, sizeof(view));
    msg  = (kvcl_view_msg_t){.type = KVCL_VIEW_COMMIT, .from = FROM, .incarnation = INCARNATION, .view = &view};
    view = (kvcl_view_t){.number = 2};
    for (slot = 0; slot < KVCL_SLOTS_MAX; ++slot) {
        kvcl_rankset_add(&view.members, slot);
        view.incarnation[slot] = INCARNATION;
    }
    msg.dead = msg.leaving = view.members;
    view.id                = kvcl_view_hash(&view);
    ck_assert_uint_le(pack(), KVCL_VIEW_MSG_MAX);
    ck_assert_int_eq(unpack(pack()), KVCL_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("messages about views");
    TCase *tcase = tcase_create("wire");

    tcase_add_test(tcase, every_message_comes_back_as_it_was);
    tcase_add_test(tcase, a_message_that_is_cut_off_or_too_long_is_refused);
    tcase_add_test(tcase, nobody_speaks_for_another_rank);
    tcase_add_test(tcase, a_view_is_of_a_member_and_has_the_id_that_its_content_makes);
    tcase_add_test(tcase, values_out_of_range_are_refused);
    tcase_add_test(tcase, slots_that_the_job_does_not_have_are_refused);
    tcase_add_test(tcase, the_largest_view_fits);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
