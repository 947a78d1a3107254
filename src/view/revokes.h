/*
 * Revoked communicators, and their reliable flood: the machine of one rank. A rank that gets a revocation for the first
 * time sends it to all members, so that all living ones get it if one of them has, also if the rank that revoked dies
 * meanwhile. Messages come in and go out; no clock, no I/O, no allocation.
 *
 * A revocation carries the members of its communicator: a rank that has not made it yet sends it on all the same, and
 * finds it revoked when it makes it. KVCL_REVOKES_MAX are kept; then the oldest makes room for a new one. The ids of
 * the last KVCL_REVOKES_PAST of these stay: a rank that is told of one again, as after a lost link or when a process
 * joins, does not send it on. Otherwise ranks that have kept different ones would tell each other without end.
 */
#ifndef KVCL_VIEW_REVOKES_H
#define KVCL_VIEW_REVOKES_H

#include "view/rankset.h"

#include <stddef.h>

enum { KVCL_REVOKES_MAX = 256, KVCL_REVOKES_PAST = 8192 };

typedef struct kvcl_revokes_ops {
    /* Told to this slot, or it needs it no more: true. False: not now. */
    bool (*tell)(void *arg, uint32_t to, uint64_t comm, const kvcl_rankset_t *members);
} kvcl_revokes_ops_t;

typedef struct kvcl_revoked {
    kvcl_rankset_t members; /* slots */
    kvcl_rankset_t untold;
} kvcl_revoked_t;

typedef struct kvcl_revokes {
    uint32_t                 me;
    const kvcl_revokes_ops_t *ops;
    void                     *arg;
    unsigned                 n;                       /* n % KVCL_REVOKES_MAX is the next one's place */
    uint64_t                 comms[KVCL_REVOKES_MAX]; /* apart: they are looked through for each operation */
    kvcl_revoked_t           ring[KVCL_REVOKES_MAX];
    uint64_t                 n_past;                  /* n_past % KVCL_REVOKES_PAST is the next one's place */
    uint64_t                 past[KVCL_REVOKES_PAST]; /* forgotten ones; 0: none */
} kvcl_revokes_t;

void kvcl_revokes_init(kvcl_revokes_t *revokes, uint32_t me, const kvcl_revokes_ops_t *ops, void *arg);

/** This communicator was revoked, by this rank or as the slot @a from says. @return whether that is new; then all other
 * members are told. */
bool kvcl_revokes_take(kvcl_revokes_t *revokes, uint64_t comm, const kvcl_rankset_t *members, uint32_t from);

bool kvcl_revokes_has(const kvcl_revokes_t *revokes, uint64_t comm);

/** Sends again to the members that could not be reached, if possible. */
void kvcl_revokes_again(kvcl_revokes_t *revokes);

/** What this slot was told may be lost. */
void kvcl_revokes_lost(kvcl_revokes_t *revokes, uint32_t slot);

/** The payload of a message from slot @a from to @a me, of a job of @a n: a set of slots, as it lies. False: no rank
 * sends it. */
bool kvcl_revokes_unpack(const void *data, size_t len, uint32_t n, uint32_t from, uint32_t me, kvcl_rankset_t *members);

#endif
