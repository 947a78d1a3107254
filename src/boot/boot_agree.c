/*
 * The secret between rank 0 and another rank (boot_agree.h): the key of the pair, sealing and opening. Owns nothing;
 * the key is wiped before each return. A key seals once, since rank 0's private value is fresh: the nonce is always 0.
 */
#include "config.h"
#include "boot/boot_agree.h"
#include "base/aead.h"
#include "base/error.h"
#include "base/hkdf.h"
#include "base/rand.h"
#include "base/wirebuf.h"
#include "base/x25519.h"

static const char label[] = "kvcl boot: the job's secret, sealed for a rank";

kvcl_status_t kvcl_agree_begin(kvcl_agree_t *own)
{
    kvcl_status_t status = kvcl_random_bytes(own->priv, sizeof(own->priv));

    return (status == KVCL_OK) ? kvcl_x25519_public(own->priv, own->pub) : status;
}

void kvcl_agree_end(kvcl_agree_t *own)
{
    kvcl_wipe(own, sizeof(*own));
}

/* zero_pub: rank 0's; the other one is the rank's. */
static kvcl_status_t make_key(const kvcl_agree_t *own, const uint8_t *peer_pub, const uint8_t *zero_pub,
                              const uint8_t *rank_pub, uint64_t id, int rank, kvcl_aead_key_t *key)
{
    uint8_t       shared[KVCL_AGREE_LEN], prk[KVCL_SHA256_LEN], info[2 * KVCL_AGREE_LEN + 12];
    struct iovec  part   = {shared, sizeof(shared)};
    kvcl_status_t status = kvcl_x25519(own->priv, peer_pub, shared);
    kvcl_wr_t     wr;

    if (status == KVCL_OK) {
        kvcl_wr_init(&wr, info, sizeof(info));
        kvcl_wr_bytes(&wr, zero_pub, KVCL_AGREE_LEN);
        kvcl_wr_bytes(&wr, rank_pub, KVCL_AGREE_LEN);
        kvcl_wr_u64(&wr, id);
        kvcl_wr_u32(&wr, (uint32_t)rank);
        kvcl_hkdf_extract(label, sizeof(label), &part, 1, prk);
        kvcl_hkdf_expand(prk, info, sizeof(info), key, sizeof(*key));
    } else if (status == KVCL_ERR_PROTOCOL) {
        status = kvcl_fail(status, "the public value of rank %d is invalid",
                           (own->pub == zero_pub) ? rank : 0);
    }
    kvcl_wipe(shared, sizeof(shared));
    kvcl_wipe(prk, sizeof(prk));
    return status;
}

kvcl_status_t kvcl_agree_seal(const kvcl_agree_t *own, const uint8_t peer_pub[KVCL_AGREE_LEN], uint64_t id, int rank,
                              const uint8_t secret[KVCL_SHA256_LEN], uint8_t sealed[KVCL_AGREE_SEALED_LEN])
{
    kvcl_aead_key_t key;
    kvcl_aead_t     aead   = {.ctx = NULL};
    kvcl_status_t   status = make_key(own, peer_pub, own->pub, peer_pub, id, rank, &key);

    status = (status == KVCL_OK) ? kvcl_aead_create(KVCL_AEAD_CHACHA20_POLY1305, &key, true, &aead) : status;
    if (status == KVCL_OK) {
        kvcl_aead_begin(&aead, 0, NULL, 0);
        kvcl_aead_text(&aead, secret, KVCL_SHA256_LEN, sealed);
        kvcl_aead_seal_end(&aead, sealed + KVCL_SHA256_LEN);
    }
    kvcl_aead_destroy(&aead);
    kvcl_wipe(&key, sizeof(key));
    return status;
}

kvcl_status_t kvcl_agree_open(const kvcl_agree_t *own, const uint8_t peer_pub[KVCL_AGREE_LEN], uint64_t id, int rank,
                              const uint8_t sealed[KVCL_AGREE_SEALED_LEN], uint8_t secret[KVCL_SHA256_LEN])
{
    kvcl_aead_key_t key;
    kvcl_aead_t     aead   = {.ctx = NULL};
    kvcl_status_t   status = make_key(own, peer_pub, peer_pub, own->pub, id, rank, &key);

    status = (status == KVCL_OK) ? kvcl_aead_create(KVCL_AEAD_CHACHA20_POLY1305, &key, false, &aead) : status;
    if (status == KVCL_OK) {
        kvcl_aead_begin(&aead, 0, NULL, 0);
        kvcl_aead_text(&aead, sealed, KVCL_SHA256_LEN, secret);
        if (!kvcl_aead_open_end(&aead, sealed + KVCL_SHA256_LEN)) {
            kvcl_wipe(secret, KVCL_SHA256_LEN);
            status = kvcl_fail(KVCL_ERR_AUTH, "the secret for rank %d was not sealed by rank 0 of this job: check "
                               "which processes can change what PMIx, or the caller's store, carries", rank);
        }
    }
    kvcl_aead_destroy(&aead);
    kvcl_wipe(&key, sizeof(key));
    return status;
}
