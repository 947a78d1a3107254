/*
 * The side of a rank that comes to an open store (part.h).
 *
 * Invariant: a rank that others have taken is linked, so that it answers; it looks nothing up before its first move is
 * over. Owns nothing. Locks: none on entry; the engine lock inside.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/grow/rounds.h"
#include "store/home/follow_views.h"
#include "store/home/ranks.h"
#include "store/pool/pool.h"

#include <stdlib.h>

/* ---- which store ---- */

static kvcl_status_t differs(const char *field, uint64_t mine, uint64_t theirs)
{
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: %s is %llu, but %llu in the store that this rank is to "
                     "come to", field, (unsigned long long)mine, (unsigned long long)theirs);
}

/* Lock held. Becomes the store of which others have said this. */
static kvcl_status_t adopt(kvcl_store_h store, uint64_t replicas, const kvcl_part_t *part, uint32_t rank)
{
    const kvcl_hello_t *hello = &part->hello;
    kvcl_status_t      status = kvcl_hello_check(hello, rank, hello->id);

    kvcl_assert_locked(store->ctx);
    if (status != KVCL_OK) {
        return status;
    }
    if ((replicas != 0) && (replicas != hello->replicas)) {
        return differs("replicas", replicas, hello->replicas);
    }
    if ((store->pool != NULL) && (hello->n_sizes != 0) &&
        (hello->sizes[0] != kvcl_owner_bytes(store->pool->owners[0]))) {
        return differs("the first block size", kvcl_owner_bytes(store->pool->owners[0]), hello->sizes[0]);
    }
    store->id             = hello->id;
    store->replicas       = hello->replicas;
    store->value_pool     = (store->pool != NULL) ? store->pool->owners[0] : NULL;
    store->value_block    = (store->value_pool != NULL) ? kvcl_owner_bytes(store->value_pool) : hello->sizes[0];
    store->comm->epoch    = part->epoch;
    store->comm->coll_seq = part->coll_seq;
    kvcl_comm_set_id(store->comm, part->comm);
    return KVCL_OK;
}

typedef enum { HAVE_NONE, HAVE_ONE, NOT_YET } have_t;

/* What the answers of a round say: *rank_p has the store, and the others have the same one, or none. */
static have_t have(const kvcl_rounds_t *rounds, uint32_t *rank_p)
{
    have_t   found = HAVE_NONE;
    uint32_t i;

    for (i = 0; i < rounds->store->n_ranks; ++i) {
        const kvcl_rounds_rank_t *rank = &rounds->ranks[i];

        if (!rank->asked || (rank->status == KVCL_ERR_NOT_FOUND)) {
            continue;
        }
        if ((rank->status != KVCL_OK) ||
            ((found == HAVE_ONE) && (rank->part.hello.id != rounds->ranks[*rank_p].part.hello.id))) {
            return NOT_YET;
        }
        *rank_p = i;
        found   = HAVE_ONE;
    }
    return found;
}

/* The first rank asked whose answer is none yet. */
static uint32_t open_rank(const kvcl_rounds_t *rounds)
{
    uint32_t i;

    for (i = 0; i < rounds->store->n_ranks; ++i) {
        if (rounds->ranks[i].asked && (rounds->ranks[i].status != KVCL_OK) &&
            (rounds->ranks[i].status != KVCL_ERR_NOT_FOUND)) {
            break;
        }
    }
    return i;
}

static kvcl_status_t late(const kvcl_rounds_t *rounds, const char *what)
{
    const uint32_t rank = open_rank(rounds);

    if (rank == rounds->store->n_ranks) {
        return kvcl_fail(KVCL_ERR_TIMED_OUT, "kvcl_store_open: other ranks have different stores open over these "
                         "ranks: close all but one, or open the others on this rank too");
    }
    return kvcl_fail(KVCL_ERR_TIMED_OUT, "kvcl_store_open: rank %u %s in the time given (KVCL_TIMEOUT): %s", rank, what,
                     kvcl_status_text(rounds->ranks[rank].status));
}

static kvcl_status_t find(kvcl_rounds_t *rounds, uint64_t replicas)
{
    kvcl_store_h  store = rounds->store;
    have_t        found = NOT_YET;
    kvcl_status_t status;
    uint32_t      rank  = 0;

    store->id = kvcl_grow_name(store);
    while (found == NOT_YET) {
        (void)kvcl_rounds_ask(rounds, NULL);
        found = have(rounds, &rank);
        if ((found == NOT_YET) && !kvcl_rounds_pause(rounds)) {
            return late(rounds, "has not said which store it has open");
        }
    }
    if (found == HAVE_NONE) {
        return kvcl_fail(KVCL_ERR_NOT_FOUND, "kvcl_store_open: no other rank has a store open over these ranks in "
                         "which rank %u takes no part: open one without KVCL_STORE_JOIN, on all ranks", store->me);
    }
    kvcl_lock(store->ctx);
    status = adopt(store, replicas, &rounds->ranks[rank].part, rank);
    kvcl_unlock(store->ctx);
    return status;
}

