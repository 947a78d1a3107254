/*
 * The prefix index against a plain model: random additions, removals, predictions, clears and sources that come and go,
 * with up to some hundred instances, so that sets of holders take all their forms. TEST_SEED replays.
 */
#include "index_scene.h"

#include <stdio.h>

enum { INSTANCES = 300, BLOCKS = 60, CHAINS = 3, STEPS = 30000, HOLDS = 20000, LIFE = 100 };

typedef struct model {
    bool     there[INSTANCES];
    uint32_t source[INSTANCES];
    uint8_t  mask[INSTANCES][CHAINS][BLOCKS];  /* of tiers */
    uint64_t until[INSTANCES][CHAINS][BLOCKS]; /* of a prediction; 0: none */
    uint64_t now;
} model_t;

static model_t            model;
static kvcl_key_t         keys[CHAINS][BLOCKS];
static kvcl_sched_index_h tested;
static kvcl_sched_hold_t  holds[HOLDS];

static uint32_t id_of(uint32_t i)
{
    return 7 * i + 3;
}

static uint32_t tier_of(uint32_t i, uint32_t chain, uint32_t block)
{
    uint32_t mask = model.mask[i][chain][block] | ((model.until[i][chain][block] > model.now) ? 8u : 0);

    return (mask == 0) ? UINT32_MAX : (uint32_t)__builtin_ctz(mask);
}

/* The holds of one instance, by the rules of the header. */
static size_t expect(uint32_t i, uint32_t chain, uint32_t n, bool all, uint32_t least, kvcl_sched_hold_t *out)
{
    uint32_t b = 0, first, tier;
    size_t   found = 0;

    while (b < n) {
        first = b;
        tier  = tier_of(i, chain, b);
        while ((b < n) && (tier_of(i, chain, b) == tier)) {
            ++b;
        }
        if (tier == UINT32_MAX) {
            if (!all) {
                break;
            }
        } else if (b >= least) {
            out[found++] = (kvcl_sched_hold_t){id_of(i), first, b - first, (uint16_t)((tier == 3) ? 0 : tier),
                                               (tier == 3) ? KVCL_SCHED_PENDING : 0};
        }
    }
    return found;
}

static int by_place(const void *a, const void *b)
{
    const kvcl_sched_hold_t *x = a, *y = b;

    return (x->inst != y->inst) ? ((x->inst > y->inst) ? 1 : -1) : (x->first > y->first) - (x->first < y->first);
}

static void compare(bool all)
{
    static kvcl_sched_hold_t want[HOLDS];
    uint32_t                 chain = below(CHAINS), n = below(BLOCKS + 1), least = below(4) ? 0 : below(BLOCKS), i;
    size_t                   wanted = 0, got;

    ck_assert_int_eq(kvcl_sched_index_match(tested, keys[chain], n, all ? KVCL_SCHED_MATCH_ALL : 0, least, holds, HOLDS,
                                            &got), KVCL_OK);
    for (i = 0; i < INSTANCES; ++i) {
        wanted += expect(i, chain, n, all, least, want + wanted);
    }
    ck_assert_uint_eq(got, wanted);
    qsort(holds, got, sizeof(holds[0]), by_place);
    qsort(want, wanted, sizeof(want[0]), by_place);
    ck_assert_int_eq(memcmp(holds, want, got * sizeof(holds[0])), 0);
}

static void join(uint32_t i)
{
    kvcl_sched_source_params_t p = KVCL_SCHED_SOURCE_PARAMS_INIT;
    char                       name[32];

    (void)snprintf(name, sizeof(name), "instance %u", i);
    p.name     = name;
    p.instance = id_of(i);
    ck_assert_int_eq(kvcl_sched_index_source(tested, &p, &model.source[i]), KVCL_OK);
    model.there[i] = true;
}

static void forget_blocks(uint32_t i, bool guesses)
{
    memset(model.mask[i], 0, sizeof(model.mask[i]));
    if (guesses) {
        memset(model.until[i], 0, sizeof(model.until[i]));
    }
}

static void change(uint32_t i)
{
    uint32_t chain = below(CHAINS), first = below(BLOCKS), n = 1 + below(BLOCKS - first), tier = below(3), b;

    first = below(2) ? 0 : first;
    switch (below(16)) {
    case 0:
        ck_assert_int_eq(kvcl_sched_index_clear(tested, model.source[i]), KVCL_OK);
        forget_blocks(i, false);
        break;
    case 1:
        ck_assert_int_eq(kvcl_sched_index_forget(tested, model.source[i]), KVCL_OK);
        model.there[i] = false;
        forget_blocks(i, true);
        break;
    case 2:
    case 3:
        ck_assert_int_eq(kvcl_sched_index_predict(tested, id_of(i), keys[chain] + first, n, model.now), KVCL_OK);
        for (b = first; b < first + n; ++b) {
            model.until[i][chain][b] = model.now + LIFE;
        }
        break;
    case 4:
    case 5:
    case 6:
    case 7:
        ck_assert_int_eq(kvcl_sched_index_remove(tested, model.source[i], tier, keys[chain] + first, n), KVCL_OK);
        for (b = first; b < first + n; ++b) {
            model.mask[i][chain][b] &= (uint8_t)~(1u << tier);
        }
        break;
    default:
        ck_assert_int_eq(kvcl_sched_index_add(tested, model.source[i], tier, keys[chain] + first, n), KVCL_OK);
        for (b = first; b < first + n; ++b) {
            model.mask[i][chain][b] |= (uint8_t)(1u << tier);
        }
        break;
    }
}

