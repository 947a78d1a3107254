/*
 * The kernel's word that a process of this host has ended (member/ended.h).
 */
#include "member/ended.h"

#include "test_base.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 60000, MANY = 5000, TICKS = 100 };

static kvcl_ended_t *mine;
static unsigned     accepts; /* tried */

int __real_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags);

int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    ++accepts;
    return __real_accept4(fd, from, len, flags);
}

static void uuid_of(uint8_t uuid[16], uint8_t n)
{
    memset(uuid, n, 16);
    memcpy(uuid, &(pid_t){getpid()}, sizeof(pid_t));
}

static void setup(void)
{
    uint8_t uuid[16];

    uuid_of(uuid, 1);
    ck_assert_int_eq(kvcl_ended_open(uuid, 4, &mine), KVCL_OK);
}

static void teardown(void)
{
    kvcl_ended_close(mine);
}

/* A process that listens under this uuid, and ends when it is killed. With a child of its own: that one stays until the
 * pipe's other end is closed. */
static pid_t start_process(const uint8_t uuid[16], bool with_child, int stay)
{
    kvcl_ended_t *its;
    int          ready[2];
    char         byte = 0;
    pid_t        pid;

    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (kvcl_ended_open(uuid, 1, &its) != KVCL_OK) {
            _exit(1);
        }
        if (with_child && (fork() == 0)) {
            (void)!read(stay, &byte, 1);
            _exit(0);
        }
        (void)!write(ready[1], &byte, 1);
        for (;;) {
            pause();
        }
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void wait_for_one(void)
{
    struct pollfd fd = {.fd = kvcl_ended_fd(mine), .events = POLLIN};

    ck_assert_int_eq(poll(&fd, 1, LONG_MS), 1);
}

START_TEST(a_killed_process_has_ended_and_is_reported_once)
{
    uint8_t uuid[16];
    pid_t   pid;

    uuid_of(uuid, 2);
    pid = start_process(uuid, false, -1);
    ck_assert(kvcl_ended_watch(mine, 3, uuid));
    ck_assert_uint_eq(kvcl_ended_take(mine), KVCL_ENDED_NONE);
    kill(pid, SIGKILL);
    wait_for_one(); /* it is not waited for: a zombie has ended */
    ck_assert_uint_eq(kvcl_ended_take(mine), 3);
    ck_assert_uint_eq(kvcl_ended_take(mine), KVCL_ENDED_NONE);
    waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(a_stopped_process_has_not_ended)
{
    struct pollfd fd = {.fd = kvcl_ended_fd(mine), .events = POLLIN};
    uint8_t       uuid[16];
    int           status;
    pid_t         pid;

    uuid_of(uuid, 2);
    pid = start_process(uuid, false, -1);
    ck_assert(kvcl_ended_watch(mine, 0, uuid));
    kill(pid, SIGSTOP);
    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    ck_assert_int_eq(poll(&fd, 1, 50), 0);
    ck_assert_uint_eq(kvcl_ended_take(mine), KVCL_ENDED_NONE);
    kill(pid, SIGKILL);
    wait_for_one();
    ck_assert_uint_eq(kvcl_ended_take(mine), 0);
    waitpid(pid, NULL, 0);
}
END_TEST

/* The child has the parent's sockets. */
START_TEST(a_process_has_ended_also_if_its_child_lives)
{
    uint8_t uuid[16];
    int     stay[2];
    pid_t   pid;

    uuid_of(uuid, 2);
    ck_assert_int_eq(pipe(stay), 0);
    pid = start_process(uuid, true, stay[0]);
    ck_assert(kvcl_ended_watch(mine, 1, uuid));
    kill(pid, SIGKILL);
    wait_for_one();
    ck_assert_uint_eq(kvcl_ended_take(mine), 1);
    close(stay[0]);
    close(stay[1]);
    waitpid(pid, NULL, 0);
}
END_TEST

/* The child of the process that watches has its descriptors too. */
START_TEST(an_end_is_reported_once_also_if_the_watcher_has_a_child)
{
    uint8_t uuid[16];
    int     stay[2];
    char    byte;
    pid_t   pid, child;

    uuid_of(uuid, 2);
    ck_assert_int_eq(pipe(stay), 0);
    pid = start_process(uuid, false, -1);
    ck_assert(kvcl_ended_watch(mine, 2, uuid));
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        close(stay[1]);
        (void)!read(stay[0], &byte, 1);
        _exit(0);
    }
    kill(pid, SIGKILL);
    wait_for_one();
    ck_assert_uint_eq(kvcl_ended_take(mine), 2);
    ck_assert_uint_eq(kvcl_ended_take(mine), KVCL_ENDED_NONE);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = kvcl_ended_fd(mine), .events = POLLIN}, 1, 0), 0);
    close(stay[0]);
    close(stay[1]);
    waitpid(child, NULL, 0);
    waitpid(pid, NULL, 0);
}
END_TEST

