/*
 * What a stranger may send in a handshake, to either side. The first byte selects the side and how far an honest
 * handshake goes first; then its next message is changed: items of (where, XOR), or replaced by the input's bytes. No
 * side may finish with bytes that its honest peer did not send, nor send or read more than its messages.
 */
#include "config.h"
#include "sock/sock_hs.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 4, BYTES_MAX = 256 };

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void begin(kvcl_sock_hs_t hs[2], uint8_t choice)
{
    static const uint8_t secret[32] = {42};
    kvcl_sock_side_t     a = {.secret = secret, .id = {1}, .cipher = KVCL_AEAD_AES128_GCM, .random = {7, 7}};
    kvcl_sock_side_t     b = {.secret = secret, .id = {2}, .cipher = KVCL_AEAD_AES128_GCM, .random = {8, 8}};

    a.wire       = (choice & 0x10) ? KVCL_SOCK_AEAD : KVCL_SOCK_PLAIN;
    b.wire       = (choice & 0x20) ? KVCL_SOCK_AEAD : KVCL_SOCK_PLAIN;
    a.random[20] = b.random[21] = 9; /* X25519's private keys */
    must(kvcl_sock_hs_connect(&hs[0], &a, b.id, KVCL_SOCK_MESSAGES) == KVCL_OK);
    kvcl_sock_hs_accept(&hs[1], &b);
}

static size_t take(kvcl_sock_hs_t *hs, uint8_t *bytes)
{
    size_t     len;
    const void *out = kvcl_sock_hs_out(hs, &len);

    must(len <= KVCL_SOCK_MESSAGE + sizeof(kvcl_sock_proof_t));
    memcpy(bytes, out, len);
    kvcl_sock_hs_sent(hs, len);
    return len;
}

static void give(kvcl_sock_hs_t *hs, const uint8_t *bytes, size_t len, size_t piece)
{
    kvcl_status_t status = KVCL_OK;
    size_t        need, n;

    while ((len > 0) && (status == KVCL_OK)) {
        void *to = kvcl_sock_hs_in(hs, &need);

        must(need <= KVCL_SOCK_MESSAGE);
        if (need == 0) {
            break;
        }
        n = (need < piece) ? need : piece;
        n = (n < len) ? n : len;
        memcpy(to, bytes, n);
        status = kvcl_sock_hs_took(hs, n);
        bytes += n;
        len   -= n;
    }
    must((status == KVCL_OK) == (kvcl_sock_hs_state(hs) != KVCL_SOCK_HS_FAILED));
}

/* The message as the input changes it; returns its length. */
static size_t change(const uint8_t *data, size_t size, uint8_t choice, uint8_t *bytes, size_t len)
{
    size_t i;

    if (choice & 0x40) {
        len = (size < BYTES_MAX) ? size : BYTES_MAX;
        memcpy(bytes, data, len);
        return len;
    }
    for (i = 0; i + 1 < size; i += 2) {
        bytes[data[i] % len] ^= data[i + 1];
    }
    return (size % 2 == 1) ? data[size - 1] % (len + 1) : len; /* cut off */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t        honest[BYTES_MAX], bytes[BYTES_MAX];
    kvcl_sock_hs_t hs[2];
    size_t         len, changed;
    int            step, i;

    if (size < 2) {
        return 0;
    }
    begin(hs, data[0]);
    step = data[0] % STEPS;
    for (i = 0; i < step; ++i) {
        len = take(&hs[i % 2], bytes);
        give(&hs[1 - i % 2], bytes, len, BYTES_MAX);
    }
    len = take(&hs[i % 2], honest);
    memcpy(bytes, honest, len);
    changed = change(data + 2, size - 2, data[0], bytes, len);
    give(&hs[1 - i % 2], bytes, changed, 1 + data[1] % 64u);
    if ((changed < len) || (memcmp(bytes, honest, len) != 0)) {
        len = take(&hs[1 - i % 2], bytes);
        give(&hs[i % 2], bytes, len, BYTES_MAX);
        must(kvcl_sock_hs_state(&hs[1 - i % 2]) != KVCL_SOCK_HS_DONE);
        must((kvcl_sock_hs_state(&hs[0]) != KVCL_SOCK_HS_DONE) || (step > 2));
    }
    kvcl_sock_hs_wipe(&hs[0]);
    kvcl_sock_hs_wipe(&hs[1]);
    return 0;
}
