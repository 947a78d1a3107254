/*
 * What a process that joins asks, and what it is answered (enter/join_wire.h): what is packed comes back, and what no
 * process packs is refused.
 */
#include "enter/join_wire.h"
#include "base/rand.h"

#include "test_base.h"

#include <stdlib.h>
#include <string.h>

enum { WIRE = 6 };

static kvcl_join_answer_t answer, got;
static uint8_t            buf[4096], bytes[4096];

START_TEST(a_question_comes_back_as_it_was)
{
    uint8_t question[KVCL_JOIN_QUESTION];
    int32_t slot;

    kvcl_join_question_pack(-1, question, WIRE);
    ck_assert_int_eq(kvcl_join_question_unpack(question, WIRE, &slot), KVCL_OK);
    ck_assert_int_eq(slot, -1);
    kvcl_join_question_pack(1023, question, WIRE);
    ck_assert_int_eq(kvcl_join_question_unpack(question, WIRE, &slot), KVCL_OK);
    ck_assert_int_eq(slot, 1023);
    ck_assert_int_eq(kvcl_join_question_unpack(question, WIRE + 1, &slot), KVCL_ERR_VERSION);
    question[0] ^= 1;
    ck_assert_int_eq(kvcl_join_question_unpack(question, WIRE, &slot), KVCL_ERR_PROTOCOL);
    kvcl_join_question_pack(1024, question, WIRE);
    ck_assert_int_eq(kvcl_join_question_unpack(question, WIRE, &slot), KVCL_ERR_PROTOCOL);
    kvcl_join_question_pack(-2, question, WIRE);
    ck_assert_int_eq(kvcl_join_question_unpack(question, WIRE, &slot), KVCL_ERR_PROTOCOL);
}
END_TEST

/* Members 0, 2, 5, 7 of 8 slots; the process gets slot 3. */
static size_t pack(void)
{
    static const uint32_t slots[] = {0, 2, 5, 7};
    uint32_t              i;

    memset(&answer, 0, sizeof(answer));
    memset(bytes, 0xa5, sizeof(bytes));
    answer.slot      = 3;
    answer.n_slots   = 8;
    answer.n_members = 4;
    for (i = 0; i < KVCL_JOIN_TIMES; ++i) {
        answer.times_ns[i] = 1000 + i;
    }
    for (i = 0; i < 4; ++i) {
        answer.members[i] = (kvcl_join_member_t){slots[i], 10 + i, bytes + (100 * i)};
    }
    return kvcl_join_answer_pack(&answer, buf, sizeof(buf));
}

START_TEST(an_answer_comes_back_as_it_was)
{
    const size_t len = pack();
    uint32_t     i;

    ck_assert_uint_gt(len, 0);
    ck_assert_int_eq(kvcl_join_answer_unpack(buf, len, &got), KVCL_OK);
    ck_assert_uint_eq(got.slot, 3);
    ck_assert_uint_eq(got.n_slots, 8);
    ck_assert_uint_eq(got.n_members, 4);
    ck_assert_int_eq(memcmp(got.times_ns, answer.times_ns, sizeof(got.times_ns)), 0);
    for (i = 0; i < 4; ++i) {
        ck_assert_uint_eq(got.members[i].slot, answer.members[i].slot);
        ck_assert_uint_eq(got.members[i].len, answer.members[i].len);
        ck_assert_int_eq(memcmp(got.members[i].address, answer.members[i].address, got.members[i].len), 0);
    }
    ck_assert_uint_eq(kvcl_join_answer_pack(&answer, buf, len - 1), 0);
}
END_TEST

START_TEST(a_refusal_has_no_members)
{
    size_t len;

    (void)pack();
    answer.status = KVCL_ERR_NO_SPACE;
    len           = kvcl_join_answer_pack(&answer, buf, sizeof(buf));
    ck_assert_int_eq(kvcl_join_answer_unpack(buf, len, &got), KVCL_ERR_PROTOCOL);
    answer.n_members = 0;
    len              = kvcl_join_answer_pack(&answer, buf, sizeof(buf));
    ck_assert_int_eq(kvcl_join_answer_unpack(buf, len, &got), KVCL_OK);
    ck_assert_int_eq(got.status, KVCL_ERR_NO_SPACE);
    answer.status = KVCL_OK; /* a job without members */
    len           = kvcl_join_answer_pack(&answer, buf, sizeof(buf));
    ck_assert_int_eq(kvcl_join_answer_unpack(buf, len, &got), KVCL_ERR_PROTOCOL);
    answer.status = KVCL_ERR_INTERNAL; /* none that a member gives */
    len           = kvcl_join_answer_pack(&answer, buf, sizeof(buf));
    ck_assert_int_eq(kvcl_join_answer_unpack(buf, len, &got), KVCL_ERR_PROTOCOL);
}
END_TEST

static void refuses(const char *what)
{
    const size_t len = kvcl_join_answer_pack(&answer, buf, sizeof(buf));

    ck_assert_msg(kvcl_join_answer_unpack(buf, len, &got) == KVCL_ERR_PROTOCOL, "%s", what);
}

START_TEST(values_that_no_member_writes_are_refused)
{
    size_t len, cut;
    void   *copy;

    len = pack();
    for (cut = 0; cut < len; ++cut) {
        copy = malloc(cut + 1);
        memcpy(copy, buf, cut);
        ck_assert_int_eq(kvcl_join_answer_unpack(copy, cut, &got), KVCL_ERR_PROTOCOL);
        free(copy);
    }
    ck_assert_int_eq(kvcl_join_answer_unpack(buf, len + 1, &got), KVCL_ERR_PROTOCOL);
    answer.slot = 8;
    refuses("a slot beyond the job's");
    (void)pack();
    answer.slot = 5;
    refuses("a member's slot");
    (void)pack();
    answer.members[3].slot = 8;
    refuses("a member beyond the job's slots");
    (void)pack();
    answer.members[1].slot = 0;
    refuses("a member twice");
    (void)pack();
    answer.n_slots = KVCL_JOIN_SLOTS_MAX + 1;
    refuses("more slots than a job can have");
    (void)pack();
    answer.members[2].len = 0;
    refuses("a member without an address");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("joining");
    TCase *tcase = tcase_create("wire");

    tcase_add_test(tcase, a_question_comes_back_as_it_was);
    tcase_add_test(tcase, an_answer_comes_back_as_it_was);
    tcase_add_test(tcase, a_refusal_has_no_members);
    tcase_add_test(tcase, values_that_no_member_writes_are_refused);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
