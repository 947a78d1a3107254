/*
 * Records (format: sock_record.h). Owns a cipher context for each direction; no lock.
 *
 * Invariants: count is the nonce of the next record and never repeats with one key. The length is bounded before it is
 * used. Once a record has failed, no record opens.
 */
#include "config.h"
#include "sock/sock_record.h"
#include "base/crypto.h"
#include "base/error.h"
#include "weave/copy_racy.h"

#include <string.h>

#define COUNT_MAX (UINT64_C(1) << 48)

enum { GATHER_BELOW = 8192 };

static void put_len(uint8_t head[KVCL_SOCK_RECORD_HEAD], size_t len)
{
    int i;

    for (i = 0; i < KVCL_SOCK_RECORD_HEAD; ++i) {
        head[i] = (uint8_t)(len >> (8 * i));
    }
}

static size_t get_len(const uint8_t head[KVCL_SOCK_RECORD_HEAD])
{
    return (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
}

static size_t least(size_t a, size_t b)
{
    return (a < b) ? a : b;
}

/* The bytes of the iovec, but at most max. */
static size_t room_of(const struct iovec *iov, size_t n, size_t max)
{
    size_t len = 0, i;

    for (i = 0; (i < n) && (len < max); ++i) {
        len += least(iov[i].iov_len, max - len);
    }
    return len;
}

static kvcl_status_t check_usable(kvcl_sock_records_t *records)
{
    if (records->failed) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a record of this connection has failed before: close it");
    }
    if (records->count >= COUNT_MAX) {
        records->failed = true;
        return kvcl_fail(KVCL_ERR_PROTOCOL, "2^48 records were sent with one key: make a new connection");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_sock_records_init(kvcl_sock_records_t *records, kvcl_aead_cipher_t cipher,
                                     const kvcl_aead_key_t *key, bool seals)
{
    memset(records, 0, sizeof(*records));
    return kvcl_aead_create(cipher, key, seals, &records->aead);
}

void kvcl_sock_records_fini(kvcl_sock_records_t *records)
{
    kvcl_aead_destroy(&records->aead);
    memset(records, 0, sizeof(*records));
}

/* The first len bytes of the iovec. Each call of the cipher costs more than to copy a small piece: consecutive small
 * pieces are gathered and encrypted in place. Blocks may be withdrawn while they are read; their generations are
 * compared afterwards. */
static void encrypt(kvcl_aead_t *aead, const struct iovec *iov, size_t len, uint8_t *to)
{
    size_t done, step, held = 0; /* held: bytes before `done` that are gathered */

    for (done = 0; done < len; done += step, ++iov) {
        step = least(iov->iov_len, len - done);
        if (step == 0) {
            continue;
        }
        if (step < GATHER_BELOW) {
            kvcl_copy_racy(to + done, iov->iov_base, step);
            held += step;
            continue;
        }
        if (held > 0) {
            kvcl_aead_text(aead, to + done - held, held, to + done - held);
            held = 0;
        }
        kvcl_aead_text(aead, iov->iov_base, step, to + done);
    }
    if (held > 0) {
        kvcl_aead_text(aead, to + done - held, held, to + done - held);
    }
}

kvcl_status_t kvcl_sock_seal(kvcl_sock_records_t *records, const struct iovec *iov, size_t n, size_t max, void *record,
                             size_t *text_p, size_t *record_p)
{
    size_t        len    = (max <= KVCL_SOCK_RECORD_TEXT) ? room_of(iov, n, max) : 0;
    kvcl_status_t status = check_usable(records);
    uint8_t       *to    = (uint8_t *)record;

    if (status != KVCL_OK) {
        return status;
    }
    if (len == 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a record of at most %zu bytes: from 1 to %d are possible, of an "
                         "iovec that is not empty", max, KVCL_SOCK_RECORD_TEXT);
    }
    put_len(to, len);
    kvcl_aead_begin(&records->aead, records->count++, to, KVCL_SOCK_RECORD_HEAD);
    to += KVCL_SOCK_RECORD_HEAD;
    encrypt(&records->aead, iov, len, to);
    kvcl_aead_seal_end(&records->aead, to + len);
    *text_p   = len;
    *record_p = len + KVCL_SOCK_RECORD_EXTRA;
    return KVCL_OK;
}

kvcl_status_t kvcl_sock_record_len(kvcl_sock_records_t *records, const uint8_t head[KVCL_SOCK_RECORD_HEAD],
                                   size_t *len_p)
{
    kvcl_status_t status = check_usable(records);
    size_t        len    = get_len(head);

    if (status != KVCL_OK) {
        return status;
    }
    if ((len == 0) || (len > KVCL_SOCK_RECORD_TEXT)) {
        records->failed = true;
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a record of %zu bytes: from 1 to %d are possible", len,
                         KVCL_SOCK_RECORD_TEXT);
    }
    *len_p = len + KVCL_SOCK_RECORD_EXTRA;
    return KVCL_OK;
}

