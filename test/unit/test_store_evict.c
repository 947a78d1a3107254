/*
 * The eviction order: victims, ages, pins, chains.
 */
#include "config.h"

#include "base/rand.h"
#include "policy/evict.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static kvcl_evict_t evict;
static void        *mem;

static void open_order(uint32_t n)
{
    mem = malloc(kvcl_evict_bytes(n));
    ck_assert_ptr_nonnull(mem);
    ck_assert_int_eq(kvcl_evict_init(&evict, n, mem, kvcl_evict_bytes(n)), KVCL_OK);
}

static void close_order(void)
{
    ck_assert(kvcl_evict_check(&evict));
    free(mem);
}

static uint64_t hash_of(uint64_t i)
{
    return kvcl_splitmix64(&i);
}

/* A slot gets a block that it never held before. */
static kvcl_status_t come(uint32_t slot)
{
    static uint64_t never;

    return kvcl_evict_insert(&evict, slot, hash_of(++never << 32));
}

static uint32_t victim(void)
{
    uint32_t slot = UINT32_MAX;

    ck_assert_int_eq(kvcl_evict_victim(&evict, &slot), KVCL_OK);
    return slot;
}

START_TEST(untouched_blocks_leave_first_in_first_out)
{
    uint32_t i, slot;

    open_order(20);
    for (i = 0; i < 20; ++i) {
        ck_assert_int_eq(come(i), KVCL_OK);
    }
    for (i = 0; i < 20; ++i) {
        ck_assert_uint_eq(victim(), i);
    }
    ck_assert_int_eq(kvcl_evict_victim(&evict, &slot), KVCL_ERR_NOT_FOUND);
    close_order();
}
END_TEST

/* 30 hot blocks, used once in 110 blocks of a scan, in 100 slots: an LRU has evicted each of them before its next use.
 * This order loses them at first too, and learns from their return. */
START_TEST(what_is_used_again_outlives_a_scan)
{
    enum { N = 100, HOT = 30, SCAN = 110, ROUNDS = 40 };
    uint32_t key_of[N], slot_of[HOT], round, i, slot, hits = 0, used = 0;

    open_order(N);
    memset(slot_of, 0xff, sizeof(slot_of));
    for (round = 0; round < ROUNDS; ++round) {
        for (i = 0; i < HOT + SCAN; ++i) {
            if ((i < HOT) && (slot_of[i] != UINT32_MAX)) {
                kvcl_evict_touch(&evict, slot_of[i]);
                hits += round >= ROUNDS / 2;
                continue;
            }
            slot = (used < N) ? used : victim();
            if ((used == N) && (key_of[slot] < HOT)) {
                slot_of[key_of[slot]] = UINT32_MAX;
            }
            used        += (used < N);
            key_of[slot] = (i < HOT) ? i : HOT + (round * SCAN) + i;
            if (i < HOT) {
                slot_of[i] = slot;
            }
            ck_assert_int_eq(kvcl_evict_insert(&evict, slot, hash_of(key_of[slot])), KVCL_OK);
        }
    }
    ck_assert_uint_eq(hits, HOT * (ROUNDS / 2));
    close_order();
}
END_TEST

/* Used blocks may be `keep` times as old as the oldest new one, and no older; the limit of blocks that returned is a
 * bit lower. */
START_TEST(ages_decide_who_goes)
{
    enum { N = 64 };
    const uint64_t allowed = (_i == 0) ? (N * 21) / 16 : (N * 21 * 15) / (16 * 16);
    uint32_t       i, turn, slot;

    open_order(N);
    for (i = 0; i < N; ++i) {
        ck_assert_int_eq(kvcl_evict_insert(&evict, i, hash_of(i)), KVCL_OK);
    }
    if (_i == 0) {
        kvcl_evict_touch(&evict, 0);
    } else {
        ck_assert_uint_eq(victim(), 0);
        ck_assert_int_eq(kvcl_evict_insert(&evict, 0, hash_of(0)), KVCL_OK);
        ck_assert_uint_eq(evict.queue[2].n, 1);
    }
    for (turn = 1; (slot = victim()) != 0; ++turn) { /* before each, the oldest new block is N - 1 ticks old */
        ck_assert_uint_lt(turn, 2 * N);
        ck_assert_uint_eq(slot, 1 + ((turn - 1) % (N - 1)));
        ck_assert_int_eq(come(slot), KVCL_OK);
    }
    ck_assert_uint_ge(turn + 1, allowed);
    ck_assert_uint_le(turn, allowed + 1);
    close_order();
}
END_TEST

