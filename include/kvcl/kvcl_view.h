/*
 * Views: who is a member of the job, as all members agree. With KVCL_VIEWS=yes (the same on all ranks) a thread of each
 * context sends beats, notices ranks that end or are silent, and agrees with the others on the next view. Without it
 * there is one view for ever, and a rank that dies stays a member that fails.
 *
 * Two words. A rank is *proven* to have ended when the kernel of its host says so, or when it has left the job: that is
 * final, at once. It is *silent* when no message of it came for KVCL_DEAD, in which this rank was awake; it is
 * suspected after KVCL_SUSPECT, and suspicion ends with its next message. Proven and silent ranks are excluded by the
 * next view. A silent rank that goes on later, perhaps because it was only stopped, finds that it was excluded: its
 * operations end with KVCL_ERR_STALE, and it is never a member again under this context.
 *
 * Views are numbered from 1. A change needs a quorum of the members: a majority, or exactly half with the lowest rank,
 * or all that are left if the others are proven to have ended. Ranks are never renumbered.
 *
 * Slots. The world has a rank for each slot: KVCL_SLOTS (the same on all ranks, at least the size of the job, which is
 * the default). Those beyond the job's size have no process. They are not active, and operations with them end at once
 * with KVCL_ERR_RANK_FAILED. So do collectives over the world, on all ranks, while it has such a rank.
 */
#ifndef KVCL_VIEW_H
#define KVCL_VIEW_H

#include <kvcl/kvcl_comm.h>

KVCL_BEGIN_DECLS

enum { KVCL_EVENT_RANKS = 1024 }; /* ranks of a job with views, at most */

typedef enum kvcl_event_type {
    KVCL_EVENT_SUSPECT     = 1, /* ranks: silent for KVCL_SUSPECT */
    KVCL_EVENT_ALIVE_AGAIN = 2, /* ranks: suspected, and heard again */
    KVCL_EVENT_FAILED      = 3, /* ranks: proven to have ended, or excluded by the VIEW that comes next for their
                                 * silence; once each */
    KVCL_EVENT_VIEW        = 4, /* ranks: the members of a new view; leavings were told before. The first one: once
                                 * the ranks have met, and a quorum answers */
    KVCL_EVENT_EXCLUDED    = 5, /* this rank was excluded, or has left: its operations end with KVCL_ERR_STALE */
    KVCL_EVENT_DRAINED     = 6, /* ranks: live, and go by the VIEW that comes next: they were deactivated, or leave. At
                                 * the rank that leaves itself: what only it had, others have */
    KVCL_EVENT_JOINED      = 8, /* ranks: processes have joined in these slots by the VIEW that comes next */
    KVCL_EVENT_WAITING     = 9  /* ranks: processes in these slots have met all members, and are members once
                                 * kvcl_comm_activate() names them (KVCL_JOIN_WAITS) */
} kvcl_event_type_t;

typedef struct kvcl_event {
    size_t   size;    /* sizeof(kvcl_event_t) */
    int      type;    /* kvcl_event_type_t; later versions have more */
    int      n_ranks;
    uint64_t view;    /* number of this rank's view */
    uint64_t view_id; /* its hash: two different views never have the same */
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t lost;    /* events dropped from the full queue since the previous one was taken */
    uint64_t ranks[KVCL_EVENT_RANKS / 64]; /* of the world: bit r % 64 of word r / 64 */
} kvcl_event_t;
#define KVCL_EVENT_INIT {sizeof(kvcl_event_t), 0, 0, 0, 0, 0, 0, {0}}

/** Is this rank of the world among the event's ranks? */
static inline int kvcl_event_has(const kvcl_event_t *event, int rank)
{
    return (rank >= 0) && (rank < KVCL_EVENT_RANKS) && (((event->ranks[rank / 64] >> (rank % 64)) & 1) != 0);
}

/** @a event is valid during the call. */
typedef void (*kvcl_event_cb_t)(void *arg, const kvcl_event_t *event);

/**
 * From now on cb is called with each event: in order, one at a time, from a thread that progresses the context (the
 * progress thread, unless another thread waits), with no lock held. It is a completion callback: it may post, and must
 * not block. Events that wait in the queue are the first. cb NULL: events wait in the queue from now on. When the call
 * returns, an earlier callback may still be running.
 * @return KVCL_OK, KVCL_ERR_UNSUPPORTED (KVCL_VIEWS is not set), KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_on_event(kvcl_context_h ctx, kvcl_event_cb_t cb, void *arg) KVCL_MUST_CHECK;

/**
 * Take the oldest event from the queue. It holds 1,024; then the oldest is dropped for each new one, and the next event
 * that is taken tells how many. Does not block. Any thread.
 * @return KVCL_OK; KVCL_INPROGRESS (there is none); KVCL_ERR_UNSUPPORTED (KVCL_VIEWS is not set);
 *         KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_event_next(kvcl_context_h ctx, kvcl_event_t *event) KVCL_MUST_CHECK;

/**
 * A descriptor for poll(2) that is readable while the queue has an event. Owned by the context; always the same one.
 * Never read from it.
 * @return KVCL_OK, KVCL_ERR_UNSUPPORTED (KVCL_VIEWS is not set), KVCL_ERR_IO, KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_event_fd(kvcl_context_h ctx, int *fd_p) KVCL_MUST_CHECK;

/**
 * Which ranks of comm are members: local, no message. This rank's own knowledge: another rank may be a view ahead or
 * behind.
 * @param [out] active  n bytes, 1 for a member, 0 for others; n is kvcl_comm_size(comm). Without KVCL_VIEWS all are 1.
 * @param [out] view_p  number of the view that this is; NULL: not wanted.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (another n, NULL, or a communicator of another job).
 */