static void compare_counts(void)
{
    kvcl_sched_index_stats_t stats = KVCL_SCHED_INDEX_STATS_INIT;
    uint64_t                 blocks = 0, holders = 0;
    uint32_t                 i, c, b, before;

    ck_assert_int_eq(kvcl_sched_index_stats(tested, &stats), KVCL_OK);
    for (c = 0; c < CHAINS; ++c) {
        for (b = 0; b < BLOCKS; ++b) {
            before = (uint32_t)holders;
            for (i = 0; i < INSTANCES; ++i) {
                holders += (tier_of(i, c, b) != UINT32_MAX);
            }
            blocks += (holders != before);
        }
    }
    ck_assert_uint_eq(stats.blocks, blocks);
    ck_assert_uint_eq(stats.holders, holders);
}

/* The state of real blocks goes to bytes, into another index, and is the same there. */
static void save_and_load(void)
{
    kvcl_sched_index_params_t p = KVCL_SCHED_INDEX_PARAMS_INIT;
    kvcl_sched_index_h        other;
    uint32_t                  i;
    size_t                    len, again;
    char                      name[32];
    uint8_t                   *bytes;

    p.predict_ns = LIFE;
    ck_assert_int_eq(kvcl_sched_index_save(tested, NULL, 0, &len), KVCL_OK);
    bytes = malloc(len);
    ck_assert_int_eq(kvcl_sched_index_save(tested, bytes, len - 1, &again), KVCL_ERR_NO_SPACE);
    ck_assert_int_eq(kvcl_sched_index_save(tested, bytes, len, &again), KVCL_OK);
    ck_assert_uint_eq(again, len);
    ck_assert_int_eq(kvcl_sched_index_create(&p, &other), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_load(other, bytes, len), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_load(other, bytes, len), (len > 40) ? KVCL_ERR_EXISTS : KVCL_OK);
    free(bytes);
    kvcl_sched_index_destroy(tested);
    tested = other;
    for (i = 0; i < INSTANCES; ++i) {
        memset(model.until[i], 0, sizeof(model.until[i]));
        (void)snprintf(name, sizeof(name), "instance %u", i);
        ck_assert_int_eq(kvcl_sched_index_find(tested, name, &model.source[i]),
                         model.there[i] ? KVCL_OK : KVCL_ERR_NOT_FOUND);
    }
}

START_TEST(the_index_is_as_a_plain_model)
{
    kvcl_sched_index_params_t p = KVCL_SCHED_INDEX_PARAMS_INIT;
    uint32_t                  step, i, c;

    memset(&model, 0, sizeof(model));
    for (c = 0; c < CHAINS; ++c) {
        test_chain(c, keys[c], BLOCKS);
    }
    p.predict_ns = LIFE;
    model.now    = 1;
    ck_assert_int_eq(kvcl_sched_index_create(&p, &tested), KVCL_OK);
    for (step = 0; step < STEPS; ++step) {
        i = below((step / 5000 % 2) ? INSTANCES : 12); /* few holders for a time, then many */
        if (!model.there[i]) {
            join(i);
        }
        change(i);
        if (below(20) == 0) {
            model.now += below(LIFE / 2);
            ck_assert_int_eq(kvcl_sched_index_expire(tested, model.now), KVCL_OK);
        }
        if (step % 16 == 0) {
            compare(below(2));
        }
        if (step % 4096 == 4095) {
            compare_counts();
            save_and_load();
            compare(false);
        }
    }
    kvcl_sched_index_destroy(tested);
}
END_TEST

