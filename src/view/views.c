/*
 * Beats and the lease; what comes in goes to accept.c and lead.c.
 */
#include "config.h"
#include "view/views_impl.h"

#include <string.h>

const char *kvcl_views_times_wrong(const kvcl_views_times_t *times)
{
    const char *wrong = kvcl_detect_times_wrong(&times->detect);

    if ((wrong == NULL) && (times->lease_ns / 2 <= times->detect.beat_ns)) { /* an answer takes up to two beats */
        wrong = "a lease would end before the answers to two beats: lengthen it, or beat oftener";
    } else if ((wrong == NULL) && (times->lease_ns >= times->detect.dead_ns)) {
        wrong = "a lease ends before its rank is held for dead: shorten it";
    }
    return wrong;
}

void kvcl_views_init(kvcl_views_t *views, uint32_t me, uint64_t incarnation, const kvcl_view_t *view,
                     const kvcl_views_times_t *times, const kvcl_views_ops_t *ops, void *arg, uint64_t now_ns)
{
    memset(views, 0, sizeof(*views));
    views->me          = me;
    views->incarnation = incarnation;
    views->times       = *times;
    views->ops         = ops;
    views->arg         = arg;
    kvcl_detect_init(&views->detect, me, &times->detect, now_ns);
    if (view != NULL) {
        views->view  = *view;
        views->state = KVCL_VIEWS_MEMBER;
        kvcl_detect_members(&views->detect, &view->members, &view->members, now_ns);
    }
}

/* Fills in what each message has. A member is echoed its newest stamp, unless it is to go. */
void kvcl_views_send(kvcl_views_t *views, uint32_t to, kvcl_view_msg_t *msg, uint64_t now_ns)
{
    kvcl_views_peer_t *peer = &views->peers[to];

    msg->from        = views->me;
    msg->incarnation = views->incarnation;
    msg->number      = views->view.number;
    msg->id          = views->view.id;
    msg->stamp       = now_ns;
    msg->dead        = views->detect.proven;
    kvcl_rankset_drop(&msg->dead, &views->parted);
    msg->leaving     = views->leaving;
    msg->phase       = views->phase;
    msg->accepted    = views->accepted;
    msg->echo        = 0;
    if (kvcl_rankset_has(&views->view.members, to) && !kvcl_rankset_has(&views->hushed, to)) {
        msg->echo       = peer->stamp;
        peer->echoed_ns = peer->stamped_ns;
    }
    views->ops->send(views->arg, to, msg);
}

static void send_beats(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_view_msg_t msg = {.type = KVCL_VIEW_BEAT};
    uint32_t        slot;

    views->beat_ns = now_ns;
    KVCL_RANKSET_EACH(&views->view.members, slot) {
        if ((slot != views->me) && !kvcl_rankset_has(&views->detect.proven, slot)) {
            kvcl_views_send(views, slot, &msg, now_ns);
        }
    }
}

/* ---- events ---- */

static void tell(const kvcl_views_t *views, kvcl_views_event_t event, const kvcl_rankset_t *ranks)
{
    if (!kvcl_rankset_is_empty(ranks)) {
        views->ops->event(views->arg, event, ranks);
    }
}

static void listen(kvcl_views_t *views, uint64_t now_ns)
{
    kvcl_rankset_t suspected, again;

    kvcl_detect_tick(&views->detect, now_ns, &suspected, &again);
    tell(views, KVCL_VIEWS_SUSPECT, &suspected);
    tell(views, KVCL_VIEWS_ALIVE_AGAIN, &again);
}

static void report_failed(kvcl_views_t *views, const kvcl_rankset_t *ranks)
{
    kvcl_rankset_t failed = *ranks;

    kvcl_rankset_drop(&failed, &views->failed);
    kvcl_rankset_join(&views->failed, &failed);
    tell(views, KVCL_VIEWS_FAILED, &failed);
}

/* ---- the lease ---- */

