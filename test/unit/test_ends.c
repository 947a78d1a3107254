/*
 * The ends of processes, for a caller that looks in its own passes (life/ends.h).
 */
#include "life/ends.h"

#include "test_base.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 60000, AT_ONCE = 1024 };

static kvcl_ends_t *mine;
static char        name[32], its_name[32];

static void setup(void)
{
    snprintf(name, sizeof(name), "this %d", (int)getpid());
    snprintf(its_name, sizeof(its_name), "another %d", (int)getpid());
    mine = kvcl_ends_open(name, sizeof(name));
    ck_assert_ptr_nonnull(mine);
}

static void teardown(void)
{
    kvcl_ends_close(mine);
}

/* A process that has its_name until it is killed. */
static pid_t start_process(void)
{
    int   ready[2];
    char  byte = 0;
    pid_t pid;

    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if ((kvcl_ends_open(its_name, sizeof(its_name)) == NULL) || (write(ready[1], &byte, 1) != 1)) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static bool is_readable(int timeout_ms)
{
    struct pollfd fd = {.fd = kvcl_ends_fd(mine), .events = POLLIN};

    return poll(&fd, 1, timeout_ms) == 1;
}

START_TEST(a_killed_process_is_told_once_before_its_parent_waits)
{
    const pid_t pid = start_process();
    int         arg;

    ck_assert_uint_ne(kvcl_ends_watch(mine, its_name, sizeof(its_name), &arg), 0);
    ck_assert(!is_readable(0));
    ck_assert_ptr_null(kvcl_ends_take(mine, AT_ONCE));
    kill(pid, SIGKILL);
    ck_assert(is_readable(LONG_MS));
    ck_assert_ptr_null(kvcl_ends_take(mine, AT_ONCE - 1)); /* it has not looked yet */
    ck_assert_ptr_eq(kvcl_ends_take(mine, 1), &arg);
    ck_assert(!is_readable(0));
    ck_assert_ptr_null(kvcl_ends_take(mine, AT_ONCE));
    ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), pid); /* nobody had waited for it */
}
END_TEST

START_TEST(a_forgotten_process_is_not_told)
{
    const pid_t pid = start_process();
    int         first, second;
    uint32_t    number;

    number = kvcl_ends_watch(mine, its_name, sizeof(its_name), &first);
    ck_assert_uint_ne(number, 0);
    ck_assert_uint_ne(kvcl_ends_watch(mine, its_name, sizeof(its_name), &second), 0);
    kvcl_ends_forget(mine, number);
    kvcl_ends_forget(mine, 0);
    kill(pid, SIGKILL);
    ck_assert(is_readable(LONG_MS));
    ck_assert_ptr_eq(kvcl_ends_take(mine, AT_ONCE), &second);
    ck_assert_ptr_null(kvcl_ends_take(mine, AT_ONCE));
    ck_assert(!is_readable(0));
    waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(nothing_is_seen_of_a_name_that_nobody_has)
{
    int arg;

    ck_assert_uint_eq(kvcl_ends_watch(mine, its_name, sizeof(its_name), &arg), 0);
    ck_assert_ptr_null(kvcl_ends_take(mine, AT_ONCE));
}
END_TEST

START_TEST(nothing_is_seen_without_an_object)
{
    int arg;

    ck_assert_int_eq(kvcl_ends_fd(NULL), -1);
    ck_assert_uint_eq(kvcl_ends_watch(NULL, name, sizeof(name), &arg), 0);
    ck_assert_ptr_null(kvcl_ends_take(NULL, AT_ONCE));
    kvcl_ends_forget(NULL, 1);
    kvcl_ends_close(NULL);
}
END_TEST

/* More than a listener's queue holds. */
START_TEST(ten_thousand_watchers_come_and_go)
{
    kvcl_ends_t *other = kvcl_ends_open(its_name, sizeof(its_name));
    int         arg, i;
    uint32_t    number;

    ck_assert_uint_ne(kvcl_ends_watch(other, name, sizeof(name), &arg), 0); /* it looks: somebody is watched */
    for (i = 0; i < 10000; ++i) {
        number = kvcl_ends_watch(mine, its_name, sizeof(its_name), &arg);
        ck_assert_uint_ne(number, 0);
        kvcl_ends_forget(mine, number);
        ck_assert_ptr_null(kvcl_ends_take(other, KVCL_ENDS_SLEEP));
    }
    kvcl_ends_close(other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ends of processes, in passes");
    TCase *tcase = tcase_create("ends");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 2 * LONG_MS / 1000);
    tcase_add_test(tcase, a_killed_process_is_told_once_before_its_parent_waits);
    tcase_add_test(tcase, a_forgotten_process_is_not_told);
    tcase_add_test(tcase, nothing_is_seen_of_a_name_that_nobody_has);
    tcase_add_test(tcase, nothing_is_seen_without_an_object);
    tcase_add_test(tcase, ten_thousand_watchers_come_and_go);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
