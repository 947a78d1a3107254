/*
 * The tier's file: opened or created, locked to this process, with a super block that describes its division.
 *
 * The file belongs to this user alone: a symbolic link, another owner, or access for group or others is refused, since
 * whoever writes to the file chooses the bytes that are found in it. A non-empty file that is no tier is formatted only
 * when params.format says so.
 *
 * O_DIRECT where the file system takes it, shown by a read that works; else buffered, with one warning. Formatting
 * first writes a block that says "unfinished", then takes the whole space, so that a full disk shows here; then every
 * segment's trailer says FREE, and last the super block is written. Blocking calls; only while a tier is opened.
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
    struct stat st;
    int         direct;

    file->direct = true;
    file->fd     = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_DIRECT, 0600);
    if ((file->fd < 0) && (errno == ELOOP)) {
        return kvcl_fail(KVCL_ERR_ACCESS, "tier %s: it is a symbolic link: name the file itself", path);
    }
    if ((file->fd >= 0) && (pread(file->fd, block, KVCL_SEG_ALIGN, 0) < 0)) {
        direct       = fcntl(file->fd, F_GETFL);
        file->direct = false;
        if ((direct < 0) || (fcntl(file->fd, F_SETFL, direct & ~O_DIRECT) != 0)) {
            kvcl_tier_file_close(file);
        }
    } else if (file->fd < 0) {
        file->direct = false;
        file->fd     = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    if (file->fd < 0) {
        return disk_error(path, "cannot be opened");
    }
    if (fstat(file->fd, &st) != 0) {
        return disk_error(path, "cannot be inspected");
    }
    if (!S_ISREG(st.st_mode)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "tier %s: not a regular file", path);
    }
    if (st.st_uid != geteuid()) {
        return kvcl_fail(KVCL_ERR_ACCESS, "tier %s: it belongs to user %u, this process runs as user %u: name a file "
                         "of its own", path, (unsigned)st.st_uid, (unsigned)geteuid());
    }
    if ((st.st_mode & 077) != 0) {
        return kvcl_fail(KVCL_ERR_ACCESS, "tier %s: it has mode %04o, others may use it: chmod 600 %s", path,
                         (unsigned)(st.st_mode & 07777), path);
    }
    if (!lock_file(file->fd)) {
        return kvcl_fail(KVCL_ERR_BUSY, "tier %s: another process, or another tier of this one, has it", path);
    }
    if (!file->direct) {
        kvcl_log_warn("tier %s: the file system has no O_DIRECT: its blocks pass through the page cache", path);
    }
    return KVCL_OK;
}

/* *ours_p: the super block is valid and has the wanted segment size. A file of another kind is refused. */
static kvcl_status_t inspect(const kvcl_tier_params_t *params, uint8_t *block, kvcl_tier_file_t *file, bool *ours_p)
{
    kvcl_seg_super_t super;
    struct stat      st;
    unsigned         i;
    bool             tier = false, found = false;

    *ours_p = false;
    if (fstat(file->fd, &st) != 0) {
        return disk_error(params->path, "cannot be inspected");
    }
    for (i = 0; (i < 2) && !found && (st.st_size >= KVCL_SEG_ALIGN); ++i) {
        if (move_all(file->fd, false, i * (KVCL_SEG_HEAD / 2), block, KVCL_SEG_ALIGN)) {
            found = kvcl_seg_super_get(block, &super);
            tier  = tier || found || ((i == 0) && kvcl_seg_unfinished(block));
        }
    }
    if (params->format) {
        return KVCL_OK;
    }
    if ((st.st_size > 0) && !tier) {
        return kvcl_fail(KVCL_ERR_EXISTS, "tier %s: a file of %lld bytes that is no tier: remove it, name another, or "
                         "say that it may be formatted (KVCL_STORE_NVME_FORMAT, kvcl_serve --nvme-format)",
                         params->path, (long long)st.st_size);
    }
    if (found && (super.tail != 0) &&
        ((params->key == NULL) || (super.proof != kvcl_tier_key_proof(params->key, super.id)))) {
        return kvcl_fail(KVCL_ERR_ACCESS, "tier %s: it has %s key: name the file's key (KVCL_STORE_NVME_KEY), name "
                         "another file, or say that this one may be formatted (KVCL_STORE_NVME_FORMAT, kvcl_serve "
                         "--nvme-format)", params->path, (params->key == NULL) ? "a" : "another");
    }
    if (found && (super.tail != file->super.tail)) {
        kvcl_log_warn("tier %s: it has no key, so nothing proves its blocks: they are dropped", params->path);
        found = false;
    }
    *ours_p = found && !params->fresh && (super.segment == file->super.segment) && (super.n == file->super.n) &&
              ((uint64_t)st.st_size >= kvcl_seg_base(&super, super.n));
    if (*ours_p) {
        file->super = super;
    } else if (found && params->fresh) {
        kvcl_log_info("tier %s: its blocks are dropped: they may be out of date", params->path);
    } else if (found) {
        kvcl_log_warn("tier %s: it held %u segments of %llu bytes and is opened for %u of %llu: its blocks are dropped",
                      params->path, super.n, (unsigned long long)super.segment, file->super.n,
                      (unsigned long long)file->super.segment);
    }
    return KVCL_OK;
}

/* block: KVCL_SEG_ALIGN bytes of scratch. */
static kvcl_status_t take_space(const char *path, uint8_t *block, kvcl_tier_file_t *file)
{
    uint64_t size = kvcl_seg_base(&file->super, file->super.n);
    int      rc;

    if (ftruncate(file->fd, 0) != 0) {
        return disk_error(path, "cannot be emptied");
    }
    kvcl_seg_unfinished_put(block);
    if (!move_all(file->fd, true, 0, block, KVCL_SEG_ALIGN)) {
        (void)!ftruncate(file->fd, 0);
        return disk_error(path, "cannot be written");
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

static kvcl_status_t format(const char *path, const kvcl_tier_key_t *key, uint8_t *block, kvcl_tier_file_t *file)
{
    kvcl_seg_trailer_t trailer = {.kind = KVCL_SEG_FREE};
    kvcl_status_t      status  = kvcl_random_bytes(&file->super.id, sizeof(file->super.id));
    uint32_t           i;
    bool               ok = true;

    if (status == KVCL_OK) {
        file->super.proof = (key != NULL) ? kvcl_tier_key_proof(key, file->super.id) : 0;
        status            = take_space(path, block, file);
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

    file->fd         = -1;
    file->super.tail = (params->key != NULL) ? KVCL_SEG_TAIL : 0;
    if ((status == KVCL_OK) && (block == NULL)) {
        status = kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a block");
    }
    if (status == KVCL_OK) {
        status = open_fd(params->path, block, file);
    }
    if (status == KVCL_OK) {
        status = inspect(params, block, file, &ours);
    }
    if ((status == KVCL_OK) && !ours) {
        status = format(params->path, params->key, block, file);
    }
    if (status != KVCL_OK) {
        kvcl_tier_file_close(file);
    }
    free(block);
    return status;
}
