/*
 * Messages of the operations of sim_job.h, as they come in. One about an operation that has not begun here is held
 * (coll_early.c); an ABORT of one is answered at once, and an announcement in one that has failed by an ABORT.
 */
#include "config.h"

#include "sim_job.h"

#include <string.h>

static void take_announced(proc_t *p, const job_mail_t *mail, uint32_t from)
{
    job_op_t      *op    = &job_of(p)->op;
    const bool    failed = (op->exec.status != KVCL_OK);
    kvcl_status_t status = kvcl_exec_announced(&op->exec, from, mail->k, mail->off, mail->len, mail->signature);
    void          **copy;
    uint32_t      index;

    if ((status != KVCL_OK) || failed || (mail->len == 0)) {
        return; /* PROTOCOL: it came twice */
    }
    index = op->plan.index[op->plan.peers[kvcl_plan_find_peer(&op->plan, from)].first_recv + mail->k];
    if (mail->call < 2) {
        copy = malloc(sizeof(*copy) + mail->len);
        if (copy == NULL) {
            abort();
        }
        memcpy(copy + 1, mail->u.bytes, mail->len);
        *copy            = op->copies;
        op->copies       = copy;
        op->eager[index] = (uint8_t *)(copy + 1);
    }
    if (mail->answer) {
        op->no_ack[index] = 1;
        kvcl_exec_has_bytes(&op->exec, from, mail->k);
    }
}

static void serve(proc_t *p, const job_mail_t *mail, uint32_t from)
{
    const job_op_t *op = &job_of(p)->op;
    job_mail_t     *back;

    job_bytes_check_have(p, mail->off, mail->len);
    if (!sim.failed) {
        back       = job_post_rank(p, from, JOB_PULLED);
        back->step = mail->step;
        back->len  = mail->len;
        memcpy(back->u.bytes, op->in + mail->off, mail->len);
    }
}

static void take_pulled(proc_t *p, const job_mail_t *mail, uint32_t from)
{
    job_op_t *op = &job_of(p)->op;
    unsigned i;

    for (i = 0; i < KVCL_EXEC_PULLS; ++i) {
        if (op->pulls[i].busy && (op->pulls[i].step == mail->step) && (op->pulls[i].peer == from)) {
            op->pulls[i].busy = false;
            job_bytes_write(op, &op->pulls[i], mail->u.bytes);
            (void)!kvcl_exec_pulled(&op->exec, mail->step, KVCL_OK);
        }
    }
}

static void take_running(proc_t *p, const job_mail_t *mail, uint32_t from)
{
    job_op_t *op = &job_of(p)->op;

    switch (mail->kind) {
    case JOB_ANNOUNCE:
        take_announced(p, mail, from);
        break;
    case JOB_PULL:
        serve(p, mail, from);
        break;
    case JOB_PULLED:
        take_pulled(p, mail, from);
        break;
    case JOB_ACK:
        (void)!kvcl_exec_acked(&op->exec, from, mail->k); /* it may have come twice */
        break;
    default:
        if (kvcl_exec_aborted(&op->exec, from, mail->status) != KVCL_OK) { /* a rank outside of the plan */
            kvcl_exec_fail(&op->exec, mail->status);
        }
        break;
    }
}

static void answer_abort(proc_t *p, const job_mail_t *mail, kvcl_status_t status)
{
    const proc_t *from = &sim.procs[mail->from];
    job_mail_t   *back = job_post(p, from->slot, from->incarnation, JOB_ABORT);

    back->comm   = mail->comm;
    back->round  = mail->round;
    back->seq    = mail->seq;
    back->status = status;
    back->answer = true;
}

bool job_op_take(proc_t *p, const job_mail_t *mail, bool first)
{
    job_t          *job = job_of(p);
    const uint32_t from = job_rank_of(job, &sim.procs[mail->from]);
    const bool     same = (mail->comm == job->comm) || (job_broken == JOB_BREAK_ANY_COMM);

    if ((job->phase == JOB_WORKS) && job->op.runs && same && (mail->seq == job->seq) && (from != SLOTS)) {
        take_running(p, mail, from);
        return true;
    }
    if ((mail->kind == JOB_ABORT) && !mail->answer && first &&
        ((mail->round != job->round) || (mail->seq >= job->seq))) { /* no bytes are being read */
        answer_abort(p, mail, mail->status);
    }
    if ((mail->round == job->round) && job->failed && (mail->seq == job->seq) && (mail->kind == JOB_ANNOUNCE)) {
        answer_abort(p, mail, KVCL_ERR_REVOKED);
        return true;
    }
    if ((mail->round < job->round) || ((mail->round == job->round) && (mail->seq < job->seq))) {
        return true;
    }
    return (mail->kind != JOB_ANNOUNCE) && (mail->kind != JOB_ABORT);
}
