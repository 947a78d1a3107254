/*
 * The choice between memcpy and woven copies: the rule, the measurement, and the file that keeps it, whose bytes are
 * hostile.
 */
#include "config.h"
#include "test_base.h"
#include "base/sanitizers.h"
#include "weave/calibrate.h"
#include "weave/pieces.h"
#include "weave/saved.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const kvcl_copy_table_t sample = {
    .mbps = {{3000, 3100, 3050, 2900}, {6000, 7000, 9000, 8600}, {6500, 8000, 9000, 12000}},
    .large = {{4000, 4199}, {4000, 4200}, {4000, 5000}},
    .when_s = 1795412708};

static void expect(uint32_t memcpy_mbps, uint32_t one, uint32_t two, uint32_t four, unsigned way)
{
    kvcl_copy_table_t  table = sample;
    kvcl_copy_choice_t choice;

    memcpy(table.mbps[1], (const uint32_t[]){memcpy_mbps, one, two, four}, sizeof(table.mbps[1]));
    choice = kvcl_copy_choose(&table);
    ck_assert_uint_eq(choice.way[1], way);
}

START_TEST(a_woven_copy_is_chosen_only_if_it_is_faster)
{
    expect(1000, 1049, 1049, 1049, KVCL_COPY_MEMCPY);
    expect(1000, 900, 1050, 900, KVCL_COPY_WEAVE2);
    expect(1000, 2000, 1799, 1800, KVCL_COPY_WEAVE4);
    expect(1000, 2000, 1800, 1799, KVCL_COPY_WEAVE2);
    expect(1000, 2000, 1799, 1799, KVCL_COPY_WEAVE1);
    expect(1000, 1, 1, 1, KVCL_COPY_MEMCPY);
    expect(KVCL_COPY_MBPS_MAX, KVCL_COPY_MBPS_MAX, KVCL_COPY_MBPS_MAX, KVCL_COPY_MBPS_MAX, KVCL_COPY_MEMCPY);
}
END_TEST

/* The speeds past the caches of 1, 2 and 4 MiB, beside a memcpy of 1000. */
static size_t large_from(uint32_t one, uint32_t two, uint32_t four)
{
    kvcl_copy_table_t table  = sample;
    const uint32_t    past[] = {one, two, four};
    size_t            row;

    for (row = 0; row < KVCL_COPY_LARGE_ROWS; ++row) {
        table.large[row][0] = 1000;
        table.large[row][1] = past[row];
    }
    return kvcl_copy_choose(&table).large;
}

START_TEST(a_size_is_large_if_all_longer_ones_are)
{
    ck_assert_uint_eq(large_from(1050, 1050, 1050), 1 << 20);
    ck_assert_uint_eq(large_from(1049, 1050, 1050), 2 << 20);
    ck_assert_uint_eq(large_from(2000, 1049, 1050), 4 << 20);
    ck_assert_uint_eq(large_from(2000, 2000, 1049), KVCL_COPY_LARGE);
}
END_TEST

START_TEST(pieces_belong_to_the_nearest_row)
{
    const kvcl_copy_choice_t woven = {{KVCL_COPY_WEAVE1, KVCL_COPY_WEAVE2, KVCL_COPY_WEAVE4}, KVCL_COPY_LARGE};
    size_t row;

    ck_assert_uint_eq(kvcl_copy_row(0), 0);
    ck_assert_uint_eq(kvcl_copy_row(SIZE_MAX), KVCL_COPY_ROWS - 1);
    ck_assert_uint_eq(kvcl_copy_way(&woven, KVCL_WEAVE_SHORT - 1), KVCL_COPY_MEMCPY);
    ck_assert_uint_eq(kvcl_copy_way(&woven, KVCL_WEAVE_SHORT), KVCL_COPY_WEAVE1);
    ck_assert_uint_eq(kvcl_copy_way(&woven, SIZE_MAX), KVCL_COPY_WEAVE4);
    for (row = 0; row < KVCL_COPY_ROWS; ++row) {
        ck_assert_uint_eq(kvcl_copy_row(kvcl_copy_row_bytes[row]), row);
    }
}
END_TEST

