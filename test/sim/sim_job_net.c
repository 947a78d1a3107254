/*
 * The messages of sim_job.h: they share the links and the clock of sim_view.h.
 */
#include "config.h"

#include "sim_job.h"

#include <string.h>

static sim_queue_t queue;
static job_mail_t  mails_of[SIM_QUEUE_MAX];

void (*job_on_send)(unsigned from, unsigned to);

void job_net_begin(void)
{
    sim_queue_clear(&queue);
}

uint64_t job_net_at(void)
{
    return sim_queue_at(&queue);
}

static job_mail_t *put_mail(unsigned from, unsigned to, job_kind_t kind, uint64_t at)
{
    const unsigned i = sim_queue_new(&queue);

    memset(&mails_of[i], 0, offsetof(job_mail_t, u));
    mails_of[i].kind = kind;
    mails_of[i].from = from;
    mails_of[i].to   = to;
    sim_queue_add(&queue, i, at);
    return &mails_of[i];
}

/* Is a message of an agreement, which nobody repeats for it, lost? */
static bool is_lost(unsigned from, unsigned to, job_kind_t kind)
{
    return (kind == JOB_AGREE) &&
           ((sim.cut[from][to] != 0) || (!sim.healed && (sim.loss != 0) && (sim_below(1000) < sim.loss)));
}

job_mail_t *job_post(proc_t *p, uint32_t slot, uint64_t incarnation, job_kind_t kind)
{
    static job_mail_t nowhere;
    const unsigned    from = index_of(p);
    unsigned          to;
    job_mail_t        *mail;

    for (to = 0; (to < sim.n_procs) &&
                 !((sim.procs[to].slot == slot) && (sim.procs[to].incarnation == incarnation)); ++to) {
    }
    if ((to == sim.n_procs) || p->dead) {
        return &nowhere;
    }
    if (job_on_send != NULL) {
        job_on_send(from, to);
    }
    if (p->dead || sim.procs[to].dead || is_lost(from, to, kind)) {
        return &nowhere;
    }
    mail        = put_mail(from, to, kind, sim.now + sim_travel());
    mail->comm  = job_of(p)->comm;
    mail->round = job_of(p)->round;
    mail->seq   = job_of(p)->seq;
    return mail;
}

job_mail_t *job_post_rank(proc_t *p, uint32_t rank, job_kind_t kind)
{
    const job_t *job = job_of(p);

    return job_post(p, job->slots[rank], job->incarnations[rank], kind);
}

uint32_t job_rank_of(const job_t *job, const proc_t *from)
{
    uint32_t r;

    for (r = 0; r < job->size; ++r) {
        if ((job->slots[r] == from->slot) && (job->incarnations[r] == from->incarnation)) {
            return r;
        }
    }
    return SLOTS;
}

void job_wake(proc_t *p, uint64_t after_ns)
{
    job_of(p)->wakes = sim.now + after_ns;
    (void)put_mail(index_of(p), index_of(p), JOB_WAKE, sim.now + after_ns);
}

/* ---- what comes in ---- */

/* True: it is done with. */
static bool take(proc_t *p, job_mail_t *mail, bool first)
{
    if (mail->kind == JOB_WAKE) {
        job_act(p);
    } else if (mail->kind == JOB_AGREE) {
        job_take_agree(p, &mail->u.agree);
    } else if (mail->kind == JOB_REVOKE) {
        job_take_revoke(p, mail);
    } else if (mail->kind >= JOB_NOTICE) {
        return job_step_take(p, mail);
    } else {
        return job_op_take(p, mail, first);
    }
    return true;
}

static void look_once(proc_t *p)
{
    static unsigned held[SIM_QUEUE_MAX / 16];
    job_t           *job = job_of(p);
    unsigned        i, n = job->n_held, kept = 0;

    memcpy(held, job->held, n * sizeof(held[0]));
    job->n_held = 0; /* what comes meanwhile is behind it */
    for (i = 0; i < n; ++i) {
        if (take(p, &mails_of[held[i]], false)) {
            sim_queue_free(&queue, held[i]);
        } else {
            held[kept++] = held[i];
        }
    }
    memmove(job->held + kept, job->held, job->n_held * sizeof(held[0]));
    memcpy(job->held, held, kept * sizeof(held[0]));
    job->n_held += kept;
}

void job_look_again(proc_t *p)
{
    job_t *job = job_of(p);

    job->looks = true;
}

void job_look(proc_t *p)
{
    job_t *job = job_of(p);

    while (job->looks) {
        job->looks = false;
        look_once(p);
    }
}

void job_drop_held(job_t *job)
{
    unsigned i;

    for (i = 0; i < job->n_held; ++i) {
        sim_queue_free(&queue, job->held[i]);
    }
    job->n_held = 0;
}

/* As in the core, no message of a stranger or of a peer that has failed is taken. */
static bool fits(proc_t *p, const proc_t *from)
{
    const bool member = kvcl_view_has(&p->views.view, from->slot, from->incarnation);

    if (from == p) {
        return true;
    }
    if (member && !has_failed(p, from->slot)) {
        return true;
    }
    if (job_broken == JOB_BREAK_OLD_VIEW) {
        sim_broken("OldView", p, "a message of a process that is not in its view, or has failed, is taken");
        return true;
    }
    return false;
}

static void hold(job_t *job, unsigned item)
{
    if (job->n_held == sizeof(job->held) / sizeof(job->held[0])) {
        sim_queue_free(&queue, item); /* as coll_early.c: there is a bound */
        return;
    }
    job->held[job->n_held++] = item;
}

static bool may_arrive(const proc_t *p, const job_mail_t *mail)
{
    return !p->paused && ((mail->kind == JOB_WAKE) || (sim.cut[mail->from][mail->to] == 0));
}

void job_net_deliver(void)
{
    const unsigned item = sim_queue_take(&queue);
    job_mail_t     *mail = &mails_of[item];
    proc_t         *p    = &sim.procs[mail->to];
    const proc_t   *from = &sim.procs[mail->from];

    if (!sim_lives(p) || ((sim.cut[mail->from][mail->to] != 0) && from->dead)) {
        sim_queue_free(&queue, item);
        return;
    }
    if (!may_arrive(p, mail)) {
        sim_queue_add(&queue, item, ((p->paused && (p->resume_at > sim.now)) ? p->resume_at : sim.now) + (10 * MS));
        return;
    }
    if (!sim_is_member(p) || (job_of(p)->phase == JOB_NEW) || !fits(p, from)) {
        sim_queue_free(&queue, item);
    } else {
        if ((mail->kind != JOB_WAKE) && (sim_below(50) == 0)) {
            job_mail_t *twin = put_mail(mail->from, mail->to, mail->kind, sim.now + sim_travel());
            *twin            = *mail;
        }
        if (take(p, mail, true)) {
            sim_queue_free(&queue, item);
        } else {
            hold(job_of(p), item);
        }
    }
    job_after(p);
}
