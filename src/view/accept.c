/*
 * What this rank promises and accepts: the acceptor of the ballots.
 */
#include "config.h"
#include "view/views_impl.h"

#include <stddef.h>

/* Could this change be one of this view? Bytes of peers. */
bool kvcl_accept_fits(const kvcl_views_t *views, const kvcl_view_change_t *change)
{
    kvcl_rankset_t gone = change->gone, taken = views->view.members;
    uint32_t       i, slot;

    kvcl_rankset_drop(&gone, &views->view.members);
    if (!kvcl_rankset_is_empty(&gone) || (change->n_joins > KVCL_VIEW_JOINS)) {
        return false;
    }
    kvcl_rankset_drop(&taken, &change->gone);
    for (i = 0; i < change->n_joins; ++i) {
        slot = change->joins[i].slot;
        if ((slot >= KVCL_SLOTS_MAX) || (change->joins[i].incarnation == 0) || kvcl_rankset_has(&taken, slot)) {
            return false;
        }
        kvcl_rankset_add(&taken, slot);
    }
    return !kvcl_rankset_is_empty(&taken);
}

static void reply(kvcl_views_t *views, uint32_t to, kvcl_view_msg_t *msg, uint64_t now_ns)
{
    if (to != views->me) {
        kvcl_views_send(views, to, msg, now_ns);
    } else if (msg->type == KVCL_VIEW_PROMISE) {
        msg->from     = views->me;
        msg->accepted = views->accepted;
        kvcl_lead_promise(views, msg, now_ns);
    } else if (msg->type == KVCL_VIEW_ACCEPTED) {
        kvcl_lead_accepted(views, views->me, msg->ballot, now_ns);
    } else {
        kvcl_lead_refused(views, msg->ballot);
    }
}

static void refuse(kvcl_views_t *views, uint32_t to, uint64_t now_ns)
{
    kvcl_view_msg_t msg = {.type = KVCL_VIEW_REFUSED, .ballot = views->promised};

    reply(views, to, &msg, now_ns);
}

/* Ranks that do not hear each other lead at the same time. Each would end the other's ballot before the ranks that are
 * asked may accept it. So the lower one goes first: while this rank hears it, and as long as a ballot takes. What a
 * higher one sends meanwhile counts as lost; it sends that again. */
static bool lets_wait(const kvcl_views_t *views, uint64_t ballot, uint64_t now_ns)
{
    const uint32_t first = kvcl_ballot_leader(views->promised);
    kvcl_rankset_t there;

    if (views->promised == 0) {
        return false;
    }
    kvcl_detect_there(&views->detect, &there);
    kvcl_rankset_drop(&there, &views->leaving);
    return (first < kvcl_ballot_leader(ballot)) && (first != views->me) && kvcl_rankset_has(&there, first) &&
           ((views->asked != 0) || (now_ns - views->promised_ns < 2 * views->times.retry_ns));
}

void kvcl_accept_prepare(kvcl_views_t *views, const kvcl_view_msg_t *msg, uint64_t now_ns)
{
    kvcl_view_msg_t promise = {.type = KVCL_VIEW_PROMISE, .ballot = msg->ballot};

    if ((msg->ballot == 0) || (kvcl_ballot_leader(msg->ballot) != msg->from) ||
        lets_wait(views, msg->ballot, now_ns)) {
        return;
    }
    if (msg->ballot < views->promised) {
        refuse(views, msg->from, now_ns);
        return;
    }
    if (msg->ballot > views->promised) { /* a leader that hears no answer asks for ever: others wait for it once */
        views->asked       = 0;
        views->promised_ns = now_ns;
    }
    views->promised = msg->ballot;
    promise.lease   = kvcl_views_has_lease(views, now_ns);
    if (views->accepted != 0) {
        promise.change    = views->accepted_change;
        promise.proposers = views->accepted_proposers;
    }
    reply(views, msg->from, &promise, now_ns);
}

bool kvcl_views_lease_of(kvcl_views_t *views, uint32_t slot, uint64_t lease_ns)
{
    if ((views->state != KVCL_VIEWS_MEMBER) || !kvcl_rankset_has(&views->view.members, slot) || (lease_ns == 0) ||
        (views->peers[slot].lease_ns != 0)) {
        return false;
    }
    views->peers[slot].lease_ns = lease_ns;
    return true;
}