START_TEST(each_way_copies)
{
    char     from[5000], to[5000];
    unsigned way;

    memset(from, 7, sizeof(from));
    for (way = 0; way < KVCL_COPY_N_WAYS; ++way) {
        kvcl_weave_piece_t pieces[] = {{to, from, 4500}, {to + 4500, from + 4500, 0}, {to + 4500, from + 4500, 500}};

        memset(to, 0, sizeof(to));
        kvcl_copy_by(way, kvcl_weave_best(), pieces, 3);
        kvcl_weave_best()->end();
        ck_assert_mem_eq(to, from, sizeof(to));
    }
}
END_TEST

START_TEST(a_measurement_fills_the_table)
{
    kvcl_copy_table_t table = {.when_s = 0};
    size_t            row, way;

    if (!kvcl_copy_calibrate(kvcl_weave_best(), &table)) {
        ck_assert_ptr_null(kvcl_weave_best()->flush);
        printf("SKIP: nothing past the caches on this processor\n");
        return;
    }
    ck_assert_int_gt(table.when_s, 0);
    for (row = 0; row < KVCL_COPY_ROWS; ++row) {
        for (way = 0; way < KVCL_COPY_N_WAYS; ++way) {
            ck_assert_uint_ge(table.mbps[row][way], 1);
            ck_assert_uint_le(table.mbps[row][way], KVCL_COPY_MBPS_MAX);
        }
    }
    for (row = 0; row < KVCL_COPY_LARGE_ROWS; ++row) {
        for (way = 0; way < 2; ++way) {
            ck_assert_uint_ge(table.large[row][way], 1);
            ck_assert_uint_le(table.large[row][way], KVCL_COPY_MBPS_MAX);
        }
    }
}
END_TEST

/* Whether a text is refused, and the table is then as it was. */
static bool refused(const char *machine, const char *text, size_t len)
{
    kvcl_copy_table_t table = {.when_s = -1};
    bool              taken = kvcl_copy_unpack(&table, machine, text, len);

    ck_assert(taken || (table.when_s == -1));
    return !taken;
}

START_TEST(the_file_of_another_machine_or_any_changed_byte_is_refused)
{
    kvcl_copy_table_t table = {.when_s = 0};
    char              text[KVCL_COPY_TEXT_MAX], bad[KVCL_COPY_TEXT_MAX];
    size_t            len = kvcl_copy_pack(&sample, "a machine", text), i;

    ck_assert(kvcl_copy_unpack(&table, "a machine", text, len));
    ck_assert_mem_eq(&table, &sample, sizeof(table));
    ck_assert(refused("a machine 2", text, len));
    ck_assert(refused("", text, len));
    for (i = 0; i < len; ++i) {
        ck_assert(refused("a machine", text, i));
        memcpy(bad, text, len);
        bad[i] = (char)(bad[i] ^ 0x40);
        ck_assert(refused("a machine", bad, len));
        bad[i] = '\0';
        ck_assert(refused("a machine", bad, len));
    }
    memcpy(bad, text, len);
    bad[len] = '\n';
    ck_assert(refused("a machine", bad, len + 1));
}
END_TEST

START_TEST(numbers_out_of_range_are_refused)
{
    static const char *const rows[] = {
        "1024 0 1 1 1",        "1024 10000001 1 1 1",   "1024 99999999999999999999999 1 1 1",
        "1024 -1 1 1 1",       "1024 1 1 1",            "1023 1 1 1 1",
        "1024 01 1 1 1",       "1024 1 1 1 1 1",        "1024  1 1 1 1",
    };
    static const char large[] = "1048576 1 1\n2097152 1 1\n4194304 1 1\n";
    char              text[KVCL_COPY_TEXT_MAX];
    size_t            i;
    int               n;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        n = snprintf(text, sizeof(text), "kvcl copy 2\nmachine m\nwhen 1\n%s\n4096 1 1 1 1\n65536 1 1 1 1\n%s", rows[i],
                     large);
        ck_assert_msg(refused("m", text, (size_t)n), "%s", rows[i]);
    }
    n = snprintf(text, sizeof(text), "kvcl copy 2\nmachine m\nwhen 1\n1024 1 1 1 1\n4096 1 1 1 1\n65536 1 1 1 1\n%s",
                 large);
    ck_assert(!refused("m", text, (size_t)n));
    text[n - 2] = '0';
    ck_assert(refused("m", text, (size_t)n));
}
END_TEST

