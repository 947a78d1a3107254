/*
 * The members of the job, while KVCL_VIEWS is on: the machine of src/view drives real ranks.
 *
 * A thread of the context (member_thread.c) sends beats, ticks the machine, and takes the kernel's word that processes
 * of this host have ended (ended.h). It runs no callback of the user and copies no bytes of theirs; where the progress
 * thread is in a callback, it takes the messages. Any message of a rank counts as heard. Messages of the machine are
 * those of src/view/view_wire.h, in VIEW.
 *
 * Ranks meet first: the machine starts when each rank has answered, or has ended, or KVCL_BOOT_TIMEOUT is over. So the
 * time until a rank is connected counts as nobody's silence.
 *
 * What the machine says takes effect after it has returned (kvcl_member_settle): a peer that failed ends its requests;
 * one that was excluded alive is sent the view first, so that it reads of it when it goes on; whoever reads of its own
 * exclusion ends all of its operations with KVCL_ERR_STALE. Locks: the engine lock guards all of it.
 */
#ifndef KVCL_MEMBER_MEMBER_H
#define KVCL_MEMBER_MEMBER_H

#include "base/hostport.h"
#include "core/context.h"
#include "life/life.h"
#include "member/ask.h"
#include "member/ended.h"
#include "member/lease.h"
#include "view/revokes.h"
#include "view/view_wire.h"
#include <kvcl/kvcl_view.h>

#include <pthread.h>
#include <string.h>

enum { KVCL_MEMBER_EVENTS = 1024 }; /* that wait for the user */
/* Answers, to one question a beat, of ranks from which no message arrives. After HEAL_ANSWERS this rank gets another
 * queue, if it is then found deaf at each tick of a beat's time; after ANSWERS it leaves. */
enum { KVCL_MEMBER_HEAL_ANSWERS = 2, KVCL_MEMBER_ANSWERS = 10 };
#define KVCL_MEMBER_HOLD_NS (10 * UINT64_C(1000000000)) /* for which an excluded rank may be stopped, and be told */

/* VIEW. A message of the machine follows, or none: the sender is here. A header may end before lease_ns. */
typedef struct kvcl_msg_view {
    kvcl_msg_t msg;      /* op: the sender's slot */
    uint64_t   lease_ns; /* the sender's */
} kvcl_msg_view_t;
_Static_assert(sizeof(kvcl_msg_view_t) == 40, "wire format");

typedef struct kvcl_member_rank {
    kvcl_peer_t        *peer;     /* NULL: not known yet, or this rank */
    uint64_t           incarnation;
    kvcl_peer_waiter_t waiter;
    uint64_t           messages;  /* peer->messages when it was last looked at */
    bool               met;       /* it takes part */
    bool               ended;     /* its process has ended, or it has left */
    bool               suspected; /* counted in peer->suspicions */
    bool               near;      /* its end would be seen at its unix socket */
    uint8_t            uuid[16];  /* of one that is near; the thread's */
    unsigned           page_asks; /* left, for its page (life/life.h); the thread's */
    bool               killed;    /* KVCL_FENCE */
    uint64_t           view;      /* the number of the last one that it has named */
    uint64_t           watched;   /* the incarnation whose end is watched (ended.h); the thread's */
    kvcl_peer_t        *held;     /* excluded: its endpoint stays open until held_ns; NULL: none does */
    uint64_t           held_ns;
    kvcl_peer_t        *next;     /* a process that joins in this slot (joins.h); NULL: none */
    uint64_t           next_incarnation, next_ns; /* next_ns: when it has asked last */
    bool               next_ready;  /* all members have met it */
    uint64_t           activated;   /* the incarnation that kvcl_comm_activate has named; 0: none */
    unsigned           n_named;     /* how often it has named one */
    uint64_t           reserved_ns; /* until when the slot is given to no other process */
} kvcl_member_rank_t;

