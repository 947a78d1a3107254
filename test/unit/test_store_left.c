/*
 * A store that was not closed before kvcl_finalize leaks no memory: two ranks of one process open a store, leave it
 * open and finalize, repeatedly, and the heap does not grow.
 */
#include "config.h"
#include "test/board.h"

#include <malloc.h>

enum { RANKS = 2, WARM = 4, ROUNDS = 16 };

/* A rank of a store over several allocates 24 KiB of notes on the others' blocks; a round may retain much less than
 * that. */
enum { KEPT_MAX = 4096 };

/* Open a store and leave it open, WARM + ROUNDS times; rank 0 measures the heap while rank 1 is stopped. */
static void *rank_main(void *arg)
{
    const int           *rank = arg;
    kvcl_oob_t          oob   = {sizeof(oob), *rank, RANKS, board_set, board_get, board_fence, arg};
    kvcl_store_params_t p     = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = 4096, .block_bytes = 256};
    size_t              before = 0, after;
    int                 i;

    for (i = 0; i < WARM + ROUNDS; ++i) {
        kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
        kvcl_context_h     ctx;
        kvcl_comm_h        world;
        kvcl_store_h       store;
        params.oob  = &oob;
        params.path = "loop";
        ck_assert_msg(kvcl_init(&params, &ctx) == KVCL_OK, "%s", kvcl_last_error());
        ck_assert_int_eq(kvcl_comm_world(ctx, &world), KVCL_OK);
        ck_assert_msg(kvcl_store_open(world, &p, &store) == KVCL_OK, "%s", kvcl_last_error());
        pthread_barrier_wait(&board_all);
        kvcl_finalize(ctx);
        pthread_barrier_wait(&board_all);
        if ((*rank == 0) && (i == WARM - 1)) {
            before = mallinfo2().uordblks;
        }
        pthread_barrier_wait(&board_all);
    }
    after = mallinfo2().uordblks;
    if (*rank == 0) {
        printf("%zu bytes in use before, %zu after %d rounds\n", before, after, ROUNDS);
        ck_assert_msg(after <= before + (ROUNDS * KEPT_MAX), "each round keeps %zu bytes", (after - before) / ROUNDS);
    }
    return NULL;
}

START_TEST(a_store_left_open_keeps_no_memory)
{
    pthread_barrier_init(&board_all, NULL, RANKS);
    board_do(RANKS, rank_main);
    pthread_barrier_destroy(&board_all);
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("store_left");
    TCase   *tcase  = tcase_create("left");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, a_store_left_open_keeps_no_memory);
    suite_add_tcase(suite, tcase);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
