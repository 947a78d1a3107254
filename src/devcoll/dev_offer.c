/*
 * Deciding the way of a collective on device memory (dev_offer.h). Pure.
 */
#include "config.h"
#include "devcoll/dev_offer.h"
#include "base/error.h"

#include <stdbool.h>
#include <string.h>

size_t kvcl_dev_offer_bytes(uint32_t size, int uneven)
{
    return sizeof(kvcl_dev_offer_t) + (uneven ? (size_t)size * sizeof(uint64_t) : 0);
}

static kvcl_dev_offer_t offer_at(const void *offers, size_t stride, uint32_t rank)
{
    kvcl_dev_offer_t offer;

    memcpy(&offer, (const char *)offers + rank * stride, sizeof(offer));
    return offer;
}

static bool is_same_gpu(const kvcl_dev_offer_t *a, const kvcl_dev_offer_t *b)
{
    return (memcmp(a->host, b->host, sizeof(a->host)) == 0) && (memcmp(a->gpu, b->gpu, sizeof(a->gpu)) == 0);
}

static kvcl_dev_way_t way_of(const void *offers, size_t stride, uint32_t size)
{
    const kvcl_dev_offer_t first = offer_at(offers, stride, 0);
    bool                   live  = (first.live != 0);
    uint32_t               i, j;

    for (i = 0; i < size; ++i) {
        const kvcl_dev_offer_t a = offer_at(offers, stride, i);

        if ((a.nccl == 0) || (a.nccl != first.nccl)) {
            return KVCL_DEV_BY_HOST;
        }
        for (j = 0; j < i; ++j) {
            const kvcl_dev_offer_t b = offer_at(offers, stride, j);

            if (is_same_gpu(&a, &b)) {
                return KVCL_DEV_BY_HOST;
            }
        }
        live = live && (a.live == first.live);
    }
    return live ? KVCL_DEV_BY_NCCL : KVCL_DEV_BY_NEW_NCCL;
}

kvcl_status_t kvcl_dev_decide(const void *offers, uint32_t size, uint32_t me, const uint64_t *lens, const char *call,
                              kvcl_dev_way_t *way_p)
{
    const size_t           stride = kvcl_dev_offer_bytes(size, lens != NULL);
    const kvcl_dev_offer_t mine   = offer_at(offers, stride, me);
    uint32_t               i;

    for (i = 0; i < size; ++i) {
        const char     *at   = (const char *)offers + i * stride;
        const uint64_t args = offer_at(offers, stride, i).args;
        uint64_t       gives;

        if (args != mine.args) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "rank %u called it with other arguments than rank %u: give the "
                             "same root, length, type and operation on all ranks", i, me);
        }
        if (lens != NULL) {
            memcpy(&gives, at + sizeof(kvcl_dev_offer_t) + me * sizeof(gives), sizeof(gives));
            if (gives != lens[i]) {
                return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: rank %u gives %llu bytes to rank %u, which expects %llu",
                                 call, i, (unsigned long long)gives, me, (unsigned long long)lens[i]);
            }
        }
    }
    *way_p = way_of(offers, stride, size);
    return KVCL_OK;
}
