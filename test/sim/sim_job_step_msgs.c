/*
 * Messages of steps of experts in sim_job.h: the acts of the machine of ep/ep_turn.h, and what comes in. A message that
 * its rank does not take now is held.
 */
#include "config.h"

#include "sim_job_rows.h"

static uint64_t next_id;

static uint64_t tag_of(const job_ep_t *ep, unsigned kind)
{
    if (job_broken == JOB_BREAK_OLD_ROWS) {
        return kind;
    }
    return kvcl_ep_tag(ep->turn.number, (kind == KVCL_EP_TAG_WORD) ? 0 : ep->turn.step, kind);
}

static job_mail_t *send(proc_t *p, uint32_t slot, job_kind_t kind, uint64_t tag)
{
    job_t      *job = job_of(p);
    job_mail_t *mail;
    uint32_t   r;

    for (r = 0; (r + 1 < job->size) && (job->slots[r] != slot); ++r) {
    }
    mail      = job_post_rank(p, r, kind);
    mail->tag = tag;
    mail->id  = ++next_id;
    return mail;
}

/* ---- acts ---- */

static void take(proc_t *p, uint32_t peer, job_take_t what, uint64_t tag)
{
    job_ep_t *ep = &job_of(p)->ep;

    ep->takes[what][peer]    = true;
    ep->take_tag[what][peer] = tag;
    job_look_again(p);
}

static unsigned rows_kind(const job_ep_t *ep)
{
    return (ep->turn.phase == KVCL_EP_DISPATCH) ? KVCL_EP_TAG_ROWS : KVCL_EP_TAG_BACK;
}

static void act_take_notice(void *arg, uint32_t peer)
{
    take(arg, peer, TAKE_NOTICE, tag_of(&job_of(arg)->ep, KVCL_EP_TAG_NOTICE));
}

static void act_take_rows(void *arg, uint32_t peer)
{
    take(arg, peer, TAKE_ROWS, tag_of(&job_of(arg)->ep, rows_kind(&job_of(arg)->ep)));
}

static void act_send_notice(void *arg, uint32_t peer)
{
    proc_t     *p    = arg;
    job_ep_t   *ep   = &job_of(p)->ep;
    job_mail_t *mail = send(p, peer, JOB_NOTICE, tag_of(ep, KVCL_EP_TAG_NOTICE));

    ep->send_id[TAKE_NOTICE][peer] = mail->id;
    kvcl_ep_notice_write(mail->u.bytes, &ep->dims, &ep->route, peer, ep->turn.number, ep->turn.step);
}

static uint64_t *rows_in(job_ep_t *ep, uint32_t peer, uint32_t i)
{
    return &ep->in[kvcl_ep_inbox_blocks(&ep->inbox, &ep->dims, peer)[i]];
}

static void act_send_rows(void *arg, uint32_t peer)
{
    proc_t         *p    = arg;
    job_ep_t       *ep   = &job_of(p)->ep;
    const uint32_t first = kvcl_ep_route_first(&ep->route, &ep->dims, peer);
    job_mail_t     *mail = send(p, peer, JOB_ROWS, tag_of(ep, rows_kind(ep)));
    uint32_t       i;

    ep->send_id[TAKE_ROWS][peer] = mail->id;
    mail->n = (ep->turn.phase == KVCL_EP_DISPATCH) ? ep->rows_to[peer] : ep->inbox.n_from[peer];
    for (i = 0; i < mail->n; ++i) {
        mail->u.rows[i] = (ep->turn.phase == KVCL_EP_DISPATCH) ? job_row_own(p, first + i) : *rows_in(ep, peer, i);
    }
}

static void act_beat(void *arg, uint32_t peer)
{
    job_ep_t *ep = &job_of(arg)->ep;

    send(arg, peer, JOB_WORD, tag_of(ep, KVCL_EP_TAG_WORD))->call = kvcl_ep_turn_call(&ep->turn);
}

