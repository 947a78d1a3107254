/*
 * A rank that leaves (store/grow/leave.c): it gives no shards of a store that it still comes to, and ignores the mark
 * of a process other than the one it knows. Two ranks of one process with views; a test sets what a rank knows.
 */
#include "config.h"
#include "base/clock.h"
#include "core/comm.h"
#include "store/grow/part.h"
#include "store/home/follow_views.h"
#include "test/board.h"
#include "test_base.h"
#include <kvcl/kvcl_recover.h>

#include <stdlib.h>

#define LONG_NS  (60 * KVCL_NS_PER_SEC)
#define SHORT_NS (2 * KVCL_NS_PER_SEC)

typedef struct rank {
    kvcl_context_h ctx;
    kvcl_store_h   store;
} rank_t;

static rank_t ranks[2];

static void *begin(void *arg)
{
    rank_t              *r    = &ranks[*(int *)arg];
    kvcl_store_params_t p     = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = 4096, .block_bytes = 256};
    uint64_t            flags = 1;
    kvcl_comm_h         world;

    r->ctx = board_join(arg, 2, "loop", 0, &world);
    BOARD_OK(kvcl_comm_agree(world, &flags, LONG_NS)); /* both have a view */
    BOARD_OK(kvcl_store_open(world, &p, &r->store));
    return NULL;
}

static void *end(void *arg)
{
    kvcl_store_close(ranks[*(int *)arg].store);
    kvcl_finalize(ranks[*(int *)arg].ctx);
    return NULL;
}

static kvcl_status_t leaves(const rank_t *r)
{
    return kvcl_grow_leave_all(r->ctx, kvcl_store_room(r->ctx), kvcl_deadline_after(SHORT_NS));
}

START_TEST(a_rank_that_still_comes_waits_for_no_shards)
{
    const rank_t       *r = &ranks[0];
    kvcl_store_views_t was;

    board_do(2, begin);
    kvcl_lock(r->ctx);
    was                   = *r->store->views;
    r->store->views->view = 0;
    r->store->views->over = false;
    kvcl_unlock(r->ctx);
    BOARD_OK(leaves(r));
    kvcl_lock(r->ctx);
    ck_assert_uint_eq(r->store->draining, 0);
    ck_assert_uint_eq(r->store->views->moves.ranks[0].leaves, 0);
    r->store->views->view = was.view;
    r->store->views->over = was.over;
    kvcl_unlock(r->ctx);
    board_do(2, end);
}
END_TEST

START_TEST(the_mark_of_another_process_does_not_count)
{
    const rank_t *r = &ranks[0], *other = &ranks[1];

    board_do(2, begin);
    kvcl_lock(other->ctx);
    other->store->views->moves.ranks[1].leaves = true; /* it says so in its answer, */
    other->store->incarnation                  = (other->store->incarnation == 7) ? 8 : 7; /* as this process */
    kvcl_unlock(other->ctx);
    ck_assert_int_eq(leaves(r), KVCL_ERR_TIMED_OUT);
    kvcl_lock(r->ctx);
    ck_assert_uint_eq(r->store->views->moves.ranks[0].leaves, 1); /* it has had the answer */
    ck_assert_uint_eq(r->store->views->moves.ranks[1].leaves, 0);
    kvcl_unlock(r->ctx);
    board_do(2, end);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks that leave a store");
    TCase *tcase = tcase_create("leave");

    setenv("KVCL_VIEWS", "yes", 1);
    pthread_barrier_init(&board_all, NULL, 2);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_rank_that_still_comes_waits_for_no_shards);
    tcase_add_test(tcase, the_mark_of_another_process_does_not_count);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
