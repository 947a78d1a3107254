/*
 * The messages of a step (step.h): what the machine asks for, posted, and what came of it, reported.
 *
 * Invariant: a request of a call ends within the call; what belongs to a lost peer is canceled, and its end is ignored.
 * No lock is held.
 */
#include "config.h"

#include "experts/step.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/comm.h"
#include <kvcl/kvcl_view.h>
#include <kvcl/kvcl_xfer.h>

#include <string.h>

/* The calls have deadlines of their own; that of a message only ends what nobody waits for. */
#define FAR_NS    (UINT64_C(365) * 24 * 3600 * KVCL_NS_PER_SEC)
#define LEAVE_NS  (100 * KVCL_NS_PER_MS)
#define TINY_NS   KVCL_NS_PER_MS

static kvcl_req_h *slot(kvcl_ep_h ep, unsigned op, uint32_t peer)
{
    return &ep->reqs[((size_t)op * ep->dims.ranks) + peer];
}

static char *notice_of(kvcl_ep_h ep, bool received, uint32_t peer)
{
    return ep->notices + ((((size_t)received * ep->dims.ranks) + peer) * kvcl_ep_notice_bytes(&ep->dims));
}

static kvcl_xfer_params_t params_of(void)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;

    p.timeout_ns = FAR_NS;
    return p;
}

/* What the failure of an operation says about the peer. */
static kvcl_status_t why_of(kvcl_status_t status)
{
    switch (status) {
    case KVCL_ERR_RANK_FAILED:
    case KVCL_ERR_TIMED_OUT:
        return status;
    case KVCL_ERR_CANCELED: /* it has stopped what this rank was about to use */
        return KVCL_ERR_STALE;
    case KVCL_ERR_TRUNCATED:
    case KVCL_ERR_BAD_LAYOUT:
    case KVCL_ERR_PROTOCOL:
        return KVCL_ERR_PROTOCOL;
    default:
        return KVCL_ERR_UNREACHABLE;
    }
}

static void posted(kvcl_ep_h ep, uint32_t peer, kvcl_status_t status)
{
    if (status != KVCL_OK) {
        kvcl_ep_turn_lose(&ep->turn, peer, why_of(status));
    }
}

/* ---- acts ---- */

static void take_notice(void *arg, uint32_t peer)
{
    kvcl_ep_h          ep = arg;
    kvcl_xfer_params_t p  = params_of();

    ep->infos[peer] = (kvcl_recv_info_t)KVCL_RECV_INFO_INIT;
    p.info          = &ep->infos[peer];
    posted(ep, peer, kvcl_recv_bytes(ep->comm, (int)peer,
                                     kvcl_ep_tag(ep->turn.number, ep->turn.step, KVCL_EP_TAG_NOTICE),
                                     notice_of(ep, true, peer), kvcl_ep_notice_bytes(&ep->dims), &p,
                                     slot(ep, KVCL_EP_OP_TAKE_NOTICE, peer)));
}

static void send_notice(void *arg, uint32_t peer)
{
    kvcl_ep_h                ep     = arg;
    const kvcl_xfer_params_t p      = params_of();
    char                     *bytes = notice_of(ep, false, peer);

    kvcl_ep_notice_write(bytes, &ep->dims, &ep->route, peer, ep->turn.number, ep->turn.step);
    posted(ep, peer, kvcl_send_bytes(ep->comm, (int)peer,
                                     kvcl_ep_tag(ep->turn.number, ep->turn.step, KVCL_EP_TAG_NOTICE), bytes,
                                     kvcl_ep_notice_bytes(&ep->dims), &p, slot(ep, KVCL_EP_OP_SEND_NOTICE, peer)));
}

static uint64_t rows_tag(const struct kvcl_ep *ep)
{
    return kvcl_ep_tag(ep->turn.number, ep->turn.step,
                       (ep->turn.phase == KVCL_EP_DISPATCH) ? KVCL_EP_TAG_ROWS : KVCL_EP_TAG_BACK);
}