/* Whose echo is fresh is a quorum of the view; of the next one too, if that may be committed already. */
bool kvcl_views_has_lease(const kvcl_views_t *views, uint64_t now_ns)
{
    const kvcl_view_change_t *change = kvcl_views_pending(views);
    kvcl_rankset_t            fresh  = {{0}}, next = views->view.members;
    uint32_t                  slot; /* or join */

    if ((views->state != KVCL_VIEWS_MEMBER) || ((change != NULL) && kvcl_rankset_has(&change->gone, views->me))) {
        return false;
    }
    kvcl_rankset_add(&fresh, views->me);
    KVCL_RANKSET_EACH(&views->view.members, slot) {
        if ((views->peers[slot].returned != 0) && (now_ns - views->peers[slot].returned < views->times.lease_ns)) {
            kvcl_rankset_add(&fresh, slot);
        }
    }
    if (!kvcl_view_is_quorum(&views->view.members, &fresh)) {
        return false;
    }
    if (change == NULL) {
        return true;
    }
    kvcl_rankset_drop(&next, &change->gone);
    kvcl_rankset_drop(&fresh, &change->gone);
    for (slot = 0; slot < change->n_joins; ++slot) {
        kvcl_rankset_add(&next, change->joins[slot].slot);
    }
    return kvcl_view_is_quorum(&next, &fresh);
}

bool kvcl_views_has_quorum(const kvcl_views_t *views)
{
    kvcl_rankset_t there;

    kvcl_detect_there(&views->detect, &there);
    return (views->state == KVCL_VIEWS_MEMBER) && kvcl_view_is_quorum(&views->view.members, &there);
}

/* ---- a new view ---- */

void kvcl_views_give_up(kvcl_views_t *views)
{
    kvcl_rankset_t me = {{0}};

    if (views->state == KVCL_VIEWS_MEMBER) {
        kvcl_rankset_add(&me, views->me);
        views->state = KVCL_VIEWS_OUT;
        memset(&views->ballot, 0, sizeof(views->ballot));
        tell(views, KVCL_VIEWS_EXCLUDED, &me);
    }
}

/* The members that differ from those of another view: other slots, or other incarnations. */
static void differing(const kvcl_view_t *view, const kvcl_view_t *other, kvcl_rankset_t *slots)
{
    uint32_t slot;

    memset(slots, 0, sizeof(*slots));
    KVCL_RANKSET_EACH(&view->members, slot) {
        if (!kvcl_view_has(other, slot, view->incarnation[slot])) {
            kvcl_rankset_add(slots, slot);
        }
    }
}

static void forget_ballots(kvcl_views_t *views)
{
    views->promised  = views->accepted = views->asked = views->round = 0;
    views->wanted_ns = 0;
    views->unfinished = false;
    memset(&views->ballot, 0, sizeof(views->ballot));
    memset(&views->hushed, 0, sizeof(views->hushed));
}

static void forget_joins(kvcl_views_t *views)
{
    uint32_t i, n = 0;

    for (i = 0; i < views->n_joins; ++i) {
        if (!kvcl_view_has(&views->view, views->joins[i].slot, views->joins[i].incarnation)) {
            views->joins[n++] = views->joins[i];
        }
    }
    views->n_joins = n;
}

/* FAILED comes before the VIEW without the failed. */
void kvcl_views_adopt(kvcl_views_t *views, const kvcl_view_t *next, uint64_t now_ns)
{
    kvcl_rankset_t gone, come, failed, left;
    uint32_t       slot;

    if (!kvcl_view_has(next, views->me, views->incarnation)) {
        kvcl_views_give_up(views);
        return;
    }
    differing(&views->view, next, &gone);
    differing(next, &views->view, &come);
    failed = gone;
    kvcl_rankset_drop(&failed, &views->leaving);
    report_failed(views, &failed);
    left = gone;
    kvcl_rankset_drop(&left, &views->failed);
    tell(views, KVCL_VIEWS_LEFT, &left);
    kvcl_accept_leaving(views, next, &gone);
    views->view  = *next;
    views->state = KVCL_VIEWS_MEMBER;
    forget_ballots(views);
    forget_joins(views);
    kvcl_rankset_join(&gone, &come);
    KVCL_RANKSET_EACH(&gone, slot) {
        memset(&views->peers[slot], 0, sizeof(views->peers[slot]));
    }
    kvcl_detect_members(&views->detect, &next->members, &gone, now_ns);
    kvcl_rankset_drop(&views->failed, &gone);
    kvcl_rankset_drop(&views->parted, &gone);
    views->ops->event(views->arg, KVCL_VIEWS_VIEW, &come);
    send_beats(views, now_ns);
}