/* Has this rank not echoed beats of the other one for so long that it has no lease by them? dead_ns is long enough for
 * a lease as this rank's. */
static bool is_over(const kvcl_views_t *views, uint32_t slot, uint64_t now_ns)
{
    const kvcl_views_peer_t *peer  = &views->peers[slot];
    const uint64_t           since = now_ns - peer->echoed_ns, dead = views->times.detect.dead_ns;
    const uint64_t           own   = views->times.lease_ns, more = (peer->lease_ns > own) ? peer->lease_ns - own : 0;

    return (slot == views->me) || kvcl_rankset_has(&views->detect.proven, slot) ||
           ((since >= dead) && (since - dead >= more));
}

/* An ACCEPT of the ballot's leader. */
void kvcl_accept_ask(kvcl_views_t *views, const kvcl_view_msg_t *ask, uint64_t now_ns)
{
    kvcl_view_msg_t msg = {.type = KVCL_VIEW_ACCEPTED, .ballot = ask->ballot};

    if (lets_wait(views, ask->ballot, now_ns)) {
        return;
    }
    if (ask->ballot < views->promised) {
        refuse(views, kvcl_ballot_leader(ask->ballot), now_ns);
    } else if (ask->ballot == views->accepted) {
        reply(views, kvcl_ballot_leader(ask->ballot), &msg, now_ns);
    } else {
        views->promised        = ask->ballot;
        views->promised_ns     = now_ns;
        views->asked           = ask->ballot;
        views->asked_change    = ask->change;
        views->asked_proposers = ask->proposers;
        views->asked_excused   = ask->excused;
        kvcl_rankset_join(&views->hushed, &ask->change.gone);
        kvcl_rankset_join(&views->hushed, &ask->excused);
        kvcl_accept_tick(views, now_ns);
    }
}

/* Beats are echoed again to those that are not to go any more. */
static void unhush(kvcl_views_t *views)
{
    kvcl_rankset_t keep = views->leaving;

    if (views->asked != 0) {
        kvcl_rankset_join(&keep, &views->asked_change.gone);
        kvcl_rankset_join(&keep, &views->asked_excused);
    }
    if (views->accepted != 0) {
        kvcl_rankset_join(&keep, &views->accepted_change.gone);
        kvcl_rankset_join(&keep, &views->accepted_excused);
    }
    kvcl_rankset_keep(&views->hushed, &keep);
}

void kvcl_accept_tick(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_view_msg_t msg = {.type = KVCL_VIEW_ACCEPTED, .ballot = views->asked};
    kvcl_rankset_t  out = views->asked_change.gone;
    uint32_t        slot;

    unhush(views);
    if (views->asked == 0) {
        return;
    }
    kvcl_rankset_join(&out, &views->asked_excused);
    KVCL_RANKSET_EACH(&out, slot) {
        if (!is_over(views, slot, now_ns)) {
            return;
        }
    }
    views->accepted           = views->asked;
    views->accepted_change    = views->asked_change;
    views->accepted_proposers = views->asked_proposers;
    views->accepted_excused   = views->asked_excused;
    views->asked              = 0;
    reply(views, kvcl_ballot_leader(msg.ballot), &msg, now_ns);
}

const kvcl_view_change_t *kvcl_views_pending(const kvcl_views_t *views)
{
    return (views->accepted != 0) ? &views->accepted_change : NULL;
}

void kvcl_accept_leaving(kvcl_views_t *views, const kvcl_view_t *next, const kvcl_rankset_t *gone)
{
    kvcl_rankset_t stay = views->view.members;

    kvcl_rankset_drop(&stay, gone);
    kvcl_rankset_drop(&views->leaving, gone);
    kvcl_rankset_keep(&views->leaving, &next->members);
    if (!views->goes && (kvcl_rankset_count(&stay) == 1)) {
        kvcl_rankset_del(&views->leaving, views->me); /* none of those that have told it to go is left */
    }
}
