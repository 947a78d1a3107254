/*
 * Wire form, little-endian: version u16, kind u8, id u64, then 32 bytes: the SHA-256 of a file's secret, or rank 0's
 * public value.
 */
#include "config.h"
#include "boot/boot_invite.h"
#include "boot/secret.h"
#include "base/error.h"
#include "base/rand.h"
#include "base/wirebuf.h"

enum { INVITE_VERSION = 3 };

enum { OF_FILE, PUBLIC }; /* kinds */

kvcl_status_t kvcl_invite_make(const char *secret_file, kvcl_invite_t *invite, uint8_t wire[KVCL_INVITE_LEN])
{
    uint8_t       digest[KVCL_SHA256_LEN];
    kvcl_status_t status = kvcl_random_bytes(&invite->id, sizeof(invite->id));
    kvcl_wr_t     wr;

    if (status == KVCL_OK) {
        status = kvcl_secret_or_random(secret_file, invite->secret);
    }
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_sha256(invite->secret, KVCL_SHA256_LEN, digest);
    kvcl_wr_init(&wr, wire, KVCL_INVITE_LEN);
    kvcl_wr_u16(&wr, INVITE_VERSION);
    kvcl_wr_u8(&wr, (secret_file != NULL) ? OF_FILE : PUBLIC);
    kvcl_wr_u64(&wr, invite->id);
    kvcl_wr_bytes(&wr, (secret_file != NULL) ? digest : invite->pub, KVCL_SHA256_LEN);
    return KVCL_OK;
}

/* The local file's secret must have the hash that rank 0 sent. */
static kvcl_status_t check_own_file(const char *secret_file, const uint8_t *expected, uint8_t *secret)
{
    uint8_t       digest[KVCL_SHA256_LEN];
    kvcl_status_t status;

    if (secret_file == NULL) {
        return kvcl_fail(KVCL_ERR_AUTH, "rank 0 uses a secret file, this rank has none: set KVCL_SECRET_FILE");
    }
    status = kvcl_secret_named(secret_file, secret);
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_sha256(secret, KVCL_SHA256_LEN, digest);
    if (!kvcl_ct_equal(digest, expected, sizeof(digest))) {
        kvcl_wipe(secret, KVCL_SHA256_LEN);
        return kvcl_fail(KVCL_ERR_AUTH, "KVCL_SECRET_FILE: secret file %s holds another secret than rank 0's: give "
                         "all ranks the same file", secret_file);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_invite_accept(const void *wire, size_t len, const char *secret_file, kvcl_invite_t *invite)
{
    const uint8_t *bytes;
    uint16_t      version;
    uint8_t       kind;
    kvcl_rd_t     rd;

    invite->agreed = false;
    kvcl_rd_init(&rd, wire, len);
    version    = kvcl_rd_u16(&rd);
    kind       = kvcl_rd_u8(&rd);
    invite->id = kvcl_rd_u64(&rd);
    bytes      = (const uint8_t *)kvcl_rd_bytes(&rd, KVCL_SHA256_LEN);
    if ((len >= sizeof(version)) && (version != INVITE_VERSION)) {
        return kvcl_fail(KVCL_ERR_VERSION, "rank 0 runs another KVCL: its boot version is %u, this rank's %d",
                         (unsigned)version, (int)INVITE_VERSION);
    }
    if ((bytes == NULL) || !kvcl_rd_done(&rd) || ((kind != OF_FILE) && (kind != PUBLIC))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "rank 0's description of the job is malformed (%zu bytes)", len);
    }
    invite->agreed = (kind == PUBLIC);
    if (kind == OF_FILE) {
        return check_own_file(secret_file, bytes, invite->secret);
    }
    if (secret_file != NULL) {
        return kvcl_fail(KVCL_ERR_AUTH, "this rank uses secret file %s, but rank 0 uses none: set KVCL_SECRET_FILE "
                         "for all ranks", secret_file);
    }
    memcpy(invite->pub, bytes, KVCL_SHA256_LEN);
    return KVCL_OK;
}
