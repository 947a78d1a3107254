/*
 * Listeners of KVCL_NET: how many there are, which are left out, and what is said about it. getifaddrs() is this
 * program's own: hosts with other interfaces do not change the test.
 */
#include "config.h"
#include "test_base.h"
#include "base/log.h"
#include "sock/sock_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

enum { IFS = KVCL_SOCK_LISTENERS + 3 };

static struct ifaddrs      ifs[IFS];
static struct sockaddr_in  addrs[IFS];
static char                names[IFS][16];
static const char          *ip[IFS]; /* NULL: the list ends */
static unsigned            warnings;
static char                said[1024];

int getifaddrs(struct ifaddrs **list)
{
    int i;

    if (ip[0] == NULL) {
        errno = ENOBUFS;
        return -1;
    }
    for (i = 0; (i < IFS) && (ip[i] != NULL); ++i) {
        snprintf(names[i], sizeof(names[i]), "if%d", i);
        addrs[i] = (struct sockaddr_in){.sin_family = AF_INET};
        ck_assert_int_eq(inet_pton(AF_INET, ip[i], &addrs[i].sin_addr), 1);
        ifs[i] = (struct ifaddrs){.ifa_name  = names[i],
                                  .ifa_flags = IFF_UP | IFF_RUNNING,
                                  .ifa_addr  = (struct sockaddr *)(void *)&addrs[i]};
        ifs[i].ifa_next = ((i + 1 < IFS) && (ip[i + 1] != NULL)) ? &ifs[i + 1] : NULL;
    }
    *list = ifs;
    return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
    (void)list;
}

static void keep(void *arg, kvcl_log_level_t level, const char *line)
{
    (void)arg;
    if (level == KVCL_LOG_WARN) {
        ++warnings;
        snprintf(said, sizeof(said), "%s", line);
    }
}

static void set_ips(const char *const *list, int n)
{
    memset(ip, 0, sizeof(ip));
    memcpy(ip, list, (size_t)n * sizeof(*list));
    kvcl_log_set_handler(keep, NULL);
}

static void close_all(kvcl_sock_listener_t *listeners, unsigned n)
{
    while (n > 0) {
        kvcl_sock_unlisten(&listeners[--n], -1);
    }
    kvcl_log_set_handler(NULL, NULL);
}

static const char *const loopback[IFS] = {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6",
                                          "127.0.0.7", "127.0.0.8", "127.0.0.9", "127.0.0.10", "127.0.0.11"};

START_TEST(interfaces_beyond_the_bound_are_named_in_a_warning)
{
    kvcl_sock_listener_t listeners[KVCL_SOCK_LISTENERS];
    unsigned             n = 0, i;

    set_ips(loopback, KVCL_SOCK_LISTENERS + _i);
    ck_assert_int_eq(kvcl_sock_listen("all", listeners, &n), KVCL_OK);
    ck_assert_uint_eq(n, KVCL_SOCK_LISTENERS);
    for (i = 0; i < n; ++i) {
        ck_assert_int_ge(listeners[i].fd, 0);
        ck_assert_uint_eq(listeners[i].at.addr[3], i + 1);
    }
    ck_assert_uint_eq(warnings, (_i > 0) ? 1 : 0);
    ck_assert((_i == 0) || (strstr(said, "more than 8 interfaces") != NULL));
    close_all(listeners, n);
}
END_TEST

/* 192.0.2.1 is of no host (RFC 5737). */
START_TEST(an_address_that_cannot_be_bound_is_skipped_if_another_listens)
{
    static const char *const list[] = {"127.0.0.1", "192.0.2.1", "127.0.0.3"};
    kvcl_sock_listener_t     listeners[KVCL_SOCK_LISTENERS];
    unsigned                 n = 0;

    set_ips(list, 3);
    ck_assert_int_eq(kvcl_sock_listen("all", listeners, &n), KVCL_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(listeners[0].at.addr[3], 1);
    ck_assert_uint_eq(listeners[1].at.addr[3], 3);
    ck_assert_uint_eq(warnings, 1);
    ck_assert_msg(strstr(said, "\"if1\"") != NULL, "%s", said);
    close_all(listeners, n);
    ck_assert_int_eq(kvcl_sock_listen("if1", listeners, &n), KVCL_ERR_IO);
    ck_assert_uint_eq(n, 0);
    ck_assert_msg(strstr(kvcl_last_error(), "cannot listen on interface \"if1\"") != NULL, "%s", kvcl_last_error());
}
END_TEST

START_TEST(an_unreadable_list_of_interfaces_is_an_error)
{
    kvcl_sock_listener_t listeners[KVCL_SOCK_LISTENERS];
    unsigned             n = 0;

    ck_assert_int_eq(kvcl_sock_listen("all", listeners, &n), KVCL_ERR_IO);
    ck_assert_msg(strstr(kvcl_last_error(), "cannot read the network interfaces") != NULL, "%s", kvcl_last_error());
    ck_assert_uint_eq(n, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("listeners");
    TCase *tc    = tcase_create("listeners");

    tcase_add_loop_test(tc, interfaces_beyond_the_bound_are_named_in_a_warning, 0, 4);
    tcase_add_test(tc, an_address_that_cannot_be_bound_is_skipped_if_another_listens);
    tcase_add_test(tc, an_unreadable_list_of_interfaces_is_an_error);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
