/*
 * Reading a file that only its user may use (key_file.h). Owns nothing; any thread.
 *
 * The open file is checked, not the path: another file may have the name a moment later.
 */
#include "config.h"
#include "base/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct reason {
    const kvcl_key_file_t *kind;
    const char            *path;
    char                  *why;
    size_t                size;
} reason_t;

/* "<what> <path> <format>" */
__attribute__((format(printf, 3, 4)))
static kvcl_status_t refuse(const reason_t *reason, kvcl_status_t status, const char *format, ...)
{
    int     n = snprintf(reason->why, reason->size, "%s %s ", reason->kind->what, reason->path);
    va_list args;

    if ((n > 0) && ((size_t)n < reason->size)) {
        va_start(args, format);
        (void)vsnprintf(reason->why + n, reason->size - (size_t)n, format, args);
        va_end(args);
    }
    return status;
}

static kvcl_status_t not_opened(const reason_t *reason, int err)
{
    const kvcl_key_file_t *kind = reason->kind;

    switch (err) {
    case ENOENT:
        return refuse(reason, KVCL_ERR_NOT_FOUND, "is not there: make it (umask 077; %s >%s)%s", kind->make,
                      reason->path, kind->also);
    case ELOOP:
        return refuse(reason, KVCL_ERR_ACCESS, "is a symbolic link that leads to itself: name the file");
    case EACCES:
        return refuse(reason, KVCL_ERR_ACCESS, "cannot be opened: %s: let user %u, as which this process runs, enter "
                      "its directories and read it, or name another file", strerror(err), (unsigned)geteuid());
    default:
        return refuse(reason, KVCL_ERR_IO, "cannot be opened: %s", strerror(err));
    }
}

static kvcl_status_t check(const reason_t *reason, const struct stat *st)
{
    const kvcl_key_file_t *kind = reason->kind;

    if (S_ISDIR(st->st_mode)) {
        return refuse(reason, KVCL_ERR_ACCESS, "is a directory: name a file in it");
    }
    if (!S_ISREG(st->st_mode)) {
        return refuse(reason, KVCL_ERR_ACCESS, "is not a regular file");
    }
    if (st->st_uid != geteuid()) {
        return refuse(reason, KVCL_ERR_ACCESS, "belongs to user %u, but this process runs as user %u: chown it, "
                      "or name another file", (unsigned)st->st_uid, (unsigned)geteuid());
    }
    if ((st->st_mode & 077) != 0) {
        return refuse(reason, KVCL_ERR_ACCESS, "has mode %04o, others may use it: chmod 600 %s",
                      (unsigned)(st->st_mode & 07777), reason->path);
    }
    if (st->st_size == 0) {
        return refuse(reason, KVCL_ERR_ACCESS, "is empty: write %zu to %zu bytes into it (%s >%s)%s", kind->min,
                      kind->max, kind->make, reason->path, kind->also);
    }
    if ((st->st_size < (off_t)kind->min) || (st->st_size > (off_t)kind->max)) {
        return refuse(reason, KVCL_ERR_ACCESS, "has %lld bytes: it needs %zu to %zu (%s)", (long long)st->st_size,
                      kind->min, kind->max, kind->make);
    }
    return KVCL_OK;
}

static kvcl_status_t read_all(const reason_t *reason, int fd, size_t size, uint8_t *buf)
{
    size_t  cap = reason->kind->max + 1, len = 0;
    ssize_t n   = 1;

    while ((n != 0) && (len < cap)) {
        n = read(fd, buf + len, cap - len);
        if ((n < 0) && (errno != EINTR)) {
            return refuse(reason, KVCL_ERR_IO, "cannot be read: %s", strerror(errno));
        }
        len += (n > 0) ? (size_t)n : 0;
    }
    return (len == size) ? KVCL_OK : refuse(reason, KVCL_ERR_ACCESS, "changed while it was read");
}

kvcl_status_t kvcl_key_file_read(const kvcl_key_file_t *kind, const char *path, void *buf, size_t *len_p, char *why,
                                 size_t why_size)
{
    reason_t      reason = {kind, path, why, why_size};
    struct stat   st;
    kvcl_status_t status;
    /* O_NONBLOCK: a FIFO in its place must not block the open before fstat refuses it. */
    int           fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) {
        return not_opened(&reason, errno);
    }
    status = (fstat(fd, &st) == 0) ? check(&reason, &st)
                                   : refuse(&reason, KVCL_ERR_IO, "cannot be inspected: %s", strerror(errno));
    if (status == KVCL_OK) {
        status = read_all(&reason, fd, (size_t)st.st_size, (uint8_t *)buf);
    }
    if (status == KVCL_OK) {
        *len_p = (size_t)st.st_size;
    }
    close(fd);
    return status;
}
