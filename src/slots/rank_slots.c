/*
 * The slots of a job (rank_slots.h).
 *
 * Owns: ctx->slots, and the peers of communicators where a process has come. Locks: see rank_slots.h.
 */
#include "config.h"
#include "slots/rank_slots.h"
#include "base/error.h"
#include "base/rand.h"
#include "core/comm.h"
#include <kvcl/kvcl_view.h>

#include <stdlib.h>

kvcl_status_t kvcl_rank_slots_open(kvcl_context_h ctx)
{
    const int  size  = ctx->boot->size;
    const bool joins = (ctx->boot->join_times_ns != NULL); /* size is that of the job's slots */
    const int  n     = ((ctx->config.slots != 0) && !joins) ? (int)ctx->config.slots : size;

    if (n < size) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_SLOTS=%d: the job has %d ranks, and each needs a slot", n, size);
    }
    if ((n > size) && !ctx->config.views) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_SLOTS=%d is more than the job's %d ranks, but nobody can join "
                         "it: set KVCL_VIEWS=yes as well, on all ranks", n, size);
    }
    if ((n > size) && (n > KVCL_EVENT_RANKS)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_SLOTS=%d: a job with views has at most %d slots", n,
                         KVCL_EVENT_RANKS);
    }
    ctx->slots.v = calloc((size_t)n, sizeof(*ctx->slots.v));
    if (ctx->slots.v == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %d ranks", n);
    }
    ctx->slots.n = n;
    atomic_store(&ctx->slots.quiet, joins);
    return KVCL_OK;
}

void kvcl_rank_slots_close(kvcl_context_h ctx)
{
    free(ctx->slots.v);
    ctx->slots.v = NULL;
}

kvcl_status_t kvcl_rank_slot_address(kvcl_context_h ctx, int slot, const void **address_p, size_t *len_p)
{
    kvcl_status_t status = KVCL_ERR_NOT_FOUND;
    kvcl_peer_t   *peer;

    kvcl_lock(ctx);
    peer = ctx->slots.v[slot].peer;
    if (peer != NULL) {
        *address_p = peer->address;
        *len_p     = peer->address_len;
    }
    kvcl_unlock(ctx);
    if (peer != NULL) {
        return KVCL_OK;
    }
    if (slot < ctx->boot->size) {
        status = kvcl_boot_get(ctx->boot, slot, address_p, len_p);
    }
    return (status != KVCL_ERR_NOT_FOUND)
               ? status
               : kvcl_fail(KVCL_ERR_RANK_FAILED, "rank %d is a slot that no process has: one may join in it", slot);
}

static int slot_of(const struct kvcl_comm *comm, int rank)
{
    return (comm->world != NULL) ? comm->world[rank] : rank;
}

static bool is_of_job(const struct kvcl_comm *comm)
{
    return !comm->inter && ((comm->world != NULL) || (comm == comm->ctx->world));
}

kvcl_status_t kvcl_rank_slots_check(kvcl_comm_h comm)
{
    kvcl_context_h ctx    = comm->ctx;
    const bool     full   = (ctx->slots.n == ctx->boot->size) && (ctx->boot->join_times_ns == NULL);
    kvcl_status_t  status = KVCL_OK;
    const void     *address;
    size_t         len;
    bool           member;
    int            rank;

    for (rank = 0; !full && is_of_job(comm) && (status == KVCL_OK) && (rank < comm->size); ++rank) {
        kvcl_lock(ctx);
        member = (ctx->slots.v[slot_of(comm, rank)].incarnation != 0); /* whose address may not be known yet */
        kvcl_unlock(ctx);
        if (!member && (rank != comm->rank)) {
            pthread_mutex_lock(&ctx->boot_lock);
            status = kvcl_rank_slot_address(ctx, slot_of(comm, rank), &address, &len);
            pthread_mutex_unlock(&ctx->boot_lock);
        }
    }
    return status;
}

void kvcl_rank_slot_come(kvcl_context_h ctx, int slot, kvcl_peer_t *peer)
{
    kvcl_comm_h comm;
    int         rank;

    kvcl_assert_locked(ctx);
    ctx->slots.v[slot].come = true;
    if (peer == NULL) {
        return;
    }
    ctx->slots.v[slot].peer = peer;
    if (atomic_load(&ctx->slots.quiet)) {
        return; /* communicators find it when they need it */
    }
    kvcl_list_foreach (comm, &ctx->comms, struct kvcl_comm, link) {
        for (rank = 0; is_of_job(comm) && (rank < comm->size); ++rank) {
            if (slot_of(comm, rank) == slot) {
                atomic_store_explicit(&comm->peers[rank], peer, memory_order_release);
            }
        }
    }
}

int kvcl_comm_failed_rank(const struct kvcl_comm *comm)
{
    const kvcl_peer_t *peer;
    bool              knows;
    int               rank;

    if (comm == NULL) {
        return -1;
    }
    kvcl_assert_locked(comm->ctx);
    knows = comm->ctx->config.views && is_of_job(comm);
    for (rank = 0; rank < comm->size; ++rank) {
        peer = atomic_load_explicit(&comm->peers[rank], memory_order_acquire);
        if (((peer != NULL) && (peer->state == KVCL_PEER_FAILED)) ||
            (knows && (comm->ctx->slots.v[slot_of(comm, rank)].incarnation == 0))) {
            return rank;
        }
    }
    return -1;
}

static uint64_t mix(uint64_t hash, int slot, uint64_t incarnation)
{
    hash ^= (uint64_t)slot;
    hash  = kvcl_splitmix64(&hash) ^ incarnation;
    return kvcl_splitmix64(&hash);
}

uint64_t kvcl_rank_slots_epoch(kvcl_context_h ctx, const int *slots, int n)
{
    uint64_t hash = 0;
    bool     come = false;
    int      i;

    kvcl_assert_locked(ctx);
    for (i = 0; i < n; ++i) {
        come = come || ctx->slots.v[slots[i]].come;
        hash = mix(hash, slots[i], ctx->slots.v[slots[i]].incarnation);
    }
    return come ? hash : 0;
}

static void renew(kvcl_comm_h comm)
{
    uint64_t hash = 0;
    int      rank;

    for (rank = 0; rank < comm->size; ++rank) {
        hash = mix(hash, slot_of(comm, rank), comm->ctx->slots.v[slot_of(comm, rank)].incarnation);
    }
    comm->epoch    = hash;
    comm->coll_seq = 0;
}

void kvcl_rank_slots_view(kvcl_context_h ctx, const uint64_t *incarnations, const bool *renewed)
{
    kvcl_comm_h comm;
    bool        has;
    int         i;

    kvcl_assert_locked(ctx);
    for (i = 0; i < ctx->slots.n; ++i) {
        ctx->slots.v[i].incarnation = incarnations[i];
        ctx->slots.v[i].come        = ctx->slots.v[i].come || renewed[i]; /* also one whose address is not known yet */
    }
    kvcl_list_foreach (comm, &ctx->comms, struct kvcl_comm, link) {
        has = false;
        for (i = 0; is_of_job(comm) && (i < comm->size); ++i) {
            has = has || renewed[slot_of(comm, i)];
        }
        if (has) {
            renew(comm);
        }
    }
}
