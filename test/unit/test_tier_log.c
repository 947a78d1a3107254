/*
 * The segment log by itself: staging, tickets, reuse in order, and every bit of the disk flipped, one at a time.
 */
#include "config.h"

#include "test_base.h"
#include "tier_disk.h"

enum { CHUNK = 4096, CHUNKS = 8, SEGMENT = 24 * 1024, LEN = 2000 };

static kvcl_seg_super_t super;
static kvcl_seglog_t    log_;
static disk_t           disk;
static uint8_t          *staging, *scratch;
static kvcl_rand_t      rnd;

static void begin(void)
{
    uint32_t scanned;

    MUST(kvcl_seglog_init(&log_, &super, (uint32_t)kvcl_rand_next(&rnd), staging, CHUNKS, CHUNK) == KVCL_OK);
    MUST(kvcl_seglog_recover(&log_, disk_read, &disk, scratch, &scanned) == KVCL_OK);
    MUST(kvcl_seglog_check(&log_));
}

static void setup(void)
{
    test_seed(&rnd);
    ck_assert_int_eq(kvcl_seg_divide(KVCL_SEG_HEAD + 4 * SEGMENT, SEGMENT, &super), KVCL_OK);
    ck_assert_uint_eq(super.n, 4);
    super.id = kvcl_rand_next(&rnd);
    staging  = aligned_alloc(KVCL_SEG_ALIGN, CHUNKS * CHUNK);
    scratch  = aligned_alloc(KVCL_SEG_ALIGN, KVCL_SEGLOG_SCRATCH);
    disk_open(&disk, KVCL_SEG_HEAD + super.n * super.segment);
    disk_format(&disk, &super);
    begin();
}

static void teardown(void)
{
    kvcl_seglog_fini(&log_);
    disk_close(&disk);
    free(staging);
    free(scratch);
}

static kvcl_status_t put(unsigned k, uint64_t version, kvcl_seglog_put_t *place)
{
    uint8_t       key[KVCL_SEG_KEY], buf[LEN];
    kvcl_status_t status;

    disk_key(k, key);
    disk_fill(version, buf, LEN);
    status = kvcl_seglog_reserve(&log_, key, LEN, kvcl_checksum(buf, LEN), place);
    if (status == KVCL_OK) {
        disk_copy_in(place, buf);
        kvcl_seglog_commit(&log_, place);
    }
    return status;
}

static void drain(void)
{
    do {
        disk_take(&disk, &log_);
    } while (disk_step(&disk, &log_, &rnd));
}

static void put_all(unsigned from, unsigned n)
{
    kvcl_seglog_put_t place;
    unsigned          i;

    for (i = from; i < from + n; ++i) {
        while (put(i, i, &place) != KVCL_OK) {
            drain();
        }
    }
    (void)kvcl_seglog_flush(&log_);
    drain();
}

/* Whether key k is found and its bytes on the disk are version k's: 1; 0: a miss. Any other result fails the test. */
static int good(unsigned k)
{
    uint8_t         key[KVCL_SEG_KEY], want[LEN];
    kvcl_tier_loc_t loc;
    const uint8_t   *have;

    disk_key(k, key);
    if (kvcl_seglog_find(&log_, key, &loc) != KVCL_OK) {
        return 0;
    }
    MUST((uint64_t)loc.unit * KVCL_SEG_UNIT + loc.len <= super.segment);
    have = disk.image + kvcl_seg_base(&super, loc.segment) + (uint64_t)loc.unit * KVCL_SEG_UNIT;
    if (kvcl_checksum(have, loc.len) != loc.checksum) {
        return 0;
    }
    disk_fill(k, want, LEN);
    MUST(loc.len == LEN);
    if (memcmp(have, want, LEN) != 0) {
        ck_abort_msg("wrong bytes of key %u", k);
    }
    return 1;
}

