/*
 * The tier's file: found or made, locked to this process, with a super block that says how it is divided.
 *
 * O_DIRECT where the file system takes it, shown by a read that works; else buffered, and that is said once. A fresh
 * file's space is taken at once, so that a full disk shows here; then every segment's trailer says FREE, then the
 * super block is written, last: a file without one was never finished. Blocking calls; only while a tier is opened.
 */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "tier/tier_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 100 };

static bool move_all(int fd, bool write, uint64_t off, uint8_t *buf, size_t len)
{
    size_t  at = 0;
    ssize_t rc;

    while (at < len) {
        rc = write ? pwrite(fd, buf + at, len - at, (off_t)(off + at))
                   : pread(fd, buf + at, len - at, (off_t)(off + at));
        if ((rc < 0) && (errno == EINTR)) {
            continue;
        }
        if (rc <= 0) {
            errno = (rc == 0) ? EIO : errno;
            return false;
        }
        at += (size_t)rc;
    }
    return true;
}

kvcl_status_t kvcl_tier_file_read(void *arg, uint64_t off, uint8_t *buf, size_t len)
{
    const kvcl_tier_file_t *file = arg;

    return move_all(file->fd, false, off, buf, len) ? KVCL_OK : KVCL_ERR_IO;
}

void kvcl_tier_file_close(kvcl_tier_file_t *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd); /* and unlocks */
    }
    file->fd = -1;
}

static kvcl_status_t disk_error(const char *path, const char *what)
{
    return kvcl_fail_errno((errno == ENOSPC) ? KVCL_ERR_NO_SPACE : KVCL_ERR_IO, errno, "tier %s: %s", path, what);
}

/* The kernel may hold the file of a process that was killed for a moment longer, for its io_uring. */
static bool lock_file(int fd)
{
    static const struct timespec moment = {.tv_nsec = 10000000};
    int                          i;

    for (i = 0; i < LOCK_TRIES; ++i) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        nanosleep(&moment, NULL);
    }
    return false;
}

/* The descriptor, with O_DIRECT if both open and a read take it. */
static kvcl_status_t open_fd(const char *path, uint8_t *block, kvcl_tier_file_t *file)
{
    int direct;

    file->direct = true;
    file->fd     = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
    if ((file->fd >= 0) && (pread(file->fd, block, KVCL_SEG_ALIGN, 0) < 0)) {
        direct       = fcntl(file->fd, F_GETFL);
        file->direct = false;
        if ((direct < 0) || (fcntl(file->fd, F_SETFL, direct & ~O_DIRECT) != 0)) {
            kvcl_tier_file_close(file);
        }
    } else if (file->fd < 0) {
        file->direct = false;
        file->fd     = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    if (file->fd < 0) {
        return disk_error(path, "cannot be opened");
    }
    if (!lock_file(file->fd)) {
        return kvcl_fail(KVCL_ERR_BUSY, "tier %s: another process, or another tier of this one, has it", path);
    }
    if (!file->direct) {
        kvcl_log_warn("tier %s: no O_DIRECT there, so its blocks pass through the page cache", path);
    }
    return KVCL_OK;
}

static bool all_zero(const uint8_t *block)
{
    size_t i;

    for (i = 0; i < KVCL_SEG_ALIGN; ++i) {
        if (block[i] != 0) {
            return false;
        }
    }
    return true;
}

/* *ours_p: the super block is valid and has the wanted segment size. A file of another kind is refused. */
static kvcl_status_t look_at(const char *path, uint8_t *block, kvcl_tier_file_t *file, bool *ours_p)
{
    kvcl_seg_super_t super;
    struct stat      st;
    unsigned         i;
    bool             empty = true, found = false;

    *ours_p = false;
    if (fstat(file->fd, &st) != 0) {
        return disk_error(path, "cannot be looked at");
    }
    if (!S_ISREG(st.st_mode)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "tier %s: not a regular file", path);
    }
    for (i = 0; (i < 2) && !found && (st.st_size >= KVCL_SEG_HEAD); ++i) {
        if (move_all(file->fd, false, i * (KVCL_SEG_HEAD / 2), block, KVCL_SEG_ALIGN)) {
            empty = empty && all_zero(block);
            found = kvcl_seg_super_get(block, &super);
        }
    }
    if ((st.st_size > 0) && !found && ((st.st_size < KVCL_SEG_HEAD) || !empty)) {
        return kvcl_fail(KVCL_ERR_EXISTS, "tier %s: the file is there and is no tier's; remove it or name another",
                         path);
    }
    *ours_p = found && (super.segment == file->super.segment) && (super.n == file->super.n) &&
              ((uint64_t)st.st_size >= kvcl_seg_base(&super, super.n));
    if (*ours_p) {
        file->super = super;
    } else if (found) {
        kvcl_log_info("tier %s: another size than before: its blocks are given up", path);
    }
    return KVCL_OK;
}

