/*
 * The tier over real files, by io_uring and by threads: reads return the bytes written, directly or through bounce
 * buffers, also after a restart; segments are reused, and a file that cannot be a tier is left unchanged.
 */
#include "config.h"

#include "test/idle.h"
#include "tier/segfmt.h"
#include "weave/choice.h"
#include "tier_scene.h"

#include <sys/stat.h>
#include <sys/wait.h>

START_TEST(what_goes_in_comes_out_aligned_or_not)
{
    static const kvcl_tier_key_t file_key = {{9}};
    kvcl_tier_t *tier;
    unsigned    i;
    wait_for_t  w = WAIT_FOR(60);

    if (!can(ways[_i % 2])) {
        return;
    }
    scene_key = (_i >= 2) ? &file_key : NULL;
    tier      = open_tier(ways[_i % 2]);
    for (i = 0; i < 60; ++i) {
        ck_assert_int_eq(append(tier, i, done, &w), KVCL_OK);
        ck_assert_int_eq(read_back(tier, i, (i % 3) * 64, 1), KVCL_OK); /* staged, mostly */
        ck_assert_int_eq(append(tier, i, done, &w), KVCL_ERR_EXISTS);
    }
    ck_assert_int_eq(flush(tier), KVCL_OK);
    ck_assert_int_eq(wait_all(&w), KVCL_OK);
    for (i = 0; i < 60; ++i) {
        ck_assert_int_eq(read_back(tier, i, 0, 1 + i % 3), KVCL_OK);
        ck_assert_int_eq(read_back(tier, i, 1 + i, 1 + i % 3), KVCL_OK);
    }
    ck_assert_int_eq(read_back(tier, 61, 0, 1), KVCL_ERR_NOT_FOUND);
    kvcl_tier_close(tier);
}
END_TEST

enum { MANY = 20 };

static _Atomic unsigned n_asked;

/* Every fifth block that is asked about is gone. */
static bool most_stay(void *arg)
{
    (void)arg;
    return (++n_asked % 5) != 0;
}

/* Blocks from `first` on, all with checksums or none, as one append. */
static void append_many(kvcl_tier_t *tier, unsigned first, unsigned n, bool summed, kvcl_bulk_how_t how)
{
    static uint8_t    bytes[MANY][LEN_MAX + 8];
    uint8_t           keys[MANY][KVCL_SEG_KEY];
    kvcl_tier_block_t blocks[MANY];
    unsigned          i, at;

    for (i = 0; i < n; ++i) {
        key_of(first + i, keys[i]);
        fill(first + i, bytes[i]);
        blocks[i] = (kvcl_tier_block_t){.key = keys[i], .bytes = bytes[i], .len = len_of(first + i), .summed = summed,
                                        .checksum = summed ? kvcl_checksum(bytes[i], len_of(first + i)) : 1};
    }
    for (at = 0; at < n;) {
        kvcl_tier_append_all(tier, blocks + at, n - at, most_stay, &how);
        for (; (at < n) && (blocks[at].status != KVCL_ERR_BUSY); ++at) {
            ck_assert((blocks[at].status == KVCL_OK) || (blocks[at].status == KVCL_ERR_STALE));
            ck_assert_uint_eq(blocks[at].loc.checksum, kvcl_checksum(bytes[at], blocks[at].len));
            ck_assert_uint_eq(blocks[at].checksum, blocks[at].loc.checksum);
            ck_assert_int_eq(read_back(tier, first + at, 0, 1),
                             (blocks[at].status == KVCL_OK) ? KVCL_OK : KVCL_ERR_NOT_FOUND);
        }
        for (i = at; i < n; ++i) {
            ck_assert_int_eq(blocks[i].status, KVCL_ERR_BUSY);
        }
    }
}