/* ---- what comes in ---- */

void kvcl_views_send_view(kvcl_views_t *views, uint32_t to, uint64_t now_ns)
{
    kvcl_view_msg_t msg = {.type = KVCL_VIEW_COMMIT, .view = &views->view};

    kvcl_views_send(views, to, &msg, now_ns);
}

static void take_evidence(kvcl_views_t *views, const kvcl_view_msg_t *msg, uint64_t now_ns)
{
    kvcl_rankset_t dead, leaving = msg->leaving;

    kvcl_detect_prove(&views->detect, &msg->dead, &dead);
    kvcl_rankset_keep(&leaving, &views->view.members);
    kvcl_rankset_join(&views->leaving, &leaving);
    kvcl_rankset_join(&views->hushed, &leaving);
    report_failed(views, &dead);
    if (!kvcl_rankset_is_empty(&dead)) {
        kvcl_lead_tick(views, now_ns);
    }
}

static void take_peer(kvcl_views_t *views, const kvcl_view_msg_t *msg, uint64_t now_ns)
{
    kvcl_views_peer_t *peer = &views->peers[msg->from];

    if (msg->phase > peer->phase) {
        peer->phase = msg->phase;
    }
    kvcl_detect_heard(&views->detect, msg->from, (peer->phase % 2) != 0, now_ns);
    if (msg->stamp > peer->stamp) {
        peer->stamp      = msg->stamp;
        peer->stamped_ns = now_ns;
    }
    if ((msg->echo > peer->returned) && (msg->echo <= now_ns)) {
        peer->returned = msg->echo;
    }
}

static void take_in_view(kvcl_views_t *views, const kvcl_view_msg_t *msg, uint64_t now_ns)
{
    uint32_t i;

    if ((msg->ballot > KVCL_BALLOT_MAX) || (msg->accepted > KVCL_BALLOT_MAX)) {
        return;
    }
    views->unfinished = views->unfinished || (msg->accepted != 0);
    switch (msg->type) {
    case KVCL_VIEW_JOIN:
        for (i = 0; (i < msg->change.n_joins) && (i < KVCL_VIEW_JOINS); ++i) {
            kvcl_views_join(views, msg->change.joins[i].slot, msg->change.joins[i].incarnation, now_ns);
        }
        break;
    case KVCL_VIEW_PREPARE:
        kvcl_accept_prepare(views, msg, now_ns);
        break;
    case KVCL_VIEW_PROMISE:
        kvcl_lead_promise(views, msg, now_ns);
        break;
    case KVCL_VIEW_ACCEPT:
        if ((kvcl_ballot_leader(msg->ballot) == msg->from) && kvcl_accept_fits(views, &msg->change)) {
            kvcl_accept_ask(views, msg, now_ns);
        }
        break;
    case KVCL_VIEW_ACCEPTED:
        kvcl_lead_accepted(views, msg->from, msg->ballot, now_ns);
        break;
    case KVCL_VIEW_REFUSED:
        kvcl_lead_refused(views, msg->ballot);
        break;
    default:
        break;
    }
}