static char folder[64];

static void make_folder(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/kvcl_copy_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(a_saved_table_is_found_again)
{
    char              path[KVCL_COPY_PATH_MAX], cache[80], moved[KVCL_COPY_PATH_MAX + 8];
    kvcl_copy_table_t table = {.when_s = 0};

    (void)snprintf(cache, sizeof(cache), "%s/.cache", folder);
    ck_assert(kvcl_copy_path(cache, "m", path));
    ck_assert(!kvcl_copy_load(&table, path, "m"));
    ck_assert(kvcl_copy_save(&sample, path, "m"));
    ck_assert(kvcl_copy_save(&sample, path, "m"));
    ck_assert(kvcl_copy_load(&table, path, "m"));
    ck_assert_mem_eq(&table, &sample, sizeof(table));
    ck_assert(!kvcl_copy_load(&table, path, "another machine"));

    ck_assert_int_eq(chmod(path, 0622), 0);
    ck_assert(!kvcl_copy_load(&table, path, "m"));
    ck_assert_int_eq(chmod(path, 0600), 0);
    (void)snprintf(moved, sizeof(moved), "%s.moved", path);
    ck_assert_int_eq(rename(path, moved), 0);
    ck_assert_int_eq(symlink(moved, path), 0);
    ck_assert(!kvcl_copy_load(&table, path, "m"));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert(!kvcl_copy_load(&table, path, "m"));
}
END_TEST

START_TEST(no_folder_is_no_error)
{
    char              path[KVCL_COPY_PATH_MAX], cache[KVCL_COPY_PATH_MAX];
    kvcl_copy_table_t table;

    ck_assert(!kvcl_copy_path(NULL, "m", path));
    ck_assert(!kvcl_copy_path("relative", "m", path));
    memset(cache, '/', sizeof(cache));
    cache[sizeof(cache) - 1] = '\0';
    ck_assert(!kvcl_copy_path(cache, "m", path));
    (void)snprintf(cache, sizeof(cache), "%s/a/b/c", folder);
    ck_assert(kvcl_copy_path(cache, "m", path));
    ck_assert(!kvcl_copy_save(&sample, path, "m"));
    ck_assert(!kvcl_copy_load(&table, path, "m"));
}
END_TEST

static char shared[KVCL_COPY_PATH_MAX];

static void *save_and_load(void *failed)
{
    kvcl_copy_table_t table;
    int               i;

    for (i = 0; i < 300; ++i) {
        if (!kvcl_copy_save(&sample, shared, "m") || !kvcl_copy_load(&table, shared, "m")) {
            *(bool *)failed = true;
        }
    }
    return NULL;
}

START_TEST(writers_at_once_leave_a_whole_file)
{
    pthread_t threads[4];
    bool      failed[4] = {false};
    size_t    i;

    ck_assert(kvcl_copy_path(folder, "m", shared));
    for (i = 0; i < 4; ++i) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, save_and_load, &failed[i]), 0);
    }
    for (i = 0; i < 4; ++i) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert(!failed[i]);
    }
}
END_TEST

static void *copy_once(void *from)
{
    static char        to[4][65536];
    static _Atomic int next;
    char               *dst  = to[next++];
    kvcl_weave_piece_t piece = {dst, from, sizeof(to[0])};

    kvcl_bulk_copy(&piece, 1);
    kvcl_bulk_end();
    return (memcmp(dst, from, sizeof(to[0])) == 0) ? from : NULL;
}

