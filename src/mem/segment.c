/*
 * Segments (segment.h): memfds that are created, sealed, described, and opened through /proc/PID/fd.
 *
 * Invariants: a segment is sealed against shrinking before any peer can know it. A view maps only a regular file of
 * tmpfs that cannot shrink and that has at least the bytes mapped, so no access to a view raises SIGBUS: hugetlbfs is
 * refused, because its pages may be missing. The file is opened by O_PATH first, checked, and opened again through that
 * descriptor, so the file checked is the file mapped, and no device or pipe is ever opened.
 */
#include "config.h"
#include "mem/segment.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/wirebuf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SEGMENT_MAGIC UINT32_C(0x4b565347)

enum {
    NAME_BYTES = 64,
    VIEW_HUGE  = 4 << 20 /* views from this size on request huge pages */
};

/* A packed segment: u32 magic, i32 pid, i32 fd, u32 flags, u64 place, u64 inode, u64 bytes of the file, u8 id[16]. */
typedef struct claim {
    int32_t  pid;
    int32_t  fd;
    uint32_t flags; /* KVCL_SEGMENT_READ_ONLY */
    uint64_t place;
    uint64_t inode;
    uint64_t bytes;
    uint8_t  id[KVCL_SEGMENT_ID_BYTES];
} claim_t;

static uint64_t this_place; /* where process ids mean the same: this boot of this machine and this pid namespace */

static void read_place(void)
{
    char        boot[64] = "";
    struct stat st;
    int         fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (read(fd, boot, sizeof(boot)) < 0) {
            boot[0] = '\0';
        }
        close(fd);
    }
    if ((boot[0] != '\0') && (stat("/proc/self/ns/pid", &st) == 0)) {
        this_place = kvcl_checksum(boot, sizeof(boot)) ^ (uint64_t)st.st_ino;
    }
}

/* 0: not known, then no segment of another process is opened. */
static uint64_t place(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, read_place);
    return this_place;
}

static size_t page_up(size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (len + page - 1) & ~(page - 1);
}

static void name_of(const uint8_t *id, char name[NAME_BYTES])
{
    size_t i, n = (size_t)snprintf(name, NAME_BYTES, "kvcl-");

    for (i = 0; i < KVCL_SEGMENT_ID_BYTES; ++i) {
        n += (size_t)snprintf(name + n, NAME_BYTES - n, "%02x", id[i]);
    }
}

/* -1: this system has no memfds for this process. */
static int make_fd(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if ((fd < 0) && (errno == EINVAL)) { /* before Linux 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    return fd;
}

/* Every page present. */
static kvcl_status_t populate(const kvcl_segment_t *seg)
{
    int rc;

    do {
        rc = madvise(seg->addr, seg->mapped, MADV_POPULATE_WRITE);
    } while ((rc != 0) && ((errno == EINTR) || (errno == EAGAIN)));
    if ((rc != 0) && (errno == EINVAL)) { /* before Linux 5.14 */
        do {
            rc = (seg->fd >= 0) ? fallocate(seg->fd, 0, 0, (off_t)seg->mapped) : 0;
        } while ((rc != 0) && (errno == EINTR));
    }
    return (rc == 0) ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_NO_MEMORY, errno, "%zu bytes of memory", seg->mapped);
}

static kvcl_status_t seal(const kvcl_segment_t *seg)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW;

    if (seg->read_only && (fcntl(seg->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0)) {
        kvcl_log_debug("peers could map read-only memory for writing: no F_SEAL_FUTURE_WRITE: %m");
    }
    if (fcntl(seg->fd, F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) {
        return kvcl_fail_errno(KVCL_ERR_INTERNAL, errno, "sealing a segment");
    }
    return KVCL_OK;
}

static kvcl_status_t make_file(kvcl_segment_t *seg)
{
    char          name[NAME_BYTES];
    kvcl_status_t status = kvcl_random_bytes(seg->id, sizeof(seg->id));
    struct stat   st;

    if (status != KVCL_OK) {
        return status;
    }
    name_of(seg->id, name);
    seg->fd = make_fd(name);
    if (seg->fd < 0) {
        if ((errno == EMFILE) || (errno == ENFILE)) {
            return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, errno, "a descriptor for %zu bytes of shared memory",
                                   seg->mapped);
        }
        kvcl_log_info("memory is reached by messages only: no memfd: %m");
        return KVCL_OK;
    }
    if ((ftruncate(seg->fd, (off_t)seg->mapped) != 0) || (fstat(seg->fd, &st) != 0)) {
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, errno, "%zu bytes of shared memory", seg->mapped);
    }
    seg->inode = st.st_ino;
    return KVCL_OK;
}

