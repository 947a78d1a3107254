/*
 * What a man in the middle may do to a stream of records: the input changes, cuts, repeats, reorders or replaces sealed
 * records. Only texts that were sealed may come out, in their order.
 *
 * An input is a byte that selects the cipher and the way to open, then items of 3 bytes: operation, argument, value.
 */
#include "config.h"
#include "sock/sock_record.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORDS = 6, TEXT = 50, WHOLE = TEXT + KVCL_SOCK_RECORD_EXTRA, STREAM_MAX = 4096 };

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static kvcl_sock_records_t seals, opens;

static void begin(uint8_t choice)
{
    kvcl_aead_cipher_t cipher = (choice & 1) ? KVCL_AEAD_AES128_GCM : KVCL_AEAD_CHACHA20_POLY1305;
    kvcl_aead_key_t    key    = {.key = {5}, .iv = {6}};

    must(kvcl_sock_records_init(&seals, cipher, &key, true) == KVCL_OK);
    must(kvcl_sock_records_init(&opens, cipher, &key, false) == KVCL_OK);
}

/* Record i has TEXT bytes of the value i + 1. */
static void seal_all(uint8_t record[RECORDS][WHOLE])
{
    uint8_t      text[TEXT];
    struct iovec iov = {text, TEXT};
    size_t       taken, len;
    int          i;

    for (i = 0; i < RECORDS; ++i) {
        memset(text, i + 1, TEXT);
        must(kvcl_sock_seal(&seals, &iov, 1, TEXT, record[i], &taken, &len) == KVCL_OK);
        must(len == WHOLE);
    }
}

/* The stream that the items make of the records. */
static size_t make(const uint8_t *data, size_t size, uint8_t record[RECORDS][WHOLE], uint8_t *stream)
{
    size_t len = 0, n;

    for (; (size >= 3) && (len + 256 + WHOLE < STREAM_MAX); data += 3, size -= 3) {
        switch (data[0] % 4) {
        case 0: /* a record */
            memcpy(stream + len, record[data[1] % RECORDS], WHOLE);
            len += WHOLE;
            break;
        case 1: /* change a byte before */
            if (len > 0) {
                stream[len - 1 - data[1] % len] ^= data[2];
            }
            break;
        case 2: /* cut */
            len -= data[1] % (len + 1);
            break;
        default: /* bytes of the input */
            n = (data[1] < size - 3) ? data[1] : size - 3;
            memcpy(stream + len, data + 3, n);
            len  += n;
            data += n;
            size -= n;
            break;
        }
    }
    return len;
}

static bool take_one(uint8_t *at, size_t len, size_t *used_p, int due, bool scatter)
{
    uint8_t       out[TEXT];
    struct iovec  iov[2] = {{out, 7}, {out + 7, TEXT - 7}};
    uint8_t       want[TEXT];
    size_t        whole, n = 0;
    kvcl_status_t status;
    void          *text = out;

    if ((len < KVCL_SOCK_RECORD_HEAD) || (kvcl_sock_record_len(&opens, at, &whole) != KVCL_OK)) {
        return false;
    }
    must((whole > KVCL_SOCK_RECORD_EXTRA) && (whole <= KVCL_SOCK_RECORD_MAX));
    if (whole > len) {
        return false;
    }
    status = scatter ? kvcl_sock_open_into(&opens, at, whole, iov, 2, &n)
                     : kvcl_sock_open(&opens, at, whole, &text, &n);
    if (status != KVCL_OK) {
        return false;
    }
    memset(want, due + 1, TEXT);
    must((n == TEXT) && (due < RECORDS) && (memcmp(text, want, TEXT) == 0));
    *used_p = whole;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t record[RECORDS][WHOLE], stream[STREAM_MAX];
    uint8_t        *exact;
    size_t         len, at = 0, used;
    int            due = 0;

    if (size < 1) {
        return 0;
    }
    begin(data[0]);
    seal_all(record);
    len   = make(data + 1, size - 1, record, stream);
    exact = malloc(len + 1); /* so that a sanitizer detects reads past the end */
    must(exact != NULL);
    memcpy(exact, stream, len);
    while (take_one(exact + at, len - at, &used, due, (data[0] & 2) != 0)) {
        at += used;
        ++due;
    }
    free(exact);
    kvcl_sock_records_fini(&seals);
    kvcl_sock_records_fini(&opens);
    return 0;
}
