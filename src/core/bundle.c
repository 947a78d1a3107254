/*
 * Bundles (bundle.h). A payload is a sequence of messages, each: u32 length of the header, u32 length of the data, the
 * header, the data. Headers are complete, with peer and token, and pass the same checks as those of single messages.
 *
 * A bundle is one buffer, allocated for the first message and released when it has been sent: the transport copies
 * small ones, and sends larger ones in place. A single message is sent without a bundle. The failure of a waiting
 * message is not reported to its poster: the peer fails at the next poll, or its link is lost, as when its endpoint
 * breaks.
 */
#include "config.h"
#include "core/bundle.h"
#include "base/log.h"
#include "core/context.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 64 * 1024, LENGTHS = 8, SPARES_MAX = 4 };

struct kvcl_bundle {
    kvcl_xport_send_t   send;
    kvcl_msg_t          msg;
    kvcl_context_h      ctx;
    struct kvcl_bundle  *next; /* spare */
    unsigned            n;
    size_t              len;
    unsigned char       bytes[ROOM] __attribute__((aligned(16)));
};
typedef struct kvcl_bundle kvcl_bundle_t;

/* ---- out ---- */

static kvcl_bundle_t *take(kvcl_context_h ctx)
{
    kvcl_bundle_t *bundle = ctx->peers.spares;

    if (bundle != NULL) {
        ctx->peers.spares = bundle->next;
        --ctx->peers.n_spares;
    } else if ((bundle = malloc(sizeof(*bundle))) == NULL) {
        return NULL;
    }
    bundle->ctx = ctx;
    bundle->n   = 0;
    bundle->len = 0;
    return bundle;
}

static void give_back(kvcl_bundle_t *bundle)
{
    kvcl_peers_t *peers = &bundle->ctx->peers;

    if (peers->n_spares >= SPARES_MAX) {
        free(bundle);
        return;
    }
    bundle->next  = peers->spares;
    peers->spares = bundle;
    ++peers->n_spares;
}

static void has_left(kvcl_xport_send_t *send, kvcl_status_t status)
{
    (void)status; /* if it failed, so has the endpoint */
    give_back(kvcl_container_of(send, kvcl_bundle_t, send));
}

/* KVCL_INPROGRESS: the bundle is the transport's until it has been sent. */
static kvcl_status_t send_all(kvcl_peer_t *peer, kvcl_bundle_t *bundle)
{
    kvcl_iov_t iov = {bundle->bytes, bundle->len};
    uint32_t   lens[2];

    if (bundle->n == 1) {
        memcpy(lens, bundle->bytes, sizeof(lens));
        iov = (kvcl_iov_t){bundle->bytes + LENGTHS + lens[0], lens[1]};
        return kvcl_peer_send_now(peer, (kvcl_msg_t *)(void *)(bundle->bytes + LENGTHS), lens[0], &iov,
                                  (lens[1] > 0) ? 1 : 0, 0, NULL);
    }
    ++peer->ctx->peers.n_bundles;
    bundle->msg       = (kvcl_msg_t){.type = KVCL_MSG_BUNDLE};
    bundle->send.done = has_left;
    return kvcl_peer_send_now(peer, &bundle->msg, sizeof(bundle->msg), &iov, 1, 0,
                              (bundle->len <= peer->attr.inline_bytes) ? NULL : &bundle->send);
}

static void list(kvcl_peer_t *peer)
{
    if (!peer->is_bundled) {
        peer->is_bundled         = true;
        peer->next_bundled       = peer->ctx->peers.bundled;
        peer->ctx->peers.bundled = peer;
    }
}

void kvcl_bundle_flush(kvcl_peer_t *peer)
{
    kvcl_bundle_t *bundle = peer->bundle;
    kvcl_status_t status;

    if (bundle == NULL) {
        return;
    }
    peer->bundle = NULL;
    status       = (peer->state == KVCL_PEER_READY) ? send_all(peer, bundle) : KVCL_OK;
    if (status != KVCL_INPROGRESS) {
        give_back(bundle);
    }
    if (status < 0) { /* a post must not report the failure to its caller here */
        kvcl_log_debug("%s: bundled messages cannot be sent", peer->name);
        peer->unsent = true;
        list(peer);
    }
}