/* A block that was evicted unused and returns lowers `keep`, one that was evicted used raises it; both within
 * bounds. */
START_TEST(it_learns_from_what_comes_back)
{
    enum { N = 100 };
    uint64_t least;
    uint32_t key_of[N], i, slot, turn;

    open_order(N);
    least = evict.keep;
    for (i = 0; i < N; ++i) {
        ck_assert_int_eq(kvcl_evict_insert(&evict, i, hash_of(i)), KVCL_OK);
        kvcl_evict_touch(&evict, i);
    }
    for (turn = 0; turn < 40; ++turn) { /* they are evicted used, and return */
        slot = victim();
        ck_assert_uint_eq(slot, turn % N);
        ck_assert_int_eq(kvcl_evict_insert(&evict, slot, hash_of(slot)), KVCL_OK);
        kvcl_evict_touch(&evict, slot);
    }
    ck_assert_uint_eq(evict.queue[3].n, N);
    ck_assert_uint_eq(evict.keep >> 32, 16);
    memset(key_of, 0, sizeof(key_of));
    for (turn = 0; turn < 3000; ++turn) { /* every other one is evicted unused and returns, once */
        slot = victim();
        if ((turn % 2 == 0) || (key_of[slot] == 0)) {
            key_of[slot] = 1000 + turn;
            ck_assert_int_eq(kvcl_evict_insert(&evict, slot, hash_of(key_of[slot])), KVCL_OK);
        } else {
            ck_assert_int_eq(kvcl_evict_insert(&evict, slot, hash_of(key_of[slot])), KVCL_OK);
            key_of[slot] = 0;
        }
    }
    ck_assert_uint_eq(evict.keep, least);
    close_order();
}
END_TEST

/* Exactly the last n evicted blocks are remembered, except those that returned. */
START_TEST(ghosts_are_the_last_n)
{
    enum { N = 37, TAGS = 60, STEPS = 20000 };
    kvcl_ghosts_t ghosts;
    kvcl_rand_t   rnd;
    uint32_t      last[TAGS], now = N, step, tag; /* eviction time, 0: not remembered */
    void          *ghost_mem = malloc(kvcl_ghosts_bytes(N));

    ck_assert_ptr_nonnull(ghost_mem);
    kvcl_ghosts_init(&ghosts, N, ghost_mem);
    kvcl_rand_seed(&rnd, (uint64_t)_i);
    memset(last, 0, sizeof(last));
    for (step = 0; step < STEPS; ++step) {
        tag = (uint32_t)kvcl_rand_below(&rnd, TAGS);
        if ((last[tag] != 0) || (kvcl_rand_below(&rnd, 2) == 0)) {
            ck_assert_int_eq(kvcl_ghosts_take(&ghosts, tag * 0x10001), (last[tag] != 0) && (now - last[tag] < N));
            last[tag] = 0;
        } else {
            kvcl_ghosts_remember(&ghosts, tag * 0x10001);
            last[tag] = ++now;
        }
    }
    free(ghost_mem);
}
END_TEST

/* A request reports a block two or three times: one use has the same effect as three. */
START_TEST(how_often_does_not_matter)
{
    uint32_t first[20], second[20], *order = first, i, turn;

    for (turn = 0; turn < 2; ++turn, order = second) {
        open_order(20);
        for (i = 0; i < 20; ++i) {
            ck_assert_int_eq(come(i), KVCL_OK);
        }
        for (i = 0; i < 20; i += 3) {
            kvcl_evict_touch(&evict, i);
        }
        for (i = 0; (turn == 1) && (i < 20); i += 3) {
            kvcl_evict_touch(&evict, i);
        }
        for (i = 0; i < 20; ++i) {
            order[i] = victim();
        }
        close_order();
    }
    ck_assert_mem_eq(first, second, sizeof(first));
}
END_TEST

