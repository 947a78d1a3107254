/*
 * Who is alive, who is a member, who may own: the machine of one rank. Time comes in, messages come in and go out; no
 * clock, no I/O, no allocation, one thread at a time.
 *
 * Beats every 100 ms; the detector (detect.h) hears all messages. A member that is silent for 1 s is to leave the view,
 * and one that is proven to have ended at once.
 *
 * Views: each is decided by its predecessor's members with ballots as in Paxos (L. Lamport, "Paxos Made Simple", 2001):
 * PREPARE, PROMISE, ACCEPT, ACCEPTED, COMMIT. The lowest member that is not missing leads; the lowest of all needs no
 * PREPARE for its first ballot. One that hears no quorum begins none. Where two lead, since they do not hear each
 * other, members that hear both let the higher one wait. View n + 1 is committed when
 *   (1) a quorum of view n, and every member that stays and is neither proven dead nor excused, have accepted it; or
 *   (2) everyone else was proven dead before the ballot began, and each of the others held a lease when it promised,
 *       and all of them have accepted it. So one of two, or one of eight, survives.
 * A rank accepts that another one goes or is excused, which is not proven dead, 1 s after it last echoed that rank's
 * beats; later, if that rank's lease is longer than its own, by as much. Excused are silent ranks, where a change of
 * another leader, which may have been committed, keeps them.
 *
 * Lease: a rank owns (answers removes and upserts, is home to shards) only while a quorum has echoed beats that it sent
 * within the last 800 ms of its own clock. 0.8 s is less than 1 s: an excluded rank has lost its lease before the view
 * without it is committed. Who has accepted its own exclusion has no lease. Between ACCEPT and COMMIT a rank owns only
 * what it owns in both views, and while its lease is one in both: ranks that join make quorums of two consecutive views
 * that have no rank in common.
 */
#ifndef KVCL_VIEW_VIEWS_H
#define KVCL_VIEW_VIEWS_H

#include "view/detect.h"
#include "view/view.h"

typedef struct kvcl_views_times {
    kvcl_detect_times_t detect;
    uint64_t            lease_ns;  /* more than two beats; less than dead_ns, by as much as clocks may drift */
    uint64_t            gather_ns; /* deaths within this time go in one view */
    uint64_t            retry_ns;  /* until a message of a ballot is sent again */
} kvcl_views_times_t;

#define KVCL_VIEWS_TIMES                                                                                              \
    {{100000000, 300000000, 1000000000, 60000000000}, 800000000, 20000000, 200000000}

typedef enum {
    KVCL_VIEW_BEAT = 1,
    KVCL_VIEW_JOIN,     /* change: who wants to join; sent to the leader */
    KVCL_VIEW_PREPARE,  /* ballot */
    KVCL_VIEW_PROMISE,  /* ballot; change: what the sender has accepted; lease */
    KVCL_VIEW_ACCEPT,   /* ballot, change */
    KVCL_VIEW_ACCEPTED, /* ballot */
    KVCL_VIEW_REFUSED,  /* ballot: that of the sender's promise */
    KVCL_VIEW_COMMIT    /* view */
} kvcl_view_msg_type_t;

typedef struct kvcl_view_msg {
    kvcl_view_msg_type_t type;
    uint32_t             from;
    uint64_t             incarnation; /* of the sender */
    uint64_t             number, id;  /* the sender's view */
    uint64_t             stamp;       /* the sender's clock */
    uint64_t             echo;        /* the newest stamp of the receiver that the sender has; 0: none */
    kvcl_rankset_t       dead;        /* proven, but for those that tell of it themselves */
    kvcl_rankset_t       leaving;
    uint32_t             phase;       /* the sender's: rises with each change; odd: it warms up */
    uint64_t             accepted;    /* the ballot whose change the sender has accepted; 0: none */
    uint64_t             ballot;
    bool                 lease;
    kvcl_view_change_t   change;
    kvcl_rankset_t       proposers;   /* PROMISE, ACCEPT: who has proposed the change since it was first chosen */
    kvcl_rankset_t       excused;     /* ACCEPT: members that stay, and are silent: they need not accept */
    const kvcl_view_t   *view;        /* COMMIT: valid during the call */
} kvcl_view_msg_t;