/* Many blocks come and go, so that the table of keys is replaced several times while words are removed. */
START_TEST(a_table_that_grows_keeps_what_stays_and_no_more)
{
    enum { MANY = 6000, ROUNDS = 30000 };
    static kvcl_key_t many[MANY];
    static bool       there[MANY];
    kvcl_sched_hold_t hold;
    uint32_t          source, i, k;
    size_t            n;

    ck_assert_int_eq(kvcl_sched_index_create(NULL, &tested), KVCL_OK);
    source = test_source(tested, "s", 1, 0);
    for (k = 0; k < MANY; ++k) {
        kvcl_key_from_string(&k, sizeof(k), &many[k]);
        there[k] = false;
    }
    for (i = 0; i < ROUNDS; ++i) {
        k        = below(1 + i / (ROUNDS / MANY));
        there[k] = (below(4) != 0);
        ck_assert_int_eq(there[k] ? kvcl_sched_index_add(tested, source, 1, &many[k], 1)
                                  : kvcl_sched_index_remove(tested, source, 1, &many[k], 1), KVCL_OK);
        k = below(1 + i / (ROUNDS / MANY));
        ck_assert_int_eq(kvcl_sched_index_match(tested, &many[k], 1, 0, 0, &hold, 1, &n), KVCL_OK);
        ck_assert_uint_eq(n, there[k]);
    }
    for (k = 0; k < MANY; ++k) {
        ck_assert_int_eq(kvcl_sched_index_match(tested, &many[k], 1, 0, 0, &hold, 1, &n), KVCL_OK);
        ck_assert_uint_eq(n, there[k]);
    }
    kvcl_sched_index_destroy(tested);
}
END_TEST

/* ---- the rest of the contract ---- */

START_TEST(a_full_array_keeps_the_runs_that_end_last)
{
    kvcl_sched_hold_t few[4];
    size_t            n, i;
    char              name[16];

    test_chain(0, keys[0], BLOCKS);
    ck_assert_int_eq(kvcl_sched_index_create(NULL, &tested), KVCL_OK);
    for (i = 0; i < 50; ++i) { /* instance i has i + 1 blocks */
        (void)snprintf(name, sizeof(name), "s%zu", i);
        ck_assert_int_eq(kvcl_sched_index_add(tested, test_source(tested, name, (uint32_t)i, 0), 1, keys[0], i + 1),
                         KVCL_OK);
    }
    ck_assert_int_eq(kvcl_sched_index_match(tested, keys[0], BLOCKS, 0, 0, few, 4, &n), KVCL_OK);
    ck_assert_uint_eq(n, 50);
    for (i = 0; i < 4; ++i) {
        ck_assert_uint_ge(few[i].blocks, 47);
        ck_assert_uint_eq(few[i].blocks, few[i].inst + 1);
    }
    ck_assert_int_eq(kvcl_sched_index_match(tested, keys[0], BLOCKS, 0, 49, few, 4, &n), KVCL_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(kvcl_sched_index_match(tested, keys[0], BLOCKS, 0, 0, NULL, 0, &n), KVCL_OK);
    ck_assert_uint_eq(n, 50);
    ck_assert_int_eq(kvcl_sched_index_match(tested, NULL, 0, 0, 0, NULL, 0, &n), KVCL_OK);
    ck_assert_uint_eq(n, 0);
    kvcl_sched_index_destroy(tested);
}
END_TEST

START_TEST(two_sources_of_an_instance_make_one_run)
{
    kvcl_sched_source_params_t p = KVCL_SCHED_SOURCE_PARAMS_INIT;
    uint32_t                   device, pool;
    size_t                     n;

    test_chain(0, keys[0], BLOCKS);
    ck_assert_int_eq(kvcl_sched_index_create(NULL, &tested), KVCL_OK);
    p.name     = "device";
    p.instance = 5;
    p.tiers    = 1u << KVCL_STORE_TIER_CACHE;
    ck_assert_int_eq(kvcl_sched_index_source(tested, &p, &device), KVCL_OK);
    p.name  = "pool";
    p.tiers = 0;
    ck_assert_int_eq(kvcl_sched_index_source(tested, &p, &pool), KVCL_ERR_EXISTS);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "\"device\""));
    p.tiers = 1u << KVCL_STORE_TIER_DRAM;
    ck_assert_int_eq(kvcl_sched_index_source(tested, &p, &pool), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_add(tested, device, 0, keys[0], 10), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_add(tested, pool, 1, keys[0] + 5, 20), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_add(tested, pool, 0, keys[0], 1), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_sched_index_match(tested, keys[0], BLOCKS, 0, 0, holds, HOLDS, &n), KVCL_OK);
    ck_assert_uint_eq(n, 2);
    qsort(holds, n, sizeof(holds[0]), by_place);
    ck_assert_uint_eq(holds[0].blocks, 10);
    ck_assert_uint_eq(holds[0].tier, 0);
    ck_assert_uint_eq(holds[1].first, 10);
    ck_assert_uint_eq(holds[1].blocks, 15);
    ck_assert_uint_eq(holds[1].tier, 1);
    ck_assert_int_eq(kvcl_sched_index_clear(tested, device), KVCL_OK); /* the pool's blocks stay */
    ck_assert_int_eq(kvcl_sched_index_match(tested, keys[0], BLOCKS, KVCL_SCHED_MATCH_ALL, 0, holds, HOLDS, &n),
                     KVCL_OK);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(holds[0].first, 5);
    ck_assert_uint_eq(holds[0].blocks, 20);
    kvcl_sched_index_destroy(tested);
}
END_TEST

