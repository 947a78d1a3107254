/*
 * Ranks of one host send their messages to queues in shared memory, each of which belongs to its reader and is written
 * by all others. A sender that is killed, or stopped, while it writes leaves an entry that is never complete, and its
 * reader reads nothing behind it: it is deaf. It still reaches the others. So it opens another queue, gives up its
 * links over the old one, and begins the next session with each peer from there: replies to its HELLO already come to
 * the new queue, and PROOF names it (link.c, take_session). What the old queue holds is lost, as with any lost link.
 *
 * Owns: the addresses that a peer had before. Invariants: an address of a peer stays valid until the context ends; a
 * peer that is READY changes its address with a higher session only. Locks: the engine lock.
 */
#include "config.h"
#include "link/heal.h"
#include "base/error.h"
#include "base/log.h"
#include "core/context.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

enum { OLDER_MAX = 64, READS = 4 };

struct kvcl_older {
    struct kvcl_older *next;
    uint8_t           *address;
    size_t            len;
    unsigned          n; /* of the list from here on */
};

/* ---- addresses ---- */

kvcl_status_t kvcl_link_take_address(kvcl_peer_t *peer, const void *address, size_t len)
{
    kvcl_address_t    known, given;
    struct kvcl_older *older;
    uint8_t           *copy;

    kvcl_assert_locked(peer->ctx);
    if ((len == peer->address_len) && (memcmp(address, peer->address, len) == 0)) {
        return KVCL_OK;
    }
    if ((kvcl_address_unpack(peer->address, peer->address_len, &known) != KVCL_OK) ||
        (kvcl_address_unpack(address, len, &given) != KVCL_OK) ||
        (memcmp(known.uuid, given.uuid, sizeof(known.uuid)) != 0) ||
        (memcmp(known.host, given.host, sizeof(known.host)) != 0) ||
        (memcmp(known.process, given.process, sizeof(known.process)) != 0) ||
        ((peer->older != NULL) && (peer->older->n >= OLDER_MAX))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "%s: it gives another address, of another process, or too often",
                         peer->name);
    }
    older = malloc(sizeof(*older));
    copy  = malloc(len);
    if ((older == NULL) || (copy == NULL)) {
        free(older);
        free(copy);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the address of %s", peer->name);
    }
    kvcl_copy_bytes(copy, address, len);
    *older            = (struct kvcl_older){.next = peer->older, .address = peer->address,
                                            .len = peer->address_len,
                                            .n = (peer->older != NULL) ? peer->older->n + 1 : 1};
    peer->older       = older;
    peer->address     = copy;
    peer->address_len = len;
    peer->pairs_tried = 0;
    kvcl_peer_drop_ep(peer);
    return KVCL_OK;
}

bool kvcl_link_is_news(const kvcl_peer_t *peer, const void *address, size_t len)
{
    const struct kvcl_older *older;

    for (older = peer->older; older != NULL; older = older->next) {
        if ((older->len == len) && (memcmp(older->address, address, len) == 0)) {
            return false;
        }
    }
    return (peer->address_len != len) || (memcmp(peer->address, address, len) != 0);
}

void kvcl_link_forget(kvcl_peer_t *peer)
{
    struct kvcl_older *older;

    while ((older = peer->older) != NULL) {
        peer->older = older->next;
        free(older->address);
        free(older);
    }
}

/* The context's own address, where this part of it has changed. */
static kvcl_status_t readdress(kvcl_context_h ctx, kvcl_xport_t *xport)
{
    kvcl_address_t address;
    uint8_t        *packed = malloc(KVCL_ADDRESS_MAX);
    size_t         len     = 0;

    if ((packed != NULL) && (kvcl_address_unpack(ctx->address, ctx->address_len, &address) == KVCL_OK)) {
        xport->ops->address(xport, &address.part[xport->part].buf, &address.part[xport->part].len);
        len = kvcl_address_pack(&address, packed, KVCL_ADDRESS_MAX);
    }
    if (len > 0) {
        kvcl_copy_bytes(ctx->address, packed, len); /* it has room for the longest one */
        ctx->address_len = len;
    }
    free(packed);
    return (len > 0) ? KVCL_OK : kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an address");
}

/* ---- a deaf transport ---- */

static bool is_deaf(kvcl_context_h ctx, kvcl_xport_t *xport)
{
    unsigned i, n;

    if (xport->ops->is_deaf == NULL) {
        return false;
    }
    for (i = 0; i < READS; ++i) {
        n = xport->ops->progress(xport);
        if (n > 0) {
            kvcl_engine_kick(ctx); /* rooms may have got work, and who sleeps was not woken for it */
        }
        if ((n > 0) || !xport->ops->is_deaf(xport)) {
            return false;
        }
    }
    return true;
}

bool kvcl_link_is_deaf(kvcl_context_h ctx)
{
    unsigned i;

    kvcl_assert_locked(ctx);
    for (i = 0; !ctx->peers.bye && (i < ctx->engine.n_xports); ++i) {
        if (is_deaf(ctx, ctx->engine.xports[i])) {
            return true;
        }
    }
    return false;
}

static kvcl_status_t heal(kvcl_context_h ctx, kvcl_xport_t *xport)
{
    kvcl_status_t status = xport->ops->renew(xport);
    kvcl_peer_t   *peer;
    uint32_t      i;
    bool          own; /* a context may be a peer of its own */

    status = (status == KVCL_OK) ? readdress(ctx, xport) : status;
    for (i = 0; (status == KVCL_OK) && (i < ctx->peers.count); ++i) {
        peer = ctx->peers.v[i];
        if ((peer->ep != NULL) && (peer->ep->xport == xport) && (peer->state != KVCL_PEER_FAILED)) {
            own = (memcmp(peer->uuid, ctx->uuid, sizeof(peer->uuid)) == 0);
            kvcl_link_anew(peer, own ? ctx->address : peer->address, own ? ctx->address_len : peer->address_len);
        }
    }
    return status;
}

bool kvcl_link_heal(kvcl_context_h ctx)
{
    kvcl_xport_t  *xport;
    kvcl_status_t status;
    bool          healed = false;
    unsigned      i;

    kvcl_assert_locked(ctx);
    for (i = 0; i < ctx->engine.n_xports; ++i) {
        xport = ctx->engine.xports[i];
        if (!is_deaf(ctx, xport)) {
            continue;
        }
        status = heal(ctx, xport);
        healed = healed || (status == KVCL_OK);
        if (status != KVCL_OK) {
            kvcl_log_warn("%s gets no other queue: %s", xport->ops->name, kvcl_last_error());
        }
    }
    kvcl_engine_notify(ctx);
    kvcl_engine_rouse(ctx); /* whoever sleeps has not armed the new queue */
    return healed;
}
