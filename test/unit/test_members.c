/*
 * Members of a job, and processes that join it (src/member): contexts of one process, over the loop transport. A lying
 * rank is played by sending from its context what it would never send.
 */
#include "config.h"
#include "enter/join_wire.h"
#include "member/join/joins.h"
#include "members_job.h"

#include <pthread.h>

enum { TOO_HIGH = 1000 };

/* ---- slots that the job does not have ---- */

static uint64_t malformed(kvcl_context_h ctx)
{
    uint64_t n;

    kvcl_lock(ctx);
    n = ctx->stats.malformed;
    kvcl_unlock(ctx);
    return n;
}

static uint64_t view_of(kvcl_context_h ctx)
{
    uint64_t number;

    kvcl_lock(ctx);
    number = kvcl_member_room(ctx)->views.view.number;
    kvcl_unlock(ctx);
    return number;
}

/* Rank 1 sends rank 0 such a message. */
static void name_a_slot(kvcl_context_h liar, kvcl_view_msg_type_t type)
{
    static uint8_t     bytes[KVCL_VIEW_MSG_MAX];
    kvcl_member_room_t *room = kvcl_member_room(liar);
    kvcl_msg_t         out   = {.type = KVCL_MSG_VIEW, .op = 1};
    kvcl_view_msg_t    msg   = {.type = type, .from = 1};
    kvcl_view_t        next;
    size_t             len;

    kvcl_lock(liar);
    next            = room->views.view;
    msg.incarnation = room->views.incarnation;
    msg.number      = next.number;
    msg.id          = next.id;
    msg.ballot      = KVCL_SLOTS_MAX + 2; /* of rank 1 */
    msg.change      = (kvcl_view_change_t){.n_joins = 1, .joins = {{TOO_HIGH, 5}}};
    next.number    += 1;
    kvcl_rankset_add(&next.members, TOO_HIGH);
    next.incarnation[TOO_HIGH] = 5;
    next.id  = kvcl_view_hash(&next);
    msg.view = &next;
    len      = kvcl_view_msg_pack(&msg, bytes, sizeof(bytes));
    ck_assert_uint_gt(len, 0);
    ck_assert_int_eq(kvcl_peer_post(room->ranks[0].peer, &out, sizeof(out), bytes, len), KVCL_OK);
    kvcl_unlock(liar);
}

START_TEST(a_slot_that_the_job_does_not_have_is_in_no_view)
{
    const kvcl_view_msg_type_t types[] = {KVCL_VIEW_COMMIT, KVCL_VIEW_ACCEPT, KVCL_VIEW_JOIN};
    kvcl_context_h             a = begin_job(), b = join_job(a);
    const uint64_t             view = view_of(a), before = malformed(a);
    unsigned                   i;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
        name_a_slot(b, types[i]);
        while ((malformed(a) == before + i) && (view_of(a) == view)) {
            nap();
        }
        ck_assert_uint_eq(malformed(a), before + i + 1);
        ck_assert_uint_eq(view_of(a), view);
    }
    kvcl_finalize(b);
    kvcl_finalize(a);
}
END_TEST

static bool knows(kvcl_context_h ctx, uint32_t slot)
{
    bool has;

    kvcl_lock(ctx);
    has = kvcl_rankset_has(&kvcl_member_room(ctx)->members, slot);
    kvcl_unlock(ctx);
    return has;
}

/* A view has it, and this member has to ask others who it is: communicators over its slot are named as at those. */
START_TEST(a_process_that_has_joined_counts_before_it_is_known)
{
    static uint64_t incarnations[KVCL_SLOTS_MAX];
    static bool     renewed[KVCL_SLOTS_MAX];
    const int       both[2] = {0, 2};
    kvcl_context_h  a       = begin_job();

    kvcl_lock(a);
    ck_assert_uint_eq(kvcl_rank_slots_epoch(a, both, 2), 0);
    incarnations[0] = kvcl_member_incarnation(a->uuid);
    incarnations[2] = 77;
    renewed[2]      = true;
    kvcl_rank_slots_view(a, incarnations, renewed);
    ck_assert_uint_ne(kvcl_rank_slots_epoch(a, both, 2), 0);
    kvcl_unlock(a);
    kvcl_finalize(a);
}
END_TEST

