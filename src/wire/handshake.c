/*
 * MACs of the handshake (handshake.h): HMAC-SHA256 (RFC 2104) under the key of the pair, which is wiped after each use.
 */
#include "config.h"
#include "wire/handshake.h"
#include "base/clock.h"
#include "base/hkdf.h"
#include "base/rand.h"

#include <stdatomic.h>
#include <string.h>

void kvcl_hs_mac(const uint8_t secret[32], const char *role, const kvcl_hs_ids_t *ids, uint32_t index, uint32_t part,
                 uint32_t session, const void *payload, size_t len, uint8_t mac[32])
{
    struct iovec parts[] = {
        {(void *)"kvcl-hs-3", 10},   {(void *)role, strlen(role) + 1}, {(void *)ids, sizeof(*ids)},
        {&index, sizeof(index)},     {&part, sizeof(part)},            {&session, sizeof(session)},
        {(void *)payload, len},
    };
    uint8_t      key[32];

    kvcl_pair_key(secret, "core", ids->uuid_a, ids->uuid_b, key);
    kvcl_hmac_sha256(key, sizeof(key), parts, (len > 0) ? 7 : 6, mac);
    kvcl_wipe(key, sizeof(key));
}

/* The clock of A's host never goes back while A lives, and A is known by a uuid of its own. */
kvcl_status_t kvcl_hs_nonce(uint8_t nonce_a[16])
{
    static _Atomic uint64_t last;
    uint64_t                now = kvcl_now_ns(), before = atomic_load(&last);

    do {
        now = (now > before) ? now : before + 1;
    } while (!atomic_compare_exchange_weak(&last, &before, now));
    memcpy(nonce_a, &now, sizeof(now));
    return kvcl_random_bytes(nonce_a + sizeof(now), 16 - sizeof(now));
}

uint64_t kvcl_hs_nonce_order(const uint8_t nonce_a[16])
{
    uint64_t order;

    memcpy(&order, nonce_a, sizeof(order));
    return order;
}

void kvcl_hs_cookie(const uint8_t cookie_key[32], const kvcl_hs_ids_t *ids, uint32_t window, uint8_t nonce_b[16])
{
    struct iovec parts[] = {
        {(void *)ids->uuid_a, 16}, {(void *)ids->uuid_b, 16}, {(void *)ids->nonce_a, 16}, {&window, sizeof(window)}};
    uint8_t mac[32];

    kvcl_hmac_sha256(cookie_key, 32, parts, 4, mac);
    memcpy(nonce_b, mac, 16);
}

uint64_t kvcl_hs_token(const uint8_t secret[32], const kvcl_hs_ids_t *ids, bool a_to_b)
{
    uint64_t token;
    uint8_t  mac[32];

    kvcl_hs_mac(secret, a_to_b ? "A>B" : "B>A", ids, 0, 0, 0, NULL, 0, mac);
    memcpy(&token, mac, sizeof(token));
    return token;
}