static kvcl_status_t make_map(kvcl_segment_t *seg, unsigned flags)
{
    int           kind = (seg->fd >= 0) ? MAP_SHARED : (MAP_PRIVATE | MAP_ANONYMOUS);
    void          *addr = mmap(NULL, seg->mapped, PROT_READ | PROT_WRITE, kind, seg->fd, 0);
    kvcl_status_t status;

    if (addr == MAP_FAILED) {
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, errno, "no memory for a region of %zu bytes", seg->mapped);
    }
    seg->addr = addr;
    if (flags & KVCL_SEGMENT_HUGE) {
        (void)madvise(addr, seg->mapped, MADV_HUGEPAGE);
    }
    status = (seg->fd >= 0) ? populate(seg) : KVCL_OK;
    return ((status == KVCL_OK) && (seg->fd >= 0)) ? seal(seg) : status;
}

kvcl_status_t kvcl_segment_create(kvcl_segment_t *seg, size_t len, unsigned flags)
{
    kvcl_status_t status = KVCL_OK;
    uint64_t      room;

    *seg = (kvcl_segment_t){.fd = -1, .mapped = page_up(len), .read_only = (flags & KVCL_SEGMENT_READ_ONLY) != 0};
    if ((len == 0) || (seg->mapped < len)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "cannot allocate %zu bytes", len);
    }
    if (!(flags & KVCL_SEGMENT_PRIVATE)) {
        room = kvcl_segment_room();
        if (len > room) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "%zu bytes of memory requested, this machine or this process's "
                             "control group has %llu free", len, (unsigned long long)room);
        }
        status = make_file(seg);
    }
    if (status == KVCL_OK) {
        status = make_map(seg, flags);
    }
    if (status != KVCL_OK) {
        kvcl_segment_destroy(seg);
    }
    return status;
}

void kvcl_segment_destroy(kvcl_segment_t *seg)
{
    if (seg->addr != NULL) {
        munmap(seg->addr, seg->mapped);
    }
    if ((seg->mapped > 0) && (seg->fd >= 0)) {
        close(seg->fd);
    }
    *seg = (kvcl_segment_t){.fd = -1};
}

size_t kvcl_segment_pack(const kvcl_segment_t *seg, void *buf, size_t cap)
{
    kvcl_wr_t wr;

    if ((seg->addr == NULL) || (seg->fd < 0) || (place() == 0)) {
        return 0;
    }
    kvcl_wr_init(&wr, buf, cap);
    kvcl_wr_u32(&wr, SEGMENT_MAGIC);
    kvcl_wr_u32(&wr, (uint32_t)getpid());
    kvcl_wr_u32(&wr, (uint32_t)seg->fd);
    kvcl_wr_u32(&wr, seg->read_only ? KVCL_SEGMENT_READ_ONLY : 0);
    kvcl_wr_u64(&wr, place());
    kvcl_wr_u64(&wr, seg->inode);
    kvcl_wr_u64(&wr, seg->mapped);
    kvcl_wr_bytes(&wr, seg->id, sizeof(seg->id));
    return kvcl_wr_ok(&wr) ? kvcl_wr_len(&wr) : 0;
}

/* ---- a peer's segment ---- */

/* Pure. */
static bool parse(const void *buf, size_t len, claim_t *claim)
{
    kvcl_rd_t rd;
    uint32_t  magic;

    kvcl_rd_init(&rd, buf, len);
    magic        = kvcl_rd_u32(&rd);
    claim->pid   = (int32_t)kvcl_rd_u32(&rd);
    claim->fd    = (int32_t)kvcl_rd_u32(&rd);
    claim->flags = kvcl_rd_u32(&rd);
    claim->place = kvcl_rd_u64(&rd);
    claim->inode = kvcl_rd_u64(&rd);
    claim->bytes = kvcl_rd_u64(&rd);
    kvcl_rd_copy(&rd, claim->id, sizeof(claim->id));
    return kvcl_rd_done(&rd) && (magic == SEGMENT_MAGIC) && (claim->pid > 0) && (claim->fd >= 0) &&
           ((claim->flags & ~(uint32_t)KVCL_SEGMENT_READ_ONLY) == 0);
}

