/*
 * kvcl_comm_split: every rank learns every rank's color and key (kvcl_allgather), and those of one color make their
 * communicator (kvcl_comm_create), which needs no further message.
 *
 * Owns: nothing. Invariant: all members of a color compute the same list from the same bytes. Locks: none is held on
 * entry.
 */
#include "config.h"
#include "base/error.h"
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

/* The communicator of those that chose color; members and ranks have room for all. */
static kvcl_status_t make(kvcl_comm_h comm, const choice_t *all, int64_t color, member_t *members, int *ranks,
                          kvcl_comm_h *comm_p)
{
    int n = 0, i;

    for (i = 0; i < comm->size; ++i) {
        if ((int64_t)le64toh(all[i].color) == color) {
            members[n++] = (member_t){.key = (int64_t)le64toh(all[i].key), .rank = i};
        }
    }
    qsort(members, (size_t)n, sizeof(*members), by_key);
    for (i = 0; i < n; ++i) {
        ranks[i] = members[i].rank;
    }
    return kvcl_comm_create(comm, ranks, n, comm_p);
}

kvcl_status_t kvcl_comm_split(kvcl_comm_h comm, int64_t color, int64_t key, uint64_t timeout_ns, kvcl_comm_h *comm_p)
{
    static const char  call[] = "kvcl_comm_split";
    const choice_t     mine   = {.color = htole64((uint64_t)color), .key = htole64((uint64_t)key)};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status = kvcl_handle_check(comm, KVCL_KIND_COMM, call);
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
    all = malloc((size_t)comm->size * (sizeof(*all) + sizeof(member_t) + sizeof(int)));
    if (all == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %d ranks", call, comm->size);
    }
    status = kvcl_allgather(comm, &mine, sizeof(mine), all, &params, &req);
    if (status == KVCL_OK) {
        status = kvcl_req_wait(req, KVCL_WAIT_FOREVER); /* it has its deadline */
    }
    if (status == KVCL_OK) {
        member_t *members = (member_t *)(void *)(all + comm->size);
        kvcl_comm_h made  = NULL;

        if (color != KVCL_COLOR_NONE) {
            status = make(comm, all, color, members, (int *)(void *)(members + comm->size), &made);
        }
        if (status == KVCL_OK) {
            *comm_p = made;
        }
    }
    free(all);
    return status;
}
