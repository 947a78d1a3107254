/*
 * The end of a serve (serve.h): its condition, the message to the puller, the release of its memory.
 *
 * Owns: the hold of a serve on the memory that it reads. Invariants: a serve ends once, when none of its frames is in
 * flight; where the puller gave generations, they are compared after the last byte was copied, or has been sent:
 * unequal means that the slot was reused meanwhile, and the block's status is KVCL_ERR_STALE. For exported memory,
 * which may be revoked, the end is sent after its last frame has been sent, so that no frame in flight carries bytes
 * from after the revocation together with a successful end. Locks: the engine lock, everywhere.
 */
#include "config.h"
#include "base/log.h"
#include "cache/cache.h"
#include "dir/slots.h"
#include "xfer/offer.h"
#include "serve/serve.h"

#include <stdlib.h>

void kvcl_serve_hold(kvcl_serve_t *serve, int by)
{
    if ((serve->region != NULL) && (by > 0)) {
        kvcl_region_hold(serve->region, &serve->user);
    } else if (serve->region != NULL) {
        kvcl_region_release(serve->region, &serve->user);
    } else if (serve->cache != NULL) {
        serve->cache->serves += (uint32_t)by;
        if (by > 0) {
            kvcl_list_add_tail(&serve->cache->users, &serve->user.link);
        } else {
            kvcl_list_del(&serve->user.link);
        }
    } else if (serve->offer != NULL) {
        serve->offer->serves += (uint32_t)by;
    }
}

void kvcl_serve_answer(kvcl_peer_t *peer, uint64_t op, kvcl_status_t status, const int32_t *each, size_t n)
{
    kvcl_msg_pull_done_t out = {.msg = {.type = KVCL_MSG_PULL_DONE, .op = op}, .status = status, .n = (uint32_t)n};

    if (kvcl_peer_post(peer, &out.msg, sizeof(out), each, n * sizeof(*each)) != KVCL_OK) {
        kvcl_log_debug("%s has failed: the end of its transfer is not sent", peer->name);
    }
}

bool kvcl_serve_gens_hold(const kvcl_serve_t *serve, int32_t *each)
{
    const uint32_t *gens = serve->ids + serve->n;
    bool           all   = true, one;
    size_t         i;

    for (i = 0; i < serve->n; ++i) {
        one = kvcl_slots_gen_is(&serve->cache->gens[serve->ids[i]], gens[i]);
        all = all && one;
        if (each != NULL) {
            each[i] = one ? KVCL_OK : KVCL_ERR_STALE;
        }
    }
    return all;
}

static void send_end(kvcl_serve_t *serve, kvcl_status_t status, const int32_t *each, size_t n)
{
    if (serve->by_lane) { /* behind the last byte */
        kvcl_serve_lane_end(serve, status, each, n);
    } else {
        kvcl_serve_answer(serve->peer, serve->op, status, each, n);
    }
}

void kvcl_serve_report_end(kvcl_serve_t *serve)
{
    int32_t *each;

    if (serve->silent) {
        return;
    }
    if ((serve->status != KVCL_OK) || !serve->has_gens || kvcl_serve_gens_hold(serve, NULL)) {
        send_end(serve, serve->status, NULL, 0);
        return;
    }
    each = calloc(serve->n, sizeof(*each));
    if (each == NULL) {
        send_end(serve, KVCL_ERR_NO_MEMORY, NULL, 0);
        return;
    }
    (void)kvcl_serve_gens_hold(serve, each);
    send_end(serve, KVCL_OK, each, serve->n);
    free(each);
}

void kvcl_serve_discard(kvcl_serve_t *serve)
{
    free(serve->ids);
    free(serve->pieces);
    free(serve);
}

static void end(kvcl_serve_t *serve)
{
    kvcl_offer_t *offer = serve->offer;

    kvcl_serve_peer_leave(serve);
    serve->ctx->stats.bytes_out    += serve->pos;
    serve->ctx->stats.bytes_served += serve->pos;
    kvcl_serve_report_end(serve);
    kvcl_serve_hold(serve, -1);
    kvcl_serve_discard(serve);
    if ((offer != NULL) && (offer->id == 0) && (offer->serves == 0)) {
        offer->idle(offer);
    }
}

void kvcl_serve_end_if_over(kvcl_serve_t *serve)
{
    if ((serve->in_flight == 0) && ((serve->pos == serve->total) || (serve->status != KVCL_OK))) {
        end(serve);
    }
}

void kvcl_serve_fail(kvcl_serve_t *serve, kvcl_status_t status, bool silent)
{
    if (serve->status == KVCL_OK) {
        serve->status = status;
    }
    serve->silent = serve->silent || silent;
    if (serve->by_lane) {
        kvcl_serve_lane_stop(serve);
    }
    kvcl_serve_end_if_over(serve);
}