/* Rank 0 tells a process that waits of members that cannot be. */
START_TEST(a_process_that_joins_takes_no_members_that_cannot_be)
{
    kvcl_msg_join_t out     = {.msg = {.type = KVCL_MSG_JOIN}, .kind = KVCL_JOIN_ANSWER, .view = 9};
    kvcl_rankset_t  members = {{1}};
    kvcl_context_h  a, b;
    uint64_t        before;

    setenv("KVCL_JOIN_WAITS", "yes", 1);
    a      = begin_job();
    b      = join_job(a);
    before = malformed(b);
    kvcl_rankset_add(&members, TOO_HIGH);
    kvcl_lock(a);
    ck_assert_int_eq(kvcl_peer_post(kvcl_member_room(a)->ranks[1].next, &out.msg, sizeof(out), &members,
                                    sizeof(members)), KVCL_OK);
    kvcl_unlock(a);
    while ((malformed(b) == before) && !knows(b, TOO_HIGH)) {
        nap();
    }
    ck_assert(!knows(b, TOO_HIGH) && knows(b, 0));
    ck_assert_uint_eq(malformed(b), before + 1);
    kvcl_finalize(b);
    kvcl_finalize(a);
    unsetenv("KVCL_JOIN_WAITS");
}
END_TEST

/* Neither one that a member refuses, nor one that no question can name. */
START_TEST(a_process_that_joins_as_no_rank_of_the_job_is_told_so)
{
    const int          ranks[] = {SLOTS, KVCL_JOIN_SLOTS_MAX - 1, KVCL_JOIN_SLOTS_MAX, 65535};
    kvcl_init_params_t params  = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     a       = begin_job(), none;
    char               at[128];
    unsigned           i;
    size_t             len;

    ck_assert_int_eq(kvcl_join_address(a, at, sizeof(at), &len), KVCL_OK);
    setenv("KVCL_JOIN", at, 1);
    params.path        = "loop";
    params.secret_file = secret;
    params.flags       = KVCL_INIT_RANK;
    for (i = 0; i < sizeof(ranks) / sizeof(ranks[0]); ++i) {
        params.rank = ranks[i];
        ck_assert_int_eq(kvcl_init(&params, &none), KVCL_ERR_UNKNOWN_RANK);
    }
    unsetenv("KVCL_JOIN");
    kvcl_finalize(a);
}
END_TEST

/* ---- how long a join takes ---- */

#define JOIN_NS  (4 * KVCL_NS_PER_SEC)   /* KVCL_BOOT_TIMEOUT */
#define FIRST_NS (2500 * KVCL_NS_PER_MS) /* until the member gives a slot: less than one question may take */
#define LATE_NS  (JOIN_NS + 1500 * KVCL_NS_PER_MS)

typedef struct joining {
    pthread_t     thread;
    uint64_t      from_ns;
    kvcl_status_t status;
} joining_t;

static void *join_late(void *arg)
{
    joining_t          *joining = arg;
    kvcl_init_params_t params   = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;

    params.boot        = "join";
    params.path        = "loop";
    params.secret_file = secret;
    joining->status    = kvcl_init(&params, &ctx);
    if (joining->status == KVCL_OK) {
        kvcl_finalize(ctx);
    }
    return NULL;
}

static bool has_given(kvcl_context_h locked, uint32_t slot)
{
    kvcl_assert_locked(locked);
    return kvcl_member_room(locked)->ranks[slot].reserved_ns != 0;
}

/* A member that is slow to give a slot, and then slow to let the process in: its time is up before the second ends. */
START_TEST(a_join_has_one_time_for_all_of_it)
{
    joining_t      joining = {.status = KVCL_INPROGRESS};
    kvcl_context_h a       = begin_job();
    char           at[128];
    size_t         len;

    ck_assert_int_eq(kvcl_join_address(a, at, sizeof(at), &len), KVCL_OK);
    setenv("KVCL_JOIN", at, 1);
    setenv("KVCL_BOOT_TIMEOUT", "4s", 1);
    kvcl_lock(a);
    joining.from_ns = kvcl_now_ns();
    ck_assert_int_eq(pthread_create(&joining.thread, NULL, join_late, &joining), 0);
    while (kvcl_now_ns() - joining.from_ns < FIRST_NS) {
        nap();
    }
    while (!has_given(a, 1)) {
        kvcl_unlock(a);
        nap();
        kvcl_lock(a);
    }
    while (kvcl_now_ns() - joining.from_ns < LATE_NS) {
        nap();
    }
    kvcl_unlock(a);
    ck_assert_int_eq(pthread_join(joining.thread, NULL), 0);
    ck_assert_int_eq(joining.status, KVCL_ERR_UNREACHABLE);
    kvcl_finalize(a);
    unsetenv("KVCL_BOOT_TIMEOUT");
    unsetenv("KVCL_JOIN");
}
END_TEST

