/*
 * The segment log against crashes: 100,000 of them, each at any point of the stream of writes, with any of the sectors
 * not covered by a sync. After each: a block that is found has the bytes of some version put under its key, never
 * others, and is not older than the version a flush acknowledged, unless that was evicted. The log then continues from
 * there.
 */
#include "config.h"

#include "test_base.h"
#include "tier_disk.h"

enum { KEYS = 24, HISTORY = 4096, CRASHES = 100000, CHUNK = 4096, CHUNKS = 6, LEN_MAX = 9000 };

typedef struct event {
    uint64_t version; /* 0: a drop */
    uint64_t ticket, checksum;
    uint32_t len;
    bool     evicted;
} event_t;

static struct {
    kvcl_seg_super_t super;
    disk_t           disk;
    kvcl_seglog_t    log;
    uint8_t          *staging, *scratch;
    uint8_t          keys[KEYS][KVCL_SEG_KEY];
    kvcl_rand_t      rnd;
    event_t          history[KEYS][64]; /* since the last start; [0] is the state found by the start */
    unsigned         n[KEYS];
    uint64_t         next_version;
    uint64_t         found, acked, evicted, torn;
} t;

static void start(void)
{
    uint32_t scanned;

    MUST(kvcl_seglog_init(&t.log, &t.super, (uint32_t)kvcl_rand_next(&t.rnd), t.staging, CHUNKS, CHUNK) == KVCL_OK);
    MUST(kvcl_seglog_recover(&t.log, disk_read, &t.disk, t.scratch, &scanned) == KVCL_OK);
    MUST(kvcl_seglog_check(&t.log));
}

static unsigned which(const uint8_t *key)
{
    unsigned k;

    for (k = 0; k < KEYS; ++k) {
        if (memcmp(t.keys[k], key, KVCL_SEG_KEY) == 0) {
            return k;
        }
    }
    ck_abort_msg("a key that nobody put");
    return 0;
}

/* Record the log's evictions, also where a later version that may not outlive a crash had replaced the evicted one. */
static void take_evicted(void)
{
    static const uint8_t   aborted[KVCL_SEG_KEY]; /* the key of such a record */
    kvcl_seglog_evicted_t *evicted;
    uint32_t           i;
    unsigned           e;

    while ((evicted = t.log.evicted) != NULL) {
        for (i = 0; i < evicted->n; ++i) {
            unsigned k;

            if (memcmp(evicted->recs[i].key, aborted, KVCL_SEG_KEY) == 0) {
                continue;
            }
            k = which(evicted->recs[i].key);
            for (e = 0; e < t.n[k]; ++e) {
                event_t *event = &t.history[k][e];

                if ((event->len == evicted->recs[i].len) && (event->checksum == evicted->recs[i].checksum)) {
                    event->evicted = true;
                    ++t.evicted;
                }
            }
        }
        t.log.evicted = evicted->next;
        free(evicted->recs);
        free(evicted);
    }
}

static void put(unsigned k)
{
    uint32_t          len = 1 + (uint32_t)kvcl_rand_below(&t.rnd, kvcl_rand_below(&t.rnd, 8) ? 700 : LEN_MAX);
    uint8_t           buf[LEN_MAX];
    uint64_t          version = t.next_version++;
    uint64_t          checksum;
    bool              late = kvcl_rand_below(&t.rnd, 2) != 0; /* the checksum comes with the bytes */
    kvcl_seglog_put_t place;
    kvcl_status_t     status;

    disk_fill(version, buf, len);
    checksum = kvcl_checksum(buf, len);
    status   = kvcl_seglog_reserve(&t.log, t.keys[k], len, late ? 0 : checksum, &place);
    take_evicted();
    if (status == KVCL_OK) {
        disk_copy_in(&place, buf);
        place.loc.checksum = checksum;
        if (late && (kvcl_rand_below(&t.rnd, 8) == 0)) {
            kvcl_seglog_abort(&t.log, &place); /* it must not be found, not by a scan either */
            return;
        }
        kvcl_seglog_commit(&t.log, &place);
        t.history[k][t.n[k]++] =
                (event_t){.version = version, .ticket = place.ticket, .checksum = checksum, .len = len};
    } else {
        MUST(status == KVCL_ERR_BUSY);
    }
}

static void drop(unsigned k)
{
    uint64_t      ticket;
    kvcl_status_t status = kvcl_seglog_drop(&t.log, t.keys[k], &ticket);

    take_evicted();
    if (status == KVCL_OK) {
        t.history[k][t.n[k]++] = (event_t){.ticket = ticket};
    }
}

