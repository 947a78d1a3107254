/*
 * Offers (offer.h).
 */
#include "config.h"
#include "xfer/offer.h"
#include "base/error.h"
#include "xfer/xfer.h"

kvcl_status_t kvcl_offer_open(kvcl_context_h ctx, kvcl_offer_t *offer)
{
    kvcl_xfer_state_t *xfer = kvcl_xfer_state(ctx);

    kvcl_assert_locked(ctx);
    offer->id     = ++xfer->next_offer;
    offer->serves = 0;
    if (kvcl_map_put(&xfer->offers, offer->id, offer) != KVCL_OK) {
        offer->id = 0;
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an offer");
    }
    return KVCL_OK;
}

void kvcl_offer_withdraw(kvcl_context_h ctx, kvcl_offer_t *offer)
{
    kvcl_assert_locked(ctx);
    if (offer->id != 0) {
        (void)kvcl_map_del(&kvcl_xfer_state(ctx)->offers, offer->id);
        offer->id = 0;
    }
}

void kvcl_offer_close(kvcl_context_h ctx, kvcl_offer_t *offer)
{
    kvcl_assert_locked(ctx);
    kvcl_offer_withdraw(ctx, offer);
    if (offer->serves == 0) {
        offer->idle(offer);
    } else {
        kvcl_xfer_state(ctx)->server->abort(ctx, offer); /* the last serve to end calls idle */
    }
}

kvcl_offer_t *kvcl_offer_find(kvcl_context_h ctx, uint64_t id, const kvcl_peer_t *peer)
{
    kvcl_offer_t *offer = kvcl_map_get(&kvcl_xfer_state(ctx)->offers, id);

    return ((offer != NULL) && ((offer->peer == NULL) || (offer->peer == peer))) ? offer : NULL;
}
