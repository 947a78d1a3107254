/*
 * A rank that comes to an open store (store/grow/come.c) asks a rank without the store again: it may come as well, and
 * then be the only one that can take the first. One that goes and comes again and again uses no more memory for it. One
 * with a second tier comes as well, without the blocks that it holds, but keeps them where it is refused; it knows its
 * own part as the others do. Three ranks of one process with views; the test sets what they know.
 */
#include "config.h"
#include "base/clock.h"
#include "store/cold/cold.h"
#include "store/grow/rounds.h"
#include "store/home/follow_views.h"
#include "store/home/ranks.h"
#include "store/home/rpc_kind.h"
#include "test/board.h"
#include "test_base.h"
#include <kvcl/kvcl_recover.h>

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define LONG_NS (60 * KVCL_NS_PER_SEC)

enum { BLOCK = 256 };
enum { MOVES, COMES, ABSENT, RANKS }; /* MOVES: its shards seem to move, so it takes no rank by itself */

typedef struct rank {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_store_h   store;
} rank_t;

static rank_t ranks[RANKS];
static char   tier[96]; /* of COMES; "": none */

static kvcl_status_t open_with(rank_t *r, uint64_t flags, uint64_t replicas)
{
    kvcl_store_params_t p = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = 4096, .block_bytes = BLOCK,
                             .replicas = replicas, .flags = flags};

    p.nvme = (r == &ranks[COMES]) ? tier : "";
    return kvcl_store_open(r->world, &p, &r->store);
}

static kvcl_status_t open_store(rank_t *r, uint64_t flags)
{
    return open_with(r, flags, 0);
}

static void *begin(void *arg)
{
    const int me    = *(int *)arg;
    rank_t    *r    = &ranks[me];
    uint64_t  flags = 1;

    r->ctx = board_join(arg, RANKS, "loop", 0, &r->world);
    BOARD_OK(kvcl_comm_agree(r->world, &flags, LONG_NS)); /* all have a view */
    BOARD_OK(open_store(r, 0));
    return NULL;
}

static void *come(void *arg)
{
    BOARD_OK(open_store(&ranks[*(int *)arg], KVCL_STORE_JOIN));
    return NULL;
}

static void *end(void *arg)
{
    kvcl_store_close(ranks[*(int *)arg].store);
    kvcl_finalize(ranks[*(int *)arg].ctx);
    return NULL;
}

static void closing(const rank_t *r, bool is)
{
    kvcl_lock(r->ctx);
    r->store->closing = is;
    kvcl_unlock(r->ctx);
}

static void forget(const rank_t *r, uint32_t rank)
{
    kvcl_lock(r->ctx);
    kvcl_store_rank_failed(r->store, rank);
    kvcl_unlock(r->ctx);
}

/* Until its shards have moved to those that are left. */
static void wait_settled(const rank_t *r)
{
    ck_assert(kvcl_rounds_wait_settled(r->store, kvcl_deadline_after(LONG_NS)));
}

/* The number of the TAKE that asks this rank now; 0: there is none. */
static uint64_t asks(const rank_t *r, uint32_t rank)
{
    kvcl_list_t  *stores;
    kvcl_store_h store;
    kvcl_rpc_t   *rpc;
    uint64_t     id = 0;

    kvcl_lock(r->ctx);
    stores = &kvcl_store_room(r->ctx)->stores;
    kvcl_list_foreach (store, stores, struct kvcl_store, link) {
        kvcl_list_foreach (rpc, &store->op_rpcs, kvcl_rpc_t, link) {
            id = ((rpc->kind == KVCL_RPC_TAKE) && (rpc->rank == rank)) ? rpc->req.id : id;
        }
    }
    kvcl_unlock(r->ctx);
    return id;
}

/* Until a round of TAKE has ended. */
static void wait_round(const rank_t *r, uint32_t rank)
{
    const uint64_t deadline = kvcl_deadline_after(LONG_NS);
    uint64_t       first    = 0, id = 0;

    while ((id == first) || (first == 0)) {
        id    = asks(r, rank);
        first = (first == 0) ? id : first;
        id    = (id == 0) ? first : id;
        ck_assert(!kvcl_deadline_passed(deadline));
        sched_yield();
    }
}

/* A rank closes its part, and the others know it. */
static void go(void)
{
    kvcl_store_close(ranks[COMES].store);
    forget(&ranks[MOVES], COMES);
    forget(&ranks[ABSENT], COMES);
    wait_settled(&ranks[ABSENT]);
    wait_settled(&ranks[MOVES]);
}

