/*
 * A view: who is a member of the job, by slot and incarnation, and a change that makes the next view of it. Pure.
 *
 * A slot is never renumbered. A process that comes back takes its old slot or a free one with another incarnation.
 * Views are numbered, and one that was committed is followed by the next number. The id is a hash of number, slots and
 * incarnations, so that two different views never compare equal.
 */
#ifndef KVCL_VIEW_VIEW_H
#define KVCL_VIEW_VIEW_H

#include "view/rankset.h"

enum { KVCL_VIEW_JOINS = 16 }; /* of one change */

typedef struct kvcl_view {
    uint64_t       number; /* from 1 on; 0: no view, as a process has that joins */
    uint64_t       id;
    kvcl_rankset_t members;
    uint64_t       incarnation[KVCL_SLOTS_MAX]; /* of members */
} kvcl_view_t;

typedef struct kvcl_view_join {
    uint32_t slot;
    uint64_t incarnation;
} kvcl_view_join_t;

/* The members of `gone` leave, then the others join: a slot in both gets another incarnation. */
typedef struct kvcl_view_change {
    kvcl_rankset_t   gone;
    uint32_t         n_joins;
    kvcl_view_join_t joins[KVCL_VIEW_JOINS];
} kvcl_view_change_t;

/** The first view of a job whose ranks 0 to n - 1 have these incarnations. */
void kvcl_view_first(kvcl_view_t *view, const uint64_t *incarnations, uint32_t n);

/** The view that follows. */
void kvcl_view_apply(const kvcl_view_t *view, const kvcl_view_change_t *change, kvcl_view_t *next);

/** The id that the view's content makes. */
uint64_t kvcl_view_hash(const kvcl_view_t *view);

bool kvcl_view_change_equal(const kvcl_view_change_t *a, const kvcl_view_change_t *b);

/** Does the view stay the same with it? */
bool kvcl_view_change_is_empty(const kvcl_view_change_t *change);

/** Is this process, and no other one in its slot, a member? */
bool kvcl_view_has(const kvcl_view_t *view, uint32_t slot, uint64_t incarnation);

/** Do these ranks decide for the members? A majority does, or exactly half with the lowest member. Any two such sets
 * have a rank in common. */
bool kvcl_view_is_quorum(const kvcl_rankset_t *members, const kvcl_rankset_t *ranks);

#endif
