/*
 * The flood of a revocation (view/revokes.h) in random runs: ranks die at any message, messages are lost with their
 * links, ranks are not reached for a while. If one living rank has heard of it, all living members hear of it.
 */
#include "view/revokes.h"

#include "test_base.h"

#include <string.h>

enum { RANKS = 6, POST = 8192, COMMS = 4 };

typedef struct letter {
    uint32_t       from, to;
    uint64_t       comm;
    kvcl_rankset_t members;
} letter_t;

typedef struct rank {
    kvcl_revokes_t revokes;
    bool           dead;
    bool           deaf[RANKS]; /* to whom it has no link now */
    unsigned       new[COMMS];  /* how often it was new */
} rank_t;

static kvcl_rand_t rnd;
static rank_t      ranks[RANKS];
static letter_t    post[POST];
static unsigned    n_post, deaths;

static unsigned below(unsigned limit)
{
    return (unsigned)kvcl_rand_below(&rnd, limit);
}

static kvcl_rankset_t members_of(uint64_t comm)
{
    kvcl_rankset_t set = {{0}};
    uint32_t       i;

    for (i = 0; i < RANKS; ++i) {
        if ((comm == 1) || (i % 4 != comm % 4)) {
            kvcl_rankset_add(&set, i);
        }
    }
    return set;
}

static void maybe_die(rank_t *rank)
{
    if ((deaths > 0) && (below(6) == 0)) {
        rank->dead = true;
        deaths -= 1;
    }
}

static bool tell(void *arg, uint32_t to, uint64_t comm, const kvcl_rankset_t *members)
{
    rank_t *rank = arg;

    ck_assert_uint_lt(to, RANKS);
    ck_assert(to != rank->revokes.me);
    ck_assert(kvcl_rankset_has(members, to));
    if (rank->dead || ranks[to].dead) {
        return true;
    }
    if (rank->deaf[to]) {
        return false;
    }
    ck_assert_uint_lt(n_post, POST);
    post[n_post++] = (letter_t){rank->revokes.me, to, comm, *members};
    maybe_die(rank); /* in the middle of the flood */
    return true;
}

static const kvcl_revokes_ops_t ops = {.tell = tell};

static void take(uint32_t who, uint64_t comm, const kvcl_rankset_t *members, uint32_t from)
{
    if (!ranks[who].dead && kvcl_revokes_take(&ranks[who].revokes, comm, members, from)) {
        ranks[who].new[comm - 1] += 1;
    }
}

static void deliver(void)
{
    unsigned       at = below(n_post);
    letter_t       letter = post[at];
    kvcl_rankset_t members;

    post[at] = post[--n_post];
    if (ranks[letter.from].dead ? (below(2) == 0) : (below(8) == 0)) { /* lost, with the link */
        kvcl_revokes_lost(&ranks[letter.from].revokes, letter.to);
        return;
    }
    ck_assert(kvcl_revokes_unpack(&letter.members, sizeof(letter.members), RANKS, letter.from, letter.to, &members));
    take(letter.to, letter.comm, &members, letter.from);
}

static void run(void)
{
    uint64_t       comm;
    unsigned       i, k;
    kvcl_rankset_t members;

    memset(ranks, 0, sizeof(ranks));
    n_post = 0;
    deaths = below(RANKS);
    for (i = 0; i < RANKS; ++i) {
        kvcl_revokes_init(&ranks[i].revokes, i, &ops, &ranks[i]);
        for (k = 0; k < RANKS; ++k) {
            ranks[i].deaf[k] = below(3) == 0;
        }
    }
    for (k = 0; k < COMMS + 2; ++k) {
        comm    = 1 + below(COMMS);
        members = members_of(comm);
        i       = below(RANKS);
        if (kvcl_rankset_has(&members, i)) {
            take(i, comm, &members, KVCL_SLOT_NONE);
        }
        while ((n_post > 0) && (below(3) != 0)) {
            deliver();
        }
    }
    for (k = 0; k < 200; ++k) { /* the links come back, and what was not told is told */
        for (i = 0; i < RANKS; ++i) {
            memset(ranks[i].deaf, 0, sizeof(ranks[i].deaf));
            kvcl_revokes_again(&ranks[i].revokes);
        }
        while (n_post > 0) {
            deliver();
        }
    }
}

static void check(void)
{
    uint64_t       comm;
    kvcl_rankset_t members;
    unsigned       i, told, asked;

    for (comm = 1; comm <= COMMS; ++comm) {
        members = members_of(comm);
        told    = 0;
        asked   = 0;
        for (i = 0; i < RANKS; ++i) {
            ck_assert_uint_le(ranks[i].new[comm - 1], 1);
            ck_assert((ranks[i].new[comm - 1] == 0) || kvcl_rankset_has(&members, i));
            asked += (!ranks[i].dead && kvcl_rankset_has(&members, i)) ? 1 : 0;
            told += (!ranks[i].dead && kvcl_revokes_has(&ranks[i].revokes, comm)) ? 1 : 0;
        }
        ck_assert((told == 0) || (told == asked));
    }
}