START_TEST(threads_that_copy_first_at_once_copy_right)
{
    static char from[65536];
    pthread_t   threads[4];
    void        *good;
    size_t      i;

    ck_assert_int_eq(setenv("XDG_CACHE_HOME", folder, 1), 0);
    memset(from, 3, sizeof(from));
    kvcl_bulk_configure(0, 0);
    for (i = 0; i < 4; ++i) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, copy_once, from), 0);
    }
    for (i = 0; i < 4; ++i) {
        ck_assert_int_eq(pthread_join(threads[i], &good), 0);
        ck_assert_ptr_eq(good, from);
    }
}
END_TEST

/* Short buffers, those at both ends of a first part, and a long one; no byte behind them changes. */
static void check_bytes(void)
{
    enum { LONG = 3 << 20, GUARD = 64 };
    static const size_t lens[] = {0, 1, 511, 4096, KVCL_BULK_PROBE - 1, KVCL_BULK_PROBE, KVCL_BULK_PROBE + 1, 2 << 20,
                                  (2 << 20) + 77, LONG};
    uint8_t             *from = malloc(LONG), *to = malloc(LONG + GUARD);
    size_t              i, j;

    for (i = 0; i < LONG; ++i) {
        from[i] = (uint8_t)((i * 31) ^ (i >> 11));
    }
    for (i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i) {
        memset(to, 0xa5, LONG + GUARD);
        kvcl_copy_bytes(to, from, lens[i]);
        ck_assert((lens[i] == 0) || (memcmp(to, from, lens[i]) == 0));
        for (j = lens[i]; j < lens[i] + GUARD; ++j) {
            ck_assert(to[j] == 0xa5);
        }
    }
    kvcl_copy_bytes(NULL, NULL, 0);
    free(from), free(to);
}

/* By a table of speeds that this process reads: memcpy 6,000 MB/s, large from 2 MiB on. */
START_TEST(a_transfer_is_large_by_its_size_and_its_source)
{
    char machine[KVCL_COPY_MACHINE_MAX], path[KVCL_COPY_PATH_MAX];

    if (KVCL_TSAN) {
        printf("SKIP: under ThreadSanitizer no copy is past the caches\n");
        return;
    }
    kvcl_copy_machine(kvcl_weave_best(), machine);
    ck_assert(kvcl_copy_path(folder, machine, path));
    ck_assert(kvcl_copy_save(&sample, path, machine));
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", folder, 1), 0);
    kvcl_bulk_configure(0, 0);
    ck_assert_int_eq(kvcl_bulk_how(0), KVCL_BULK_CACHED);
    ck_assert_int_eq(kvcl_bulk_how((2 << 20) - 1), KVCL_BULK_CACHED);
    ck_assert_int_eq(kvcl_bulk_how(2 << 20), KVCL_BULK_UNSURE);
    ck_assert_int_eq(kvcl_bulk_how(KVCL_COPY_LARGE - 1), KVCL_BULK_UNSURE);
    ck_assert_int_eq(kvcl_bulk_how(KVCL_COPY_LARGE), KVCL_BULK_LARGE);
    /* A tebibyte within two minutes was in the caches, a byte in a second was not. */
    ck_assert_int_eq(kvcl_bulk_part_end(KVCL_BULK_UNSURE, UINT64_C(1) << 40, kvcl_now_ns()), KVCL_BULK_CACHED);
    ck_assert_int_eq(kvcl_bulk_part_end(KVCL_BULK_UNSURE, 1, kvcl_now_ns() - KVCL_NS_PER_SEC), KVCL_BULK_LARGE);
    ck_assert_int_eq(kvcl_bulk_part_end(KVCL_BULK_CACHED, 1, 0), KVCL_BULK_CACHED);
    ck_assert_int_eq(kvcl_bulk_part_end(KVCL_BULK_LARGE, UINT64_C(1) << 40, kvcl_now_ns()), KVCL_BULK_LARGE);
    check_bytes();
    kvcl_bulk_configure(0, 5000);
    ck_assert_int_eq(kvcl_bulk_how(4999), KVCL_BULK_CACHED);
    ck_assert_int_eq(kvcl_bulk_how(5000), KVCL_BULK_LARGE);
    check_bytes();
    kvcl_bulk_configure(4, 0);
    check_bytes();
    ck_assert_int_eq(kvcl_bulk_how(4 << 20), KVCL_BULK_CACHED);
    ck_assert_int_eq(kvcl_bulk_how(KVCL_COPY_LARGE), KVCL_BULK_LARGE);
}
END_TEST

