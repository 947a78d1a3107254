/*
 * Handles of a store for one tenant (kvcl_store_tenant). Every call that takes a store runs through the handle of the
 * tenant whose blocks exist, through that of another tenant with the same keys, through one with the same number and
 * another secret, and through the store's own: the first sees its blocks under its keys, the others nothing.
 */
#include "config.h"
#include "store/pool/owner.h"
#include "store/store.h"
#include "tenant_frame.h"

/* The blocks that a listing gives, in pages of 7, and how many of them have the caller's keys. */
static size_t listed(kvcl_store_h by, size_t *known_p)
{
    kvcl_store_item_t items[7];
    uint64_t          cursor = 0, seq;
    size_t            n, all = 0, i;
    bool              post = false;

    *known_p = 0;
    do {
        if (post) {
            OK(done(kvcl_store_list_post(by, 0, &cursor, items, sizeof(items[0]), 7, &n, &seq, NULL, &req)));
        } else {
            OK(kvcl_store_list(by, 0, &cursor, items, sizeof(items[0]), 7, &n, &seq, NULL));
        }
        post = !post;
        for (i = 0; i < n; ++i) {
            *known_p += is_key(&items[i].key) ? 1 : 0;
        }
        all += n;
    } while (cursor != 0);
    return all;
}

/* The same of the events from the first on; *last_p: the number to go on from. */
static size_t followed(kvcl_store_h by, size_t *known_p, uint64_t *last_p)
{
    kvcl_store_event_t events[5];
    uint64_t           since = 0;
    size_t             n, all = 0, i;
    bool               post = false;

    *known_p = 0;
    do {
        if (post) {
            OK(done(kvcl_store_events_post(by, 0, since, 0, events, sizeof(events[0]), 5, &n, NULL, &req)));
        } else {
            OK(kvcl_store_events(by, 0, since, 0, events, sizeof(events[0]), 5, &n, NULL));
        }
        post = !post;
        for (i = 0; i < n; ++i) {
            ck_assert_uint_gt(events[i].seq, since);
            since = events[i].seq;
            if (events[i].kind != KVCL_STORE_SKIPPED) {
                *known_p += is_key(&events[i].key) ? 1 : 0;
                ++all;
            }
        }
    } while (n != 0);
    *last_p = since;
    return all;
}

static kvcl_store_stats_t stats_of(kvcl_store_h by)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT, rank = KVCL_STORE_STATS_INIT, all = KVCL_STORE_STATS_INIT;
    kvcl_status_t      status;

    OK(kvcl_store_stats(by, &stats));
    OK(kvcl_store_rank_stats(by, 0, &rank, NULL));
    OK(kvcl_store_all_stats(by, 1, &all, sizeof(all), &status, NULL));
    ck_assert_int_eq(status, KVCL_OK);
    ck_assert_uint_eq(stats.blocks, rank.blocks);
    ck_assert_uint_eq(stats.blocks, all.blocks);
    ck_assert_uint_eq(stats.pool_published, rank.pool_published);
    ck_assert_uint_eq(stats.gets, all.gets);
    return stats;
}

/* How many of the keys have a copy in this rank's pool. */
static size_t placed(kvcl_store_h by)
{
    kvcl_store_places_t places[KEYS];
    size_t              i, n = 0;

    OK(kvcl_store_where(by, keys, KEYS, places, sizeof(places[0]), NULL));
    for (i = 0; i < KEYS; ++i) {
        n += places[i].n;
        ck_assert((places[i].n == 0) || ((places[i].at[0].rank == 0) && (places[i].at[0].bytes == BLOCK) &&
                                         (places[i].at[0].tier == KVCL_STORE_TIER_DRAM)));
    }
    return n;
}

