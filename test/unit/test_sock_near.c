/*
 * Connections between two processes of one host, and those that lead elsewhere: which pace, and whose queues are
 * bounded. Two addresses of loopback stand for two hosts. Where the system has no BBR, no socket may change.
 */
#include "config.h"
#include "test_base.h"
#include "sock/sock_near.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NAME_BYTES = 16, NEAR_BYTES = 2 * 192 * 1024 /* the kernel doubles it */ };

typedef struct pair {
    int listener, near, far;
} pair_t;

static void get_name(int fd, char name[NAME_BYTES])
{
    socklen_t len = NAME_BYTES;

    memset(name, 0, NAME_BYTES);
    ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
}

static int queue_bytes(int fd)
{
    socklen_t len = sizeof(int);
    int       bytes = 0;

    ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len), 0);
    return bytes;
}

/* Bound to the address, as KVCL's sockets begin. */
static int begin(const char *ip)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(inet_pton(AF_INET, ip, &sa.sin_addr), 1);
    kvcl_sock_near_begin(fd);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

static pair_t connect_from(const char *ip)
{
    pair_t             pair = {.listener = begin("127.0.0.1"), .near = begin(ip)};
    struct sockaddr_in sa;
    socklen_t          len = sizeof(sa);

    ck_assert_int_eq(listen(pair.listener, 1), 0);
    ck_assert_int_eq(getsockname(pair.listener, (struct sockaddr *)&sa, &len), 0);
    ck_assert_int_eq(connect(pair.near, (const struct sockaddr *)&sa, sizeof(sa)), 0);
    pair.far = accept(pair.listener, NULL, NULL);
    ck_assert_int_ge(pair.far, 0);
    return pair;
}

static void close_pair(pair_t pair)
{
    close(pair.listener);
    close(pair.near);
    close(pair.far);
}

static void assert_unpaced(int fd)
{
    char name[NAME_BYTES];

    get_name(fd, name);
    ck_assert_msg(strncmp(name, "bbr", 3) != 0, "a socket of this host paces: %s", name);
}

START_TEST(both_ends_on_one_host_do_not_pace)
{
    pair_t pair = connect_from("127.0.0.1");

    kvcl_sock_near_open(pair.near, KVCL_SOCK_STREAM);
    kvcl_sock_near_open(pair.far, KVCL_SOCK_MESSAGES);
    assert_unpaced(pair.near);
    assert_unpaced(pair.far);
    ck_assert_int_eq(queue_bytes(pair.near), NEAR_BYTES);
    ck_assert_int_ne(queue_bytes(pair.far), NEAR_BYTES); /* messages keep the kernel's bounds */
    close_pair(pair);
}
END_TEST

START_TEST(a_connection_to_another_host_is_the_systems_choice)
{
    pair_t pair = connect_from("127.0.0.2");
    int    plain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char   wanted[NAME_BYTES], name[NAME_BYTES];

    get_name(plain, wanted);
    kvcl_sock_near_open(pair.near, KVCL_SOCK_STREAM);
    kvcl_sock_near_open(pair.far, KVCL_SOCK_STREAM);
    get_name(pair.near, name);
    ck_assert_str_eq(name, wanted);
    get_name(pair.far, name);
    ck_assert_str_eq(name, wanted);
    ck_assert_int_ne(queue_bytes(pair.near), NEAR_BYTES);
    close(plain);
    close_pair(pair);
}
END_TEST

START_TEST(no_other_choice_than_bbr_changes)
{
    char name[NAME_BYTES];
    int  fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic")) == 0) {
        kvcl_sock_near_begin(fd);
        get_name(fd, name);
        ck_assert_str_eq(name, "cubic");
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "bbr", strlen("bbr")) == 0) {
        kvcl_sock_near_begin(fd);
        assert_unpaced(fd);
    }
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sock");
    TCase *tc    = tcase_create("near");

    tcase_add_test(tc, both_ends_on_one_host_do_not_pace);
    tcase_add_test(tc, a_connection_to_another_host_is_the_systems_choice);
    tcase_add_test(tc, no_other_choice_than_bbr_changes);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
