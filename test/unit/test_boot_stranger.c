/*
 * Processes that do not belong to the job: members and servers with another secret, another wire version, garbage, and
 * connections that begin a greeting and never end it.
 */
#include "config.h"
#include "test_boot.h"
#include "boot/boot_server.h"
#include "boot/boot_sock.h"
#include "boot/boot_wire.h"

START_TEST(member_with_another_secret_is_refused)
{
    rank_thread_t ranks[3];

    prepare(ranks, 3, 2);
    ranks[0].params.rank        = 0;
    ranks[1].params.rank        = 1;
    ranks[2].params.rank        = 1;
    ranks[2].params.secret_file = other_file;
    start(&ranks[0]);
    start(&ranks[2]);
    pthread_join(ranks[2].thread, NULL);
    ck_assert_int_eq(ranks[2].status, KVCL_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(ranks[2].error, "the job secrets differ"));
    start(&ranks[1]);
    pthread_join(ranks[0].thread, NULL);
    pthread_join(ranks[1].thread, NULL);
    all_met(ranks, 2); /* the stranger took no rank */
}
END_TEST

/* A server that follows the protocol but does not have the secret. */
static void *false_server(void *arg)
{
    kvcl_boot_msg_t msg = {.type = KVCL_BOOT_CHALLENGE};
    uint8_t         frame[KVCL_BOOT_SMALL_MAX];
    size_t          len;
    int             fd;

    fd = accept(*(int *)arg, NULL, NULL);
    (void)!read(fd, frame, KVCL_BOOT_HEAD_LEN + KVCL_BOOT_NONCE_LEN);
    len = kvcl_boot_msg_pack(&msg, frame, sizeof(frame));
    (void)!write(fd, frame, len);
    (void)!read(fd, frame, KVCL_BOOT_HEAD_LEN + 8 + 32);
    msg.type = KVCL_BOOT_WELCOME;
    msg.rank = 1;
    msg.size = 2;
    len      = kvcl_boot_msg_pack(&msg, frame, sizeof(frame));
    (void)!write(fd, frame, len);
    (void)!read(fd, frame, 1);
    close(fd);
    return NULL;
}

static int listen_here(void)
{
    kvcl_boot_addr_t addr;
    int              fd = -1, err = 0;

    ck_assert_int_eq(kvcl_boot_addr_resolve(url, &addr), KVCL_OK);
    ck_assert(addr.loopback);
    ck_assert_int_eq(kvcl_boot_sock_listen(&addr, &fd, &err), KVCL_OK);
    ck_assert_int_eq(fcntl(fd, F_SETFL, 0), 0); /* blocking */
    return fd;
}

START_TEST(server_that_does_not_know_the_secret_is_refused)
{
    rank_thread_t rank;
    pthread_t     thread;
    int           fd = listen_here();

    ck_assert_int_eq(pthread_create(&thread, NULL, false_server, &fd), 0);
    prepare(&rank, 1, 2);
    rank.params.rank = 1;
    run_all(&rank, 1);
    pthread_join(thread, NULL);
    close(fd);
    ck_assert_int_eq(rank.status, KVCL_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(rank.error, "does not know the job secret"));
}
END_TEST

static kvcl_boot_server_t *serve_two(uint64_t hello_ns)
{
    static const uint8_t      secret[32] = {5};
    kvcl_boot_server_params_t params     = {.listen_fd = listen_here(), .size = 2, .secret = secret,
                                            .hello_ns = hello_ns};
    kvcl_boot_server_t       *server     = NULL;

    ck_assert_int_eq(fcntl(params.listen_fd, F_SETFL, O_NONBLOCK), 0);
    ck_assert_int_eq(kvcl_boot_server_start(&params, &server), KVCL_OK);
    return server;
}

