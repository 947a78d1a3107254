/*
 * The ballots that this rank leads: from a wanted change to the commit.
 */
#include "config.h"
#include "view/views_impl.h"

#include <string.h>

static kvcl_rankset_t without(const kvcl_rankset_t *set, const kvcl_rankset_t *out)
{
    kvcl_rankset_t left = *set;

    kvcl_rankset_drop(&left, out);
    return left;
}

static bool covers(const kvcl_rankset_t *set, const kvcl_rankset_t *part)
{
    kvcl_rankset_t left = without(part, set);

    return kvcl_rankset_is_empty(&left);
}

/* Members that are to go, as far as this rank knows. If nobody else stays, a view keeps those who leave; but one that
 * leads, and that others have told to go, as two may have told each other, goes on without them. */
static void wanted(const kvcl_views_t *views, kvcl_rankset_t *gone)
{
    kvcl_rankset_t lost = views->detect.proven;

    kvcl_rankset_join(&lost, &views->detect.silent);
    kvcl_rankset_keep(&lost, &views->view.members);
    *gone = lost;
    kvcl_rankset_join(gone, &views->leaving);
    if (kvcl_rankset_equal(gone, &views->view.members)) {
        *gone = views->goes ? lost : *gone;
        kvcl_rankset_del(gone, views->me);
    }
}

/* The lowest member that is there; one that leaves leads only if there is no other. */
static uint32_t who_leads(const kvcl_views_t *views)
{
    kvcl_rankset_t there, stay;

    kvcl_detect_there(&views->detect, &there);
    stay = without(&there, &views->leaving);
    return kvcl_rankset_next(kvcl_rankset_is_empty(&stay) ? &there : &stay, 0);
}

void kvcl_views_unjoin(kvcl_views_t *views, uint32_t slot, uint64_t incarnation)
{
    uint32_t i, n = 0;

    for (i = 0; i < views->n_joins; ++i) {
        if ((views->joins[i].slot != slot) || (views->joins[i].incarnation != incarnation)) {
            views->joins[n++] = views->joins[i];
        }
    }
    views->n_joins = n;
}

void kvcl_views_join(kvcl_views_t *views, uint32_t slot, uint64_t incarnation, uint64_t now_ns)
{
    kvcl_view_msg_t msg = {.type = KVCL_VIEW_JOIN, .change = {.n_joins = 1, .joins = {{slot, incarnation}}}};
    uint32_t        leader = who_leads(views), i;

    if ((views->state != KVCL_VIEWS_MEMBER) || (slot >= KVCL_SLOTS_MAX) || (incarnation == 0) || (slot == views->me)) {
        return;
    }
    if (kvcl_view_has(&views->view, slot, incarnation)) { /* it has missed the commit */
        kvcl_views_send_view(views, slot, now_ns);
        return;
    }
    if (leader != views->me) {
        kvcl_views_send(views, leader, &msg, now_ns);
        return;
    }
    for (i = 0; (i < views->n_joins) && (views->joins[i].slot != slot); ++i) {
    }
    if (i < KVCL_VIEW_JOINS) {
        views->joins[i] = msg.change.joins[0]; /* the last one that asks for a slot takes it */
        views->n_joins += (i == views->n_joins) ? 1 : 0;
    }
}

/* ---- messages ---- */

static void send_prepare(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_views_ballot_t *b   = &views->ballot;
    kvcl_view_msg_t      msg = {.type = KVCL_VIEW_PREPARE, .from = views->me, .ballot = b->number};
    kvcl_rankset_t       to  = without(&views->view.members, &views->detect.proven);
    uint64_t             number = b->number;
    uint32_t             slot;

    b->sent_ns = now_ns;
    kvcl_rankset_drop(&to, b->by_proof ? &b->leases : &b->promised);
    kvcl_rankset_del(&to, views->me);
    KVCL_RANKSET_EACH(&to, slot) {
        kvcl_views_send(views, slot, &msg, now_ns);
    }
    msg.from = views->me;
    if (number == b->number) {
        kvcl_accept_prepare(views, &msg, now_ns);
    }
}

static kvcl_view_msg_t accept_msg(const kvcl_views_ballot_t *b)
{
    return (kvcl_view_msg_t){.type = KVCL_VIEW_ACCEPT, .ballot = b->number, .change = b->change,
                             .proposers = b->proposers, .excused = b->excused};
}

static void send_accept(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_views_ballot_t *b  = &views->ballot;
    kvcl_view_msg_t     msg = accept_msg(b);
    kvcl_rankset_t      to  = without(&views->view.members, &views->detect.proven);
    uint32_t            slot;

    b->sent    = true;
    b->sent_ns = now_ns;
    kvcl_rankset_drop(&to, &b->accepted);
    kvcl_rankset_del(&to, views->me);
    KVCL_RANKSET_EACH(&to, slot) {
        kvcl_views_send(views, slot, &msg, now_ns);
    }
}

