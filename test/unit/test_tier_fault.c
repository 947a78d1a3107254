/*
 * The tier over files that fail. Whatever the disk does, bytes that a read returns with OK are the block's own, every
 * callback runs, and a refused write causes one warning.
 */
#include "config.h"

#include "tier_scene.h"

/* Any fault, reads or writes, every 3rd or 17th: reads with OK return the right bytes, and every callback runs. */
START_TEST(faults_never_make_wrong_bytes)
{
    const kvcl_tio_ops_t *way   = ways[_i / (2 * FAULT_KINDS)];
    int                  kind   = _i / 2 % FAULT_KINDS;
    unsigned             every  = (_i % 2) ? 3 : 17, i, good = 0, round;
    kvcl_tier_t          *tier;
    kvcl_tier_stats_t    stats;

    if (!can(way)) {
        return;
    }
    for (round = 0; round < 3; ++round) { /* faults of reads, of writes, of both */
        tier = open_tier(way);
        for (i = 0; i < 4; ++i) {
            fault.kind[i]  = (i == KVCL_TIO_SYNC) ? FAULT_EIO : kind;
            fault.every[i] = 0;
        }
        fault.every[KVCL_TIO_READ]  = (round != 1) ? every : 0;
        fault.every[KVCL_TIO_WRITE] = (round != 0) ? every : 0;
        fault.every[KVCL_TIO_SYNC]  = ((round == 2) && (kind == FAULT_EIO)) ? every : 0;
        for (i = 0; i < 250; ++i) {
            unsigned      pick   = 1000 * round + (unsigned)kvcl_rand_below(&rnd, 150);
            kvcl_status_t status = (i % 3 != 0) ? read_back(tier, pick, (i % 2) * 8, 1)
                                                : append(tier, pick, NULL, NULL);

            good += (i % 3 != 0) && (status == KVCL_OK);
            ck_assert(status != KVCL_ERR_BUSY);
            if (i % 50 == 49) {
                (void)flush(tier);
            }
        }
        kvcl_tier_stats(tier, &stats);
        if ((round == 1) && ((kind == FAULT_EIO) || (kind == FAULT_ENOSPC) || (kind == FAULT_TORN))) {
            ck_assert(stats.off);
        }
        if ((round == 1) && ((kind == FAULT_NONE) || (kind == FAULT_SHORT))) {
            ck_assert(!stats.off || (kind == FAULT_SHORT));
        }
        memset(&fault.every, 0, sizeof(fault.every));
        kvcl_tier_close(tier);
    }
    ck_assert_uint_gt(good, 0);
    tier = open_tier(way); /* the state of the disk after the faults */
    for (round = 0; round < 3; ++round) {
        for (i = 0; i < 150; ++i) {
            (void)read_back(tier, 1000 * round + i, 0, 1);
        }
    }
    kvcl_tier_close(tier);
}
END_TEST

START_TEST(a_disk_that_refuses_a_write_is_one_warning_and_no_more_blocks)
{
    kvcl_tier_t *tier;
    wait_for_t  w = WAIT_FOR(30);
    unsigned    i, refused = 0, warned;

    if (!can(ways[_i])) {
        return;
    }
    tier   = open_tier(ways[_i]);
    warned = n_warned;
    for (i = 0; i < 10; ++i) {
        ck_assert_int_eq(append(tier, i, NULL, NULL), KVCL_OK);
    }
    ck_assert_int_eq(flush(tier), KVCL_OK);
    fault.kind[KVCL_TIO_WRITE]  = FAULT_ENOSPC;
    fault.every[KVCL_TIO_WRITE] = 1;
    for (i = 10; i < 40; ++i) {
        if (append(tier, i, done, &w) != KVCL_OK) {
            ++refused;
            done(&w, KVCL_OK);
        }
    }
    ck_assert_int_eq(flush(tier), KVCL_ERR_IO);
    ck_assert_int_eq(wait_all(&w), KVCL_ERR_IO);
    ck_assert_int_eq(append(tier, 41, NULL, NULL), KVCL_ERR_IO);
    ck_assert_uint_gt(refused, 0);
    ck_assert_uint_eq(n_warned, warned + 1);
    for (i = 0; i < 10; ++i) {
        ck_assert_int_eq(read_back(tier, i, 0, 1), KVCL_OK);
    }
    kvcl_tier_close(tier);
}
END_TEST