/* Is it the file that the claim names? path: "/proc/self/fd/N". */
static bool is_named(const claim_t *claim, const char *path, const struct stat *st)
{
    char    want[NAME_BYTES + 16], name[NAME_BYTES], target[NAME_BYTES + 64];
    ssize_t n = readlink(path, target, sizeof(target) - 1);

    name_of(claim->id, name);
    snprintf(want, sizeof(want), "/memfd:%s", name);
    return (n > 0) && S_ISREG(st->st_mode) && (st->st_ino == claim->inode) && ((size_t)n >= strlen(want)) &&
           (strncmp(target, want, strlen(want)) == 0);
}

/* What the kernel says of the file. */
static kvcl_status_t check_file(const claim_t *claim, int fd, uint64_t len, bool write)
{
    int           seals = fcntl(fd, F_GET_SEALS);
    struct statfs fs;
    struct stat   st;

    if ((seals < 0) || !(seals & F_SEAL_SHRINK) || (fstatfs(fd, &fs) != 0) || (fs.f_type != TMPFS_MAGIC)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "its segment is not sealed against shrinking (seals 0x%x)",
                         (seals < 0) ? 0u : (unsigned)seals);
    }
    if ((fstat(fd, &st) != 0) || ((uint64_t)st.st_size != claim->bytes) || (len > (uint64_t)st.st_size)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a region of %llu bytes in a segment of %llu is claimed, the segment has "
                         "%llu", (unsigned long long)len, (unsigned long long)claim->bytes,
                         (unsigned long long)st.st_size);
    }
    if (write && ((claim->flags & KVCL_SEGMENT_READ_ONLY) || (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a region with the right to write in a segment that only its owner may "
                         "write");
    }
    return KVCL_OK;
}

static kvcl_status_t map_file(const claim_t *claim, int fd, uint64_t len, bool write, kvcl_segment_view_t *view)
{
    kvcl_status_t status = check_file(claim, fd, len, write);
    size_t        bytes;
    void          *addr;

    if (status != KVCL_OK) {
        return status;
    }
    bytes = page_up((size_t)len);
    addr  = mmap(NULL, bytes, write ? (PROT_READ | PROT_WRITE) : PROT_READ, MAP_SHARED, fd, 0);
    if (addr == MAP_FAILED) {
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, errno, "mapping %zu bytes of a segment", bytes);
    }
    if (bytes >= VIEW_HUGE) {
        (void)madvise(addr, bytes, MADV_HUGEPAGE);
    }
    view->addr   = addr;
    view->mapped = bytes;
    return KVCL_OK;
}

/* The sentence of an open that failed with errno. */
static kvcl_status_t not_opened(const claim_t *claim)
{
    bool gone = (errno == ENOENT) || (errno == ESRCH);

    return kvcl_fail_errno(gone ? KVCL_ERR_NOT_FOUND : KVCL_ERR_ACCESS, errno, "opening descriptor %d of process %d",
                           (int)claim->fd, (int)claim->pid);
}

/* found: opened by O_PATH. */
static kvcl_status_t open_found(const claim_t *claim, int found, uint64_t len, bool write, kvcl_segment_view_t *view)
{
    char          path[64];
    kvcl_status_t status;
    struct stat   st;
    int           fd;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
    if ((fstat(found, &st) != 0) || !is_named(claim, path, &st)) {
        return kvcl_fail(KVCL_ERR_NOT_FOUND, "descriptor %d of process %d is not its segment", (int)claim->fd,
                         (int)claim->pid);
    }
    fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (fd < 0) {
        return not_opened(claim);
    }
    status = map_file(claim, fd, len, write, view);
    close(fd);
    return status;
}

kvcl_status_t kvcl_segment_open(const void *buf, size_t buf_len, uint64_t len, bool write, kvcl_segment_view_t *view)
{
    kvcl_status_t status;
    claim_t       claim;
    char          path[64];
    int           found;

    *view = (kvcl_segment_view_t){NULL, 0};
    if (!parse(buf, buf_len, &claim) || (len == 0)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a malformed segment of %zu bytes", buf_len);
    }
    if ((claim.place == 0) || (claim.place != place())) {
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "a segment of another host or process namespace");
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)claim.pid, (int)claim.fd);
    found = open(path, O_PATH | O_CLOEXEC);
    if (found < 0) {
        return not_opened(&claim);
    }
    status = open_found(&claim, found, len, write, view);
    close(found);
    return status;
}

void kvcl_segment_close(kvcl_segment_view_t *view)
{
    if (view->addr != NULL) {
        munmap(view->addr, view->mapped);
    }
    *view = (kvcl_segment_view_t){NULL, 0};
}