static void commit(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_view_t     next;
    kvcl_view_msg_t msg = {.type = KVCL_VIEW_COMMIT, .view = &next};
    kvcl_rankset_t  to  = views->view.members;
    uint32_t        slot;

    kvcl_view_apply(&views->view, &views->ballot.change, &next);
    kvcl_rankset_join(&to, &next.members);
    kvcl_rankset_drop(&to, &views->detect.proven);
    kvcl_rankset_del(&to, views->me);
    KVCL_RANKSET_EACH(&to, slot) {
        kvcl_views_send(views, slot, &msg, now_ns);
    }
    kvcl_views_adopt(views, &next, now_ns);
}

/* ---- the change ---- */

static void own_change(const kvcl_views_t *views, kvcl_view_change_t *change)
{
    uint32_t i;

    memset(change, 0, sizeof(*change));
    wanted(views, &change->gone);
    for (i = 0; i < views->n_joins; ++i) {
        if (!kvcl_rankset_has(&views->view.members, views->joins[i].slot) ||
            kvcl_rankset_has(&change->gone, views->joins[i].slot)) {
            change->joins[change->n_joins++] = views->joins[i];
        }
    }
}

/* Was the change that somebody has accepted never committed, in no ballot? A member that stays in it has accepted
 * nothing; or all who have proposed it have promised, and so ended their ballots. */
static bool is_refuted(const kvcl_views_ballot_t *b)
{
    kvcl_rankset_t stay = without(&b->empty, &b->best_change.gone);

    return !kvcl_rankset_is_empty(&stay) || covers(&b->promised, &b->best_proposers);
}

static void propose(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_views_ballot_t *b = &views->ballot;
    kvcl_view_msg_t     msg;

    b->own = (b->best == 0) || is_refuted(b);
    if (b->own) {
        memset(&b->knows, 0, sizeof(b->knows));
        own_change(views, &b->change);
    } else {
        b->change    = b->best_change;
        b->proposers = b->best_proposers;
        b->excused   = without(&views->detect.silent, &b->change.gone);
    }
    kvcl_rankset_add(&b->proposers, views->me);
    b->proposed = true;
    msg         = accept_msg(b);
    kvcl_accept_ask(views, &msg, now_ns);
}

/* Are there promises enough to choose? */
static void choose(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_views_ballot_t *b    = &views->ballot;
    kvcl_rankset_t      there = without(&views->view.members, &b->dead);
    bool                ready;

    if (b->by_proof) {
        ready = covers(&b->promised, &there) && covers(&b->leases, &there);
    } else {
        ready = kvcl_view_is_quorum(&views->view.members, &b->promised);
        if (ready && (b->quorum_ns == 0)) {
            b->quorum_ns = now_ns;
        }
        if (ready && !covers(&b->promised, &there)) { /* the silent too, for a moment: they may have been stopped */
            kvcl_rankset_drop(&there, &views->detect.silent);
            ready = (now_ns - b->quorum_ns >= views->times.gather_ns) &&
                    (covers(&b->promised, &there) || (now_ns - b->began_ns >= views->times.retry_ns));
        }
    }
    if (ready) {
        propose(views, now_ns);
    }
}

static void learn_round(kvcl_views_t *views, uint64_t ballot)
{
    uint64_t round = (ballot == 0) ? 0 : (ballot - 1) / KVCL_SLOTS_MAX;

    views->round = (round > views->round) ? round : views->round;
}

static void begin(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_views_ballot_t *b    = &views->ballot;
    kvcl_rankset_t      there = without(&views->view.members, &views->detect.proven);
    bool                by_proof = !kvcl_view_is_quorum(&views->view.members, &there);

    /* Without a quorum it would end the ballots of those that have one. */
    if (!by_proof && !kvcl_views_has_quorum(views)) {
        return;
    }
    memset(b, 0, sizeof(*b));
    b->dead     = views->detect.proven;
    b->by_proof = by_proof;
    b->began_ns = now_ns;
    if (!by_proof && (views->promised == 0) && (views->round == 0) &&
        (views->me == kvcl_rankset_next(&views->view.members, 0))) {
        b->number = (uint64_t)views->me + 1;
        propose(views, now_ns);
        return;
    }
    learn_round(views, views->promised);
    views->round += 1;
    b->number     = (views->round * KVCL_SLOTS_MAX) + views->me + 1;
    send_prepare(views, now_ns);
}

/* ---- answers ---- */

static void try_commit(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_views_ballot_t *b   = &views->ballot;
    kvcl_rankset_t      stay = without(&views->view.members, &b->change.gone), there;

    kvcl_rankset_drop(&stay, &b->knows);
    kvcl_rankset_drop(&stay, &b->excused);
    kvcl_rankset_drop(&stay, &views->detect.proven);
    there = without(&views->view.members, &b->dead);
    if ((kvcl_view_is_quorum(&views->view.members, &b->accepted) && covers(&b->accepted, &stay)) ||
        (b->by_proof && covers(&b->accepted, &there))) {
        commit(views, now_ns);
    }
}