/* Nothing of the blocks that another handle has put is seen through this one, by any call. */
static void sees_nothing(kvcl_store_h by)
{
    uint8_t       copies[KEYS], made[KEYS];
    uint64_t      bytes[KEYS];
    kvcl_status_t status[KEYS];
    kvcl_key_t    parts[8];
    uint8_t       buf[BLOCK];
    uint32_t      id;
    size_t        n;

    ck_assert_uint_eq(matched(by), 0);
    ck_assert_uint_eq(existing(by), 0);
    ck_assert_uint_eq(placed(by), 0);
    ck_assert_uint_eq(got(by), 0);
    ck_assert_int_eq(kvcl_store_pin(by, keys, KEYS, 1, UINT64_C(60000000000), 0, copies, NULL), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_store_copy(by, keys, KEYS, 0, 0, made, NULL), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_store_pin_local(by, &keys[0], &id), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_store_value_sizes(by, keys, KEYS, bytes, status, NULL), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_store_value_keys(by, &keys[0], parts, 8, &n, NULL), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(done(kvcl_store_get_value(by, &keys[0], buf, BLOCK, NULL, &req)), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(done(kvcl_store_bcast(by, keys, 1, cache, &(uint32_t){KEYS}, NULL, &req)), KVCL_ERR_NOT_FOUND);
}

START_TEST(blocks_are_the_tenants_own)
{
    uint8_t  copies[KEYS], made[KEYS];
    uint64_t last, removed;
    size_t   known, i;

    put_all(a);
    sees_nothing(b);
    sees_nothing(other);
    sees_nothing(store);
    ck_assert_uint_eq(matched(a), KEYS);
    ck_assert_uint_eq(existing(a), KEYS);
    ck_assert_uint_eq(placed(a), KEYS);
    ck_assert_uint_eq(got(a), KEYS);
    ck_assert_uint_eq(listed(a, &known), KEYS);
    ck_assert_uint_eq(known, KEYS);
    ck_assert_uint_eq(listed(b, &known), 0);
    ck_assert_uint_eq(listed(other, &known), KEYS); /* the same number: blocks, but not their keys */
    ck_assert_uint_eq(known, 0);
    ck_assert_uint_eq(listed(store, &known), KEYS);
    ck_assert_uint_eq(known, 0);
    ck_assert_uint_eq(followed(a, &known, &last), KEYS);
    ck_assert_uint_eq(known, KEYS);
    ck_assert_uint_eq(followed(b, &known, &last), 0);
    ck_assert_uint_ge(last, KEYS); /* skipped */
    ck_assert_uint_eq(followed(store, &known, &last), KEYS);
    ck_assert_uint_eq(known, 0);
    ck_assert_int_eq(kvcl_store_pin(a, keys, KEYS, 1, UINT64_C(60000000000), 0, copies, NULL), KVCL_OK);
    ck_assert_uint_eq(copies[KEYS - 1], 1);
    OK(kvcl_store_unpin(b, keys, KEYS, 1, NULL)); /* none of its own */
    ck_assert_uint_eq(stats_of(store).pinned, KEYS);
    OK(kvcl_store_unpin(a, keys, KEYS, 1, NULL));
    ck_assert_uint_eq(stats_of(store).pinned, 0);
    OK(kvcl_store_copy(a, keys, KEYS, 0, 0, made, NULL));
    /* what others remove under these keys are not these blocks */
    OK(done(kvcl_store_remove(b, keys, KEYS, NULL, &req)));
    OK(done(kvcl_store_remove(store, keys, KEYS, NULL, &req)));
    OK(kvcl_store_remove_values(other, keys, KEYS, NULL));
    OK(kvcl_store_clear(b, 0, &removed, NULL));
    ck_assert_uint_eq(removed, 0);
    ck_assert_uint_eq(matched(a), KEYS);
    for (i = 0; i < KEYS; ++i) { /* other bytes under the same keys */
        fill_block(cache, (uint32_t)i, 200);
    }
    put_all(b);
    ck_assert_uint_eq(got(a), KEYS);
    OK(done(kvcl_store_remove(a, keys, KEYS, NULL, &req)));
    ck_assert_uint_eq(matched(a), 0);
    ck_assert_uint_eq(matched(b), KEYS);
}
END_TEST

START_TEST(the_store_and_a_tenant_are_apart)
{
    size_t known;

    put_all(store);
    sees_nothing(a);
    ck_assert_uint_eq(listed(a, &known), 0);
    ck_assert_uint_eq(stats_of(a).blocks, 0);
    ck_assert_uint_eq(got(store), KEYS);
    OK(done(kvcl_store_upsert(a, keys, KEYS, cache, ids, NULL, &req))); /* replaces none of these */
    ck_assert_uint_eq(got(store), KEYS);
    ck_assert_uint_eq(got(a), KEYS);
    ck_assert_uint_eq(stats_of(a).blocks, KEYS);
    ck_assert_uint_eq(stats_of(store).blocks, 2 * KEYS);
}
END_TEST

START_TEST(counts_are_the_tenants_own)
{
    kvcl_store_stats_t stats;

    put_all(a);
    put_all(store);
    (void)matched(a);
    ck_assert_uint_eq(got(a), KEYS);
    ck_assert_uint_eq(got(store), KEYS);
    stats = stats_of(a);
    ck_assert_uint_eq(stats.blocks, KEYS);
    ck_assert_uint_eq(stats.pool_published, KEYS);
    ck_assert_uint_eq(stats.sizes[0].published, KEYS);
    ck_assert_uint_eq(stats.gets, 2 * KEYS);
    ck_assert_uint_eq(stats.hits, 2 * KEYS);
    ck_assert_uint_eq(stats.hits_dram, 2 * KEYS);
    ck_assert_uint_eq(stats.hits_local, 2 * KEYS);
    ck_assert_uint_eq(stats.lookups, 3 * KEYS);
    ck_assert_uint_eq(stats.entries, 0);
    ck_assert_uint_eq(stats.pool_free, 0);
    ck_assert_uint_eq(stats.bytes_in, 0);
    ck_assert_uint_eq(stats.put_p50_ns, 0);
    stats = stats_of(b);
    ck_assert_uint_eq(stats.blocks + stats.gets + stats.hits + stats.lookups + stats.pool_published, 0);
    ck_assert_uint_eq(stats_of(store).gets, 4 * KEYS);
    ck_assert_uint_eq(stats_of(store).hits, 4 * KEYS);
}
END_TEST

/* A match of keys that another tenant has put does what a match of keys that no rank has put does. */
START_TEST(a_match_shows_nothing)
{
    kvcl_store_stats_t before, after;
    size_t             hit, i;

    before = stats_of(store);
    OK(kvcl_store_match(b, keys, KEYS, &hit, NULL));
    ck_assert_uint_eq(hit, 0);
    after = stats_of(store);
    ck_assert_uint_eq(after.lookups - before.lookups, KEYS);
    put_all(a);
    for (i = 0; i < 2; ++i) { /* nor is anything kept of the first time */
        before = stats_of(store);
        OK(kvcl_store_match(b, keys, KEYS, &hit, NULL));
        ck_assert_uint_eq(hit, 0);
        after = stats_of(store);
        ck_assert_uint_eq(after.lookups - before.lookups, KEYS);
        ck_assert_uint_eq(after.bytes_in, before.bytes_in);
        ck_assert_uint_eq(after.hits, before.hits);
        ck_assert_uint_eq(after.stale, before.stale);
    }
}
END_TEST

/* ---- values ---- */

START_TEST(values_are_the_tenants_own)
{
    static const size_t lengths[] = {0, 100, BLOCK, BLOCK + 1, 9 * BLOCK + 5};
    size_t              bytes = lengths[_i], n, i;
    uint8_t             *value = malloc(bytes + 1), *back = malloc(bytes + 1), present[16];
    kvcl_key_t          head, parts[16];
    uint64_t            size;

    memset(value, 0x5a, bytes + 1);
    OK(done(kvcl_store_put_value(a, &keys[0], value, bytes, NULL, &req)));
    memset(back, 0, bytes + 1);
    OK(done(kvcl_store_get_value(a, &keys[0], back, bytes, NULL, &req)));
    ck_assert(memcmp(value, back, bytes) == 0);
    ck_assert_int_eq(done(kvcl_store_get_value(b, &keys[0], back, bytes, NULL, &req)), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(done(kvcl_store_get_value(store, &keys[0], back, bytes, NULL, &req)), KVCL_ERR_NOT_FOUND);
    OK(kvcl_store_value_sizes(a, &keys[0], 1, &size, NULL, NULL));
    ck_assert_uint_eq(size, bytes);
    ck_assert_int_eq(kvcl_store_value_sizes(other, &keys[0], 1, &size, NULL, NULL), KVCL_ERR_NOT_FOUND);
    OK(kvcl_store_value_keys(a, &keys[0], parts, 16, &n, NULL));
    kvcl_store_value_key(&keys[0], &head);
    ck_assert(kvcl_key_equal(&parts[0], (bytes == BLOCK) ? &keys[0] : &head)); /* keys as the caller knows them */
    OK(kvcl_store_exists(a, parts, n, present, NULL));
    for (i = 0; i < n; ++i) {
        ck_assert_uint_eq(present[i], 1);
    }
    OK(kvcl_store_exists(store, parts, n, present, NULL));
    ck_assert_ptr_null(memchr(present, 1, n));
    ck_assert_uint_eq(stats_of(a).blocks, n);
    value[0] = 1;
    OK(done(kvcl_store_upsert_values(a, &keys[0], 1, &(kvcl_value_t){&(kvcl_extent_t){value, bytes}, 1}, NULL, &req)));
    OK(done(kvcl_store_get_value(a, &keys[0], back, bytes, NULL, &req)));
    ck_assert(memcmp(value, back, bytes) == 0);
    OK(kvcl_store_remove_values(b, &keys[0], 1, NULL));
    OK(done(kvcl_store_get_value(a, &keys[0], back, bytes, NULL, &req)));
    OK(kvcl_store_remove_values(a, &keys[0], 1, NULL));
    ck_assert_int_eq(done(kvcl_store_get_value(a, &keys[0], back, bytes, NULL, &req)), KVCL_ERR_NOT_FOUND);
    free(value);
    free(back);
}
END_TEST

/* ---- blocks in place ---- */

START_TEST(published_blocks_are_the_tenants_own)
{
    uint32_t mine[2], id;
    uint8_t  buf[BLOCK] = {0};
    size_t   known;

    OK(kvcl_store_alloc(a, 2, mine));
    ck_assert_uint_eq(first_byte(own, mine[0]), 0);
    fill_block(own, mine[0], 1);
    fill_block(own, mine[1], 2);
    OK(done(kvcl_store_publish(a, keys, 2, own, mine, NULL, &req)));
    OK(done(kvcl_store_publish(b, &keys[5], 1, cache, &(uint32_t){5}, NULL, &req))); /* not the store's cache */
    ck_assert_uint_eq(stats_of(a).blocks, 2);
    ck_assert_uint_eq(stats_of(b).blocks, 1);
    ck_assert_uint_eq(listed(b, &known), 1);
    ck_assert_uint_eq(known, 1);
    ck_assert_uint_eq(matched(a), 2);
    ck_assert_uint_eq(matched(b), 0);
    ck_assert_int_eq(kvcl_store_pin_local(b, &keys[0], &id), KVCL_ERR_NOT_FOUND);
    OK(kvcl_store_pin_local(a, &keys[0], &id));
    ck_assert_uint_eq(id, mine[0]);
    kvcl_store_unpin_local(b, id); /* not its own */
    ck_assert_uint_eq(store->own->pins[id], 1);
    ck_assert_uint_eq(stats_of(a).blocks, 2);
    OK(kvcl_store_withdraw(b, own, mine, 2));
    ck_assert_uint_eq(matched(a), 2);
    kvcl_store_unpin_local(a, id);
    OK(kvcl_store_withdraw(a, own, mine, 2));
    ck_assert_uint_eq(matched(a), 0);
    OK(kvcl_store_free(a, mine, 2));
    OK(kvcl_store_alloc(b, 2, mine)); /* zeros, though the store's own handle does not ask for them */
    OK(kvcl_cache_read_block(own, mine[0], buf, sizeof(buf)));
    ck_assert_uint_eq(buf[0], 0);
    ck_assert_uint_eq(first_byte(own, mine[1]), 0);
    OK(kvcl_store_free(b, mine, 2));
    OK(kvcl_store_withdraw(b, cache, &(uint32_t){5}, 1));
    ck_assert_uint_eq(stats_of(b).blocks, 0);
}
END_TEST

/* Allocated and not published: another tenant can neither free nor publish them, the store's own handle can. */
START_TEST(allocated_blocks_are_the_tenants_own)
{
    uint32_t all[3], by_a[2], by_b, by_store;

    put_all(a);
    OK(kvcl_store_alloc(a, 2, by_a));
    OK(kvcl_store_alloc(b, 1, &by_b));
    OK(kvcl_store_alloc(store, 1, &by_store));
    all[0] = by_b;
    all[1] = by_a[0];
    all[2] = by_a[1];
    FAILS(ACCESS, "was not allocated by this tenant's handle", kvcl_store_free(b, all, 3));
    FAILS(ACCESS, "was not allocated by this tenant's handle", kvcl_store_free(a, &by_store, 1));
    FAILS(OUT_OF_RANGE, "is free or published", kvcl_store_free(a, &(uint32_t){8}, 1));
    FAILS(ACCESS, "of tenant 8", done(kvcl_store_publish(b, keys, 3, own, all, NULL, &req)));
    FAILS(ACCESS, "of tenant 7", done(kvcl_store_bcast(a, keys, 1, own, &by_b, NULL, &req)));
    fill_block(own, by_a[0], 1);
    OK(done(kvcl_store_publish(a, keys, 1, own, by_a, NULL, &req)));
    OK(kvcl_store_withdraw(a, own, by_a, 1)); /* still its own */
    FAILS(ACCESS, "was not allocated by this tenant's handle", kvcl_store_free(b, by_a, 1));
    OK(kvcl_store_free(a, by_a, 1));
    FAILS(BUSY, "is free or published", kvcl_store_free(a, by_a, 1));
    OK(kvcl_store_free(b, &by_b, 1)); /* the call that failed freed none */
    OK(kvcl_store_free(store, &by_a[1], 1));
    OK(kvcl_store_free(store, &by_store, 1));
    OK(kvcl_store_alloc(b, 1, &by_b)); /* the same block may have another tenant next time */
    OK(kvcl_store_free(b, &by_b, 1));
}
END_TEST

/* The tenant could not withdraw it, and would change bytes that are published. */
START_TEST(a_block_without_its_number_is_not_published)
{
    kvcl_tenants_t *tenants = store->own->tenants;
    uint32_t       mine[2];
    uint64_t       id = 1000;

    OK(kvcl_store_alloc(a, 2, mine));
    fill_block(own, mine[0], 1);
    fill_block(own, mine[1], 2);
    kvcl_lock(ctx);
    while (kvcl_tenants_quota(tenants, id, BLOCK) == KVCL_OK) { /* no tenant more than these */
        ++id;
    }
    kvcl_unlock(ctx);
    FAILS(NO_MEMORY, "tenant 7", done(kvcl_store_publish(a, keys, 2, own, mine, NULL, &req)));
    ck_assert_uint_eq(matched(a), 0);
    kvcl_lock(ctx);
    while (id-- > 1000) {
        OK(kvcl_tenants_quota(tenants, id, KVCL_TENANT_NO_QUOTA));
    }
    kvcl_unlock(ctx);
    OK(done(kvcl_store_publish(a, keys, 2, own, mine, NULL, &req)));
    ck_assert_uint_eq(matched(a), 2);
    OK(kvcl_store_withdraw(a, own, mine, 2));
    OK(kvcl_store_free(a, mine, 2));
}
END_TEST

START_TEST(a_broadcast_block_is_the_tenants_own)
{
    uint32_t to[2] = {KEYS, KEYS + 1};

    put_all(a);
    OK(done(kvcl_store_bcast(a, keys, 2, cache, to, NULL, &req)));
    ck_assert_uint_eq(first_byte(cache, to[1]), 2);
    ck_assert_uint_eq(stats_of(a).blocks, KEYS + 2);
    OK(kvcl_store_withdraw(a, cache, to, 2));
}
END_TEST

/* Without a tenant keys are as they were: by the store's own handle they lie under the caller's bytes. */
START_TEST(the_stores_own_keys_are_the_callers)
{
    size_t known;

    put_all(store);
    ck_assert_uint_eq(listed(store, &known), KEYS);
    ck_assert_uint_eq(known, KEYS);
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("tenant_handle");
    TCase   *tcase  = tcase_create("all");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, blocks_are_the_tenants_own);
    tcase_add_test(tcase, the_store_and_a_tenant_are_apart);
    tcase_add_test(tcase, counts_are_the_tenants_own);
    tcase_add_test(tcase, a_match_shows_nothing);
    tcase_add_loop_test(tcase, values_are_the_tenants_own, 0, 5);
    tcase_add_test(tcase, published_blocks_are_the_tenants_own);
    tcase_add_test(tcase, allocated_blocks_are_the_tenants_own);
    tcase_add_test(tcase, a_block_without_its_number_is_not_published);
    tcase_add_test(tcase, a_broadcast_block_is_the_tenants_own);
    tcase_add_test(tcase, the_stores_own_keys_are_the_callers);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