typedef struct kvcl_member_room {
    kvcl_context_h     ctx;
    kvcl_views_times_t times;
    kvcl_ended_t       *ended;
    pthread_t          thread;
    bool               has_thread;
    _Atomic bool       stop;
    int                wake_fd;
    uint32_t           me, n;  /* n: slots */
    uint32_t           n_first; /* ranks of the first view */
    kvcl_member_rank_t *ranks;
    uint64_t           since_ns; /* when the ranks began to meet */
    uint64_t           beat_ns;  /* the last beat before the machine started */
    bool               started;  /* views is valid */
    bool               begun;    /* a quorum has answered: the user was told of the first view */
    bool               busy;     /* inside the machine, or in what follows */
    bool               warm;     /* this rank warms up */
    bool               fenced;   /* this rank was excluded, and its operations have ended */
    bool               excluded;
    bool               left;     /* it has asked to go */
    uint8_t            host[16]; /* this one; of the thread, as the next four */
    kvcl_ask_t         ask;
    kvcl_life_page_t   page;
    kvcl_life_t        *life;    /* NULL: the kernel gives no early signs */
    uint64_t           paged_ns; /* when pages were asked for last */
    uint64_t           clean_ns[2]; /* when to remove what killed processes have left; 0: never */
    char               queue_dir[256]; /* where that is */
    uint64_t           asked_ns; /* when it last asked whether others live, since it hears nobody; 0: it does hear */
    unsigned           n_answers; /* to different questions, since then */
    unsigned           n_before;  /* of them, before it had heard nobody for KVCL_DEAD */
    uint64_t           deaf_ns;   /* since when it was found deaf at each tick; 0: it was not */
    bool               unhealed;  /* it got no other queue */
    uint64_t           wanted_ns; /* since when another view is wanted; 0: none is */
    kvcl_view_stats_t  stats;    /* what is counted of them */
    kvcl_views_t       views;
    kvcl_rankset_t     gone;     /* have ended; the machine does not know yet */
    kvcl_rankset_t     failed;   /* the machine says so; their peers have not failed yet */
    uint32_t           parting;  /* the slot whose process is told of its exclusion; KVCL_SLOT_NONE */
    kvcl_rankset_t     joined;   /* by a view of which the communicators do not know yet */
    kvcl_view_t        heard_view; /* of the message that is read */
    uint8_t            bytes[KVCL_VIEW_MSG_MAX]; /* of the message that is sent */
    uint64_t           told_view;  /* the last view that recover.c was told of */
    uint64_t           again_ns;   /* when agreements were said again */
    unsigned           n_told;
    uint32_t           told[KVCL_SLOTS_MAX]; /* slots that have failed, in the order in which this rank learnt it */
    kvcl_list_t        recovers;   /* recover.h */
    kvcl_revokes_t     revokes;    /* revoke.h */
    /* joins.h */
    struct kvcl_sock_port *port; /* NULL: nobody can join through this rank */
    char               join_at[KVCL_HOSTPORT_MAX];
    uint64_t           joins_refused;
    _Atomic unsigned   n_calls;  /* leave.c: that wait for what a tick may bring */
    bool               leased;   /* lease.c */
    uint64_t           who_ns;
    uint32_t           asked_last;
    /* joiner.c: this process joins */
    bool               joining, ready; /* ready: all members have welcomed it */
    bool               waits;    /* the members say that kvcl_comm_activate must name it */
    bool               waiting;  /* it does: kvcl_init has returned, or is about to */
    kvcl_status_t      refused;
    uint64_t           ask_ns, members_view;
    kvcl_rankset_t     members, welcome; /* who they are, as they say; who has welcomed it */
    /* member_events.c */
    kvcl_event_cb_t    cb;
    void               *cb_arg;
    bool               delivering;
    int                event_fd; /* -1: nobody asked for it */
    uint64_t           lost;     /* events, since the last one that was taken */
    unsigned           first_event, n_events;
    kvcl_event_t       events[KVCL_MEMBER_EVENTS];
} kvcl_member_room_t;