static kvcl_status_t take_space(const char *path, kvcl_tier_file_t *file)
{
    uint64_t size = kvcl_seg_base(&file->super, file->super.n);
    int      rc;

    if (ftruncate(file->fd, 0) != 0) {
        return disk_error(path, "cannot be emptied");
    }
    rc = posix_fallocate(file->fd, 0, (off_t)size);
    if ((rc == EINVAL) || (rc == EOPNOTSUPP)) {
        rc = (ftruncate(file->fd, (off_t)size) == 0) ? 0 : errno;
    }
    if (rc != 0) {
        (void)!ftruncate(file->fd, 0);
        errno = rc;
        return disk_error(path, "has no room for it");
    }
    return KVCL_OK;
}

static kvcl_status_t format(const char *path, uint8_t *block, kvcl_tier_file_t *file)
{
    kvcl_seg_trailer_t trailer = {.kind = KVCL_SEG_FREE};
    kvcl_status_t      status  = kvcl_random_bytes(&file->super.id, sizeof(file->super.id));
    uint32_t           i;
    bool               ok = true;

    if (status == KVCL_OK) {
        status = take_space(path, file);
    }
    if (status != KVCL_OK) {
        return status;
    }
    memset(block, 0, KVCL_SEG_ALIGN);
    for (i = 0; ok && (i < file->super.n); ++i) {
        kvcl_seg_trailer_put(&file->super, i, &trailer, block + KVCL_SEG_ALIGN - KVCL_SEG_UNIT);
        ok = move_all(file->fd, true, kvcl_seg_base(&file->super, i) + file->super.segment - KVCL_SEG_ALIGN, block,
                      KVCL_SEG_ALIGN);
    }
    ok = ok && (fdatasync(file->fd) == 0);
    kvcl_seg_super_put(&file->super, block);
    ok = ok && move_all(file->fd, true, 0, block, KVCL_SEG_ALIGN) &&
         move_all(file->fd, true, KVCL_SEG_HEAD / 2, block, KVCL_SEG_ALIGN) && (fsync(file->fd) == 0);
    return ok ? KVCL_OK : disk_error(path, "cannot be written");
}

kvcl_status_t kvcl_tier_file_open(const kvcl_tier_params_t *params, kvcl_tier_file_t *file)
{
    uint8_t       *block = aligned_alloc(KVCL_SEG_ALIGN, KVCL_SEG_ALIGN);
    kvcl_status_t status = kvcl_seg_divide(params->size, params->segment, &file->super);
    bool          ours   = false;

    file->fd = -1;
    if ((status == KVCL_OK) && (block == NULL)) {
        status = kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a block");
    }
    if (status == KVCL_OK) {
        status = open_fd(params->path, block, file);
    }
    if (status == KVCL_OK) {
        status = look_at(params->path, block, file, &ours);
    }
    if ((status == KVCL_OK) && !ours) {
        status = format(params->path, block, file);
    }
    if (status != KVCL_OK) {
        kvcl_tier_file_close(file);
    }
    free(block);
    return status;
}
