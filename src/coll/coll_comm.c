/*
 * The collectives' state of a communicator (coll_run.h): its plans, its numbering, its class of path.
 *
 * Owns the kvcl_coll_comm_t, made at the first collective, freed with the communicator or, if collectives are still in
 * flight then, with the last of them. Engine lock, except kvcl_coll_comm_path.
 */
#include "config.h"
#include "base/error.h"
#include "wire/address.h"
#include "coll/coll_run.h"

#include <stdlib.h>
#include <string.h>

kvcl_status_t kvcl_coll_comm_get(kvcl_comm_h comm, kvcl_coll_comm_t **cc_p)
{
    kvcl_coll_room_t *room = kvcl_coll_room(comm->ctx);
    const uint64_t   id    = kvcl_comm_coll_id(comm);
    kvcl_coll_comm_t *cc   = kvcl_map_get(&room->comms, id);

    kvcl_assert_locked(comm->ctx);
    if (cc == NULL) {
        cc = calloc(1, sizeof(*cc));
        if ((cc == NULL) || (kvcl_map_put(&room->comms, id, cc) != KVCL_OK)) {
            free(cc);
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for collectives");
        }
        cc->id   = id;
        cc->comm = comm;
        cc->rank = (uint32_t)comm->rank;
        cc->size = (uint32_t)comm->size;
        cc->path = -1;
        kvcl_list_init(&cc->waiting);
        kvcl_plan_cache_init(&cc->plans);
    }
    *cc_p = cc;
    return KVCL_OK;
}

static void free_comm(kvcl_context_h ctx, kvcl_coll_comm_t *cc)
{
    (void)kvcl_map_del(&kvcl_coll_room(ctx)->comms, cc->id);
    kvcl_coll_forget(ctx, NULL, cc->id);
    kvcl_plan_cache_fini(&cc->plans);
    kvcl_coll_stage_free(&cc->stage, cc->size);
    free(cc);
}

void kvcl_coll_comm_release(kvcl_context_h ctx, kvcl_coll_comm_t *cc)
{
    kvcl_assert_locked(ctx);
    if ((cc->comm == NULL) && (cc->running == 0) && (cc->posts == 0) && kvcl_list_is_empty(&cc->waiting)) {
        free_comm(ctx, cc);
    }
}

bool kvcl_coll_comm_is_over(const kvcl_coll_comm_t *cc, uint64_t seq, kvcl_status_t *status_p)
{
    kvcl_coll_op_t *op;
    unsigned       i;

    if (seq >= cc->seqs) {
        return false;
    }
    kvcl_list_foreach (op, &cc->waiting, kvcl_coll_op_t, link) {
        if (op->seq == seq) {
            return false;
        }
    }
    /* It succeeded here with all announcements: a further one belongs to another collective, or to other bytes. */
    *status_p = KVCL_ERR_INVALID_PARAM;
    for (i = 0; (i < cc->n_failures) && (i < KVCL_COLL_FAILURES); ++i) {
        if (cc->failures[i].seq == seq) {
            *status_p = cc->failures[i].status;
        }
    }
    return true;
}

void kvcl_coll_comm_failure(kvcl_coll_comm_t *cc, uint64_t seq, kvcl_status_t status)
{
    cc->failures[cc->n_failures % KVCL_COLL_FAILURES].seq    = seq;
    cc->failures[cc->n_failures % KVCL_COLL_FAILURES].status = status;
    /* Above the ring's size the counter wraps to that size, never below it. */
    cc->n_failures = (cc->n_failures + 1 == 2 * KVCL_COLL_FAILURES) ? KVCL_COLL_FAILURES : cc->n_failures + 1;
}

static kvcl_status_t same_host(kvcl_comm_h comm, int rank, const kvcl_address_t *mine, bool *same_p)
{
    kvcl_context_h ctx = comm->ctx;
    kvcl_status_t  status;
    kvcl_address_t address;
    const void     *blob;
    size_t         len;

    pthread_mutex_lock(&ctx->boot_lock);
    status = kvcl_rank_slot_address(ctx, (comm->world != NULL) ? comm->world[rank] : rank, &blob, &len);
    if (status == KVCL_OK) {
        status = kvcl_address_unpack(blob, len, &address);
    }
    *same_p = (status == KVCL_OK) && (memcmp(address.host, mine->host, sizeof(mine->host)) == 0);
    pthread_mutex_unlock(&ctx->boot_lock);
    return status;
}

kvcl_status_t kvcl_coll_comm_whole(kvcl_comm_h comm, kvcl_coll_comm_t *cc)
{
    const kvcl_status_t status = kvcl_rank_slots_check(comm);

    kvcl_lock(comm->ctx);
    cc->whole = (status == KVCL_OK);
    kvcl_unlock(comm->ctx);
    return status;
}

kvcl_status_t kvcl_coll_comm_path(kvcl_comm_h comm, kvcl_coll_comm_t *cc, kvcl_coll_path_t *path_p)
{
    kvcl_context_h ctx = comm->ctx;
    bool           same = true;
    kvcl_address_t mine;
    kvcl_status_t  status;
    int            known, i;

    kvcl_lock(ctx);
    known = cc->path;
    kvcl_unlock(ctx);
    if ((known < 0) && (ctx->config.path == KVCL_PATH_AUTO)) {
        kvcl_lock(ctx);
        status = kvcl_address_unpack(ctx->address, ctx->address_len, &mine); /* its host is used here */
        kvcl_unlock(ctx);
        for (i = 0; (status == KVCL_OK) && same && (i < comm->size); ++i) {
            status = same_host(comm, i, &mine, &same);
        }
        if (status != KVCL_OK) {
            return status;
        }
    }
    if (known < 0) {
        same  = same && (ctx->config.path != KVCL_PATH_TCP) && (ctx->config.path != KVCL_PATH_RDMA);
        known = same ? KVCL_COLL_PATH_SHM : KVCL_COLL_PATH_NET;
        kvcl_lock(ctx);
        cc->path = known;
        kvcl_unlock(ctx);
    }
    *path_p = (kvcl_coll_path_t)known;
    return KVCL_OK;
}

kvcl_coll_op_t *kvcl_coll_running(kvcl_context_h ctx, uint64_t comm, uint64_t seq)
{
    kvcl_coll_op_t *op;

    kvcl_list_foreach (op, &kvcl_coll_room(ctx)->running, kvcl_coll_op_t, link) {
        if ((op->seq == seq) && (op->cc->id == comm)) {
            return op;
        }
    }
    return NULL;
}
