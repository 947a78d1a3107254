/*
 * The threads of collectives on device memory (devcoll/dev_runner.c) that have ended keep no stacks. Host memory takes
 * the same way (KVCL_ON_DEVICE), so no device is needed.
 */
#include "config.h"
#include "test_base.h"
#include <kvcl/kvcl.h>

#include <pthread.h>
#include <unistd.h>

enum { WARM = 8, ROUNDS = 48 };

/* Writable private memory of this process, in bytes: its threads' stacks among it, whether they were touched or not. */
static size_t count_data(void)
{
    FILE          *f = fopen("/proc/self/statm", "r");
    unsigned long pages;

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%*s %*s %*s %*s %*s %lu", &pages), 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* A communicator's first collective on device memory makes its runner, which ends with the communicator. */
static void make_and_end(kvcl_comm_h world)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    const int          ranks[1] = {0};
    char               byte     = 1;
    kvcl_comm_h        comm;
    kvcl_req_h         req;

    params.flags = KVCL_ON_DEVICE;
    ck_assert_int_eq(kvcl_comm_create(world, ranks, 1, &comm), KVCL_OK);
    ck_assert_int_eq(kvcl_bcast_bytes(comm, 0, &byte, 1, &params, &req), KVCL_OK);
    ck_assert_int_eq(kvcl_req_wait(req, KVCL_WAIT_FOREVER), KVCL_OK);
    kvcl_comm_free(comm);
    usleep(1000); /* the thread ends meanwhile, mostly */
}

START_TEST(runners_that_have_ended_keep_no_stacks)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;
    kvcl_comm_h        world;
    pthread_attr_t     attr;
    size_t             stack, before = 0;
    unsigned           round;

    params.boot = "self";
    ck_assert_int_eq(pthread_attr_init(&attr), 0);
    ck_assert_int_eq(pthread_attr_getstacksize(&attr, &stack), 0);
    pthread_attr_destroy(&attr);
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_world(ctx, &world), KVCL_OK);
    for (round = 0; round < WARM + ROUNDS; ++round) {
        before = (round == WARM) ? count_data() : before;
        make_and_end(world);
    }
    ck_assert_uint_lt(count_data(), before + ROUNDS / 2 * stack);
    kvcl_finalize(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runners of collectives on device memory");
    TCase *tc    = tcase_create("runners");

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, runners_that_have_ended_keep_no_stacks);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
