/*
 * Messages of collectives that no rank sends, or not at that time (coll/coll_msg.c, coll_pull.c). One rank receives of
 * two, whose messages are made here. A slot of a peer's stage whose bytes are void once they have been read leaves its
 * step open until the peer's ABORT, whatever else of the operation lands meanwhile: rank 1 has staged a piece, and
 * raised its count since; rank 2's piece is read out of its memory. An announcement that comes twice is dropped and
 * counted.
 */
#include "config.h"
#include "coll/coll_run.h"
#include "test_base.h"
#include <kvcl/kvcl.h>

#include <stdlib.h>
#include <string.h>

enum { LEN = 4096, SLOTS = 4, STAGE = 4096 + (SLOTS * KVCL_COLL_STAGE_SLOT) };

static kvcl_context_h         ctx;
static kvcl_coll_comm_t       cc;
static kvcl_coll_stage_peer_t stages[3];
static kvcl_plan_entry_t      entry;
static kvcl_coll_op_t         op;
static kvcl_coll_peer_t       peers[2];
static char                   out[3 * LEN];

static void advance(kvcl_coll_op_t *one)
{
    (void)one;
}

static void set_up(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    uint32_t           i;

    params.boot = "self";
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    cc.size        = 3;
    cc.stage.peers = stages;
    cc.stage.slots = SLOTS;
    kvcl_plan_init(&entry.plan);
    for (i = 1; i < 3; ++i) {
        (void)kvcl_plan_recv_from(&entry.plan, i, 0, i * LEN, LEN, KVCL_STEP_NONE);
        peers[i - 1].op   = &op;
        peers[i - 1].rank = i;
        kvcl_list_init(&peers[i - 1].chunks);
    }
    ck_assert_int_eq(kvcl_plan_seal(&entry.plan), KVCL_OK);
    op.req.ctx = ctx;
    op.cc      = &cc;
    op.plan    = &entry;
    op.peers   = peers;
    op.buf     = out;
    op.total   = sizeof(out);
    op.advance = advance;
    for (i = 0; i < KVCL_EXEC_PULLS; ++i) {
        op.pulls[i].op = &op;
    }
    kvcl_list_init(&op.landed_link);
    kvcl_exec_init(&op.exec, &entry.plan, malloc(kvcl_exec_bytes(&entry.plan)), NULL);
}

static void tear_down(void)
{
    free(op.exec.steps);
    kvcl_plan_fini(&entry.plan);
    free(stages[1].view.addr);
    stages[1].view.addr = NULL;
    kvcl_finalize(ctx);
}

/* The pull of what this rank has announced. */
static kvcl_exec_action_t announce(uint32_t rank)
{
    kvcl_exec_action_t action;

    ck_assert_int_eq(kvcl_exec_announced(&op.exec, rank, 0, 0, LEN, entry.plan.signature), KVCL_OK);
    ck_assert_int_eq(kvcl_exec_next(&op.exec, &action), 1);
    ck_assert_int_eq(action.op, KVCL_EXEC_PULL);
    ck_assert_uint_eq(action.peer, rank);
    return action;
}

/* Rank 1's slot, of an operation that has failed there since: its count is 1. */
static void stage_void_bytes(void)
{
    kvcl_coll_chunk_t *chunk = calloc(1, sizeof(*chunk));
    uint64_t          count  = 1;

    stages[1].view.addr = calloc(1, STAGE);
    ck_assert_ptr_nonnull(chunk);
    ck_assert_ptr_nonnull(stages[1].view.addr);
    memcpy(stages[1].view.addr, &count, sizeof(count));
    chunk->staged = true;
    kvcl_list_add_tail(&peers[0].chunks, &chunk->link);
}

/* As near_done() leaves it. */
static void land(const kvcl_exec_action_t *action)
{
    kvcl_coll_pull_t *pull = op.pulls;

    while (pull->state != KVCL_COLL_PULL_FREE) {
        ++pull;
    }
    pull->state = KVCL_COLL_PULL_LANDED;
    pull->step  = action->step;
    kvcl_list_add_tail(&kvcl_coll_room(ctx)->landed, &op.landed_link);
}

/* Once more, as a message that was recorded and sent again. */
START_TEST(an_announcement_that_comes_twice_is_dropped)
{
    kvcl_peer_t     peer = {.name = "rank 1"};
    char            bytes[LEN];
    kvcl_msg_coll_t in = {.rank = 1, .kind = KVCL_COLL_ANNOUNCE, .len = LEN, .signature = entry.plan.signature,
                          .msg = {.flags = KVCL_COLL_EAGER}};
    uint64_t        malformed;

    memset(bytes, 7, sizeof(bytes));
    peers[0].peer = &peer;
    kvcl_lock(ctx);
    malformed = ctx->stats.malformed;
    kvcl_coll_handle(&op, &peer, &in, bytes, sizeof(bytes));
    ck_assert_uint_eq(ctx->stats.malformed, malformed);
    kvcl_coll_handle(&op, &peer, &in, bytes, sizeof(bytes));
    ck_assert_uint_eq(ctx->stats.malformed, malformed + 1);
    ck_assert_int_eq(kvcl_exec_status(&op.exec), KVCL_INPROGRESS);
    ck_assert_int_eq(op.exec.status, KVCL_OK);
    free(kvcl_container_of(kvcl_list_pop(&peers[0].chunks), kvcl_coll_chunk_t, link));
    ck_assert(kvcl_list_is_empty(&peers[0].chunks));
    kvcl_unlock(ctx);
}
END_TEST

START_TEST(void_bytes_do_not_land_with_others)
{
    kvcl_exec_action_t action;

    kvcl_lock(ctx);
    stage_void_bytes();
    action = announce(1);
    kvcl_coll_pull(&op, &peers[0], &action);
    ck_assert_uint_eq(op.exec.pulling, 1);
    action = announce(2);
    land(&action);
    ck_assert_uint_eq(op.exec.pulling, 2);
    ck_assert_uint_eq(kvcl_coll_poll(ctx), 1);
    ck_assert_uint_eq(op.exec.pulling, 1); /* rank 2's bytes are here; rank 1's never come */
    ck_assert_int_eq(kvcl_exec_status(&op.exec), KVCL_INPROGRESS);

    ck_assert_int_eq(kvcl_exec_aborted(&op.exec, 1, KVCL_ERR_TIMED_OUT), KVCL_OK);
    kvcl_coll_stop_pulls(&op, op.exec.status);
    ck_assert_uint_eq(op.exec.pulling, 0);
    while (kvcl_exec_next(&op.exec, &action) != 0) {
        ck_assert_int_eq(action.op, KVCL_EXEC_ABORT);
    }
    ck_assert_int_eq(kvcl_exec_status(&op.exec), KVCL_ERR_TIMED_OUT);
    kvcl_unlock(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pulls of collectives");
    TCase *tc    = tcase_create("pulls of collectives");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, void_bytes_do_not_land_with_others);
    tcase_add_test(tc, an_announcement_that_comes_twice_is_dropped);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