static unsigned count_maps(const rank_t *r)
{
    const kvcl_store_map_t *map;
    unsigned               n = 0;

    kvcl_lock(r->ctx);
    for (map = r->store->maps; map != NULL; map = map->before) {
        ++n;
    }
    kvcl_unlock(r->ctx);
    return n;
}

START_TEST(the_same_rank_goes_and_comes_without_further_maps)
{
    enum { WARM = 2, ROUNDS = 6 };
    int      me = COMES;
    unsigned n  = 0, i;

    board_do(RANKS, begin);
    for (i = 0; i < ROUNDS; ++i) {
        n = (i == WARM) ? count_maps(&ranks[MOVES]) : n;
        go();
        (void)come(&me);
        wait_settled(&ranks[MOVES]);
        wait_settled(&ranks[ABSENT]);
    }
    ck_assert_uint_ge(n, 3);
    ck_assert_uint_eq(count_maps(&ranks[MOVES]), n);
    board_do(RANKS, end);
}
END_TEST

START_TEST(a_rank_without_the_store_is_asked_again)
{
    const rank_t *moves = &ranks[MOVES], *absent = &ranks[ABSENT];
    int          me     = COMES;
    pthread_t    thread;

    board_do(RANKS, begin);
    go();
    kvcl_lock(moves->ctx);
    moves->store->views->over = false;
    kvcl_unlock(moves->ctx);
    closing(absent, true); /* it answers as one that has no store */
    ck_assert_int_eq(pthread_create(&thread, NULL, come, &me), 0);
    wait_round(&ranks[COMES], MOVES);
    closing(absent, false); /* and as one that some rank has taken */
    pthread_join(thread, NULL);
    kvcl_lock(moves->ctx);
    ck_assert_uint_ne(moves->store->views->moves.ranks[COMES].incarnation, 0);
    kvcl_unlock(moves->ctx);
    board_do(RANKS, end);
}
END_TEST

/* A rank closes its part, and comes again. */
static void come_again(void)
{
    int me = COMES;

    go();
    (void)come(&me);
    wait_settled(&ranks[MOVES]);
    wait_settled(&ranks[ABSENT]);
}

START_TEST(a_rank_that_comes_knows_its_own_part)
{
    const struct kvcl_store *store;

    board_do(RANKS, begin);
    come_again();
    store = ranks[COMES].store;
    kvcl_lock(ranks[COMES].ctx);
    ck_assert_uint_ne(store->places[COMES].host, 0);
    ck_assert_uint_eq(store->places[COMES].host, store->places[MOVES].host);
    ck_assert(kvcl_store_takes(store, COMES, BLOCK));
    kvcl_unlock(ranks[COMES].ctx);
    board_do(RANKS, end);
}
END_TEST

static void put(const rank_t *r, const kvcl_key_t *key)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(1, BLOCK);
    const uint32_t      block  = 0;
    char                bytes[BLOCK];
    kvcl_cache_h        source;
    kvcl_req_h          req;

    memset(bytes, 'x', sizeof(bytes));
    BOARD_OK(kvcl_cache_create(r->ctx, "source", &layout, NULL, &source));
    BOARD_OK(kvcl_cache_write_block(source, 0, bytes, sizeof(bytes)));
    BOARD_OK(kvcl_store_put(r->store, key, 1, source, &block, NULL, &req));
    BOARD_OK(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
    kvcl_cache_destroy(source);
}

static bool is_listing(const rank_t *r, int rank)
{
    bool is;

    kvcl_lock(r->ctx);
    is = r->store->ranks[rank].listing;
    kvcl_unlock(r->ctx);
    return is;
}

static const char *open_tier(void)
{
    static char path[64];

    snprintf(path, sizeof(path), "/tmp/kvcl-comes-%d", (int)getpid());
    snprintf(tier, sizeof(tier), "%s:4M", path);
    return path;
}

static void close_tier(const char *path)
{
    tier[0] = '\0';
    unlink(path);
}

START_TEST(a_rank_with_a_tier_comes)
{
    const char *path = open_tier();

    board_do(RANKS, begin);
    come_again();
    ck_assert_ptr_nonnull(ranks[COMES].store->cold);
    board_do(RANKS, end);
    close_tier(path);
}
END_TEST

