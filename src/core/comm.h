/*
 * The inside of communicators. A rank's peer is resolved when it is first needed: its address comes from boot (the
 * world and communicators made from it) or from the other job (inter-communicators).
 *
 * Immutable after creation but for peers[], which is filled under the engine lock, and a door's ranks (door/door.h).
 */
#ifndef KVCL_CORE_COMM_H
#define KVCL_CORE_COMM_H

#include "base/hardening.h"
#include "core/context.h"

struct kvcl_comm {
    kvcl_list_t      link;    /* ctx->comms */
    kvcl_context_h   ctx;
    uint64_t         id;      /* the same on all members, but for those of door/; names it in messages */
    uint64_t         *out_ids; /* door/: its name for each rank that messages go to; NULL: id */
    int              rank;    /* this rank, in its own side */
    _Atomic int      size;    /* ranks that can be addressed; a door's grows */
    int              local_size; /* ranks of the local side */
    bool             inter;
    int              *world;  /* rank -> world rank; NULL: the world itself, or inter */
    kvcl_peer_t      *_Atomic *peers; /* read without the lock */
    struct kvcl_comm *local;  /* inter: the local side */
    uint32_t         children; /* made from this one: part of their ids */
    uint64_t         coll_seq; /* collectives posted in this epoch; under the engine lock */
    uint64_t         epoch;    /* rank_slots.h: 0 until a process has come into it; under the engine lock */
    _Atomic bool     revoked;  /* set once, under the engine lock */
};

/* This rank, as messages over the communicator name it. */
typedef struct kvcl_comm_self {
    uint64_t id; /* of the communicator */
    int      rank;
} kvcl_comm_self_t;

/* to: the rank that the messages go to. */
static inline kvcl_comm_self_t kvcl_comm_self(const struct kvcl_comm *comm, int to)
{
    return (kvcl_comm_self_t){(comm->out_ids != NULL) ? comm->out_ids[to] : comm->id, comm->rank};
}

/** No lock held; queries boot the first time, which may block. KVCL_ERR_UNKNOWN_RANK, ... */
kvcl_status_t kvcl_comm_peer(kvcl_comm_h comm, int rank, kvcl_peer_t **peer_p) KVCL_MUST_CHECK KVCL_UNGUARDED;

/** Lock held: "rank N" (of the world; of an inter-communicator the other side's), else the peer's name. Returns buf. */
const char *kvcl_comm_peer_name(const kvcl_peer_t *peer, char *buf, size_t cap);
/** The same by its message, as rank source of communicator id, where this context knows no other peer as that rank. */
const char *kvcl_comm_source_name(const kvcl_peer_t *peer, uint64_t id, int source, char *buf, size_t cap);

/** The communicator as messages of collectives name it. The engine lock guards it. */
static inline uint64_t kvcl_comm_coll_id(const struct kvcl_comm *comm)
{
    return comm->id ^ comm->epoch;
}

/** Lock held: the lowest rank that has failed, or with views has no process; -1: none, or comm is NULL. */
int kvcl_comm_failed_rank(const struct kvcl_comm *comm);
/** Lock held: the id of the next communicator over a list of ranks whose hash is base. */
uint64_t kvcl_comm_new_id(kvcl_context_h ctx, uint64_t base);

kvcl_status_t kvcl_comm_make(kvcl_context_h ctx, uint64_t id, int rank, int size, kvcl_comm_h *comm_p) KVCL_MUST_CHECK;
kvcl_status_t kvcl_comm_check(kvcl_comm_h comm, int rank, const char *call) KVCL_MUST_CHECK;
/** For an operation: KVCL_ERR_REVOKED too. _any: or KVCL_ANY_SOURCE. _group: to make one of n ranks; no joiner. */
kvcl_status_t kvcl_comm_check_group(kvcl_comm_h comm, int n, const char *call) KVCL_MUST_CHECK;
kvcl_status_t kvcl_comm_check_op(kvcl_comm_h comm, int rank, const char *call) KVCL_MUST_CHECK;
kvcl_status_t kvcl_comm_check_any(kvcl_comm_h comm, int rank, const char *call) KVCL_MUST_CHECK;
/** Lock held: the id of a new communicator, which may have been revoked elsewhere already. */
void          kvcl_comm_set_id(kvcl_comm_h comm, uint64_t id);

#endif
