/*
 * Shared by the programs for base and boot: running a suite, and the seed of random tests (TEST_SEED, else the clock),
 * printed so that a failure can be repeated.
 */
#ifndef KVCL_TEST_BASE_H
#define KVCL_TEST_BASE_H

#include "base/clock.h"
#include "base/rand.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A string literal for the type char *: it is never written. */
#define TEST_STR(_literal) ((char *)(uintptr_t)(_literal))

static inline int test_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int      failed;

    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static inline void test_seed(kvcl_rand_t *rnd)
{
    const char *env  = getenv("TEST_SEED");
    uint64_t    seed = (env != NULL) ? strtoull(env, NULL, 0) : kvcl_now_ns();

    printf("TEST_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    kvcl_rand_seed(rnd, seed);
}

#endif
