/*
 * Reads of a peer's offered bytes (near.h): the bytes first, then the peer's count of revocations.
 *
 * Owns nothing: a read is the caller's. Invariants: the count is read by a later operation than the bytes, so that it
 * is not older than they are; done is called once for each read that began. Locks: the engine lock.
 */
#include "config.h"
#include "near/near.h"

#include "core/context.h"
#include "mem/region.h"

#include <string.h>

static const kvcl_near_ops_t *ops_of(const kvcl_peer_t *peer)
{
    return ((peer->ep != NULL) && (peer->ops->near != NULL) && peer->ops->near->reaches(peer->ep)) ? peer->ops->near
                                                                                                  : NULL;
}

bool kvcl_near_describe(const kvcl_peer_t *peer, const void *addr, kvcl_near_wire_t *wire)
{
    const kvcl_near_ops_t *ops = ops_of(peer);

    kvcl_assert_locked(peer->ctx);
    *wire = (kvcl_near_wire_t){.addr     = (uintptr_t)addr,
                               .count_at = (uintptr_t)kvcl_revoked_at(peer->ctx),
                               .count    = kvcl_revoked(peer->ctx)};
    return (ops != NULL) && ops->self(peer->ep->xport, wire->self);
}

static void end(kvcl_near_read_t *read, kvcl_status_t status)
{
    read->busy = false;
    read->done(read, status);
}

static void on_send(kvcl_xport_send_t *send, kvcl_status_t status)
{
    kvcl_near_read_t      *read = kvcl_container_of(send, kvcl_near_read_t, send);
    const kvcl_near_ops_t *ops  = ops_of(read->peer);

    if (status != KVCL_OK) {
        end(read, status);
    } else if (read->has_bytes) {
        end(read, (read->count == read->from.count) ? KVCL_OK : KVCL_ERR_STALE);
    } else {
        read->has_bytes = true;
        status = (ops != NULL) ? ops->get(read->peer->ep, read->from.self, read->from.count_at, &read->count,
                                          sizeof(read->count), &read->send)
                               : KVCL_ERR_UNREACHABLE;
        if (status != KVCL_INPROGRESS) {
            end(read, (status == KVCL_OK) ? KVCL_ERR_STALE : status);
        }
    }
}

kvcl_status_t kvcl_near_start(kvcl_near_read_t *read, kvcl_peer_t *peer, const kvcl_near_wire_t *from, uint64_t off,
                              void *buf, size_t len)
{
    const kvcl_near_ops_t *ops = ops_of(peer);
    kvcl_status_t         status;

    kvcl_assert_locked(peer->ctx);
    if ((ops == NULL) || (from->addr > UINT64_MAX - off) || (from->addr + off > UINT64_MAX - len)) {
        return KVCL_ERR_UNSUPPORTED;
    }
    read->from      = *from;
    read->peer      = peer;
    read->has_bytes = false;
    read->send.done = on_send;
    status          = ops->get(peer->ep, read->from.self, from->addr + off, buf, len, &read->send);
    read->busy      = (status == KVCL_INPROGRESS);
    if (read->busy) {
        kvcl_engine_kick(peer->ctx);
    }
    return read->busy ? KVCL_OK : KVCL_ERR_UNSUPPORTED;
}

void kvcl_near_stop(kvcl_near_read_t *read)
{
    kvcl_peer_t *peer = read->peer;

    kvcl_assert_locked(peer->ctx);
    if ((peer->ep != NULL) && (peer->ops->near != NULL)) { /* else the end of the endpoint ends it */
        peer->ops->near->stop(peer->ep, &read->send);
        kvcl_engine_kick(peer->ctx);
    }
}
