/*
 * Communicators over the ranks of one job (comm.h). Inter-communicators are made in join/connect.c.
 */
#include "config.h"
#include "core/comm.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "handle/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t kvcl_comm_new_id(kvcl_context_h ctx, uint64_t base)
{
    /* Members that make several communicators over one list make them in the same order: number them. */
    uintptr_t n = (uintptr_t)kvcl_map_get(&ctx->comm_ids, base) + 1;

    kvcl_assert_locked(ctx);
    if (kvcl_map_put(&ctx->comm_ids, base, (void *)n) != KVCL_OK) {
        kvcl_log_warn("no memory to number communicators");
    }
    base ^= (uint64_t)n * UINT64_C(0x9e3779b97f4a7c15);
    return kvcl_splitmix64(&base) | 2; /* never the world's 1, never 0 */
}

kvcl_status_t kvcl_comm_make(kvcl_context_h ctx, uint64_t id, int rank, int size, kvcl_comm_h *comm_p)
{
    kvcl_comm_h comm = kvcl_object_alloc(KVCL_KIND_COMM, sizeof(*comm));

    if ((comm == NULL) || ((comm->peers = calloc((size_t)size, sizeof(*comm->peers))) == NULL)) {
        kvcl_object_free(comm);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", size);
    }
    comm->ctx        = ctx;
    comm->id         = id;
    comm->rank       = rank;
    comm->size       = size;
    comm->local_size = size;
    kvcl_lock(ctx);
    kvcl_list_add_tail(&ctx->comms, &comm->link);
    kvcl_unlock(ctx);
    *comm_p          = comm;
    return KVCL_OK;
}

kvcl_status_t kvcl_comm_world(kvcl_context_h ctx, kvcl_comm_h *comm_p)
{
    kvcl_status_t status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_comm_world");

    if (status != KVCL_OK) {
        return status;
    }
    if (comm_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_comm_world: comm_p is NULL");
    }
    *comm_p = ctx->world;
    return KVCL_OK;
}

/* Lock held. The world knows the peers of all communicators made from it: kvcl_rank_state. */
static void remember(kvcl_comm_h comm, int rank, kvcl_peer_t *peer)
{
    kvcl_assert_locked(peer->ctx);
    if ((comm->world != NULL) && (comm->ctx->world != NULL)) {
        comm->ctx->world->peers[comm->world[rank]] = peer;
    }
}

/* The sentence names the rank whose address it is about. */
static kvcl_status_t bad_address(kvcl_status_t status, int rank)
{
    char why[KVCL_ERROR_MAX / 2];

    snprintf(why, sizeof(why), "%s", kvcl_last_error());
    return kvcl_fail(status, "rank %d published an address that cannot be used: %s", rank, why);
}

kvcl_status_t kvcl_comm_peer(kvcl_comm_h comm, int rank, kvcl_peer_t **peer_p)
{
    kvcl_context_h ctx  = comm->ctx;
    const int      slot = (comm->world != NULL) ? comm->world[rank] : rank;
    kvcl_peer_t    *came;
    kvcl_status_t  status;
    const void     *blob;
    size_t         len;

    *peer_p = atomic_load_explicit(&comm->peers[rank], memory_order_acquire);
    if (*peer_p != NULL) {
        return KVCL_OK;
    }
    if (comm->inter) {
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "rank %d of the other side has disconnected", rank);
    }
    if (atomic_load(&ctx->slots.quiet) && (rank != comm->rank)) {
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "this process joins the job, and is no member yet (kvcl_comm_sync)");
    }
    pthread_mutex_lock(&ctx->boot_lock);
    status = kvcl_rank_slot_address(ctx, slot, &blob, &len);
    if (status == KVCL_OK) {
        kvcl_lock(ctx);
        came   = ctx->slots.v[slot].peer;
        status = (came != NULL) ? KVCL_OK : kvcl_peer_by_address(ctx, blob, len, peer_p);
        *peer_p = (came != NULL) ? came : *peer_p;
        if (status == KVCL_OK) {
            comm->peers[rank] = *peer_p;
            remember(comm, rank, *peer_p);
        }
        kvcl_unlock(ctx);
        if ((status != KVCL_OK) && (status != KVCL_ERR_NO_MEMORY)) {
            status = bad_address(status, slot);
        }
    }
    pthread_mutex_unlock(&ctx->boot_lock);
    return status;
}

/* The rank of a peer in comm; -1: not a member, or not resolved yet. */
static int rank_of(kvcl_comm_h comm, const kvcl_peer_t *peer)
{
    int i;

    for (i = 0; i < comm->size; ++i) {
        if (comm->peers[i] == peer) {
            return i;
        }
    }
    return -1;
}