START_TEST(blocks_together_are_as_one_after_the_other)
{
    static const kvcl_bulk_how_t hows[] = {KVCL_BULK_CACHED, KVCL_BULK_UNSURE, KVCL_BULK_LARGE};
    static const kvcl_tier_key_t file_key = {{9}};
    kvcl_tier_stats_t            stats;
    kvcl_tier_t                  *tier;
    unsigned                     i, found = 0;

    kvcl_bulk_configure(1 + KVCL_COPY_WEAVE4, 0);
    scene_key = (_i >= 6) ? &file_key : NULL;
    n_asked   = 0;
    tier      = open_tier(ways[0]);
    for (i = 0; i < 3 * MANY; i += MANY) {
        append_many(tier, i, MANY, _i % 2 == 0, hows[_i / 2 % 3]);
    }
    ck_assert_uint_eq(n_asked, 60);
    kvcl_tier_close(tier);
    tier = open_tier(ways[0]);
    for (i = 0; i < 60; ++i) {
        found += (read_back(tier, i, i % 64, 1) == KVCL_OK) ? 1 : 0;
    }
    kvcl_tier_stats(tier, &stats);
    ck_assert_uint_eq(stats.bad, 0);
    ck_assert_uint_eq(found, 48);
    kvcl_tier_close(tier);
    kvcl_bulk_configure(0, 0);
}
END_TEST

START_TEST(a_restart_finds_what_was_there_by_footers_alone)
{
    kvcl_tier_item_t  items[60];
    kvcl_tier_stats_t stats;
    kvcl_tier_t       *tier;
    uint64_t          it = 0;
    unsigned          i;
    uint8_t           key[KVCL_SEG_KEY];

    if (!can(ways[_i])) {
        return;
    }
    tier = open_tier(ways[_i]);
    for (i = 0; i < 50; ++i) {
        ck_assert_int_eq(append(tier, i, NULL, NULL), KVCL_OK);
    }
    key_of(7, key);
    ck_assert_int_eq(kvcl_tier_drop(tier, key), KVCL_OK);
    ck_assert_int_eq(kvcl_tier_drop(tier, key), KVCL_ERR_NOT_FOUND);
    kvcl_tier_close(tier);

    tier = open_tier(ways[_i]);
    kvcl_tier_stats(tier, &stats);
    ck_assert_uint_eq(stats.blocks, 49);
    ck_assert_uint_eq(stats.scanned, 0);
    ck_assert_uint_eq(kvcl_tier_walk(tier, &it, items, 60), 49);
    ck_assert_uint_eq(kvcl_tier_walk(tier, &it, items, 60), 0);
    for (i = 0; i < 50; ++i) {
        ck_assert_int_eq(read_back(tier, i, 0, 1), (i == 7) ? KVCL_ERR_NOT_FOUND : KVCL_OK);
    }
    kvcl_tier_close(tier);
}
END_TEST

START_TEST(a_killed_process_leaves_what_it_flushed)
{
    kvcl_tier_stats_t stats;
    kvcl_tier_t       *tier;
    unsigned          i, round;
    int               code = -1;
    pid_t             child;

    if (!can(ways[_i])) {
        return;
    }
    for (round = 0; round < 3; ++round) {
        child = fork();
        if (child == 0) {
            tier = open_tier(ways[_i]);
            for (i = 20 * round; i < 20 * round + 20; ++i) {
                ck_assert_int_eq(append(tier, i, NULL, NULL), KVCL_OK);
            }
            ck_assert_int_eq(flush(tier), KVCL_OK);
            _exit(0);
        }
        ck_assert_int_eq(waitpid(child, &code, 0), child);
        ck_assert_int_eq(code, 0);
    }
    tier = open_tier(ways[_i]);
    kvcl_tier_stats(tier, &stats);
    ck_assert_uint_ge(stats.scanned, 1);
    for (i = 0; i < 60; ++i) {
        ck_assert_int_eq(read_back(tier, i, 0, 1), KVCL_OK);
    }
    kvcl_tier_close(tier);
}
END_TEST