void kvcl_bundle_refused(kvcl_peer_t *peer)
{
    kvcl_assert_locked(peer->ctx);
    kvcl_log_debug("%s: a message cannot be sent", peer->name);
    peer->unsent = true;
    list(peer);
    kvcl_engine_kick(peer->ctx); /* the peer fails at the next poll, which nothing else may cause */
}

bool kvcl_bundles_flush(kvcl_context_h ctx)
{
    bool        any = (ctx->peers.bundled != NULL);
    kvcl_peer_t *peer;

    while ((peer = ctx->peers.bundled) != NULL) {
        ctx->peers.bundled = peer->next_bundled;
        peer->is_bundled   = false;
        kvcl_bundle_flush(peer);
        if (peer->unsent) {
            peer->unsent = false;
            kvcl_peer_try_next(peer, KVCL_ERR_RANK_FAILED);
        }
    }
    return any;
}

void kvcl_bundles_fini(kvcl_context_h ctx)
{
    kvcl_bundle_t *bundle;

    ctx->peers.bundled = NULL;
    while ((bundle = ctx->peers.spares) != NULL) {
        ctx->peers.spares = bundle->next;
        free(bundle);
    }
    ctx->peers.n_spares = 0;
}

void kvcl_bundles_begin(kvcl_context_h ctx)
{
    (void)kvcl_bundles_flush(ctx);
    ctx->peers.bundling = true;
}

void kvcl_bundles_end(kvcl_context_h ctx)
{
    ctx->peers.bundling = false;
    (void)kvcl_bundles_flush(ctx);
}

/* A request may wait for a reply only if a thread will receive that reply. */
static bool may_wait(const kvcl_peer_t *peer, bool soon)
{
    const kvcl_engine_t *eng = &peer->ctx->engine;

    return peer->ctx->peers.bundling ||
           (soon && (peer->answers_due > 0) && (eng->has_thread || eng->polling) && (eng->calling == 0));
}

bool kvcl_bundle_add(kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len, bool soon)
{
    const uint32_t lens[2] = {(uint32_t)hdr_len, (uint32_t)len};
    size_t         need    = (LENGTHS + hdr_len + len + 7) & ~(size_t)7;
    kvcl_bundle_t  *bundle = peer->bundle;
    unsigned char  *at;

    if (!peer->ep->sockets || !may_wait(peer, soon) || (hdr_len > KVCL_BUNDLE_HDR_MAX) || (need > ROOM / 2)) {
        kvcl_bundle_flush(peer);
        return false;
    }
    if ((bundle != NULL) && (need > ROOM - bundle->len)) {
        kvcl_bundle_flush(peer);
        bundle = NULL;
    }
    if (bundle == NULL) {
        bundle = take(peer->ctx);
        if (bundle == NULL) {
            return false;
        }
        peer->bundle = bundle;
    }
    at = bundle->bytes + bundle->len;
    memcpy(at, lens, sizeof(lens));
    kvcl_copy_bytes(at + LENGTHS, msg, hdr_len);
    kvcl_copy_bytes(at + LENGTHS + hdr_len, data, len);
    memset(at + LENGTHS + hdr_len + len, 0, need - (LENGTHS + hdr_len + len));
    bundle->len += need;
    ++bundle->n;
    list(peer);
    return true;
}

/* ---- in ---- */

kvcl_status_t kvcl_bundle_next(const void *payload, size_t len, size_t *at_p, void *hdr, size_t *hdr_len_p,
                               const void **data_p, size_t *len_p)
{
    const unsigned char *bytes = payload;
    size_t              left_over = len - *at_p, need;
    uint32_t            lens[2];

    if (left_over == 0) {
        return KVCL_INPROGRESS;
    }
    if (left_over < LENGTHS) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(lens, bytes + *at_p, sizeof(lens));
    if ((lens[0] > KVCL_BUNDLE_HDR_MAX) || (lens[0] > left_over - LENGTHS) ||
        (lens[1] > left_over - LENGTHS - lens[0])) {
        return KVCL_ERR_PROTOCOL;
    }
    need = ((size_t)LENGTHS + lens[0] + lens[1] + 7) & ~(size_t)7;
    if (need > left_over) {
        return KVCL_ERR_PROTOCOL;
    }
    kvcl_copy_bytes(hdr, bytes + *at_p + LENGTHS, lens[0]);
    *hdr_len_p = lens[0];
    *data_p    = bytes + *at_p + LENGTHS + lens[0];
    *len_p     = lens[1];
    *at_p     += need;
    return KVCL_OK;
}