static const char *rank_name(kvcl_comm_h comm, int rank, char *buf, size_t cap)
{
    snprintf(buf, cap, "rank %d%s", (comm->world != NULL) ? comm->world[rank] : rank,
             comm->inter ? " of the other job" : "");
    return buf;
}

const char *kvcl_comm_peer_name(const kvcl_peer_t *peer, char *buf, size_t cap)
{
    kvcl_comm_h comm;
    int         rank;

    kvcl_assert_locked(peer->ctx);
    kvcl_list_foreach (comm, &peer->ctx->comms, struct kvcl_comm, link) {
        rank = rank_of(comm, peer);
        if (rank >= 0) {
            return rank_name(comm, rank, buf, cap);
        }
    }
    snprintf(buf, cap, "%s", peer->name);
    return buf;
}

const char *kvcl_comm_source_name(const kvcl_peer_t *peer, uint64_t id, int source, char *buf, size_t cap)
{
    kvcl_comm_h comm, named = NULL;

    kvcl_assert_locked(peer->ctx);
    kvcl_list_foreach (comm, &peer->ctx->comms, struct kvcl_comm, link) {
        if (rank_of(comm, peer) >= 0) {
            return kvcl_comm_peer_name(peer, buf, cap);
        }
        named = (comm->id == id) ? comm : named;
    }
    if ((named == NULL) || (source < 0) || (source >= named->size) || (named->peers[source] != NULL)) {
        return kvcl_comm_peer_name(peer, buf, cap); /* that rank is another peer */
    }
    return rank_name(named, source, buf, cap);
}

kvcl_status_t kvcl_comm_create(kvcl_comm_h parent, const int *ranks, int n, kvcl_comm_h *comm_p)
{
    kvcl_status_t status;
    kvcl_comm_h   comm;
    uint64_t      id;
    int           i, j, me = -1;

    status = kvcl_comm_check_group(parent, n, "kvcl_comm_create");
    if (status != KVCL_OK) {
        return status;
    }
    if ((ranks == NULL) || (comm_p == NULL) || (n <= 0) || parent->inter) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_comm_create: NULL argument, no ranks, or an inter-communicator");
    }
    for (i = 0; i < n; ++i) {
        if ((ranks[i] < 0) || (ranks[i] >= parent->size)) {
            return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "kvcl_comm_create: rank %d (entry %d) is not in a communicator of "
                             "%d ranks", ranks[i], i, parent->size);
        }
        for (j = 0; j < i; ++j) {
            if (ranks[j] == ranks[i]) {
                return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "kvcl_comm_create: rank %d is listed twice", ranks[i]);
            }
        }
        me = (ranks[i] == parent->rank) ? i : me;
    }
    if (me < 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_comm_create: the calling rank %d is not in the list",
                         parent->rank);
    }
    id     = kvcl_checksum_seed(ranks, (size_t)n * sizeof(*ranks), parent->id);
    status = kvcl_comm_make(parent->ctx, 0, me, n, &comm);
    if (status != KVCL_OK) {
        return status;
    }
    comm->world = malloc((size_t)n * sizeof(*comm->world));
    if (comm->world == NULL) {
        kvcl_comm_free(comm);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", n);
    }
    for (i = 0; i < n; ++i) {
        comm->world[i] = (parent->world != NULL) ? parent->world[ranks[i]] : ranks[i];
    }
    kvcl_lock(parent->ctx);
    kvcl_comm_set_id(comm, kvcl_comm_new_id(parent->ctx, id ^ kvcl_rank_slots_epoch(parent->ctx, comm->world, n)));
    kvcl_unlock(parent->ctx);
    *comm_p = comm;
    return KVCL_OK;
}

void kvcl_comm_free(kvcl_comm_h comm)
{
    unsigned i;

    if (!kvcl_handle_may_free(comm, KVCL_KIND_COMM, "kvcl_comm_free") || (comm == comm->ctx->world)) {
        return;
    }
    kvcl_lock(comm->ctx);
    kvcl_list_del(&comm->link);
    for (i = 0; i < comm->ctx->n_rooms; ++i) {
        if (kvcl_rooms[i]->comm_freed != NULL) {
            kvcl_rooms[i]->comm_freed(comm->ctx, comm->ctx->rooms[i], comm);
        }
    }
    kvcl_unlock(comm->ctx);
    free(comm->world);
    free(comm->out_ids);
    free(comm->peers);
    kvcl_object_free(comm);
}

int kvcl_comm_rank(kvcl_comm_h comm)
{
    return (kvcl_handle_check(comm, KVCL_KIND_COMM, "kvcl_comm_rank") == KVCL_OK) ? comm->rank : -1;
}

int kvcl_comm_size(kvcl_comm_h comm)
{
    return (kvcl_handle_check(comm, KVCL_KIND_COMM, "kvcl_comm_size") == KVCL_OK) ? comm->size : 0;
}