/* The version that the log and the disk return for a key: 0 for none. */
static uint64_t version_of(unsigned k, event_t *e)
{
    uint8_t         want[LEN_MAX];
    kvcl_tier_loc_t loc;
    const uint8_t   *have;
    unsigned        i;

    if (kvcl_seglog_find(&t.log, t.keys[k], &loc) != KVCL_OK) {
        return 0;
    }
    MUST(loc.len <= LEN_MAX);
    have = t.disk.image + kvcl_seg_base(&t.super, loc.segment) + (uint64_t)loc.unit * KVCL_SEG_UNIT;
    if (kvcl_checksum(have, loc.len) != loc.checksum) {
        ++t.torn; /* a miss, as in tier_read */
        return 0;
    }
    for (i = 0; i < t.n[k]; ++i) {
        if ((t.history[k][i].version == 0) || (t.history[k][i].len != loc.len)) {
            continue;
        }
        disk_fill(t.history[k][i].version, want, loc.len);
        if (memcmp(have, want, loc.len) == 0) {
            e->len      = loc.len;
            e->checksum = loc.checksum;
            e->version  = t.history[k][i].version;
            return t.history[k][i].version;
        }
    }
    ck_abort_msg("wrong bytes: key %u has what was never put since the start", k);
    return 0;
}

/* The version found by a start is at least the last one acknowledged, in the order of events. */
static void judge(unsigned k, uint64_t durable, uint64_t found)
{
    unsigned i, acked = 0;
    bool     may_miss;

    for (i = 0; i < t.n[k]; ++i) {
        acked = (t.history[k][i].ticket <= durable) ? i : acked;
    }
    may_miss = false;
    for (i = acked; i < t.n[k]; ++i) {
        if ((found != 0) && (t.history[k][i].version == found)) {
            ++t.found;
            return;
        }
        may_miss = may_miss || (t.history[k][i].version == 0) || t.history[k][i].evicted;
    }
    if (found != 0) {
        ck_abort_msg("key %u: an older version than the one acknowledged", k);
    }
    if (!may_miss) {
        ck_abort_msg("key %u: an acknowledged block is gone", k);
    }
}

static void crash(void)
{
    static const unsigned kept[] = {0, 10, 50, 90, 99, 100};
    uint64_t              durable = t.log.durable, found;
    event_t               now;
    unsigned              k;

    disk_crash(&t.disk, &t.rnd, kept[kvcl_rand_below(&t.rnd, 6)]);
    kvcl_seglog_fini(&t.log);
    start();
    for (k = 0; k < KEYS; ++k) {
        now   = (event_t){.ticket = 0};
        found = version_of(k, &now);
        judge(k, durable, found);
        t.acked        += t.history[k][0].version != 0;
        t.history[k][0] = now;
        t.n[k]          = 1;
        if (found == 0) { /* torn in a place that was being rewritten: forgotten by its first read */
            kvcl_tier_loc_t loc;

            if (kvcl_seglog_find(&t.log, t.keys[k], &loc) == KVCL_OK) {
                kvcl_seglog_forget(&t.log, t.keys[k], &loc);
                t.history[k][0].evicted = true;
            }
        }
    }
}

static void step(void)
{
    unsigned k = (unsigned)kvcl_rand_below(&t.rnd, KEYS), what = (unsigned)kvcl_rand_below(&t.rnd, 100);

    if ((what < 40) && (t.n[k] < 60)) {
        put(k);
    } else if ((what < 45) && (t.n[k] < 60)) {
        drop(k);
    } else if (what < 52) {
        (void)kvcl_seglog_flush(&t.log);
    } else if (what < 54) {
        kvcl_seglog_seal(&t.log);
    } else {
        disk_take(&t.disk, &t.log);
        (void)disk_step(&t.disk, &t.log, &t.rnd);
    }
}

START_TEST(no_crash_gives_wrong_bytes_or_loses_what_was_acknowledged)
{
    unsigned i, steps, k;

    test_seed(&t.rnd);
    ck_assert_int_eq(kvcl_seg_divide(KVCL_SEG_HEAD + 5 * 24 * 1024, 24 * 1024, &t.super), KVCL_OK);
    t.super.id     = kvcl_rand_next(&t.rnd);
    t.next_version = 1;
    t.staging      = aligned_alloc(KVCL_SEG_ALIGN, CHUNKS * CHUNK);
    t.scratch      = aligned_alloc(KVCL_SEG_ALIGN, KVCL_SEGLOG_SCRATCH);
    disk_open(&t.disk, KVCL_SEG_HEAD + t.super.n * t.super.segment);
    disk_format(&t.disk, &t.super);
    for (k = 0; k < KEYS; ++k) {
        disk_key(k, t.keys[k]);
        t.n[k] = 1; /* nothing */
    }
    start();
    for (i = 0; i < CRASHES; ++i) {
        steps = (unsigned)kvcl_rand_below(&t.rnd, (i % 16 == 0) ? 400 : 60);
        while (steps-- > 0) {
            step();
        }
        if (i % 64 == 0) {
            ck_assert(kvcl_seglog_check(&t.log));
        }
        crash();
    }
    printf("%u crashes: %llu blocks found, %llu torn and refused, %llu evicted, %llu carried over\n", i,
           (unsigned long long)t.found, (unsigned long long)t.torn, (unsigned long long)t.evicted,
           (unsigned long long)t.acked);
    ck_assert_uint_gt(t.found, CRASHES);
    kvcl_seglog_fini(&t.log);
    disk_close(&t.disk);
    free(t.staging);
    free(t.scratch);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier_crash");
    TCase *tc    = tcase_create("crash");

    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, no_crash_gives_wrong_bytes_or_loses_what_was_acknowledged);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