KVCL_API kvcl_status_t kvcl_comm_active(kvcl_comm_h comm, unsigned char *active, int n, uint64_t *view_p)
    KVCL_MUST_CHECK;

typedef enum kvcl_phase {
    KVCL_PHASE_SERVING = 0, /* silence counts after KVCL_DEAD */
    KVCL_PHASE_WARM_UP = 1  /* this rank compiles, loads or captures: it may be silent for KVCL_WARM */
} kvcl_phase_t;

/**
 * Tell the others which phase this rank is in. KVCL's own thread beats while the program is busy; this is for what
 * stops the whole process, such as a debugger, a container that is frozen, or a host that swaps. It never delays a
 * proof.
 * @return KVCL_OK (also without KVCL_VIEWS), KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_phase(kvcl_context_h ctx, kvcl_phase_t phase) KVCL_MUST_CHECK;

/**
 * This rank leaves the job: it gets KVCL_EVENT_DRAINED, and asks to go. The others get KVCL_EVENT_DRAINED for it, and a
 * view without it, no failure. That takes about KVCL_DEAD, in which its lease ends. When the call returns KVCL_OK, this
 * rank is excluded: its operations end with KVCL_ERR_STALE, and only kvcl_finalize() remains. If all ranks leave, the
 * last view stays, and each call returns when it knows that. Without this call kvcl_finalize() is a failure to the
 * others, known at once. Blocks; not from a callback; any other thread.
 *
 * Before it asks to go, it hands over its stores: its shards of the directory move to other ranks, which gets do not
 * notice, and blocks of its pool that no other rank has move as by kvcl_store_drain(). It then waits, for 10 s at most,
 * until blocks that are wanted in several copies have these without it. If something cannot be moved in the time given,
 * it stays: the error sentence says what. Other ranks evict no blocks to make room for those of this rank. Blocks of a
 * cache that the program itself publishes are not moved. If all other ranks of a store leave as well, nothing is.
 * @param timeout_ns  nanoseconds; KVCL_WAIT_DEFAULT: KVCL_TIMEOUT. KVCL_WAIT_FOREVER is refused.
 * @return KVCL_OK; KVCL_ERR_UNSUPPORTED (KVCL_VIEWS is not set); KVCL_ERR_STALE (it was excluded);
 *         KVCL_ERR_RANK_FAILED (this process has joined, and waits to become a member: kvcl_finalize() ends that);
 *         KVCL_ERR_INVALID_PARAM. An error of a hand-over, such as KVCL_ERR_TIMED_OUT or KVCL_ERR_NO_SPACE (the
 *         sentence says how many blocks are left at least, and their bytes): it stays a member, without the event. Its
 *         stores have shards and take blocks as before; that takes up to 3 s more while another rank is silent.
 *         KVCL_ERR_TIMED_OUT and KVCL_ERR_NO_QUORUM after the event: it has asked, and goes later.
 */
KVCL_API kvcl_status_t kvcl_leave(kvcl_context_h ctx, uint64_t timeout_ns) KVCL_MUST_CHECK;

/* Numbers of views at one rank. Counts are since kvcl_init; times in nanoseconds. */
typedef struct kvcl_view_stats {
    size_t   size;             /* sizeof(kvcl_view_stats_t): set it before the call */
    uint64_t view;             /* the number of this rank's view; 0: the ranks have not met yet */
    uint64_t view_id;          /* its hash */
    int      members;          /* ranks in the view */
    int      slots;            /* ranks of the world */
    int      suspected;        /* members that are suspected now */
    int      lease;            /* 1: a quorum answers this rank, so it may own; 0: not */
    uint64_t changes;          /* new views since the first */
    uint64_t suspicions;       /* each time that a rank was suspected */
    uint64_t false_suspicions; /* of them: it was heard again */
    uint64_t fenced;           /* processes that this rank has killed (KVCL_FENCE) */
    uint64_t change_ns;        /* from the failure, as this rank knew of it, to the view: the sum of all changes */
    uint64_t change_max_ns;    /* the longest of them */
} kvcl_view_stats_t;
#define KVCL_VIEW_STATS_INIT {sizeof(kvcl_view_stats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * Any thread; does not block.
 * @param [in,out] stats  its size is read; the rest is filled.
 * @return KVCL_OK; KVCL_ERR_UNSUPPORTED (KVCL_VIEWS is not set); KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_view_stats(kvcl_context_h ctx, kvcl_view_stats_t *stats) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
