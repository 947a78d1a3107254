/*
 * The reason why a peer is not reached over RDMA (why_no_port.h). Owns nothing. Locks: the engine lock.
 */
#include "config.h"
#include "query/why_no_port.h"
#include "core/context.h"
#include "wire/address.h"

const char *kvcl_why_no_port(const kvcl_peer_t *peer)
{
    const kvcl_engine_t *eng = &peer->ctx->engine;
    bool                local = false, remote;
    kvcl_address_t      to;
    unsigned            i;

    kvcl_assert_locked(peer->ctx);
    if ((peer->part >= KVCL_ADDRESS_RDMA) ||
        (kvcl_address_unpack(peer->address, peer->address_len, &to) != KVCL_OK)) {
        return NULL;
    }
    for (i = 0; i < eng->n_xports; ++i) {
        local = local || (eng->xports[i]->part >= KVCL_ADDRESS_RDMA);
    }
    remote = (to.part[KVCL_ADDRESS_RDMA].buf != NULL);
    return (local && remote) ? "RDMA: the peer's ports do not answer" : local ? "RDMA: the peer names no port"
           : remote          ? "RDMA: this rank names no port, the peer does" : NULL;
}
