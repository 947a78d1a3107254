/*
 * The key of a tier's file (tier_key.h). Owns nothing; bytes of the key file are wiped. Any thread.
 */
#include "config.h"
#include "tier/tier_key.h"

#include "base/error.h"
#include "base/poly1305.h"
#include "base/wirebuf.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 64 * 1024 };

_Static_assert((int)KVCL_POLY1305_TAG_LEN == (int)KVCL_TIER_NONCE, "a tail is a nonce and a tag");

static kvcl_status_t check_file(const char *path, const struct stat *st)
{
    if (!S_ISREG(st->st_mode)) {
        return kvcl_fail(KVCL_ERR_ACCESS, "key file %s is not a regular file", path);
    }
    if (st->st_uid != geteuid()) {
        return kvcl_fail(KVCL_ERR_ACCESS, "key file %s belongs to user %u, not to this process's (user %u): make one "
                         "that does", path, (unsigned)st->st_uid, (unsigned)geteuid());
    }
    if ((st->st_mode & 077) != 0) {
        return kvcl_fail(KVCL_ERR_ACCESS, "key file %s has mode %04o, others may use it: chmod 600 %s", path,
                         (unsigned)(st->st_mode & 07777), path);
    }
    if ((st->st_size < KVCL_TIER_KEY_FILE_MIN) || (st->st_size > FILE_MAX)) {
        return kvcl_fail(KVCL_ERR_ACCESS, "key file %s has %lld bytes: it needs %d to %d random ones", path,
                         (long long)st->st_size, (int)KVCL_TIER_KEY_FILE_MIN, (int)FILE_MAX);
    }
    return KVCL_OK;
}

static kvcl_status_t hash_file(int fd, const char *path, size_t len, kvcl_tier_key_t *key)
{
    uint8_t           buf[4096];
    kvcl_sha256_ctx_t sha;
    kvcl_status_t     status = kvcl_sha256_create(&sha);
    size_t            total  = 0;
    ssize_t           n      = 1;

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_sha256_init(&sha);
    while ((n > 0) && (total <= FILE_MAX)) {
        n = read(fd, buf, sizeof(buf));
        n = ((n < 0) && (errno == EINTR)) ? 1 : n;
        if (n > 0) {
            kvcl_sha256_update(&sha, buf, (size_t)n);
            total += (size_t)n;
        }
    }
    kvcl_sha256_final(&sha, key->bytes);
    kvcl_sha256_destroy(&sha);
    kvcl_wipe(buf, sizeof(buf));
    if (n < 0) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "key file %s cannot be read", path);
    }
    return (total == len) ? KVCL_OK : kvcl_fail(KVCL_ERR_ACCESS, "key file %s changed while it was read", path);
}

kvcl_status_t kvcl_tier_key_read(const char *path, kvcl_tier_key_t *key)
{
    /* O_NONBLOCK: a FIFO in its place must not block the open before fstat refuses it. */
    int           fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat   st;
    kvcl_status_t status;

    if (fd < 0) {
        status = (errno == ENOENT) ? KVCL_ERR_NOT_FOUND : (errno == EACCES) ? KVCL_ERR_ACCESS : KVCL_ERR_IO;
        return kvcl_fail_errno(status, errno, "key file %s cannot be opened (to make one: umask 077; head -c 32 "
                               "/dev/urandom >%s)", path, path);
    }
    status = (fstat(fd, &st) == 0) ? check_file(path, &st)
                                   : kvcl_fail_errno(KVCL_ERR_IO, errno, "key file %s cannot be inspected", path);
    if (status == KVCL_OK) {
        status = hash_file(fd, path, (size_t)st.st_size, key);
    }
    close(fd);
    return status;
}

uint64_t kvcl_tier_key_proof(const kvcl_tier_key_t *key, uint64_t id)
{
    static char  label[] = "kvcl tier: which key";
    uint8_t      bytes[8], mac[KVCL_SHA256_LEN];
    struct iovec parts[2] = {{label, sizeof(label)}, {bytes, sizeof(bytes)}};
    kvcl_wr_t    wr;
    kvcl_rd_t    rd;

    kvcl_wr_init(&wr, bytes, sizeof(bytes));
    kvcl_wr_u64(&wr, id);
    kvcl_hmac_sha256(key->bytes, sizeof(key->bytes), parts, 2, mac);
    kvcl_rd_init(&rd, mac, sizeof(mac));
    return kvcl_rd_u64(&rd) | 1; /* not 0, which says: no key */
}

void kvcl_tier_key_tag(const kvcl_tier_key_t *key, const kvcl_seg_super_t *super, const uint8_t *block_key,
                       const kvcl_tier_loc_t *loc, const uint8_t nonce[KVCL_TIER_NONCE], const struct iovec *data,
                       size_t n, uint8_t tag[KVCL_TIER_NONCE])
{
    static char  label[] = "kvcl tier: a block";
    uint8_t      about[KVCL_TIER_NONCE + KVCL_SEG_KEY + 32], once[KVCL_SHA256_LEN];
    struct iovec parts[2] = {{label, sizeof(label)}, {about, sizeof(about)}};
    kvcl_wr_t    wr;

    kvcl_wr_init(&wr, about, sizeof(about));
    kvcl_wr_bytes(&wr, nonce, KVCL_TIER_NONCE);
    kvcl_wr_bytes(&wr, block_key, KVCL_SEG_KEY);
    kvcl_wr_u64(&wr, super->id);
    kvcl_wr_u64(&wr, loc->checksum);
    kvcl_wr_u32(&wr, loc->segment);
    kvcl_wr_u32(&wr, loc->unit);
    kvcl_wr_u32(&wr, loc->gen);
    kvcl_wr_u32(&wr, loc->len);
    kvcl_hmac_sha256(key->bytes, sizeof(key->bytes), parts, 2, once);
    kvcl_poly1305(once, data, n, tag);
    kvcl_wipe(once, sizeof(once));
}