START_TEST(limits_are_kept_and_told)
{
    kvcl_sched_index_params_t  p = KVCL_SCHED_INDEX_PARAMS_INIT;
    kvcl_sched_source_params_t s = KVCL_SCHED_SOURCE_PARAMS_INIT;
    kvcl_sched_source_info_t   info;
    uint32_t                   source, other;

    test_chain(0, keys[0], BLOCKS);
    p.max_blocks    = 20;
    p.max_instances = 1;
    ck_assert_int_eq(kvcl_sched_index_create(&p, &tested), KVCL_OK);
    s.name       = "s";
    s.max_blocks = 10;
    ck_assert_int_eq(kvcl_sched_index_source(tested, &s, &source), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_add(tested, source, 1, keys[0], 15), KVCL_ERR_NO_SPACE);
    info = test_info(tested, source);
    ck_assert_uint_eq(info.blocks, 10);
    ck_assert_uint_eq(info.full, 5);
    ck_assert_uint_eq(info.state, KVCL_SCHED_DEGRADED);
    s.name     = "t";
    s.instance = 1;
    ck_assert_int_eq(kvcl_sched_index_source(tested, &s, &other), KVCL_ERR_NO_SPACE);
    ck_assert_int_eq(kvcl_sched_index_predict(tested, 0, keys[0], 40, 1), KVCL_ERR_NO_SPACE);
    ck_assert_int_eq(kvcl_sched_index_predict(tested, 9, keys[0], 1, 1), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_sched_index_clear(tested, source), KVCL_OK);
    ck_assert_uint_eq(test_info(tested, source).state, KVCL_SCHED_EXACT);
    ck_assert_int_eq(kvcl_sched_index_clear(tested, source + 1), KVCL_ERR_NOT_FOUND);
    s.name = "";
    ck_assert_int_eq(kvcl_sched_index_source(tested, &s, &other), KVCL_ERR_INVALID_PARAM);
    s.name = "u";
    s.feed = 77;
    ck_assert_int_eq(kvcl_sched_index_source(tested, &s, &other), KVCL_ERR_INVALID_PARAM);
    kvcl_sched_index_destroy(tested);
    ck_assert_int_eq(kvcl_sched_index_expire(tested, 0), KVCL_ERR_DEAD_HANDLE);
    p.max_blocks = UINT64_MAX;
    ck_assert_int_eq(kvcl_sched_index_create(&p, &tested), KVCL_ERR_INVALID_PARAM);
}
END_TEST

START_TEST(saved_bytes_that_are_cut_or_changed_are_refused)
{
    kvcl_sched_index_stats_t stats = KVCL_SCHED_INDEX_STATS_INIT;
    kvcl_sched_index_h       other;
    uint8_t                  bytes[8192], copy[8192];
    size_t                   len, i;

    test_chain(0, keys[0], BLOCKS);
    ck_assert_int_eq(kvcl_sched_index_create(NULL, &tested), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_add(tested, test_source(tested, "a", 1, 0), 1, keys[0], 30), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_add(tested, test_source(tested, "b", 2, 0), 2, keys[0], 20), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_save(tested, bytes, sizeof(bytes), &len), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_create(NULL, &other), KVCL_OK);
    for (i = 0; i < len; ++i) {
        ck_assert_int_eq(kvcl_sched_index_load(other, bytes, i), KVCL_ERR_PROTOCOL);
        memcpy(copy, bytes, len);
        copy[i] ^= 1;
        ck_assert_int_lt(kvcl_sched_index_load(other, copy, len), 0);
    }
    ck_assert_int_eq(kvcl_sched_index_stats(other, &stats), KVCL_OK);
    ck_assert_uint_eq(stats.blocks + stats.sources, 0);
    ck_assert_int_eq(kvcl_sched_index_load(other, bytes, len), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_index_match(other, keys[0], BLOCKS, 0, 0, holds, HOLDS, &i), KVCL_OK);
    ck_assert_uint_eq(i, 2);
    kvcl_sched_index_destroy(other);
    kvcl_sched_index_destroy(tested);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_index");
    TCase *tc    = tcase_create("index");

    test_seed(&rnd);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, the_index_is_as_a_plain_model);
    tcase_add_test(tc, a_table_that_grows_keeps_what_stays_and_no_more);
    tcase_add_test(tc, a_full_array_keeps_the_runs_that_end_last);
    tcase_add_test(tc, two_sources_of_an_instance_make_one_run);
    tcase_add_test(tc, limits_are_kept_and_told);
    tcase_add_test(tc, saved_bytes_that_are_cut_or_changed_are_refused);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