/* Pinned slots at the end are passed over once, and return to the position of their age. */
START_TEST(pins_do_not_change_the_order)
{
    enum { N = 30 };
    uint32_t i, slot;

    open_order(N);
    for (i = 0; i < N; ++i) {
        ck_assert_int_eq(come(i), KVCL_OK);
    }
    for (i = 0; i < 10; ++i) {
        ck_assert_int_eq(kvcl_evict_pin(&evict, i), KVCL_OK);
    }
    ck_assert_uint_eq(victim(), 10);
    ck_assert(kvcl_evict_check(&evict));
    ck_assert_uint_eq(evict.queue[4].n, 10);
    for (i = 0; i < 10; ++i) { /* 7, 4, 1, 8, 5, 2, 9, 6, 3, 0 */
        ck_assert_int_eq(kvcl_evict_unpin(&evict, (7 * (i + 1)) % 10), KVCL_OK);
        ck_assert(kvcl_evict_check(&evict));
    }
    ck_assert_uint_eq(evict.queue[4].n, 0);
    ck_assert_uint_eq(kvcl_evict_count(&evict), N - 1);
    for (i = 0; i < N; ++i) {
        if (i != 10) {
            slot = victim();
            ck_assert_uint_eq(slot, i);
        }
    }
    close_order();
}
END_TEST

