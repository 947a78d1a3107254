/*
 * The meeting of the ranks that open a store together (meet.h).
 *
 * It is one all-gather of kvcl_hello_t and a barrier: it exchanges incarnations and the pools' block sizes, and proves
 * that all ranks open the same store. How a home's table can be read is found out when it is first needed
 * (kvcl_store_learn). Owns nothing. Locks: none on entry; the engine lock inside.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "member/lease.h"
#include "store/grow/part.h"
#include "store/home/follow_views.h"
#include "store/home/ranks.h"
#include "store/meet.h"
#include "store/pool/pool.h"
#include <kvcl/kvcl_coll.h>
#include <kvcl/kvcl_recover.h>

#include <stdlib.h>

static kvcl_status_t wait_step(kvcl_status_t posted, kvcl_req_h *req)
{
    kvcl_status_t status = posted;

    if (posted == KVCL_OK) {
        status = kvcl_req_wait(*req, KVCL_WAIT_FOREVER); /* the operation has a deadline */
    }
    return status;
}

/* Values use the first block size, which should be the same everywhere. */
static void learn_value_block(kvcl_store_h store, const kvcl_hello_t *hello, uint32_t rank)
{
    if ((store->value_block == 0) && (hello->n_sizes != 0)) {
        store->value_block = hello->sizes[0];
    }
    if ((hello->n_sizes != 0) && (hello->sizes[0] != store->value_block)) {
        kvcl_log_warn("the first block size, which values use, is %u bytes in the pool of rank %u, but %llu %s: "
                      "values put with one are not found with the other: open all pools with the same first size",
                      hello->sizes[0], rank, (unsigned long long)store->value_block,
                      (store->value_pool != NULL) ? "here" : "elsewhere");
    }
}

/* The rank of the store that is rank i of those that meet. */
static uint32_t rank_of(const struct kvcl_store *store, const struct kvcl_comm *meeting, int i)
{
    uint32_t rank = (uint32_t)i;

    if (meeting != store->comm) {
        for (rank = 0; store->comm->world[rank] != meeting->world[i]; ++rank) {
        }
    }
    return rank;
}

/* Lock held. Takes over the hellos of all that meet, and makes a new map if others are missing, or have failed. */
static kvcl_status_t learn_ranks(kvcl_store_h store, const struct kvcl_comm *meeting, const kvcl_hello_t *all)
{
    uint32_t n = 0, rank;
    int      i;

    kvcl_assert_locked(store->ctx);
    store->value_pool  = (store->pool != NULL) ? store->pool->owners[0] : NULL;
    store->value_block = (store->value_pool != NULL) ? kvcl_owner_bytes(store->value_pool) : 0;
    for (i = 0; i < meeting->size; ++i) {
        kvcl_status_t status;
        rank   = rank_of(store, meeting, i);
        status = kvcl_hello_check(&all[i], rank, store->id);
        if (status != KVCL_OK) {
            return status;
        }
        learn_value_block(store, &all[i], rank);
        store->replicas = (all[i].replicas > store->replicas) ? all[i].replicas : store->replicas;
        kvcl_store_rank_meet(store, rank, &all[i]);
        if ((rank == store->me) || (store->ranks[rank].peer->state != KVCL_PEER_FAILED)) {
            store->incarnations[rank] = (uint16_t)all[i].incarnation;
            atomic_store(&store->ranks[rank].incarnation, all[i].incarnation);
            ++n;
        }
    }
    return (n != store->n_ranks) ? kvcl_store_map_make(store) : KVCL_OK;
}

kvcl_status_t kvcl_meet_first_failure(kvcl_status_t before, kvcl_status_t status, kvcl_sentence_t *why)
{
    if ((before == KVCL_OK) && (status != KVCL_OK)) {
        kvcl_sentence_keep(why);
    }
    return (before != KVCL_OK) ? before : status;
}

/* After the barrier every home knows the ranks that publish to it. */
kvcl_status_t kvcl_meet_all(kvcl_store_h store, kvcl_comm_h meeting, kvcl_status_t opened, kvcl_sentence_t *why)
{
    kvcl_hello_t  local  = kvcl_grow_hello(store, opened == KVCL_OK);
    kvcl_hello_t  *all   = calloc(store->n_ranks, sizeof(*all));
    kvcl_status_t status = opened, met = KVCL_OK;
    kvcl_req_h    req;

    if (all == NULL) {
        return kvcl_meet_first_failure(status, kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a store over %u ranks",
                                                         store->n_ranks), why);
    }
    all[0] = local;
    if (meeting->size > 1) {
        met    = wait_step(kvcl_allgather(meeting, &local, sizeof(local), all, NULL, &req), &req);
        status = kvcl_meet_first_failure(status, met, why);
    }
    if ((met == KVCL_OK) && (opened == KVCL_OK)) {
        kvcl_lock(store->ctx);
        status = kvcl_meet_first_failure(status, learn_ranks(store, meeting, all), why);
        kvcl_unlock(store->ctx);
    }
    if ((status == KVCL_OK) && (kvcl_views_wait_to_own(store, kvcl_deadline_after(kvcl_timeout(store->ctx, 0)),
                                                       "kvcl_store_open") != KVCL_OK)) {
        kvcl_log_warn("%s", kvcl_last_error()); /* puts and removals say so too */
    }
    if ((met == KVCL_OK) && (meeting->size > 1)) {
        status = kvcl_meet_first_failure(status, wait_step(kvcl_barrier(meeting, NULL, &req), &req), why);
    }
    free(all);
    if (status == KVCL_OK) {
        kvcl_lock(store->ctx);
        kvcl_views_begin(store);
        kvcl_unlock(store->ctx);
    }
    return status;
}

/* The ranks that meet: all; with views those that are members, on whom all of them agree. */
kvcl_status_t kvcl_meet_find(kvcl_comm_h own, kvcl_comm_h *meeting_p)
{
    *meeting_p = own;
    return kvcl_member_has_views(own->ctx) ? kvcl_comm_shrink(own, KVCL_WAIT_DEFAULT, meeting_p) : KVCL_OK;
}
