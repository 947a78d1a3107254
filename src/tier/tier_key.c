/*
 * The key of a tier's file (tier_key.h). Owns nothing. Any thread.
 */
#include "config.h"
#include "tier/tier_key.h"

#include "base/key_file.h"
#include "base/poly1305.h"
#include "base/wirebuf.h"

enum { FILE_MAX = 64 * 1024 };

_Static_assert((int)KVCL_POLY1305_TAG_LEN == (int)KVCL_TIER_NONCE, "a tail is a nonce and a tag");

kvcl_status_t kvcl_tier_key_read(const char *path, kvcl_tier_key_t *key)
{
    static const kvcl_key_file_t kind = {"key file", "head -c 32 /dev/urandom", "", KVCL_TIER_KEY_FILE_MIN, FILE_MAX};

    return kvcl_key_file_digest(&kind, path, key->bytes);
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