typedef enum {
    KVCL_VIEWS_SUSPECT,     /* ranks: silent */
    KVCL_VIEWS_ALIVE_AGAIN, /* ranks: suspected, and heard again */
    KVCL_VIEWS_FAILED,      /* ranks: proven dead, or excluded by the view that comes next; once per incarnation */
    KVCL_VIEWS_VIEW,        /* a new view; ranks: those who joined */
    KVCL_VIEWS_EXCLUDED,    /* this process is no longer a member, and never will be under this incarnation */
    KVCL_VIEWS_LEFT         /* ranks: were asked to go, live, and go by the view that comes next */
} kvcl_views_event_t;

typedef struct kvcl_views_ops {
    void (*send)(void *arg, uint32_t to, const kvcl_view_msg_t *msg);
    void (*event)(void *arg, kvcl_views_event_t event, const kvcl_rankset_t *ranks);
} kvcl_views_ops_t;

typedef enum { KVCL_VIEWS_JOINING, KVCL_VIEWS_MEMBER, KVCL_VIEWS_OUT } kvcl_views_state_t;

typedef struct kvcl_views_peer {
    uint64_t stamp;      /* its newest */
    uint64_t stamped_ns; /* when that came, on this rank's clock */
    uint64_t echoed_ns;  /* stamped_ns of the newest stamp that was echoed to it */
    uint64_t returned;   /* this rank's newest stamp that it has echoed */
    uint64_t lease_ns;   /* its lease, as it says; 0: it has not said so */
    uint32_t phase;      /* its newest: messages overtake each other */
} kvcl_views_peer_t;

/* A ballot that this rank leads. */
typedef struct kvcl_views_ballot {
    uint64_t           number; /* 0: none */
    bool               own;      /* the change is this rank's choice, not one that others may have committed */
    bool               proposed; /* the change is chosen: the ranks are asked to accept it */
    bool               sent;     /* this rank has accepted it, and has asked the others */
    bool               by_proof; /* rule (2) */
    bool               refused;
    uint64_t           began_ns, sent_ns;
    uint64_t           quorum_ns; /* since when the promises are those of a quorum; 0: they are not */
    kvcl_rankset_t     dead;     /* proven, when it began */
    kvcl_rankset_t     promised, leases, accepted;
    kvcl_rankset_t     empty;    /* of those promised: they have accepted nothing */
    kvcl_rankset_t     knows;    /* have accepted this change in an earlier ballot */
    uint64_t           best;     /* the highest ballot among the promises; 0: nothing was accepted */
    kvcl_view_change_t best_change;
    kvcl_rankset_t     best_proposers;
    kvcl_view_change_t change;
    kvcl_rankset_t     proposers, excused;
} kvcl_views_ballot_t;

typedef struct kvcl_views {
    uint32_t                me;
    uint64_t                incarnation;
    kvcl_views_state_t      state;
    kvcl_views_times_t      times;
    const kvcl_views_ops_t *ops;
    void                   *arg;
    kvcl_view_t             view;
    kvcl_views_peer_t       peers[KVCL_SLOTS_MAX];
    kvcl_detect_t           detect;
    uint32_t                phase;   /* odd: this rank warms up */
    kvcl_rankset_t          leaving; /* asked to go */
    bool                    goes;    /* this rank itself has asked to go */
    kvcl_rankset_t          hushed;  /* no longer echoed */
    kvcl_rankset_t          failed;  /* told to the user */
    kvcl_rankset_t          parted;  /* have said so themselves, to those linked to them */
    uint64_t                beat_ns;
    uint32_t                n_joins;
    kvcl_view_join_t        joins[KVCL_VIEW_JOINS]; /* asked for, by the leader */
    uint64_t                wanted_ns;              /* since when a change is wanted; 0: none is */
    bool                    unfinished;             /* somebody has accepted a change */
    uint64_t                round;                  /* the highest of any ballot */
    /* What this rank has promised and accepted in this view. */
    uint64_t                promised, accepted, asked; /* ballots; asked: to be accepted once the gone have no lease */
    uint64_t                promised_ns;               /* when */
    kvcl_view_change_t      accepted_change, asked_change;
    kvcl_rankset_t          accepted_proposers, asked_proposers;
    kvcl_rankset_t          accepted_excused, asked_excused;
    kvcl_views_ballot_t     ballot;
} kvcl_views_t;