START_TEST(old_segments_are_used_again_and_little_else_is_written)
{
    kvcl_tier_params_t params = {.path = path, .size = 64 << 20, .gone = on_gone};
    kvcl_tier_stats_t  stats;
    kvcl_tier_t        *tier;
    uint8_t            *block = calloc(1, 1 << 20), key[KVCL_SEG_KEY];
    uint32_t           len    = (_i == 0) ? 1 << 20 : (_i == 1) ? 4096 : 300 * 1024;
    unsigned           i, n = (150u << 20) / len;
    kvcl_status_t      status;

    ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_OK);
    for (i = 0; i < n; ++i) {
        key_of(i, key);
        memcpy(block, &i, sizeof(i));
        while ((status = kvcl_tier_append(tier, key, i, block, len, NULL, NULL, NULL)) == KVCL_ERR_BUSY) {
            usleep(200);
        }
        ck_assert_int_eq(status, KVCL_OK);
    }
    ck_assert_int_eq(flush(tier), KVCL_OK);
    kvcl_tier_stats(tier, &stats);
    printf("blocks of %u: written %.4f of what came in; %llu held, %u gone\n", len,
           (double)stats.bytes_out / (double)stats.bytes_in, (unsigned long long)stats.blocks, n_gone);
    ck_assert_uint_eq(stats.bytes_in, (uint64_t)n * len);
    ck_assert(stats.bytes_out <= stats.bytes_in + stats.bytes_in * 3 / 100);
    ck_assert_uint_eq(stats.blocks + n_gone, n);
    ck_assert_uint_ge(stats.bytes, 40 << 20);
    kvcl_tier_close(tier);
    free(block);
}
END_TEST

START_TEST(nobody_spins_while_idle)
{
    const pid_t self = 0;
    kvcl_tier_t *tier;

    if (!can(ways[_i])) {
        return;
    }
    tier = open_tier(ways[_i]);
    ck_assert_int_eq(append(tier, 1, NULL, NULL), KVCL_OK);
    ck_assert_int_eq(flush(tier), KVCL_OK);
    ck_assert(falls_idle(&self, 1));
    kvcl_tier_close(tier);
}
END_TEST

START_TEST(what_cannot_be_a_tier_is_refused_and_left_alone)
{
    kvcl_tier_params_t params = {.path = path, .size = FILE_BYTES, .segment = SEGMENT};
    kvcl_tier_t        *tier, *second = NULL;
    int                fd;

    params.size = 100000;
    ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_ERR_INVALID_PARAM);
    params.size = UINT64_C(1) << 55;
    params.segment = 1 << 30;
    ck_assert_int_lt(kvcl_tier_open(&params, &tier), 0); /* no disk has that room */
    params = (kvcl_tier_params_t){.path = "/nowhere/at/all", .size = FILE_BYTES};
    ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_ERR_IO);
    params.path = path;
    ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_OK);
    ck_assert_int_eq(kvcl_tier_open(&params, &second), KVCL_ERR_BUSY);
    kvcl_tier_close(tier);
    fd = open(path, O_RDWR | O_TRUNC);
    ck_assert_int_eq(write(fd, "my thesis", 9), 9);
    ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_ERR_EXISTS);
    ck_assert_int_eq(lseek(fd, 0, SEEK_END), 9);
    close(fd);
}
END_TEST

static void must_be_refused(const kvcl_tier_params_t *params, kvcl_status_t status, const char *word)
{
    kvcl_tier_t *tier = NULL;

    ck_assert_int_eq(kvcl_tier_open(params, &tier), status);
    ck_assert_msg(strstr(kvcl_last_error(), word) != NULL, "%s", kvcl_last_error());
}

/* Whoever else can write to the file chooses the bytes that are found in it. */
START_TEST(a_file_that_others_may_use_is_refused)
{
    kvcl_tier_params_t params = {.path = path, .size = FILE_BYTES, .segment = SEGMENT};
    kvcl_tier_t        *tier;
    char               link[sizeof(path) + 16];

    ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_OK);
    kvcl_tier_close(tier);
    ck_assert_int_eq(chmod(path, 0640), 0);
    must_be_refused(&params, KVCL_ERR_ACCESS, "mode 0640");
    ck_assert_int_eq(chmod(path, 0602), 0);
    snprintf(link, sizeof(link), "chmod 600 %s", path);
    must_be_refused(&params, KVCL_ERR_ACCESS, link);
    ck_assert_int_eq(chmod(path, 0600), 0);
    snprintf(link, sizeof(link), "%s.link", path);
    ck_assert_int_eq(symlink(path, link), 0);
    params.path = link;
    must_be_refused(&params, KVCL_ERR_ACCESS, "symbolic link");
    ck_assert_int_eq(unlink(link), 0);
    params.path = path;
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(path, 12345, (gid_t)-1), 0);
        must_be_refused(&params, KVCL_ERR_ACCESS, "belongs to user 12345");
        ck_assert_int_eq(chown(path, 0, (gid_t)-1), 0);
    }
    ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_OK);
    kvcl_tier_close(tier);
}
END_TEST

