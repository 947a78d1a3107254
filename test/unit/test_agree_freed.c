/*
 * A communicator that one rank has freed, while another one does not know yet what was decided over it, as when the
 * leader died before it had told all: whoever asks is told (member/recover.h). Two ranks of one process with views. The
 * second forgets the decision, which is what it knows if the message gets lost, and asks the first.
 */
#include "config.h"
#include "base/clock.h"
#include "core/comm.h"
#include "member/recover.h"
#include "test/board.h"
#include "test_base.h"
#include <kvcl/kvcl_recover.h>

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define LONG_NS (UINT64_C(60) * 1000000000)

typedef struct rank {
    kvcl_context_h ctx;
    kvcl_comm_h    world, comm;
} rank_t;

static rank_t ranks[2];

/* Both make the communicator, and agree over it. */
static void *begin(void *arg)
{
    const int both[2] = {0, 1};
    rank_t    *r      = &ranks[*(int *)arg];
    uint64_t  flags   = 5;

    r->ctx = board_join(arg, 2, "loop", 0, &r->world);
    BOARD_OK(kvcl_comm_create(r->world, both, 2, &r->comm));
    BOARD_OK(kvcl_comm_agree(r->comm, &flags, LONG_NS));
    ck_assert_uint_eq(flags, 5);
    return NULL;
}

static void *end(void *arg)
{
    kvcl_finalize(ranks[*(int *)arg].ctx);
    return NULL;
}

static bool is_known(kvcl_recover_t *recover)
{
    bool known;

    kvcl_lock(recover->room->ctx);
    known = recover->done;
    kvcl_unlock(recover->room->ctx);
    return known;
}

START_TEST(whoever_asks_after_the_communicator_was_freed_is_told)
{
    kvcl_recover_t *recover;
    uint64_t       until;

    board_do(2, begin);
    kvcl_comm_free(ranks[0].comm); /* the leader's */
    kvcl_lock(ranks[1].ctx);
    recover = kvcl_recover_of(kvcl_member_room(ranks[1].ctx), ranks[1].comm);
    ck_assert(recover->agree.rounds[1].decided && (recover->agree.round == 1));
    recover->agree.rounds[1].decided = false;
    recover->busy                    = true;
    recover->done                    = false;
    recover->awaited                 = 1;
    kvcl_unlock(ranks[1].ctx); /* it says again, with a tick, what it gives */
    for (until = kvcl_deadline_after(LONG_NS); !is_known(recover) && !kvcl_deadline_passed(until);) {
        usleep(1000);
    }
    ck_assert_msg(is_known(recover), "the rank was not told what was decided");
    ck_assert_uint_eq(recover->value.flags, 5);
    kvcl_comm_free(ranks[1].comm);
    board_do(2, end);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("agreement over freed communicators");
    TCase *tcase = tcase_create("freed");

    setenv("KVCL_VIEWS", "yes", 1);
    pthread_barrier_init(&board_all, NULL, 2);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, whoever_asks_after_the_communicator_was_freed_is_told);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