static int next_descriptor(void)
{
    int fd = dup(STDIN_FILENO);

    ck_assert_int_ge(fd, 0);
    close(fd);
    return fd;
}

/* More than a listener's queue has places for (4,096) watch this process and end. Those that come then see its end. */
START_TEST(those_that_watch_and_end_make_room_for_others)
{
    kvcl_ended_t *its;
    uint8_t      own[16], uuid[16];
    int          i, descriptor;

    uuid_of(own, 1);
    uuid_of(uuid, 2);
    ck_assert_int_eq(kvcl_ended_open(uuid, 1, &its), KVCL_OK);
    descriptor = next_descriptor();
    for (i = 0; i < MANY; ++i) {
        ck_assert_msg(kvcl_ended_watch(its, 0, own), "number %d does not see the end of this process", i);
        kvcl_ended_forget(its, 0);
        kvcl_ended_admit(mine);
    }
    kvcl_ended_admit(mine);
    ck_assert_int_eq(next_descriptor(), descriptor);
    ck_assert(kvcl_ended_watch(its, 0, own));
    kvcl_ended_admit(mine);
    kvcl_ended_admit(mine);
    ck_assert_uint_eq(kvcl_ended_take(its), KVCL_ENDED_NONE);
    kvcl_ended_close(mine);
    mine = NULL;
    ck_assert_uint_eq(kvcl_ended_take(its), 0);
    kvcl_ended_close(its);
}
END_TEST

/* An accept makes a socket and a file before it finds nobody: not with each tick. */
START_TEST(nobody_is_accepted_in_vain)
{
    kvcl_ended_t *its;
    uint8_t      own[16], uuid[16];
    unsigned     i;

    uuid_of(own, 1);
    uuid_of(uuid, 2);
    ck_assert_int_eq(kvcl_ended_open(uuid, 2, &its), KVCL_OK);
    ck_assert(kvcl_ended_watch(its, 0, own));
    kvcl_ended_admit(mine);
    accepts = 0;
    for (i = 0; i < TICKS; ++i) {
        kvcl_ended_admit(mine);
    }
    ck_assert_uint_eq(accepts, 0);
    ck_assert(kvcl_ended_watch(its, 1, own));
    kvcl_ended_admit(mine);
    ck_assert_uint_ge(accepts, 1);
    kvcl_ended_close(its);
}
END_TEST

START_TEST(nothing_is_seen_of_a_process_that_does_not_listen)
{
    uint8_t uuid[16];

    uuid_of(uuid, 9);
    ck_assert(!kvcl_ended_watch(mine, 2, uuid));
    ck_assert_uint_eq(kvcl_ended_take(mine), KVCL_ENDED_NONE);
}
END_TEST

/* A sign is no proof: the process lives. */
START_TEST(after_a_sign_of_a_process_that_lives_it_has_not_ended)
{
    uint8_t uuid[16];
    pid_t   pid;
    int     looks;

    uuid_of(uuid, 2);
    pid = start_process(uuid, false, -1);
    ck_assert(kvcl_ended_watch(mine, 3, uuid));
    ck_assert(!kvcl_ended_is_unsure(mine));
    kvcl_ended_sign(mine, 3);
    for (looks = 0; kvcl_ended_is_unsure(mine); ++looks) {
        ck_assert_uint_eq(kvcl_ended_take(mine), KVCL_ENDED_NONE);
    }
    ck_assert_int_gt(looks, 100);
    kvcl_ended_sign(mine, 2); /* nobody is watched there */
    ck_assert(!kvcl_ended_is_unsure(mine));
    kvcl_ended_sign(mine, 3);
    kill(pid, SIGKILL);
    wait_for_one();
    ck_assert_uint_eq(kvcl_ended_take(mine), 3);
    ck_assert(!kvcl_ended_is_unsure(mine));
    ck_assert_uint_eq(kvcl_ended_take(mine), KVCL_ENDED_NONE);
    waitpid(pid, NULL, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("the end of processes");
    TCase *tcase = tcase_create("ended");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 2 * LONG_MS / 1000);
    tcase_add_test(tcase, a_killed_process_has_ended_and_is_reported_once);
    tcase_add_test(tcase, a_stopped_process_has_not_ended);
    tcase_add_test(tcase, a_process_has_ended_also_if_its_child_lives);
    tcase_add_test(tcase, an_end_is_reported_once_also_if_the_watcher_has_a_child);
    tcase_add_test(tcase, after_a_sign_of_a_process_that_lives_it_has_not_ended);
    tcase_add_test(tcase, those_that_watch_and_end_make_room_for_others);
    tcase_add_test(tcase, nobody_is_accepted_in_vain);
    tcase_add_test(tcase, nothing_is_seen_of_a_process_that_does_not_listen);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