/* The rows between this rank and a peer: the peer's here (in, y), or this rank's own (x, back). */
static kvcl_sel_t rows_here(const struct kvcl_ep *ep, uint32_t peer)
{
    return kvcl_sel_of(kvcl_ep_inbox_blocks(&ep->inbox, &ep->dims, peer), ep->inbox.n_from[peer]);
}

static void send_rows(void *arg, uint32_t peer)
{
    kvcl_ep_h                ep       = arg;
    const bool               dispatch = (ep->turn.phase == KVCL_EP_DISPATCH);
    const uint32_t           first    = kvcl_ep_route_first(&ep->route, &ep->dims, peer);
    const kvcl_sel_t         sel      = dispatch ? kvcl_sel_of(ep->route.tokens + first, ep->rows_to[peer])
                                                 : rows_here(ep, peer);
    const kvcl_xfer_params_t p        = params_of();

    posted(ep, peer, kvcl_send(ep->comm, (int)peer, rows_tag(ep), dispatch ? ep->x.cache : ep->y.cache, &sel, &p,
                               slot(ep, KVCL_EP_OP_SEND_ROWS, peer)));
}

static void take_rows(void *arg, uint32_t peer)
{
    kvcl_ep_h                ep       = arg;
    const bool               dispatch = (ep->turn.phase == KVCL_EP_DISPATCH);
    const uint32_t           first    = kvcl_ep_route_first(&ep->route, &ep->dims, peer);
    const kvcl_sel_t         sel      = dispatch ? rows_here(ep, peer)
                                                 : kvcl_sel_of(ep->numbers + first, ep->rows_to[peer]);
    const kvcl_xfer_params_t p        = params_of();

    posted(ep, peer, kvcl_recv(ep->comm, (int)peer, rows_tag(ep), dispatch ? ep->in.cache : ep->back.cache, &sel, &p,
                               slot(ep, KVCL_EP_OP_TAKE_ROWS, peer)));
}

/* A rank out of reach finds out by itself. */
static void send_word(kvcl_ep_h ep, uint32_t peer, unsigned op, uint64_t what)
{
    const kvcl_xfer_params_t p     = params_of();
    kvcl_ep_word_t           *word = &ep->words[(((size_t)op - KVCL_EP_OP_TAKE_WORD) * ep->dims.ranks) + peer];
    kvcl_req_h               *to   = slot(ep, op, peer);

    if (*to != NULL) {
        return; /* it has not taken the last one yet */
    }
    *word = (kvcl_ep_word_t){.what = what, .call = kvcl_ep_turn_call(&ep->turn)};
    if (kvcl_send_bytes(ep->comm, (int)peer, kvcl_ep_tag(ep->turn.number, 0, KVCL_EP_TAG_WORD), word, sizeof(*word),
                        &p, to) != KVCL_OK) {
        *to = NULL;
    }
}

static void beat(void *arg, uint32_t peer)
{
    send_word(arg, peer, KVCL_EP_OP_SEND_BEAT, KVCL_EP_WORD_BEAT);
}

static void take_word(kvcl_ep_h ep, uint32_t peer)
{
    const kvcl_xfer_params_t p = params_of();

    ep->words[peer] = (kvcl_ep_word_t){0};
    posted(ep, peer, kvcl_recv_bytes(ep->comm, (int)peer, kvcl_ep_tag(ep->turn.number, 0, KVCL_EP_TAG_WORD),
                                     &ep->words[peer], sizeof(ep->words[peer]), &p,
                                     slot(ep, KVCL_EP_OP_TAKE_WORD, peer)));
}