START_TEST(all_living_hear_of_it)
{
    unsigned i;

    for (i = 0; i < 5000; ++i) {
        run();
        check();
    }
}
END_TEST

static bool tell_nobody(void *arg, uint32_t to, uint64_t comm, const kvcl_rankset_t *members)
{
    (void)to;
    (void)comm;
    (void)members;
    ++*(unsigned *)arg;
    return true;
}

START_TEST(as_many_as_there_is_room_for_are_kept)
{
    static const kvcl_revokes_ops_t nobody = {.tell = tell_nobody};
    static kvcl_revokes_t           revokes;
    const kvcl_rankset_t            members = {{7}};
    uint64_t                        comm;
    unsigned                        told = 0;

    kvcl_revokes_init(&revokes, 1, &nobody, &told);
    for (comm = 1; comm <= 5 * KVCL_REVOKES_MAX; ++comm) {
        ck_assert(kvcl_revokes_take(&revokes, comm, &members, 0));
        ck_assert(!kvcl_revokes_take(&revokes, comm, &members, 2));
        ck_assert_uint_eq(told, comm); /* rank 2 alone: 0 has said so */
    }
    for (comm = 1; comm <= 5 * KVCL_REVOKES_MAX; ++comm) {
        ck_assert_int_eq(kvcl_revokes_has(&revokes, comm), comm > 4 * KVCL_REVOKES_MAX);
    }
    kvcl_revokes_again(&revokes);
    ck_assert_uint_eq(told, 5 * KVCL_REVOKES_MAX);
    kvcl_revokes_lost(&revokes, 0);
    kvcl_revokes_lost(&revokes, 1);
    kvcl_revokes_lost(&revokes, 3);
    kvcl_revokes_again(&revokes);
    ck_assert_uint_eq(told, 6 * KVCL_REVOKES_MAX);
}
END_TEST

/* Where each told the others again what it has, and they had forgotten that, no end would come of it. */
START_TEST(what_was_forgotten_is_not_sent_on_again)
{
    static const kvcl_revokes_ops_t nobody = {.tell = tell_nobody};
    static kvcl_revokes_t           revokes;
    const kvcl_rankset_t            members = {{7}};
    const uint64_t                  many    = KVCL_REVOKES_MAX + KVCL_REVOKES_PAST;
    uint64_t                        comm;
    unsigned                        told = 0;

    kvcl_revokes_init(&revokes, 1, &nobody, &told);
    for (comm = 1; comm <= many; ++comm) {
        ck_assert(kvcl_revokes_take(&revokes, comm, &members, 0));
    }
    for (comm = 1; comm <= many; ++comm) {
        ck_assert(!kvcl_revokes_take(&revokes, comm, &members, 2));
        ck_assert_int_eq(kvcl_revokes_has(&revokes, comm), comm > KVCL_REVOKES_PAST);
    }
    ck_assert_uint_eq(told, many);
    ck_assert(kvcl_revokes_take(&revokes, many + 1, &members, 0));
    ck_assert(kvcl_revokes_take(&revokes, 1, &members, 0)); /* nothing is known of it any more */
}
END_TEST

START_TEST(a_payload_that_no_rank_sends_is_refused)
{
    kvcl_rankset_t set = {{0xf}}, out;

    ck_assert(kvcl_revokes_unpack(&set, sizeof(set), 4, 0, 3, &out));
    ck_assert(!kvcl_revokes_unpack(&set, sizeof(set) - 1, 4, 0, 3, &out));
    ck_assert(!kvcl_revokes_unpack(&set, 0, 4, 0, 3, &out));
    ck_assert(!kvcl_revokes_unpack(&set, sizeof(set), 3, 0, 2, &out)); /* rank 3 of a job of 3 */
    ck_assert(!kvcl_revokes_unpack(&set, sizeof(set), 8, 0, 4, &out)); /* not to this rank */
    ck_assert(!kvcl_revokes_unpack(&set, sizeof(set), 8, 5, 0, &out)); /* of no member */
    ck_assert(!kvcl_revokes_unpack(&set, sizeof(set), 8, 2, 2, &out)); /* of itself */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("revocations");
    TCase *tcase = tcase_create("revokes");

    test_seed(&rnd);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, all_living_hear_of_it);
    tcase_add_test(tcase, as_many_as_there_is_room_for_are_kept);
    tcase_add_test(tcase, what_was_forgotten_is_not_sent_on_again);
    tcase_add_test(tcase, a_payload_that_no_rank_sends_is_refused);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
