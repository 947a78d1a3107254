/*
 * Files that an enemy wrote: thousands of changed tier files are opened, read, written and closed. None crashes the
 * process, none returns other bytes than its checksum covers, and no other file changes. The scan of a crafted segment
 * reads a bounded number of bytes.
 *
 * In a file with a key every block that is read has the bytes that were put: forged checksums do not help.
 *
 * HOSTILE_ROUNDS sets the number of files without a key, and as many with one (default 300); TEST_RING=night: 5,000, so
 * that there are 10,000 in all. At night they are in shared memory: a disk that other work keeps busy would need
 * minutes for their syncs.
 * TEST_TIMEOUT: 1200
 */
#include "config.h"

#include "base/log.h"
#include "test_base.h"
#include "tier/tier.h"
#include "tier_disk.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 4096, CHUNKS = 8, SEGMENT = 64 * 1024, N_SEGMENTS = 6, LEN_MAX = 9000, N_BLOCKS = 60, EDITS_MAX = 12 };

#define FILE_BYTES (KVCL_SEG_HEAD + (uint64_t)N_SEGMENTS * SEGMENT)

static kvcl_rand_t rnd;
static char        dir[48], path[64], foreign[64];
static uint8_t     images[2][2][FILE_BYTES]; /* with a key: closed; flushed and not closed */
static uint8_t     image[FILE_BYTES];         /* the changed one */
static unsigned    n_read, n_refused;
static bool        keyed;
static bool        night;
static const kvcl_tier_key_t file_key = {{1, 2, 3}};

