/*
 * The queue of messages of collectives that a rank has not begun (coll/coll_early.c) has room for those that another
 * rank may have in flight, however many bytes they carry (KVCL_EAGER), and keeps them until the rank begins, however
 * late that is. Two ranks of one process over TCP.
 */
#include "config.h"
#include "coll/coll_run.h"
#include "test/board.h"
#include "test_base.h"

#include <unistd.h>

enum { COLLS = 4, LEN = 16 << 20, PIECES = COLLS * KVCL_EXEC_ANNOUNCES };

typedef struct rank {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    char           *bytes;
    kvcl_req_h     reqs[COLLS];
} rank_t;

static rank_t ranks[2];

static void *begin(void *arg)
{
    rank_t *r = &ranks[*(int *)arg];

    r->ctx   = board_join(arg, 2, "tcp", 0, &r->world);
    r->bytes = calloc(1, LEN);
    ck_assert_ptr_nonnull(r->bytes);
    return NULL;
}

static void *end(void *arg)
{
    rank_t *r = &ranks[*(int *)arg];

    kvcl_finalize(r->ctx);
    free(r->bytes);
    return NULL;
}

static void post(rank_t *r, unsigned i, size_t len)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.timeout_ns = UINT64_C(60000000000);
    BOARD_OK(kvcl_bcast_bytes(r->world, 0, r->bytes, len, &params, &r->reqs[i]));
}

static void post_all(rank_t *r)
{
    unsigned i;

    for (i = 0; i < COLLS; ++i) {
        post(r, i, LEN);
    }
}

static unsigned n_early(kvcl_context_h ctx)
{
    const kvcl_list_t *link;
    unsigned          n = 0;

    kvcl_lock(ctx);
    for (link = kvcl_coll_room(ctx)->early.next; link != &kvcl_coll_room(ctx)->early; link = link->next) {
        ++n;
    }
    kvcl_unlock(ctx);
    return n;
}

/* Or one is refused. */
static void until_early(unsigned n)
{
    unsigned i;

    for (i = 0; (i < 20000) && (n_early(ranks[1].ctx) < n); ++i) {
        usleep(1000);
    }
    ck_assert_uint_eq(n_early(ranks[1].ctx), n);
}

static void wait_for(unsigned i)
{
    BOARD_OK(kvcl_req_wait(ranks[1].reqs[i], KVCL_WAIT_FOREVER));
    BOARD_OK(kvcl_req_wait(ranks[0].reqs[i], KVCL_WAIT_FOREVER));
}

START_TEST(all_that_a_rank_may_have_in_flight_is_kept)
{
    unsigned i;

    board_do(2, begin);
    memset(ranks[0].bytes, 9, LEN);
    post_all(&ranks[0]);
    until_early(PIECES);
    post_all(&ranks[1]);
    for (i = 0; i < COLLS; ++i) {
        wait_for(i);
    }
    ck_assert((ranks[1].bytes[0] == 9) && (ranks[1].bytes[LEN - 1] == 9));
    ck_assert_uint_eq(n_early(ranks[1].ctx), 0);
    board_do(2, end);
}
END_TEST

/* The deadlines of the collectives are later than two times KVCL_TIMEOUT. */
START_TEST(what_is_old_is_kept_while_there_is_room)
{
    setenv("KVCL_TIMEOUT", "50ms", 1);
    board_do(2, begin);
    post(&ranks[0], 0, 8);
    until_early(1);
    usleep(300000);
    post(&ranks[0], 1, 8);
    until_early(2);
    post(&ranks[1], 0, 8);
    post(&ranks[1], 1, 8);
    wait_for(0);
    wait_for(1);
    board_do(2, end);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("early messages of collectives");
    TCase *tcase = tcase_create("early");

    setenv("KVCL_NET", "lo", 0);
    setenv("KVCL_EAGER", "1M", 1);
    setenv("KVCL_COLL_CHUNK", "1M", 1);
    pthread_barrier_init(&board_all, NULL, 2);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, all_that_a_rank_may_have_in_flight_is_kept);
    tcase_add_test(tcase, what_is_old_is_kept_while_there_is_room);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