void kvcl_views_take(kvcl_views_t *views, const kvcl_view_msg_t *msg, uint64_t now_ns)
{
    kvcl_view_msg_t beat   = {.type = KVCL_VIEW_BEAT};
    bool            member = kvcl_view_has(&views->view, msg->from, msg->incarnation);

    if ((views->state == KVCL_VIEWS_OUT) || (msg->from >= KVCL_SLOTS_MAX) || (msg->from == views->me)) {
        return;
    }
    if (msg->type == KVCL_VIEW_COMMIT) { /* also from a rank that has joined by it */
        if (msg->view->number > views->view.number) {
            kvcl_views_adopt(views, msg->view, now_ns);
        }
        return;
    }
    if (views->state != KVCL_VIEWS_MEMBER) {
        return;
    }
    if (member) {
        take_peer(views, msg, now_ns);
    }
    if (msg->number < views->view.number) {
        kvcl_views_send_view(views, msg->from, now_ns); /* it has missed the commit, or is excluded by it */
    } else if (msg->number > views->view.number) {
        kvcl_views_send(views, msg->from, &beat, now_ns); /* it answers with its view */
    } else if (member && (msg->number == views->view.number) && (msg->id == views->view.id)) {
        take_evidence(views, msg, now_ns);
        if ((msg->number == views->view.number) && (views->state == KVCL_VIEWS_MEMBER)) { /* that may end a view */
            take_in_view(views, msg, now_ns);
        }
    }
}

void kvcl_views_heard(kvcl_views_t *views, uint32_t slot, uint64_t now_ns)
{
    if ((views->state == KVCL_VIEWS_MEMBER) && kvcl_rankset_has(&views->view.members, slot)) {
        kvcl_detect_heard(&views->detect, slot, (views->peers[slot].phase % 2) != 0, now_ns);
    }
}

void kvcl_views_proven(kvcl_views_t *views, uint32_t slot, uint64_t incarnation, bool parted, uint64_t now_ns)
{
    kvcl_rankset_t dead = {{0}}, news;

    if ((views->state != KVCL_VIEWS_MEMBER) || !kvcl_view_has(&views->view, slot, incarnation)) {
        return;
    }
    kvcl_rankset_add(&dead, slot);
    kvcl_detect_prove(&views->detect, &dead, &news);
    if (parted) {
        kvcl_rankset_join(&views->parted, &news);
    } else {
        kvcl_rankset_drop(&views->parted, &dead);
    }
    if (!kvcl_rankset_is_empty(&news)) {
        report_failed(views, &news);
        send_beats(views, now_ns);
        kvcl_lead_tick(views, now_ns);
    }
}

void kvcl_views_leave(kvcl_views_t *views, uint32_t slot, uint64_t now_ns)
{
    if ((views->state == KVCL_VIEWS_MEMBER) && kvcl_rankset_has(&views->view.members, slot) &&
        !kvcl_rankset_has(&views->leaving, slot)) {
        kvcl_rankset_add(&views->leaving, slot);
        kvcl_rankset_add(&views->hushed, slot);
        send_beats(views, now_ns);
    }
    views->goes = views->goes || (slot == views->me);
}

void kvcl_views_warm(kvcl_views_t *views, bool warm, uint64_t now_ns)
{
    if (warm != ((views->phase % 2) != 0)) {
        views->phase += 1;
        send_beats(views, now_ns);
    }
}

void kvcl_views_beat_in_step(kvcl_views_t *views, uint64_t now_ns)
{
    if ((views->state == KVCL_VIEWS_MEMBER) &&
        (now_ns / views->times.detect.beat_ns != views->beat_ns / views->times.detect.beat_ns)) {
        send_beats(views, now_ns);
    }
}

void kvcl_views_tick(kvcl_views_t *views, uint64_t now_ns)
{
    if (views->state != KVCL_VIEWS_MEMBER) {
        return;
    }
    listen(views, now_ns);
    if (now_ns - views->beat_ns >= views->times.detect.beat_ns) {
        send_beats(views, now_ns);
    }
    kvcl_accept_tick(views, now_ns);
    if (views->state == KVCL_VIEWS_MEMBER) {
        kvcl_lead_tick(views, now_ns);
    }
}