START_TEST(a_ticket_is_durable_after_a_sync_that_followed_its_writes)
{
    kvcl_seglog_put_t place;
    uint64_t          ticket, len = 10;
    uint8_t           want[LEN];
    const uint8_t     *bytes;

    ck_assert_int_eq(put(1, 1, &place), KVCL_OK);
    disk_fill(1, want, LEN);
    bytes = kvcl_seglog_staged(&log_, place.loc.segment, (uint64_t)place.loc.unit * KVCL_SEG_UNIT, &len);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_eq(memcmp(bytes, want, 10), 0);
    drain();
    ck_assert_uint_lt(log_.written, place.ticket); /* its chunk is not full */
    ticket = kvcl_seglog_flush(&log_);
    ck_assert_uint_ge(ticket, place.ticket);
    disk_take(&disk, &log_);
    ck_assert_uint_lt(log_.durable, ticket);
    drain();
    ck_assert_uint_ge(log_.durable, ticket);
    ck_assert(kvcl_seglog_idle(&log_));
    len = 10;
    ck_assert_ptr_null(kvcl_seglog_staged(&log_, place.loc.segment, (uint64_t)place.loc.unit * KVCL_SEG_UNIT, &len));
    ck_assert_uint_eq(len, 10);
}
END_TEST

START_TEST(without_writes_ending_it_is_busy_and_changes_nothing)
{
    kvcl_seglog_put_t place;
    unsigned          i, n;

    for (n = 0; put(n, n, &place) == KVCL_OK; ++n) {
    }
    ck_assert_uint_ge(n, 10);
    ck_assert_int_eq(put(n, n, &place), KVCL_ERR_BUSY);
    ck_assert(kvcl_seglog_check(&log_));
    (void)kvcl_seglog_flush(&log_);
    drain();
    for (i = 0; i < n; ++i) {
        ck_assert_int_eq(good(i), 1);
    }
    ck_assert_int_eq(put(n, n, &place), KVCL_OK);
}
END_TEST

START_TEST(the_oldest_segment_is_used_again_and_its_keys_are_gone)
{
    unsigned i, held = 0;

    put_all(0, 200);
    ck_assert(kvcl_seglog_check(&log_));
    for (i = 0; i < 200; ++i) {
        ck_assert(good(i) || (held == 0)); /* none is evicted before an earlier one */
        held += (unsigned)good(i);
    }
    ck_assert_uint_ge(held, 20);
    ck_assert_ptr_nonnull(log_.evicted);
}
END_TEST

