/*
 * Jobs of contexts of one process over the loop transport, for tests of members (src/member). Included once by each.
 */
#ifndef TEST_MEMBERS_JOB_H
#define TEST_MEMBERS_JOB_H

#include "test_base.h"
#include <kvcl/kvcl.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 4 };
#define LONG_NS (60 * KVCL_NS_PER_SEC)

static char secret[64];

static kvcl_context_h open_context(const char *boot)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;

    params.boot        = boot;
    params.path        = "loop";
    params.secret_file = secret;
    ck_assert_msg(kvcl_init(&params, &ctx) == KVCL_OK, "%s", kvcl_last_error());
    return ctx;
}

/* A job of one process, in slot 0. */
static kvcl_context_h begin_job(void)
{
    return open_context("self");
}

/* The next process of the job: through that member, in the first free slot. */
static kvcl_context_h join_job(kvcl_context_h through)
{
    kvcl_context_h ctx;
    char           at[128];
    size_t         len;

    ck_assert_int_eq(kvcl_join_address(through, at, sizeof(at), &len), KVCL_OK);
    setenv("KVCL_JOIN", at, 1);
    ctx = open_context("join");
    unsetenv("KVCL_JOIN");
    return ctx;
}

static void nap(void)
{
    usleep(1000); /* the test's limit bounds what waits */
}

static void set_up(void)
{
    char slots[16];
    int  fd;

    snprintf(secret, sizeof(secret), "/tmp/kvcl-members-%d", (int)getpid());
    fd = open(secret, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, "one secret of sixteen", 20), 20);
    close(fd);
    snprintf(slots, sizeof(slots), "%d", SLOTS);
    setenv("KVCL_VIEWS", "yes", 1);
    setenv("KVCL_SLOTS", slots, 1);
    setenv("KVCL_JOIN_AT", "127.0.0.1:0", 1);
    setenv("KVCL_DEAD", "10s", 1); /* a busy machine */
}

static void tear_down(void)
{
    unlink(secret);
}

static TCase *add_case(Suite *suite, const char *name)
{
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, 200);
    tcase_add_unchecked_fixture(tcase, set_up, tear_down);
    suite_add_tcase(suite, tcase);
    return tcase;
}

#endif