static int connect_here(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int                fd = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

/* Read until end of file. Return the number of bytes. */
static size_t read_all(int fd, uint8_t *buf, size_t cap)
{
    size_t  len = 0;
    ssize_t n;

    while ((len < cap) && ((n = read(fd, buf + len, cap - len)) > 0)) {
        len += (size_t)n;
    }
    return len;
}

START_TEST(garbage_is_dropped_without_an_answer_and_counted)
{
    kvcl_boot_server_t      *server = serve_two(0);
    kvcl_boot_server_stats_t stats;
    uint8_t                  buf[4096];
    kvcl_rand_t              rnd;
    kvcl_boot_msg_t          put = {.type = KVCL_BOOT_PUT, .blob = "unasked", .blob_len = 7};
    size_t                   i, len;
    int                      fd, round;

    test_seed(&rnd);
    for (round = 0; round < 100; ++round) {
        fd = connect_here();
        for (i = 0; i < sizeof(buf); ++i) {
            buf[i] = (uint8_t)kvcl_rand_next(&rnd);
        }
        len = (round % 2) ? kvcl_boot_msg_pack(&put, buf, sizeof(buf)) : 12 + kvcl_rand_below(&rnd, 4000);
        (void)send(fd, buf, len, MSG_NOSIGNAL);
        ck_assert_uint_eq(read_all(fd, buf, sizeof(buf)), 0);
        close(fd);
    }
    kvcl_boot_server_stats(server, &stats);
    ck_assert_uint_eq(stats.accepted, 100);
    ck_assert_uint_eq(stats.garbage, 100);
    kvcl_boot_server_stop(server);
}
END_TEST

START_TEST(slow_strangers_are_bounded_and_let_members_in)
{
    enum { LORIS = 200 };
    kvcl_boot_server_t      *server = serve_two(2 * KVCL_NS_PER_SEC);
    kvcl_boot_server_stats_t stats;
    kvcl_boot_msg_t          hello = {.type = KVCL_BOOT_HELLO};
    uint8_t                  buf[KVCL_BOOT_SMALL_MAX];
    size_t                   len = kvcl_boot_msg_pack(&hello, buf, sizeof(buf));
    int                      fds[LORIS], fd, i;

    for (i = 0; i < LORIS; ++i) {
        fds[i] = connect_here();
        (void)send(fds[i], buf, (size_t)(i % 20), MSG_NOSIGNAL); /* a beginning only */
    }
    fd = connect_here();
    ck_assert_int_eq((int)send(fd, buf, len, MSG_NOSIGNAL), (int)len);
    ck_assert_int_eq((int)recv(fd, buf, KVCL_BOOT_HEAD_LEN + 32, MSG_WAITALL), KVCL_BOOT_HEAD_LEN + 32);
    close(fd);
    for (i = 0; i < LORIS; ++i) {
        ck_assert_uint_eq(read_all(fds[i], buf, sizeof(buf)), 0);
        close(fds[i]);
    }
    kvcl_boot_server_stats(server, &stats);
    ck_assert_uint_eq(stats.slow, LORIS);
    kvcl_boot_server_stop(server);
}
END_TEST

START_TEST(another_wire_version_is_refused_with_a_sentence)
{
    kvcl_boot_server_t      *server = serve_two(0);
    kvcl_boot_server_stats_t stats;
    kvcl_boot_msg_t          msg = {.type = KVCL_BOOT_HELLO};
    kvcl_boot_head_t         head;
    uint8_t                  buf[KVCL_BOOT_SMALL_MAX];
    size_t                   len = kvcl_boot_msg_pack(&msg, buf, sizeof(buf));
    int                      fd  = connect_here();

    buf[4] = 2;
    (void)send(fd, buf, len, MSG_NOSIGNAL);
    ck_assert_uint_gt(read_all(fd, buf, sizeof(buf)), KVCL_BOOT_HEAD_LEN);
    close(fd);
    ck_assert_int_eq(kvcl_boot_head_parse(buf, &head), KVCL_OK);
    ck_assert_int_eq(kvcl_boot_body_parse(&head, buf + KVCL_BOOT_HEAD_LEN, &msg), KVCL_OK);
    ck_assert_int_eq((int)msg.type, KVCL_BOOT_REFUSE);
    ck_assert_int_eq(msg.status, KVCL_ERR_VERSION);
    ck_assert_str_eq(msg.text, "the ranks run different versions of KVCL: boot protocol 2, this meeting's is 1");
    kvcl_boot_server_stats(server, &stats);
    ck_assert_uint_eq(stats.version, 1);
    kvcl_boot_server_stop(server);
}
END_TEST

/* A server of a later version answers a member of this one. */
static void *future_server(void *arg)
{
    kvcl_boot_msg_t msg = {.type = KVCL_BOOT_CHALLENGE};
    uint8_t         frame[KVCL_BOOT_SMALL_MAX];
    size_t          len = kvcl_boot_msg_pack(&msg, frame, sizeof(frame));
    int             fd  = accept(*(int *)arg, NULL, NULL);

    frame[4] = 7;
    (void)!write(fd, frame, len);
    (void)!read(fd, frame, sizeof(frame));
    close(fd);
    return NULL;
}

START_TEST(member_names_the_other_version)
{
    rank_thread_t rank;
    pthread_t     thread;
    int           fd = listen_here();

    ck_assert_int_eq(pthread_create(&thread, NULL, future_server, &fd), 0);
    prepare(&rank, 1, 2);
    run_all(&rank, 1);
    pthread_join(thread, NULL);
    close(fd);
    ck_assert_int_eq(rank.status, KVCL_ERR_VERSION);
    ck_assert_ptr_nonnull(strstr(rank.error, "speaks boot protocol 7, we speak 1"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("boot strangers");
    TCase *tc    = tcase_create("strangers");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, member_with_another_secret_is_refused);
    tcase_add_test(tc, server_that_does_not_know_the_secret_is_refused);
    tcase_add_test(tc, garbage_is_dropped_without_an_answer_and_counted);
    tcase_add_test(tc, slow_strangers_are_bounded_and_let_members_in);
    tcase_add_test(tc, another_wire_version_is_refused_with_a_sentence);
    tcase_add_test(tc, member_names_the_other_version);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
