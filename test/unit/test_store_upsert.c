/*
 * An upsert and a rank that has no lease at the moment (store/admin/discard.c): that rank drops its blocks of the keys,
 * listed or not, as soon as it has one again, and the upsert waits for it. Two ranks of one process with views; rank 0,
 * the lower one of two, always has a lease.
 */
#include "config.h"
#include "base/clock.h"
#include "member/member.h"
#include "store/home/ranks.h"
#include "store/pool/owner.h"
#include "test/board.h"
#include "test_base.h"
#include <kvcl/kvcl_recover.h>

#include <stdlib.h>
#include <unistd.h>

enum { BLOCK = 256 };

#define LONG_NS (60 * KVCL_NS_PER_SEC)

typedef struct rank {
    kvcl_context_h ctx;
    kvcl_store_h   store;
    kvcl_cache_h   source; /* a block of its number */
} rank_t;

static rank_t ranks[2];

static void *begin(void *arg)
{
    const int           me    = *(int *)arg;
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(1, BLOCK);
    rank_t              *r    = &ranks[me];
    kvcl_store_params_t p     = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = 16 * BLOCK, .block_bytes = BLOCK};
    uint64_t            flags = 1;
    char                bytes[BLOCK];
    kvcl_comm_h         world;

    memset(bytes, 'a' + me, sizeof(bytes));
    r->ctx = board_join(arg, 2, "loop", 0, &world);
    BOARD_OK(kvcl_comm_agree(world, &flags, LONG_NS)); /* both have a view */
    BOARD_OK(kvcl_store_open(world, &p, &r->store));
    BOARD_OK(kvcl_cache_create(r->ctx, "source", &layout, NULL, &r->source));
    BOARD_OK(kvcl_cache_write_block(r->source, 0, bytes, sizeof(bytes)));
    return NULL;
}

static void *end(void *arg)
{
    rank_t *r = &ranks[*(int *)arg];

    kvcl_store_close(r->store);
    kvcl_cache_destroy(r->source);
    kvcl_finalize(r->ctx);
    return NULL;
}

static kvcl_status_t put(const rank_t *r, const kvcl_key_t *key, bool instead)
{
    const uint32_t block = 0;
    kvcl_req_h     req;
    kvcl_status_t  status;

    status = instead ? kvcl_store_upsert(r->store, key, 1, r->source, &block, NULL, &req)
                     : kvcl_store_put(r->store, key, 1, r->source, &block, NULL, &req);
    return (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
}

/* A key whose home is rank 0. */
static kvcl_key_t find_key(void)
{
    kvcl_key_t key;
    char       name[32];
    int        i = 0, len;

    do {
        len = snprintf(name, sizeof(name), "key/%d", i++);
        kvcl_key_from_string(name, (size_t)len, &key);
    } while (kvcl_shard_home(kvcl_store_shards(ranks[0].store), &key) != 0);
    return key;
}

/* As where a home lists as many other copies of the key as it can. */
static void unlist(const kvcl_key_t *key)
{
    kvcl_store_h   store = ranks[0].store;
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];

    kvcl_lock(ranks[0].ctx);
    ck_assert_uint_eq(kvcl_dir_table_find(&store->table, key, locs), 1);
    ck_assert_int_eq(kvcl_dir_table_remove(&store->table, key, &locs[0]), KVCL_OK);
    kvcl_unlock(ranks[0].ctx);
}

static uint64_t set_lease(uint64_t lease_ns)
{
    kvcl_views_times_t *times = &kvcl_member_room(ranks[1].ctx)->views.times;
    uint64_t           was;

    kvcl_lock(ranks[1].ctx);
    was             = times->lease_ns;
    times->lease_ns = lease_ns;
    kvcl_unlock(ranks[1].ctx);
    return was;
}

static bool has(const rank_t *r, const kvcl_key_t *key)
{
    bool is;

    kvcl_lock(r->ctx);
    is = (kvcl_owner_find(r->store, key, NULL) != NULL);
    kvcl_unlock(r->ctx);
    return is;
}

static void *upsert(void *arg)
{
    BOARD_OK(put(&ranks[0], arg, true));
    return NULL;
}

START_TEST(a_rank_without_a_lease_does_not_keep_what_an_upsert_replaces)
{
    kvcl_key_t key;
    pthread_t  thread;
    uint64_t   lease_ns;

    board_do(2, begin);
    key = find_key();
    BOARD_OK(put(&ranks[1], &key, false));
    unlist(&key);
    lease_ns = set_lease(0);
    ck_assert_int_eq(pthread_create(&thread, NULL, upsert, &key), 0);
    usleep(100000); /* it is refused; the result does not depend on this time */
    ck_assert(has(&ranks[1], &key));
    (void)set_lease(lease_ns);
    pthread_join(thread, NULL);
    ck_assert(!has(&ranks[1], &key));
    ck_assert(has(&ranks[0], &key));
    board_do(2, end);
}
END_TEST

START_TEST(without_its_lease_until_the_deadline_the_upsert_fails)
{
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    const uint32_t     block = 0;
    kvcl_key_t         key;
    uint64_t           lease_ns;
    kvcl_req_h         req;

    board_do(2, begin);
    key = find_key();
    BOARD_OK(put(&ranks[1], &key, false));
    lease_ns     = set_lease(0);
    p.timeout_ns = 200 * KVCL_NS_PER_MS;
    ck_assert_int_eq(kvcl_store_upsert(ranks[0].store, &key, 1, ranks[0].source, &block, &p, &req), KVCL_ERR_NO_QUORUM);
    (void)set_lease(lease_ns);
    ck_assert(!has(&ranks[0], &key));
    board_do(2, end);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("upserts");
    TCase *tcase = tcase_create("upsert");

    setenv("KVCL_VIEWS", "yes", 1);
    setenv("KVCL_DEAD", "10s", 1); /* a busy machine */
    setenv("KVCL_LEASE", "8s", 1);
    pthread_barrier_init(&board_all, NULL, 2);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_rank_without_a_lease_does_not_keep_what_an_upsert_replaces);
    tcase_add_test(tcase, without_its_lease_until_the_deadline_the_upsert_fails);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