START_TEST(a_key_that_comes_again_replaces_what_was_there_and_a_drop_holds)
{
    kvcl_seglog_put_t first, second;
    kvcl_tier_loc_t   loc;
    uint8_t           key[KVCL_SEG_KEY];
    uint64_t          ticket;

    disk_key(3, key);
    ck_assert_int_eq(put(3, 100, &first), KVCL_OK);
    ck_assert_int_eq(put(3, 3, &second), KVCL_OK);
    ck_assert(!kvcl_seglog_holds(&log_, key, &first.loc));
    ck_assert(kvcl_seglog_holds(&log_, key, &second.loc));
    put_all(10, 3);
    kvcl_seglog_fini(&log_);
    begin();
    ck_assert_int_eq(good(3), 1);
    ck_assert_int_eq(kvcl_seglog_drop(&log_, key, &ticket), KVCL_OK);
    ck_assert_int_eq(kvcl_seglog_drop(&log_, key, &ticket), KVCL_ERR_NOT_FOUND);
    (void)kvcl_seglog_flush(&log_);
    drain();
    kvcl_seglog_fini(&log_);
    begin();
    ck_assert_int_eq(kvcl_seglog_find(&log_, key, &loc), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(good(11), 1);
}
END_TEST

START_TEST(after_a_failed_write_it_is_off)
{
    kvcl_seglog_put_t place;
    kvcl_seglog_io_t  io;
    uint64_t          ticket;

    ck_assert_int_eq(put(1, 1, &place), KVCL_OK);
    ticket = kvcl_seglog_flush(&log_);
    ck_assert(kvcl_seglog_next(&log_, &io));
    kvcl_seglog_done(&log_, &io, false);
    ck_assert(log_.off);
    ck_assert(!kvcl_seglog_next(&log_, &io));
    ck_assert_uint_lt(log_.durable, ticket);
    ck_assert_int_eq(put(2, 2, &place), KVCL_ERR_IO);
}
END_TEST

/* Flip one bit of the disk: at most one block is lost, none is wrong. Bytes other than data are tried bit by bit. */
static void flip(uint64_t at, unsigned bit, unsigned from, unsigned n, uint64_t *worst)
{
    unsigned i, lost = 0;

    disk.image[at] ^= (uint8_t)(1u << bit);
    kvcl_seglog_fini(&log_);
    begin();
    for (i = from; i < from + n; ++i) {
        lost += !good(i);
    }
    disk.image[at] ^= (uint8_t)(1u << bit);
    *worst = (lost > *worst) ? lost : *worst;
    if (lost > 1) {
        ck_abort_msg("a flip of bit %u at %llu costs %u blocks", bit, (unsigned long long)at, lost);
    }
}

START_TEST(a_flipped_bit_costs_at_most_its_block)
{
    const uint64_t size = super.segment;
    unsigned       held = 0, from = 0, i, bit;
    uint64_t       at, worst = 0, flips = 0;
    uint32_t       segment;

    put_all(0, (_i == 0) ? 25 : 60); /* half of a file's first turn; or turned over, the last segment open */
    for (i = 0; i < 60; ++i) {
        from  = (good(i) && (held == 0)) ? i : from;
        held += (unsigned)good(i);
    }
    disk_crash(&disk, &rnd, 100);
    for (segment = 0; segment < super.n; ++segment) {
        for (at = 0; at < size; ++at) {
            bool fields = (disk.image[kvcl_seg_base(&super, segment) + at] != 0) &&
                          ((at >= size - 2 * KVCL_SEG_ALIGN) || (at % (LEN + 112) < 2 * KVCL_SEG_UNIT));

            for (bit = (unsigned)(at % 8); bit < 8; bit += fields ? 1 : 8) {
                if (fields || (at % 61 == 0)) {
                    flip(kvcl_seg_base(&super, segment) + at, bit, from, held, &worst);
                    ++flips;
                }
            }
        }
    }
    printf("%llu flips, %u blocks, at most %llu lost\n", (unsigned long long)flips, held, (unsigned long long)worst);
    ck_assert_uint_eq(worst, 1);
}
END_TEST

START_TEST(both_super_blocks_say_the_same_and_a_flip_is_seen)
{
    uint8_t          block[KVCL_SEG_ALIGN];
    kvcl_seg_super_t have;
    unsigned         i;

    kvcl_seg_super_put(&super, block);
    ck_assert(kvcl_seg_super_get(block, &have));
    ck_assert_uint_eq(have.id, super.id);
    ck_assert_uint_eq(have.n, super.n);
    ck_assert_uint_eq(have.segment, super.segment);
    for (i = 0; i < 48 * 8; ++i) {
        block[i / 8] ^= (uint8_t)(1u << (i % 8));
        ck_assert(!kvcl_seg_super_get(block, &have));
        block[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier_log");
    TCase *tc    = tcase_create("log");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_ticket_is_durable_after_a_sync_that_followed_its_writes);
    tcase_add_test(tc, without_writes_ending_it_is_busy_and_changes_nothing);
    tcase_add_test(tc, the_oldest_segment_is_used_again_and_its_keys_are_gone);
    tcase_add_test(tc, a_key_that_comes_again_replaces_what_was_there_and_a_drop_holds);
    tcase_add_test(tc, after_a_failed_write_it_is_off);
    tcase_add_loop_test(tc, a_flipped_bit_costs_at_most_its_block, 0, 2);
    tcase_add_test(tc, both_super_blocks_say_the_same_and_a_flip_is_seen);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
