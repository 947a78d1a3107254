/*
 * One thread writes a table, others read it, with no lock: every answer must be one that was true.
 *
 * Each location's checksum and len are functions of key, slot and generation, so an answer combined from two writes is
 * detected at once. Bounded by iterations, never by time.
 */
#include "config.h"

#include "test_dir.h"

#include "dir/slots.h"
#include "dir/table.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>

enum { KEYS = 96, WRITES = 60000, READERS = 1 };

static void            *mem;
static size_t           mem_bytes;
static kvcl_dir_table_t table;
static kvcl_key_t       keys[KEYS];
static _Atomic int      stop, failures;
static _Atomic uint64_t hits;

static kvcl_dir_loc_t made_of(uint64_t k, uint32_t slot, uint32_t gen)
{
    kvcl_dir_loc_t loc = test_loc((uint16_t)(k % 7), slot, gen);

    loc.len      = (uint32_t)(k * 1000003u) ^ gen;
    loc.checksum = (k << 40) ^ ((uint64_t)slot << 32) ^ gen;
    return loc;
}

static void expect_true(uint64_t k, const kvcl_dir_loc_t *locs, unsigned n)
{
    kvcl_dir_loc_t want;
    unsigned       i;

    for (i = 0; i < n; ++i) {
        want = made_of(k, locs[i].slot, locs[i].gen);
        failures += !test_loc_equal(&want, &locs[i]);
    }
    hits += n;
}

static void *read_all(void *arg)
{
    kvcl_dir_view_t view;
    kvcl_dir_loc_t  locs[KVCL_DIR_LOCS_MAX], many[KEYS][KVCL_DIR_LOCS_MAX];
    uint8_t         counts[KEYS];
    uint64_t        k;

    (void)arg;
    if (kvcl_dir_view_init(&view, mem, mem_bytes) != KVCL_OK) {
        ++failures;
        return NULL;
    }
    do {
        for (k = 0; k < KEYS; ++k) {
            expect_true(k, locs, kvcl_dir_read(&view, &keys[k], locs));
        }
        (void)kvcl_dir_read_batch(&view, keys, KEYS, many, counts);
        for (k = 0; k < KEYS; ++k) {
            expect_true(k, many[k], counts[k]);
        }
    } while (!stop);
    return NULL;
}

START_TEST(readers_never_see_half_a_write)
{
    uint32_t       gens[KEYS][4] = {{0}};
    pthread_t      readers[READERS];
    kvcl_dir_loc_t loc;
    kvcl_rand_t    rnd;
    uint32_t       i, k, slot;
    kvcl_status_t  status;

    mem_bytes = kvcl_dir_table_bytes(128);
    mem       = aligned_alloc(64, mem_bytes);
    ck_assert_ptr_nonnull(mem);
    ck_assert_int_eq(kvcl_dir_table_format(&table, mem, mem_bytes), KVCL_OK);
    for (k = 0; k < KEYS; ++k) {
        keys[k] = test_key(k);
    }
    for (i = 0; i < READERS; ++i) {
        ck_assert_int_eq(pthread_create(&readers[i], NULL, read_all, NULL), 0);
    }
    kvcl_rand_seed(&rnd, 7);
    for (i = 1; i <= WRITES; ++i) {
        k    = (uint32_t)kvcl_rand_below(&rnd, KEYS);
        slot = (uint32_t)kvcl_rand_below(&rnd, 4);
        if (gens[k][slot] == 0) {
            loc    = made_of(k, slot, i);
            status = kvcl_dir_table_insert(&table, &keys[k], &loc);
            gens[k][slot] = (status == KVCL_OK) ? i : 0;
        } else if (i % 2 == 0) {
            loc = made_of(k, slot, i);
            ck_assert_int_eq(kvcl_dir_table_insert(&table, &keys[k], &loc), KVCL_OK);
            gens[k][slot] = i;
        } else {
            loc = made_of(k, slot, gens[k][slot]);
            ck_assert_int_eq(kvcl_dir_table_remove(&table, &keys[k], &loc), KVCL_OK);
            gens[k][slot] = 0;
        }
    }
    stop = 1;
    for (i = 0; i < READERS; ++i) {
        pthread_join(readers[i], NULL);
    }
    ck_assert_int_eq(failures, 0);
    ck_assert_uint_gt(hits, 0);
    ck_assert(kvcl_dir_table_check(&table));
    free(mem);
}
END_TEST

/* Slots: bytes are copied one-sided, then the word is read: an equal word means one content. The bytes race by design;
 * here they are relaxed atomics, so that ThreadSanitizer checks the order only. */
enum { WORDS = 64, REUSES = 20000 };

static _Atomic uint32_t gen_word[1];
static _Atomic uint64_t bytes[WORDS];
static _Atomic uint64_t published; /* (gen << 32) | content */
static _Atomic uint64_t accepted;

static void *copy_slot(void *arg)
{
    uint64_t copy[WORDS], now;
    unsigned i;

    (void)arg;
    do {
        now = atomic_load_explicit(&published, memory_order_acquire);
        for (i = 0; i < WORDS; ++i) {
            copy[i] = atomic_load_explicit(&bytes[i], memory_order_relaxed);
        }
        if ((now == 0) || !kvcl_slots_gen_is(&gen_word[0], (uint32_t)(now >> 32))) {
            continue;
        }
        ++accepted;
        for (i = 0; i < WORDS; ++i) {
            failures += (copy[i] != (uint32_t)now);
        }
    } while (!stop);
    return NULL;
}

START_TEST(an_equal_generation_word_means_the_bytes_are_that_block)
{
    kvcl_slot_t    slot_array[1];
    kvcl_slots_t   slots;
    kvcl_dir_loc_t loc;
    kvcl_key_t     key;
    pthread_t      reader;
    uint32_t       slot, content;
    unsigned       i;

    ck_assert_int_eq(kvcl_slots_init(&slots, gen_word, slot_array, 1, 0, 1, 0, 1), KVCL_OK);
    ck_assert_int_eq(kvcl_slots_alloc(&slots, &slot), KVCL_OK);
    ck_assert_int_eq(pthread_create(&reader, NULL, copy_slot, NULL), 0);
    for (content = 1; (content <= REUSES) || ((accepted == 0) && (content < 100 * REUSES)); ++content) {
        for (i = 0; i < WORDS; ++i) {
            atomic_store_explicit(&bytes[i], content, memory_order_relaxed);
        }
        key = test_key(content);
        ck_assert_int_eq(kvcl_slots_publish(&slots, slot, &key, 0, WORDS, content, &loc), KVCL_OK);
        atomic_store_explicit(&published, ((uint64_t)loc.gen << 32) | content, memory_order_release);
        ck_assert_int_eq(kvcl_slots_withdraw(&slots, slot, KVCL_SLOT_FILLING), KVCL_OK);
    }
    stop = 1;
    pthread_join(reader, NULL);
    ck_assert_int_eq(failures, 0);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("dir_race");
    TCase   *tc    = tcase_create("race");
    SRunner *runner;
    int      failed;

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, readers_never_see_half_a_write);
    tcase_add_test(tc, an_equal_generation_word_means_the_bytes_are_that_block);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