START_TEST(pinned_slots_are_never_victims)
{
    uint32_t i, slot;

    open_order(10);
    for (i = 0; i < 10; ++i) {
        ck_assert_int_eq(come(i), KVCL_OK);
        ck_assert_int_eq(kvcl_evict_pin(&evict, i), KVCL_OK);
    }
    ck_assert_int_eq(kvcl_evict_pin(&evict, 3), KVCL_OK);
    ck_assert_int_eq(kvcl_evict_victim(&evict, &slot), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_evict_unpin(&evict, 3), KVCL_OK);
    ck_assert_int_eq(kvcl_evict_victim(&evict, &slot), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_evict_unpin(&evict, 3), KVCL_OK);
    ck_assert_int_eq(kvcl_evict_unpin(&evict, 3), KVCL_ERR_INVALID_PARAM);
    ck_assert_uint_eq(victim(), 3);
    ck_assert_int_eq(kvcl_evict_unpin(&evict, 3), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_evict_remove(&evict, 4), KVCL_OK);
    ck_assert_int_eq(kvcl_evict_remove(&evict, 4), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(come(4), KVCL_OK);
    ck_assert_uint_eq(victim(), 4);
    ck_assert_uint_eq(kvcl_evict_count(&evict), 8);
    close_order();
}
END_TEST

/* Blocks of a chain that are inserted and touched tail first are evicted tail first. */
START_TEST(children_leave_before_their_parents)
{
    enum { CHAIN = 10, CHAINS = 5 };
    uint32_t i, chain, slot, last[CHAINS] = {0}, round;

    open_order(CHAIN * CHAINS);
    for (chain = 0; chain < CHAINS; ++chain) {
        for (i = CHAIN; i-- > 0;) { /* depth i is in slot chain * CHAIN + i */
            ck_assert_int_eq(come((chain * CHAIN) + i), KVCL_OK);
        }
        last[chain] = CHAIN;
    }
    for (round = 0; round < 3; ++round) { /* matches of ever shorter prefixes of chain 2 */
        for (i = CHAIN - 3 * round; i-- > 0;) {
            kvcl_evict_touch(&evict, 2 * CHAIN + i);
        }
    }
    for (i = 0; i < CHAIN * CHAINS; ++i) {
        slot = victim();
        ck_assert_uint_eq(slot % CHAIN, last[slot / CHAIN] - 1);
        last[slot / CHAIN] = slot % CHAIN;
    }
    close_order();
}
END_TEST

static void random_tree(kvcl_rand_t *rnd, uint32_t *parent, uint32_t *depth, uint32_t n, uint32_t most)
{
    uint32_t key;

    for (key = 0; key < n; ++key) {
        parent[key] = (key < 20) ? UINT32_MAX : (uint32_t)kvcl_rand_below(rnd, key);
        depth[key]  = (key < 20) ? 0 : depth[parent[key]] + 1;
        if (depth[key] == most) {
            parent[key] = UINT32_MAX;
            depth[key]  = 0;
        }
    }
}

/* Requests for random leaves of a random tree, in a pool that holds a fraction of it: the held blocks are closed under
 * "parent of" after each eviction. Some requests only match; some put the end of their chain a while later. */
START_TEST(no_block_goes_before_what_follows_it)
{
    enum { SLOTS = 200, KEYS = 2000, DEPTH = 12, REQUESTS = 20000 };
    const char  *replay = getenv("TEST_SEED");
    uint64_t    seed    = (replay != NULL) ? strtoull(replay, NULL, 0) : (uint64_t)_i;
    uint32_t    parent[KEYS], depth[KEYS], slot_of[KEYS], key_of[SLOTS], children[KEYS] = {0}, path[DEPTH], key, n, run;
    uint32_t    used = 0, turn, i, slot;
    kvcl_rand_t rnd;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    kvcl_rand_seed(&rnd, seed);
    random_tree(&rnd, parent, depth, KEYS, DEPTH);
    for (key = 0; key < KEYS; ++key) {
        slot_of[key] = UINT32_MAX;
    }
    open_order(SLOTS);
    for (turn = 0; turn < REQUESTS; ++turn) {
        key = (uint32_t)kvcl_rand_below(&rnd, (kvcl_rand_below(&rnd, 3) == 0) ? KEYS : KEYS / 10);
        n   = depth[key] + 1;
        for (i = n; i-- > 0; key = parent[key]) {
            path[i] = key;
        }
        for (run = 0; (run < n) && (slot_of[path[run]] != UINT32_MAX); ++run) {
        }
        for (i = run; i < n; ++i) {
            ck_assert_uint_eq(slot_of[path[i]], UINT32_MAX);
        }
        for (i = run; i-- > 0;) {
            kvcl_evict_touch(&evict, slot_of[path[i]]);
        }
        if (kvcl_rand_below(&rnd, 4) == 0) {
            continue;
        }
        for (i = n; i-- > run;) { /* room for all, then all blocks */
            if (used < SLOTS) {
                slot = used++;
            } else {
                slot = victim();
                key  = key_of[slot];
                ck_assert_msg(children[key] == 0, "key %u goes before what follows it", key);
                slot_of[key] = UINT32_MAX;
                if (parent[key] != UINT32_MAX) {
                    --children[parent[key]];
                }
            }
            key_of[slot]     = path[i];
            slot_of[path[i]] = slot;
        }
        for (i = n; i-- > run;) {
            ck_assert_int_eq(kvcl_evict_insert(&evict, slot_of[path[i]], hash_of(path[i])), KVCL_OK);
            if (parent[path[i]] != UINT32_MAX) {
                ++children[parent[path[i]]];
            }
        }
    }
    close_order();
}
END_TEST

START_TEST(random_operations_keep_the_order_whole)
{
    enum { N = 60 };
    kvcl_rand_t rnd;
    uint32_t    in[N] = {0}, pins[N] = {0}, i, slot, count = 0, free_pins;
    unsigned    step;

    kvcl_rand_seed(&rnd, (uint64_t)_i);
    open_order(N);
    for (step = 0; step < 20000; ++step) {
        i = (uint32_t)kvcl_rand_below(&rnd, N);
        switch (kvcl_rand_below(&rnd, 6)) {
        case 0:
        case 1:
            ck_assert_int_eq(kvcl_evict_insert(&evict, i, kvcl_rand_below(&rnd, 100)),
                             in[i] ? KVCL_ERR_EXISTS : KVCL_OK);
            count += !in[i];
            in[i] = 1;
            break;
        case 2:
            kvcl_evict_touch(&evict, i);
            break;
        case 3:
            for (slot = 0, free_pins = 0; slot < N; ++slot) {
                free_pins += in[slot] && (pins[slot] == 0);
            }
            if (free_pins == 0) {
                ck_assert_int_eq(kvcl_evict_victim(&evict, &slot), KVCL_ERR_NOT_FOUND);
                break;
            }
            slot = victim();
            ck_assert(in[slot] && pins[slot] == 0);
            in[slot] = 0;
            --count;
            break;
        case 4:
            if (kvcl_evict_pin(&evict, i) == KVCL_OK) {
                ++pins[i];
            }
            break;
        default:
            if ((pins[i] > 0) && (kvcl_evict_unpin(&evict, i) == KVCL_OK)) {
                --pins[i];
            }
        }
        ck_assert_uint_eq(kvcl_evict_count(&evict), count);
        ck_assert((step % 64 != 0) || kvcl_evict_check(&evict));
    }
    close_order();
}
END_TEST

/* The block named as the next victim is the next victim, whatever was done before. */
START_TEST(the_next_victim_is_known_before)
{
    enum { N = 60 };
    kvcl_rand_t rnd;
    uint32_t    i, turn, next[N], n;

    kvcl_rand_seed(&rnd, (uint64_t)_i);
    open_order(N);
    for (turn = 0; turn < 4000; ++turn) {
        i = (uint32_t)kvcl_rand_below(&rnd, N);
        if (kvcl_rand_below(&rnd, 3) > 0) {
            kvcl_evict_touch(&evict, i);
        } else if (kvcl_evict_insert(&evict, i, hash_of(kvcl_rand_below(&rnd, 4 * N))) != KVCL_OK) {
            n = kvcl_evict_peek(&evict, next, N);
            ck_assert_uint_eq(n, kvcl_evict_count(&evict));
            ck_assert_uint_eq(next[0], victim());
        }
        if (kvcl_rand_below(&rnd, 50) == 0) {
            (void)!kvcl_evict_pin(&evict, i);
            n = kvcl_evict_peek(&evict, next, N);
            while (n-- > 0) {
                ck_assert(evict.nodes[next[n]].pins == 0);
            }
            (void)!kvcl_evict_remove(&evict, i);
        }
    }
    close_order();
}
END_TEST

START_TEST(wrong_calls_are_refused)
{
    open_order(4);
    ck_assert_int_eq(come(4), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_evict_pin(&evict, 4), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(kvcl_evict_pin(&evict, 1), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_evict_remove(&evict, 4), KVCL_ERR_OUT_OF_RANGE);
    kvcl_evict_touch(&evict, 1);
    kvcl_evict_touch(&evict, 9);
    ck_assert_int_eq(kvcl_evict_init(&evict, 4, mem, 8), KVCL_ERR_INVALID_PARAM);
    free(mem);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("store_evict");
    TCase   *tc    = tcase_create("evict");
    SRunner *runner;
    int      failed;

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, untouched_blocks_leave_first_in_first_out);
    tcase_add_test(tc, what_is_used_again_outlives_a_scan);
    tcase_add_loop_test(tc, ages_decide_who_goes, 0, 2);
    tcase_add_test(tc, it_learns_from_what_comes_back);
    tcase_add_loop_test(tc, ghosts_are_the_last_n, 0, 4);
    tcase_add_test(tc, how_often_does_not_matter);
    tcase_add_test(tc, pins_do_not_change_the_order);
    tcase_add_test(tc, pinned_slots_are_never_victims);
    tcase_add_test(tc, children_leave_before_their_parents);
    tcase_add_loop_test(tc, no_block_goes_before_what_follows_it, 0, 6);
    tcase_add_loop_test(tc, random_operations_keep_the_order_whole, 0, 10);
    tcase_add_loop_test(tc, the_next_victim_is_known_before, 0, 10);
    tcase_add_test(tc, wrong_calls_are_refused);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
