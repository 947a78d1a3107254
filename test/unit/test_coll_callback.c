/*
 * The callback of a collective of one rank, on the progress thread, lets another thread free the communicator while the
 * call has not returned. Sanitizers report a use of the freed communicator.
 */
#include "config.h"
#include "test_base.h"
#include <kvcl/kvcl.h>

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 3000 };

static kvcl_comm_h comm;
static atomic_uint posted, called, failed;

static void on_end(void *arg, kvcl_status_t status)
{
    (void)arg;
    atomic_fetch_add(&failed, (status != KVCL_OK) ? 1 : 0);
    atomic_fetch_add(&called, 1);
}

static void *post_all(void *arg)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    char               byte   = 1;
    unsigned           round;

    (void)arg;
    params.cb = on_end;
    for (round = 1; round <= ROUNDS; ++round) {
        while (atomic_load(&posted) != round) {
        }
        if (kvcl_bcast_bytes(comm, 0, &byte, 1, &params, NULL) != KVCL_OK) {
            on_end(NULL, KVCL_ERR_INTERNAL);
        }
    }
    return NULL;
}

START_TEST(a_callback_lets_the_communicator_be_freed)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    const int          ranks[1] = {0};
    kvcl_context_h     ctx;
    kvcl_comm_h        world;
    pthread_t          thread;
    unsigned           round;

    params.boot = "self";
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_world(ctx, &world), KVCL_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, post_all, NULL), 0);
    for (round = 1; round <= ROUNDS; ++round) {
        if (kvcl_comm_create(world, ranks, 1, &comm) != KVCL_OK) {
            ck_abort_msg("no communicator");
        }
        atomic_store(&posted, round);
        while (atomic_load(&called) != round) {
        }
        kvcl_comm_free(comm);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(atomic_load(&failed), 0);
    kvcl_finalize(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("callbacks of collectives");
    TCase *tc    = tcase_create("callbacks of collectives");

    tcase_set_timeout(tc, 240);
    tcase_add_test(tc, a_callback_lets_the_communicator_be_freed);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