START_TEST(a_flipped_byte_costs_its_block)
{
    kvcl_tier_t     *tier = open_tier(ways[0]);
    kvcl_tier_loc_t loc;
    uint8_t         key[KVCL_SEG_KEY], byte;
    unsigned        i;
    int             fd;
    off_t           at;

    for (i = 0; i < 12; ++i) {
        ck_assert_int_eq(append(tier, i, NULL, NULL), KVCL_OK);
    }
    key_of(5, key);
    ck_assert_int_eq(kvcl_tier_find(tier, key, &loc), KVCL_OK);
    kvcl_tier_close(tier);
    fd = open(path, O_RDWR);
    at = (off_t)(KVCL_SEG_HEAD + (uint64_t)loc.segment * SEGMENT + (uint64_t)loc.unit * KVCL_SEG_UNIT +
                 kvcl_rand_below(&rnd, loc.len));
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    byte = 0xff;
    ck_assert_int_eq(pwrite(fd, &byte, 1, 9), 1); /* in the first super block: the second is used */
    close(fd);
    tier = open_tier(ways[0]);
    for (i = 0; i < 12; ++i) {
        ck_assert_int_eq(read_back(tier, i, 0, 1), (i == 5) ? KVCL_ERR_IO : KVCL_OK);
        ck_assert_int_eq(read_back(tier, i, 0, 1), (i == 5) ? KVCL_ERR_NOT_FOUND : KVCL_OK);
    }
    kvcl_tier_close(tier);
}
END_TEST

typedef struct churner {
    kvcl_tier_t *tier;
    kvcl_rand_t rnd;
    pthread_t   thread;
} churner_t;

static void *churn(void *arg)
{
    enum { TURNS = 600 };
    churner_t *me = arg;
    uint8_t   key[KVCL_SEG_KEY];
    unsigned  i, turn;

    for (turn = 0; turn < TURNS; ++turn) {
        i = (unsigned)kvcl_rand_below(&me->rnd, 300);
        switch (kvcl_rand_below(&me->rnd, 8)) {
        case 0:
            key_of(i, key);
            (void)!kvcl_tier_drop(me->tier, key);
            break;
        case 1:
            (void)flush(me->tier);
            break;
        case 2:
        case 3:
            (void)append(me->tier, i, NULL, NULL);
            break;
        default:
            (void)read_back(me->tier, i, 512 * (i % 2), 1 + i % 3);
            break;
        }
    }
    return NULL;
}

START_TEST(threads_together_see_only_right_bytes)
{
    churner_t   churners[4];
    kvcl_tier_t *tier;
    unsigned    i;

    if (!can(ways[_i])) {
        return;
    }
    tier = open_tier(ways[_i]);
    for (i = 0; i < 4; ++i) {
        churners[i].tier = tier;
        kvcl_rand_seed(&churners[i].rnd, kvcl_rand_next(&rnd));
        ck_assert_int_eq(pthread_create(&churners[i].thread, NULL, churn, &churners[i]), 0);
    }
    for (i = 0; i < 4; ++i) {
        pthread_join(churners[i].thread, NULL);
    }
    kvcl_tier_close(tier);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier_fault");
    TCase *tc    = tcase_create("tier");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, faults_never_make_wrong_bytes, 0, 2 * 2 * FAULT_KINDS);
    tcase_add_loop_test(tc, a_disk_that_refuses_a_write_is_one_warning_and_no_more_blocks, 0, 2);
    tcase_add_test(tc, a_flipped_byte_costs_its_block);
    tcase_add_loop_test(tc, threads_together_see_only_right_bytes, 0, 2);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