static void lost(void *arg, uint32_t peer)
{
    kvcl_ep_h           ep  = arg;
    const kvcl_status_t why = ep->turn.peers[peer].why;
    unsigned            op;

    kvcl_log_info("kvcl_ep: rank %d skips rank %u from step %llu on: %s", (int)ep->dims.self, peer,
                  (unsigned long long)ep->turn.step, kvcl_status_text(why));
    for (op = 0; op < KVCL_EP_OPS; ++op) {
        if (*slot(ep, op, peer) != NULL) {
            kvcl_req_cancel(*slot(ep, op, peer));
        }
    }
    if ((why != KVCL_ERR_RANK_FAILED) && (why != KVCL_ERR_STALE)) {
        send_word(ep, peer, KVCL_EP_OP_SEND_SKIP, KVCL_EP_WORD_SKIP);
    }
}

const kvcl_ep_acts_t kvcl_ep_msgs_acts = {
    .send_notice = send_notice, .send_rows = send_rows, .take_notice = take_notice, .take_rows = take_rows,
    .beat = beat, .lost = lost};

/* ---- ends ---- */

static void take_it(kvcl_ep_h ep, uint32_t peer)
{
    const char       *bytes = notice_of(ep, true, peer);
    kvcl_ep_notice_t notice;

    if (kvcl_ep_notice_read(bytes, (size_t)ep->infos[peer].bytes, &ep->dims, &notice, ep->counts) != KVCL_OK) {
        kvcl_ep_turn_lose(&ep->turn, peer, KVCL_ERR_PROTOCOL);
        return;
    }
    if (kvcl_ep_turn_notice(&ep->turn, peer, notice.number, notice.step) != KVCL_OK) {
        kvcl_ep_turn_lose(&ep->turn, peer, KVCL_ERR_PROTOCOL); /* its tag was that of this step */
        return;
    }
    kvcl_ep_inbox_place(&ep->inbox, &ep->dims, peer, ep->counts);
    kvcl_ep_turn_announced(&ep->turn, peer, notice.rows);
}

static void word_came(kvcl_ep_h ep, uint32_t peer)
{
    switch (ep->words[peer].what) {
    case KVCL_EP_WORD_BEAT:
        kvcl_ep_turn_beat(&ep->turn, peer, ep->words[peer].call, kvcl_now_ns());
        take_word(ep, peer);
        break;
    case KVCL_EP_WORD_SKIP:
        kvcl_ep_turn_lose(&ep->turn, peer, KVCL_ERR_STALE);
        break;
    default:
        kvcl_ep_turn_lose(&ep->turn, peer, KVCL_ERR_PROTOCOL);
        break;
    }
}

static void ended(kvcl_ep_h ep, unsigned op, uint32_t peer, kvcl_status_t status)
{
    if ((op == KVCL_EP_OP_SEND_SKIP) || (op == KVCL_EP_OP_SEND_BEAT) || !kvcl_ep_turn_active(&ep->turn, peer)) {
        return;
    }
    if (status != KVCL_OK) {
        kvcl_ep_turn_lose(&ep->turn, peer, why_of(status));
        return;
    }
    switch (op) {
    case KVCL_EP_OP_TAKE_NOTICE:
        take_it(ep, peer);
        break;
    case KVCL_EP_OP_TAKE_ROWS:
        kvcl_ep_turn_rows(&ep->turn, peer);
        break;
    case KVCL_EP_OP_TAKE_WORD:
        word_came(ep, peer);
        break;
    default:
        kvcl_ep_turn_sent(&ep->turn, peer);
        break;
    }
}

/* One wait for anything that is posted, and its reports. */
static void wait_some(kvcl_ep_h ep, uint64_t timeout_ns)
{
    const uint32_t ranks = ep->dims.ranks;
    size_t         n     = 0, i;

    if (kvcl_req_wait_some(ep->reqs, (size_t)KVCL_EP_OPS * ranks, timeout_ns, ep->done, ep->statuses, &n) ==
        KVCL_ERR_WAIT_TIMEOUT) {
        return;
    }
    for (i = 0; i < n; ++i) {
        ended(ep, (unsigned)(ep->done[i] / ranks), (uint32_t)(ep->done[i] % ranks), ep->statuses[i]);
    }
}