START_TEST(a_tier_that_comes_brings_back_no_key_that_was_removed_meanwhile)
{
    const char *path = open_tier();
    int        me    = COMES;
    kvcl_key_t key;
    kvcl_req_h req;
    size_t     hit;

    kvcl_key_from_string("key", 3, &key);
    board_do(RANKS, begin);
    put(&ranks[COMES], &key);
    go(); /* it writes the block into its tier */
    BOARD_OK(kvcl_store_remove(ranks[MOVES].store, &key, 1, NULL, &req));
    BOARD_OK(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
    (void)come(&me);
    wait_settled(&ranks[MOVES]);
    wait_settled(&ranks[ABSENT]);
    while (is_listing(&ranks[COMES], COMES)) {
        usleep(1000); /* the test's limit bounds what waits */
    }
    BOARD_OK(kvcl_store_match(ranks[MOVES].store, &key, 1, &hit, NULL));
    ck_assert_uint_eq(hit, 0);
    board_do(RANKS, end);
    close_tier(path);
}
END_TEST

static void *close_part(void *arg)
{
    rank_t *r = &ranks[*(int *)arg];

    kvcl_store_close(r->store);
    r->store = NULL;
    return NULL;
}

/* COMES has closed its part, and the others have not. */
static void *refused_replicas(void *arg)
{
    const int me = *(int *)arg;

    ck_assert_int_eq(open_with(&ranks[me], KVCL_STORE_JOIN, 2),
                     (me == COMES) ? KVCL_ERR_INVALID_PARAM : KVCL_ERR_NOT_FOUND);
    return NULL;
}

static void *refused_alone(void *arg)
{
    ck_assert_int_eq(open_store(&ranks[*(int *)arg], KVCL_STORE_JOIN), KVCL_ERR_NOT_FOUND);
    return NULL;
}

static void *open_again(void *arg)
{
    BOARD_OK(open_store(&ranks[*(int *)arg], 0));
    return NULL;
}

START_TEST(a_refused_call_leaves_the_blocks_in_its_tier)
{
    const char *path = open_tier();
    kvcl_key_t key;
    size_t     hit;

    kvcl_key_from_string("key", 3, &key);
    board_do(RANKS, begin);
    put(&ranks[COMES], &key);
    go(); /* it writes the block into its tier */
    ranks[COMES].store = NULL;
    board_do(RANKS, refused_replicas); /* all of them, so that all have made as many communicators */
    board_do(RANKS, close_part);
    board_do(RANKS, refused_alone);
    board_do(RANKS, open_again);
    while (is_listing(&ranks[MOVES], COMES)) {
        usleep(1000); /* the test's limit bounds what waits */
    }
    BOARD_OK(kvcl_store_match(ranks[MOVES].store, &key, 1, &hit, NULL));
    ck_assert_uint_eq(hit, 1);
    board_do(RANKS, end);
    close_tier(path);
}
END_TEST

START_TEST(a_rank_whose_file_was_refused_comes_with_another)
{
    const char *path;
    int        me = COMES;

    board_do(RANKS, begin);
    go();
    snprintf(tier, sizeof(tier), "/proc/none:4M");
    ck_assert_int_ne(open_store(&ranks[COMES], KVCL_STORE_JOIN), KVCL_OK);
    path = open_tier();
    (void)come(&me);
    ck_assert_ptr_nonnull(ranks[COMES].store->cold);
    board_do(RANKS, end);
    close_tier(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks that come to a store");
    TCase *tcase = tcase_create("come");

    setenv("KVCL_VIEWS", "yes", 1);
    setenv("KVCL_TIMEOUT", "60", 1);
    pthread_barrier_init(&board_all, NULL, RANKS);
    tcase_set_timeout(tcase, 180);
    tcase_add_test(tcase, a_rank_without_the_store_is_asked_again);
    tcase_add_test(tcase, the_same_rank_goes_and_comes_without_further_maps);
    tcase_add_test(tcase, a_rank_with_a_tier_comes);
    tcase_add_test(tcase, a_rank_that_comes_knows_its_own_part);
    tcase_add_test(tcase, a_tier_that_comes_brings_back_no_key_that_was_removed_meanwhile);
    tcase_add_test(tcase, a_refused_call_leaves_the_blocks_in_its_tier);
    tcase_add_test(tcase, a_rank_whose_file_was_refused_comes_with_another);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
