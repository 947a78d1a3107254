/*
 * Agreement within a group of ranks, on top of views: the machine of one rank for one communicator. Messages come in
 * and go out; no clock, no I/O, no allocation.
 *
 * Rounds are numbered from 1, and each rank gives to them in order. In each view the lowest member of the group leads:
 * it gathers what all the others give (GIVE), chooses the value, has all accept it (ACCEPT, ACCEPTED), and then tells
 * it (DECIDED). When the view changes, a round that is not decided begins again in the new one, where whoever has
 * accepted a value gives that. So a value that anybody was told was accepted by all members of a view, and every later
 * leader hears of it: all that decide, also those that die afterwards, decide the same. (The shape of ERA, T. Herault
 * et al., "Practical Scalable Consensus for Pseudo-Synchronous Distributed Systems", SC'15, with a star for a tree, and
 * views in place of suspicions.)
 *
 * Calls of other kinds. A call that gives stands at a place among the rank's other calls: so many since the last round.
 * A rank that is in another call from that place on has made a different one there. When it hears of the round, it
 * gives that call instead (ops->called), and once all have given, the value is that calls differ, and names two. Until
 * then nothing is lost: its own call of the round takes the place of what it gave, and a new view takes that back. So a
 * rank that calls because another one has died spoils nothing: the dead gave nothing to a round that nobody had called
 * before, and the view without it comes before all have given.
 *
 * A rank that has joined takes part from the next round on: the highest that any member names (NEXT). Earlier ones that
 * are not decided everywhere have been decided by somebody, who tells the others.
 *
 * Nobody begins round n + 2 before all have decided round n, so two rounds are kept; who has decided answers a late
 * question with the value.
 */
#ifndef KVCL_VIEW_AGREE_H
#define KVCL_VIEW_AGREE_H

#include "view/rankset.h"

#include <stdbool.h>

typedef enum {
    KVCL_AGREE_GIVE = 1, /* value: what the sender gives; accepted: the view in which it has accepted that; 0: none */
    KVCL_AGREE_ASK,      /* the leader lacks what the receiver gives */
    KVCL_AGREE_ACCEPT,
    KVCL_AGREE_ACCEPTED,
    KVCL_AGREE_DECIDED,
    KVCL_AGREE_WHICH,    /* the sender has joined: which round is next? */
    KVCL_AGREE_NEXT      /* round: the one that the sender has given to, or the next if that is decided; 0: it does not
                          * know either */
} kvcl_agree_type_t;

enum { KVCL_AGREE_CALL_MIXED = 0 }; /* of a value: the ranks have made different calls; of a GIVE: not this one */

#define KVCL_AGREE_NOWHERE UINT64_MAX /* a place that its rank cannot tell */

/* A call, as its caller names it: the words mean nothing here. */
typedef struct kvcl_agree_name {
    uint64_t slot; /* the caller */
    uint64_t words[3];
} kvcl_agree_name_t;

typedef struct kvcl_agree_value {
    uint32_t       call;    /* the caller's number for what is agreed on */
    uint32_t       unlike;  /* 1: mixed, since some ranks gave other calls instead */
    uint64_t       flags;   /* the bits that all have given */
    kvcl_rankset_t acked;   /* the failures that all have acknowledged */
    kvcl_rankset_t members; /* decided: of the group, in the view in which the value was chosen */
    kvcl_agree_name_t names[2]; /* given: the call; mixed: two that differ, where they are known */
} kvcl_agree_value_t;

typedef struct kvcl_agree_msg {
    kvcl_agree_type_t  type;
    uint32_t           from;
    uint64_t           round, view, accepted;
    uint64_t           at;    /* GIVE, ASK: the place of the sender's call */
    kvcl_agree_value_t value; /* GIVE, ACCEPT, DECIDED */
} kvcl_agree_msg_t;

typedef struct kvcl_agree_ops {
    void (*send)(void *arg, uint32_t to, const kvcl_agree_msg_t *msg);
    void (*decided)(void *arg, uint64_t round, const kvcl_agree_value_t *value);
    /* Others give to the next round from this place. Is this rank in another call there, or behind it? NULL: it never
     * is. */
    bool (*called)(void *arg, uint64_t at, kvcl_agree_name_t *name_p);
} kvcl_agree_ops_t;

typedef struct kvcl_agree_round {
    uint64_t           number;   /* 0: none */
    bool               given;    /* by this rank */
    bool               instead;  /* it gave another call */
    bool               decided;
    uint64_t           at;       /* the place of the call */
    uint64_t           accepted; /* the view in which this rank has accepted the value; 0: none */
    kvcl_agree_value_t mine, value;
    /* The leader's, in its view. */
    kvcl_rankset_t     gave, agreed; /* who gave; who has accepted */
    kvcl_rankset_t     others;       /* of those that gave: another call */
    bool               summed;       /* sum is one */
    bool               proposed;
    uint64_t           best;         /* the latest view in which one of them has accepted a value */
    kvcl_agree_value_t sum, best_value;
    kvcl_agree_name_t  other;        /* one of the other calls */
} kvcl_agree_round_t;

typedef struct kvcl_agree {
    uint32_t                me;
    kvcl_rankset_t          group;  /* slots */
    kvcl_rankset_t          living; /* of them, in the view */
    uint64_t                view;
    uint64_t                round;  /* the last one that this rank has given to */
    kvcl_agree_round_t      rounds[2];
    bool                    lost;   /* this rank has joined, and does not know the round: */
    bool                    waits;  /* it gives `mine` to it */
    kvcl_rankset_t          named;  /* who has named one */
    uint64_t                next;   /* the highest */
    kvcl_agree_value_t      mine;
    bool                    mixed;  /* a rank has joined: what is not decided is told to all */
    const kvcl_agree_ops_t *ops;
    void                   *arg;
} kvcl_agree_t;

void kvcl_agree_init(kvcl_agree_t *agree, uint32_t me, const kvcl_rankset_t *group, const kvcl_agree_ops_t *ops,
                     void *arg);

/** Before anything else, of a rank that has joined a group that may have agreed before. */
void kvcl_agree_join(kvcl_agree_t *agree);

/** This rank's view, from now on. */
void kvcl_agree_view(kvcl_agree_t *agree, uint64_t number, const kvcl_rankset_t *members);

/** The round that this rank's next call gives to; 0: it is not known yet. */
uint64_t kvcl_agree_next(const kvcl_agree_t *agree);

/** This rank gives to the next round, whose number is returned; 0: it is not known yet (agree->round tells). The last
 * one has been decided. value: call, flags, acked and names[0]. at: the call's place. ops->decided may be called
 * meanwhile. */
uint64_t kvcl_agree_give(kvcl_agree_t *agree, const kvcl_agree_value_t *value, uint64_t at);

/** A message of a rank of the group; one that does not fit is dropped. */
void kvcl_agree_take(kvcl_agree_t *agree, const kvcl_agree_msg_t *msg);

/** Messages may have been lost: what is not decided is said again. */
void kvcl_agree_again(kvcl_agree_t *agree);

#endif
