/*
 * Both sides of a connection's handshake (sock/sock_hs.h) in memory: A, of id 1, connects to B, of id 2.
 */
#ifndef KVCL_TEST_SOCK_PAIR_H
#define KVCL_TEST_SOCK_PAIR_H

#include "sock/sock_hs.h"
#include "test_base.h"

#include <string.h>

enum { HELLO_LEN = 96, CHALLENGE_LEN = 96, PROOF_LEN = 40, BYTES_MAX = 256 };

static uint8_t     secret[32], other_secret[32];
static kvcl_rand_t rnd;

static inline void fill(void *bytes, size_t len)
{
    uint8_t *at = (uint8_t *)bytes;

    for (; len > 0; --len) {
        *at++ = (uint8_t)kvcl_rand_next(&rnd);
    }
}

static inline void setup(void)
{
    test_seed(&rnd);
    fill(secret, sizeof(secret));
    fill(other_secret, sizeof(other_secret));
}

static inline kvcl_sock_side_t side(uint8_t id, kvcl_sock_wire_t wire)
{
    kvcl_sock_side_t side = {.secret = secret, .id = {id}, .wire = wire, .cipher = KVCL_AEAD_AES128_GCM};

    fill(side.random, sizeof(side.random));
    return side;
}

typedef struct pair {
    kvcl_sock_hs_t a, b;
} pair_t;

static inline void begin(pair_t *pair, kvcl_sock_wire_t wire_a, kvcl_sock_wire_t wire_b)
{
    kvcl_sock_side_t a = side(1, wire_a), b = side(2, wire_b);

    ck_assert_int_eq(kvcl_sock_hs_connect(&pair->a, &a, b.id, KVCL_SOCK_STREAM), KVCL_OK);
    kvcl_sock_hs_accept(&pair->b, &b);
}

/* Take all that hs has to send. */
static inline size_t take(kvcl_sock_hs_t *hs, uint8_t *bytes)
{
    size_t     len;
    const void *out = kvcl_sock_hs_out(hs, &len);

    ck_assert_uint_le(len, BYTES_MAX);
    memcpy(bytes, out, len);
    kvcl_sock_hs_sent(hs, len);
    return len;
}

/* Give it bytes, in pieces of at most piece. Stop at the end of the handshake; *used_p: bytes taken. */
static inline kvcl_status_t give(kvcl_sock_hs_t *hs, const uint8_t *bytes, size_t len, size_t piece, size_t *used_p)
{
    kvcl_status_t status = KVCL_OK;
    size_t        need, n, used = 0;

    while ((used < len) && (status == KVCL_OK)) {
        void *to = kvcl_sock_hs_in(hs, &need);

        if (need == 0) {
            break;
        }
        n = (need < piece) ? need : piece;
        n = (n < len - used) ? n : len - used;
        memcpy(to, bytes + used, n);
        used += n;
        status = kvcl_sock_hs_took(hs, n);
    }
    if (used_p != NULL) {
        *used_p = used;
    }
    return status;
}

static inline kvcl_status_t pass(kvcl_sock_hs_t *from, kvcl_sock_hs_t *to, size_t piece)
{
    uint8_t bytes[BYTES_MAX];
    size_t  len = take(from, bytes), used;

    return give(to, bytes, len, piece, &used);
}

/* The rest of an honest handshake; returns the first error of either side. */
static inline kvcl_status_t run(pair_t *pair, size_t piece)
{
    kvcl_status_t status = KVCL_OK;
    int           i;

    for (i = 0; (i < 2) && (status == KVCL_OK); ++i) {
        status = pass(&pair->a, &pair->b, piece);
        status = (status == KVCL_OK) ? pass(&pair->b, &pair->a, piece) : status;
    }
    return status;
}

static inline bool is_wiped(const kvcl_sock_hs_t *hs)
{
    static const uint8_t zero[64];

    return (memcmp(hs->pair_key, zero, sizeof(hs->pair_key)) == 0) &&
           (memcmp(hs->side.random, zero, sizeof(hs->side.random)) == 0) && (hs->side.secret == NULL);
}

static inline bool has_keys(const kvcl_sock_hs_t *hs)
{
    static const kvcl_aead_key_t none;

    return (memcmp(&hs->session.tx, &none, sizeof(none)) != 0) || (memcmp(&hs->session.rx, &none, sizeof(none)) != 0);
}

static char sentence[512]; /* of the last failed handshake */

/* It has failed with this status, a sentence and no keys. */
static inline void assert_failed(kvcl_sock_hs_t *hs, kvcl_status_t status, kvcl_status_t want)
{
    size_t need;

    snprintf(sentence, sizeof(sentence), "%s", kvcl_last_error());
    ck_assert_int_eq(status, want);
    ck_assert_int_eq(kvcl_sock_hs_state(hs), KVCL_SOCK_HS_FAILED);
    ck_assert_int_gt((int)strlen(sentence), 20);
    ck_assert(is_wiped(hs) && !has_keys(hs));
    (void)kvcl_sock_hs_in(hs, &need);
    ck_assert_uint_eq(need, 0);
    ck_assert_int_eq(kvcl_sock_hs_took(hs, 1), KVCL_ERR_INVALID_PARAM);
}

#endif
