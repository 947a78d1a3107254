/*
 * The records of an aead connection: a 4-byte little-endian length of the plaintext, the ciphertext, a 16-byte tag. The
 * length is authenticated as additional data. The nonce is the number of the record in its direction, which is not
 * sent: a record that is missing, repeated or out of order does not verify. No record is empty.
 *
 * Any failure is final: later calls fail as well, and the connection must be closed. A truncation shows as a
 * connection that ends within a record; whether it may end between two is for the caller's protocol to know.
 *
 * Pure but for the cipher context, which init allocates; a record allocates nothing. One thread at a time per struct.
 */
#ifndef KVCL_SOCK_RECORD_H
#define KVCL_SOCK_RECORD_H

#include "base/aead.h"

enum {
    KVCL_SOCK_RECORD_HEAD  = 4,
    KVCL_SOCK_RECORD_TEXT  = 64 * 1022, /* most bytes of plaintext: the record is one segment (65,483) of loopback */
    KVCL_SOCK_RECORD_EXTRA = KVCL_SOCK_RECORD_HEAD + KVCL_AEAD_TAG_LEN,
    KVCL_SOCK_RECORD_MAX   = KVCL_SOCK_RECORD_TEXT + KVCL_SOCK_RECORD_EXTRA
};

/* One direction, at the side that seals or at the one that opens. Zeroed: none. */
typedef struct kvcl_sock_records {
    kvcl_aead_t aead;
    uint64_t    count; /* records so far; fewer than 2^48. There is no new key: with AES-GCM the text could be told from
                        * random bytes with a chance of 2^-27 after 2^51 blocks, 32 PiB */
    bool        failed;
} kvcl_sock_records_t;

/** The key is copied: the caller wipes its own. @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_UNSUPPORTED. */
kvcl_status_t kvcl_sock_records_init(kvcl_sock_records_t *records, kvcl_aead_cipher_t cipher,
                                     const kvcl_aead_key_t *key, bool seals) KVCL_MUST_CHECK;
/** Wipes the key. A zeroed struct is accepted. */
void kvcl_sock_records_fini(kvcl_sock_records_t *records);

/**
 * One record of the first bytes of the iovec: all of them, but at most max, which is at most KVCL_SOCK_RECORD_TEXT.
 *
 * @param record          room for max + KVCL_SOCK_RECORD_EXTRA bytes; none of the iovec's memory.
 * @param [out] text_p    how many bytes of the iovec it holds.
 * @param [out] record_p  the record's length, *text_p + KVCL_SOCK_RECORD_EXTRA.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: the iovec has no bytes or max is 0 or too large (nothing is sealed, not
 *         final); KVCL_ERR_PROTOCOL: 2^48 records were sealed.
 */
kvcl_status_t kvcl_sock_seal(kvcl_sock_records_t *records, const struct iovec *iov, size_t n, size_t max, void *record,
                             size_t *text_p, size_t *record_p) KVCL_MUST_CHECK;

/**
 * The length of the whole record that begins with these bytes, from 1 + KVCL_SOCK_RECORD_EXTRA to
 * KVCL_SOCK_RECORD_MAX. It is not authentic until the record is opened: use it to read, not to allocate.
 * @return KVCL_OK; KVCL_ERR_PROTOCOL: no record has that length (final).
 */
kvcl_status_t kvcl_sock_record_len(kvcl_sock_records_t *records, const uint8_t head[KVCL_SOCK_RECORD_HEAD],
                                   size_t *len_p) KVCL_MUST_CHECK;

/**
 * Verify and decrypt a whole record in place.
 * @param [out] text_p      the plaintext, within the record.
 * @param [out] text_len_p  the record's length less KVCL_SOCK_RECORD_EXTRA.
 * @return KVCL_OK; KVCL_ERR_AUTH: it does not verify (changed, repeated or out of order; final, its bytes are
 *         overwritten); KVCL_ERR_PROTOCOL: len is not its length.
 */
kvcl_status_t kvcl_sock_open(kvcl_sock_records_t *records, void *record, size_t len, void **text_p,
                             size_t *text_len_p) KVCL_MUST_CHECK;

/**
 * As kvcl_sock_open, but the plaintext goes straight to the first bytes of the iovec, which must have room for all of
 * it (else KVCL_ERR_INVALID_PARAM, not final). After KVCL_ERR_AUTH that memory is zeroed.
 */
kvcl_status_t kvcl_sock_open_into(kvcl_sock_records_t *records, const void *record, size_t len,
                                  const struct iovec *iov, size_t n, size_t *text_len_p) KVCL_MUST_CHECK;

#endif
