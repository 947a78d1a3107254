/*
 * Shards move to a rank that cannot list all of their blocks (store/pool/rehome.c): since its part of the directory is
 * too small, or since it lists as many other copies of a key as it can. The next put of such a block lists it, or does
 * not succeed. Two ranks of one process with views.
 */
#include "config.h"
#include "base/clock.h"
#include "store/grow/rounds.h"
#include "store/home/ranks.h"
#include "test/board.h"
#include "test_base.h"
#include <kvcl/kvcl_recover.h>

#include <stdlib.h>

enum { ENTRIES = 64, KEYS = 80, ABSENT = 16, BLOCK = 256 };

#define LONG_NS (60 * KVCL_NS_PER_SEC)

typedef struct rank {
    kvcl_context_h ctx;
    kvcl_store_h   store;
} rank_t;

static rank_t       ranks[2];
static kvcl_cache_h source;

static void *begin(void *arg)
{
    rank_t              *r    = &ranks[*(int *)arg];
    kvcl_store_params_t p     = {.size = sizeof(p), .dir_entries = ENTRIES, .dram_bytes = 2 * KEYS * BLOCK,
                                 .block_bytes = BLOCK};
    uint64_t            flags = 1;
    kvcl_comm_h         world;

    r->ctx = board_join(arg, 2, "loop", 0, &world);
    BOARD_OK(kvcl_comm_agree(world, &flags, LONG_NS)); /* both have a view */
    BOARD_OK(kvcl_store_open(world, &p, &r->store));
    return NULL;
}

static void *end(void *arg)
{
    kvcl_finalize(ranks[*(int *)arg].ctx);
    return NULL;
}

static kvcl_key_t key_of(const char *what, unsigned i)
{
    char       name[32];
    kvcl_key_t key;
    int        len = snprintf(name, sizeof(name), "%s/%u", what, i);

    kvcl_key_from_string(name, (size_t)len, &key);
    return key;
}

static kvcl_status_t ended(kvcl_status_t posted, kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted;
}

static kvcl_status_t put(const kvcl_key_t *key)
{
    const uint32_t block = 0;
    kvcl_req_h     req;

    return ended(kvcl_store_put(ranks[0].store, key, 1, source, &block, NULL, &req), &req);
}

static kvcl_status_t drop(const kvcl_key_t *key)
{
    kvcl_req_h req;

    return ended(kvcl_store_remove(ranks[0].store, key, 1, NULL, &req), &req);
}

static void open_all(void)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(1, BLOCK);

    board_do(2, begin);
    BOARD_OK(kvcl_cache_create(ranks[0].ctx, "source", &layout, NULL, &source));
}

/* Rank 0 is the only home from here on. It learns it by a removal of a key whose home is rank 1. */
static void move_shards(void)
{
    kvcl_key_t key;
    unsigned   i;

    kvcl_store_close(ranks[1].store);
    for (i = 0; i < ABSENT; ++i) {
        key = key_of("absent", i);
        BOARD_OK(drop(&key));
    }
    ck_assert(kvcl_rounds_wait_settled(ranks[0].store, kvcl_deadline_after(LONG_NS)));
}

static void close_all(void)
{
    kvcl_store_close(ranks[0].store);
    kvcl_cache_destroy(source);
    board_do(2, end);
}

START_TEST(a_put_does_not_claim_what_no_home_lists)
{
    kvcl_key_t keys[KEYS];
    uint8_t    present[KEYS], one;
    unsigned   i, missing = 0, first = KEYS, listed = KEYS;

    open_all();
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of("key", i);
        BOARD_OK(put(&keys[i]));
    }
    move_shards(); /* its new home has room for some of the keys */
    BOARD_OK(kvcl_store_exists(ranks[0].store, keys, KEYS, present, NULL));
    for (i = 0; i < KEYS; ++i) {
        missing += present[i] ? 0 : 1;
        first    = (!present[i] && (first == KEYS)) ? i : first;
        listed   = present[i] ? i : listed;
    }
    ck_assert_uint_ge(missing, KEYS - ENTRIES);
    ck_assert_uint_lt(listed, KEYS);
    ck_assert_int_eq(put(&keys[listed]), KVCL_OK);
    ck_assert_int_eq(put(&keys[first]), KVCL_ERR_NO_SPACE);
    BOARD_OK(drop(&keys[listed]));
    BOARD_OK(put(&keys[first]));
    BOARD_OK(kvcl_store_exists(ranks[0].store, &keys[first], 1, &one, NULL));
    ck_assert_uint_eq(one, 1);
    close_all();
}
END_TEST

START_TEST(a_put_lists_what_other_copies_kept_out)
{
    kvcl_store_h   store;
    kvcl_dir_loc_t others[KVCL_DIR_LOCS_MAX];
    kvcl_key_t     key;
    unsigned       i = 0, n;
    uint8_t        present;

    open_all();
    store = ranks[0].store;
    do {
        key = key_of("copied", i++);
    } while (kvcl_shard_home(kvcl_store_shards(store), &key) != 1);
    BOARD_OK(put(&key));
    kvcl_lock(ranks[0].ctx);
    for (n = 0; n < KVCL_DIR_LOCS_MAX; ++n) {
        others[n] = (kvcl_dir_loc_t){.rank = 0, .incarnation = store->incarnations[0], .cache = (uint16_t)(1000 + n),
                                     .flags = KVCL_DIR_TIER_DRAM, .len = BLOCK, .gen = 1};
        ck_assert_int_eq(kvcl_home_list(&store->home, &key, &others[n]), KVCL_OK);
    }
    kvcl_unlock(ranks[0].ctx);
    move_shards();
    kvcl_lock(ranks[0].ctx);
    for (n = 0; n < KVCL_DIR_LOCS_MAX; ++n) {
        (void)!kvcl_dir_table_remove(&store->table, &key, &others[n]);
    }
    kvcl_unlock(ranks[0].ctx);
    BOARD_OK(kvcl_store_exists(store, &key, 1, &present, NULL));
    ck_assert_uint_eq(present, 0);
    BOARD_OK(put(&key));
    BOARD_OK(kvcl_store_exists(store, &key, 1, &present, NULL));
    ck_assert_uint_eq(present, 1);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shards that move to too small a home");
    TCase *tcase = tcase_create("rehome");

    setenv("KVCL_VIEWS", "yes", 1);
    pthread_barrier_init(&board_all, NULL, 2);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_put_does_not_claim_what_no_home_lists);
    tcase_add_test(tcase, a_put_lists_what_other_copies_kept_out);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