static void act_lost(void *arg, uint32_t peer)
{
    job_ep_t            *ep = &job_of(arg)->ep;
    const kvcl_status_t why = ep->turn.peers[peer].why;
    unsigned            i;

    for (i = 0; i < TAKES; ++i) {
        ep->takes[i][peer]   = false;
        ep->send_id[i][peer] = 0;
    }
    if ((why != KVCL_ERR_RANK_FAILED) && (why != KVCL_ERR_STALE)) {
        (void)send(arg, peer, JOB_WORD, tag_of(ep, KVCL_EP_TAG_WORD));
    }
}

const kvcl_ep_acts_t job_step_acts = {.send_notice = act_send_notice, .send_rows = act_send_rows,
                                      .take_notice = act_take_notice, .take_rows = act_take_rows, .beat = act_beat,
                                      .lost = act_lost};

/* ---- messages ---- */

static void take_notice(proc_t *p, uint32_t peer, const job_mail_t *mail)
{
    job_ep_t         *ep = &job_of(p)->ep;
    kvcl_ep_notice_t notice;
    uint32_t         counts[LOCAL];

    if ((kvcl_ep_notice_read(mail->u.bytes, kvcl_ep_notice_bytes(&ep->dims), &ep->dims, &notice, counts) != KVCL_OK) ||
        (kvcl_ep_turn_notice(&ep->turn, peer, notice.number, notice.step) != KVCL_OK)) {
        sim_broken("Masked", p, "a notice of another step or activation is taken");
        return;
    }
    kvcl_ep_inbox_place(&ep->inbox, &ep->dims, peer, counts);
    kvcl_ep_turn_announced(&ep->turn, peer, notice.rows);
}

static void take_rows(proc_t *p, uint32_t peer, const job_mail_t *mail)
{
    job_ep_t       *ep   = &job_of(p)->ep;
    const uint32_t first = kvcl_ep_route_first(&ep->route, &ep->dims, peer);
    uint32_t       i;

    for (i = 0; (ep->turn.phase == KVCL_EP_DISPATCH) && (i < ep->inbox.n_from[peer]); ++i) {
        *rows_in(ep, peer, i) = mail->u.rows[i];
    }
    for (i = 0; (ep->turn.phase == KVCL_EP_COMBINE) && (i < ep->rows_to[peer]); ++i) {
        ep->back[first + i] = mail->u.rows[i];
    }
    kvcl_ep_turn_rows(&ep->turn, peer);
}

static void say_taken(proc_t *p, const job_mail_t *mail, job_take_t what)
{
    const proc_t *from = &sim.procs[mail->from];
    job_mail_t   *back = job_post(p, from->slot, from->incarnation, JOB_TAKEN);

    back->round = mail->round;
    back->k     = what;
    back->id    = mail->id;
}

bool job_step_take(proc_t *p, const job_mail_t *mail)
{
    job_t            *job = job_of(p);
    job_ep_t         *ep  = &job->ep;
    const uint32_t   peer = sim.procs[mail->from].slot;
    const job_take_t what = (mail->kind == JOB_NOTICE) ? TAKE_NOTICE : (mail->kind == JOB_ROWS) ? TAKE_ROWS
                                                                                               : TAKE_WORD;

    if (mail->kind == JOB_TAKEN) {
        if (ep->in_call && (ep->send_id[mail->k][peer] == mail->id) && kvcl_ep_turn_active(&ep->turn, peer)) {
            ep->send_id[mail->k][peer] = 0;
            kvcl_ep_turn_sent(&ep->turn, peer);
        }
        return true;
    }
    if ((mail->round < job->round) && (job_broken != JOB_BREAK_OLD_ROWS)) {
        return true; /* its tag will never be asked for again */
    }
    if (!ep->in_call || !ep->takes[what][peer] || (ep->take_tag[what][peer] != mail->tag)) {
        return false;
    }
    if ((what == TAKE_WORD) && (mail->call != 0)) {
        kvcl_ep_turn_beat(&ep->turn, peer, mail->call, sim.now);
        return true;
    }
    ep->takes[what][peer] = false;
    if (what == TAKE_WORD) {
        kvcl_ep_turn_lose(&ep->turn, peer, KVCL_ERR_STALE);
        return true;
    }
    say_taken(p, mail, what);
    if (what == TAKE_NOTICE) {
        take_notice(p, peer, mail);
    } else {
        take_rows(p, peer, mail);
    }
    return true;
}
