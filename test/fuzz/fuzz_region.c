/*
 * Descriptions of regions from a peer: decoded without opening. An accepted one names no more bytes than it has, and a
 * region whose end does not wrap around. Only the true one has a right MAC.
 */
#include "config.h"
#include "base/crypto.h"
#include "mem/region.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t real[KVCL_REGION_DESC_MAX]; /* a valid description, to be damaged */
static size_t  real_len;
static uint8_t secret[32], owner[16];      /* with which it was sealed */

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void describe(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;
    kvcl_region_t      *region;

    params.boot  = "self";
    params.path  = "loop";
    params.flags = KVCL_INIT_NO_THREAD;
    must(kvcl_init(&params, &ctx) == KVCL_OK);
    must(kvcl_region_create(ctx, NULL, 4096, NULL, &region) == KVCL_OK);
    kvcl_lock(ctx);
    real_len = kvcl_region_pack(region, KVCL_READ_WRITE, real, sizeof(real));
    memcpy(secret, ctx->secret, sizeof(secret));
    memcpy(owner, ctx->uuid, sizeof(owner));
    kvcl_unlock(ctx);
    must(real_len > 0);
    must(kvcl_region_destroy(region));
    kvcl_finalize(ctx);
}

/* libFuzzer sees what memcmp compares, and would learn the MAC. */
static bool is_sealed(const uint8_t *bytes, size_t len)
{
    uint8_t mac[KVCL_REGION_MAC_BYTES];

    must(len >= sizeof(mac));
    kvcl_region_mac(secret, owner, bytes, len - sizeof(mac), mac);
    return kvcl_ct_equal(mac, bytes + len - sizeof(mac), sizeof(mac));
}

static void parse(const uint8_t *bytes, size_t len)
{
    kvcl_rregion_t rregion;
    uint8_t        *copy = malloc((len > 0) ? len : 1); /* of exact length */
    size_t         used = 0;

    must(copy != NULL);
    if (len > 0) {
        memcpy(copy, bytes, len);
    }
    memset(&rregion, 0, sizeof(rregion));
    if (kvcl_region_parse(copy, len, &rregion, &used) == KVCL_OK) {
        must((used > 0) && (used <= len));
        must(rregion.len <= UINT64_MAX - rregion.addr);
        must(rregion.id < KVCL_REGIONS_MAX);
        must((rregion.rights & ~(unsigned)KVCL_READ_WRITE) == 0);
        must(is_sealed(copy, used) == ((used == real_len) && (memcmp(copy, real, used) == 0)));
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t damaged[KVCL_REGION_DESC_MAX];
    size_t  len, i;

    if (real_len == 0) {
        describe();
        parse(real, real_len);
    }
    parse(data, size);
    if (size > 0) { /* bytes in pairs: position, value */
        memcpy(damaged, real, real_len);
        len = (data[0] % 2 == 0) ? real_len : data[0] % (real_len + 1);
        for (i = 1; (i + 1 < size) && (i < 17); i += 2) {
            damaged[data[i] % real_len] = data[i + 1];
        }
        parse(damaged, len);
    }
    return 0;
}