/* ---- being taken ---- */

/* Lock held. A rank has taken this one. */
static kvcl_status_t meet(kvcl_store_h store, uint32_t rank, const kvcl_part_t *part)
{
    kvcl_status_t status = kvcl_hello_check(&part->hello, rank, store->id);

    kvcl_assert_locked(store->ctx);
    if (status == KVCL_OK) {
        kvcl_store_rank_meet(store, rank, &part->hello);
        kvcl_views_rank_comes(store, rank, (uint16_t)part->hello.incarnation, (part->flags & KVCL_PART_LEAVES) != 0);
    }
    return status;
}

/* After a round. *taken_p: some rank that had settled has taken this one. A rank that comes as well knows it then, but
 * nothing of the others. *open_p: ranks that have the store have not taken this one yet. A rank without it takes no
 * part in it; as long as rounds go on it is asked again, since it may come as well (part.h). */
static kvcl_status_t take_answers(kvcl_rounds_t *rounds, bool *taken_p, bool *open_p)
{
    kvcl_status_t status = KVCL_OK;
    uint32_t      i;

    *open_p = false;
    kvcl_lock(rounds->store->ctx);
    for (i = 0; (i < rounds->store->n_ranks) && (status == KVCL_OK); ++i) {
        kvcl_rounds_rank_t *rank = &rounds->ranks[i];

        if (!rank->asked) {
            continue;
        }
        if (rank->status == KVCL_ERR_INVALID_PARAM) {
            status = kvcl_fail(rank->status, "kvcl_store_open: rank %u refuses this one, which came to store %llx with "
                               "%u replicas: that rank has another store open over these ranks, or other replicas", i,
                               (unsigned long long)rounds->store->id, (unsigned)rounds->store->replicas);
        } else if (rank->status == KVCL_OK) {
            status   = meet(rounds->store, i, &rank->part);
            *taken_p = *taken_p || ((rank->part.flags & KVCL_PART_SURE) != 0);
        }
        rank->over = (rank->status == KVCL_OK) && *taken_p;
        *open_p    = *open_p || (!rank->over && (rank->status != KVCL_ERR_NOT_FOUND));
    }
    rounds->store->views->sure = *taken_p;
    kvcl_unlock(rounds->store->ctx);
    return status;
}

static kvcl_status_t be_taken(kvcl_rounds_t *rounds)
{
    kvcl_part_t   part   = kvcl_grow_part(rounds->store);
    kvcl_status_t status = KVCL_OK;
    bool          taken  = false, open = true;

    while ((status == KVCL_OK) && open && (kvcl_rounds_ask(rounds, &part) != 0)) {
        status      = take_answers(rounds, &taken, &open);
        part.flags |= taken ? KVCL_PART_SURE : 0u;
        if ((status == KVCL_OK) && open && !kvcl_rounds_pause(rounds)) {
            if (open_rank(rounds) != rounds->store->n_ranks) {
                return late(rounds, "has not taken this one into the store");
            }
            if (!taken) {
                break; /* there are only ranks that come as well */
            }
        }
    }
    return ((status == KVCL_OK) && !taken)
               ? kvcl_fail(KVCL_ERR_NOT_FOUND, "kvcl_store_open: the other ranks have closed the store, or have failed")
               : status;
}

/* ---- the two halves of an open ---- */

kvcl_status_t kvcl_grow_seek(kvcl_store_h store, uint64_t replicas, uint64_t deadline_ns)
{
    kvcl_rounds_t rounds;
    kvcl_status_t status;

    if (store->views == NULL) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "kvcl_store_open: KVCL_STORE_JOIN needs KVCL_VIEWS=yes, on all ranks");
    }
    status = kvcl_rounds_open(&rounds, store, deadline_ns);
    status = (status == KVCL_OK) ? find(&rounds, replicas) : status;
    kvcl_rounds_close(&rounds);
    return status;
}

kvcl_status_t kvcl_grow_join(kvcl_store_h store, uint64_t deadline_ns)
{
    kvcl_rounds_t rounds;
    kvcl_status_t status = kvcl_rounds_open(&rounds, store, deadline_ns);
    kvcl_hello_t  own;

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(store->ctx);
    own = kvcl_grow_hello(store, true);
    kvcl_store_rank_meet(store, store->me, &own);
    kvcl_list_add_tail(&kvcl_store_room(store->ctx)->stores, &store->link);
    kvcl_unlock(store->ctx);
    status = be_taken(&rounds);
    kvcl_rounds_close(&rounds);
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(store->ctx);
    kvcl_views_come(store);
    kvcl_unlock(store->ctx);
    return kvcl_rounds_wait_settled(store, deadline_ns)
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_TIMED_OUT, "kvcl_store_open: shards have not moved to this rank in the time given "
                           "(KVCL_TIMEOUT)");
}