static void learn_best(kvcl_views_ballot_t *b, const kvcl_view_msg_t *msg)
{
    if (msg->accepted == 0) {
        kvcl_rankset_add(&b->empty, msg->from);
        return;
    }
    if (msg->accepted > b->best) {
        if ((b->best == 0) || !kvcl_view_change_equal(&msg->change, &b->best_change)) {
            memset(&b->knows, 0, sizeof(b->knows));
        }
        b->best           = msg->accepted;
        b->best_change    = msg->change;
        b->best_proposers = msg->proposers;
    }
    if (kvcl_view_change_equal(&msg->change, &b->best_change)) {
        kvcl_rankset_add(&b->knows, msg->from);
        kvcl_rankset_join(&b->knows, &msg->proposers); /* they accept it before they ask others */
    }
}

void kvcl_lead_promise(kvcl_views_t *views, const kvcl_view_msg_t *msg, uint64_t now_ns)
{
    kvcl_views_ballot_t *b = &views->ballot;

    if ((b->number == 0) || (msg->ballot != b->number) || b->proposed ||
        ((msg->accepted != 0) && !kvcl_accept_fits(views, &msg->change))) {
        return;
    }
    if (!kvcl_rankset_has(&b->promised, msg->from)) {
        kvcl_rankset_add(&b->promised, msg->from);
        learn_best(b, msg);
    }
    if (msg->lease) {
        kvcl_rankset_add(&b->leases, msg->from);
    }
    choose(views, now_ns);
}

void kvcl_lead_accepted(kvcl_views_t *views, uint32_t from, uint64_t ballot, uint64_t now_ns)
{
    kvcl_views_ballot_t *b = &views->ballot;

    if ((b->number == 0) || (ballot != b->number) || !b->proposed || (views->promised > b->number)) {
        return; /* who has promised a higher ballot commits no lower one */
    }
    kvcl_rankset_add(&b->accepted, from);
    if (!b->sent && (from == views->me)) {
        send_accept(views, now_ns);
    }
    try_commit(views, now_ns);
}

void kvcl_lead_refused(kvcl_views_t *views, uint64_t ballot)
{
    learn_round(views, ballot);
    views->ballot.refused = views->ballot.refused || (ballot > views->ballot.number);
}

/* ---- time ---- */

/* Can this ballot no longer be committed, or only by another one? */
static bool is_over(const kvcl_views_t *views, uint64_t now_ns)
{
    const kvcl_views_ballot_t *b     = &views->ballot;
    kvcl_rankset_t             there = without(&views->view.members, &views->detect.proven), gone;
    bool                       late  = (now_ns - b->began_ns >= views->times.retry_ns);

    if (b->by_proof ? !kvcl_rankset_equal(&views->detect.proven, &b->dead)
                    : !kvcl_view_is_quorum(&views->view.members, &there)) {
        return true;
    }
    if (b->refused || (views->promised > b->number)) {
        return late;
    }
    /* Somebody who was to stay will not accept. One that leaves will, but can go at once in this rank's own change. */
    gone = views->detect.silent;
    if (b->own) {
        wanted(views, &gone);
    }
    kvcl_rankset_drop(&gone, &b->change.gone);
    kvcl_rankset_drop(&gone, &views->detect.proven);
    kvcl_rankset_drop(&gone, &b->accepted);
    kvcl_rankset_drop(&gone, &b->knows);
    kvcl_rankset_drop(&gone, &b->excused);
    return b->sent && late && !kvcl_rankset_is_empty(&gone);
}

static bool is_change_wanted(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_view_change_t change;

    own_change(views, &change);
    if (kvcl_view_change_is_empty(&change) && (views->accepted == 0) && !views->unfinished) {
        views->wanted_ns = 0;
        return false;
    }
    views->wanted_ns = (views->wanted_ns == 0) ? now_ns : views->wanted_ns;
    return true;
}

void kvcl_lead_tick(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_views_ballot_t *b = &views->ballot;

    if (!is_change_wanted(views, now_ns) || (who_leads(views) != views->me)) {
        memset(b, 0, sizeof(*b));
    } else if (b->number == 0) {
        if (now_ns - views->wanted_ns >= views->times.gather_ns) {
            begin(views, now_ns);
        }
    } else if (is_over(views, now_ns)) {
        begin(views, now_ns);
    } else if (!b->proposed) {
        choose(views, now_ns);
        if (!b->proposed && (b->number != 0) && (now_ns - b->sent_ns >= views->times.retry_ns)) {
            send_prepare(views, now_ns);
        }
    } else if (b->sent && (now_ns - b->sent_ns >= views->times.retry_ns)) {
        send_accept(views, now_ns);
        try_commit(views, now_ns);
    }
}

bool kvcl_views_is_busy(const kvcl_views_t *views)
{
    return (views->state == KVCL_VIEWS_MEMBER) && ((views->wanted_ns != 0) || (views->asked != 0) ||
                                                   (views->accepted != 0) || (views->ballot.number != 0));
}