/** What is wrong with these times, as a sentence; NULL: nothing. */
const char *kvcl_views_times_wrong(const kvcl_views_times_t *times);

/** @a view: the first of the job; NULL: this process joins. All pointers but @a view are kept. */
void kvcl_views_init(kvcl_views_t *views, uint32_t me, uint64_t incarnation, const kvcl_view_t *view,
                     const kvcl_views_times_t *times, const kvcl_views_ops_t *ops, void *arg, uint64_t now_ns);

/** Call it at least every gather_ns. Sends beats where the last ones were sent beat_ns ago. */
void kvcl_views_tick(kvcl_views_t *views, uint64_t now_ns);

/** Sends beats if this clock has passed a multiple of beat_ns since the last ones. Called before each tick, it makes
 * ranks that share a clock beat at the same times. */
void kvcl_views_beat_in_step(kvcl_views_t *views, uint64_t now_ns);

/**
 * A message of an authenticated peer. One that does not fit is dropped. The view of a COMMIT is taken as it is: whoever
 * decodes the message has checked that its sender is a member and that the id fits.
 */
void kvcl_views_take(kvcl_views_t *views, const kvcl_view_msg_t *msg, uint64_t now_ns);

/** How long this member's lease is, as it says: to be called before its message is taken. Only the first value of a
 * process counts. @return whether this is that one. */
bool kvcl_views_lease_of(kvcl_views_t *views, uint32_t slot, uint64_t lease_ns);

/** Some other message of this member came. */
void kvcl_views_heard(kvcl_views_t *views, uint32_t slot, uint64_t now_ns);

/** Is a change under way or wanted, in which this rank takes part? Then ticks are due more often. */
bool kvcl_views_is_busy(const kvcl_views_t *views);

/** Sends this rank's view, as to a rank that it excludes. */
void kvcl_views_send_view(kvcl_views_t *views, uint32_t to, uint64_t now_ns);

/** The kernel says that this process has ended. A process that is no member is forgotten: call this again after a VIEW
 * in which it has joined. parted: it says so itself, to each member that it has a link to, after all else that it
 * has sent it. Others are not told of that: they may still have something of it to read. A member whose link to it is
 * being made again learns of its end by the kernel's word, or by its silence, after dead_ns. */
void kvcl_views_proven(kvcl_views_t *views, uint32_t slot, uint64_t incarnation, bool parted, uint64_t now_ns);

/** A process asks to join in this slot, that is free or whose present process is to go. */
void kvcl_views_join(kvcl_views_t *views, uint32_t slot, uint64_t incarnation, uint64_t now_ns);

/** That process has given up. A view may have it all the same, if it is proposed already. */
void kvcl_views_unjoin(kvcl_views_t *views, uint32_t slot, uint64_t incarnation);

/** This rank warms up (compiles, loads, captures) from now on, or does so no longer: others bear with its silence for
 * warm_ns. Its lease ends as ever. */
void kvcl_views_warm(kvcl_views_t *views, bool warm, uint64_t now_ns);

/** This member is to go: itself, or another one. Where all are to go, they stay in their view if the rank that leads
 * has asked that itself; if it has not, it stays alone. */
void kvcl_views_leave(kvcl_views_t *views, uint32_t slot, uint64_t now_ns);

/** This rank is no member any more, by its own decision; the others may not know. */
void kvcl_views_give_up(kvcl_views_t *views);

/** May this rank own now? */
bool kvcl_views_has_lease(const kvcl_views_t *views, uint64_t now_ns);

/** The change that this rank has accepted and that may be committed; NULL: none. It owns only what it owns in both. */
const kvcl_view_change_t *kvcl_views_pending(const kvcl_views_t *views);

/** Does a quorum answer, as far as this rank can tell? */
bool kvcl_views_has_quorum(const kvcl_views_t *views);

#endif
