/* The reader of key files: what it refuses, with which sentence, and what it returns. */
#include "config.h"
#include "test_base.h"
#include "base/crypto.h"
#include "base/key_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIN = 4, MAX = 8 };

static const kvcl_key_file_t kind = {"test file", "print-a-key", ", for all", MIN, MAX};

static char dir[] = "test_key_file.XXXXXX";
static char path[128], other[128], why[512];

static void set_up(void)
{
    strcpy(dir, "test_key_file.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/key", dir);
    snprintf(other, sizeof(other), "%s/other", dir);
}

static void tear_down(void)
{
    (void)unlink(other);
    (void)unlink(path);
    ck_assert_int_eq(rmdir(dir), 0);
}

static void write_file(const char *name, const char *bytes, mode_t mode)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, bytes, strlen(bytes)), (int)strlen(bytes));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

/* The sentence begins with the kind and the path. */
static void must_be_refused(const char *name, kvcl_status_t status, const char *rest)
{
    char   begin[256];
    char   buf[MAX + 1];
    size_t len = 77;

    snprintf(begin, sizeof(begin), "test file %s ", name);
    ck_assert_int_eq(kvcl_key_file_read(&kind, name, buf, &len, why, sizeof(why)), status);
    ck_assert_msg(strncmp(why, begin, strlen(begin)) == 0, "%s", why);
    ck_assert_msg(strstr(why, rest) != NULL, "%s", why);
    ck_assert_uint_eq(len, 77);
}

START_TEST(a_fit_file_is_read_whole)
{
    char    buf[MAX + 1], longest[MAX + 1] = "87654321";
    size_t  len = 0;
    uint8_t digest[32], expected[32];

    write_file(path, "four", 0600);
    ck_assert_int_eq(kvcl_key_file_read(&kind, path, buf, &len, why, sizeof(why)), KVCL_OK);
    ck_assert_uint_eq(len, MIN);
    ck_assert_mem_eq(buf, "four", len);
    write_file(path, longest, 0400);
    ck_assert_int_eq(chmod(path, 0400), 0);
    ck_assert_int_eq(kvcl_key_file_read(&kind, path, buf, &len, why, sizeof(why)), KVCL_OK);
    ck_assert_uint_eq(len, MAX);
    ck_assert_mem_eq(buf, longest, len);
    kvcl_sha256(longest, MAX, expected);
    ck_assert_int_eq(kvcl_key_file_digest(&kind, path, digest), KVCL_OK);
    ck_assert_mem_eq(digest, expected, sizeof(digest));
}
END_TEST

START_TEST(lengths_are_bounded)
{
    write_file(path, "", 0600);
    must_be_refused(path, KVCL_ERR_ACCESS, "is empty: write 4 to 8 bytes into it (print-a-key >");
    write_file(path, "123", 0600);
    must_be_refused(path, KVCL_ERR_ACCESS, "has 3 bytes: it needs 4 to 8");
    write_file(path, "123456789", 0600);
    must_be_refused(path, KVCL_ERR_ACCESS, "has 9 bytes: it needs 4 to 8");
}
END_TEST

START_TEST(others_have_no_access)
{
    static const mode_t modes[] = {0640, 0620, 0610, 0604, 0602, 0601, 0666};
    char                rest[sizeof(path) + 64];
    size_t              i;

    for (i = 0; i < sizeof(modes) / sizeof(modes[0]); ++i) {
        write_file(path, "12345", modes[i]);
        snprintf(rest, sizeof(rest), "has mode %04o, others may use it: chmod 600 %s", (unsigned)modes[i], path);
        must_be_refused(path, KVCL_ERR_ACCESS, rest);
    }
}
END_TEST

START_TEST(it_belongs_to_this_user)
{
    if (geteuid() != 0) {
        printf("SKIP: only root can give a file to another user\n");
        return;
    }
    write_file(path, "12345", 0600);
    ck_assert_int_eq(chown(path, 1, 0), 0);
    must_be_refused(path, KVCL_ERR_ACCESS, "belongs to user 1, but this process runs as user 0: chown it, or name "
                    "another file");
}
END_TEST

START_TEST(its_directories_can_be_entered)
{
    char closed[sizeof(path) + 8], inner[sizeof(path) + 16], rest[200];

    if (geteuid() != 0) {
        printf("SKIP: only root can become another user\n");
        return;
    }
    snprintf(closed, sizeof(closed), "%s.dir", path);
    snprintf(inner, sizeof(inner), "%s/key", closed);
    ck_assert_int_eq(mkdir(closed, 0700), 0);
    write_file(inner, "12345", 0600);
    ck_assert_int_eq(seteuid(1), 0);
    snprintf(rest, sizeof(rest), "cannot be opened: Permission denied: let user 1, as which this process runs, enter "
             "its directories and read it, or name another file");
    must_be_refused(inner, KVCL_ERR_ACCESS, rest);
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(unlink(inner), 0);
    ck_assert_int_eq(rmdir(closed), 0);
}
END_TEST

START_TEST(it_is_a_regular_file)
{
    char   buf[MAX + 1];
    size_t len;

    must_be_refused(path, KVCL_ERR_NOT_FOUND, "is not there: make it (umask 077; print-a-key >");
    ck_assert_ptr_nonnull(strstr(why, "), for all"));
    must_be_refused(dir, KVCL_ERR_ACCESS, "is a directory: name a file in it");
    must_be_refused("/dev/null", KVCL_ERR_ACCESS, "is not a regular file");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    must_be_refused(path, KVCL_ERR_ACCESS, "is not a regular file"); /* and does not block */
    write_file(other, "12345", 0600);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("other", path), 0);
    ck_assert_int_eq(kvcl_key_file_read(&kind, path, buf, &len, why, sizeof(why)), KVCL_OK);
    ck_assert_uint_eq(len, 5);
    write_file(other, "12345", 0644);
    must_be_refused(path, KVCL_ERR_ACCESS, "has mode 0644"); /* the file that the link leads to */
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("key", path), 0);
    must_be_refused(path, KVCL_ERR_ACCESS, "is a symbolic link that leads to itself");
}
END_TEST

START_TEST(the_digest_has_the_sentence)
{
    uint8_t digest[32];

    write_file(path, "12345", 0644);
    ck_assert_int_eq(kvcl_key_file_digest(&kind, path, digest), KVCL_ERR_ACCESS);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "has mode 0644"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("key files");
    TCase *tc    = tcase_create("key files");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_fit_file_is_read_whole);
    tcase_add_test(tc, lengths_are_bounded);
    tcase_add_test(tc, others_have_no_access);
    tcase_add_test(tc, it_belongs_to_this_user);
    tcase_add_test(tc, its_directories_can_be_entered);
    tcase_add_test(tc, it_is_a_regular_file);
    tcase_add_test(tc, the_digest_has_the_sentence);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