/* A foreign file that begins with zeros is no fresh one; a format that was cut short is begun again. */
START_TEST(only_an_own_or_an_empty_file_is_formatted)
{
    kvcl_tier_params_t params = {.path = path, .size = FILE_BYTES, .segment = SEGMENT};
    uint8_t            block[KVCL_SEG_ALIGN];
    kvcl_tier_t        *tier;
    int                fd = open(path, O_RDWR | O_TRUNC | O_CREAT, 0600);

    ck_assert_int_eq(pwrite(fd, "an image", 8, FILE_BYTES), 8);
    must_be_refused(&params, KVCL_ERR_EXISTS, "no tier");
    ck_assert_int_eq(pread(fd, block, 8, FILE_BYTES), 8);
    ck_assert_int_eq(memcmp(block, "an image", 8), 0);
    params.format = true;
    ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_OK);
    kvcl_tier_close(tier);
    params.format = false;
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    kvcl_seg_unfinished_put(block);
    ck_assert_int_eq(pwrite(fd, block, sizeof(block), 0), (ssize_t)sizeof(block));
    ck_assert_int_eq(ftruncate(fd, FILE_BYTES / 2), 0);
    ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_OK);
    kvcl_tier_close(tier);
    close(fd);
}
END_TEST

/* The bytes of a block are replaced, with checksums that fit, in its header, its entry and its footer. */
static void forge(const char *text)
{
    static uint8_t     segment[SEGMENT];
    uint8_t            block[KVCL_SEG_ALIGN], *footer;
    kvcl_seg_super_t   super;
    kvcl_seg_trailer_t trailer;
    kvcl_seg_rec_t     rec;
    uint64_t           bytes;
    int                fd = open(path, O_RDWR);

    ck_assert_int_eq(pread(fd, block, sizeof(block), 0), (ssize_t)sizeof(block));
    ck_assert(kvcl_seg_super_get(block, &super));
    ck_assert_int_eq(pread(fd, segment, SEGMENT, (off_t)kvcl_seg_base(&super, 0)), SEGMENT);
    ck_assert(kvcl_seg_trailer_get(&super, 0, segment + SEGMENT - KVCL_SEG_UNIT, &trailer));
    ck_assert_uint_eq(trailer.n, 1);
    footer = segment + SEGMENT - kvcl_seg_footer_bytes(1);
    ck_assert(kvcl_seg_entries_get(&super, &trailer, footer, &rec));
    ck_assert_uint_eq(rec.len, strlen(text));
    memcpy(segment + (size_t)rec.unit * KVCL_SEG_UNIT, text, rec.len);
    rec.checksum = kvcl_checksum(text, rec.len);
    kvcl_seg_header_put(&super, 0, trailer.use, &rec, segment + (size_t)(rec.unit - 1) * KVCL_SEG_UNIT);
    kvcl_seg_footer_put(&super, 0, trailer.use, &rec, 1, footer, &bytes);
    ck_assert_int_eq(pwrite(fd, segment, SEGMENT, (off_t)kvcl_seg_base(&super, 0)), SEGMENT);
    close(fd);
}

START_TEST(forged_bytes_are_returned_only_without_a_key)
{
    static const kvcl_tier_key_t keys[2] = {{{7, 1}}, {{7, 2}}};
    kvcl_tier_params_t           params  = {.path = path, .size = FILE_BYTES, .segment = SEGMENT,
                                            .key = (_i == 1) ? &keys[0] : NULL};
    uint8_t                      key[KVCL_SEG_KEY], buf[16];
    const char                   *in = "what was put";
    struct iovec                 out = {buf, 12};
    kvcl_tier_loc_t              loc;
    kvcl_tier_t                  *tier;
    unsigned                     forged;

    key_of(1, key);
    ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_OK);
    ck_assert_int_eq(kvcl_tier_append(tier, key, kvcl_checksum(in, 12), in, 12, NULL, NULL, NULL), KVCL_OK);
    kvcl_tier_close(tier);
    for (forged = 0; forged < 2; ++forged) {
        wait_for_t w = WAIT_FOR(1);

        if (forged) {
            forge("what is lied");
        }
        ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_OK);
        ck_assert_int_eq(kvcl_tier_find(tier, key, &loc), KVCL_OK);
        ck_assert_int_eq(kvcl_tier_read(tier, key, &loc, &out, 1, done, &w), KVCL_OK);
        ck_assert_int_eq(wait_all(&w), (forged && (_i == 1)) ? KVCL_ERR_IO : KVCL_OK);
        ck_assert((_i == 1) || !forged || (memcmp(buf, "what is lied", 12) == 0));
        kvcl_tier_close(tier);
    }
    if (_i == 1) { /* another key, or none, is refused; a file without a key is begun again */
        params.key = &keys[1];
        must_be_refused(&params, KVCL_ERR_ACCESS, "another key");
        params.key = NULL;
        must_be_refused(&params, KVCL_ERR_ACCESS, "KVCL_STORE_NVME_KEY");
    } else {
        params.key = &keys[0];
        ck_assert_int_eq(kvcl_tier_open(&params, &tier), KVCL_OK);
        ck_assert_int_eq(kvcl_tier_find(tier, key, &loc), KVCL_ERR_NOT_FOUND);
        kvcl_tier_close(tier);
    }
}
END_TEST

