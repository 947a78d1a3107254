/*
 * Threads match while others write. Blocks 0 to STABLE-1 are held by every stable instance all the time; writers add
 * and remove other holders of the same blocks, whole chains, instances and predictions, so that the table grows, sets
 * change their forms, and blocks, lists, bitmaps and slots are retired and used again. A reader must find each stable
 * run, whole, and no instance that never was. Bounded by rounds, never by time.
 */
#include "index_scene.h"

#include <pthread.h>
#include <stdatomic.h>

enum { STABLE = 24, STABLE_INSTANCES = 40, OTHERS = 200, READERS = 3, WRITERS = 2, ROUNDS = 400, HOLDS = 4096,
       CHAIN = 200 };

static kvcl_sched_index_h index_of_all;
static kvcl_key_t         trunk[STABLE + 1];
static _Atomic int        stop, failures;
static _Atomic uint64_t   matches;

static void check_holds(const kvcl_sched_hold_t *holds, size_t n)
{
    uint32_t seen[STABLE_INSTANCES] = {0}, wrong = (n > HOLDS);
    size_t   i;

    for (i = 0; (i < n) && (wrong == 0); ++i) {
        if (holds[i].inst < STABLE_INSTANCES) {
            wrong |= (holds[i].first != 0) || (holds[i].blocks != STABLE) || (holds[i].tier != 1);
            ++seen[holds[i].inst];
        } else {
            wrong |= (holds[i].inst < 1000) || (holds[i].inst >= 1000 + WRITERS * OTHERS);
            wrong |= (holds[i].first + holds[i].blocks > STABLE);
        }
    }
    for (i = 0; i < STABLE_INSTANCES; ++i) {
        wrong |= (seen[i] != 1);
    }
    failures += (int)wrong;
}

static void *read_all(void *arg)
{
    kvcl_sched_hold_t *holds = malloc(HOLDS * sizeof(*holds));
    size_t            n;

    (void)arg;
    while (!stop) {
        if (kvcl_sched_index_match(index_of_all, trunk, STABLE + 1, 0, 0, holds, HOLDS, &n) == KVCL_OK) {
            check_holds(holds, n);
        } else {
            ++failures;
        }
        ++matches;
    }
    free(holds);
    return NULL;
}

static void must(kvcl_status_t status)
{
    failures += (status != KVCL_OK);
}

/* One instance comes, holds parts of the trunk and a chain of its own, and goes. */
static void live_once(kvcl_rand_t *own, uint32_t instance, uint32_t round, const kvcl_key_t *chain)
{
    kvcl_sched_source_params_t p = KVCL_SCHED_SOURCE_PARAMS_INIT;
    uint32_t                   source, n = 1 + (uint32_t)kvcl_rand_below(own, STABLE), tier;
    char                       name[32];

    (void)snprintf(name, sizeof(name), "other %u", instance);
    tier       = (uint32_t)kvcl_rand_below(own, 3);
    p.name     = name;
    p.instance = instance;
    must(kvcl_sched_index_source(index_of_all, &p, &source));
    must(kvcl_sched_index_add(index_of_all, source, tier, trunk, n));
    must(kvcl_sched_index_add(index_of_all, source, 2, chain, CHAIN));
    must(kvcl_sched_index_predict(index_of_all, instance, trunk, STABLE, round));
    must(kvcl_sched_index_remove(index_of_all, source, tier, trunk + n / 2, n - n / 2));
    if (kvcl_rand_below(own, 3) == 0) {
        must(kvcl_sched_index_clear(index_of_all, source));
    }
    if (kvcl_rand_below(own, 4) != 0) {
        must(kvcl_sched_index_forget(index_of_all, source));
        return;
    }
    must(kvcl_sched_index_add(index_of_all, source, 0, trunk, STABLE)); /* it stays until its turn comes again */
}

static void *write_all(void *arg)
{
    uint32_t    first = 1000 + *(uint32_t *)arg * OTHERS, i, round, source;
    kvcl_key_t  *chain = malloc(CHAIN * sizeof(*chain));
    kvcl_rand_t own;
    char        name[32];

    kvcl_rand_seed(&own, first);
    for (round = 0; round < ROUNDS; ++round) {
        i = first + (uint32_t)kvcl_rand_below(&own, OTHERS);
        (void)snprintf(name, sizeof(name), "other %u", i);
        if (kvcl_sched_index_find(index_of_all, name, &source) == KVCL_OK) {
            must(kvcl_sched_index_forget(index_of_all, source));
        }
        test_chain(first + round, chain, CHAIN);
        live_once(&own, i, round, chain);
    }
    free(chain);
    return NULL;
}

START_TEST(readers_find_all_that_stays)
{
    kvcl_sched_index_params_t p = KVCL_SCHED_INDEX_PARAMS_INIT;
    kvcl_sched_index_stats_t  stats = KVCL_SCHED_INDEX_STATS_INIT;
    pthread_t                 readers[READERS], writers[WRITERS];
    uint32_t                  numbers[WRITERS], i;
    char                      name[32];

    p.predict_ns = 20;
    test_chain(0, trunk, STABLE + 1);
    ck_assert_int_eq(kvcl_sched_index_create(&p, &index_of_all), KVCL_OK);
    for (i = 0; i < STABLE_INSTANCES; ++i) {
        (void)snprintf(name, sizeof(name), "stable %u", i);
        ck_assert_int_eq(kvcl_sched_index_add(index_of_all, test_source(index_of_all, name, i, 0), 1, trunk, STABLE),
                         KVCL_OK);
    }
    for (i = 0; i < READERS; ++i) {
        ck_assert_int_eq(pthread_create(&readers[i], NULL, read_all, NULL), 0);
    }
    for (i = 0; i < WRITERS; ++i) {
        numbers[i] = i;
        ck_assert_int_eq(pthread_create(&writers[i], NULL, write_all, &numbers[i]), 0);
    }
    for (i = 0; i < WRITERS; ++i) {
        pthread_join(writers[i], NULL);
    }
    stop = 1;
    for (i = 0; i < READERS; ++i) {
        pthread_join(readers[i], NULL);
    }
    ck_assert_int_eq(failures, 0);
    ck_assert_uint_gt(matches, 0);
    ck_assert_int_eq(kvcl_sched_index_stats(index_of_all, &stats), KVCL_OK);
    ck_assert_uint_eq(stats.retired, 0); /* nobody reads: all is used again */
    kvcl_sched_index_destroy(index_of_all);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_index_race");
    TCase *tc    = tcase_create("race");

    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, readers_find_all_that_stays);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
