/*
 * The local state of another rank (kvcl_rank_state): its session, and whether a store suspects it to be silent. Read
 * under the engine lock; no message is sent.
 */
#include "config.h"
#include "base/error.h"
#include "core/comm.h"

/* Lock held. */
static kvcl_rank_state_t state_of(const kvcl_peer_t *peer)
{
    kvcl_assert_locked(peer->ctx);
    if (peer->state == KVCL_PEER_FAILED) {
        return KVCL_RANK_FAILED;
    }
    if (peer->suspicions != 0) {
        return KVCL_RANK_SUSPECT;
    }
    return (peer->state == KVCL_PEER_READY) ? KVCL_RANK_ALIVE : KVCL_RANK_UNKNOWN;
}

kvcl_status_t kvcl_rank_state(kvcl_comm_h comm, int rank, kvcl_rank_state_t *state_p)
{
    kvcl_status_t status = kvcl_comm_check(comm, rank, "kvcl_rank_state");
    kvcl_peer_t   *peer;

    if (status != KVCL_OK) {
        return status;
    }
    if (state_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_rank_state: state_p is NULL");
    }
    if (!comm->inter && (rank == comm->rank)) {
        *state_p = KVCL_RANK_ALIVE;
        return KVCL_OK;
    }
    peer = atomic_load_explicit(&comm->peers[rank], memory_order_acquire);
    if ((peer == NULL) && (comm->world != NULL)) {
        peer = atomic_load_explicit(&comm->ctx->world->peers[comm->world[rank]], memory_order_acquire);
    }
    *state_p = comm->inter ? KVCL_RANK_FAILED : KVCL_RANK_UNKNOWN; /* of an inter-communicator: it has disconnected */
    if (peer != NULL) {
        kvcl_lock(comm->ctx);
        *state_p = state_of(peer);
        kvcl_unlock(comm->ctx);
    }
    return KVCL_OK;
}