/* The plaintext's length of a record that is whole. */
static kvcl_status_t begin_open(kvcl_sock_records_t *records, const uint8_t *record, size_t len, size_t *text_p)
{
    kvcl_status_t status;
    size_t        whole;

    if (len < KVCL_SOCK_RECORD_HEAD) {
        records->failed = true;
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a record of %zu bytes is cut off in its head", len);
    }
    status = kvcl_sock_record_len(records, record, &whole);
    if (status != KVCL_OK) {
        return status;
    }
    if (whole != len) {
        records->failed = true;
        return kvcl_fail(KVCL_ERR_PROTOCOL, "%zu bytes of a record that has %zu", len, whole);
    }
    *text_p = whole - KVCL_SOCK_RECORD_EXTRA;
    return KVCL_OK;
}

static kvcl_status_t end_open(kvcl_sock_records_t *records, const uint8_t *tag)
{
    if (kvcl_aead_open_end(&records->aead, tag)) {
        ++records->count;
        return KVCL_OK;
    }
    records->failed = true;
    return kvcl_fail(KVCL_ERR_AUTH, "record %llu of the connection does not verify: its bytes were changed, repeated "
                     "or reordered on the way", (unsigned long long)records->count);
}

kvcl_status_t kvcl_sock_open(kvcl_sock_records_t *records, void *record, size_t len, void **text_p, size_t *text_len_p)
{
    uint8_t       *text  = (uint8_t *)record + KVCL_SOCK_RECORD_HEAD;
    size_t        text_len;
    kvcl_status_t status = begin_open(records, (const uint8_t *)record, len, &text_len);

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_aead_begin(&records->aead, records->count, record, KVCL_SOCK_RECORD_HEAD);
    kvcl_aead_text(&records->aead, text, text_len, text);
    status = end_open(records, text + text_len);
    if (status != KVCL_OK) {
        kvcl_wipe(text, text_len);
        return status;
    }
    *text_p     = text;
    *text_len_p = text_len;
    return KVCL_OK;
}

static void wipe_iov(const struct iovec *iov, size_t len)
{
    size_t step;

    for (; len > 0; len -= step, ++iov) {
        step = least(iov->iov_len, len);
        kvcl_wipe(iov->iov_base, step);
    }
}

kvcl_status_t kvcl_sock_open_into(kvcl_sock_records_t *records, const void *record, size_t len,
                                  const struct iovec *iov, size_t n, size_t *text_len_p)
{
    const uint8_t *text  = (const uint8_t *)record + KVCL_SOCK_RECORD_HEAD;
    size_t        text_len, done, step, i;
    kvcl_status_t status = begin_open(records, (const uint8_t *)record, len, &text_len);

    if (status != KVCL_OK) {
        return status;
    }
    if (room_of(iov, n, text_len) < text_len) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "the iovec has no room for %zu bytes", text_len);
    }
    kvcl_aead_begin(&records->aead, records->count, record, KVCL_SOCK_RECORD_HEAD);
    for (i = 0, done = 0; done < text_len; done += step, ++i) {
        step = least(iov[i].iov_len, text_len - done);
        kvcl_aead_text(&records->aead, text + done, step, iov[i].iov_base);
    }
    status = end_open(records, text + text_len);
    if (status != KVCL_OK) {
        wipe_iov(iov, text_len);
        return status;
    }
    *text_len_p = text_len;
    return KVCL_OK;
}