/* ---- addresses of processes that this member lacks ---- */

enum { LIES = 100 };

static uint64_t messages_of(kvcl_context_h ctx, uint32_t slot, uint32_t *n_peers_p)
{
    uint64_t n;

    kvcl_lock(ctx);
    n          = kvcl_member_room(ctx)->ranks[slot].peer->messages;
    *n_peers_p = ctx->peers.count;
    kvcl_unlock(ctx);
    return n;
}

/* Rank 0 lacks the process of slot 2; rank 1 names others, each time another one. */
START_TEST(addresses_of_processes_that_are_no_members_make_no_peers)
{
    kvcl_msg_join_t    out  = {.msg = {.type = KVCL_MSG_JOIN, .op = 1}, .kind = KVCL_JOIN_IS, .slot = 2};
    kvcl_context_h     a    = begin_job(), b = join_job(a);
    kvcl_member_room_t *room = kvcl_member_room(a);
    kvcl_address_t     address;
    uint8_t            bytes[KVCL_ADDRESS_MAX];
    uint64_t           before;
    uint32_t           n, n_before, i;
    size_t             len;

    kvcl_lock(a);
    kvcl_rankset_add(&room->views.view.members, 2);
    room->views.view.incarnation[2] = 5;
    kvcl_unlock(a);
    before = messages_of(a, 1, &n_before);
    kvcl_lock(b);
    ck_assert_int_eq(kvcl_address_unpack(b->address, b->address_len, &address), KVCL_OK);
    for (i = 0; i < LIES; ++i) {
        memset(address.uuid, 'x', sizeof(address.uuid));
        address.uuid[0] = (uint8_t)i;
        len             = kvcl_address_pack(&address, bytes, sizeof(bytes));
        ck_assert_uint_gt(len, 0);
        ck_assert_int_eq(kvcl_peer_post(kvcl_member_room(b)->ranks[0].peer, &out.msg, sizeof(out), bytes, len),
                         KVCL_OK);
    }
    kvcl_unlock(b);
    while (messages_of(a, 1, &n) < before + LIES) { /* some beats among them */
        nap();
    }
    ck_assert_uint_eq(n, n_before);
    kvcl_lock(a);
    kvcl_rankset_del(&room->views.view.members, 2);
    room->views.view.incarnation[2] = 0;
    kvcl_unlock(a);
    kvcl_finalize(b);
    kvcl_finalize(a);
}
END_TEST

/* ---- the times of views ---- */

/* They are the job's, whatever a process that joins has set, also for one that joins through that process. */
START_TEST(who_joins_through_one_that_has_joined_gets_the_times_of_the_job)
{
    kvcl_context_h     a = begin_job(), b, c;
    kvcl_views_times_t times;

    unsetenv("KVCL_DEAD");
    b     = join_job(a);
    c     = join_job(b);
    times = kvcl_member_room(c)->times;
    ck_assert_uint_eq(times.detect.dead_ns, 10 * KVCL_NS_PER_SEC);
    ck_assert_mem_eq(&times, &kvcl_member_room(a)->times, sizeof(times));
    ck_assert_mem_eq(&times, &kvcl_member_room(b)->times, sizeof(times));
    ck_assert_uint_eq(c->config.dead_ns, times.detect.dead_ns); /* by which a link's search goes as well */
    kvcl_finalize(c);
    kvcl_finalize(b);
    kvcl_finalize(a);
    setenv("KVCL_DEAD", "10s", 1);
}
END_TEST

/* ---- the suite ---- */

int main(void)
{
    Suite *suite = suite_create("members");
    TCase *tcase;

    tcase = add_case(suite, "slots");
    tcase_add_test(tcase, a_slot_that_the_job_does_not_have_is_in_no_view);
    tcase_add_test(tcase, a_process_that_has_joined_counts_before_it_is_known);
    tcase_add_test(tcase, a_process_that_joins_takes_no_members_that_cannot_be);
    tcase_add_test(tcase, a_process_that_joins_as_no_rank_of_the_job_is_told_so);
    tcase = add_case(suite, "time");
    tcase_add_test(tcase, a_join_has_one_time_for_all_of_it);
    tcase = add_case(suite, "addresses");
    tcase_add_test(tcase, addresses_of_processes_that_are_no_members_make_no_peers);
    tcase = add_case(suite, "times");
    tcase_add_test(tcase, who_joins_through_one_that_has_joined_gets_the_times_of_the_job);
    return test_run(suite);
}
