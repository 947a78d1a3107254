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

static int      page_fd;
static uint32_t page_word;
static uint8_t  page_owner[16];

static void take_page(void *arg, const uint8_t uuid[16], int fd, uint32_t word)
{
    ck_assert_ptr_eq(arg, &page_fd);
    page_fd   = dup(fd);
    page_word = word;
    memcpy(page_owner, uuid, sizeof(page_owner));
}

/* The lowest descriptor that is free. */
static int next_fd(void)
{
    const int fd = dup(0);

    close(fd);
    return fd;
}

START_TEST(a_page_is_given_to_whoever_asks)
{
    const int free_fd = next_fd();
    int       fds[2];

    one.on_page = take_page;
    one.arg     = &page_fd;
    page_fd     = -1;
    kvcl_ask_page(&one, second);
    ck_assert(!kvcl_ask_take(&two)); /* it has none */
    ck_assert(!has_mail(&one));
    ck_assert_int_eq(pipe(fds), 0);
    two.page_fd   = fds[0];
    two.page_word = 40;
    kvcl_ask_page(&one, second);
    ck_assert(!kvcl_ask_take(&two));
    ck_assert(!kvcl_ask_take(&one));
    ck_assert_uint_eq(page_word, 40);
    ck_assert_mem_eq(page_owner, second, sizeof(second));
    ck_assert_int_eq(write(fds[1], "x", 1), 1);
    ck_assert(poll(&(struct pollfd){.fd = page_fd, .events = POLLIN}, 1, 0) == 1); /* it is that pipe */
    kvcl_ask_page(&two, first);
    ck_assert(!kvcl_ask_take(&one));
    one.page_fd = fds[1];
    kvcl_ask_page(&two, first); /* whose asker takes no pages */
    ck_assert(!kvcl_ask_take(&one));
    ck_assert(!kvcl_ask_take(&two));
    close(page_fd);
    close(fds[0]);
    close(fds[1]);
    ck_assert_int_eq(next_fd(), free_fd);
}
END_TEST

static void send_bytes(int fd, void *bytes, size_t len, struct sockaddr_un *to, socklen_t to_len, unsigned n_fds)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {0};
    struct iovec   iov = {bytes, len};
    struct msghdr  msg = {.msg_name = to, .msg_namelen = to_len, .msg_iov = &iov, .msg_iovlen = 1,
                          .msg_control = control, .msg_controllen = CMSG_SPACE(n_fds * sizeof(int))};
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

    if (n_fds == 0) {
        msg.msg_control    = NULL;
        msg.msg_controllen = 0;
    } else {
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                                 .cmsg_len = CMSG_LEN(n_fds * sizeof(int))};
    }
    ck_assert_int_eq(sendmsg(fd, &msg, 0), (int)len);
}

/* Datagrams of every length up to twice that of a question, all of their bytes random, some with descriptors. */
START_TEST(random_bytes)
{
    const int          free_fd = next_fd();
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
            if ((len >= sizeof(uint64_t)) && (bytes[0] % 2 != 0)) { /* a kind that is known, often */
                memset(bytes, 0, sizeof(uint64_t));
                bytes[0] = (unsigned char)(kvcl_rand_next(&rnd) % 6);
            }
            send_bytes(fd, bytes, len, &at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)path),
                       (unsigned)kvcl_rand_next(&rnd) % 4);
            ck_assert(!kvcl_ask_take(&one));
        }
    }
    ck_assert(!has_mail(&one));
    close(fd);
    ck_assert_int_eq(next_fd(), free_fd);
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
    tcase_add_test(tc, a_page_is_given_to_whoever_asks);
    tcase_add_test(tc, random_bytes);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