static void quiet(void *arg, kvcl_log_level_t level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

static uint32_t len_of(unsigned i)
{
    uint64_t state = i;

    return 1 + (uint32_t)(kvcl_splitmix64(&state) % LEN_MAX);
}

/* ---- the tier, one call at a time ---- */

typedef struct wait_for {
    pthread_mutex_t lock;
    pthread_cond_t  cond;
    bool            over;
    kvcl_status_t   status;
} wait_for_t;

static void done(void *arg, kvcl_status_t status)
{
    wait_for_t *w = arg;

    pthread_mutex_lock(&w->lock);
    w->status = status;
    w->over   = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static kvcl_status_t await(wait_for_t *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->over) {
        pthread_cond_wait(&w->cond, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return w->status;
}

static kvcl_status_t open_tier(kvcl_tier_t **tier_p)
{
    kvcl_tier_params_t params = {.path = path, .size = FILE_BYTES, .segment = SEGMENT, .chunk = 16 * 1024,
                                 .staging = 128 * 1024, .depth = 2, .io = &kvcl_tio_threads,
                                 .key = keyed ? &file_key : NULL};

    return kvcl_tier_open(&params, tier_p);
}

static void append(kvcl_tier_t *tier, unsigned i)
{
    uint8_t       key[KVCL_SEG_KEY], buf[LEN_MAX];
    size_t        len = len_of(i);
    kvcl_status_t status;

    disk_key(i, key);
    disk_fill(i, buf, len);
    do {
        status = kvcl_tier_append(tier, key, kvcl_checksum(buf, len), buf, len, NULL, NULL, NULL);
    } while ((status == KVCL_ERR_BUSY) && (usleep(100) == 0));
    MUST((status == KVCL_OK) || (status == KVCL_ERR_EXISTS) || (status == KVCL_ERR_IO));
}

static kvcl_status_t flush(kvcl_tier_t *tier)
{
    wait_for_t w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

    MUST(kvcl_tier_flush(tier, done, &w) == KVCL_OK);
    return await(&w);
}

/* A block that is found has the bytes that its checksum covers; one with the checksum that was put has those bytes. */
static void check_block(kvcl_tier_t *tier, unsigned i)
{
    static uint8_t  buf[SEGMENT], want[LEN_MAX];
    wait_for_t      w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    uint8_t         key[KVCL_SEG_KEY];
    kvcl_tier_loc_t loc;
    struct iovec    iov;

    disk_key(i, key);
    if (kvcl_tier_find(tier, key, &loc) != KVCL_OK) {
        return;
    }
    MUST(loc.len <= sizeof(buf));
    iov = (struct iovec){buf, loc.len};
    if ((kvcl_tier_read(tier, key, &loc, &iov, 1, done, &w) != KVCL_OK) || (await(&w) != KVCL_OK)) {
        ++n_refused;
        return;
    }
    ++n_read;
    MUST(kvcl_checksum(buf, loc.len) == loc.checksum);
    disk_fill(i, want, len_of(i));
    if (keyed || ((loc.len == len_of(i)) && (loc.checksum == kvcl_checksum(want, loc.len)))) {
        MUST((loc.len == len_of(i)) && (memcmp(buf, want, loc.len) == 0));
    }
}

/* ---- files ---- */

static void load(const char *name, uint8_t *to)
{
    int fd = open(name, O_RDONLY);

    MUST(fd >= 0);
    MUST(pread(fd, to, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
    close(fd);
}

static void save(const uint8_t *from, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    MUST(fd >= 0);
    MUST(pwrite(fd, from, len, 0) == (ssize_t)len);
    close(fd);
}

static void check_foreign(void)
{
    char        text[32] = "";
    struct stat st;
    int         fd = open(foreign, O_RDONLY);

    MUST((fd >= 0) && (fstat(fd, &st) == 0) && (st.st_size == 9) && ((st.st_mode & 07777) == 0640));
    MUST((read(fd, text, sizeof(text) - 1) == 9) && (strcmp(text, "my thesis") == 0));
    close(fd);
}

static void setup(void)
{
    kvcl_tier_t *tier;
    unsigned    i;
    int         fd;

    snprintf(dir, sizeof(dir), "%stest_tier_hostile.XXXXXX", night ? "/dev/shm/" : "");
    n_read    = 0;
    n_refused = 0;
    test_seed(&rnd);
    kvcl_log_set_handler(quiet, NULL);
    MUST(mkdtemp(dir) != NULL);
    snprintf(path, sizeof(path), "%s/tier", dir);
    snprintf(foreign, sizeof(foreign), "%s/foreign", dir);
    fd = open(foreign, O_WRONLY | O_CREAT, 0640);
    MUST((fd >= 0) && (fchmod(fd, 0640) == 0) && (write(fd, "my thesis", 9) == 9));
    close(fd);
    for (i = 0; i < 2; ++i) {
        unsigned k;

        keyed = i == 1;
        MUST(open_tier(&tier) == KVCL_OK);
        for (k = 0; k < N_BLOCKS; ++k) {
            append(tier, k);
        }
        MUST(flush(tier) == KVCL_OK);
        load(path, images[i][1]);
        kvcl_tier_close(tier);
        load(path, images[i][0]);
        unlink(path);
    }
}

static void teardown(void)
{
    unlink(path);
    unlink(foreign);
    rmdir(dir);
    kvcl_log_set_handler(NULL, NULL);
}

/* ---- changes ---- */

static uint32_t below(uint64_t n)
{
    return (uint32_t)kvcl_rand_below(&rnd, n);
}

static kvcl_seg_rec_t any_record(void)
{
    kvcl_seg_rec_t rec = {.checksum = (below(4) == 0) ? 0 : kvcl_rand_next(&rnd), .unit = below(SEGMENT / 64 + 2),
                          .len = (below(3) == 0) ? 0 : 1u << below(18)};
    uint8_t        want[LEN_MAX];
    unsigned       i = below(N_BLOCKS);

    disk_key(i, rec.key);
    if (below(2) == 0) { /* the block's own checksum, at another place */
        disk_fill(i, want, len_of(i));
        rec.len      = len_of(i);
        rec.checksum = kvcl_checksum(want, rec.len);
    }
    return rec;
}

/* What a log would write, with checks that fit, and contents that it would not write. */
static void forge(const kvcl_seg_super_t *super, uint32_t segment, uint8_t *base)
{
    kvcl_seg_use_t     use     = {.seq = 1 + below(8), .life = below(2)};
    kvcl_seg_trailer_t trailer = {.kind = (kvcl_seg_kind_t)(1 + below(3)), .use = use, .n = below(40)};
    kvcl_seg_rec_t     recs[64], rec = any_record();
    uint8_t            footer[4 * KVCL_SEG_ALIGN];
    uint64_t           bytes;
    unsigned           i;

    switch (below(3)) {
    case 0:
        rec.unit = 1 + below(SEGMENT / 64 - 1);
        kvcl_seg_header_put(super, segment, use, &rec, base + (size_t)(rec.unit - 1) * KVCL_SEG_UNIT);
        return;
    case 1:
        for (i = 0; i < trailer.n; ++i) {
            recs[i] = any_record();
            if ((i > 0) && (below(8) > 0)) {
                recs[i].unit = (recs[i - 1].unit & 0xffff) + 1 + below(20);
                recs[i].len  = below(900);
            }
        }
        kvcl_seg_footer_put(super, segment, use, recs, trailer.n, footer, &bytes);
        memcpy(base + SEGMENT - bytes, footer, bytes);
        return;
    default:
        trailer.sum = kvcl_rand_next(&rnd);
        if (below(8) == 0) {
            trailer.n = UINT32_MAX - below(100);
        }
        kvcl_seg_trailer_put(super, segment, &trailer, base + SEGMENT - KVCL_SEG_UNIT);
        return;
    }
}

static void edit(void)
{
    kvcl_seg_super_t super;
    uint32_t         segment = below(N_SEGMENTS), len, from, to;

    if (!kvcl_seg_super_get(image, &super)) {
        MUST(kvcl_seg_super_get(images[keyed][0], &super));
    }
    switch (below(8)) {
    case 0:
        image[below(FILE_BYTES)] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        image[KVCL_SEG_HEAD + (uint64_t)(segment + 1) * SEGMENT - 1 - below(5000)] ^= (uint8_t)(1u << below(8));
        break;
    case 2:
        for (from = below(FILE_BYTES - 4096), len = below(4096); len > 0; --len) {
            image[from + len] = (uint8_t)kvcl_rand_next(&rnd);
        }
        break;
    case 3:
        len  = 64u << below(10);
        from = below((FILE_BYTES - len) / 64) * 64;
        to   = below((FILE_BYTES - len) / 64) * 64;
        memmove(image + to, image + from, len);
        break;
    case 4:
        super.n       = below(4) ? super.n : below(UINT32_MAX);
        super.segment = below(4) ? super.segment : (uint64_t)SEGMENT << below(16);
        super.id      = below(4) ? super.id : kvcl_rand_next(&rnd);
        super.tail    = below(8) ? super.tail : KVCL_SEG_TAIL - super.tail;
        kvcl_seg_super_put(&super, image + below(2) * (KVCL_SEG_HEAD / 2));
        break;
    default:
        forge(&super, segment, image + kvcl_seg_base(&super, segment) % (FILE_BYTES - SEGMENT + 1));
        break;
    }
}

/* Something else in the file's place: a symbolic link to a foreign file, a hard link to it, a FIFO, a directory. */
static void other_kinds(void)
{
    kvcl_tier_t *tier;

    unlink(path);
    MUST(symlink("foreign", path) == 0);
    MUST(open_tier(&tier) == KVCL_ERR_ACCESS);
    unlink(path);
    MUST(link(foreign, path) == 0);
    MUST(open_tier(&tier) < 0);
    unlink(path);
    MUST(mkdir(path, 0700) == 0);
    MUST(open_tier(&tier) < 0);
    rmdir(path);
    check_foreign();
}

static void one_file(unsigned round)
{
    kvcl_tier_t   *tier;
    unsigned      i, n = 1 + below(EDITS_MAX);
    kvcl_status_t status;

    memcpy(image, images[keyed][below(2)], sizeof(image));
    for (i = 0; i < n; ++i) {
        edit();
    }
    save(image, below(16) ? FILE_BYTES : below(FILE_BYTES));
    status = open_tier(&tier);
    MUST((status == KVCL_OK) || (status == KVCL_ERR_EXISTS) || (status == KVCL_ERR_ACCESS));
    if (status == KVCL_OK) {
        for (i = 0; i < N_BLOCKS; ++i) {
            check_block(tier, i);
        }
        for (i = 0; i < 8; ++i) { /* it goes on working, also into the segments that are used again */
            append(tier, N_BLOCKS + i);
        }
        MUST(flush(tier) == KVCL_OK);
        check_block(tier, N_BLOCKS + below(8));
        kvcl_tier_close(tier);
    }
    if (round % 64 == 0) {
        other_kinds();
    }
}

START_TEST(no_file_crashes_it_or_makes_it_lie)
{
    const char *env   = getenv("HOSTILE_ROUNDS");
    unsigned   rounds = (env != NULL) ? (unsigned)strtoul(env, NULL, 0) : night ? 5000 : 300;
    unsigned   i;

    keyed = _i == 1;
    for (i = 0; i < rounds; ++i) {
        one_file(i);
    }
    check_foreign();
    printf("%u hostile files%s: %u blocks read and verified, %u refused\n", rounds, keyed ? " with a key" : "", n_read,
           n_refused);
    ck_assert_uint_gt(n_read, rounds);
    ck_assert_uint_gt(n_refused, rounds / 50);
}
END_TEST

/* ---- the scan ---- */

enum { BIG_SEGMENT = 4 << 20 };

typedef struct counted {
    disk_t   disk;
    uint64_t bytes;
} counted_t;

static kvcl_status_t counted_read(void *arg, uint64_t off, uint8_t *buf, size_t len)
{
    counted_t *counted = arg;

    counted->bytes += len;
    ck_assert_msg(counted->bytes <= (uint64_t)20 * BIG_SEGMENT, "the scan reads far more than the segment");
    return disk_read(&counted->disk, off, buf, len);
}

/* Every unit of an open segment is a valid header that names all the bytes behind it, none with the right checksum. */
START_TEST(a_crafted_segment_costs_a_linear_scan)
{
    kvcl_seg_super_t   super;
    kvcl_seg_trailer_t trailer = {.kind = KVCL_SEG_OPEN, .use = {.seq = 1, .life = 1}};
    uint8_t            *scratch = aligned_alloc(KVCL_SEG_ALIGN, KVCL_SEGLOG_SCRATCH), *base;
    uint8_t            *staging = aligned_alloc(KVCL_SEG_ALIGN, CHUNKS * CHUNK);
    uint32_t           unit, scanned;
    kvcl_seglog_t      log;
    counted_t          c = {.bytes = 0};

    MUST(kvcl_seg_divide(KVCL_SEG_HEAD + 3ull * BIG_SEGMENT, BIG_SEGMENT, &super) == KVCL_OK);
    super.id = 42;
    disk_open(&c.disk, KVCL_SEG_HEAD + super.n * super.segment);
    disk_format(&c.disk, &super);
    base = c.disk.image + kvcl_seg_base(&super, 1);
    for (unit = 1; unit < BIG_SEGMENT / KVCL_SEG_UNIT - 1; ++unit) {
        uint64_t       room = BIG_SEGMENT - (uint64_t)(unit + 1) * KVCL_SEG_UNIT;
        kvcl_seg_rec_t rec  = {.checksum = unit, .unit = unit, .len = (uint32_t)((_i == 0) ? room : 64 + room % 3000)};

        if (rec.len <= room) {
            kvcl_seg_header_put(&super, 1, trailer.use, &rec, base + (size_t)(unit - 1) * KVCL_SEG_UNIT);
        }
    }
    kvcl_seg_trailer_put(&super, 1, &trailer, base + BIG_SEGMENT - KVCL_SEG_UNIT);
    MUST(kvcl_seglog_init(&log, &super, 7, staging, CHUNKS, CHUNK) == KVCL_OK);
    MUST(kvcl_seglog_recover(&log, counted_read, &c, scratch, &scanned) == KVCL_OK);
    ck_assert_uint_eq(scanned, 1);
    printf("a crafted segment of %d bytes: %llu bytes read\n", BIG_SEGMENT, (unsigned long long)c.bytes);
    ck_assert_uint_le(c.bytes, 10ull * BIG_SEGMENT);
    MUST(kvcl_seglog_check(&log));
    kvcl_seglog_fini(&log);
    disk_close(&c.disk);
    free(staging);
    free(scratch);
}
END_TEST

int main(void)
{
    const char *ring  = getenv("TEST_RING");
    Suite      *suite = suite_create("hostile");
    TCase      *files = tcase_create("files"), *scan = tcase_create("scan");

    night = (ring != NULL) && (strcmp(ring, "night") == 0) && (access("/dev/shm", W_OK) == 0);
    tcase_set_timeout(files, 3600);
    tcase_set_timeout(scan, 600);
    tcase_add_checked_fixture(files, setup, teardown);
    tcase_add_loop_test(files, no_file_crashes_it_or_makes_it_lie, 0, 2);
    tcase_add_loop_test(scan, a_crafted_segment_costs_a_linear_scan, 0, 2);
    suite_add_tcase(suite, scan);
    suite_add_tcase(suite, files);
    return test_run(suite);
}