START_TEST(a_key_is_a_file_of_this_user_alone)
{
    kvcl_tier_key_t key, again;
    char            name[] = "test_tier_key.XXXXXX", text[40] = "a key of 32 bytes and a few more....";
    int             fd     = mkstemp(name);

    ck_assert_int_eq(write(fd, text, 31), 31);
    ck_assert_int_eq(kvcl_tier_key_read(name, &key), KVCL_ERR_ACCESS);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "31 bytes: it needs 32"));
    ck_assert_int_eq(write(fd, text, 5), 5);
    ck_assert_int_eq(kvcl_tier_key_read(name, &key), KVCL_OK);
    ck_assert_int_eq(kvcl_tier_key_read(name, &again), KVCL_OK);
    ck_assert_mem_eq(key.bytes, again.bytes, sizeof(key.bytes));
    ck_assert_int_eq(fchmod(fd, 0640), 0);
    ck_assert_int_eq(kvcl_tier_key_read(name, &key), KVCL_ERR_ACCESS);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "mode 0640"));
    ck_assert_int_eq(kvcl_tier_key_read("/", &key), KVCL_ERR_ACCESS);
    ck_assert_int_eq(kvcl_tier_key_read("/nowhere/at/all", &key), KVCL_ERR_NOT_FOUND);
    close(fd);
    unlink(name);
}
END_TEST

START_TEST(a_place_is_a_path_and_a_size)
{
    char     *p    = NULL;
    uint64_t size  = 0;
    const char *bad[] = {"", "/a", "a:1G", "/a:", "/a:x", ":1G", "/a/:1G", "/:1G", "/a:unlimited"};
    size_t   i;

    ck_assert_int_eq(kvcl_tier_spec_parse("/nvme0/kv:x:1.5G", &p, &size), KVCL_OK);
    ck_assert_str_eq(p, "/nvme0/kv:x");
    ck_assert_uint_eq(size, UINT64_C(3) << 29);
    free(p);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        ck_assert_msg(kvcl_tier_spec_parse(bad[i], &p, &size) == KVCL_ERR_INVALID_PARAM, "\"%s\"", bad[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier");
    TCase *tc    = tcase_create("tier");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, what_goes_in_comes_out_aligned_or_not, 0, 4);
    tcase_add_loop_test(tc, blocks_together_are_as_one_after_the_other, 0, 12);
    tcase_add_loop_test(tc, a_restart_finds_what_was_there_by_footers_alone, 0, 2);
    tcase_add_loop_test(tc, a_killed_process_leaves_what_it_flushed, 0, 2);
    tcase_add_loop_test(tc, old_segments_are_used_again_and_little_else_is_written, 0, 3);
    tcase_add_loop_test(tc, nobody_spins_while_idle, 0, 2);
    tcase_add_test(tc, what_cannot_be_a_tier_is_refused_and_left_alone);
    tcase_add_test(tc, a_file_that_others_may_use_is_refused);
    tcase_add_test(tc, only_an_own_or_an_empty_file_is_formatted);
    tcase_add_loop_test(tc, forged_bytes_are_returned_only_without_a_key, 0, 2);
    tcase_add_test(tc, a_key_is_a_file_of_this_user_alone);
    tcase_add_test(tc, a_place_is_a_path_and_a_size);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
