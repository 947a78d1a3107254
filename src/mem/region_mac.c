/*
 * The authentication code of a region's description (region.h). Pure: no lock, no clock, no state; intermediate keys
 * are wiped.
 *
 * The key is HMAC-SHA256 of the owner's uuid under the job's secret, so that the description of one rank is not valid
 * as another rank's, and every rank of the job can check it. Hence a rank of the job can also forge one: its MAC
 * separates ranks from other processes, not ranks from each other.
 */
#include "config.h"
#include "mem/region.h"
#include "base/crypto.h"

#include <string.h>

void kvcl_region_mac(const uint8_t secret[32], const uint8_t owner[16], const void *desc, size_t len,
                     uint8_t mac[KVCL_REGION_MAC_BYTES])
{
    struct iovec from[] = {{(void *)"kvcl-region", 12}, {(void *)owner, 16}};
    struct iovec all    = {(void *)desc, len};
    uint8_t      key[KVCL_SHA256_LEN], full[KVCL_SHA256_LEN];

    kvcl_hmac_sha256(secret, 32, from, 2, key);
    kvcl_hmac_sha256(key, sizeof(key), &all, 1, full);
    memcpy(mac, full, KVCL_REGION_MAC_BYTES);
    kvcl_wipe(key, sizeof(key));
    kvcl_wipe(full, sizeof(full));
}
