/*
 * kvcl_comm_split: every rank learns every rank's color and key (kvcl_allgather), and those of one color make their
 * communicator, which needs no further message.
 *
 * Owns: nothing. Invariant: all members of a color compute the same list from the same bytes, and the same id from the
 * number of the all-gather. Locks: none is held on entry.
 */
#include "config.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/rand.h"
#include "core/comm.h"
#include "handle/handle.h"
#include "req/timeout.h"
#include <kvcl/kvcl_coll.h>

#include <endian.h>
#include <stdlib.h>

/* What a rank sends: little-endian. */
typedef struct choice {
    uint64_t color, key;
} choice_t;
_Static_assert(sizeof(choice_t) == 16, "wire");

typedef struct member {
    int64_t key;
    int     rank;
} member_t;

static int by_key(const void *left, const void *right)
{
    const member_t *a = left, *b = right;

    if (a->key != b->key) {
        return (a->key < b->key) ? -1 : 1;
    }
    return a->rank - b->rank;
}

/* An id made of what all members of a color know, and no other communicator has. The count of communicators over the
 * same ranks (kvcl_comm_create) would not do: ranks on which an earlier call has failed have made one less. */
static kvcl_status_t id_of(kvcl_comm_h comm, uint64_t epoch, int64_t color, uint64_t *id_p)
{
    uint64_t words[3] = {epoch, 0, (uint64_t)color}, seed;
    bool     same;

    kvcl_lock(comm->ctx);
    same     = (comm->epoch == epoch);
    words[1] = comm->coll_seq; /* the all-gather was the last one */
    kvcl_unlock(comm->ctx);
    seed  = kvcl_checksum_seed(words, sizeof(words), comm->id);
    *id_p = kvcl_splitmix64(&seed) | 2; /* as kvcl_comm_new_id */
    return same ? KVCL_OK : kvcl_fail(KVCL_ERR_RANK_FAILED, "kvcl_comm_split: a rank has joined the communicator "
                                      "meanwhile: call it again");
}

static uint64_t epoch_of(kvcl_comm_h comm)
{
    uint64_t epoch;

    kvcl_lock(comm->ctx);
    epoch = comm->epoch;
    kvcl_unlock(comm->ctx);
    return epoch;
}

/* The communicator of those that chose color; members has room for all. */
static kvcl_status_t make(kvcl_comm_h comm, const choice_t *all, int64_t color, uint64_t id, member_t *members,
                          kvcl_comm_h *comm_p)
{
    kvcl_status_t status;
    int           *world, n = 0, me = 0, i;

    for (i = 0; i < comm->size; ++i) {
        if ((int64_t)le64toh(all[i].color) == color) {
            members[n++] = (member_t){.key = (int64_t)le64toh(all[i].key), .rank = i};
        }
    }
    qsort(members, (size_t)n, sizeof(*members), by_key);
    world  = malloc((size_t)n * sizeof(*world));
    status = (world != NULL) ? KVCL_OK : kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_comm_split: no memory for %d ranks", n);
    for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
        world[i] = (comm->world != NULL) ? comm->world[members[i].rank] : members[i].rank;
        me       = (members[i].rank == comm->rank) ? i : me;
    }
    status = (status == KVCL_OK) ? kvcl_comm_make(comm->ctx, 0, me, n, comm_p) : status;
    if (status != KVCL_OK) {
        free(world);
        return status;
    }
    kvcl_lock(comm->ctx);
    (*comm_p)->world = world;
    kvcl_comm_set_id(*comm_p, id);
    kvcl_unlock(comm->ctx);
    return KVCL_OK;
}

kvcl_status_t kvcl_comm_split(kvcl_comm_h comm, int64_t color, int64_t key, uint64_t timeout_ns, kvcl_comm_h *comm_p)
{
    static const char  call[] = "kvcl_comm_split";
    const choice_t     mine   = {.color = htole64((uint64_t)color), .key = htole64((uint64_t)key)};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status = kvcl_handle_check(comm, KVCL_KIND_COMM, call);
    uint64_t           id = 0, epoch;
    kvcl_status_t      named;
    kvcl_req_h         req;
    choice_t           *all;

    if (status != KVCL_OK) {
        return status;
    }
    if ((comm_p == NULL) || comm->inter) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: comm_p is NULL, or the communicator is an inter-communicator",
                         call);
    }
    status = kvcl_call_timeout(comm->ctx, timeout_ns, call, &params.timeout_ns);
    if (status != KVCL_OK) {
        return status;
    }
    all = malloc((size_t)comm->size * (sizeof(*all) + sizeof(member_t)));
    if (all == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %d ranks", call, comm->size);
    }
    epoch  = epoch_of(comm);
    status = kvcl_allgather(comm, &mine, sizeof(mine), all, &params, &req);
    if (status == KVCL_OK) {
        named  = id_of(comm, epoch, color, &id);
        status = kvcl_req_wait(req, KVCL_WAIT_FOREVER); /* it has its deadline */
        status = (status == KVCL_OK) ? named : status;
    }
    if (status == KVCL_OK) {
        kvcl_comm_h made = NULL;

        if (color != KVCL_COLOR_NONE) {
            status = make(comm, all, color, id, (member_t *)(void *)(all + comm->size), &made);
        }
        if (status == KVCL_OK) {
            *comm_p = made;
        }
    }
    free(all);
    return status;
}
