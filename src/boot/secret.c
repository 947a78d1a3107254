/*
 * Reading, checking and making secret files. Nothing is kept; buffers with secret bytes are wiped.
 *
 * Making is race-safe: the file is complete under a private name before link(2) gives it its own, and
 * link fails if another process came first, whose file is then read.
 */
#include "config.h"
#include "boot/secret.h"
#include "base/error.h"
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

static kvcl_status_t check_file(const char *path, const struct stat *st)
{
    if (S_ISDIR(st->st_mode)) {
        return kvcl_fail(KVCL_ERR_ACCESS, "secret file %s is a directory: name a file in it", path);
    }
    if (!S_ISREG(st->st_mode)) {
        return kvcl_fail(KVCL_ERR_ACCESS, "secret file %s is not a regular file", path);
    }
    if (st->st_uid != geteuid()) {
        return kvcl_fail(KVCL_ERR_ACCESS, "secret file %s belongs to user %u, not to this process's (user "
                         "%u): make one that does", path, (unsigned)st->st_uid, (unsigned)geteuid());
    }
    if ((st->st_mode & 077) != 0) {
        return kvcl_fail(KVCL_ERR_ACCESS, "secret file %s has mode %04o, others may use it: chmod 600 %s", path,
                         (unsigned)(st->st_mode & 07777), path);
    }
    if (st->st_size == 0) {
        return kvcl_fail(KVCL_ERR_ACCESS, "secret file %s is empty: write %d to %d random bytes into it, the same on "
                         "all ranks", path, (int)FILE_MIN_BYTES, (int)FILE_MAX_BYTES);
    }
    if ((st->st_size < FILE_MIN_BYTES) || (st->st_size > FILE_MAX_BYTES)) {
        return kvcl_fail(KVCL_ERR_ACCESS, "secret file %s has %lld bytes: it needs %d to %d random ones", path,
                         (long long)st->st_size, (int)FILE_MIN_BYTES, (int)FILE_MAX_BYTES);
    }
    return KVCL_OK;
}

static kvcl_status_t hash_file(int fd, const char *path, uint8_t *secret)
{
    uint8_t           buf[4096];
    kvcl_sha256_ctx_t sha;
    kvcl_status_t     status = kvcl_sha256_create(&sha);
    size_t            total  = 0;
    ssize_t           n      = 0;

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_sha256_init(&sha);
    do {
        n = read(fd, buf, sizeof(buf));
        if (n > 0) {
            total += (size_t)n;
            kvcl_sha256_update(&sha, buf, (size_t)n);
        }
    } while (((n > 0) && (total <= FILE_MAX_BYTES)) || ((n < 0) && (errno == EINTR)));
    if (n < 0) {
        status = kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot read secret file %s", path);
    } else if ((total < FILE_MIN_BYTES) || (total > FILE_MAX_BYTES)) {
        status = kvcl_fail(KVCL_ERR_ACCESS, "secret file %s changed while it was read", path);
    } else {
        kvcl_sha256_final(&sha, secret);
    }
    kvcl_sha256_destroy(&sha);
    kvcl_wipe(buf, sizeof(buf));
    return status;
}

kvcl_status_t kvcl_secret_from_file(const char *path, uint8_t secret[KVCL_SHA256_LEN])
{
    kvcl_status_t status;
    struct stat   st;
    /* O_NONBLOCK: a FIFO in its place must not block the open before fstat refuses it. */
    int           fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) {
        status = (errno == ENOENT) ? KVCL_ERR_NOT_FOUND : (errno == EACCES) ? KVCL_ERR_ACCESS : KVCL_ERR_IO;
        return (status == KVCL_ERR_NOT_FOUND)
                   ? kvcl_fail(status, "secret file %s is not there: make it (umask 077; head -c 32 /dev/urandom >%s), "
                               "the same on all ranks", path, path)
                   : kvcl_fail_errno(status, errno, "cannot open secret file %s", path);
    }
    if (fstat(fd, &st) != 0) {
        status = kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot stat secret file %s", path);
    } else {
        status = check_file(path, &st);
    }
    if (status == KVCL_OK) {
        status = hash_file(fd, path, secret);
    }
    close(fd);
    return status;
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

kvcl_status_t kvcl_secret_of_user(uint8_t secret[KVCL_SHA256_LEN])
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
    kvcl_status_t status = kvcl_secret_from_file(path, secret);

    return ((status == KVCL_ERR_NOT_FOUND) || (status == KVCL_ERR_ACCESS))
               ? kvcl_fail(KVCL_ERR_AUTH, "KVCL_SECRET_FILE: %s", kvcl_last_error())
               : status;
}

kvcl_status_t kvcl_secret_or_random(const char *path, uint8_t secret[KVCL_SHA256_LEN])
{
    return (path != NULL) ? kvcl_secret_named(path, secret) : kvcl_random_bytes(secret, KVCL_SHA256_LEN);
}
