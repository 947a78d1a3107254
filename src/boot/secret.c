/*
 * Reading and making secret files. Nothing is kept; buffers with secret bytes are wiped.
 *
 * Making is race-safe: the file is complete under a private name before link(2) gives it its own, and
 * link fails if another process came first, whose file is then read.
 */
#include "config.h"
#include "boot/secret.h"
#include "base/error.h"
#include "base/key_file.h"
#include "base/rand.h"
#include "base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MIN_BYTES = 16, FILE_MAX_BYTES = 64 * 1024, PATH_MAX_BYTES = 1024 };

kvcl_status_t kvcl_secret_from_file(const char *path, uint8_t secret[KVCL_SHA256_LEN])
{
    static const kvcl_key_file_t kind = {"secret file", "head -c 32 /dev/urandom", ", the same on all ranks",
                                         FILE_MIN_BYTES, FILE_MAX_BYTES};

    return kvcl_key_file_digest(&kind, path, secret);
}

static kvcl_status_t write_private(const char *path)
{
    uint8_t       bytes[KVCL_SHA256_LEN];
    kvcl_status_t status = kvcl_random_bytes(bytes, sizeof(bytes));
    int           fd;

    if (status != KVCL_OK) {
        return status;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        status = kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot create %s", path);
    } else {
        if ((fchmod(fd, 0600) != 0) || (write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes)) ||
            (fsync(fd) != 0)) {
            status = kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot write %s", path);
            unlink(path);
        }
        close(fd);
    }
    kvcl_wipe(bytes, sizeof(bytes));
    return status;
}

/* Give the finished file its name unless there is one already, which is then as good. */
static kvcl_status_t name_file(const char *from, const char *to)
{
    int ok = (link(from, to) == 0) || (errno == EEXIST);

    /* A file system without hard links */
    if (!ok && (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)) {
        return KVCL_OK;
    }
    ok = ok || (errno == EEXIST);
    if (!ok) {
        (void)kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot create secret file %s", to);
    }
    unlink(from);
    return ok ? KVCL_OK : KVCL_ERR_IO;
}

static kvcl_status_t make_file(const char *dir, const char *path)
{
    char          temp[PATH_MAX_BYTES];
    uint64_t      tag;
    kvcl_status_t status = kvcl_random_bytes(&tag, sizeof(tag));

    if (status != KVCL_OK) {
        return status;
    }
    if ((mkdir(dir, 0700) != 0) && (errno != EEXIST)) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot create %s for the job secret; name a file by "
                               "KVCL_SECRET_FILE", dir);
    }
    if (snprintf(temp, sizeof(temp), "%s.%016" PRIx64, path, tag) >= (int)sizeof(temp)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "path of the secret is too long: %s", path);
    }
    status = write_private(temp);
    return (status == KVCL_OK) ? name_file(temp, path) : status;
}

kvcl_status_t kvcl_secret_in_dir(const char *dir, uint8_t secret[KVCL_SHA256_LEN])
{
    char          path[PATH_MAX_BYTES - 32];
    kvcl_status_t status;

    if (snprintf(path, sizeof(path), "%s/secret", dir) >= (int)sizeof(path)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "path of the secret is too long: %s", dir);
    }
    status = kvcl_secret_from_file(path, secret);
    if (status == KVCL_ERR_NOT_FOUND) {
        status = make_file(dir, path);
        if (status == KVCL_OK) {
            status = kvcl_secret_from_file(path, secret);
        }
    }
    return status;
}

/* A job whose secret is not there, or not to be trusted, cannot prove itself. */
static kvcl_status_t unproven(kvcl_status_t status, const char *setting)
{
    return ((status == KVCL_ERR_NOT_FOUND) || (status == KVCL_ERR_ACCESS))
               ? kvcl_fail(KVCL_ERR_AUTH, "%s%s", setting, kvcl_last_error())
               : status;
}

static kvcl_status_t secret_at_home(uint8_t secret[KVCL_SHA256_LEN])
{
    char           dir[PATH_MAX_BYTES - 64], buf[2048];
    const char    *home = kvcl_settings_getenv(NULL, "HOME");
    struct passwd  pw;
    struct passwd *found = NULL;

    if ((home == NULL) || (home[0] != '/')) {
        if ((getpwuid_r(geteuid(), &pw, buf, sizeof(buf), &found) != 0) || (found == NULL)) {
            return kvcl_fail(KVCL_ERR_NOT_FOUND, "there is no home directory to keep the job secret in; name a "
                             "file by KVCL_SECRET_FILE");
        }
        home = pw.pw_dir;
    }
    if (snprintf(dir, sizeof(dir), "%s/.kvcl", home) >= (int)sizeof(dir)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "HOME is too long: %s", home);
    }
    return kvcl_secret_in_dir(dir, secret);
}

kvcl_status_t kvcl_secret_named(const char *path, uint8_t secret[KVCL_SHA256_LEN])
{
    return unproven(kvcl_secret_from_file(path, secret), "KVCL_SECRET_FILE: ");
}

kvcl_status_t kvcl_secret_of_user(uint8_t secret[KVCL_SHA256_LEN])
{
    return unproven(secret_at_home(secret), "");
}

kvcl_status_t kvcl_secret_or_random(const char *path, uint8_t secret[KVCL_SHA256_LEN])
{
    return (path != NULL) ? kvcl_secret_named(path, secret) : kvcl_random_bytes(secret, KVCL_SHA256_LEN);
}
