/*
 * The parts of the machine: views.c (beats, silence, lease), accept.c (the ballots of others), lead.c (its own).
 */
#ifndef KVCL_VIEW_VIEWS_IMPL_H
#define KVCL_VIEW_VIEWS_IMPL_H

#include "view/views.h"

/* views.c */
void kvcl_views_send(kvcl_views_t *views, uint32_t to, kvcl_view_msg_t *msg, uint64_t now_ns);
void kvcl_views_adopt(kvcl_views_t *views, const kvcl_view_t *next, uint64_t now_ns);

/* accept.c */
void kvcl_accept_prepare(kvcl_views_t *views, const kvcl_view_msg_t *msg, uint64_t now_ns);
void kvcl_accept_ask(kvcl_views_t *views, const kvcl_view_msg_t *msg, uint64_t now_ns);
void kvcl_accept_tick(kvcl_views_t *views, uint64_t now_ns);
/* The next view is about to be adopted: who is still to go in it. gone: the members that are not in it. */
void kvcl_accept_leaving(kvcl_views_t *views, const kvcl_view_t *next, const kvcl_rankset_t *gone);
bool kvcl_accept_fits(const kvcl_views_t *views, const kvcl_view_change_t *change);

/* lead.c */
#define KVCL_BALLOT_MAX (UINT64_MAX / 2) /* of a message: the next round's number must not wrap */
static inline uint32_t kvcl_ballot_leader(uint64_t ballot)
{
    return (uint32_t)((ballot - 1) % KVCL_SLOTS_MAX);
}
void kvcl_lead_tick(kvcl_views_t *views, uint64_t now_ns);
void kvcl_lead_promise(kvcl_views_t *views, const kvcl_view_msg_t *msg, uint64_t now_ns);
void kvcl_lead_accepted(kvcl_views_t *views, uint32_t from, uint64_t ballot, uint64_t now_ns);
void kvcl_lead_refused(kvcl_views_t *views, uint64_t ballot);

#endif