START_TEST(the_machine_is_one_line)
{
    char machine[KVCL_COPY_MACHINE_MAX], again[KVCL_COPY_MACHINE_MAX];

    kvcl_copy_machine(kvcl_weave_best(), machine);
    kvcl_copy_machine(kvcl_weave_best(), again);
    ck_assert_str_eq(machine, again);
    ck_assert_ptr_nonnull(strstr(machine, kvcl_weave_best()->name));
    ck_assert_uint_eq(strcspn(machine, "\n"), strlen(machine));
}
END_TEST

/* Texts of every length, up to more than there is room for, in each of the three parts. */
START_TEST(a_long_machine_is_cut)
{
    enum { LONG = KVCL_COPY_MACHINE_MAX + 50 };
    struct {
        char machine[KVCL_COPY_MACHINE_MAX];
        char guard[64];
    } out;
    char     word[LONG], texts[3][LONG + 32];
    FILE     *cpuinfo;
    unsigned part, len, n, i;

    memset(word, 'x', sizeof(word));
    for (part = 0; part < 3; ++part) {
        for (len = 1; len < LONG; ++len) {
            for (i = 0; i < 3; ++i) {
                (void)snprintf(texts[i], sizeof(texts[i]), "%s%.*s", (i == 0) ? "model name\t: " : "",
                               (i == part) ? (int)len : 3, word);
            }
            memset(&out, '#', sizeof(out));
            cpuinfo = fmemopen(texts[0], strlen(texts[0]), "r");
            ck_assert_ptr_nonnull(cpuinfo);
            kvcl_copy_machine_of(cpuinfo, texts[1], texts[2], out.machine);
            (void)fclose(cpuinfo);
            n = (unsigned)strnlen(out.machine, sizeof(out.machine));
            ck_assert_uint_lt(n, sizeof(out.machine));
            ck_assert((n == len + 8) || ((n < len + 8) && (n >= sizeof(out.machine) - 3)));
            for (i = 0; i < sizeof(out.guard); ++i) {
                ck_assert_int_eq(out.guard[i], '#');
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("copy_choice");
    TCase *tc = tcase_create("choice"), *files = tcase_create("files");

    tcase_add_test(tc, a_woven_copy_is_chosen_only_if_it_is_faster);
    tcase_add_test(tc, a_size_is_large_if_all_longer_ones_are);
    tcase_add_test(tc, pieces_belong_to_the_nearest_row);
    tcase_add_test(tc, each_way_copies);
    tcase_add_test(tc, a_measurement_fills_the_table);
    tcase_add_test(tc, the_file_of_another_machine_or_any_changed_byte_is_refused);
    tcase_add_test(tc, numbers_out_of_range_are_refused);
    tcase_add_test(tc, the_machine_is_one_line);
    tcase_add_test(tc, a_long_machine_is_cut);
    tcase_add_checked_fixture(files, make_folder, remove_folder);
    tcase_add_test(files, a_saved_table_is_found_again);
    tcase_add_test(files, no_folder_is_no_error);
    tcase_add_test(files, writers_at_once_leave_a_whole_file);
    tcase_add_test(files, threads_that_copy_first_at_once_copy_right);
    tcase_add_test(files, a_transfer_is_large_by_its_size_and_its_source);
    tcase_set_timeout(tc, 120);
    tcase_set_timeout(files, 120);
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, files);
    return test_run(suite);
}