/* NULL: views are off. */
static inline kvcl_member_room_t *kvcl_member_room(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_MEMBER];
}

/* Views name a process by the first bytes of its uuid. */
static inline uint64_t kvcl_member_incarnation(const uint8_t uuid[16])
{
    uint64_t incarnation;

    memcpy(&incarnation, uuid, sizeof(incarnation));
    return (incarnation != 0) ? incarnation : 1;
}

/* joins.c: lock held. The slot's process is this peer; a session with it begins. */
void kvcl_member_know(kvcl_member_room_t *room, uint32_t slot, kvcl_peer_t *peer);

/* member_thread.c: no lock held. */
kvcl_status_t kvcl_member_thread_start(kvcl_member_room_t *room) KVCL_MUST_CHECK;
void          kvcl_member_thread_stop(kvcl_member_room_t *room);

/* member_room.c: lock held. */
void kvcl_member_start_machine(kvcl_member_room_t *room, uint64_t now_ns);
/* What the machine has said takes effect. Nothing if it is inside already. */
void kvcl_member_settle(kvcl_member_room_t *room);

/* lease.c: lock held. Was the lease lost, or has it come back, since the last call? */
bool kvcl_member_lease_changed(kvcl_member_room_t *room, uint64_t now_ns);
/* lease.c: lock held. The lease of the process of a slot, by a VIEW of this peer. */
void kvcl_member_take_lease(kvcl_member_room_t *room, uint32_t slot, const kvcl_peer_t *peer, const kvcl_msg_t *msg,
                            size_t hdr_len);

/* leave.c: lock held, but for the check. Have the ranks met? Why a new view has not come in time. */
struct kvcl_view_change_result;
bool          kvcl_member_has_begun(void *room);
kvcl_status_t kvcl_member_late(const kvcl_member_room_t *room, const char *call) KVCL_MUST_CHECK;
kvcl_status_t kvcl_member_check_change(kvcl_comm_h comm, const char *call,
                                       const struct kvcl_view_change_result *result,
                                       kvcl_member_room_t **room_p) KVCL_MUST_CHECK;
void          kvcl_member_drop(struct kvcl_view_change_result *result, int rank);
/* leave.c: no lock held. As kvcl_engine_wait(), for what comes without an event, with a message or a tick. */
bool kvcl_member_wait(kvcl_member_room_t *room, bool (*done)(void *arg), void *arg, uint64_t deadline_ns);

/* recover.c: lock held. A new view; what may have been lost is said again; comm NULL: all. */
void kvcl_member_recover_views(kvcl_member_room_t *room);
void kvcl_member_recover_again(kvcl_member_room_t *room);
/* Another process has this slot: it has not failed. */
void kvcl_member_recover_joined(kvcl_member_room_t *room, uint32_t slot);
void kvcl_member_recover_free(kvcl_member_room_t *room, const struct kvcl_comm *comm);

/* clean.c: no lock held. While the context is created: where. A process has ended. With each tick. */
void kvcl_member_clean_where(kvcl_member_room_t *room);
void kvcl_member_clean_later(kvcl_member_room_t *room, uint64_t now_ns);
void kvcl_member_clean(kvcl_member_room_t *room, uint64_t now_ns);

/* silent.c: lock held, with each tick. */
void kvcl_member_heed_silence(kvcl_member_room_t *room, uint64_t now_ns);
void kvcl_member_heal(kvcl_member_room_t *room, uint64_t now_ns); /* outside the machine */

/* view_stats.c: lock held. An event of the machine. */
void kvcl_member_count(kvcl_member_room_t *room, kvcl_views_event_t event, const kvcl_rankset_t *ranks);

/* member_events.c: lock held. */
void kvcl_member_event(kvcl_member_room_t *room, int type, const kvcl_rankset_t *ranks);
void kvcl_member_deliver(kvcl_member_room_t *room);

#endif
