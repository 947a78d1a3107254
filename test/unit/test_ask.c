/*
 * Questions between contexts of one host (member/ask.h).
 */
#include "member/ask.h"

#include "test_base.h"

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static kvcl_ask_t one, two;
static uint8_t    first[16], second[16];

static void setup(void)
{
    memset(first, 1, sizeof(first));
    memset(second, 2, sizeof(second));
    memcpy(first, &(pid_t){getpid()}, sizeof(pid_t));
    memcpy(second, &(pid_t){getpid()}, sizeof(pid_t));
    ck_assert_int_eq(kvcl_ask_open(first, &one), KVCL_OK);
    ck_assert_int_eq(kvcl_ask_open(second, &two), KVCL_OK);
}

static void teardown(void)
{
    kvcl_ask_close(&one);
    kvcl_ask_close(&two);
}

static bool has_mail(const kvcl_ask_t *ask)
{
    struct pollfd fd = {.fd = ask->fd, .events = POLLIN};

    return poll(&fd, 1, 0) == 1;
}

START_TEST(a_question_is_answered_once)
{
    kvcl_ask_next(&one);
    kvcl_ask_put(&one, second);
    ck_assert(!kvcl_ask_take(&one)); /* the other one has not looked yet: it may be stopped */
    kvcl_ask_put(&one, second);
    ck_assert(!kvcl_ask_take(&two)); /* questions of others are no answers */
    ck_assert(kvcl_ask_take(&one));
    ck_assert(!kvcl_ask_take(&one));
    kvcl_ask_put(&one, second); /* the same question again */
    ck_assert(!kvcl_ask_take(&two));
    ck_assert(!kvcl_ask_take(&one));
    kvcl_ask_next(&one);
    kvcl_ask_put(&one, second);
    ck_assert(!kvcl_ask_take(&two));
    ck_assert(kvcl_ask_take(&one));
}
END_TEST

START_TEST(an_answer_to_an_older_question_is_none)
{
    kvcl_ask_next(&one);
    kvcl_ask_put(&one, second);
    ck_assert(!kvcl_ask_take(&two));
    kvcl_ask_next(&one);
    ck_assert(!kvcl_ask_take(&one));
}
END_TEST

START_TEST(nobody_there)
{
    uint8_t none[16] = {0};

    kvcl_ask_next(&one);
    kvcl_ask_put(&one, none);
    ck_assert(!kvcl_ask_take(&one));
}
END_TEST

START_TEST(a_name_is_taken_once)
{
    kvcl_ask_t again;

    ck_assert_int_eq(kvcl_ask_open(first, &again), KVCL_ERR_IO);
    ck_assert_int_eq(again.fd, -1);
}
END_TEST

/* Datagrams of every length up to twice that of a question, all of their bytes random. */
START_TEST(random_bytes)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    unsigned char      bytes[64];
    kvcl_rand_t        rnd;
    const int          fd  = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    size_t             len, i;
    int                path, round;

    path = snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "kvcl-ask-");
    for (i = 0; i < 16; ++i) {
        path += snprintf(at.sun_path + 1 + path, 3, "%02x", first[i]);
    }
    ck_assert_int_ge(fd, 0);
    test_seed(&rnd);
    kvcl_ask_next(&one);
    for (round = 0; round < 20; ++round) {
        for (len = 0; len <= sizeof(bytes); ++len) {
            for (i = 0; i < len; ++i) {
                bytes[i] = (unsigned char)kvcl_rand_next(&rnd);
            }
            ck_assert_int_eq(sendto(fd, bytes, len, 0, (struct sockaddr *)&at,
                                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)path)), (int)len);
            ck_assert(!kvcl_ask_take(&one));
        }
    }
    ck_assert(!has_mail(&one));
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ask");
    TCase *tc    = tcase_create("ask");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_question_is_answered_once);
    tcase_add_test(tc, an_answer_to_an_older_question_is_none);
    tcase_add_test(tc, nobody_there);
    tcase_add_test(tc, a_name_is_taken_once);
    tcase_add_test(tc, random_bytes);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