/* Cancel and collect what is left of some kinds. */
static void collect(kvcl_ep_h ep, unsigned first, unsigned end)
{
    const size_t n = (size_t)ep->dims.ranks;
    size_t       i;

    for (i = first * n; i < end * n; ++i) {
        if (ep->reqs[i] != NULL) {
            kvcl_req_cancel(ep->reqs[i]);
        }
    }
    for (i = first * n; i < end * n; ++i) {
        if (ep->reqs[i] != NULL) {
            (void)!kvcl_req_wait(ep->reqs[i], KVCL_WAIT_FOREVER); /* it was canceled */
            ep->reqs[i] = NULL;
        }
    }
}

/* ---- calls ---- */

static bool has_failed(kvcl_comm_h comm, uint32_t peer)
{
    kvcl_rank_state_t state;

    return (kvcl_rank_state(comm, (int)peer, &state) == KVCL_OK) && (state == KVCL_RANK_FAILED);
}

/* The view's members, if this job has views; and what is known of the sessions, which is sooner than the next view. */
void kvcl_ep_msgs_learn(kvcl_ep_h ep)
{
    uint32_t r;

    memset(ep->members, 1, ep->dims.ranks);
    (void)!kvcl_comm_active(ep->comm, ep->members, (int)ep->dims.ranks, NULL); /* all are, without views */
    for (r = 0; r < ep->dims.ranks; ++r) {
        if ((r != ep->dims.self) && kvcl_ep_turn_active(&ep->turn, r) &&
            ((ep->members[r] == 0) || has_failed(ep->comm, r))) {
            kvcl_ep_turn_lose(&ep->turn, r, KVCL_ERR_RANK_FAILED);
        }
    }
}

void kvcl_ep_msgs_listen(kvcl_ep_h ep)
{
    uint32_t r;

    for (r = 0; r < ep->dims.ranks; ++r) {
        if ((r != ep->dims.self) && kvcl_ep_turn_active(&ep->turn, r)) {
            take_word(ep, r);
        }
    }
}

void kvcl_ep_msgs_stop(kvcl_ep_h ep, bool leave)
{
    const uint64_t deadline_ns = kvcl_now_ns() + LEAVE_NS;
    bool           some        = leave;
    uint32_t       r;

    for (r = 0; leave && (r < ep->dims.ranks); ++r) {
        if ((r != ep->dims.self) && kvcl_ep_turn_active(&ep->turn, r)) {
            send_word(ep, r, KVCL_EP_OP_SEND_SKIP, KVCL_EP_WORD_SKIP);
        }
    }
    while (some && (kvcl_now_ns() < deadline_ns)) { /* both may leave at the same time: then both are told */
        wait_some(ep, TINY_NS);
        for (r = 0, some = false; r < ep->dims.ranks; ++r) {
            some = some || ((*slot(ep, KVCL_EP_OP_SEND_SKIP, r) != NULL) && kvcl_ep_turn_active(&ep->turn, r));
        }
    }
    collect(ep, 0, KVCL_EP_OPS);
}

void kvcl_ep_msgs_run(kvcl_ep_h ep)
{
    uint64_t now_ns, next_ns;

    while (!kvcl_ep_turn_is_over(&ep->turn)) {
        wait_some(ep, 0); /* what has ended by now is not late */
        now_ns  = kvcl_now_ns();
        next_ns = kvcl_ep_turn_tick(&ep->turn, now_ns);
        if (!kvcl_ep_turn_is_over(&ep->turn)) {
            wait_some(ep, next_ns - now_ns);
        }
    }
    collect(ep, KVCL_EP_OP_OF_CALL, KVCL_EP_OPS);
    kvcl_ep_turn_end(&ep->turn);
    kvcl_ep_masks_show(&ep->masks, &ep->turn, &ep->maps[ep->map]);
}
